"""Operators: one name taken for another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.authoring.mutants.names import SIBLINGS
from grader.authoring.mutants.places import New, Place
from grader.authoring.mutants.registry import is_module, is_self, like, on
from grader.authoring.mutants.scope import variables


@on(ast.Name, ast.Attribute)
def sibling(place: Place) -> Iterator[New]:
    """Another function, type or constant of the library: amin for amax."""
    node, field = place.node, "attr" if isinstance(place.node, ast.Attribute) else "id"
    own = is_self(node.value) if field == "attr" else node.id in variables(place.nearest(ast.FunctionDef))
    if isinstance(node.ctx, ast.Load) and not own:
        yield from (like(node, **{field: other}) for other in SIBLINGS.get(getattr(node, field), ()))


@on(ast.Attribute)
def other_attribute(place: Place) -> Iterator[New]:
    """Another attribute of the same object that this cell mentions: self.W_k for self.W_q."""
    node = place.node
    if not isinstance(node.ctx, ast.Load) or not isinstance(node.value, ast.Name) or is_module(node.value):
        return
    called = place.field == "func"
    scope = place.nearest(ast.ClassDef) if node.value.id == "self" else place.nearest(ast.FunctionDef)
    for other in _attributes(scope, node.value.id, called):
        yield like(node, attr=other)


def _attributes(scope: ast.AST, owner: str, called: bool) -> list[str]:
    """Return the attributes of `owner` that are used in `scope` the same way; of self, all of them."""
    calls = {id(node.func) for node in ast.walk(scope) if isinstance(node, ast.Call)}
    found = {
        node.attr: None
        for node in ast.walk(scope)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner
        if owner == "self" or (id(node) in calls) == called
    }
    return list(found)


@on(ast.Name)
def other_variable(place: Place) -> Iterator[New]:
    """Another parameter or variable of the same function that has a value by now."""
    function = place.nearest(ast.FunctionDef)
    known = variables(function, place.node.lineno)
    if isinstance(place.node.ctx, ast.Load) and place.node.id in known:
        yield from (ast.Name(other, ast.Load()) for other in known)


@on(ast.Attribute)
def attribute_dropped(place: Place) -> Iterator[New]:
    if place.node.attr in ("T", "mT", "values", "indices", "data") and place.field != "func":
        yield place.node.value
