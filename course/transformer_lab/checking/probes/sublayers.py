"""Chapter 05: sublayers as inputs, and where a wrapper applies its dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.checking.probes.arguments import build, builder
from transformer_lab.checking.probes.core import make_module, probe
from transformer_lab.checking.probes.problems import Trouble

MOST_VALUES = 6  # different numbers that are reported; a right wrapper gives two


@builder("sublayer")
def _sublayer(weight: torch.Tensor, bias: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function `[..., d] -> [..., d]` that stands for attention or a feed-forward network."""
    return lambda x: torch.tanh(F.linear(x, weight.to(x), bias.to(x)))


class _Adds(nn.Module):
    """Stands in for the norm: what it adds shows whether something happened before or after it."""

    def __init__(self, amount: float):
        super().__init__()
        self.amount = amount

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.amount


@probe("where dropout acts")
def _where_dropout_acts(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Train mode, a sublayer that returns 1 everywhere, and `norm` replaced by one that adds `norm_adds`.

    inputs: make, x, norm_adds. Reports the different values of output - x, rounded, and whether the sublayer
    met zeros in what it was given (x itself holds none).
    """
    module = make_module(symbol, inputs | {"mode": "train"}, values)
    if not isinstance(getattr(module, "norm", None), nn.Module):
        raise Trouble("attributes", "The module needs the attribute norm, which yours does not have.")
    module.norm = _Adds(inputs["norm_adds"])
    x, met_zeros = build(inputs["x"]), []

    def ones(y: torch.Tensor) -> torch.Tensor:
        met_zeros.append(bool((y == 0).any()))
        return torch.ones_like(y)

    moved = (module(x, ones) - x).detach()
    different = sorted({round(value, 2) + 0.0 for value in moved.flatten().tolist()})  # + 0.0: no -0.0
    values["steps"] = different[:MOST_VALUES]
    values["zeros met"] = any(met_zeros)
