"""Operators: statements, conditions, loops, results."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.authoring.mutants.places import New, Place
from grader.authoring.mutants.registry import like, on, written

SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Break, ast.Continue)
BLOCKS = (ast.If, ast.For, ast.While)


@on(*SIMPLE, *BLOCKS)
def statement_dropped(place: Place) -> Iterator[New]:
    if not (isinstance(place.node, ast.Expr) and isinstance(place.node.value, ast.Constant)):
        yield ast.Pass()


@on(*SIMPLE)
def statements_swapped(place: Place) -> Iterator[New]:
    """Two neighbours in the other order, where one is there for what it does, not for what it returns."""
    after = place.following()
    if isinstance(after, SIMPLE) and any(isinstance(node, ast.Expr) for node in (place.node, after)):
        yield [after, place.node]


@on(ast.AugAssign)
def assigned_instead(place: Place) -> Iterator[New]:
    yield ast.Assign([place.node.target], place.node.value)


@on(ast.With)
def without_context(place: Place) -> Iterator[New]:
    yield ast.If(ast.Constant(True), place.node.body, [])


@on(ast.Break, ast.Continue)
def other_jump(place: Place) -> Iterator[New]:
    yield ast.Continue() if isinstance(place.node, ast.Break) else ast.Break()


@on(ast.expr)
def other_condition(place: Place) -> Iterator[New]:
    """Always, never, and the other way round."""
    if place.field == "test" or (place.field == "ifs" and isinstance(place.parent, ast.comprehension)):
        yield ast.Constant(True)
        yield ast.Constant(False)
        if not isinstance(place.node, ast.Compare):  # another comparison says that already
            yield ast.UnaryOp(ast.Not(), place.node)


@on(ast.expr)
def other_turns(place: Place) -> Iterator[New]:
    """A loop that runs once, once less, without the first turn, or backwards."""
    if place.field == "iter":
        turns = ast.Call(ast.Name("list", ast.Load()), [place.node], [])
        parts = [_part(None, 1), _part(None, -1)]
        if not getattr(place.parent.target, "id", "").startswith("_"):  # else one turn is like another
            parts += [_part(1, None), ast.Slice(step=written(-1))]
        yield from (ast.Subscript(turns, part, ast.Load()) for part in parts)


def _part(lower: int | None, upper: int | None) -> ast.Slice:
    lower, upper = (None if bound is None else written(bound) for bound in (lower, upper))
    return ast.Slice(lower, upper)


@on(ast.Return)
def other_result(place: Place) -> Iterator[New]:
    value = place.node.value
    if value is not None:
        yield like(place.node, value=ast.UnaryOp(ast.USub(), value))
    if isinstance(value, ast.Tuple):
        yield from (like(place.node, value=item) for item in value.elts)
