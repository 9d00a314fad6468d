"""The part of a notebook that one name needs: a slice of its top-level statements.

Names are resolved as Python itself resolves them (by `symtable`), so a local variable called `x` does not
pull in an experiment that defines a global `x`.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

from transformer_lab.language import _


class Unreadable(Exception):
    """A notebook cannot be used; `told` says why, in a sentence that names the chapter."""

    def __init__(self, sentence: str, **values: object):
        super().__init__(sentence)
        self._sentence, self._values = sentence, values

    def told(self, chapter: str) -> str:
        return self._sentence.format(chapter=chapter, **self._values)


@dataclass(frozen=True)
class Cell:
    """A code cell: its source, the exercise it answers ("4.2", "" for none), its number among code cells."""

    source: str
    answers: str
    number: int


@dataclass
class Statement:
    """One top-level statement: the global names it binds and those it refers to."""

    cell: Cell
    node: ast.stmt
    binds: set[str]
    uses: set[str]
    wanted: bool = field(default=False)


def pick(cells: list[Cell], name: str, exercise: str, filename: str) -> list[tuple[int, str, CodeType]]:
    """Return (cell number, cell source, code) of what `name` needs, in the notebook's order.

    A name bound in several places is taken from those up to the answer cell; what comes after it counts only
    for names that nothing before binds. Cells that do not compile are left out, except the answer cell.
    Raises Unreadable when the answer cell does not compile.
    """
    statements = [statement for cell in cells for statement in _statements(cell, exercise)]
    last = max((cell.number for cell in cells if cell.answers == exercise), default=len(cells))
    _mark(statements, name, last)
    return list(_compiled(statements, filename))


def _statements(cell: Cell, exercise: str) -> list[Statement]:
    try:
        return [Statement(cell, node, binds(node), uses(node)) for node in _parsed(cell.source)]
    except (SyntaxError, ValueError, RecursionError) as error:
        if cell.answers == exercise:
            line = error.lineno if isinstance(error, SyntaxError) else 1
            sentence = _("code cell {number}, line {line} is not valid Python in {chapter}")
            raise Unreadable(sentence, number=cell.number, line=line) from error
        return []


def _parsed(source: str) -> list[ast.stmt]:
    """Return a cell's statements; its magics (%matplotlib, !pip) become calls, which nothing will pick."""
    try:
        return ast.parse(source).body
    except SyntaxError:
        try:
            from IPython.core.inputtransformer2 import TransformerManager
        except ImportError:  # a plain script without IPython: a cell with magics stays a SyntaxError
            raise SyntaxError("not plain Python") from None
        return ast.parse(TransformerManager().transform_cell(source)).body


def _mark(statements: list[Statement], name: str, last: int) -> None:
    """Mark what binds `name`, and what these refer to, and so on."""
    open_names, done = [name], set()
    while open_names:
        current = open_names.pop()
        if current in done:
            continue
        done.add(current)
        binding = [s for s in statements if current in s.binds or "*" in s.binds]
        early = [s for s in binding if s.cell.number <= last and current in s.binds]
        for statement in early or binding:
            statement.wanted = True
            open_names += statement.uses
    for statement in statements:
        statement.wanted |= "*" in statement.binds and statement.cell.number <= last


def _compiled(statements: list[Statement], filename: str) -> Iterator[tuple[int, str, CodeType]]:
    """Yield one code object for each cell that has wanted statements; line numbers stay the cell's."""
    numbers = sorted({s.cell.number for s in statements if s.wanted})
    for number in numbers:
        group = [s for s in statements if s.wanted and s.cell.number == number]
        tree = ast.Module([s.node for s in group], type_ignores=[])
        label = f"<{filename}, code cell {number}>"
        yield number, group[0].cell.source, compile(tree, label, "exec")


def binds(node: ast.stmt) -> set[str]:
    """Return the global names that a top-level statement binds or changes; "*" for an import of everything.

    `Attention.forward = …` and `table[0] = …` change what `Attention` and `table` name.
    """
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            found |= _inner_binds(child)
    for child in _own_expressions(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, (ast.Store, ast.Del)):
            found.add(child.id)
        elif isinstance(child, (ast.Attribute, ast.Subscript)) and isinstance(child.ctx, ast.Store):
            found.add(_base(child))
    return found - {""}


def _inner_binds(node: ast.AST) -> set[str]:
    if isinstance(node, ast.stmt):
        return binds(node)
    return set().union(*(binds(child) for child in node.body))


def _own_expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without those of statements and functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case, ast.Lambda)):
            continue
        if isinstance(child, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        yield child
        yield from _own_expressions(child)


def _base(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def uses(node: ast.stmt) -> set[str]:
    """Return the global names that a statement refers to, inside its functions and classes too."""
    found: set[str] = set()
    tables = [symtable.symtable(ast.unparse(node), "<cell>", "exec")]
    while tables:
        table = tables.pop()
        outermost = table.get_type() == "module"
        found |= {
            s.get_name() for s in table.get_symbols() if s.is_referenced() and (outermost or s.is_global())
        }
        tables += table.get_children()
    return found
