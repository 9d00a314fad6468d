"""How one student's mark came about, in lines of text; and the page for an appeal, recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry

from grader.classroom.course import Course
from grader.classroom.records import Records
from grader.classroom.regrade import once_more
from grader.classroom.wording import rows_in_words, why
from grader.errors import UnknownName
from grader.exercises import get
from grader.grading import intake
from grader.grading.align import EXTRA, role

_CODE_LINES = 200  # of one answer that are shown


def explain(course: Course, chapter: str, student: str) -> str:
    """Return what is recorded about a student's mark, and what the gradebook makes of it.

    Raises UnknownName when the student has no recorded mark in the chapter.
    """
    record = Records(course.root, chapter).latest().get(student)
    if record is None:
        raise UnknownName(f"There is no recorded mark of {student!r} in {chapter}.")
    lines = [*_conditions(course, chapter, record), *_in_book(course, chapter, student)]
    for grade_id, report in record["reports"].items():
        lines += ["", *_exercise(report, record["marks"][grade_id], record["points"][grade_id])]
    return _page([*lines, *_notes(record["notes"])])


def appeal(course: Course, chapter: str, student: str, unprotected: bool = False) -> str:
    """Return one page for an appeal: the same, recomputed now, with what failed on which input.

    Raises what `regrade.once_more` does.
    """
    record, outcome = once_more(course, chapter, student, unprotected)
    lines = [*_conditions(course, chapter, record), *_in_book(course, chapter, student)]
    lines.append(f"  recomputed  {_agreement(record, outcome.marks)}")
    code = _answers(outcome.notebook)
    for grade_id, report in outcome.reports.items():
        mark, points = outcome.marks[grade_id], outcome.points[grade_id]
        lines += ["", *_exercise(report, mark, points, outcome.evidence.get(grade_id, []))]
        if mark < points:
            lines += [line for todo in _todos(report["exercise"]) for line in code.get(todo, [])]
    return _page([*lines, *_notes(outcome.notes)])


def _page(lines: list[str]) -> str:
    return "\n".join(_visible(line) for line in lines)


def _notes(notes: list[str]) -> list[str]:
    return ["", "Notes:", *(f"  {note}" for note in notes)] if notes else []


def _agreement(record: dict[str, Any], marks: dict[str, float]) -> str:
    other = [f"{n}: {m:g} was recorded" for n, m in record["marks"].items() if marks.get(n) != m]
    where = "a jail" if record["isolated"] else "NO jail"
    text = f"just now, in {where}, from what was graded and its seed: "
    return text + ("; ".join(other) if other else "every mark is the same")


def _conditions(course: Course, chapter: str, record: dict[str, Any]) -> Iterator[str]:
    yield f"{record['student']}, {chapter}: {record['score']:g} of {record['max']:g} by the grader"
    yield f"  handed in   {record['timestamp'] or 'without a time'}, {record['late_seconds']:g} s late"
    yield f"  submission  sha256 {record['submission']}{_is_it_still(course, chapter, record)}"
    yield f"  exercises   sha256 {record['exercises']}"
    jail = "in a jail" if record["isolated"] else "WITHOUT isolation"
    yield f"  run         {record['run']}, seed {record['seed']}, {jail}"
    versions = (f"{name} {value}" for name, value in sorted(record["versions"].items()))
    yield f"  versions    {', '.join(versions)}"


def _is_it_still(course: Course, chapter: str, record: dict[str, Any]) -> str:
    if record["student"] not in intake.students(course.submitted(), chapter):
        return " (no longer in the folder)"
    release = course.release(chapter)
    now = intake.read_submission(course.submitted(), record["student"], chapter, release).sha256
    return "" if now == record["submission"] else " (another one lies in the folder now)"


def _in_book(course: Course, chapter: str, student: str) -> Iterator[str]:
    with Gradebook(course.directory.db_url, course.directory.course_id) as book:
        try:
            mine = book.find_submission_notebook(chapter, chapter, student)
        except MissingEntry:
            yield "  gradebook   has no mark of it"
            return
        for grade in sorted(mine.grades, key=lambda one: one.name):
            if grade.manual_score is not None:
                was = grade.auto_score or 0.0
                yield f"  by hand     {grade.name}: {grade.manual_score:g} instead of {was:g}"
            if grade.extra_credit:
                yield f"  by hand     {grade.name}: {grade.extra_credit:g} extra"
        for comment in sorted(mine.comments, key=lambda one: one.name):
            if comment.manual_comment:
                yield f"  comment     {comment.name}: {' '.join(comment.manual_comment.split())}"
        penalty = mine.late_submission_penalty or 0.0
        yield f"  penalty     {penalty:g}"
        yield f"  gradebook   {max(mine.score - penalty, 0):g} of {mine.max_score:g}"


def _exercise(
    report: dict[str, Any], mark: float, points: float, evidence: list[dict[str, Any]] | None = None
) -> Iterator[str]:
    yield f"{report['exercise']} {report['symbol']}: {mark:g} of {points:g}"
    inputs = {one["row"]: one for one in evidence or []}
    for row in rows_in_words(report, points):
        worth = "    ?" if row.share is None else f"{row.share:5.2f}"
        yield f"  {worth}  {row.status:6}  {row.says}"
        if row.sentence:
            yield f"                 {row.sentence}"
        if row.name in inputs:
            yield from _failure(inputs[row.name])
    if report["diagnosis"]:
        yield f"  recognised as {report['diagnosis']!r}: {why(report)}"
    if report["stopped"]:
        yield f"  stopped: {report['stopped']}"


def _failure(one: dict[str, Any]) -> Iterator[str]:
    yield f"                 case {one['case']} of {one['of']}, by the probe `{one['probe']}`:"
    for what in ("given", "expected", "seen"):
        for name, text in one[what].items():
            yield f"                   {what:8}  {name + ' = ' if name else ''}{text}"


def _todos(exercise: str) -> tuple[str, ...]:
    try:
        return get(exercise).todos
    except UnknownName:
        return (exercise,)


def _answers(notebook: str) -> dict[str, list[str]]:
    """Return {TODO number: the lines of its answer cell, as they were graded}."""
    found = {}
    for cell in nbformat.reads(notebook, as_version=4).cells:
        if role(cell) == "answer" and not cell.metadata.get(EXTRA):
            name = cell.metadata.nbgrader.grade_id
            lines = cell.source.split("\n")[:_CODE_LINES]
            numbered = [f"    {number:3}  {line}" for number, line in enumerate(lines, 1)]
            found[name.removeprefix("todo-").replace("-", ".")] = [f"  handed in as {name}:", *numbered]
    return found


def _visible(line: str) -> str:
    """A learner's words must not steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
