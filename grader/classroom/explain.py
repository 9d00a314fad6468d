"""How one student's mark came about, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nbgrader.api import Gradebook, MissingEntry

from grader.classroom.course import Course
from grader.classroom.records import Records
from grader.errors import UnknownName
from grader.exercises import get
from grader.grading import intake


def explain(course: Course, chapter: str, student: str) -> str:
    """Return what is recorded about a student's mark, and what the gradebook makes of it.

    Raises UnknownName when the student has no recorded mark in the chapter.
    """
    record = Records(course.root, chapter).latest().get(student)
    if record is None:
        raise UnknownName(f"There is no recorded mark of {student!r} in {chapter}.")
    lines = [*_conditions(course, chapter, record), *_in_book(course, chapter, student)]
    for grade_id, report in record["reports"].items():
        lines += ["", *_exercise(grade_id, report, record)]
    if record["notes"]:
        lines += ["", "Notes:", *(f"  {note}" for note in record["notes"])]
    return "\n".join(_visible(line) for line in lines)


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
        penalty = mine.late_submission_penalty or 0.0
        yield f"  penalty     {penalty:g}"
        yield f"  gradebook   {max(mine.score - penalty, 0):g} of {mine.max_score:g}"


def _exercise(grade_id: str, report: dict[str, Any], record: dict[str, Any]) -> Iterator[str]:
    mark, points = record["marks"][grade_id], record["points"][grade_id]
    yield f"{report['exercise']} {report['symbol']}: {mark:g} of {points:g}"
    weights = _weights(report["exercise"])
    total = sum(weights.get(row["name"], 0.0) for row in report["rows"])
    for row in report["rows"]:
        share = points * weights[row["name"]] / total if total and row["name"] in weights else None
        worth = "    ?" if share is None else f"{share:5.2f}"
        yield f"  {worth}  {row['status']:6}  {row['name']}"
        if row["sentence"]:
            yield f"                 {row['sentence']}"
    if report["diagnosis"]:
        yield f"  recognised: {report['diagnosis']}"
    if report["stopped"]:
        yield f"  stopped: {report['stopped']}"


def _weights(exercise: str) -> dict[str, float]:
    """Return {row: weight} as the exercise has them now; nothing when it is gone."""
    try:
        return {row.name: row.weight for row in get(exercise).rows}
    except UnknownName:
        return {}


def _visible(line: str) -> str:
    """A learner's words must not steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
