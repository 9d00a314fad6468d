"""Which of a notebook's cells have to run for its exercises to be judged.

Most cells of a release only show something: a picture, a table, a review question. They earn nothing, and
drawing takes longer than judging. So the release's own cells run only when something that runs later needs a
name they bind or an object they change. Answers and learners' own cells always run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from grader.grading.align import EXTRA, role

_IDENTIFIER = re.compile(r"[^\W\d]\w*")


def live_cells(notebook: NotebookNode) -> list[bool]:
    """Say for each cell of an aligned notebook whether it must run (test cells never: they are judged)."""
    needed: set[str] = set()
    live = [False] * len(notebook.cells)
    for at in reversed(range(len(notebook.cells))):
        cell = notebook.cells[at]
        if cell.cell_type != "code" or role(cell) == "test":
            continue
        learners = role(cell) == "answer" or cell.metadata.get(EXTRA)
        live[at] = bool(learners or _touches(cell.source, needed))
        if live[at]:
            needed.update(_IDENTIFIER.findall(cell.source))  # more than it loads, never less
    return live


def _touches(source: str, needed: set[str]) -> bool:
    """Say whether a released cell may give a needed name another meaning."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a magic, say: let it run
        return True
    return any(name == "*" or name in needed for node in ast.walk(tree) for name in _changed(node))


def _changed(node: ast.AST) -> Iterator[str]:
    """Yield the names that code binds, and those whose object it stores into or calls a method of."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        yield _base(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield _base(node.value.func) if isinstance(node.value.func, ast.Attribute) else ""


def _base(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
