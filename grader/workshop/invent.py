"""Invent submissions: a learner's notebook with answers put into its TODO cells."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode

from grader.authoring.build import ROOT
from grader.authoring.lesson import BEGIN, END, Cell, read_lesson, without_solutions
from grader.errors import UserMistake
from grader.exercises import of_chapter
from grader.exercises.model import Exercise, Wrong


def released(chapter: str, root: Path = ROOT) -> NotebookNode:
    """Return the learner's notebook of a chapter.

    Raises UserMistake when it was not built.
    """
    path = root / "course" / "en" / chapter / f"{chapter}.ipynb"
    if not path.is_file():
        raise UserMistake(f"{path} is missing. Run `make build` first.")
    return nbformat.read(path, as_version=4)


def todo_cells(chapter: str, root: Path = ROOT) -> dict[str, Cell]:
    """Return {exercise: the lesson's TODO cell}."""
    cells = read_lesson(root / "solutions" / chapter / f"{chapter}.py")
    return {str(cell.todo): cell for cell in cells if cell.todo}


def solved(cell: Cell, only: int | None = None) -> str:
    """Return a TODO cell with its solutions in place: all of them, or the first `only` and stubs after."""
    if only is None:
        return "\n".join(line for line in cell.source.split("\n") if line.strip() not in (BEGIN, END))
    kept, regions = [], 0
    for line in cell.source.split("\n"):
        regions += line.strip() == BEGIN
        solving = regions <= only
        kept.append("" if solving and line.strip() in (BEGIN, END) else line)
    return without_solutions("\n".join(kept))


def fill(notebook: NotebookNode, answers: dict[str, str]) -> NotebookNode:
    """Put answers (exercise → source) into a learner's notebook, in place, and return it."""
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        exercise = grade_id.removeprefix("todo-").replace("-", ".")
        if grade_id.startswith("todo-") and exercise in answers:
            cell.source = answers[exercise]
    return notebook


def perfect(chapter: str, root: Path = ROOT) -> dict[str, str]:
    """Return every exercise's solution."""
    return {exercise: solved(cell) for exercise, cell in todo_cells(chapter, root).items()}


def half(chapter: str, root: Path = ROOT) -> dict[str, str]:
    """Return the first half of the exercises; the first that has several TODOs is left half-way."""
    cells = todo_cells(chapter, root)
    answers = {}
    for exercise in list(cells)[: max(1, len(cells) // 2)]:
        regions = cells[exercise].source.count(BEGIN)
        answers[exercise] = solved(cells[exercise], regions - 1 if regions > 1 else None)
    return answers


def mistaken(chapter: str, which: int = 0) -> dict[str, str]:
    """Return an answer with a known misconception for every exercise that has one which a cell can hold.

    which: the number of the misconception; those that only exist as objects are passed over.
    """
    answers = {}
    for exercise in of_chapter(chapter):
        wrongs = exercise.misconceptions
        for wrong in (wrongs[(which + step) % len(wrongs)] for step in range(len(wrongs))):
            with contextlib.suppress(UserMistake):  # made by a factory: it has no source of its own
                answers[exercise.id] = as_source(exercise, wrong)
                break
    return answers


def as_source(exercise: Exercise, wrong: Wrong) -> str:
    """Return a cell that defines the exercise's symbol with a misconception, needing no other file."""
    return standalone(wrong.symbol, exercise.symbol)


def standalone(symbol: Any, name: str) -> str:
    """Return source that defines `symbol`, and all it needs of its module, under `name`.

    Raises UserMistake when it is not a class or function at the top of a module.
    """
    module = sys.modules[symbol.__module__]
    tree = ast.parse(inspect.getsource(module))
    defined = {key: node for node in tree.body for key in _names(node)}
    own = getattr(symbol, "__name__", "")
    if own not in defined:
        raise UserMistake(f"{own or symbol!r} is not defined at the top of {module.__name__}")
    needed = _needed(own, defined)
    kept = [node for node in tree.body if _is_public_import(node) or needed & set(_names(node))]
    return "\n\n".join([*(ast.unparse(node) for node in kept), f"{name} = {own}"])


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (t.id for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _is_public_import(node: ast.stmt) -> bool:
    """Imports a learner could write; __future__ must stand first in a file and is not needed."""
    if isinstance(node, ast.ImportFrom):
        return not str(node.module).startswith(("grader", "__future__", "transformer_lab.checking"))
    return isinstance(node, ast.Import)


def _needed(name: str, defined: dict[str, ast.stmt]) -> set[str]:
    found, waiting = set(), [name]
    while waiting:
        current = waiting.pop()
        if current in defined and current not in found:
            found.add(current)
            waiting += [node.id for node in ast.walk(defined[current]) if isinstance(node, ast.Name)]
    return found


def submit(root: Path, student: str, chapter: str, notebook: NotebookNode) -> Path:
    """Write a notebook as a student's submission below the course folder `root` and return its path."""
    path = root / "submitted" / student / chapter / f"{chapter}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path
