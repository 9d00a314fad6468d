"""What a symbol is, before any case runs: its kind, its parameters, the names its code uses."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from transformer_lab.checking.probes.core import Case, probe

DESCRIBE = Case("describe", {})


@probe("describe")
def _describe(symbol: Any, _inputs: dict[str, Any], values: dict[str, Any]) -> None:
    values["kind"] = _kind(symbol)
    values["name"] = getattr(symbol, "__name__", type(symbol).__name__)
    values["parameters"] = _parameters(symbol)
    values["uses"] = _used_names(symbol)
    values["borrowed"] = _borrowed(symbol)


def _kind(symbol: Any) -> str:
    if inspect.isclass(symbol):
        return "module class" if issubclass(symbol, nn.Module) else "class"
    if isinstance(symbol, nn.Module):
        return "module instance"
    if inspect.isroutine(symbol) or callable(symbol):
        return "function"
    return type(symbol).__name__


def _parameters(symbol: Any) -> list[str]:
    """Return the parameter names in order (a class's are those of __init__, without self)."""
    try:
        return list(inspect.signature(symbol).parameters)
    except (TypeError, ValueError):  # built-ins and odd callables have no signature: nothing to compare
        return []


def _borrowed(symbol: Any) -> bool:
    """Say whether the symbol, or a class it inherits from, is this course's own and not the learner's."""
    kinds = symbol.__mro__ if inspect.isclass(symbol) else (symbol,)
    return any(str(getattr(kind, "__module__", "")).startswith("transformer_lab.") for kind in kinds)


def _used_names(symbol: Any) -> list[str]:
    """Return the global names and attributes that the code mentions (comments and strings do not count).

    They are read from the compiled code, since the source of a class typed into a notebook cannot be had.
    """
    members = vars(symbol).values() if inspect.isclass(symbol) else [symbol]
    codes = [function.__code__ for function in members if inspect.isfunction(function)]
    names: set[str] = set()
    while codes:
        code = codes.pop()
        names |= set(code.co_names)
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
    return sorted(names)
