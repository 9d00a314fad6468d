"""A page about a class: results by exercise, frequent misconceptions, who is stuck where. No scripts."""

from __future__ import annotations

import statistics
from collections import Counter
from html import escape

from grader.classroom.results import Column, Row, printable, report_of
from grader.classroom.wording import rows_in_words, why

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
_MISCONCEPTIONS = 12  # that are listed
_NAMES = 40  # of one line
_NOTES = 8  # of one student
_KINDS = {
    "full": "with full points",
    "some": "with some points",
    "none": "with no points",
    "todo": "not attempted",
}


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
    return escape(printable(text))


def _average(columns: list[Column], rows: list[Row]) -> str:
    if not rows:
        return ""
    possible = sum(column.points for column in columns)
    totals = [row.total for row in rows]
    average, middle = statistics.mean(totals), statistics.median(totals)
    return f" Average {average:.1f}, median {middle:g} of {possible:g} points."


def _kind(row: Row, column: Column) -> str:
    mark, report = row.marks.get(column.grade_id, 0.0), report_of(row, column)
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
    found: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        for row in rows:
            report = report_of(row, column)
            if report and report["diagnosis"]:
                found.setdefault((column.title, why(report)), []).append(row.name)
    if not found:
        return "<p>None was recognised.</p>"
    most = sorted(found.items(), key=lambda item: -len(item[1]))[:_MISCONCEPTIONS]
    lines = [_line(len(who), title, says, _people(who)) for (title, says), who in most]
    head = "<tr><th>Students<th>Exercise<th>What it looks like<th>Who</tr>"
    return f"<table>{head}{''.join(lines)}</table>"


def _stuck(columns: list[Column], rows: list[Row]) -> str:
    """For each exercise the row that stops most people, and who they are."""
    lines = []
    for column in columns:
        stuck: dict[str, list[str]] = {}
        for row in rows:
            report = report_of(row, column)
            shown = rows_in_words(report, column.points) if report else []
            first = next((r.says for r in shown if r.status in ("failed", "todo")), None)
            if first:
                stuck.setdefault(first, []).append(row.name)
        for says, who in sorted(stuck.items(), key=lambda item: -len(item[1]))[:3]:
            lines.append(_line(len(who), column.title, says, _people(who)))
    head = "<tr><th>Students<th>Exercise<th>First row that does not pass<th>Who</tr>"
    return f"<table>{head}{''.join(lines)}</table>" if lines else "<p>Nobody is stuck.</p>"


def _people(names: list[str]) -> str:
    """Return names that can be told apart: they hold commas themselves, "Last, First"."""
    more = f"; and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return "; ".join(names[:_NAMES]) + more


def _line(count: int, *texts: str) -> str:
    return f"<tr><td class='number'>{count}{''.join(f'<td>{_html(text)}' for text in texts)}</tr>"


def _everyone(columns: list[Column], rows: list[Row]) -> str:
    exercises = "".join(f"<th>{escape(column.title)}" for column in columns)
    head = f"<tr><th>Student{exercises}<th>Late penalty<th>Total<th>Notes</tr>"
    lines = []
    for row in rows:
        if not row.marks:
            lines.append(f"<tr><td>{_html(row.name)}<td colspan='{len(columns) + 3}'>nothing handed in</tr>")
            continue
        cells = "".join(
            f"<td class='number {_kind(row, column)}'>{row.marks.get(column.grade_id, 0.0):g}"
            for column in columns
        )
        lines.append(
            f"<tr><td>{_html(row.name)}{cells}<td class='number'>{_penalty(row)}"
            f"<td class='number'>{row.total:g}<td>{_notes(row)}</tr>"
        )
    return f"<table>{head}{''.join(lines)}</table>"


def _penalty(row: Row) -> str:
    late = (row.record or {}).get("late_seconds", 0)
    if row.penalty:
        return f"−{row.penalty:g}"
    return "late, none" if late > 0 else ""


def _notes(row: Row) -> str:
    """Whole notes, as many as one reads; a note that is cut in the middle says something else."""
    notes = (row.record or {}).get("notes", [])
    more = [f"And {len(notes) - _NOTES} more: python -m grader explain."] if len(notes) > _NOTES else []
    return "<br>".join(_html(note) for note in [*notes[:_NOTES], *more])
