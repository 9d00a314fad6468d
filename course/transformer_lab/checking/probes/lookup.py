"""A special probe for chapter 01: was a row reached by a product, or taken by its number?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from transformer_lab.checking.probes.arguments import build
from transformer_lab.checking.probes.core import probe

# The functions by which torch takes rows out of a table when it is given their numbers.
_TAKES_ROWS = {"index_select", "embedding", "embedding_bag", "gather", "take", "take_along_dim"}


class _Watch(TorchFunctionMode):
    """Notes every call that takes rows of a table of the given shape by their number.

    It watches torch's functions, not the operations below them: there, the first one_hot of a session would
    import torch's compiler, which takes a second.
    """

    def __init__(self, shape: torch.Size):
        super().__init__()
        self.shape = sorted(shape)
        self.took_rows = False
        self.single: set[int] = set()  # rows taken one at a time, as table[i] does

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if any(self._is_table(value) for value in (*args, *kwargs.values())):
            self.took_rows |= name in _TAKES_ROWS
            if name == "__getitem__":
                self._note_index(args[1])
            elif name == "select":
                self.single.add(int(args[2] if len(args) > 2 else kwargs["index"]))
        return function(*args, **kwargs)

    def _is_table(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and sorted(value.shape) == self.shape

    def _note_index(self, index: Any) -> None:
        for part in _parts(index):
            if isinstance(part, list) or (isinstance(part, torch.Tensor) and part.dim()):
                self.took_rows = True
            elif isinstance(part, int | torch.Tensor):  # a tensor without axes counts as a number
                self.single.add(int(part))

    def picks(self) -> bool:
        """A product written as a loop visits every row; a lookup only those it was asked for."""
        return self.took_rows or 0 < len(self.single) < max(self.shape)


def _parts(index: Any) -> Iterator[Any]:
    yield from index if isinstance(index, tuple) else (index,)


@probe("takes rows")
def _takes_rows(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: args (ids, table [V, d] with V > d). Reports the `way`: "an index" or "a product"."""
    ids, table = build(inputs["args"])
    with _Watch(table.shape) as watch:
        symbol(ids, table)
    values["way"] = "an index" if watch.picks() else "a product"
