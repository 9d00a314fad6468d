"""A Transformer of torch.nn behind the course's names: what exercise 8.4 is compared with."""

from __future__ import annotations

import math
import re

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from transformer_lab.checking.probes.composite import plain_name

_TORCH_NAMES = (
    (r"(^|\.)attn\.", r"\1self_attn."),
    (r"cross_attn", "multihead_attn"),
    (r"ffn\.", ""),
    (r"W_o\.", "out_proj."),
)


def _torch_state(module: nn.Module) -> dict[str, torch.Tensor]:
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


# ---- parameters by the course's names, computed with by torch.nn ---------------------------------------


class _Layer(nn.Module):
    """The parameters of one layer by the course's names, with two attentions in a decoder."""

    def __init__(self, d_model: int, d_ff: int, attentions: tuple[str, ...]):
        super().__init__()
        for name in attentions:
            projections = {which: nn.Linear(d_model, d_model) for which in ("W_q", "W_k", "W_v", "W_o")}
            self.add_module(name, nn.ModuleDict(projections))
        self.ffn = nn.ModuleDict({"linear1": nn.Linear(d_model, d_ff), "linear2": nn.Linear(d_ff, d_model)})
        for number in range(len(attentions) + 1):
            self.add_module(f"norm{number + 1}", nn.LayerNorm(d_model))


class _Stack(nn.Module):
    """Layers by the course's names, and a stack of torch.nn (unregistered) that computes with them."""

    attentions: tuple[str, ...]

    def __init__(self, d_model: int, h: int, d_ff: int, N: int, norm: str, dropout: float):
        super().__init__()
        self.h = h
        self.layers = nn.ModuleList(_Layer(d_model, d_ff, self.attentions) for _ in range(N))
        if norm == "pre":
            self.norm = nn.LayerNorm(d_model)
        options = {"dropout": dropout, "batch_first": True, "norm_first": norm == "pre"}
        final = nn.LayerNorm(d_model) if norm == "pre" else None
        self._torch = [self.build((d_model, h, d_ff), options, N, final)]

    def run(self, *args, **masks):
        torchs = self._torch[0].train(self.training)
        return functional_call(torchs, _torch_state(self), args, masks)


class TorchEncoder(_Stack):
    attentions = ("attn",)

    def build(self, sizes, options, N, final):
        layer = nn.TransformerEncoderLayer(*sizes, **options)
        return nn.TransformerEncoder(layer, N, final, enable_nested_tensor=False)

    def forward(self, x, ids):
        return self.run(x, src_key_padding_mask=ids == 0)


class TorchDecoder(_Stack):
    attentions = ("self_attn", "cross_attn")

    def build(self, sizes, options, N, final):
        return nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **options), N, final)

    def forward(self, x, memory, ids, memory_ids):
        ahead = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
        blocked = (ahead | (ids == 0)[:, None]).repeat_interleave(self.h, dim=0)  # [B·h, m, m]
        return self.run(x, memory, tgt_mask=blocked, memory_key_padding_mask=memory_ids == 0)


# ---- the whole model --------------------------------------------------------------------------------


class ReferenceTransformer(nn.Module):
    """torch.nn's encoder and decoder around the tied embedding."""

    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        super().__init__()
        self.src_emb = nn.ModuleDict({"emb": nn.Embedding(src_vocab, d_model)})
        self.tgt_emb = nn.ModuleDict({"emb": nn.Embedding(tgt_vocab, d_model)})
        self.encoder = TorchEncoder(d_model, h, d_ff, N, norm, dropout)
        self.decoder = TorchDecoder(d_model, h, d_ff, N, norm, dropout)
        self.output = nn.ModuleDict({"proj": nn.Linear(d_model, tgt_vocab, bias=False)})
        self.output["proj"].weight = self.tgt_emb["emb"].weight
        self.rate, self.max_len = dropout, max_len

    def place(self, table, ids):
        n, d = ids.size(1), table.size(1)
        if n > self.max_len:
            raise ValueError(f"{n} tokens, but only {self.max_len} positions")
        like = {"device": table.device, "dtype": torch.float64}
        angles = torch.outer(torch.arange(n, **like), 10000.0 ** -(torch.arange(0, d, 2, **like) / d))
        codes = torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(n, d)
        x = F.embedding(ids, table) * math.sqrt(d) + codes.to(table.dtype)
        return F.dropout(x, self.rate, self.training)

    def encode(self, src):
        return self.encoder(self.place(self.src_emb["emb"].weight, src), src)

    def decode(self, tgt_in, memory, src):
        table = self.tgt_emb["emb"].weight
        return self.decoder(self.place(table, tgt_in), memory, tgt_in, src) @ table.T

    def forward(self, src, tgt_in):
        return self.decode(tgt_in, self.encode(src), src)
