"""What an instructor takes away from a graded chapter: marks for Canvas and Moodle, a page about the class.

Marks come from the gradebook, so corrections by hand and late penalties are in them; diagnoses come from the
records.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry

from grader.classroom.records import Records
from grader.classroom.run import Course
from grader.errors import UnknownName
from grader.exercises import get
from grader.grading.align import role
from grader.grading.session import test_call

# What a spreadsheet may take for the beginning of a formula, and the same characters in their full width.
_FORMULA = "=+-@|%＝＋－＠｜％"
# A table with commas is also opened where semicolons separate cells, and read line by line: what comes after
# one of those in a text would begin a cell there.
_UNSEEN = r"\s\"\u200b-\u200f\u2060\ufeff"
_BEGINS_A_CELL = re.compile(rf"(^[{_UNSEEN}']*|[;\n][{_UNSEEN}]*)(?=[{re.escape(_FORMULA)}])")
_KEPT_CONTROLS = "\n"
_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


class _Plain(str):
    """A cell that stands as it is."""


_NO_MARK = _Plain("-")  # Moodle's word for "no grade"; an empty cell is 0 for an item that is new to it


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


def write_reports(
    course: Course, chapter: str, folder: Path | None = None, exercises: bool = False
) -> list[Path]:
    """Write CHAPTER-canvas.csv, CHAPTER-moodle.csv and CHAPTER.html, and return their paths.

    exercises: Canvas gets a column for each exercise, too, and makes an assignment of each.
    Raises UnknownName when the gradebook does not know the chapter.
    """
    folder = folder or course.root / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    columns = _columns(course.release(chapter))
    rows = _rows(course, chapter)
    pages = {
        f"{chapter}-canvas.csv": canvas_csv(chapter, columns, rows, exercises),
        f"{chapter}-moodle.csv": moodle_csv(chapter, columns, rows),
        f"{chapter}.html": class_page(chapter, columns, rows),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in pages]


def _columns(release: bytes) -> list[Column]:
    cells = [c for c in nbformat.reads(release.decode(), as_version=4).cells if role(c) == "test"]
    return [
        Column(c.metadata.nbgrader.grade_id, *test_call(c.source), float(c.metadata.nbgrader.points))
        for c in cells
    ]


def _rows(course: Course, chapter: str) -> list[Row]:
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


# ---- tables for learning platforms -------------------------------------------------------------------


def safe(value: Any) -> str:
    """Return a cell's text; an apostrophe comes before what a spreadsheet could take for a formula."""
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return _BEGINS_A_CELL.sub(r"\1'", _printable(str(value)))


def _printable(text: str) -> str:
    """Drop what is no text: control characters (ESC steers terminals) and marks that turn its direction."""
    return "".join(
        c
        for c in text.replace("\r", "\n").replace("\t", " ")
        if c in _KEPT_CONTROLS
        or (unicodedata.category(c) not in ("Cc", "Cs") and unicodedata.bidirectional(c) not in _TURNING)
    )


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
        report = _report(row, column)
        if report and report["score"] < column.points:
            parts.append(f"{column.exercise}: {_why(report)}")
    return _without_tex(" ".join(parts))


def _without_tex(text: str) -> str:
    """Moodle typesets what stands in these marks; an error's words are a learner's own."""
    for mark in ("$$", "\\(", "\\)", "\\[", "\\]"):
        text = text.replace(mark, " ".join(mark))
    return text


def _report(row: Row, column: Column) -> dict | None:
    return (row.record or {}).get("reports", {}).get(column.grade_id)


def _why(report: dict) -> str:
    says = {wrong.name: wrong.says for wrong in get(report["exercise"]).misconceptions}
    if report["diagnosis"] in says:
        return says[report["diagnosis"]]
    return next((r["sentence"] for r in report["rows"] if r["sentence"]), "") or "not attempted yet."


# ---- the class page ----------------------------------------------------------------------------------

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
body { color: #222; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 1.5rem }
td, th { padding: .25rem .6rem; border: 1px solid #ddd; text-align: left }
.bar { display: flex; height: 1.4rem; max-width: 40rem; border: 1px solid #bbb }
.bar span { overflow: hidden; font-size: .8rem; padding-left: .3rem }
.full { background: #b7e1cd } .some { background: #fce8b2 }
.none { background: #f4c7c3 } .todo { background: #e0e0e0 }
.number { text-align: right }
"""
_KINDS = {"full": "full points", "some": "some points", "none": "no points", "todo": "not attempted"}


def class_page(chapter: str, columns: list[Column], rows: list[Row]) -> str:
    """Return a page without scripts: results by exercise, frequent misconceptions, who is stuck where."""
    handed_in = [row for row in rows if row.marks]
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(chapter)}</title>",
        f"<style>{_STYLE}</style>",
        f"<h1>{escape(chapter)}</h1>",
        f"<p>{len(handed_in)} of {len(rows)} students handed in.{_average(columns, handed_in)}</p>",
        "<h2>Results by exercise</h2>",
        *(_distribution(column, handed_in) for column in columns),
        "<h2>Most frequent misconceptions</h2>",
        _misconceptions(columns, handed_in),
        "<h2>Where people are stuck</h2>",
        _stuck(columns, handed_in),
        "<h2>Everyone</h2>",
        _everyone(columns, rows),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _html(text: str) -> str:
    return escape(_printable(text))


def _average(columns: list[Column], rows: list[Row]) -> str:
    if not rows:
        return ""
    possible = sum(column.points for column in columns)
    totals = [row.total for row in rows]
    average, middle = statistics.mean(totals), statistics.median(totals)
    return f" Average {average:.1f}, median {middle:g} of {possible:g} points."


def _kind(row: Row, column: Column) -> str:
    mark, report = row.marks.get(column.grade_id, 0.0), _report(row, column)
    if mark >= column.points:
        return "full"
    if mark > 0:
        return "some"
    untouched = report is not None and all(r["status"] in ("todo", "waits") for r in report["rows"])
    return "todo" if untouched else "none"


def _distribution(column: Column, rows: list[Row]) -> str:
    counts = Counter(_kind(row, column) for row in rows)
    total = sum(counts.values()) or 1
    words = ", ".join(f"{counts[kind]} {says}" for kind, says in _KINDS.items() if counts[kind])
    spans = "".join(
        f'<span class="{kind}" style="flex:{counts[kind] / total:.4f}">{counts[kind]}</span>'
        for kind in _KINDS
        if counts[kind]
    )
    head = f"<h3>{escape(column.title)} ({column.points:g} points)</h3>"
    return f"{head}<div class='bar'>{spans}</div><p>{words}</p>"


def _misconceptions(columns: list[Column], rows: list[Row]) -> str:
    found: Counter[tuple[str, str]] = Counter()
    for column in columns:
        for row in rows:
            report = _report(row, column)
            if report and report["diagnosis"]:
                found[column.title, _why(report)] += 1
    if not found:
        return "<p>None was recognised.</p>"
    lines = [_line(count, title, says) for (title, says), count in found.most_common(12)]
    return "<table><tr><th>Students<th>Exercise<th>What it looks like</tr>" + "".join(lines) + "</table>"


def _stuck(columns: list[Column], rows: list[Row]) -> str:
    """For each exercise the row that stops most people, and who they are."""
    lines = []
    for column in columns:
        stuck: dict[str, list[str]] = {}
        for row in rows:
            report = _report(row, column) or {"rows": []}
            first = next((r["name"] for r in report["rows"] if r["status"] in ("failed", "todo")), None)
            if first:
                stuck.setdefault(first, []).append(row.name)
        for name, who in sorted(stuck.items(), key=lambda item: -len(item[1]))[:3]:
            lines.append(
                # names hold commas themselves: "Last, First"
                _line(len(who), column.title, name, "; ".join(who[:40]) + ("; …" if who[40:] else ""))
            )
    head = "<tr><th>Students<th>Exercise<th>First row that does not pass<th>Who</tr>"
    return f"<table>{head}{''.join(lines)}</table>" if lines else "<p>Nobody is stuck.</p>"


def _line(count: int, *texts: str) -> str:
    return f"<tr><td class='number'>{count}{''.join(f'<td>{_html(text)}' for text in texts)}</tr>"


def _everyone(columns: list[Column], rows: list[Row]) -> str:
    head = (
        "<tr><th>Student"
        + "".join(f"<th>{escape(column.title)}" for column in columns)
        + "<th>Total<th>Notes</tr>"
    )
    lines = []
    for row in rows:
        if not row.marks:
            lines.append(f"<tr><td>{_html(row.name)}<td colspan='{len(columns) + 2}'>nothing handed in</tr>")
            continue
        cells = "".join(
            f"<td class='number {_kind(row, column)}'>{row.marks.get(column.grade_id, 0.0):g}"
            for column in columns
        )
        notes = " ".join((row.record or {}).get("notes", []))[:500]
        lines.append(
            f"<tr><td>{_html(row.name)}{cells}<td class='number'>{row.total:g}<td>{_html(notes)}</tr>"
        )
    return f"<table>{head}{''.join(lines)}</table>"
