"""Marks as Canvas and Moodle import them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

from grader.classroom.results import Column, Row, printable, report_of
from grader.classroom.wording import why

# What a spreadsheet may take for the beginning of a formula, and the same characters in their full width.
_FORMULA = "=+-@|%＝＋－＠｜％"
# A table with commas is also opened where semicolons separate cells, and read line by line: what comes after
# one of those in a text would begin a cell there.
_UNSEEN = r"\s\"\u200b-\u200f\u2060\ufeff"
_BEGINS_A_CELL = re.compile(rf"(^[{_UNSEEN}']*|[;\n][{_UNSEEN}]*)(?=[{re.escape(_FORMULA)}])")


class _Plain(str):
    """A cell that stands as it is."""


_NO_MARK = _Plain("-")  # Moodle's word for "no grade"; an empty cell is 0 for an item that is new to it


def safe(value: Any) -> str:
    """Return a cell's text; an apostrophe comes before what a spreadsheet could take for a formula."""
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return _BEGINS_A_CELL.sub(r"\1'", printable(str(value)))


def _csv(lines: Iterable[Iterable[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    for line in lines:
        writer.writerow([value if isinstance(value, _Plain) else safe(value) for value in line])
    return buffer.getvalue()


def canvas_csv(chapter: str, columns: list[Column], rows: list[Row], exercises: bool = False) -> str:
    """Return marks in the form of Canvas's gradebook import: a total and, if wished, each exercise.

    Canvas finds students by ID, its own number for them (lms_user_id in nbgrader's gradebook), else by SIS
    User ID, which holds nbgrader's student id.
    """
    shown = columns if exercises else []
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", chapter]
    lines: list[list[Any]] = [head + [f"{chapter} {column.title}" for column in shown]]
    possible = sum(column.points for column in columns)
    lines.append(["    Points Possible", "", "", "", "", possible, *(column.points for column in shown)])
    for row in rows:
        marks = [row.marks.get(column.grade_id, "") for column in shown]
        who = [row.name, row.lms_user_id, row.student, row.student, ""]
        lines.append([*who, row.total if row.marks else "", *marks])
    return _csv(lines)


def moodle_csv(chapter: str, columns: list[Column], rows: list[Row]) -> str:
    """Return marks as Moodle's grade import reads them; students are found by ID number or e-mail."""
    head = ["ID number", "First name", "Surname", "Email address", chapter]
    lines: list[list[Any]] = [
        head + [f"{chapter} {column.title}" for column in columns] + ["Feedback comments"]
    ]
    for row in rows:
        marks = [row.marks.get(column.grade_id, _NO_MARK) for column in columns]
        who = [row.student, row.first_name, row.last_name, row.email]
        lines.append([*who, row.total if row.marks else _NO_MARK, *marks, _comment(row, columns)])
    return _csv(lines)


def _comment(row: Row, columns: list[Column]) -> str:
    """What the learner reads: the comments given by hand, then each exercise that lost points, and why."""
    parts = list(row.comments)
    for column in columns:
        report = report_of(row, column)
        # the mark, not the report: what an instructor forgave is no fault any more
        if report and row.marks.get(column.grade_id, 0.0) < column.points:
            parts.append(f"{column.exercise}: {why(report)}")
    return _without_tex(" ".join(parts))


def _without_tex(text: str) -> str:
    """Moodle typesets what stands in these marks; an error's words are a learner's own."""
    for mark in ("$$", "\\(", "\\)", "\\[", "\\]"):
        text = text.replace(mark, " ".join(mark))
    return text
