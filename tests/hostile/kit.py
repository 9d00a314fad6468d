"""What the fixtures are made of: the released notebook, right answers, ways to put things into one."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from grader.authoring.lesson import BEGIN, END, read_lesson
from grader.grading.align import role

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "02_positional_encoding"

Files = dict[str, bytes]
Marks = dict[str, float]


@cache
def release_bytes() -> bytes:
    return (ROOT / "course" / "en" / CHAPTER / f"{CHAPTER}.ipynb").read_bytes()


def release() -> nbformat.NotebookNode:
    return nbformat.reads(release_bytes().decode(), as_version=4)


@cache
def right_answers() -> dict[str, str]:
    """{exercise: source of its cell with the lesson's solution}."""
    cells = read_lesson(ROOT / "solutions" / CHAPTER / f"{CHAPTER}.py")
    return {
        c.todo: "\n".join(x for x in c.source.split("\n") if x.strip() not in (BEGIN, END))
        for c in cells
        if c.todo
    }


@cache
def points() -> Marks:
    """{exercise: what it is worth}."""
    return {exercise_of(c): float(c.metadata.nbgrader.points) for c in release().cells if role(c) == "test"}


def exercise_of(cell: Any) -> str:
    """todo-2-1 and test-2-1 belong to 2.1."""
    return cell.metadata.nbgrader.grade_id.split("-", 1)[1].replace("-", ".")


def notebook(answers: dict[str, str] | None = None, **more: str) -> nbformat.NotebookNode:
    """A submission with these answers: right ones by default, stubs for {}.

    more: `first`, code of a cell at the top; `before_2_5` and `after_2_5`, cells of their own around an
    answer; `last`, at the end.
    """
    book = release()
    given = right_answers() if answers is None else answers
    cells = []
    for cell in book.cells:
        number = exercise_of(cell) if role(cell) == "answer" else None
        if number in given:
            cell.source = given[number]
        around = number.replace(".", "_") if number else None
        cells += [*_own(more.get(f"before_{around}")), cell, *_own(more.get(f"after_{around}"))]
    book.cells = _own(more.get("first")) + cells + _own(more.get("last"))
    return book


def _own(source: str | None) -> list:
    return [nbformat.v4.new_code_cell(source)] if source is not None else []


def changed(**new: str) -> dict[str, str]:
    """Right answers, but for those given as `_2_5="..."`."""
    return right_answers() | {name[1:].replace("_", "."): source for name, source in new.items()}


def data(book: Any) -> bytes:
    return json.dumps(copy.deepcopy(dict(book)), ensure_ascii=False, indent=1).encode()


@dataclass(frozen=True)
class Case:
    """One submission: its student's id, its files, the marks it must get, and what else to look at.

    marks: {exercise: points}; an exercise that is not named gets full points.
    note: a piece of text that the instructor's notes on it must hold.
    group: which part of the corpus it belongs to. links: {name: where it leads}. folders: empty ones.
    """

    student: str
    files: Files
    marks: Marks = field(default_factory=dict)
    note: str = ""
    group: str = ""
    links: dict[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    @property
    def expected(self) -> Marks:
        return points() | self.marks

    def write(self, submitted: Path) -> None:
        folder = submitted / self.student / CHAPTER
        folder.mkdir(parents=True)
        for name in self.folders:
            (folder / name).mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        for name, target in self.links.items():
            (folder / name).symlink_to(target)


EXERCISES = tuple(points())
NOTHING: Marks = dict.fromkeys(EXERCISES, 0.0)


def case(student: str, book: Any, marks: Marks | None = None, **more: Any) -> Case:
    content = book if isinstance(book, bytes) else data(book)
    return Case(student, {f"{CHAPTER}.ipynb": content}, marks or {}, **more)
