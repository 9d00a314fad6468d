"""Chapters 07 and 08: a probe for modules that are made of other parts."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from transformer_lab.checking.probe import _attribute_sentence, _call, load_weights, make_module, probe
from transformer_lab.checking.problems import Trouble

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
    names = _names(module, inputs.get("tied", {}), values)
    if "weights" in inputs:
        _load(module, names, inputs["weights"], inputs.get("tied", {}))
    if inputs.get("call"):
        own = dict(module.named_parameters())
        function = getattr(module, inputs["method"]) if "method" in inputs else module
        _call(function, inputs["call"], values, {plain: own[name] for plain, name in names.items()})


def _names(module: nn.Module, tied: dict[str, str], values: dict[str, Any]) -> dict[str, str]:
    """Return {plain name: own name} of every parameter; a tied one goes by the name it is tied to."""
    names = {plain_name(name): name for name, _ in module.named_parameters()}
    for second, first in tied.items():
        values[f"tied.{second}"] = (second in names) != (first in names)
        if second in names and first not in names:  # torch names a shared tensor after its first holder
            names[first] = names.pop(second)
    values["parameters"] = sorted(names)
    return names


def _load(module: nn.Module, names: dict[str, str], weights: dict[str, Any], tied: dict[str, str]) -> None:
    """Load `weights` strictly. A second appearance that is not tied gets its values too: then the other
    rows can still be judged."""
    weights = weights | {second: weights[first] for second, first in tied.items() if second in names}
    missing, extra = sorted(set(weights) - set(names)), sorted(set(names) - set(weights))
    if missing or extra:
        raise Trouble("attributes", _attribute_sentence(_few(missing), _few(extra)))
    load_weights(module, {names[plain]: value for plain, value in weights.items()})


def _few(names: list[str]) -> list[str]:
    more = len(names) - NAMES_SHOWN
    return [*names[:NAMES_SHOWN], f"and {more} more"] if more > 0 else names
