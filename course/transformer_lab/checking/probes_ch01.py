"""A special probe for chapter 01: was a row reached by a product, or taken by its number?"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lab.checking.arguments import build
from transformer_lab.checking.probe import probe

# The operations by which torch takes rows out of a table when it is given their numbers.
_TAKES_ROWS = {"index", "index_select", "embedding", "gather", "take"}


class _Watch(TorchDispatchMode):
    """Notes every operation that takes rows of a table of the given shape by their number."""

    def __init__(self, shape: torch.Size):
        super().__init__()
        self.shape = sorted(shape)
        self.took_rows = False
        self.single: set[int] = set()  # rows taken one at a time, as table[i] does

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__.rstrip("_")
        if args and isinstance(args[0], torch.Tensor) and sorted(args[0].shape) == self.shape:
            self.took_rows |= name in _TAKES_ROWS
            if name == "select":
                self.single.add(int(args[2]))
        return operation(*args, **(kwargs or {}))

    def picks(self) -> bool:
        """A product written as a loop visits every row; a lookup only those it was asked for."""
        return self.took_rows or 0 < len(self.single) < max(self.shape)


@probe("takes rows")
def _takes_rows(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: args (ids, table [V, d] with V > d). Reports the `way`: "an index" or "a product"."""
    ids, table = build(inputs["args"])
    with _Watch(table.shape) as watch:
        symbol(ids, table)
    values["way"] = "an index" if watch.picks() else "a product"
