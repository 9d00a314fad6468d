"""A verdict: its rows, its score, its diagnosis; as text, as HTML and as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from transformer_lab.checking.judging.compare import Difference
from transformer_lab.language import N_, _

SYMBOLS = {"passed": "✓", "failed": "✗", "todo": "○", "waits": "○"}
# Mid-tones, readable on white and on black alike (contrast at least 4.5 to 1 on both is not possible;
# these give 3.5 and more on both, and the symbol and the words say the same as the colour).
COLOURS = {"passed": "#2e9e5b", "failed": "#d9534f", "todo": "#8a8a8a", "waits": "#8a8a8a"}

WAITING = N_("(○ without a sentence: tried once the rows before it pass)")


@dataclass
class RowResult:
    """One row's verdict: passed, failed (with the first difference), todo, or waits."""

    name: str
    says: str
    weight: float
    status: str
    difference: Difference | None = None
    waits_for: str = ""

    @property
    def sentence(self) -> str:
        """What the learner reads under the row; empty when it passed."""
        return self.difference.text if self.difference else ""


@dataclass
class Report:
    """The verdict on one exercise. `points` is what the whole exercise is worth."""

    id: str
    symbol: str
    points: float
    rows: list[RowResult] = field(default_factory=list)
    diagnosis: tuple[str, str] | None = None  # the misconception's name and its sentence
    printed: str = ""
    stopped: str = ""  # why judging ended early (the process died, time ran out), for graders

    @property
    def passed(self) -> bool:
        return bool(self.rows) and all(row.status == "passed" for row in self.rows)

    @property
    def share(self) -> float:
        """The share of the rows' weight that passed, from 0 to 1."""
        total = sum(row.weight for row in self.rows)
        return sum(row.weight for row in self.rows if row.status == "passed") / total if total else 0.0

    @property
    def score(self) -> float:
        """Points earned, rounded to hundredths; full points only when every row passed."""
        if self.passed:
            return float(self.points)
        return max(0.0, min(round(self.points * self.share, 2), self.points - 0.01))

    @property
    def attempted(self) -> bool:
        return any(row.status in ("passed", "failed") for row in self.rows)

    @property
    def next_todo(self) -> str:
        """The number of the TODO that the first unfinished row stops at, or ""."""
        return next((row.difference.todo for row in self.rows if row.status == "todo" and row.difference), "")

    @property
    def headline(self) -> str:
        count, total = sum(row.status == "passed" for row in self.rows), len(self.rows)
        if self.passed:
            return _("all {total} rows pass").format(total=total)
        if not self.attempted and self.next_todo:
            return _("nothing to judge yet. Next: TODO {todo}").format(todo=self.next_todo)
        return _("{count} of {total} rows pass").format(count=count, total=total)

    def tree(self) -> dict[str, Any]:
        """Return the report as JSON-like data (for records and for reports on a class)."""
        return {
            "exercise": self.id,
            "symbol": self.symbol,
            "points": self.points,
            "score": self.score,
            "diagnosis": self.diagnosis[0] if self.diagnosis else None,
            "stopped": self.stopped,
            "rows": [
                {
                    "name": row.name,
                    "status": row.status,
                    "kind": row.difference.kind if row.difference else None,
                    "sentence": row.sentence,
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.id} {self.symbol}: {self.headline}"]
        for row in self._shown_rows():
            lines.append(f"  {SYMBOLS[row.status]} {row.says}")
            if row.sentence:
                lines.append(f"      {row.sentence}")
        if self._waiting():
            lines.append(f"  {_(WAITING)}")
        if self.diagnosis:
            lines.append(" ".join(("  →", _("What this looks like:"), self.diagnosis[1])))
        if self.stopped:
            lines.append(f"  ! {self.stopped}")
        if self.printed and not self.passed:
            lines.append("  " + _("Your code printed:") + " " + _clip(self.printed))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = COLOURS["passed" if self.passed else "failed" if self.attempted else "todo"]
        parts = [
            f'<div style="border-left:4px solid {colour};padding:2px 0 2px 10px;margin:4px 0;'
            'line-height:1.45">',
            f"<div><b>{escape(self.id)} {escape(self.symbol)}</b>: {escape(self.headline)}</div>",
            *(self._row_html(row) for row in self._shown_rows()),
        ]
        if self._waiting():
            parts.append(f'<div style="color:{COLOURS["waits"]}">{_(WAITING)}</div>')
        if self.diagnosis:
            says = escape(self.diagnosis[1])
            parts.append(f'<div style="margin-top:4px">→ <b>{_("What this looks like:")}</b> {says}</div>')
        if self.stopped:
            parts.append(f"<div><b>!</b> {escape(self.stopped)}</div>")
        if self.printed and not self.passed:
            parts.append(f"<div>{_('Your code printed:')}<pre>{escape(_clip(self.printed))}</pre></div>")
        return "".join([*parts, "</div>"])

    def _waiting(self) -> bool:
        return self.attempted and any(row.status == "waits" for row in self.rows)

    def _shown_rows(self) -> list[RowResult]:
        """All rows once something was attempted; an untouched exercise needs only its headline.

        When one sentence explains every row (the wrong kind of object was passed), it stands once.
        """
        if not self.attempted:
            return []
        sentences = {row.sentence for row in self.rows}
        if len(self.rows) > 1 and len(sentences) == 1 and not self.passed:
            return self.rows[:1]
        return self.rows

    @staticmethod
    def _row_html(row: RowResult) -> str:
        sentence = f'<div style="padding-left:1.4em">{escape(row.sentence)}</div>' if row.sentence else ""
        mark = f'<span style="color:{COLOURS[row.status]};font-weight:bold">{SYMBOLS[row.status]}</span>'
        return f"<div>{mark} {escape(row.says)}{sentence}</div>"


def _clip(text: str, lines: int = 12) -> str:
    kept = text.strip().splitlines()
    return "\n".join(kept[:lines] + (["…"] if len(kept) > lines else []))
