"""7.3 padding_mask: where a real token stands, ids [B, n] -> bool [B, 1, 1, n]."""

from __future__ import annotations

import torch

from grader.exercises import rows
from grader.exercises.ch07._common import keys_mask, other_pad_cases, padded_ids
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def padding_mask(ids, pad_id=0):
    real = ids != pad_id  # [B, n]
    return real[:, None, None, :]  # [B, 1, 1, n]


def ne_and_unsqueeze(ids, pad_id=0):
    return torch.ne(ids, pad_id).unsqueeze(1).unsqueeze(1)


def difference(ids, pad_id=0):
    return (ids - pad_id).bool().view(ids.size(0), 1, 1, ids.size(1))


def lists(ids, pad_id=0):
    return torch.tensor([[[[token != pad_id for token in row]]] for row in ids.tolist()], device=ids.device)


# ---- rows -------------------------------------------------------------------------------------------


def _real_tokens(draw: Draw) -> list[Case]:
    sizes = draw.sizes(B=(2, 4), n=(5, 8))
    shapes = ((sizes["B"], sizes["n"]), (5, 5), (1, 6))  # all different, B = n, one sentence
    return [Case("function", {"args": [padded_ids(draw, *shape)]}) for shape in shapes]


REAL = ("real tokens",)

ROWS = (
    Row(
        "real tokens",
        "bool [B, 1, 1, n], True where a real token stands",
        _real_tokens,
        looks=("out",),
        weight=2,
    ),
    Row(
        "other pad_id",
        "any pad_id, wherever it stands, and id 0 is a word then",
        other_pad_cases,
        looks=("out",),
        needs=REAL,
    ),
    Row(
        "input kept",
        "ids are left unchanged",
        _real_tokens,
        looks=("changed",),
        needs=REAL,
        weight=0.5,  # the other half is the device row's
    ),
    rows.device(
        _real_tokens,
        says=_("new tensors are made where ids are, so that it also runs on a GPU"),
        needs=REAL,
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "reversed",
        "This mask is True at the padding. True means 'may attend', so it belongs to real tokens.",
        "!=",
        "==",
    ),
    edit(
        "two axes",
        "The values are right, but [B, n] would be taken for [n_q, n_k]. Add the axes of heads and queries: "
        "[B, 1, 1, n].",
        "real[:, None, None, :]",
        "real",
    ),
    edit(
        "three axes",
        "The values are right, but the axis of heads is missing: [B, 1, n]. Here it is [B, 1, 1, n].",
        "None, None",
        "None",
    ),
    edit(
        "on the queries",
        "[B, 1, n, 1] blocks whole rows: a padded query then sees nothing, while every real query still sees the "
        "padding. Keys lie along the last axis.",
        "None, None, :",
        "None, :, None",
    ),
    edit(
        "pad is always 0",
        "pad_id is not used: your mask always takes 0 for padding.",
        "ids != pad_id",
        "ids != 0",
    ),
    edit(
        "greater than",
        "ids > pad_id also blocks the words whose id is smaller than pad_id. Only equality says 'this is padding'.",
        "!=",
        ">",
    ),
    edit(
        "float mask",
        "The pattern is right, but the mask is made of floats. A comparison is already bool: leave it so.",
        "real[:, None, None, :]",
        "real[:, None, None, :].float()",
    ),
    edit(
        "square",
        "You blocked padded queries as well, so their rows are empty, and softmax over an empty row gives NaN. "
        "Blocking the keys is enough: what a padded query gathers, nobody reads.",
        "real[:, None, None, :]",
        "(real[:, :, None] & real[:, None, :])[:, None]",
    ),
    edit(
        "batch misplaced",
        "[1, 1, B, n] puts the batch where the queries belong. The batch comes first: [B, 1, 1, n].",
        "real[:, None, None, :]",
        "real[None, None]",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device ids are on. Make it with device=ids.device; a comparison "
        "of ids is where they are already.",
        "real = ids != pad_id",
        "real = torch.ones(ids.shape, dtype=torch.bool)\n    real[ids == pad_id] = False",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="7.3",
    symbol="padding_mask",
    kind="function",
    parameters=("ids", "pad_id"),
    points=2,
    todos=("7.3",),
    rows=ROWS,
    reference=keys_mask,
    answer=padding_mask,
    mistakes=MISTAKES,
    alternatives=(ne_and_unsqueeze, difference, lists),
    hints={
        "7.3": (
            _("Nobody may look at padding. Is padding then a row of the score matrix, or a column?"),
            _(
                "ids [B, n] → bool [B, n] → [B, 1, 1, n]: one axis for heads and one for queries, both of length 1."
            ),
            _(
                "real = where ids differ from pad_id; put two axes of length 1 between the batch and the tokens"
            ),
        )
    },
)
