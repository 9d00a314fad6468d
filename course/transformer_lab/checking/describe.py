"""What a symbol is, before any case runs: its kind, its parameters, the names its source uses."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from torch import nn

from transformer_lab.checking.probe import Case, probe

DESCRIBE = Case("describe", {})


@probe("describe")
def _describe(symbol: Any, _inputs: dict[str, Any], values: dict[str, Any]) -> None:
    values["kind"] = _kind(symbol)
    values["name"] = getattr(symbol, "__name__", type(symbol).__name__)
    values["parameters"] = _parameters(symbol)
    values["uses"] = _used_names(symbol)


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


def _used_names(symbol: Any) -> list[str]:
    """Return the names and attributes that the source mentions in code (not in comments or strings)."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(symbol)))
    except (OSError, TypeError, SyntaxError):  # no source to read (built elsewhere): nothing to say of it
        return []
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return sorted(names | attributes)
