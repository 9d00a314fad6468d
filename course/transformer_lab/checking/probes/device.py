"""Whether code makes its tensors where its input is, tried without a second device.

Inputs and module stand on torch's "meta" device, which has shapes but no numbers. A tensor that the code
makes without saying where lands on the CPU, and the first operation that meets both is told. torch's own
FakeTensorMode does the same and more, but its first use imports torch's compiler, which takes a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from transformer_lab.checking.probes.arguments import build
from transformer_lab.checking.probes.core import Case, make_module, probe
from transformer_lab.checking.probes.problems import Trouble
from transformer_lab.language import N_

# What may meet tensors of two devices: an index may lie on the CPU, and these bring one to another's.
_MAY_MIX = {"__getitem__", "to", "type_as", "copy_", "__get__", "__set__"}
_MAY_MIX |= {"_has_compatible_shallow_copy_type"}  # Module.to asks it

_NO_NUMBERS = re.compile("meta tensor|data-independent", re.IGNORECASE)  # what torch says when one is read


class _OneDevice(TorchFunctionMode):
    """Raises Trouble when a function of torch meets tensors of two devices; single numbers may."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        devices = {t.device.type for t in _tensors((args, kwargs)) if t.dim()}
        if len(devices) > 1 and name == "copy_":
            return args[0]  # fills either from the other; meta has no numbers to give
        if len(devices) > 1 and name not in _MAY_MIX:
            raise Trouble("device", _TWO_DEVICES, operation=name.strip("_"))
        return function(*args, **kwargs)


_TWO_DEVICES = N_(
    "Your code makes a tensor on the CPU, and in `{operation}` it meets one that is on another device. "
    "On a GPU it would stop here. Make new tensors where the input is: device=x.device."
)


@probe("device")
def _device(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Run another case on the meta device.

    inputs: run, the tree of a case of the probe "function", "module" or "composite".
    Reports `device`: where the tensors are that come out, "where x is" or the name of a device. Code that
    reads a number (tolist, item, `if` on a tensor) ends there, as there are none; what it did before counts.
    """
    case = Case(**inputs["run"])
    function, call = symbol, case.inputs
    if "make" in case.inputs:
        module = make_module(symbol, {k: v for k, v in case.inputs.items() if k != "weights"}, {})
        module.to("meta")  # as .to("cuda") would: parameters and buffers move, other attributes stay
        function, call = getattr(module, case.inputs.get("method", "__call__")), case.inputs["call"]
    args, kwargs = _elsewhere(build(call.get("args", []))), _elsewhere(build(call.get("kwargs", {})))
    try:
        with _OneDevice():
            result = function(*args, **kwargs)
    except (RuntimeError, NotImplementedError) as error:
        if not _NO_NUMBERS.search(str(error)):
            raise
        values["device"] = ["where x is"]
    else:
        places = ["where x is" if t.device.type == "meta" else str(t.device) for t in _tensors(result)]
        values["device"] = sorted(set(places))


def _elsewhere(tree: Any) -> Any:
    if isinstance(tree, (torch.Tensor, nn.Module)):
        return tree.to("meta")
    if isinstance(tree, dict):
        return {key: _elsewhere(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_elsewhere(item) for item in tree)
    return tree


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, nn.Module):
        yield from tree.parameters()
    elif isinstance(tree, dict):
        yield from _tensors(tuple(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _tensors(item)
