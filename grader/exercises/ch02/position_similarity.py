"""2.5 position_similarity: how alike two codes are that lie so many positions apart."""

from __future__ import annotations

import math

import numpy as np
import torch

from grader.exercises.ch02.positional_encoding import Reference
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(d_model, offsets):
    theta = np.exp(-np.log(10000.0) * np.arange(d_model // 2) * 2 / d_model)
    dots = np.cos(np.multiply.outer(offsets.numpy().astype(np.float64), theta)).sum(axis=-1)
    dtype = offsets.dtype if offsets.is_floating_point() else torch.get_default_dtype()
    return torch.tensor(dots, dtype=dtype)


def position_similarity(d_model, offsets):
    theta = 1 / 10000.0 ** (torch.arange(0, d_model, 2) / d_model)  # [d / 2]
    cosines = torch.cos(offsets[:, None] * theta)  # [K, d / 2]
    return cosines.sum(dim=-1)


def from_the_codes(d_model, offsets):
    codes = Reference(d_model, int(offsets.max()) + 1).pe
    return (codes[offsets] * codes[0]).sum(-1)


def einsum(d_model, offsets):
    theta = torch.exp(-math.log(10000.0) / d_model * torch.arange(0, d_model, 2))
    return torch.einsum("kj->k", torch.cos(torch.outer(offsets.float(), theta)))


def plain_loops(d_model, offsets):
    sums = [sum(math.cos(int(k) / 10000 ** (2 * i / d_model)) for i in range(d_model // 2)) for k in offsets]
    return torch.tensor(sums)


# ---- rows -------------------------------------------------------------------------------------------
# None asks where tensors stand: right answers read the offsets one by one as plain numbers.


def _similarity(draw: Draw) -> list[Case]:
    sizes = draw.sizes(d=[8, 10, 14, 20], K=(5, 7))
    drawn = [(sizes["d"], sizes["K"]), (8, 8), (8, 4)]  # also K = d and K = d / 2, the number of frequencies
    return [Case("function", {"args": [d, draw.integers(1, 40, K)]}) for d, K in drawn]


def _zero(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.choice([6, 12, 18]), torch.tensor([0])]})]


ROWS = (
    Row("sum of cosines", "the result [K] is Σ_i cos(offset·θ_i)", _similarity, looks=("out",), weight=2),
    Row(
        "distance 0",
        "at offset 0 it is d/2, its largest value",
        _zero,
        looks=("out",),
        needs=("sum of cosines",),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit("i for 2i", "θ_i uses i/d where 2i/d is meant.", "(0, d_model, 2)", "(d_model // 2)"),
    edit(
        "sine",
        "You summed sines. sin a·sin b + cos a·cos b is the cosine of a − b.",
        "torch.cos",
        "torch.sin",
    ),
    edit("mean", "This is the mean over the frequencies; a dot product is their sum.", ".sum(", ".mean("),
    edit(
        "d frequencies",
        "You summed over d frequencies. Two columns share one, so there are d/2 of them.",
        "(0, d_model, 2)",
        "(d_model)",
    ),
    edit(
        "squared",
        "The cosines are squared before they are summed; the formula has no square.",
        "cosines.sum(",
        "cosines.square().sum(",
    ),
    edit(
        "over offsets",
        "You summed over the offsets and kept the frequencies. Sum over the last axis, the frequencies.",
        "dim=-1",
        "dim=0",
    ),
    edit(
        "one frequency",
        "Every term uses the same frequency 1. Each i has its own θ_i.",
        "2) / d_model",
        "2) // d_model",
    ),
    edit(
        "divided by √d",
        "A plain dot product is not divided by √d.",
        "cosines.sum(dim=-1)",
        "cosines.sum(dim=-1) / math.sqrt(d_model)",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="2.5",
    symbol="position_similarity",
    kind="function",
    parameters=("d_model", "offsets"),
    points=3,
    todos=("2.5",),
    rows=ROWS,
    reference=reference,
    answer=position_similarity,
    mistakes=MISTAKES,
    alternatives=(from_the_codes, einsum, plain_loops),
    hints={
        "2.5": (
            _(
                "A code's dot product with another is Σ (sin a sin b + cos a cos b). What single function is that?"
            ),
            _("offsets [K] and θ [d / 2] → angles [K, d / 2] → sum over the last axis → [K]."),
            _(
                "theta = as in 2.2; return the sum, over the last axis, of the cosine of (offsets as a column × theta)"
            ),
        )
    },
)
