"""Operators: calls and their arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.authoring.mutants.names import EITHER_ORDER, EXTRA
from grader.authoring.mutants.places import New, Place
from grader.authoring.mutants.registry import is_module, is_self, like, name_of, on, swapped, without, written


@on(ast.Call)
def argument_dropped(place: Place) -> Iterator[New]:
    for name in ("args", "keywords"):
        given = getattr(place.node, name)
        yield from (like(place.node, **{name: without(given, index)}) for index in range(len(given)))


@on(ast.Call)
def arguments_swapped(place: Place) -> Iterator[New]:
    if name_of(place.node.func) not in EITHER_ORDER:
        for index in range(len(place.node.args) - 1):
            yield like(place.node, args=swapped(place.node.args, index))


@on(ast.Call)
def call_dropped(place: Place) -> Iterator[New]:
    """f(x) becomes x, and x.f() becomes x."""
    function = place.node.func
    if isinstance(function, ast.Attribute) and not is_module(function.value) and not is_self(function.value):
        yield function.value
    elif place.node.args and not isinstance(place.node.args[0], (ast.Starred, ast.GeneratorExp)):
        yield place.node.args[0]


@on(ast.Call)
def keyword_added(place: Place) -> Iterator[New]:
    """What a learner may think is the default: a biased variance, no bias, another diagonal."""
    given = {keyword.arg for keyword in place.node.keywords}
    for name, value in EXTRA.get(name_of(place.node.func), ()):
        if name not in given:
            yield like(place.node, keywords=[*place.node.keywords, ast.keyword(name, written(value))])


@on(ast.Call)
def plain_list_of_modules(place: Place) -> Iterator[New]:
    if name_of(place.node.func) == "ModuleList":
        yield like(place.node, func=ast.Name("list", ast.Load()))
