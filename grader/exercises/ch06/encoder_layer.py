"""6.6 EncoderLayer: self-attention and a feed-forward network, each in an Add & Norm, in one of two orders."""

from __future__ import annotations

import torch  # noqa: F401 (cells of mistakes use it)
import torch.nn.functional as F  # noqa: F401 (cells of mistakes use it)
from torch import nn
from torch.func import functional_call

from grader.exercises import rows
from grader.exercises.ch06 import _common
from grader.exercises.ch06._common import (
    EXACT,
    SPOKEN,
    STACKED,
    STACKED_GRADIENT,
    BranchesAnotherAttention,
    OneLoopAttentionByHand,
    layer_case,
    with_gradient,
)
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import FeedForward, MultiHeadAttention, PostNorm, PreNorm

# ---- what is right ----------------------------------------------------------------------------------


class Reference(_common.Weights):
    """nn.TransformerEncoderLayer, given these weights."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__(d_model, h, d_ff)
        self.h, self.torchs = h, (_common.torch_layer(d_model, h, d_ff, norm),)  # in a tuple: no submodule

    def forward(self, x, mask=None):
        kwargs = {"src_mask": _common.torch_mask(mask, x, self.h)}
        return functional_call(self.torchs[0], _common.torch_names(self), (x,), kwargs)


class EncoderLayer(nn.Module):
    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError("norm is post or pre")
        self.order = norm
        self.attn = MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        if self.order == "post":
            u = self.norm1(x + self.attn(x, x, x, mask))
            return self.norm2(u + self.ffn(u))
        z = self.norm1(x)
        u = x + self.attn(z, z, z, mask)
        return u + self.ffn(self.norm2(u))


class WrappersOfChapter05(nn.Module):
    """PostNorm and PreNorm do the adding and the norming."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        wrapper = {"post": PostNorm, "pre": PreNorm}.get(norm)
        if wrapper is None:
            raise ValueError(f"unknown norm {norm!r}")
        self.attn, self.ffn = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = wrapper(d_model), wrapper(d_model)

    def forward(self, x, mask=None):
        u = self.norm1(x, lambda y: self.attn(y, y, y, mask))
        return self.norm2(u, self.ffn)


# ---- rows -------------------------------------------------------------------------------------------


def _post(draw: Draw) -> list[Case]:
    return [layer_case(draw), layer_case(draw, "post"), layer_case(draw, sizes=_common.ALL_NINES)]


def _pre(draw: Draw) -> list[Case]:
    return [layer_case(draw, "pre"), layer_case(draw, "pre", sizes=_common.ALL_SIXES)]


def _mask(draw: Draw) -> list[Case]:
    by_name = layer_case(draw, "post", "padding")
    by_name.inputs["call"]["kwargs"] = {"mask": by_name.inputs["call"]["args"].pop()}
    return [
        by_name,
        layer_case(draw, "pre", "own"),
        layer_case(draw, None, "causal"),
        layer_case(draw, "post", "own", sizes=_common.ALL_NINES),
        layer_case(draw, "pre", "padding", sizes=_common.ALL_SIXES),
    ]


def _other_norm(draw: Draw) -> list[Case]:
    s = _common.layer_sizes(draw)
    x = draw.normal(s["B"], s["n"], s["d"])
    words = ("middle", "none", "Pre", "prenorm", "p")  # the last three: lower(), startswith, "in" a string
    makes = [{"args": [s["d"], s["h"], s["d_ff"]], "kwargs": {"norm": word}} for word in words]
    cases = [Case("module", {"make": make, "call": {"args": [x]}}) for make in makes]
    return [Case("raises", {"run": case.tree(), "error": "ValueError"}) for case in cases]


def _small(draw: Draw) -> list[Case]:
    return [layer_case(draw, "post", front=(1, 5)), layer_case(draw, "pre", front=(2, 1))]


def _gradient(draw: Draw) -> list[Case]:
    cases = [layer_case(draw, "post", "padding"), layer_case(draw, "pre", "own")]
    return [with_gradient(case, draw) for case in cases]


def _pre_with_padding(draw: Draw) -> list[Case]:
    return [layer_case(draw, "pre", "padding")]


def _with_and_without_mask(draw: Draw) -> list[Case]:
    return [layer_case(draw, "post"), layer_case(draw, "pre", "padding")]


BOTH = ("post", "pre")
ALL = ("post", "pre", "mask")

ROWS = (
    Row(
        "post",
        'norm="post" (the default): attention, add & norm, feed-forward, add & norm',
        _post,
        looks=("out",),
        tolerance=STACKED,
        weight=3,
    ),
    Row(
        "pre",
        'norm="pre": norm, attention, add; norm, feed-forward, add',
        _pre,
        looks=("out",),
        tolerance=STACKED,
        weight=2,
    ),
    Row(
        "mask",
        "the mask reaches the attention, in both orders",
        _mask,
        looks=("out",),
        tolerance=STACKED,
        needs=BOTH,
        weight=2,
    ),
    Row("other norm", "any other norm is a ValueError", _other_norm, looks=("raised",), needs=("post",)),
    Row(
        "small",
        "a batch of 1 and a sequence of 1 work",
        _small,
        looks=("out",),
        tolerance=STACKED,
        needs=BOTH,
    ),
    Row(
        "gradient",
        "the gradients of x and of every part's weights are right",
        _gradient,
        looks=("grad.*",),
        needs=ALL,
        tolerance=STACKED_GRADIENT,
    ),
    rows.input_kept(_mask, says=_("x and the mask are left unchanged"), needs=("mask",)),
    rows.float64(_pre_with_padding, needs=ALL, tolerance=EXACT, weight=0.5),
    rows.device(_with_and_without_mask, needs=ALL, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

# The steps of the answer, for the mistakes that move or replace them.
POST_1 = "u = self.norm1(x + self.attn(x, x, x, mask))"
POST_2 = "self.norm2(u + self.ffn(u))"
PRE_1 = "z = self.norm1(x)\n        u = x + self.attn(z, z, z, mask)"
PRE_2 = "u + self.ffn(self.norm2(u))"

MISTAKES = (
    edit(
        "always post",
        'norm="pre" gives the Post-Norm order: the parameter norm is not used.',
        "self.order = norm",
        'self.order = "post"',
    ),
    edit(
        "always pre",
        'norm="post" gives the Pre-Norm order: the parameter norm is not used.',
        "self.order = norm",
        'self.order = "pre"',
    ),
    edit(
        "orders swapped",
        '"post" gives the Pre-Norm order and "pre" the Post-Norm order.',
        'self.order == "post"',
        'self.order == "pre"',
    ),
    edit(
        "pre by default",
        'Without norm=… the order is "post", as in the original paper.',
        'norm="post"',
        'norm="pre"',
    ),
    edit(
        "any word",
        'A norm such as "middle" is taken for one of the two. A typing error should not pass unseen: raise ValueError.',
        '        if norm not in ("post", "pre"):\n            raise ValueError("norm is post or pre")\n',
        "",
    ),
    edit(
        "one norm",
        "norm1 and norm2 are one and the same module, so the two places share their weights. Make two.",
        "self.norm2 = nn.LayerNorm(d_model)",
        "self.norm2 = self.norm1",
    ),
    edit(
        "first norm twice",
        "norm1 is used in both places; the second is norm2's.",
        "self.norm2(u +",
        "self.norm1(u +",
        "self.norm2(u))",
        "self.norm1(u))",
    ),
    edit(
        "norms swapped",
        "norm2 stands at the attention and norm1 at the feed-forward block. It is the other way round.",
        "self.norm1(x +",
        "self.norm2(x +",
        "self.norm2(u +",
        "self.norm1(u +",
        "self.norm1(x)",
        "self.norm2(x)",
        "self.norm2(u))",
        "self.norm1(u))",
    ),
    edit(
        "no mask",
        "The mask is not handed to the attention, so tokens attend to padding. Pass it on.",
        "(x, x, x, mask)",
        "(x, x, x)",
        "(z, z, z, mask)",
        "(z, z, z)",
    ),
    edit(
        "mask reversed",
        "The mask is turned round. Here True means “may attend”, and MultiHeadAttention wants it like that.",
        "        if self.order ==",
        "        if mask is not None:\n            mask = ~mask\n        if self.order ==",
    ),
    edit(
        "mask only in post",
        "In the Pre-Norm order the mask is not handed to the attention.",
        "(z, z, z, mask)",
        "(z, z, z)",
    ),
    edit(
        "no residual at attention",
        "x is not added to the attention's output. Both sublayers have a residual path.",
        "x + self.attn(x",
        "self.attn(x",
        "x + self.attn(z",
        "self.attn(z",
    ),
    edit(
        "no residual at feed-forward",
        "Nothing is added to the feed-forward block's output. Both sublayers have a residual path.",
        "u + self.ffn(u)",
        "self.ffn(u)",
        "u + self.ffn(self",
        "self.ffn(self",
    ),
    edit(
        "no residuals",
        "Neither sublayer has a residual path: add what went in.",
        "x + self.attn(x",
        "self.attn(x",
        "x + self.attn(z",
        "self.attn(z",
        "u + self.ffn(u)",
        "self.ffn(u)",
        "u + self.ffn(self",
        "self.ffn(self",
    ),
    edit(
        "residual from the start",
        "The second addition takes the layer's input. It takes the result of the first half: "
        "what the feed-forward block (or its norm) was given.",
        "u + self.ffn(u)",
        "x + self.ffn(u)",
        "u + self.ffn(self",
        "x + self.ffn(self",
    ),
    edit(
        "in parallel",
        "Attention and feed-forward both start from x. Here the feed-forward block gets the first half's result.",
        "self.ffn(u)",
        "self.ffn(x)",
        "self.norm2(u))",
        "self.norm2(x))",
    ),
    edit(
        "norm before adding",
        "x + norm(sublayer(x)) is neither order: Post-Norm normalises the sum, norm(x + sublayer(x)), "
        "Pre-Norm the sublayer's input.",
        "self.norm1(x + ",
        "x + self.norm1(",
        "self.norm2(u + ",
        "u + self.norm2(",
    ),
    edit(
        "residual from normed",
        "In the Pre-Norm order norm(x) is added where x itself is meant: the residual path passes no norm.",
        "x + self.attn(z",
        "z + self.attn(z",
        f"return {PRE_2}",
        "z = self.norm2(u)\n        return z + self.ffn(z)",
    ),
    edit(
        "only queries normed",
        "In the Pre-Norm order only the queries are normalised. Normalise once and give the result to all three: "
        "y = norm1(x), then attention of y, y and y.",
        "(z, z, z, mask)",
        "(z, x, x, mask)",
    ),
    edit(
        "attention not normed",
        "In the Pre-Norm order the attention gets x and not norm1(x). In a lambda y: … use y, not x.",
        "(y, y, y, mask)",
        "(x, x, x, mask)",
        of=WrappersOfChapter05,
    ),
    edit(
        "nothing normed",
        "In the Pre-Norm order neither sublayer gets a normalised input. In a lambda y: … use y, not x.",
        "(y, y, y, mask)",
        "(x, x, x, mask)",
        "self.norm2(u, self.ffn)",
        "self.norm2(u, lambda y: self.ffn(u))",
        of=WrappersOfChapter05,
    ),
    edit(
        "attention lost",
        "The attention's result is not used: the second half starts from the layer's input x. "
        "Start it from the result of the first half.",
        POST_2,
        "self.norm2(x + self.ffn(x))",
        PRE_2,
        "x + self.ffn(self.norm2(x))",
    ),
    edit(
        "called too early",
        "PostNorm and PreNorm want a function and call it themselves. You called the attention first and handed "
        "over its result. Wrap it: lambda y: …",
        "lambda y: self.attn(y, y, y, mask)",
        "self.attn(x, x, x, mask)",
        of=WrappersOfChapter05,
    ),
    edit(
        "attention as it is",
        "PostNorm and PreNorm call their function with one argument, and the attention wants q, k and v (and the mask). "
        "Wrap it: lambda y: …",
        "lambda y: self.attn(y, y, y, mask)",
        "self.attn",
        of=WrappersOfChapter05,
    ),
    edit(
        "feed-forward first",
        "The feed-forward block runs before the attention. Attention comes first.",
        POST_1,
        "u = self.norm2(x + self.ffn(x))",
        POST_2,
        "self.norm1(u + self.attn(u, u, u, mask))",
        PRE_1,
        "u = x + self.ffn(self.norm2(x))",
        f"return {PRE_2}",
        "z = self.norm1(u)\n        return u + self.attn(z, z, z, mask)",
    ),
    edit(
        "no feed-forward",
        "The feed-forward block's result is not used.",
        "u + self.ffn(u)",
        "u",
        PRE_2,
        "u",
    ),
    edit(
        "no second norm",
        "norm2 is not used. Every sublayer has its norm.",
        POST_2,
        "u + self.ffn(u)",
        "self.norm2(u))",
        "u)",
    ),
    edit(
        "one head",
        "h is not used: the attention has one head, whatever h is.",
        "MultiHeadAttention(d_model, h)",
        "MultiHeadAttention(d_model, 1)",
    ),
    edit(
        "drops in eval",
        "Dropout acts although the module is in eval mode. The contract has no dropout here.",
        "self.attn(x, x, x, mask)",
        "F.dropout(self.attn(x, x, x, mask), 0.1)",
        "self.attn(z, z, z, mask)",
        "F.dropout(self.attn(z, z, z, mask), 0.1)",
    ),
    edit(
        "no ReLU inside",
        "The feed-forward block inside does not bend: its ReLU is missing. Look at 6.3 again.",
        "self.ffn(u)",
        "self.ffn.linear2(self.ffn.linear1(u))",
        "self.ffn(self.norm2(u))",
        "self.ffn.linear2(self.ffn.linear1(self.norm2(u)))",
    ),
    edit(
        "GELU inside",
        "The feed-forward block bends with GELU; the contract's FeedForward uses ReLU.",
        "self.ffn(u)",
        "self.ffn.linear2(F.gelu(self.ffn.linear1(u)))",
        "self.ffn(self.norm2(u))",
        "self.ffn.linear2(F.gelu(self.ffn.linear1(self.norm2(u))))",
    ),
    edit(
        "always four times",
        "d_ff is not used: the inner width is always 4 · d_model.",
        "FeedForward(d_model, d_ff)",
        "FeedForward(d_model, 4 * d_model)",
    ),
    edit(
        "other names",
        "The contract calls the parts attn, ffn, norm1 and norm2.",
        "self.attn =",
        "self.self_attn =",
        "self.ffn =",
        "self.feed_forward =",
        "self.attn(x",
        "self.self_attn(x",
        "self.ffn(u)",
        "self.feed_forward(u)",
        "self.attn(z",
        "self.self_attn(z",
        "self.ffn(self",
        "self.feed_forward(self",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device.",
        "        if self.order ==",
        "        if mask is None:\n"
        "            mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool)\n"
        "        if self.order ==",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="6.6",
    symbol="EncoderLayer",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "norm"),
    points=8,
    todos=("6.6",),
    rows=ROWS,
    reference=Reference,
    answer=EncoderLayer,
    mistakes=MISTAKES,
    alternatives=(WrappersOfChapter05, OneLoopAttentionByHand, BranchesAnotherAttention),
    spoken=SPOKEN,
    hints={
        "6.6": (
            _(
                "There are two sublayers, each in an Add & Norm of its own. What does the second one start from?"
            ),
            _(
                "x [B, n, d] → attention of y with itself (Q, K and V are all y) → [B, n, d] → feed-forward → [B, n, d]. "
                "The mask goes only to the attention."
            ),
            _(
                "in __init__: refuse another norm; make an attention, a feed-forward block, and two of PostNorm or PreNorm. "
                "In forward: x = norm1 of x around (y ↦ attention of y, y, y and the mask); return norm2 of x around ffn."
            ),
        )
    },
)
