"""What the exercises of chapter 06 share: weights and cases of layers, torch's own layer as the reference, and
two layers that stand in for a learner's when 6.6 and 6.7 are answered another way."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises.draw import Draw
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import FeedForward

EXACT = Tolerance(atol=1e-9, rtol=1e-8)  # for float64
LOOSE = Tolerance(atol=5e-5, rtol=5e-4)  # for gradients, which are sums over many terms
# Attention, norms and sums in a row. Of 400 drawn keys the worst right answer of 6.6 stayed below a fifth of these.
STACKED = Tolerance(atol=3e-5, rtol=3e-4)
STACKED_GRADIENT = Tolerance(atol=2e-4, rtol=1e-3)
SPOKEN = {"out": _("forward(x)"), "grad.0": _("the gradient of x")}


def with_gradient(case: Case, draw: Draw) -> Case:
    """Return the case, asking for the gradients of x and of all weights as well."""
    x = case.inputs["call"]["args"][0]
    case.inputs["call"] |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(*x.shape)]}
    return case


# ---- weights ----------------------------------------------------------------------------------------


def ffn_weights(draw: Draw, d: int, d_ff: int, prefix: str = "") -> dict[str, torch.Tensor]:
    # In alphabetical order, as they cross the wire: a mistake in shape is named by the first one that does not fit.
    return {
        f"{prefix}linear1.bias": draw.normal(d_ff, scale=0.7),
        f"{prefix}linear1.weight": draw.normal(d_ff, d, scale=0.5),
        f"{prefix}linear2.bias": draw.normal(d, scale=0.7),
        f"{prefix}linear2.weight": draw.normal(d, d_ff, scale=0.5),
    }


def norm_weights(draw: Draw, d: int, prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}bias": draw.normal(d, scale=0.4), f"{prefix}weight": draw.uniform(d, low=0.6, high=1.6)}


def layer_weights(draw: Draw, d: int, d_ff: int, prefix: str = "") -> dict[str, torch.Tensor]:
    weights = {}
    for name in ("W_k", "W_o", "W_q", "W_v"):
        weights[f"{prefix}attn.{name}.bias"] = draw.normal(d, scale=0.3)
        weights[f"{prefix}attn.{name}.weight"] = draw.normal(d, d, scale=0.4)
    weights |= ffn_weights(draw, d, d_ff, f"{prefix}ffn.")
    for name in ("norm1", "norm2"):
        weights |= norm_weights(draw, d, f"{prefix}{name}.")
    return weights


# ---- cases of an encoder layer ----------------------------------------------------------------------


def layer_sizes(draw: Draw) -> dict[str, int]:
    """d, h, d_ff, B, n, no two of them equal to each other or to d / h."""
    d, h, batch = draw.choice([(12, 4, 2), (10, 2, 3), (15, 3, 2)])
    return {"d": d, "h": h, "B": batch, "n": draw.size(6, 7), "d_ff": draw.choice([17, 19, 21])}


# Code that finds an axis by its length goes wrong where another axis is as long.
ALL_NINES = {"d": 9, "h": 3, "B": 3, "n": 3, "d_ff": 9}  # B = n = h = d / h, and d = d_ff
ALL_SIXES = {"d": 6, "h": 2, "B": 6, "n": 6, "d_ff": 6}  # B = n = d = d_ff


def mask_of(draw: Draw, kind: str, batch: int, n: int) -> torch.Tensor:
    """padding [B, 1, 1, n], causal [n, n], or a mask of its own for each sentence [B, n, n]."""
    if kind == "padding":
        real = torch.tensor([max(n - 1 - i, 1) for i in range(batch)])  # every sentence has another length
        return (torch.arange(n) < real[:, None])[:, None, None]
    if kind == "causal":
        return torch.ones(n, n).tril().bool()
    return (draw.uniform(batch, n, n) < 0.6) | torch.eye(n, dtype=torch.bool)


def layer_case(
    draw: Draw,
    norm: str | None = None,
    mask: str = "",
    front: tuple[int, int] | None = None,
    sizes: dict[str, int] | None = None,
) -> Case:
    s = sizes or layer_sizes(draw)
    batch, n = front or (s["B"], s["n"])
    x = draw.normal(batch, n, s["d"]) + 0.3
    args = [x, mask_of(draw, mask, batch, n)] if mask else [x]
    inputs = {
        "make": {"args": [s["d"], s["h"], s["d_ff"]], "kwargs": {"norm": norm} if norm else {}},
        "weights": layer_weights(draw, s["d"], s["d_ff"]),
        "call": {"args": args},
    }
    return Case("composite", inputs)


# ---- torch's own layer, given weights under the contract's names -------------------------------------


class Weights(nn.Module):
    """The parameters of an encoder layer under the contract's names, and no forward."""

    def __init__(self, d_model, h, d_ff):
        super().__init__()
        self.attn, self.ffn = nn.Module(), nn.Module()
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self.attn, name, nn.Linear(d_model, d_model))
        self.ffn.linear1, self.ffn.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)


def torch_layer(d_model: int, h: int, d_ff: int, norm: str) -> nn.TransformerEncoderLayer:
    """Raises ValueError for any norm but post and pre."""
    if norm not in ("post", "pre"):
        raise ValueError(norm)
    return nn.TransformerEncoderLayer(
        d_model, h, d_ff, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    )


def torch_names(layer: nn.Module) -> dict[str, torch.Tensor]:
    """A layer's tensors under the names of nn.TransformerEncoderLayer, which keeps Q, K, V in one matrix."""
    attn, ffn = layer.attn, layer.ffn
    stacked = [attn.W_q, attn.W_k, attn.W_v]
    tensors = {
        "self_attn.in_proj_weight": torch.cat([linear.weight for linear in stacked]),
        "self_attn.in_proj_bias": torch.cat([linear.bias for linear in stacked]),
    }
    parts = {"self_attn.out_proj": attn.W_o, "linear1": ffn.linear1, "linear2": ffn.linear2}
    for name, part in (parts | {"norm1": layer.norm1, "norm2": layer.norm2}).items():
        tensors |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    return tensors


def torch_mask(mask: torch.Tensor | None, x: torch.Tensor, h: int) -> torch.Tensor | None:
    """True means "may attend" here and "may not" in torch.nn, which wants [B · h, n, n]."""
    if mask is None:
        return None
    batch, n = x.shape[:2]
    mask = mask[:, None] if mask.dim() == 3 else mask
    return ~mask.expand(batch, h, n, n).reshape(batch * h, n, n)


# ---- encoder layers written another way -------------------------------------------------------------


class OneLoopAttentionByHand(nn.Module):
    """Both sublayers in one loop; the order is asked for in forward, and so is its error."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        self.order, self.h = norm, h
        self.attn, self.ffn = Weights(d_model, h, d_ff).attn, FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def attend(self, x, mask):
        q, k, v = (
            linear(x).unflatten(-1, (self.h, -1)).transpose(-3, -2)
            for linear in (self.attn.W_q, self.attn.W_k, self.attn.W_v)
        )
        scores = q @ k.mT / math.sqrt(q.size(-1))  # [B, h, n, n]
        if mask is not None:
            scores = scores.masked_fill(~(mask[:, None] if mask.dim() == 3 else mask), -math.inf)
        return self.attn.W_o((scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2))

    def forward(self, x, mask=None):
        if self.order not in ("post", "pre"):
            raise ValueError("norm must be 'post' or 'pre'")
        for norm, sublayer in ((self.norm1, lambda y: self.attend(y, mask)), (self.norm2, self.ffn)):
            x = norm(x + sublayer(x)) if self.order == "post" else x + sublayer(norm(x))
        return x


class OtherAttention(nn.Module):
    """A stand-in for MultiHeadAttention on torch's fused kernel, called by its parameters' names."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q, k, v, mask=None):
        heads = [
            linear(y).view(*y.shape[:2], self.h, -1).transpose(1, 2)
            for linear, y in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
        ]
        mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask)
        return self.W_o(mixed.transpose(1, 2).reshape(q.shape))


class BranchesAnotherAttention(nn.Module):
    """One branch an order, written out; another attention class."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        assert isinstance(norm, str)
        if norm == "post":
            self.pre_norm = False
        elif norm == "pre":
            self.pre_norm = True
        else:
            raise ValueError(norm)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.attn = OtherAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)

    def forward(self, x, mask=None):
        if self.pre_norm:
            normed = self.norm1(x)
            x = x + self.attn(normed, normed, normed, mask=mask)
            normed = self.norm2(x)
            return self.ffn(normed) + x
        x = self.norm1(self.attn(q=x, k=x, v=x, mask=mask) + x)
        return self.norm2(self.ffn(x) + x)
