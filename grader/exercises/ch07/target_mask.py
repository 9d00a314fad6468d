"""7.4 target_mask: real keys that are not in the future, ids [B, m] -> bool [B, 1, m, m]."""

from __future__ import annotations

import torch

from grader.exercises import rows
from grader.exercises.ch07._common import other_pad_cases, padded_ids, past_keys_mask
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import causal_mask, padding_mask  # the learner's are those of 7.2 and 7.3

# ---- what is right ----------------------------------------------------------------------------------


def target_mask(ids, pad_id=0):
    real = padding_mask(ids, pad_id)  # [B, 1, 1, m]
    past = causal_mask(ids.size(1)).to(ids.device)  # [1, 1, m, m]
    return real & past  # [B, 1, m, m]


def product(ids, pad_id=0):
    past = torch.ones(ids.size(1), ids.size(1), device=ids.device).tril().bool()
    return (ids != pad_id)[:, None, None, :] * past


def masked_fill(ids, pad_id=0):
    mask = torch.ones(ids.size(0), 1, ids.size(1), ids.size(1), dtype=torch.bool, device=ids.device).tril()
    return mask.masked_fill((ids == pad_id)[:, None, None, :], False)


def loops(ids, pad_id=0):
    m = ids.size(1)
    rows = [[[[j <= i and row[j] != pad_id for j in range(m)] for i in range(m)]] for row in ids.tolist()]
    return torch.tensor(rows, device=ids.device)


# ---- rows -------------------------------------------------------------------------------------------


def _both(draw: Draw) -> list[Case]:
    """Padding on the right, and in the middle: on the right alone, blocking queries too would look right."""
    sizes = draw.sizes(B=(2, 4), m=(5, 8))
    ids = padded_ids(draw, sizes["B"], sizes["m"])
    square = padded_ids(draw, 5, 5)  # B = m
    return [Case("function", {"args": [each]}) for each in (ids, ids.roll(-2, dims=1), square)]


ROWS = (
    Row(
        "both",
        "bool [B, 1, m, m], True for real keys that are not in the future",
        _both,
        looks=("out",),
        weight=2,
    ),
    Row(
        "other pad_id",
        "any pad_id, and id 0 is a word then",
        other_pad_cases,
        looks=("out",),
        needs=("both",),
        weight=0.5,  # the other half is the device row's
    ),
    rows.device(
        _both,
        says=_("new tensors are made where ids are, so that it also runs on a GPU"),
        needs=("both",),
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "only causal",
        "The future is hidden, but the padding is not.",
        "real & past",
        "past.expand(ids.size(0), 1, -1, -1)",
    ),
    edit(
        "only padding",
        "The padding is hidden, but the future is not.",
        "real & past",
        "real.expand(-1, 1, ids.size(1), -1)",
    ),
    edit(
        "either",
        "Your mask allows a key that passes one of the two tests. A key must pass both: use &, not |.",
        "real & past",
        "real | past",
    ),
    edit(
        "on the queries",
        "The padding is blocked along the queries (rows). Padding must not be looked at, so block its columns, the keys.",
        "real & past",
        "real.transpose(-2, -1) & past",
    ),
    edit(
        "both axes",
        "You blocked padded queries as well. Their rows become empty, and softmax over an empty row gives NaN. Block "
        "keys only.",
        "real & past",
        "real & real.transpose(-2, -1) & past",
    ),
    edit(
        "excludes self",
        "A token may not look at itself here, so the first row is empty. Keep the diagonal.",
        "causal_mask(ids.size(1))",
        "causal_mask(ids.size(1)).tril(-1)",
    ),
    edit(
        "future instead",
        "The triangle is the upper one: tokens see the future and not the past.",
        "causal_mask(ids.size(1))",
        "causal_mask(ids.size(1)).transpose(-2, -1)",
    ),
    edit(
        "pad is always 0",
        "pad_id is not passed on to padding_mask.",
        "padding_mask(ids, pad_id)",
        "padding_mask(ids)",
    ),
    edit(
        "reversed",
        "This mask is True where attention is blocked. True means 'may attend'.",
        "real & past",
        "~(real & past)",
    ),
    edit(
        "the word and",
        "`and` asks Python for one yes or no for a whole tensor. To combine two tensors place by place use &.",
        "real & past",
        "real and past",
    ),
    edit(
        "no axis of heads",
        "The values are right; the axis of heads is missing.",
        "real & past",
        "(real & past)[:, 0]",
    ),
    edit(
        "float mask",
        "The pattern is right, but the mask is made of floats. Combine two bool masks with &.",
        "real & past",
        "real.float() * past",
    ),
    edit(
        "on the CPU",
        "causal_mask makes its tensor on the CPU, and ids may be on a GPU. Write .to(ids.device) behind it.",
        ".to(ids.device)",
        "",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="7.4",
    symbol="target_mask",
    kind="function",
    parameters=("ids", "pad_id"),
    points=2,
    todos=("7.4",),
    rows=ROWS,
    reference=past_keys_mask,
    answer=target_mask,
    mistakes=MISTAKES,
    alternatives=(product, masked_fill, loops),
    equivalent={
        "padding_mask(ids, pad_id) → padding_mask(pad_id, ids)": "the lesson's padding_mask compares the two with !=, "
        "in either order",
        "ids.size(1) → ids.size(-1)": "ids have two axes: 1 is the last",
    },
    hints={
        "7.4": (
            _("A key is allowed when two things hold. You have a mask for each; which operator says 'both'?"),
            _("[B, 1, 1, m] with [1, 1, m, m] broadcasts to [B, 1, m, m]."),
            _(
                "combine padding_mask of ids (with this pad_id) and causal_mask of their length by a logical 'and'"
            ),
        )
    },
)
