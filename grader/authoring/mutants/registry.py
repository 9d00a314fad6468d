"""How an operator is written: a function that is given a place and yields what may stand there instead."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from grader.authoring.mutants.names import MODULES
from grader.authoring.mutants.places import New, Place

Operator = Callable[[Place], Iterator[New]]
OPERATORS: list[tuple[type | tuple[type, ...], Operator]] = []


def on(*kinds: type) -> Callable[[Operator], Operator]:
    """Register an operator for nodes of these kinds."""

    def register(operator: Operator) -> Operator:
        OPERATORS.append((kinds, operator))
        return operator

    return register


def like(node: ast.AST, **changes) -> ast.AST:
    """Return the node with some fields changed; it shares the others."""
    return type(node)(**({name: value for name, value in ast.iter_fields(node)} | changes))


def without(items: list, index: int) -> list:
    return [*items[:index], *items[index + 1 :]]


def swapped(items: list, index: int) -> list:
    """Return the items with the one at `index` and the next one in the other order."""
    return [*items[:index], items[index + 1], items[index], *items[index + 2 :]]


def name_of(function: ast.AST) -> str:
    """Return the last part of a called name: "amax" of x.amax and of torch.amax."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in MODULES


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def number(node: ast.AST) -> int | float | None:
    """Return the number that is written here, with its sign; None when it is something else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(node.operand)
        return None if value is None else -value
    plain = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return node.value if plain else None


def written(value: int | float) -> ast.expr:
    """Return the code of a number."""
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)
