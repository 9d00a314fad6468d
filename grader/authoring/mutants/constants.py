"""Operators: numbers, axes, truth values, words."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.authoring.mutants.names import AXES, AXIS_KEYWORDS, STRINGS
from grader.authoring.mutants.places import New, Place
from grader.authoring.mutants.registry import name_of, number, on, written

NEAR = 1.0001  # 10000 becomes 10001: wrong, and not by much
LARGE = 0.01  # below it a number keeps something from 0; a near miss of it is as good


@on(ast.Constant, ast.UnaryOp)
def other_number(place: Place) -> Iterator[New]:
    value = number(place.node)
    if value is None or number(place.parent) is not None:  # the sign belongs to the number
        return
    axis = isinstance(value, int) and _is_axis(place)
    near = _other_axes(value) if axis else _other_sizes(value)
    yield from (written(other) for other in near if (other, type(other)) != (value, type(value)))


def _other_axes(value: int) -> tuple[int, ...]:
    return (-2, -1, 0, 1, 2) if abs(value) <= 2 else (value - 1, value + 1)


def _other_sizes(value: int | float) -> tuple[int | float, ...]:
    if isinstance(value, int):
        return value + 1, value - 1, 10 * value, 0, 1
    moved = (value * NEAR, value + 1, 0.0, 1.0) if abs(value) >= LARGE else (0.0, 1.0)
    return tuple(float(f"{other:.6g}") for other in (*moved, value * 10, value / 10))


def _is_axis(place: Place) -> bool:
    if isinstance(place.parent, ast.keyword):
        return place.parent.arg in AXIS_KEYWORDS
    return isinstance(place.parent, ast.Call) and place.field == "args" and name_of(place.parent.func) in AXES


@on(ast.Constant)
def other_constant(place: Place) -> Iterator[New]:
    value = place.node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif value is None and not isinstance(place.parent, (ast.Compare, ast.Subscript, ast.Tuple)):
        yield ast.Constant(0)
    elif isinstance(value, str) and not isinstance(place.parent, ast.Expr):  # a docstring is free
        yield from (ast.Constant(other) for other in STRINGS.get(value, (value + "_",)))
