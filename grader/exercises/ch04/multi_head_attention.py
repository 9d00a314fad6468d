"""4.2, 4.3 and 4.5 MultiHeadAttention: project, split, attend, merge, mix; three kinds of mask.

The answer and the mistakes, which are edits of it, stand in _multi_head. The reference is torch's own.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises import rows
from grader.exercises.ch04._common import NAMES, SPOKEN, TorchAttention, equal_sizes, random_mask, sizes
from grader.exercises.ch04._multi_head import MISTAKES, ByHand, MultiHeadAttention
from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right, too ------------------------------------------------------------------------------


class EinsumAdditiveMask(nn.Module):
    """einsum for both products, and the mask as a sum with 0 and −∞."""

    def __init__(self, d_model, h):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.W_o = nn.Linear(d_model, d_model)
        self.h, self.d_k = h, d_model // h

    def forward(self, q, k, v, mask=None):
        B = q.shape[0]
        q = self.W_q(q).reshape(B, -1, self.h, self.d_k)
        k = self.W_k(k).reshape(B, -1, self.h, self.d_k)
        v = self.W_v(v).reshape(B, -1, self.h, self.d_k)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.d_k**-0.5
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.ndim < 4 else mask
            zeros = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
            scores = scores + zeros.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, -1)
        self.weights = weights.clone().detach()
        return self.W_o(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(-2))


class FusedAttention(TorchAttention):
    """F.scaled_dot_product_attention for the result, and by itself once more for the weights."""

    def forward(self, q, k, v, mask=None):
        B, d = q.size(0), q.size(-1)
        Q, K, V = (
            w(x).view(B, x.size(1), self.h, d // self.h).transpose(1, 2)
            for w, x in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
        )
        mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
        with torch.no_grad():
            scores = Q @ K.mT / math.sqrt(Q.size(-1))
            self.weights = (scores if mask is None else scores.where(mask, -torch.inf)).softmax(-1)
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        return self.W_o(heads.transpose(1, 2).reshape(B, -1, d))


class LoopOverHeads(TorchAttention):
    """One head after the other, each with its own rows of the big matrices."""

    def forward(self, q, k, v, mask=None):
        d_k = q.size(-1) // self.h
        outs, kept = [], []
        for head in range(self.h):
            own = slice(head * d_k, (head + 1) * d_k)
            Q, K, V = (
                F.linear(x, w.weight[own], w.bias[own])
                for w, x in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
            )
            scores = Q @ K.transpose(1, 2) / d_k**0.5
            if mask is not None:
                seen = mask if mask.dim() < 4 else mask[:, head if mask.size(1) > 1 else 0]
                scores = scores.masked_fill(seen == 0, float("-inf"))
            kept.append(F.softmax(scores, dim=2))
            outs.append(kept[-1] @ V)
        self.weights = torch.stack(kept, dim=1).detach()
        return self.W_o(torch.cat(outs, dim=-1))


class BaddbmmScaledQueries(TorchAttention):
    """Heads folded into the batch, baddbmm, queries scaled beforehand, −1e9 for −∞."""

    def forward(self, q, k, v, mask=None):
        B, n_q, d = q.shape
        n_k, d_k = k.shape[1], d // self.h

        def fold(x):
            return x.unflatten(2, (self.h, d_k)).transpose(1, 2).reshape(B * self.h, -1, d_k)

        Q, K, V = fold(self.W_q(q) / math.sqrt(d_k)), fold(self.W_k(k)), fold(self.W_v(v))
        if mask is None:
            mask = torch.ones(1, 1, n_q, n_k, dtype=torch.bool, device=q.device)
        if mask.dim() == 3:
            mask = mask[:, None, :, :]
        extra = torch.where(mask, 0.0, -1e9).to(Q.dtype).expand(B, self.h, n_q, n_k)
        weights = torch.baddbmm(extra.reshape(-1, n_q, n_k), Q, K.mT).softmax(dim=-1)
        self.weights = weights.view(B, self.h, n_q, n_k).detach()
        heads = torch.bmm(weights, V).view(B, self.h, n_q, d_k)
        return self.W_o(heads.permute(0, 2, 1, 3).contiguous().view(B, n_q, d))


# ---- rows -------------------------------------------------------------------------------------------

SELF = {"B": "h", "n_q": "d_k", "n_k": "d_k"}  # as in self-attention, with as many sequences as heads


def _case(draw: Draw, s: dict[str, int], mask: torch.Tensor | None = None, **more) -> Case:
    """Return a case with different q, k and v. more: keep, dtype, mode, grads, layout."""
    args = [draw.normal(s["B"], n, s["d"]) for n in (s["n_q"], s["n_k"], s["n_k"])]
    strided = [{"$": "strided", "tensor": x} for x in args]
    call = {"args": strided if more.pop("strided", False) else args}
    if mask is not None:
        call["kwargs"] = {"mask": mask}
    if more.pop("gradients", False):
        call |= {"wrt": ["0", "1", "2", "weights"], "cotangents": [draw.normal(*args[0].shape)]}
    weights = draw.weights(TorchAttention(s["d"], s["h"]), scale=1.1 / math.sqrt(s["d"]))
    return Case("module", {"make": {"args": [s["d"], s["h"]]}, "call": call, "weights": weights, **more})


def _layers(draw: Draw) -> list[Case]:
    """Weights are loaded strictly, so a wrong name or shape is said in words."""
    s = sizes(draw)
    weights = draw.weights(TorchAttention(s["d"], s["h"]))
    return [Case("module", {"make": {"args": [s["d"], s["h"]]}, "weights": weights, "keep": list(NAMES)})]


def _output(draw: Draw) -> list[Case]:
    """All axes different, twice; then each pair of axes is equal in one case."""
    equal = ({}, {}, {"n_q": "B", "n_k": "h"}, {"d_k": "h", "n_q": "h", "n_k": "B"}, SELF)
    return [_case(draw, equal_sizes(draw, **one)) for one in equal]


def _weights(draw: Draw) -> list[Case]:
    return [_case(draw, s, keep=["weights"]) for s in (sizes(draw), equal_sizes(draw, **SELF))]


def _masked(draw: Draw, *axes: str | int, equal: dict[str, str] | None = None, **more) -> list[Case]:
    s = equal_sizes(draw, **equal or {})
    return [_case(draw, s, random_mask(draw, *(s.get(axis, axis) for axis in axes)), **more)]


def _mask_for_all(draw: Draw, **more) -> list[Case]:
    return _masked(draw, "n_q", "n_k", **more)


def _mask_for_each(draw: Draw, **more) -> list[Case]:
    return _masked(draw, "B", "n_q", "n_k", **more)


def _mask_for_all_or_equal(draw: Draw) -> list[Case]:
    return _mask_for_all(draw) + _mask_for_all(draw, equal={"n_q": "B", "n_k": "h"})


def _mask_for_each_or_equal(draw: Draw) -> list[Case]:
    """B = h, too: there a mask without an axis for the heads fits, and means something else."""
    return _mask_for_each(draw) + _mask_for_each(draw, equal=SELF)


def _four_axes(draw: Draw) -> list[Case]:
    shapes = (("B", "h", "n_q", "n_k"), ("B", 1, "n_q", "n_k"), ("B", 1, 1, "n_k"), (1, 1, "n_q", "n_k"))
    cases = [case for axes in shapes for case in _masked(draw, *axes)]
    return cases + _masked(draw, "B", 1, 1, "n_k", equal={"B": "h", "n_q": "h", "n_k": "h"})


def _zeros(draw: Draw) -> list[Case]:
    return _mask_for_all(draw, keep=["weights"])


def _future(draw: Draw) -> list[Case]:
    s, start = sizes(draw), draw.size(2, 3)
    n, d = s["n_q"], s["d"]
    inputs = {
        "make": {"args": [d, s["h"]]},
        "weights": draw.weights(TorchAttention(d, s["h"]), scale=1.1 / math.sqrt(d)),
        "x": draw.normal(s["B"], n, d),
        "others": draw.normal(s["B"], n - start, d),
        "start": start,
        "mask": torch.ones(n, n, dtype=torch.bool).tril(),
    }
    return [Case("future", inputs)]


def _gradients(draw: Draw) -> list[Case]:
    return _mask_for_each(draw, gradients=True)


def _short(draw: Draw) -> list[Case]:
    return [_case(draw, sizes(draw) | one) for one in ({"B": 1}, {"n_q": 1}, {"n_k": 1})]


def _strided(draw: Draw) -> list[Case]:
    return _mask_for_all(draw, strided=True)


def _train(draw: Draw) -> list[Case]:
    return [_case(draw, sizes(draw), mode="train")]


def _elsewhere(draw: Draw) -> list[Case]:
    return [_case(draw, sizes(draw)), *_mask_for_each(draw)]


DOUBLE = Tolerance(atol=1e-10, rtol=1e-9)
EXACT = Tolerance(atol=0.0, rtol=1e-3)  # where 0 is expected, nothing else will do
FIRST, FOR_ALL, FOR_EACH = ("output",), ("mask for all",), ("mask for each sequence",)

ROWS = (
    Row(
        "four layers",
        "W_q, W_k, W_v and W_o are linear layers from d_model to d_model, and there is nothing else to train",
        _layers,
        looks=tuple(f"attr.{name}" for name in NAMES),
    ),
    Row(
        "output",
        "the output [B, n_q, d] is right for different q, k and v, and n_q ≠ n_k",
        _output,
        looks=("out",),
        weight=4,
    ),
    Row(
        "weights",
        "weights [B, h, n_q, n_k] holds the last call's attention weights, detached",
        _weights,
        looks=("attr.weights", "attr.weights.requires_grad"),
        weight=2,
    ),
    Row(
        "mask for all",
        "a mask [n_q, n_k] holds for every sequence and head (True: may attend)",
        _mask_for_all_or_equal,
        looks=("out",),
        needs=FIRST,
    ),
    Row(
        "mask for each sequence",
        "a mask [B, n_q, n_k] holds for each sequence and all its heads",
        _mask_for_each_or_equal,
        looks=("out",),
        needs=FIRST,
    ),
    Row(
        "mask with four axes",
        "masks [B, h, n_q, n_k], [B, 1, n_q, n_k], [B, 1, 1, n_k] and [1, 1, n_q, n_k] work",
        _four_axes,
        looks=("out",),
        needs=FIRST,
    ),
    Row(
        "exact zeros",
        "a masked weight is exactly 0",
        _zeros,
        looks=("attr.weights",),
        needs=("weights",),
        tolerance=EXACT,
    ),
    Row(
        "no future",
        "under a causal mask, other later tokens do not move the outputs of earlier ones",
        _future,
        looks=("moved",),
        needs=FIRST,
    ),
    Row(
        "gradients",
        "the gradients of q, k, v and of all weights are right",
        _gradients,
        looks=("grad.*",),
        needs=FOR_EACH,
        weight=2,
    ),
    Row(
        "short inputs",
        "it works for one sequence, for one query and for one key",
        _short,
        looks=("out",),
        needs=FIRST,
    ),
    rows.float64(
        _zeros,
        _("float64 gives float64, with all its digits"),
        needs=FOR_ALL,
        weight=0.5,
        tolerance=DOUBLE,
    ),
    Row(
        "memory layout",
        "inputs whose memory is in another order give the same",
        _strided,
        looks=("out",),
        needs=FOR_ALL,
    ),
    Row(
        "inputs kept",
        "q, k, v and the mask are left unchanged",
        _mask_for_each,
        looks=("changed",),
        needs=FOR_EACH,
    ),
    Row(
        "train and eval",
        "it gives the same in train mode",
        _train,
        looks=("out",),
        needs=FIRST,
    ),
    rows.device(_elsewhere, needs=FOR_EACH, weight=0.5),
)

# ---- the exercise -----------------------------------------------------------------------------------

TORCH_HAS_IT = _(
    "Your code uses nn.MultiheadAttention. That is what you are building: "
    "with split_heads, attention and merge_heads it takes six lines."
)
FUNCTIONAL = _(
    "Your code calls torch's own multi-head attention. "
    "That is what you are building: with split_heads, attention and merge_heads it takes six lines."
)

EXERCISE = Exercise(
    id="4.2",
    symbol="MultiHeadAttention",
    kind="module class",
    parameters=("d_model", "h"),
    points=14,
    todos=("4.2", "4.3", "4.5"),
    rows=ROWS,
    reference=TorchAttention,
    answer=MultiHeadAttention,
    mistakes=MISTAKES,
    alternatives=(ByHand, EinsumAdditiveMask, FusedAttention, LoopOverHeads, BaddbmmScaledQueries),
    spoken=SPOKEN,
    forbidden={"MultiheadAttention": TORCH_HAS_IT, "multi_head_attention_forward": FUNCTIONAL},
    hints={
        "4.2": (
            _("A head needs its own queries, keys and values. How can one matrix hold all h projections?"),
            _(
                "Four layers, each [B, n, d] → [B, n, d]: three before the attention, one after the heads are merged."
            ),
            _(
                "for each of the four names of the contract: self.NAME = a linear layer from d_model to d_model"
            ),
        ),
        "4.3": (
            _(
                "Which of your functions turns [B, n, d] into heads, and what must have been done to q, k, v before?"
            ),
            _(
                "q [B, n_q, d] → Q [B, h, n_q, d_k]; k, v → K, V [B, h, n_k, d_k]. "
                "A mask [B, n_q, n_k] needs an axis for the heads: [B, 1, n_q, n_k]."
            ),
            _(
                "project each of q, k, v with its layer, split into heads; if the mask has 3 axes, insert one at 1; "
                "call attention(Q, K, V, mask): two results; keep the second, detached, as self.weights"
            ),
        ),
        "4.5": (
            _("The heads have answered separately. Who lets them speak to each other?"),
            _("heads [B, h, n_q, d_k] → merged [B, n_q, d] → through one more layer → [B, n_q, d]."),
            _("return the output layer applied to the merged heads"),
        ),
    },
)
