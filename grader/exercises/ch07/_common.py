"""What the exercises of chapter 07 share: ids with padding, torch.nn behind the contract's names, decoder cases."""

from __future__ import annotations

import re

import torch
from torch import nn
from torch.func import functional_call

from grader.exercises.draw import Draw
from transformer_lab.checking.probes.composite import plain_name
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import FeedForward, LayerNorm, MultiHeadAttention

# ---- ids and masks ----------------------------------------------------------------------------------


def padded_ids(
    draw: Draw, rows: int, length: int, low: int = 3, high: int = 30, pad_id: int = 0
) -> torch.Tensor:
    """Random ids [rows, length] padded on the right: the first row by one, the next by two, …, the last by none.

    The number of pads differs from row to row, so that a mask of the wrong row shows.
    """
    ids = draw.integers(low, high, rows, length)
    ids[ids == pad_id] = high + 1
    for row in range(rows - 1):
        ids[row, length - 1 - row % (length - 1) :] = pad_id
    return ids


def other_pad_cases(draw: Draw) -> list[Case]:
    """Another pad_id, by place and by name; 0 is a word here, and words stand on both sides of pad_id."""
    sizes, pad_id = draw.sizes(B=(2, 4), n=(5, 8)), draw.size(5, 9)
    ids = padded_ids(draw, sizes["B"], sizes["n"], low=0, high=20, pad_id=pad_id)
    ids[0, 0], ids[1, 1], ids[1, 0] = 0, 1, 30
    return [
        Case("function", {"args": [ids, pad_id]}),
        Case("function", {"args": [ids.flip(1)], "kwargs": {"pad_id": pad_id}}),
    ]


def keys_mask(ids: torch.Tensor, pad_id: int = 0) -> torch.Tensor:
    """Where a key is real, [B, 1, 1, n]."""
    return ids.eq(pad_id).logical_not().unflatten(0, (-1, 1, 1))


def past_keys_mask(ids: torch.Tensor, pad_id: int = 0) -> torch.Tensor:
    """Where a key is real and not in the future, [B, 1, m, m]."""
    return keys_mask(ids, pad_id).expand(-1, 1, ids.size(1), -1).tril()


# ---- torch.nn behind the contract's names -----------------------------------------------------------

_TORCH_NAMES = (
    (r"(^|\.)attn\.", r"\1self_attn."),
    (r"cross_attn", "multihead_attn"),
    (r"ffn\.", ""),
    (r"W_o\.", "out_proj."),
)


def torch_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters of a stack built to the contract under the names that torch.nn gives them."""
    state = {}
    for name, parameter in module.named_parameters():
        plain = plain_name(name)
        for pattern, theirs in _TORCH_NAMES:
            plain = re.sub(pattern, theirs, plain)
        state[plain] = parameter
    for name in [name for name in state if re.search(r"\.?W_q\.(weight|bias)$", name)]:
        stem, kind = name.split("W_q.")
        parts = [state.pop(f"{stem}{which}.{kind}") for which in ("W_q", "W_k", "W_v")]
        state[f"{stem}in_proj_{kind}"] = torch.cat(parts)
    return state


def torch_mask(mask: torch.Tensor | None, batch: int, h: int, n_q: int) -> torch.Tensor | None:
    """Return a mask of this course as torch.nn takes it: True blocks, [B·h, n_q, n_k]."""
    if mask is None:
        return None
    return (~mask).expand(batch, h, n_q, mask.size(-1)).reshape(batch * h, n_q, -1)


def projections(d_model: int) -> nn.ModuleDict:
    """Return the four projections of an attention by the contract's names."""
    return nn.ModuleDict({name: nn.Linear(d_model, d_model) for name in ("W_q", "W_k", "W_v", "W_o")})


def two_linears(d_model: int, d_ff: int) -> nn.ModuleDict:
    """Return the feed-forward network's two layers by the contract's names."""
    return nn.ModuleDict({"linear1": nn.Linear(d_model, d_ff), "linear2": nn.Linear(d_ff, d_model)})


class Skeleton(nn.Module):
    """Parameters by the contract's names, and a torch.nn module (unregistered) that computes with them."""

    def __init__(self, h: int, norm: str, oracle: nn.Module):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"norm is 'post' or 'pre', not {norm!r}")
        self.h, self._oracle = h, [oracle]

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        size = (x.size(0), self.h, x.size(1))
        masks = {"tgt_mask": torch_mask(tgt_mask, *size), "memory_mask": torch_mask(memory_mask, *size)}
        return functional_call(self._oracle[0], torch_state(self), (x, memory), masks)


def torch_layer(d_model: int, h: int, d_ff: int, norm: str) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(
        d_model, h, d_ff, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    ).eval()


class ReferenceLayer(Skeleton):
    """torch.nn.TransformerDecoderLayer."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__(h, norm, torch_layer(d_model, h, d_ff, norm))
        self.self_attn, self.cross_attn = projections(d_model), projections(d_model)
        self.ffn = two_linears(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))


class BareLayerNorms(nn.Module):
    """A right layer: norm1 … norm3 are bare LayerNorms, and `if` chooses the order."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        if norm != "post" and norm != "pre":
            raise ValueError(f"unknown norm {norm}")
        self.pre = norm == "pre"
        self.self_attn, self.cross_attn = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = LayerNorm(d_model), LayerNorm(d_model), LayerNorm(d_model)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        if self.pre:
            y = self.norm1(x)
            x = x + self.self_attn(y, y, y, tgt_mask)
            x = x + self.cross_attn(self.norm2(x), memory, memory, memory_mask)
            return x + self.ffn(self.norm3(x))
        x = self.norm1(x + self.self_attn(x, x, x, tgt_mask))
        x = self.norm2(x + self.cross_attn(x, memory, memory, mask=memory_mask))
        return self.norm3(x + self.ffn(x))


# ---- cases of a layer and of a stack ----------------------------------------------------------------

BOTH = ("tgt_mask", "memory_mask")
GRADIENTS = {"grad.0": _("the gradient of x"), "grad.1": _("the gradient of memory")}


def decoder_case(
    draw: Draw, skeleton, norm="post", masks=(), n_layers=None, equal=False, causal=True, **extra
) -> Case:
    """Draw a case of a decoder layer (or stack, with n_layers): `masks` names those that are passed.

    causal: whether tgt_mask hides the future, or padding alone. equal: the axes that code could take for each other have one length, h = B = m = n and d = d_ff.
    """
    s = draw.sizes(h=[2, 4], B=(2, 3), m=(5, 6), n=(7, 9), d=[8, 12], d_ff=(10, 15))
    if equal:
        s = {"h": 4, "B": 4, "m": 4, "n": 4, "d": 8, "d_ff": 8}
    ids, src = padded_ids(draw, s["B"], s["m"]), padded_ids(draw, s["B"], s["n"])
    given = {"tgt_mask": (past_keys_mask if causal else keys_mask)(ids), "memory_mask": keys_mask(src)}
    args = [s["d"], s["h"], s["d_ff"], *([n_layers] if n_layers else [])]
    make = {"args": args, "kwargs": {} if norm == "post" else {"norm": norm}}
    x, memory = draw.normal(s["B"], s["m"], s["d"]), draw.normal(s["B"], s["n"], s["d"])
    call = {"args": [x, memory], "kwargs": {name: given[name] for name in masks}} | extra
    if "wrt" in call:
        call["cotangents"] = [draw.normal(*x.shape)]
    weights = draw.weights(skeleton(*args, norm=norm))
    return Case("composite", {"make": make, "weights": weights, "call": call})


def cases_of(skeleton, n_layers=None) -> dict:
    """The row functions that a layer and a stack share, by name."""

    def cases(*each):
        return lambda draw: [
            decoder_case(draw, skeleton, **({"n_layers": n_layers} | options)) for options in each
        ]

    another = {"n_layers": n_layers + 1} if n_layers else {}
    return {
        "plain": cases({}, {"equal": True} | another),
        "target mask": cases({"masks": ("tgt_mask",)}, {"masks": ("tgt_mask",), "causal": False}),
        "memory mask": cases({"masks": ("memory_mask",)}, {"masks": BOTH, "equal": True}),
        "both masks": cases({"masks": BOTH}),
        "pre": cases({"norm": "pre", "masks": BOTH}),
        "gradient": cases({"masks": BOTH, "wrt": ["0", "1"]}),
    }
