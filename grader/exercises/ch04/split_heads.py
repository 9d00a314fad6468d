"""4.1 split_heads: cut the width into h heads and put the heads before the tokens."""

from __future__ import annotations

import torch

from grader.exercises import rows
from grader.exercises.ch04._common import EQUAL, equal_sizes, labels, sizes
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(x, h):
    """Cut the width into h pieces and stack them as a new axis."""
    if x.shape[-1] % h:
        raise ValueError(f"h = {h} does not divide d = {x.shape[-1]}")
    return torch.stack(x.chunk(h, dim=-1), dim=1)


def split_heads(x, h):
    B, n, d = x.shape
    if d % h != 0:
        raise ValueError(f"{h} heads do not divide a width of {d}")
    d_k = d // h
    heads = x.reshape(B, n, h, d_k)
    return heads.transpose(1, 2)


def unflatten_and_permute(x, h):
    if x.size(-1) % h:
        raise ValueError(f"d_model={x.size(-1)} is not a multiple of h={h}")
    return x.unflatten(-1, (h, -1)).permute(0, 2, 1, 3)


def slices_and_cat(x, h):
    d_k, rest = divmod(x.shape[2], h)
    if rest:
        raise ValueError("h does not divide d", h, x.shape)
    heads = [x[:, :, head * d_k : (head + 1) * d_k].unsqueeze(1) for head in range(h)]
    return torch.cat(heads, dim=1)


def einsum(x, h):
    if x.size(-1) % h:
        raise ValueError(f"{x.size(-1)} % {h} != 0")
    return torch.einsum("bnhk->bhnk", x.reshape(*x.shape[:2], h, -1)).contiguous()


def unfold(x, h):
    if x.size(-1) % h:
        raise ValueError("cannot cut " + str(x.size(-1)) + " features into " + str(h) + " heads")
    d_k = x.size(-1) // h
    return x.unfold(-1, d_k, d_k).swapaxes(1, 2)


# ---- rows -------------------------------------------------------------------------------------------


def _case(x: torch.Tensor, h: int, **more) -> Case:
    return Case("function", {"args": [x, h], **more})


def _labels(draw: Draw) -> list[Case]:
    drawn = [sizes(draw), *(equal_sizes(draw, **equal) for equal in EQUAL)]
    return [_case(labels(s["B"], s["n_q"], s["d"]), s["h"]) for s in drawn]


def _random(draw: Draw) -> list[Case]:
    s = sizes(draw)
    return [_case(draw.normal(s["B"], s["n_q"], s["d"]), s["h"])]


def _other_widths(draw: Draw) -> list[Case]:
    s = sizes(draw)
    x = draw.normal(s["B"], s["n_q"], s["d"])
    return [_case(x, h) for h in (s["h"], 1, s["d"])]


def _short(draw: Draw) -> list[Case]:
    s = sizes(draw)
    shapes = ((1, s["n_q"]), (s["B"], 1))
    return [_case(draw.normal(*shape, s["d"]), s["h"]) for shape in shapes]


def _gradient(draw: Draw) -> list[Case]:
    s = sizes(draw)
    x, cotangent = draw.normal(s["B"], s["n_q"], s["d"]), draw.normal(s["B"], s["h"], s["n_q"], s["d_k"])
    return [_case(x, s["h"], wrt=["0"], cotangents=[cotangent])]


def _does_not_divide(draw: Draw) -> list[Case]:
    d, h = draw.choice([(10, 3), (10, 4), (14, 4), (9, 2), (8, 3), (11, 2)])
    run = _case(draw.normal(2, 5, d), h)
    named = Case("named in an error", {"args": run.inputs["args"], "numbers": [d, h]})
    return [Case("raises", {"run": run.tree(), "error": "ValueError"}), named]


def _strided(draw: Draw) -> list[Case]:
    return [rows.strided(case) for case in _random(draw)]


def _float64(draw: Draw) -> list[Case]:
    return [rows.in_float64(case) for case in _random(draw)]


FIRST = ("every number in its head",)

ROWS = (
    Row(
        "every number in its head",
        "each number goes to its own token and head (the number is 1000·sequence + 100·token + feature)",
        _labels,
        looks=("out",),
        weight=3,
    ),
    Row(
        "other widths",
        "it works for any h that divides d, for h = 1 and h = d too",
        _other_widths,
        looks=("out",),
        needs=FIRST,
    ),
    Row(
        "one sequence, one token",
        "B = 1 and n = 1 keep their axes",
        _short,
        looks=("out",),
        needs=FIRST,
    ),
    Row(
        "error",
        "ValueError when h does not divide d",
        _does_not_divide,
        looks=("raised", "unnamed"),
        needs=FIRST,
    ),
    Row(
        "gradient",
        "the gradient finds its way back to x",
        _gradient,
        looks=("grad.0",),
        needs=FIRST,
    ),
    Row(
        "memory layout",
        "an x whose memory is in another order gives the same",
        _strided,
        looks=("out",),
        needs=FIRST,
    ),
    Row(
        "float64, x kept",
        "a float64 input gives float64, and x itself is left unchanged",
        _float64,
        looks=("out", "changed"),
        needs=FIRST,
        weight=0.5,
    ),
    rows.device(_random, needs=FIRST, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

TEST = """\
    if d % h != 0:
        raise ValueError(f"{h} heads do not divide a width of {d}")
"""
SLICES = """\
    heads = [x[:, :, head * d_k : (head + 1) * d_k].unsqueeze(1) for head in range(h)]
    return torch.cat(heads, dim=1)
"""
FILLED = """\
    heads = torch.empty(x.size(0), h, x.size(1), d_k, dtype=x.dtype)
    for head in range(h):
        heads[:, head] = x[:, :, head * d_k : (head + 1) * d_k]
    return heads
"""

MISTAKES = (
    edit(
        "view without transpose",
        "view(B, h, n, d_k) fills the new shape in memory order, so the first head gets the first tokens whole, "
        "and no head sees every token. Cut only the last axis, [B, n, h, d_k]; then exchange axes 1 and 2.",
        "x.reshape(B, n, h, d_k)",
        "x.reshape(B, h, n, d_k)",
        "heads.transpose(1, 2)",
        "heads",
    ),
    edit(
        "transpose forgotten",
        "The cut is right, but the axes still stand as [B, n, h, d_k]. The head must come before the token: "
        "exchange axes 1 and 2.",
        "heads.transpose(1, 2)",
        "heads",
    ),
    edit(
        "interleaved",
        "Your heads take turns over the features: feature j went to head j % h. A head is a block of neighbours: "
        "head 0 has features 0 … d_k − 1. Cut the last axis as (h, d_k), not (d_k, h).",
        "x.reshape(B, n, h, d_k)",
        "x.reshape(B, n, d_k, h)",
        "heads.transpose(1, 2)",
        "heads.permute(0, 3, 1, 2)",
    ),
    edit(
        "h and d_k exchanged",
        "You cut the width into d_k heads of width h. It is the other way round: h heads of width d_k.",
        "x.reshape(B, n, h, d_k)",
        "x.reshape(B, n, d_k, h)",
    ),
    edit(
        "d_k before n",
        "The last two axes are exchanged: [B, h, d_k, n]. That is the shape of K transposed, which the attention "
        "makes by itself. Here the answer is [B, h, n, d_k].",
        "heads.transpose(1, 2)",
        "heads.permute(0, 2, 3, 1)",
    ),
    edit(
        "head before batch",
        "The head axis stands in front of the batch: [h, B, n, d_k]. The batch stays first.",
        "heads.transpose(1, 2)",
        "heads.permute(2, 0, 1, 3)",
    ),
    edit(
        "heads in the batch",
        "Batch and head became one axis [B·h, n, d_k]. Keep them apart, so that a mask can tell a sequence from a "
        "head.",
        "heads.transpose(1, 2)",
        "heads.transpose(1, 2).reshape(B * h, n, d_k)",
    ),
    edit(
        "transposed too early",
        "You exchanged tokens and features before the cut, so each head holds other features of mixed tokens. "
        "First cut the last axis, then exchange axes 1 and 2.",
        "x.reshape(B, n, h, d_k)",
        "x.transpose(1, 2).reshape(B, h, n, d_k)",
        "heads.transpose(1, 2)",
        "heads",
    ),
    edit(
        "one head, h times",
        "Every head holds the same d_k features, those of head 0. The other features are lost.",
        "heads.transpose(1, 2)",
        "heads.transpose(1, 2)[:, :1].expand(-1, h, -1, -1)",
    ),
    edit(
        "whole width",
        "Every head got all d features. A head gets its own d_k = d / h of them.",
        "x.reshape(B, n, h, d_k)",
        "x.unsqueeze(1)",
        "heads.transpose(1, 2)",
        "heads.expand(-1, h, -1, -1)",
    ),
    edit(
        "detached",
        "The result is cut off from x (detach, .data or no_grad), so no gradient would reach W_q.",
        "x.reshape",
        "x.detach().reshape",
    ),
    edit(
        "no ValueError",
        "When h does not divide d, the error of view comes through, and it speaks of sizes a reader has never "
        "heard of. Test x.size(-1) % h first and raise ValueError with both numbers.",
        TEST,
        "",
    ),
    edit(
        "drops the rest",
        "When h does not divide d, the features that are left over vanish silently. Raise ValueError.",
        TEST,
        "",
        "x.reshape",
        "x[..., : h * d_k].reshape",
    ),
    edit(
        "assert",
        "assert raises AssertionError, and `python -O` skips it. A wrong argument is a ValueError: "
        "if …: raise ValueError(…).",
        TEST,
        '    assert d % h == 0, "h does not divide d"\n',
    ),
    edit(
        "numbers not named",
        "The ValueError does not say which numbers do not fit. Put h and d into its message: whoever reads it "
        "will look for them first.",
        'f"{h} heads do not divide a width of {d}"',
        '"h does not divide d"',
    ),
    edit(
        "on the CPU",
        "The tensor that you fill is made on the CPU, whatever device x is on. Make it with device=x.device.",
        SLICES,
        FILLED,
        of=slices_and_cat,
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="4.1",
    symbol="split_heads",
    kind="function",
    parameters=("x", "h"),
    points=4,
    todos=("4.1",),
    rows=ROWS,
    reference=reference,
    answer=split_heads,
    mistakes=MISTAKES,
    alternatives=(unflatten_and_permute, slices_and_cat, einsum, unfold),
    spoken={
        "grad.0": _("the gradient of x"),
        "unnamed": _("the list of numbers that the error's message does not name"),
    },
    equivalent={
        "d % h != 0 → d % h > 0": "A number of heads is positive, and then a rest is never negative.",
        "x.view(B, n, h, d // h).transpose(1, 2) → x.view(B, n, h, d // h).transpose(1, -2)": "Of four axes, axis 2 is axis -2.",
    },
    hints={
        "4.1": (
            _(
                "Which axis of x [B, n, d] holds the numbers that must be parted? Which axes must stay as they are?"
            ),
            _(
                "[B, n, d] → cut the last axis → [B, n, h, d / h] → exchange axes 1 and 2 → [B, h, n, d / h]. "
                "And what is d % h when h divides d?"
            ),
            _(
                "if the width leaves a rest when divided by h: raise a ValueError. Then view with four sizes, "
                "the last two being h and d_k; then transpose two axes."
            ),
        )
    },
)
