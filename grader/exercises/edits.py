"""A mistake as what a learner would have typed: an edit of a right answer, or a cell of its own.

    edit("no scale", "The scores are not divided …", "scores / math.sqrt(d)", "scores")
    whole("one layer", "One layer makes all three …", OneLayer)

Right answers and whole mistakes are real code in the exercise's file; their text is read from there.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grader.errors import UserMistake


class BadEdit(UserMistake, ValueError):
    """An edit does not apply to the answer that it names, or gives no code; the author must mend it."""


@dataclass(frozen=True)
class Change:
    """A mistake made by replacing text in `of` (the exercise's answer when None); see `edit`."""

    name: str
    says: str
    pairs: tuple[tuple[str, str], ...]
    of: Any = None


@dataclass(frozen=True)
class Whole:
    """A mistake written out in full; `helpers` are what it calls, and stand before it in the cell."""

    name: str
    says: str
    symbol: Any
    helpers: tuple[Any, ...] = ()


def edit(name: str, says: str, *texts: str, of: Any = None) -> Change:
    """Return the mistake that replaces each old text by the new one that follows it: old, new, old, new, …

    Every old text must stand exactly once in the answer (in `of`, when another right answer is meant).
    """
    if not texts or len(texts) % 2:
        raise BadEdit(f"mistake {name!r}: after the sentence, old and new text alternate")
    return Change(name, says, tuple(zip(texts[::2], texts[1::2], strict=True)), of)


def whole(name: str, says: str, symbol: Any, *helpers: Any) -> Whole:
    """Return the mistake that is the class or function `symbol`, with what it calls from its own file."""
    return Whole(name, says, symbol, helpers)


def source_of(symbol: Any) -> str:
    """Return the text of a class or function as it stands in its file, at the left margin."""
    return textwrap.dedent(inspect.getsource(symbol)).rstrip() + "\n"


def named(symbol: Any, name: str) -> str:
    """Return the text of a class or function, called `name` instead of by its own name."""
    return re.sub(rf"\b{re.escape(symbol.__name__)}\b", name, source_of(symbol))


def as_cell(mistake: Change | Whole, answer: Any, symbol: str, where: str) -> str:
    """Return the cell that defines `symbol` with the mistake in it. Raises BadEdit."""
    if isinstance(mistake, Whole):
        return "\n\n".join(
            [*(source_of(helper) for helper in mistake.helpers), named(mistake.symbol, symbol)]
        )
    text = named(answer if mistake.of is None else mistake.of, symbol)
    for old, new in mistake.pairs:
        if (count := text.count(old)) != 1:
            raise BadEdit(
                f"{where}: the text to replace stands {count} times in the answer, not once: {old!r}"
            )
        text = text.replace(old, new)
    return text


def names_beside(symbol: Any) -> dict[str, Any]:
    """Return the names that are known in the file of a class or function."""
    return vars(sys.modules[symbol.__module__])


def defined_by(cell: str, symbol: str, known: Mapping[str, Any], where: str) -> Any:
    """Run a cell where the names in `known` are known and return what it defines. Raises BadEdit."""
    filename = f"<{where}>"
    names = dict(known) | {"__name__": "__main__"}  # as in a notebook
    linecache.cache[filename] = (len(cell), None, cell.splitlines(True), filename)
    try:
        exec(compile(cell, filename, "exec"), names)
    except Exception as error:
        raise BadEdit(f"{where}: its cell does not run: {type(error).__name__}: {error}\n{cell}") from error
    return names[symbol]
