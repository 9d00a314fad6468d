"""Seeded random inputs for cases: rounded, readable, neither saturated nor symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

DECIMALS = 3  # rounding makes an input the same on every machine and readable in a message


class Draw:
    """A source of random sizes and tensors. Equal seeds draw equal values."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def size(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def sizes(self, **ranges: tuple[int, int] | list[int]) -> dict[str, int]:
        """Return a size for each name, all different: a tuple is a range, a list a choice.

        Raises ValueError when the ranges leave no set of different sizes.
        """
        for _ in range(1000):
            drawn = {
                name: self.size(*span) if isinstance(span, tuple) else int(self.rng.choice(span))
                for name, span in ranges.items()
            }
            if len(set(drawn.values())) == len(drawn):
                return drawn
        raise ValueError(f"no different sizes in {ranges}")

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return values from a normal distribution with standard deviation `scale`."""
        values = np.round(self.rng.normal(0.0, scale, size=shape), DECIMALS)
        return torch.tensor(values, dtype=dtype).reshape(shape)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Return values spread evenly between low and high."""
        values = np.round(self.rng.uniform(low, high, size=shape), DECIMALS)
        return torch.tensor(values, dtype=dtype).reshape(shape)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Return int64 values from low to high, both included."""
        return torch.tensor(self.rng.integers(low, high + 1, size=shape)).reshape(shape)

    def choice(self, options: list[Any]) -> Any:
        """Return one of the options."""
        return options[int(self.rng.integers(len(options)))]

    def weights(self, module: nn.Module, scale: float = 0.4) -> dict[str, torch.Tensor]:
        """Return a random value for every parameter of `module`, by name."""
        return {name: self.normal(*p.shape, scale=scale) for name, p in module.named_parameters()}
