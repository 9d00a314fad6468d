"""All mutants of a cell, each under a name of its own."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from grader.authoring.mutants import statements  # noqa: F401  (it registers its operators)
from grader.authoring.mutants.operators import OPERATORS
from grader.authoring.mutants.places import Mutant, Place, changed, places


def mutants(source: str) -> list[Mutant]:
    """Return every small change of what stands between a cell's solution markers, in the order of the text.

    A change that gives the cell itself, or what an earlier one gave, is left out. The second change of the
    same name ends in " #2".
    """
    seen, names, made = {ast.unparse(ast.parse(source))}, Counter(), []
    for mutant in _all(source):
        text = ast.unparse(mutant.tree)
        if text not in seen:
            seen.add(text)
            names[mutant.change] += 1
            count = names[mutant.change]
            made.append(mutant if count == 1 else Mutant(f"{mutant.change} #{count}", mutant.tree))
    return made


def _all(source: str) -> Iterator[Mutant]:
    for place in places(source):
        for kinds, operator in OPERATORS:
            if isinstance(place.node, kinds) and not _message(place):
                yield from (changed(place, new) for new in operator(place))


def _message(place: Place) -> bool:
    """The words of an exception are the learner's own; which exception it is, and when, is not."""
    return place.inside(ast.Raise) and ("args", 0) in place.steps
