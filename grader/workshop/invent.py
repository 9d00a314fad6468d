"""Invent submissions: a learner's notebook with answers put into its TODO cells."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from grader.authoring.build import ROOT
from grader.authoring.lesson import BEGIN, END, Cell, read_lesson, without_solutions
from grader.errors import UserMistake
from grader.exercises import of_chapter


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
    """Return for every exercise its known mistake number `which`, counted around."""
    return {
        exercise.id: exercise.misconceptions[which % len(exercise.misconceptions)].source
        for exercise in of_chapter(chapter)
    }


def submit(root: Path, student: str, chapter: str, notebook: NotebookNode) -> Path:
    """Write a notebook as a student's submission below the course folder `root` and return its path."""
    path = root / "submitted" / student / chapter / f"{chapter}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path
