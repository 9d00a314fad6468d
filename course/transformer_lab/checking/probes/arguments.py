"""Between a case's plain inputs and the objects a learner's code receives, in both directions.

An input written `{"$": "name", ...}` is built by the builder of that name, beside the learner's code:
that is how a case can hold a function, a module or a tensor of unusual layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from transformer_lab.language import N_

BUILDERS: dict[str, Callable[..., Any]] = {}


def builder(name: str) -> Callable:
    """Register `function(**fields)` as what builds an input `{"$": name, **fields}`."""

    def register(function: Callable) -> Callable:
        BUILDERS[name] = function
        return function

    return register


def build(tree: Any) -> Any:
    """Return what a learner's code receives: fresh copies of tensors, tagged inputs built."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        if "$" in tree:
            fields = {key: build(value) for key, value in tree.items() if key != "$"}
            return BUILDERS[tree["$"]](**fields)
        return {key: build(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [build(item) for item in tree]
    return tree


@builder("strided")
def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in another memory layout, so that `view` on a transposed input is met."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


@builder("shape")
def _shape(sizes: list[int]) -> tuple[int, ...]:
    """A tuple, which JSON does not know."""
    return tuple(sizes)


def _unusual(tensor: torch.Tensor) -> str:
    """Say what keeps a tensor's numbers from being compared, or "" when nothing does."""
    if tensor.device.type != "cpu":
        return f"a tensor on {tensor.device}"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return N_("a sparse tensor") if tensor.layout != torch.strided else N_("a quantized tensor")
    return (
        N_("a tensor of complex128") if tensor.dtype == torch.complex128 else ""
    )  # safetensors has no such type


def plain(value: Any) -> Any:
    """Return a result as plain data; what is neither data nor a tensor becomes `{"$type": its type}`."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        unusual = _unusual(value)
        return {"$type": unusual} if unusual else value.detach().clone()
    if type(value) is int and abs(value) >= 2**63:  # no tensor holds it, and JSON may not either
        return {"$type": N_("an integer of more than 64 bits")}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return [plain(item) for item in value]
    if type(value) is dict:  # pairs keep the order, which some contracts state
        return {"$dict": [[plain(key), plain(item)] for key, item in value.items()]}
    return {"$type": type(value).__module__.split(".")[0] + "." + type(value).__name__}
