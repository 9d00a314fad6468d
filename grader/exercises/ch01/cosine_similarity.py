"""1.6 cosine_similarity: the cosine between any two rows of a table; a row of zeros is like nothing."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional as F

from grader.exercises import rows
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(table):
    """numpy: outer products of norms, and a zero wherever one of them is zero."""
    rows = table.detach().numpy()
    norms = np.sqrt(np.einsum("vd,vd->v", rows, rows))
    scale = np.multiply.outer(norms, norms)
    dots = np.einsum("vd,wd->vw", rows, rows)
    return torch.from_numpy(np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0))


def cosine_similarity(table):
    lengths = table.norm(dim=1, keepdim=True)
    unit = table / lengths.clamp_min(1e-12)
    return unit @ unit.T


def f_cosine_similarity(table):
    return F.cosine_similarity(table[:, None], table[None], dim=-1)


def f_normalize(table):
    unit = F.normalize(table, dim=1)
    return torch.einsum("id,jd->ij", unit, unit)


def nan_to_num(table):
    norms = (table * table).sum(1).sqrt()
    return torch.nan_to_num((table @ table.T) / torch.outer(norms, norms), nan=0.0)


def plain_loops(table):
    out = torch.zeros(len(table), len(table), dtype=table.dtype)
    for i, a in enumerate(table):
        for j, b in enumerate(table):
            size = math.sqrt(a.dot(a)) * math.sqrt(b.dot(b))
            out[i, j] = a.dot(b) / size if size else 0.0
    return out


# ---- rows -------------------------------------------------------------------------------------------
# No row "device": plain_loops is right, and asks for the numbers themselves.


def _table(draw: Draw, **ranges) -> torch.Tensor:
    """Return a table whose rows have clearly different lengths."""
    sizes = draw.sizes(**(ranges or {"V": (5, 8), "d": (3, 4)}))
    table = draw.normal(sizes["V"], sizes.get("d", sizes["V"]))
    return table * torch.tensor([0.2, 3.0, 1.0, 0.5, 2.0] * 2)[: len(table), None]


def _one(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_table(draw)]})]


def _several(draw: Draw) -> list[Case]:
    tables = [_table(draw), _table(draw)]
    tables += [_table(draw, V=(4, 6)), _table(draw, V=(1, 1), d=(3, 4))]  # V = d, then a single row
    # Rows of length 0.04 to 0.06: short, but not so short that something tiny would lift them.
    tables.append(draw.uniform(5, 4, low=0.02, high=0.03) * (2 * draw.integers(0, 1, 5, 4) - 1))
    return [Case("function", {"args": [table]}) for table in tables]


def _zero_row(draw: Draw) -> list[Case]:
    table = _table(draw)
    table[2] = 0.0
    return [Case("function", {"args": [table]})]


ROWS = (
    Row(
        "cosines",
        "entry [i, j] is the cosine between rows i and j: [V, V]",
        _several,
        looks=("out",),
        weight=2,
    ),
    Row(
        "zero row",
        "a row of zeros has similarity 0 to every row, itself included, and nothing is NaN",
        _zero_row,
        looks=("out",),
        needs=("cosines",),
    ),
    rows.input_kept(_several, _("table itself is left unchanged"), ("cosines",)),
    rows.float64(_one, _("a float64 table gives a float64 result"), ("cosines",)),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "dot product",
        "These are plain dot products: long rows look similar to everything. Divide by the lengths of both rows.",
        "unit @ unit.T",
        "table @ table.T",
    ),
    edit(
        "one length",
        "The dot products are divided by the length of one row only. Both rows have a length; divide by both.",
        "unit @ unit.T",
        "unit @ table.T",
    ),
    edit(
        "no root",
        "You divide by the squared lengths: the square root of Σ x² is missing.",
        "table.norm(dim=1, keepdim=True)",
        "table.square().sum(dim=1, keepdim=True)",
    ),
    edit(
        "NaN",
        "A row of zeros has length 0, and 0 / 0 is NaN. Make sure that you never divide by 0 (clamp the lengths, for instance).",
        ".clamp_min(1e-12)",
        "",
    ),
    edit(
        "lengths as a row",
        "The lengths are a vector [V], and torch lines it up with the columns of the table. As a column [V, 1] "
        "they meet the rows: keepdim=True.",
        ", keepdim=True",
        "",
    ),
    edit(
        "ones on the diagonal",
        "The diagonal is set to 1. A row of zeros has no direction, so its similarity to itself is 0 here.",
        "unit @ unit.T",
        "(unit @ unit.T).fill_diagonal_(1.0)",
    ),
    edit(
        "NaN becomes one",
        "NaN is replaced by 1: a row of zeros would be the same as every other row. It should be 0.",
        ".clamp_min(1e-12)",
        "",
        "unit @ unit.T",
        "(unit @ unit.T).nan_to_num(nan=1.0)",
    ),
    edit(
        "lengths of columns",
        "The lengths are taken down the columns (dim=0). The words are rows: add up along the last axis.",
        "dim=1",
        "dim=0",
    ),
    edit(
        "length of the table",
        "One length was taken for the whole table. Every row has its own: norm(dim=1, keepdim=True).",
        "table.norm(dim=1, keepdim=True)",
        "table.norm()",
    ),
    edit(
        "centred",
        "The mean was taken off each row first. That is a correlation; the cosine takes rows as they are.",
        "    lengths =",
        "    table = table - table.mean(dim=1, keepdim=True)\n    lengths =",
    ),
    edit(
        "features",
        "This compares the d columns with each other: [d, d]. Compare the V rows: table times its transpose.",
        "dim=1",
        "dim=0",
        "unit @ unit.T",
        "unit.T @ unit",
    ),
    edit(
        "with itself only",
        "Each row is compared only with itself: [V]. All pairs are wanted: [V, V].",
        "unit @ unit.T",
        "(unit * unit).sum(dim=1)",
    ),
    edit(
        "first row only",
        "Only the first row is compared with all others: [V]. All pairs are wanted: [V, V].",
        "unit @ unit.T",
        "unit @ unit[0]",
    ),
    edit(
        "distance",
        "This is 1 − cosine, a distance: it is 0 for equal rows. The cosine itself is wanted.",
        "unit @ unit.T",
        "1 - unit @ unit.T",
    ),
    edit(
        "absolute",
        "The sign is gone. Opposite directions have cosine −1, not 1.",
        "unit @ unit.T",
        "(unit @ unit.T).abs()",
    ),
    edit(
        "sum of sizes",
        "The length was taken as the sum of the numbers' sizes. It is the root of the sum of their squares.",
        "table.norm(dim=1, keepdim=True)",
        "table.abs().sum(dim=1, keepdim=True)",
    ),
    edit(
        "in place",
        "table /= … changes the caller's tensor. Make a new one: unit = table / ….",
        "unit = table / lengths",
        "table /= lengths",
        "unit @ unit.T",
        "table @ table.T",
    ),
    edit(
        "softmax",
        "A softmax turns the cosines into shares of 1. They are wanted as they are.",
        "unit @ unit.T",
        "(unit @ unit.T).softmax(dim=-1)",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

TINY = "Only rows shorter than 1e-11 that are not zero show it, and the task leaves open what is tiny."

EXERCISE = Exercise(
    id="1.6",
    symbol="cosine_similarity",
    kind="function",
    parameters=("table",),
    points=4,
    todos=("1.6",),
    rows=ROWS,
    reference=reference,
    answer=cosine_similarity,
    mistakes=MISTAKES,
    alternatives=(f_cosine_similarity, f_normalize, nan_to_num, plain_loops),
    spoken={"out": _("the similarities")},
    equivalent={
        "table.norm(dim=1, keepdim=True) → table.norm(dim=-1, keepdim=True)": (
            "The table is [V, d]: axis -1 of two axes is axis 1."
        ),
        "lengths.clamp_min(1e-12) → lengths.clamp_min(1e-11)": TINY,
        "lengths.clamp_min(1e-12) → lengths.clamp_min(1e-13)": TINY,
    },
    hints={
        "1.6": (
            _("What is left of a dot product when both vectors have length 1?"),
            _("lengths of the rows [V, 1]; rows divided by them [V, d]; all pairs of dot products [V, V]."),
            _(
                "lengths = the norm along the last axis, kept as a column, never smaller than something tiny; unit = "
                "table over lengths; return unit times its transpose"
            ),
        )
    },
)
