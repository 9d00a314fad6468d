"""7.5 DecoderLayer: masked self-attention, cross-attention and feed-forward, each with Add & Norm."""

from __future__ import annotations

import math

import torch
from torch import nn

from grader.exercises import rows
from grader.exercises.ch07._common import GRADIENTS, BareLayerNorms, ReferenceLayer, cases_of
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import FeedForward, MultiHeadAttention, PostNorm, PreNorm

# ---- what is right ----------------------------------------------------------------------------------


class DecoderLayer(nn.Module):
    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f'norm is "post" or "pre", not {norm!r}')
        add_and_norm = PostNorm if norm == "post" else PreNorm
        self.self_attn = MultiHeadAttention(d_model, h)
        self.cross_attn = MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = add_and_norm(d_model)
        self.norm2 = add_and_norm(d_model)
        self.norm3 = add_and_norm(d_model)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, lambda y: self.self_attn(y, y, y, tgt_mask))
        x = self.norm2(x, lambda y: self.cross_attn(y, memory, memory, memory_mask))
        return self.norm3(x, self.ffn)


class Wrappers(nn.Module):
    """Every step in a method of its own."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, h)
        self.cross_attn = MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (self.wrapper(norm)(d_model) for _ in range(3))

    def wrapper(self, norm):
        if norm not in ("post", "pre"):
            raise ValueError(norm)
        return PostNorm if norm == "post" else PreNorm

    def look(self, y, mask):
        return self.self_attn(y, y, y, mask)

    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory, memory, mask)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, lambda y: self.look(y, tgt_mask))
        x = self.norm2(x, lambda y: self.cross(y, memory, memory_mask))
        return self.norm3(x, self.ffn)


class LoopOverSublayers(BareLayerNorms):
    """A loop over (norm, sublayer) pairs."""

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        steps = [
            (self.norm1, lambda y: self.self_attn(y, y, y, tgt_mask)),
            (self.norm2, lambda y: self.cross_attn(y, memory, memory, memory_mask)),
            (self.norm3, self.ffn),
        ]
        for norm, sublayer in steps:
            x = x + sublayer(norm(x)) if self.pre else norm(x + sublayer(x))
        return x


class Einsum(BareLayerNorms):
    """Attention written out with einsum and an additive mask."""

    def attend(self, part, q, kv, mask):
        b, n, d = q.shape
        heads = [
            w(t).reshape(b, t.size(1), part.h, d // part.h)
            for w, t in ((part.W_q, q), (part.W_k, kv), (part.W_v, kv))
        ]
        scores = torch.einsum("bqhd,bkhd->bhqk", heads[0], heads[1]) / math.sqrt(d // part.h)
        if mask is not None:
            scores = scores + torch.zeros_like(scores).masked_fill(~mask, -math.inf)
        return part.W_o(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), heads[2]).reshape(b, n, d))

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        def step(x, norm, sublayer):
            return x + sublayer(norm(x)) if self.pre else norm(x + sublayer(x))

        x = step(x, self.norm1, lambda y: self.attend(self.self_attn, y, y, tgt_mask))
        x = step(x, self.norm2, lambda y: self.attend(self.cross_attn, y, memory, memory_mask))
        return step(x, self.norm3, self.ffn)


# ---- rows -------------------------------------------------------------------------------------------

CASES = cases_of(ReferenceLayer)
PLAIN = ("three sublayers",)


def _bad_norm(draw: Draw) -> list[Case]:
    make = {"args": [8, 2, 12], "kwargs": {"norm": draw.choice(["rms", "Post", ""])}}
    return [Case("raises", {"run": Case("module", {"make": make}).tree(), "error": "ValueError"})]


ROWS = (
    Row(
        "three sublayers",
        "without masks: self-attention, cross-attention, feed-forward, each with Add & Norm",
        CASES["plain"],
        looks=("out",),
        weight=3,
    ),
    Row(
        "target mask",
        "tgt_mask limits the self-attention and nothing else",
        CASES["target mask"],
        looks=("out",),
        weight=2,
    ),
    Row(
        "memory mask",
        "memory_mask limits the cross-attention and nothing else",
        CASES["memory mask"],
        looks=("out",),
        weight=2,
    ),
    Row(
        "pre-norm",
        'norm="pre" normalises what goes into each sublayer',
        CASES["pre"],
        looks=("out",),
        weight=2,
    ),
    Row("other norm", "any other norm is a ValueError", _bad_norm, looks=("raised",), needs=PLAIN),
    Row(
        "inputs kept",
        "x and memory are left unchanged",
        CASES["both masks"],
        looks=("changed",),
        needs=PLAIN,
        weight=0.5,  # the other half is the device row's
    ),
    Row(
        "gradient",
        "the gradient reaches x and memory",
        CASES["gradient"],
        looks=("grad.*",),
        needs=("three sublayers", "target mask", "memory mask"),
    ),
    rows.device(CASES["both masks"], needs=PLAIN, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "target mask across",
        "The cross-attention was given tgt_mask. That mask belongs to the m target tokens among themselves; "
        "across, keys are the n source tokens, and memory_mask is theirs.",
        "memory, memory, memory_mask",
        "memory, memory, tgt_mask",
    ),
    edit(
        "causal across",
        "Your cross-attention hides source tokens that stand later than the target token. "
        "The source is given whole: nothing in it is the future. Across, only padding is masked.",
        "        x = self.norm2(",
        "        causal = torch.ones(x.size(1), memory.size(1), dtype=torch.bool).tril()\n"
        "        memory_mask = causal if memory_mask is None else causal & memory_mask\n"
        "        x = self.norm2(",
    ),
    edit(
        "memory asks",
        "In your cross-attention the memory asks and the decoder answers. It is the decoder that asks: "
        "queries from the decoder, keys and values from the memory.",
        "y, memory, memory, memory_mask",
        "memory, y, y, memory_mask",
    ),
    edit(
        "memory unused",
        "The second attention looks at the decoder itself again, so the source is never read. "
        "Keys and values come from memory.",
        "y, memory, memory, memory_mask",
        "y, y, y",
    ),
    edit(
        "values from the decoder",
        "Keys come from memory but values from the decoder. A weight says how much of source token j to take, "
        "so the values are the memory's too.",
        "y, memory, memory, memory_mask",
        "y, memory, y, memory_mask",
    ),
    edit(
        "memory mask unused",
        "memory_mask is not passed on, so the cross-attention also reads the source's padding.",
        "y, memory, memory, memory_mask",
        "y, memory, memory",
    ),
    edit(
        "target mask unused",
        "tgt_mask is not passed on, so every target token sees the tokens it should predict.",
        "y, y, y, tgt_mask",
        "y, y, y",
    ),
    edit(
        "masks swapped",
        "The two masks are swapped: tgt_mask is for the self-attention, memory_mask for the cross-attention.",
        "y, memory, memory, memory_mask",
        "y, memory, memory, tgt_mask",
        "y, y, y, tgt_mask",
        "y, y, y, memory_mask",
    ),
    edit(
        "mask transposed",
        "The target mask is transposed somewhere: your queries see later keys where earlier ones were meant.",
        "        x = self.norm1(",
        "        if tgt_mask is not None:\n"
        "            tgt_mask = tgt_mask.transpose(-2, -1)\n"
        "        x = self.norm1(",
    ),
    edit(
        "across first",
        "The cross-attention comes before the self-attention. First the target looks at itself, then at the source.",
        "self.norm1(x, lambda y: self.self_attn(y, y, y, tgt_mask))",
        "self.norm1(x, lambda y: self.cross_attn(y, memory, memory, memory_mask))",
        "self.norm2(x, lambda y: self.cross_attn(y, memory, memory, memory_mask))",
        "self.norm2(x, lambda y: self.self_attn(y, y, y, tgt_mask))",
    ),
    edit(
        "no residual across",
        "Around the cross-attention the residual is missing: what the self-attention found is thrown away.",
        "self.cross_attn(y, memory, memory, memory_mask)",
        "self.cross_attn(y, memory, memory, memory_mask) - x",
    ),
    edit(
        "one norm for all",
        "norm1 is used three times. Each sublayer has its own: norm1, norm2, norm3.",
        "self.norm2(x",
        "self.norm1(x",
        "self.norm3(x",
        "self.norm1(x",
    ),
    edit(
        "no feed-forward",
        "The feed-forward network is left out.",
        "return self.norm3(x, self.ffn)",
        "return x",
    ),
    edit(
        "no cross-attention",
        "The cross-attention is left out: the source is never read.",
        "        x = self.norm2(x, lambda y: self.cross_attn(y, memory, memory, memory_mask))\n",
        "",
    ),
    edit(
        "one attention for both",
        "The cross-attention uses self_attn. The two attentions have weights of their own.",
        "self.cross_attn(y",
        "self.self_attn(y",
    ),
    edit(
        "asks with the input",
        "The cross-attention asks with the layer's input x. It should ask with what the self-attention gave.",
        "x = self.norm1(x",
        "own = self.norm1(x",
        "x = self.norm2(x, lambda y: self.cross_attn(y",
        "own = self.norm2(own, lambda y: self.cross_attn(x",
        "self.norm3(x",
        "self.norm3(own",
    ),
    edit(
        "small function ignores its input",
        "Your small functions compute with x, not with their own input y. For Post-LN both are the same; for Pre-LN y is "
        "the normalised x, and you lose it.",
        "self.self_attn(y, y, y",
        "self.self_attn(x, x, x",
        "self.cross_attn(y",
        "self.cross_attn(x",
    ),
    edit(
        "sublayer called too early",
        "norm1 wants the sublayer as a function and calls it itself; you gave it the result. Write lambda y: in front.",
        "lambda y: self.self_attn(y, y, y",
        "self.self_attn(x, x, x",
        "lambda y: self.cross_attn(y",
        "self.cross_attn(x",
        "self.ffn)",
        "self.ffn(x))",
    ),
    edit(
        "memory detached",
        "memory is cut from the graph, so no gradient reaches the encoder and it would never learn.",
        "memory, memory,",
        "memory.detach(), memory.detach(),",
    ),
    edit(
        "always post",
        'norm is not used: the layer computes Post-LN for "pre" as well.',
        'PostNorm if norm == "post" else PreNorm',
        "PostNorm",
    ),
    edit(
        "orders swapped",
        "Post-LN and Pre-LN are swapped. Post: norm(x + sublayer(x)). Pre: x + sublayer(norm(x)).",
        'PostNorm if norm == "post" else PreNorm',
        'PreNorm if norm == "post" else PostNorm',
    ),
    edit(
        "any norm",
        'A norm other than "post" and "pre" should be a ValueError.',
        '        if norm not in ("post", "pre"):\n'
        '            raise ValueError(f\'norm is "post" or "pre", not {norm!r}\')\n',
        "",
    ),
    edit(
        "memory normalised",
        "With Pre-LN you normalised the memory too. It comes out of the encoder's final norm already; "
        "norm2 is for the decoder's side only.",
        "        x = self.norm2(",
        "        if isinstance(self.norm2, PreNorm):\n"
        "            memory = self.norm2.norm(memory)\n"
        "        x = self.norm2(",
    ),
    edit(
        "norm of the sublayer",
        "You compute x + norm(sublayer(x)). Post-LN is norm(x + sublayer(x)), Pre-LN x + sublayer(norm(x)).",
        "self.norm1(x, lambda y: self.self_attn(y, y, y, tgt_mask))",
        "x + self.norm1.norm(self.self_attn(x, x, x, tgt_mask))",
        "self.norm2(x, lambda y: self.cross_attn(y, memory, memory, memory_mask))",
        "x + self.norm2.norm(self.cross_attn(x, memory, memory, memory_mask))",
        "self.norm3(x, self.ffn)",
        "x + self.norm3.norm(self.ffn(x))",
    ),
    edit(
        "causal on its own",
        "Your self-attention hides the future by itself. Whoever calls the layer decides that: use tgt_mask as it is "
        "given, and no mask where there is none.",
        "        x = self.norm1(",
        "        causal = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()\n"
        "        tgt_mask = causal if tgt_mask is None else causal & tgt_mask\n"
        "        x = self.norm1(",
    ),
    edit(
        "causal whenever masked",
        "You add a causal mask to the tgt_mask that you are given. That mask says already who may look at whom: use it "
        "as it is.",
        "        x = self.norm1(",
        "        if tgt_mask is not None:\n"
        "            tgt_mask = tgt_mask & torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()\n"
        "        x = self.norm1(",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="7.5",
    symbol="DecoderLayer",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "norm"),
    points=8,
    todos=("7.5",),
    rows=ROWS,
    reference=ReferenceLayer,
    answer=DecoderLayer,
    mistakes=MISTAKES,
    alternatives=(Wrappers, BareLayerNorms, LoopOverSublayers, Einsum),
    spoken=GRADIENTS,
    hints={
        "7.5": (
            _(
                "Three questions, in this order: what have I said so far, what does the source say, what do I make of "
                "it? Which sublayer answers which?"
            ),
            _(
                "self_attn: q, k, v all [B, m, d]. cross_attn: q [B, m, d], k and v = memory [B, n, d]. "
                "ffn: [B, m, d] → [B, m, d]."
            ),
            _(
                "x = norm1 of x around (self-attention of y with itself, tgt_mask); x = norm2 of x around "
                "(cross-attention: y asks, memory is key and value, memory_mask); return norm3 of x around ffn"
            ),
        )
    },
)
