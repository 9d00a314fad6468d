"""7.1 shift_right: the decoder's input for predicting `target`, [B, m] -> [B, m]."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from grader.exercises import rows
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(target, bos_id):
    """Place i is given what stands at place i - 1; before place 0 stands bos_id."""
    before = torch.arange(target.size(1), device=target.device) - 1
    return torch.where(before >= 0, target[:, before], bos_id)


def shift_right(target, bos_id):
    first = torch.full_like(target[:, :1], bos_id)  # [B, 1]
    return torch.cat([first, target[:, :-1]], dim=1)  # [B, m]


def new_empty(target, bos_id):
    out = target.new_empty(target.shape)
    out[:, 0], out[:, 1:] = bos_id, target[:, :-1]
    return out


def roll_and_fill(target, bos_id):
    return target.roll(1, dims=1).index_fill(1, torch.tensor([0], device=target.device), bos_id)


def lists(target, bos_id):
    return torch.tensor([[bos_id, *row[:-1]] for row in target.tolist()], device=target.device)


def pad(target, bos_id):
    return F.pad(target, (1, 0), value=bos_id)[:, : target.size(1)]


# ---- rows -------------------------------------------------------------------------------------------


def _targets(draw: Draw, bos_id: int, m: int | None = None) -> list:
    sizes = draw.sizes(B=(2, 4), m=(5, 7))
    return [draw.integers(4, 30, sizes["B"], m or sizes["m"]), bos_id]


def _shifted(draw: Draw) -> list[Case]:
    other = _targets(draw, draw.size(31, 40))
    other[0] = {"$": "strided", "tensor": other[0]}
    square = [draw.integers(4, 30, 5, 5), draw.size(31, 40)]  # B = m
    one_sentence = [draw.integers(4, 30, 1, 6), 1]
    return [Case("function", {"args": args}) for args in (_targets(draw, 1), other, square, one_sentence)]


def _one_token(draw: Draw) -> list[Case]:
    return [Case("function", {"args": _targets(draw, 1, m=1)})]


SHIFTED = ("shifted",)

ROWS = (
    Row(
        "shifted",
        "each row begins with bos_id, goes on with target, and lacks its last token",
        _shifted,
        looks=("out",),
        weight=2,
    ),
    Row("one token", "a target of one token gives [[bos_id], …]", _one_token, looks=("out",), needs=SHIFTED),
    Row(
        "input kept",
        "target is left unchanged",
        _shifted,
        looks=("changed",),
        needs=SHIFTED,
        weight=0.5,  # the other half is the device row's
    ),
    rows.device(
        _shifted,
        says=_("new tensors are made where target is, so that it also runs on a GPU"),
        needs=SHIFTED,
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "one too long",
        "Your rows have m + 1 tokens. The last token of target is only ever an answer, never an input: "
        "leave it out.",
        "target[:, :-1]",
        "target",
    ),
    edit(
        "no bos",
        "The last token is gone, but bos_id does not stand in front, so there is nothing to predict the first token "
        "from.",
        "torch.cat([first, target[:, :-1]], dim=1)",
        "target[:, :-1]",
    ),
    edit(
        "shifted left",
        "You moved the tokens to the left. Then position i would be given token i + 1, an answer it has not reached. "
        "Move them to the right.",
        "[first, target[:, :-1]]",
        "[target[:, 1:], first]",
    ),
    edit(
        "wraps around",
        "roll brings the last token round to the front. Put bos_id there instead.",
        "torch.cat([first, target[:, :-1]], dim=1)",
        "target.roll(1, dims=1)",
    ),
    edit(
        "overwrites",
        "You overwrote the first token and moved none. Position 1 is then given token 1, the very token it must "
        "predict.",
        "target[:, :-1]",
        "target[:, 1:]",
    ),
    edit(
        "shifted twice",
        "The tokens moved by two places. Position i must be given token i − 1, so shift once.",
        "    return torch.cat(",
        "    target = torch.cat([first, target[:, :-1]], dim=1)\n    return torch.cat(",
    ),
    edit(
        "bos is always 1",
        "bos_id is not used: the rows always begin with 1.",
        ":1], bos_id",
        ":1], 1",
    ),
    edit(
        "along the batch",
        "You shifted along the batch: each sentence became its neighbour. target is [B, m]; tokens lie along dim 1.",
        "target[:, :1]",
        "target[:1]",
        "target[:, :-1]], dim=1",
        "target[:-1]], dim=0",
    ),
    edit(
        "as one row",
        "The last token of each sentence runs into the front of the next one. Every row needs bos_id of its own.",
        "first = torch.full_like(target[:, :1], bos_id)  # [B, 1]",
        "out = target.flatten().roll(1)\n    out[0] = bos_id",
        "torch.cat([first, target[:, :-1]], dim=1)",
        "out.view_as(target)",
    ),
    edit(
        "float ids",
        "Ids must stay int64, or nn.Embedding refuses them. torch.ones and torch.zeros make floats: "
        "take target.new_full or torch.full_like.",
        "torch.full_like(target[:, :1], bos_id)",
        "torch.ones(target.size(0), 1) * bos_id",
    ),
    edit(
        "bos without rows",
        "The part in front has one axis, target has two. Every sentence needs its bos_id: a column [B, 1].",
        "torch.full_like(target[:, :1], bos_id)",
        "torch.tensor([bos_id])",
    ),
    edit(
        "in place",
        "The result is right, but you wrote it into target itself, and the loss still needs target. Make a new tensor.",
        "first = torch.full_like(target[:, :1], bos_id)  # [B, 1]",
        "target[:, 1:] = target[:, :-1].clone()\n    target[:, 0] = bos_id",
        "torch.cat([first, target[:, :-1]], dim=1)",
        "target",
    ),
    edit(
        "on the CPU",
        "The column of bos_id is made on the CPU, whatever device target is on. Make it with device=target.device, "
        "or take torch.full_like.",
        "torch.full_like(target[:, :1], bos_id)",
        "torch.full((target.size(0), 1), bos_id)",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="7.1",
    symbol="shift_right",
    kind="function",
    parameters=("target", "bos_id"),
    points=2,
    todos=("7.1",),
    rows=ROWS,
    reference=reference,
    answer=shift_right,
    mistakes=MISTAKES,
    alternatives=(new_empty, roll_and_fill, lists, pad),
    equivalent={
        "torch.cat([first, target[:, :-1]], dim=1) → "
        "torch.cat([first, target[:, :-1]], dim=-1)": "target has two axes: 1 is the last"
    },
    hints={
        "7.1": (
            _(
                "The decoder must predict 'the cat sat'. What does it know before it says 'the'? And before 'cat'?"
            ),
            _("A column of bos_id [B, 1] beside target without its last column [B, m − 1] gives [B, m]."),
            _(
                "first = a [B, 1] tensor filled with bos_id, of target's dtype; join first and "
                "target[:, all but the last] along dim 1"
            ),
        )
    },
)
