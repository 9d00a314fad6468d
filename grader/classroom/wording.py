"""What a recorded verdict is in words: rows by their sentences, with what each is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grader.errors import UnknownName
from grader.exercises import get


@dataclass(frozen=True)
class RowInWords:
    """One row of a recorded report. `share`: what it is worth in points, None when the row is gone by now."""

    name: str
    says: str
    status: str
    sentence: str
    share: float | None


def rows_in_words(report: dict[str, Any], points: float) -> list[RowInWords]:
    """Return the rows of a recorded report, in order. An exercise that was changed since may lack some."""
    try:
        known = {row.name: row for row in get(report["exercise"]).rows}
    except UnknownName:
        known = {}
    total = sum(known[row["name"]].weight for row in report["rows"] if row["name"] in known)
    found = []
    for row in report["rows"]:
        now = known.get(row["name"])
        found.append(
            RowInWords(
                row["name"],
                now.says if now else row["name"],
                row["status"],
                row["sentence"],
                points * now.weight / total if now and total else None,
            )
        )
    return found


def why(report: dict[str, Any]) -> str:
    """Return the sentence that names a report's mistake, else its first row's; what is open when neither."""
    try:
        says = {wrong.name: wrong.says for wrong in get(report["exercise"]).misconceptions}
    except UnknownName:
        says = {}
    if report["diagnosis"] in says:
        return says[report["diagnosis"]]
    return next((r["sentence"] for r in report["rows"] if r["sentence"]), "") or "not attempted yet."
