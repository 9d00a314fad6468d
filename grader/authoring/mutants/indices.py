"""Operators: indices, bounds, and the items of lists, tuples and dicts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.authoring.mutants.places import New, Place
from grader.authoring.mutants.registry import like, name_of, number, on, swapped, without, written


@on(ast.Slice)
def other_slice(place: Place) -> Iterator[New]:
    node = place.node
    for bound in ("lower", "upper", "step"):
        if getattr(node, bound) is not None and (bound != "lower" or number(node.lower) != 0):
            yield like(node, **{bound: None})
    if node.lower is None:
        yield like(node, lower=ast.Constant(1))
    if node.upper is None:
        yield like(node, upper=written(-1))


@on(ast.Subscript)
def index_dropped(place: Place) -> Iterator[New]:
    if isinstance(place.node.ctx, ast.Load):
        yield place.node.value


@on(ast.Tuple, ast.List)
def other_items(place: Place) -> Iterator[New]:
    """An item less, or two neighbours in the other order."""
    items = place.node.elts
    if isinstance(place.node.ctx, ast.Load):
        needed = items[:-1] if _is_whole(items[-1:]) else items  # x[:, None, :] is x[:, None]
        yield from (like(place.node, elts=without(items, index)) for index in range(len(needed)))
        yield from (like(place.node, elts=swapped(items, index)) for index in range(len(items) - 1))


def _is_whole(items: list[ast.expr]) -> bool:
    return any(isinstance(s, ast.Slice) and not (s.lower or s.upper or s.step) for s in items)


@on(ast.expr)
def off_by_one(place: Place) -> Iterator[New]:
    """A bound that is computed, one more and one less. (Bounds that are numbers change as numbers.)"""
    counted = isinstance(place.parent, ast.Call) and name_of(place.parent.func) in ("range", "arange")
    bound = place.field in ("lower", "upper") or (counted and place.field == "args")
    if bound and number(place.node) is None:
        yield ast.BinOp(place.node, ast.Add(), ast.Constant(1))
        yield ast.BinOp(place.node, ast.Sub(), ast.Constant(1))


@on(ast.Dict)
def other_entries(place: Place) -> Iterator[New]:
    keys, values = place.node.keys, place.node.values
    yield from (ast.Dict(without(keys, i), without(values, i)) for i in range(len(keys)))
    yield from (ast.Dict(keys, swapped(values, i)) for i in range(len(keys) - 1))
