"""Chapters 07 and 08: a probe for modules that are made of other parts."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from transformer_lab.checking.probes.core import _call, attribute_trouble, make_module, probe
from transformer_lab.checking.probes.problems import Trouble

_WRAPPED_NORM = re.compile(r"\b(norm\d)\.norm\.")
NAMES_SHOWN = 3  # a missing layer misses 26 parameters; a learner needs to read a few of them


def plain_name(name: str) -> str:
    """Return a parameter's name as if every norm stood bare.

    The contract names `norm1`, not its class: a LayerNorm has `norm1.weight`, a PostNorm around one has
    `norm1.norm.weight`. Both are right, so both are called `norm1.weight`.
    """
    return _WRAPPED_NORM.sub(r"\1.", name)


@probe("composite")
def _composite(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """`module` for what holds other parts; parameters and gradients go by their plain names.

    inputs, beyond those of `module`: method (what to call instead of the module itself), and tied,
    {name of a second appearance: name of the parameter that it must be}; "tied.<name>" says whether it is.
    """
    module = make_module(symbol, {key: item for key, item in inputs.items() if key != "weights"}, values)
    own = {plain_name(name): p for name, p in module.named_parameters(remove_duplicate=False)}
    untied = _untied(own, inputs.get("tied", {}), values)
    values["parameters"] = sorted(own)
    if "weights" in inputs:
        # A table that should be tied and is not gets its values all the same: the other rows can be judged.
        _load(own, inputs["weights"] | {second: inputs["weights"][first] for second, first in untied.items()})
    if inputs.get("call"):
        _call(getattr(module, inputs.get("method", "__call__")), inputs["call"], values, own)


def _untied(own: dict[str, nn.Parameter], tied: dict[str, str], values: dict[str, Any]) -> dict[str, str]:
    """Drop from `own` every second name of a tied parameter; return the pairs of `tied` that are two."""
    apart = {}
    for second, first in tied.items():
        if second not in own or first not in own:
            continue  # a missing name is reported when the weights are loaded
        values[f"tied.{second}"] = own[second] is own[first]
        if own[second] is own[first]:
            del own[second]
        else:
            apart[second] = first
    return apart


def _load(own: dict[str, nn.Parameter], weights: dict[str, torch.Tensor]) -> None:
    """Copy `weights` into the parameters of the same plain names, strictly, like `load_weights`."""
    missing, extra = sorted(set(weights) - set(own)), sorted(set(own) - set(weights))
    if missing or extra:
        raise attribute_trouble(_few(missing), _few(extra))
    for name, value in sorted(weights.items()):  # sorted: a recorded case may hold them in another order
        if own[name].shape != value.shape:
            found, wanted = list(own[name].shape), list(value.shape)
            raise Trouble(
                "attributes",
                "{name} has shape {found}; {wanted} is needed.",
                name=name,
                found=found,
                wanted=wanted,
            )
        own[name].data.copy_(value)


def _few(names: list[str]) -> list[str]:
    more = len(names) - NAMES_SHOWN
    return [*names[:NAMES_SHOWN], f"and {more} more"] if more > 0 else names
