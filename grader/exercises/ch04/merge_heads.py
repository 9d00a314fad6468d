"""4.4 merge_heads: lay the heads side by side again, the inverse of split_heads."""

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


def reference(x):
    """Put the heads side by side along the width."""
    return torch.cat(x.unbind(dim=1), dim=-1)


def merge_heads(x):
    B, h, n, d_k = x.shape
    tokens = x.transpose(1, 2)
    return tokens.reshape(B, n, h * d_k)


def contiguous_and_view(x):
    B, h, n, d_k = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(B, n, h * d_k)


def einsum(x):
    return torch.einsum("bhnk->bnhk", x).flatten(-2)


def loop_over_heads(x):
    B, h, n, d_k = x.shape
    out = x.new_empty(B, n, h * d_k)
    for head in range(h):
        out[:, :, head * d_k : (head + 1) * d_k] = x[:, head]
    return out


def stack_and_reshape(x):
    return torch.stack(list(x.unbind(1)), dim=2).reshape(x.size(0), x.size(2), -1)


# ---- rows -------------------------------------------------------------------------------------------


def _case(x: torch.Tensor, **more) -> Case:
    return Case("function", {"args": [x], **more})


def _labels(draw: Draw) -> list[Case]:
    drawn = [sizes(draw), *(equal_sizes(draw, **equal) for equal in EQUAL)]
    parts = [labels(s["B"], s["n_q"], s["d"]).unflatten(-1, (s["h"], s["d_k"])) for s in drawn]
    return [_case(x.transpose(1, 2).contiguous()) for x in parts]


def _random(draw: Draw) -> list[Case]:
    s = sizes(draw)
    return [_case(draw.normal(s["B"], s["h"], s["n_q"], s["d_k"]))]


def _other_widths(draw: Draw) -> list[Case]:
    s = sizes(draw)
    shapes = ((s["h"], s["d_k"]), (1, s["d"]), (s["d"], 1))
    return [_case(draw.normal(s["B"], h, s["n_q"], d_k)) for h, d_k in shapes]


def _short(draw: Draw) -> list[Case]:
    s = sizes(draw)
    shapes = ((1, s["h"], s["n_q"]), (s["B"], s["h"], 1))
    return [_case(draw.normal(*shape, s["d_k"])) for shape in shapes]


def _gradient(draw: Draw) -> list[Case]:
    s = sizes(draw)
    x, cotangent = draw.normal(s["B"], s["h"], s["n_q"], s["d_k"]), draw.normal(s["B"], s["n_q"], s["d"])
    return [_case(x, wrt=["0"], cotangents=[cotangent])]


def _strided(draw: Draw) -> list[Case]:
    return [rows.strided(case) for case in _random(draw)]


def _float64(draw: Draw) -> list[Case]:
    return [rows.in_float64(case) for case in _random(draw)]


FIRST = ("every number back",)

ROWS = (
    Row(
        "every number back",
        "each number is back with its token, heads side by side (1000·sequence + 100·token + feature)",
        _labels,
        looks=("out",),
        weight=3,
    ),
    Row(
        "other widths",
        "it works for any h and d_k, for one head and for d_k = 1 too",
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
        "gradient",
        "the gradient finds its way back to the heads",
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

MERGED = "tokens.reshape(B, n, h * d_k)"

MISTAKES = (
    edit(
        "merging without transpose",
        "reshape reads the numbers in memory order, and there all tokens of head 0 come first. So a row of your "
        "result holds several tokens. Bring the token axis in front of the head axis before you reshape.",
        "x.transpose(1, 2)",
        "x",
    ),
    edit(
        "view after transpose",
        "The order is right, but view only relabels memory, and after transpose the memory is in another order. "
        "Use reshape, or contiguous() before view: both copy the numbers into the new order.",
        "tokens.reshape",
        "tokens.view",
    ),
    edit(
        "wrong axes exchanged",
        "You exchanged axes 1 and 3, heads and features. Exchange 1 and 2, heads and tokens.",
        "x.transpose(1, 2)",
        "x.transpose(1, 3)",
    ),
    edit(
        "interleaved",
        "The heads' features take turns: all feature-0s first, then all feature-1s. The heads stand side by side, "
        "head 0's d_k features first: [B, n, h, d_k] before the last two axes become one.",
        "x.transpose(1, 2)",
        "x.permute(0, 2, 3, 1)",
    ),
    edit(
        "mean of the heads",
        "The heads are averaged, so what each one found is blurred. Set them side by side: [B, n, h·d_k].",
        MERGED,
        "tokens.mean(dim=2)",
    ),
    edit(
        "sum of the heads",
        "The heads are summed. Set them side by side: [B, n, h·d_k]. W_o mixes them afterwards.",
        MERGED,
        "tokens.sum(dim=2)",
    ),
    edit(
        "mean, repeated",
        "The mean of the heads stands there h times. Each block of d_k features belongs to its own head.",
        MERGED,
        "tokens.mean(dim=2).repeat(1, 1, h)",
    ),
    edit(
        "first head",
        "Only head 0 is left. All h heads stand side by side.",
        MERGED,
        "tokens[:, :, 0]",
    ),
    edit(
        "first head, repeated",
        "Head 0 stands there h times; the other heads are lost.",
        MERGED,
        "tokens[:, :, 0].repeat(1, 1, h)",
    ),
    edit(
        "along the tokens",
        "The heads are laid one after the other along the tokens: [B, h·n, d_k]. "
        "They belong side by side along the width: [B, n, h·d_k].",
        "x.transpose(1, 2)",
        "x",
        "(B, n, h * d_k)",
        "(B, h * n, d_k)",
    ),
    edit(
        "only transposed",
        "The axes are in order, [B, n, h, d_k]; now the last two must become one of length d.",
        MERGED,
        "tokens",
    ),
    edit(
        "tokens before batch",
        "The batch must stay the first axis: [B, n, d].",
        "x.transpose(1, 2)",
        "x.permute(2, 0, 1, 3)",
        "(B, n, h * d_k)",
        "(n, B, h * d_k)",
    ),
    edit(
        "heads reversed",
        "The heads stand in reverse order. Head 0 comes first.",
        "x.transpose(1, 2)",
        "x.flip(1).transpose(1, 2)",
    ),
    edit(
        "detached",
        "The result is cut off from x (detach, .data or no_grad), so nothing below W_o would be trained.",
        "x.transpose",
        "x.detach().transpose",
    ),
    edit(
        "squeezed",
        "squeeze() removes every axis of length 1, so a batch of one sequence loses its batch axis.",
        MERGED,
        "tokens.reshape(B, n, h * d_k).squeeze()",
    ),
    edit(
        "on the CPU",
        "The tensor that you fill is made on the CPU, whatever device x is on. Make it with device=x.device.",
        "x.new_empty(B, n, h * d_k)",
        "torch.empty(B, n, h * d_k, dtype=x.dtype)",
        of=loop_over_heads,
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="4.4",
    symbol="merge_heads",
    kind="function",
    parameters=("x",),
    points=4,
    todos=("4.4",),
    rows=ROWS,
    reference=reference,
    answer=merge_heads,
    mistakes=MISTAKES,
    alternatives=(contiguous_and_view, einsum, loop_over_heads, stack_and_reshape),
    spoken={"grad.0": _("the gradient of x")},
    equivalent={
        "x.transpose(1, 2) → x.transpose(1, -2)": "Of four axes, axis 2 is axis -2.",
    },
    hints={
        "4.4": (
            _("split_heads cut and then exchanged two axes. In which order must the two steps be undone?"),
            _(
                "[B, h, n, d_k] → exchange axes 1 and 2 → [B, n, h, d_k] → make one axis of the last two → "
                "[B, n, h·d_k]."
            ),
            _(
                "transpose axes 1 and 2; then reshape (view would refuse: the memory is not in order) "
                "to B, n and whatever is left."
            ),
        )
    },
)
