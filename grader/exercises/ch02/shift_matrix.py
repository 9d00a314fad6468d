"""2.6 shift_matrix: the matrix that moves every code k places on, a rotation of each pair of columns."""

from __future__ import annotations

import math

import numpy as np
import torch

from grader.exercises.draw import Draw
from grader.exercises.edits import edit, whole
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(k, d_model):
    """Block-diagonal rotations from complex multiplication by e^(i·k·θ)."""
    turn = np.exp(1j * k * np.power(10000.0, -np.arange(0, d_model, 2) / d_model))
    dtype = torch.get_default_dtype()
    blocks = [torch.tensor([[z.real, z.imag], [-z.imag, z.real]], dtype=dtype) for z in turn]
    return torch.block_diag(*blocks)


def shift_matrix(k, d_model):
    angles = k * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)  # [d / 2]
    blocks = []
    for a in angles:
        cos, sin = torch.cos(a), torch.sin(a)
        blocks.append(torch.tensor([[cos, sin], [-sin, cos]]))
    return torch.block_diag(*blocks)


def index_assignment(k, d_model):
    angles = k / 10000.0 ** (torch.arange(0, d_model, 2) / d_model)
    matrix = torch.zeros(d_model, d_model)
    even = torch.arange(0, d_model, 2)
    matrix[even, even] = matrix[even + 1, even + 1] = angles.cos()
    matrix[even, even + 1] = angles.sin()
    matrix[even + 1, even] = -angles.sin()
    return matrix


def matrix_exponential(k, d_model):
    generator = torch.zeros(d_model, d_model)
    for j in range(0, d_model, 2):
        generator[j, j + 1] = k / 10000.0 ** (j / d_model)
        generator[j + 1, j] = -generator[j, j + 1]
    return torch.linalg.matrix_exp(generator)


def kron(k, d_model):
    angles = k * torch.exp(-math.log(10000.0) / d_model * torch.arange(0, d_model, 2))
    cos = torch.kron(torch.diag(angles.cos()), torch.eye(2))
    return cos + torch.kron(torch.diag(angles.sin()), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))


# ---- rows -------------------------------------------------------------------------------------------
# None asks where tensors stand: no tensor goes in.


def _forth(draw: Draw) -> list[Case]:
    near = Case("function", {"args": [draw.size(2, 6), draw.choice([8, 10, 12])]})
    return [near, Case("function", {"args": [181, draw.choice([8, 10, 12])]})]


def _zero(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [0, draw.choice([4, 6])]})]


def _back(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [-draw.size(2, 6), draw.choice([6, 8])]})]


NEEDS = ("moves by k",)
# A base of 10001 turns by another angle: at k = 181 some entry is off by 3.3e-4 or more, for each d. Right answers are
# off by at most 1e-5 there, a matrix exponential in float32 (its error depends on k: it is small for 181).
FAR = Tolerance(atol=5e-5, rtol=0.0)

ROWS = (
    Row(
        "moves by k",
        "R [d, d] turns pe[p] into pe[p + k] for every p",
        _forth,
        looks=("out",),
        weight=2,
        tolerance=FAR,
    ),
    Row("k = 0", "for k = 0 it is the identity", _zero, looks=("out",), needs=NEEDS),
    Row("backwards", "a negative k moves back", _back, looks=("out",), needs=NEEDS),
)

# ---- known mistakes ---------------------------------------------------------------------------------


def shift_halves(k, d_model):
    angles = k * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    cos, sin = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])


def shift_permutes(k, d_model):
    return torch.eye(d_model).roll(k, dims=0)


MISTAKES = (
    edit(
        "turns back",
        "This matrix moves by −k: the signs of the two sines are swapped. "
        "sin(a + b) = cos b · sin a + sin b · cos a, so the first row of a block is [cos, sin].",
        "[[cos, sin], [-sin, cos]]",
        "[[cos, -sin], [sin, cos]]",
    ),
    edit("i for 2i", "θ_i uses i/d where 2i/d is meant.", "(0, d_model, 2)", "(d_model // 2)"),
    whole(
        "halves",
        "This fits codes with all sines in front. Here sine and cosine take turns, "
        "so each 2×2 block stands on the diagonal, over columns 2i and 2i + 1.",
        shift_halves,
    ),
    edit(
        "cosine first",
        "The blocks expect the cosine in the even column; the sine stands there.",
        "[[cos, sin], [-sin, cos]]",
        "[[sin, cos], [cos, -sin]]",
    ),
    edit("always by 1", "k is not used: this matrix always moves by 1.", "k * 10000.0", "10000.0"),
    edit(
        "no minus",
        "One sine needs a minus sign: cos(a + b) = cos a · cos b − sin a · sin b.",
        "-sin",
        "sin",
    ),
    edit(
        "one angle",
        "Every block turns by the same angle k. Block i turns by k·θ_i.",
        "torch.cos(a), torch.sin(a)",
        "math.cos(k), math.sin(k)",
    ),
    whole(
        "permutation",
        "Shifting rows of the identity moves features, not positions. A position moves by rotating each pair.",
        shift_permutes,
    ),
    edit(
        "only cosines",
        "The sines beside the diagonal are missing, so a pair shrinks and does not turn.",
        "[[cos, sin], [-sin, cos]]",
        "[[cos, 0.0], [0.0, cos]]",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="2.6",
    symbol="shift_matrix",
    kind="function",
    parameters=("k", "d_model"),
    points=4,
    todos=("2.6",),
    rows=ROWS,
    reference=reference,
    answer=shift_matrix,
    mistakes=MISTAKES,
    alternatives=(index_assignment, matrix_exponential, kron),
    equivalent={
        "torch.arange(0, d_model, 2) → torch.arange(0, d_model - 1, 2)": (
            "columns come in pairs, so d_model is even, and its last even column is d_model - 2"
        ),
    },
    hints={
        "2.6": (
            _("Write sin((p + k)θ) with the addition theorem. Which two numbers of pe[p] does it need?"),
            _("Block i is 2×2, over rows and columns 2i and 2i + 1; all blocks together are [d, d]."),
            _(
                "for each i: put [[cos kθ_i, sin kθ_i], [−sin kθ_i, cos kθ_i]] on the diagonal, starting at 2i"
            ),
        )
    },
)
