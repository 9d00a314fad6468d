"""Whether code makes its tensors where its input is, tried without a second device.

Inputs and module are ordinary tensors that say they are on another device, and all that is computed from
them says so too. A tensor that the code makes without saying where is on the CPU, and the first operation
that meets both is told, as a GPU would. Numbers are real, so code may look at them. (torch's FakeTensorMode
and its "meta" device have no numbers, and their first use imports torch's compiler, which takes a second.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from transformer_lab.checking.probes.arguments import build
from transformer_lab.checking.probes.core import Case, make_module, probe
from transformer_lab.checking.probes.problems import Trouble
from transformer_lab.language import N_

ELSEWHERE = torch.device("meta")  # stands for a GPU; no tensor is really there
_DEVICE = torch.Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_TO_ARGUMENTS = torch._C._nn  # pyright: ignore[reportAttributeAccessIssue]
_STAYS = ("copy_", "__set__", "__setitem__")  # writes into what is where it is
# What may meet tensors of two devices; an index may lie on the CPU.
_MAY_MIX = {"to", "type_as", "__get__", "_has_compatible_shallow_copy_type", *_STAYS}
_TWO_DEVICES = N_(
    "Your code makes a tensor on the CPU, and in `{operation}` it meets one that is on another device. "
    "On a GPU it would stop here. Make new tensors where the input is: device=x.device."
)
_NUMPY = N_("A tensor on a GPU cannot be turned into numpy's; stay with torch, so that it runs there too.")


class _TwoDevices(TorchFunctionMode):
    """Follows where tensors are; raises Trouble where tensors of two devices meet (single numbers may).

    A tensor is elsewhere when its memory is: views and parameters share that of the tensor they are made of.
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[int, torch.UntypedStorage] = {}  # kept, so that no other gets its address

    def has(self, tensor: torch.Tensor) -> bool:
        return tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() in self._memory

    def put(self, value: Any) -> Any:
        """Put all tensors in `value` elsewhere."""
        for tensor in _tensors(value):
            if tensor.layout == torch.strided and tensor.numel():
                storage = tensor.untyped_storage()
                self._memory[storage.data_ptr()] = storage
        return value

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if function == _DEVICE:
            return ELSEWHERE if self.has(args[0]) else torch.device("cpu")
        self._check(name, args, kwargs)
        asked, args, kwargs = _asked_for(args, kwargs)
        result = function(*args, **kwargs)
        return result if name in _STAYS else self._placed(name, asked, args, kwargs, result)

    def _check(self, name: str, args: Any, kwargs: dict[str, Any]) -> None:
        places = {self.has(t) for t in _tensors((args, kwargs)) if t.dim() and t.numel()}
        if name in ("numpy", "__array__") and True in places:
            raise Trouble("device", _NUMPY)
        indexed = name == "__getitem__" and isinstance(args[0], torch.Tensor) and self.has(args[0])
        if len(places) > 1 and name not in _MAY_MIX and not indexed:
            raise Trouble("device", _TWO_DEVICES, operation=name.strip("_"))

    def _placed(self, name: str, asked: bool | None, args: Any, kwargs: dict, result: Any) -> Any:
        """Put a result where it was asked for, else where its inputs are."""
        if (
            name in ("to", "type_as")
            and asked is None
            and len(args) > 1
            and isinstance(args[1], torch.Tensor)
        ):
            asked = self.has(args[1])
        if name == "cpu":
            asked = False
        if asked is None:
            asked = any(self.has(t) for t in _tensors((args, kwargs)))
        if (
            isinstance(result, torch.Tensor)
            and asked != self.has(result)
            and name in ("to", "cpu", "type_as")
        ):
            result = result.clone()  # on a real machine it would be another tensor, too
        return self.put(result) if asked else result

    def parse_to(self, *args: Any, **kwargs: Any) -> tuple:
        """Module.to's arguments; torch itself would read the device of a tensor among them."""
        device, *rest = _real_parse_to(*args, **kwargs)
        like = next(_tensors((args, kwargs)), None)
        return (ELSEWHERE if like is not None and self.has(like) else device, *rest)


_real_parse_to = _TO_ARGUMENTS._parse_to


def _asked_for(args: Any, kwargs: dict[str, Any]) -> tuple[bool | None, Any, dict[str, Any]]:
    """Return whether a device is asked for (None: none is) and the arguments as the CPU can serve them."""
    devices = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.device)]
    devices += [torch.device(a) for a in (kwargs.get("device"),) if isinstance(a, str)]
    if not devices:
        return None, args, kwargs
    here = torch.device("cpu")
    args = tuple(here if isinstance(a, torch.device) else a for a in args)
    kwargs = {k: here if k == "device" or isinstance(v, torch.device) else v for k, v in kwargs.items()}
    return ELSEWHERE in devices, args, kwargs


@probe("device")
def _device(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Run another case as on a device that is not the CPU.

    inputs: run, the tree of a case of the probe "function", "module" or "composite".
    Reports `device`: where the tensors are that come out, "where x is" or "cpu".
    """
    case, world = Case(**inputs["run"]), _TwoDevices()
    function, call = symbol, case.inputs
    if "make" in case.inputs:
        module = make_module(symbol, {k: v for k, v in case.inputs.items() if k != "weights"}, {})
        _move(module, world)
        function, call = getattr(module, case.inputs.get("method", "__call__")), case.inputs["call"]
    args, kwargs = build(call.get("args", [])), build(call.get("kwargs", {}))
    world.put((args, kwargs))
    for module in _modules((args, kwargs)):
        _move(module, world)
    with world, mock.patch.object(_TO_ARGUMENTS, "_parse_to", world.parse_to):
        result = function(*args, **kwargs)
    values["device"] = sorted({"where x is" if world.has(t) else "cpu" for t in _tensors(result)})


def _move(module: nn.Module, world: _TwoDevices) -> None:
    """As `.to("cuda")` would: parameters and buffers move, other attributes stay."""
    world.put([*module.parameters(), *module.buffers()])


def _modules(tree: Any) -> Iterator[nn.Module]:
    if isinstance(tree, nn.Module):
        yield tree
    elif isinstance(tree, dict):
        yield from _modules(tuple(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _modules(item)


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
