"""What the exercises of chapter 04 share: sizes, numbers that name their place, masks, torch's own attention."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises.draw import Draw
from transformer_lab.language import _

NAMES = tuple(f"W_{name}.{kind}" for name in "qkvo" for kind in ("weight", "bias"))  # the contract's

SPOKEN = {
    "attr.weights": _("weights"),
    "attr.weights.requires_grad": _("weights.requires_grad"),
    "grad.0": _("the gradient of q"),
    "grad.1": _("the gradient of k"),
    "grad.2": _("the gradient of v"),
    "moved": _("the change of the earlier tokens' outputs"),
}


def sizes(draw: Draw) -> dict[str, int]:
    """Return B, h, d_k, d, n_q and n_k, no two of them equal."""
    while True:
        drawn = draw.sizes(B=(2, 3), h=(2, 4), d_k=(2, 5), n_q=(5, 7), n_k=(5, 7))
        drawn["d"] = drawn["h"] * drawn["d_k"]
        if len(set(drawn.values())) == len(drawn) and drawn["d"] <= 12:
            return drawn


def equal_sizes(draw: Draw, **equal: str) -> dict[str, int]:
    """Return sizes in which some are equal, made so in turn: `n_q="B", d_k="h"`. An axis has no name but its place."""
    drawn = sizes(draw)
    for one, other in equal.items():
        drawn[one] = drawn[other]
    return drawn | {"d": drawn["h"] * drawn["d_k"]}


# Among B, h, n and d_k each pair is equal once, and a token's features are as many as the tokens once.
EQUAL = ({"n_q": "B", "d_k": "h"}, {"B": "h", "n_q": "d_k"}, {"B": "d_k", "n_q": "h"}, {"n_q": "d"})


def labels(B: int, n: int, d: int) -> torch.Tensor:
    """Return x[b, t, j] = 1000·b + 100·t + j, so that every number says where it came from."""
    b, t, j = torch.meshgrid(torch.arange(B), torch.arange(n), torch.arange(d), indexing="ij")
    return (1000 * b + 100 * t + j).float()


def random_mask(draw: Draw, *shape: int) -> torch.Tensor:
    """Return a random mask; every row lets something through and hides something."""
    flat = torch.tensor(draw.rng.random((math.prod(shape[:-1]), shape[-1])) < 0.55)
    for row in flat:
        here, there = draw.rng.permutation(shape[-1])[:2]
        row[int(here)], row[int(there)] = True, False
    return flat.reshape(shape)


class TorchAttention(nn.Module):
    """torch's own functional multi-head attention, batch first, with this course's names and mask sign."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q, k, v, mask=None):
        layers = (self.W_q, self.W_k, self.W_v)
        forbidden = None if mask is None else self._forbidden(mask, q.size(0), q.size(1), k.size(1))
        out, weights = F.multi_head_attention_forward(
            *(x.transpose(0, 1) for x in (q, k, v)),  # torch: [n, B, d]
            embed_dim_to_check=q.size(-1),
            num_heads=self.h,
            in_proj_weight=torch.cat([layer.weight for layer in layers]),
            in_proj_bias=torch.cat([layer.bias for layer in layers]),
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=self.W_o.weight,
            out_proj_bias=self.W_o.bias,
            attn_mask=forbidden,
            average_attn_weights=False,
        )
        self.weights = weights.detach()
        return out.transpose(0, 1)

    def _forbidden(self, mask, B, n_q, n_k):
        """torch's mask: True means "must not attend", one [n_q, n_k] for each sequence and head."""
        if mask.dim() == 3:
            mask = mask[:, None]
        return ~mask.expand(B, self.h, n_q, n_k).reshape(B * self.h, n_q, n_k)
