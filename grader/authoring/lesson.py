"""Read a lesson: a py:percent file with `todo="2.1"` and `test="2.1" points=8` on its special cells.

    # %% todo="2.1"            the learner's cell; solutions stand between BEGIN and END SOLUTION lines
    # %% test="2.1" points=8   the visible check and the hidden grade of that exercise
    # %% setup=true            imports and definitions that the TODO cells rely on

Everything wrong with a lesson is reported with its file and line, all faults at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext

from grader.errors import UserMistake

if TYPE_CHECKING:  # torch is not imported for nbgrader's own commands, which read lessons' markers
    from grader.exercises.model import Exercise

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
HIDDEN_BEGIN, HIDDEN_END = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
TODO = re.compile(r"#\s*TODO (\d+\.\d+)\b")
MARKER = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS)")


class LessonError(UserMistake, ValueError):
    """A lesson cannot be built; the text lists every fault as `file:line: what is wrong`."""


@dataclass
class Cell:
    """One cell. `line` is the number of its first source line in the lesson file."""

    kind: str  # "code" or "markdown"
    source: str
    line: int
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def todo(self) -> str | None:
        return self.metadata.get("todo")

    @property
    def test(self) -> str | None:
        return self.metadata.get("test")

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number in the file, text)."""
        yield from enumerate(self.source.split("\n"), self.line)


def read_lesson(path: Path) -> list[Cell]:
    """Return the cells of a lesson.

    Raises LessonError when the file is not a py:percent script.
    """
    text = path.read_text(encoding="utf-8")
    starts = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("# %%")]
    notebook = jupytext.reads(text, fmt="py:percent")
    if not starts or len(starts) != len(notebook.cells):
        where = f"{path}:{starts[0] if starts else 1}"
        raise LessonError(f"{where}: every cell must begin with a line '# %%' (no text before the first)")
    return [
        Cell(cell.cell_type, cell.source, start + 1, dict(cell.metadata))
        for start, cell in zip(starts, notebook.cells, strict=True)
    ]


def check_lesson(path: Path, cells: list[Cell], exercises: tuple[Exercise, ...]) -> None:
    """Raise LessonError, listing file and line of every fault, unless the lesson can be built."""
    faults = [
        *(fault for cell in cells for fault in _marker_faults(cell)),
        *_id_faults(cells, {exercise.id: exercise for exercise in exercises}),
        *_todo_faults(cells, {exercise.id: exercise for exercise in exercises}),
        *_test_faults(cells, {exercise.id: exercise for exercise in exercises}),
    ]
    if faults:
        raise LessonError("\n".join(f"{path}:{line}: {text}" for line, text in sorted(faults)))


Fault = tuple[int, str]


def _marker_faults(cell: Cell) -> Iterator[Fault]:
    """Markers stand alone on their line, opened once, closed once, and only where they belong."""
    opened: tuple[int, str] | None = None
    found = False
    for line, text in cell.lines():
        marker = MARKER.search(text)
        if not marker:
            continue
        found = True
        edge, what = marker.groups()
        if text.strip() != f"### {edge} {what}":
            yield line, f"a marker stands alone on its line as '### {edge} {what}'"
        if edge == "BEGIN" and opened:
            yield line, f"nested marker: '{what}' opens inside the one opened at line {opened[0]}"
        elif edge == "END" and (not opened or opened[1] != what):
            yield line, f"'### END {what}' closes nothing"
        opened = (line, what) if edge == "BEGIN" else None
        if what == "SOLUTION" and not cell.todo:
            yield line, 'a solution outside a TODO cell; give the cell todo="…"'
        if what == "HIDDEN TESTS" and not cell.test:
            yield line, 'hidden tests outside a test cell; give the cell test="…" points=…'
    if opened:
        yield opened[0], f"'### BEGIN {opened[1]}' is never closed"
    if cell.todo and not found:
        yield cell.line, f"TODO cell {cell.todo} has no solution markers"


def _id_faults(cells: list[Cell], exercises: dict[str, Exercise]) -> Iterator[Fault]:
    for name in ("todo", "test"):
        first: dict[str, int] = {}
        for cell in (cell for cell in cells if name in cell.metadata):
            number = str(cell.metadata[name])
            if not isinstance(cell.metadata[name], str):
                yield cell.line, f'{name}={number} needs quotes: {name}="{number}"'
            elif not number:
                yield cell.line, f'{name}="" needs the number of an exercise'
            elif number in first:
                yield cell.line, f'{name}="{number}" is used twice (first at line {first[number]})'
            elif number not in exercises:
                yield (
                    cell.line,
                    f'{name}="{number}": grader/exercises has no exercise {number} in this chapter',
                )
            first.setdefault(number, cell.line)
        last = cells[-1].line if cells else 1
        for number in exercises:
            if number not in first:
                yield last, f'exercise {number} has no cell with {name}="{number}" in this lesson'


def _todo_faults(cells: list[Cell], exercises: dict[str, Exercise]) -> Iterator[Fault]:
    """Every solution follows a `# TODO` comment of its exercise, and every TODO has one solution."""
    for cell in (cell for cell in cells if cell.todo in exercises):
        wanted, seen, current = list(exercises[cell.todo].todos), [], None
        for line, text in cell.lines():
            comment = TODO.search(text)
            if comment:
                current = comment[1]
                if current not in wanted:
                    yield line, f"TODO {current} is not one of exercise {cell.todo} ({', '.join(wanted)})"
            if text.strip() == BEGIN:
                if current is None:
                    yield line, "a solution needs a comment '# TODO <number>: …' above it"
                seen.append(current)
        for number in (number for number in wanted if number not in seen):
            yield cell.line, f"TODO {number} of exercise {cell.todo} has no solution in this cell"


def _test_faults(cells: list[Cell], exercises: dict[str, Exercise]) -> Iterator[Fault]:
    for cell in (cell for cell in cells if cell.test in exercises):
        exercise = exercises[cell.test]
        call = f'("{exercise.id}", {exercise.symbol})'
        wanted = "\n".join(
            [f"check{call}", HIDDEN_BEGIN, "from grader import grade", f"grade{call}", HIDDEN_END]
        )
        if "\n".join(filter(None, cell.source.split("\n"))) != wanted:  # the formatter may add empty lines
            yield cell.line, f"the test cell of {exercise.id} must read:\n{wanted}"
        if cell.metadata.get("points") != exercise.points:
            points = cell.metadata.get("points")
            yield cell.line, f"points={points}, but exercise {exercise.id} is worth {exercise.points}"


def without_solutions(source: str) -> str:
    """Return a TODO cell as a learner gets it: each solution replaced by a stub that names its TODO."""
    kept: list[str] = []
    current, inside = None, False
    for text in source.split("\n"):
        comment = TODO.search(text)
        current = comment[1] if comment and not inside else current
        if text.strip() == BEGIN:
            indent = text[: len(text) - len(text.lstrip())]
            kept.append(f'{indent}raise NotImplementedError("TODO {current}")')
            inside = True
        elif text.strip() == END:
            inside = False
        elif not inside:
            kept.append(text)
    return "\n".join(kept)


def solution_lines(cells: list[Cell]) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of everything between solution markers."""
    for cell in cells:
        inside = False
        for line, text in cell.lines():
            if text.strip() in (BEGIN, END):
                inside = text.strip() == BEGIN
            elif inside:
                yield line, text.strip()
