"""A graded chapter as reports need it: the exercises, and each student's marks.

Marks come from the gradebook, so corrections by hand and late penalties are in them; diagnoses come from the
records.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry

from grader.classroom.course import Course
from grader.classroom.records import Records
from grader.errors import UnknownName
from grader.grading.align import role
from grader.grading.session import test_call

_KEPT_CONTROLS = "\n"
_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@dataclass
class Column:
    """One exercise of the chapter, in the release's order."""

    grade_id: str
    exercise: str
    symbol: str
    points: float

    @property
    def title(self) -> str:
        return f"{self.exercise} {self.symbol}"


@dataclass
class Row:
    """One student. `marks` is empty when nothing was handed in."""

    student: str
    first_name: str
    last_name: str
    email: str
    marks: dict[str, float] = field(default_factory=dict)
    penalty: float = 0.0
    record: dict[str, Any] | None = None
    lms_user_id: str = ""
    comments: list[str] = field(default_factory=list)  # given by hand

    @property
    def total(self) -> float:
        return round(max(sum(self.marks.values()) - self.penalty, 0.0), 2)

    @property
    def name(self) -> str:
        return ", ".join(part for part in (self.last_name, self.first_name) if part) or self.student


def columns_of(release: bytes) -> list[Column]:
    """Return the exercises of a released notebook, in its order."""
    cells = [c for c in nbformat.reads(release.decode(), as_version=4).cells if role(c) == "test"]
    return [
        Column(c.metadata.nbgrader.grade_id, *test_call(c.source), float(c.metadata.nbgrader.points))
        for c in cells
    ]


def rows_of(course: Course, chapter: str) -> list[Row]:
    """Return everyone in the gradebook, by name. Raises UnknownName when it does not know the chapter."""
    records = Records(course.root, chapter).latest()
    rows = []
    with Gradebook(course.directory.db_url, course.directory.course_id) as book:
        try:
            book.find_assignment(chapter)
        except MissingEntry:
            raise UnknownName(f"Nothing of {chapter} has been graded yet.") from None
        for student in book.students:
            row = Row(student.id, student.first_name or "", student.last_name or "", student.email or "")
            try:
                mine = book.find_submission_notebook(chapter, chapter, student.id)
            except MissingEntry:
                pass
            else:
                row.marks = {grade.name: grade.score for grade in mine.grades}
                row.penalty = mine.late_submission_penalty or 0.0
                by_hand = {c.name: c.manual_comment for c in mine.comments if c.manual_comment}
                row.comments = [by_hand[name] for name in sorted(by_hand)]
            row.record = records.get(student.id)
            row.lms_user_id = student.lms_user_id or ""
            rows.append(row)
    return sorted(rows, key=lambda row: (row.last_name, row.first_name, row.student))


def report_of(row: Row, column: Column) -> dict[str, Any] | None:
    """Return the recorded report on a student's exercise, if there is one."""
    return (row.record or {}).get("reports", {}).get(column.grade_id)


def printable(text: str) -> str:
    """Drop what is no text: control characters (ESC steers terminals) and marks that turn its direction."""
    return "".join(
        c
        for c in text.replace("\r", "\n").replace("\t", " ")
        if c in _KEPT_CONTROLS
        or (unicodedata.category(c) not in ("Cc", "Cs") and unicodedata.bidirectional(c) not in _TURNING)
    )
