"""All mutants of a cell, each under a name of its own."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from grader.authoring.mutants import arithmetic, calls, constants, indices, statements, variables
from grader.authoring.mutants.places import Mutant, Place, changed, places
from grader.authoring.mutants.registry import OPERATORS

REGISTERED = (arithmetic, calls, constants, indices, statements, variables)  # by being imported


def mutants(source: str) -> list[Mutant]:
    """Return every small change of what stands between a cell's solution markers, in the order of the text.

    A change that gives the cell itself, or what an earlier one gave, is left out. A name that two changes
    would share is told by the whole statement; where that is the same as well, the second ends in " #2".
    """
    made = list(_different(source))
    shared = Counter(mutant.change for mutant in made)
    names = [mutant.wide if shared[mutant.change] > 1 else mutant.change for mutant in made]
    return [replace(m, change=name) for m, name in zip(made, _numbered(names), strict=True)]


def _numbered(names: list[str]) -> Iterator[str]:
    count = Counter()
    for name in names:
        count[name] += 1
        yield name if count[name] == 1 else f"{name} #{count[name]}"


def _different(source: str) -> Iterator[Mutant]:
    seen = {ast.unparse(ast.parse(source))}
    for mutant in _all(source):
        text = ast.unparse(mutant.tree)
        if text not in seen:
            seen.add(text)
            yield mutant


def _all(source: str) -> Iterator[Mutant]:
    for place in places(source):
        for kinds, operator in OPERATORS:
            if isinstance(place.node, kinds) and not _message(place):
                yield from (changed(place, new) for new in operator(place))


def _message(place: Place) -> bool:
    """The words of an exception are the learner's own; which exception it is, and when, is not."""
    named = isinstance(place.node, ast.Name) and place.field in ("func", "exc")
    return place.inside(ast.Raise) and not named
