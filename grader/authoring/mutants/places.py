"""Where a cell can be changed, the change made, and a name for it that holds no line number."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grader.authoring.lesson import BEGIN, END

Step = tuple[str, int | None]  # a field of a node and, where it holds a list, the place in it
New = ast.AST | list[ast.stmt]  # what stands there instead; statements take the place of as many as they are

ARROW = " → "
HEADER = (ast.If, ast.For, ast.While, ast.With, ast.FunctionDef, ast.ClassDef)
# What is large enough to be recognised when it is read alone.
READABLE = (ast.stmt, ast.Call, ast.BinOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.IfExp, ast.Lambda)
READABLE += (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp, ast.List, ast.Dict)


@dataclass(frozen=True)
class Place:
    """A node of a cell and the way to it. `parents` begin with the whole cell; `region` may be changed."""

    node: ast.AST
    steps: tuple[Step, ...]
    parents: tuple[ast.AST, ...]
    region: frozenset[int]

    @property
    def parent(self) -> ast.AST:
        return self.parents[-1]

    @property
    def field(self) -> str:
        """The field of the parent in which the node stands."""
        return self.steps[-1][0]

    def inside(self, kind: type | tuple[type, ...]) -> bool:
        return any(isinstance(parent, kind) for parent in self.parents)

    def nearest(self, kind: type | tuple[type, ...]) -> Any:
        """The innermost node around this one of that kind, the whole cell when there is none."""
        return next((p for p in reversed(self.parents) if isinstance(p, kind)), self.parents[0])

    def following(self) -> ast.AST | None:
        """The next statement of the same block, if it may be changed as well."""
        name, index = self.steps[-1]
        after = getattr(self.parent, name)[index + 1 : index + 2]
        return after[0] if after and _within(after[0], self.region) else None


@dataclass(frozen=True)
class Mutant:
    """A changed cell. `change` names it: what stood there, an arrow, what stands there now.

    wide: the same, told by the whole statement, for a change whose short name is another's as well.
    """

    change: str
    wide: str
    tree: ast.Module


def solution_region(source: str) -> frozenset[int]:
    """Return the numbers (from 1) of the lines between solution markers, without the markers."""
    lines, inside = set(), False
    for number, text in enumerate(source.split("\n"), 1):
        if text.strip() in (BEGIN, END):
            inside = text.strip() == BEGIN
        elif inside:
            lines.add(number)
    return frozenset(lines)


def places(source: str) -> Iterator[Place]:
    """Yield the nodes of a cell that lie wholly between solution markers, in the order of the text."""
    yield from _below(ast.parse(source), (), (), solution_region(source))


def _within(node: ast.AST, region: frozenset[int]) -> bool:
    return hasattr(node, "lineno") and region.issuperset(range(node.lineno, node.end_lineno + 1))


def _below(node: ast.AST, steps: tuple, parents: tuple, region: frozenset[int]) -> Iterator[Place]:
    if _within(node, region):
        yield Place(node, steps, parents, region)
    for name, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST) and not _free_words(node, name):
                yield from _below(child, (*steps, (name, index)), (*parents, node), region)


def _free_words(parent: ast.AST, name: str) -> bool:
    """The words of a message are the learner's own; annotations and loaded modules decide nothing."""
    return isinstance(parent, ast.JoinedStr) or name in ("annotation", "returns", "cause", "msg")


def changed(place: Place, new: New) -> Mutant:
    """Return the cell with `new` in this place."""
    tree = copy.deepcopy(place.parents[0])
    _put(_at(tree, place.steps[:-1]), place.steps[-1], new)
    ast.fix_missing_locations(tree)
    statements = len(new) if isinstance(new, list) else 1
    names = []
    for kinds in (READABLE, ast.stmt):
        steps = place.steps[: _depth(place, kinds)]
        names.append(_text(place.parents[0], steps, statements) + ARROW + _text(tree, steps, statements))
    return Mutant(*names, tree)


def _put(parent: ast.AST, step: Step, new: New) -> None:
    name, index = step
    if index is None:
        setattr(parent, name, new)
    elif isinstance(new, list):
        getattr(parent, name)[index : index + len(new)] = copy.deepcopy(new)
    else:
        getattr(parent, name)[index] = new


def _at(tree: ast.AST, steps: tuple[Step, ...]) -> Any:
    for name, index in steps:
        value = getattr(tree, name)
        tree = value if index is None else value[index]
    return tree


def _depth(place: Place, kinds: type | tuple[type, ...]) -> int:
    """Return how many steps lead to the innermost node of these kinds that holds the change."""
    way = (*place.parents, place.node)
    return max(depth for depth, node in enumerate(way) if isinstance(node, kinds))


def _text(tree: ast.AST, steps: tuple[Step, ...], statements: int) -> str:
    """Return code as one line: of a block its first line alone, several statements with semicolons."""
    name, index = steps[-1]
    block = getattr(_at(tree, steps[:-1]), name)
    nodes = [block] if index is None else block[index : index + statements]
    return "; ".join(_one_line(node) for node in nodes)


def _one_line(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text.split("\n")[0] if isinstance(node, HEADER) else " ".join(text.split("\n"))
