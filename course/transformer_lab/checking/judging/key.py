"""An answer key, and the verdict on a learner's symbol by it.

A key holds, for every row of an exercise, the cases, what is expected, and what each known
misconception gives. `check` reads a recorded key from a file; the grader draws a fresh one.
Both are judged here, so a learner and an instructor see the same sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformer_lab.checking.judging.compare import Difference, Tolerance, agree, difference
from transformer_lab.checking.judging.report import Report, RowResult
from transformer_lab.checking.probes.core import Case, Observation
from transformer_lab.checking.probes.describe import DESCRIBE
from transformer_lab.language import N_, _


@dataclass(frozen=True)
class KeyCase:
    """One case, the expected values a row looks at, and each misconception's observation of it."""

    case: Case
    expected: dict[str, Any]
    wrong: Mapping[str, Observation]


@dataclass(frozen=True)
class KeyRow:
    """One named aspect: it passes when all its cases do. It waits until the rows in `needs` pass."""

    name: str
    says: str
    cases: tuple[KeyCase, ...]
    needs: tuple[str, ...] = ()
    weight: float = 1.0
    tolerance: Tolerance = Tolerance()


@dataclass(frozen=True)
class AnswerKey:
    """Everything needed to judge one exercise without holding a line of an answer's code."""

    id: str
    symbol: str
    kind: str  # "function" or "module class"
    parameters: tuple[str, ...]
    points: float
    rows: tuple[KeyRow, ...]
    misconceptions: dict[str, str]  # name -> the sentence that explains it
    forbidden: dict[str, str] = field(default_factory=dict)  # a name not to use -> why, with {name}
    spoken: dict[str, str] = field(default_factory=dict)  # a value's name -> words for it, "the weights"


Observe = Callable[[Case], Observation]


def judge(key: AnswerKey, observe: Observe) -> Report:
    """Judge a symbol, which only `observe` can reach, and return the report."""
    report = Report(key.id, key.symbol, key.points)
    first = observe(DESCRIBE)
    unfit = _unfit(key, first)
    if unfit:
        report.rows = [RowResult(row.name, row.says, row.weight, "failed", unfit) for row in key.rows]
        return report
    seen: dict[str, list[Observation]] = {}
    for row in key.rows:
        report.rows.append(_judge_row(key, row, report, observe, seen))
    _diagnose(key, report, seen)
    report.printed = next((o.printed for group in seen.values() for o in group if o.printed), "")
    return report


def _unfit(key: AnswerKey, first: Observation) -> Difference | None:
    """Say why the symbol cannot be judged at all: missing, wrong kind, parameters in another order, ..."""
    if first.problem:
        return Difference(first.problem.kind, first.problem.text, first.problem.todo)
    kind, name = str(first.values.get("kind")), str(first.values.get("name"))
    if kind != key.kind:
        return Difference("kind", _kind_sentence(key, kind, name))
    if first.values.get("borrowed"):
        text = _(
            "This is the course's finished {symbol}. Later chapters may use it; here, write yours."
        ).format(symbol=key.symbol)
        return Difference("borrowed", text)
    own = [str(p) for p in first.values.get("parameters") or []]
    wanted = list(key.parameters)
    if own and own != wanted and sorted(own) == sorted(wanted):
        text = _("The parameters stand in the order ({own}); the task says ({wanted}).").format(
            own=", ".join(own), wanted=", ".join(wanted)
        )
        return Difference("order", text)
    for used in first.values.get("uses") or []:
        if used in key.forbidden:
            return Difference("forbidden", key.forbidden[used].replace("{name}", used))
    return None


_PASSED = {
    "NoneType": N_("nothing (None)"),
    "str": N_("a string (leave the quotes away)"),
    "function": N_("a function"),
    "class": N_("a class"),
    "module class": N_("a class"),
}


def _kind_sentence(key: AnswerKey, kind: str, name: str) -> str:
    if key.kind == "module class" and kind == "module instance":
        return _("You passed an object. Pass the class itself: {symbol}, without parentheses.").format(
            symbol=key.symbol
        )
    if key.kind == "module class" and kind == "class":
        return _("{name} does not inherit from nn.Module: class {symbol}(nn.Module).").format(
            name=name, symbol=key.symbol
        )
    if key.kind == "function" and kind.endswith("class"):
        return _("You passed the class {name}; the function {symbol} was expected.").format(
            name=name, symbol=key.symbol
        )
    if key.kind == "function" and kind == "module instance":
        return _("You passed a module object; the function {symbol} was expected.").format(symbol=key.symbol)
    what = _("class") if key.kind == "module class" else _("function")
    passed = _(_PASSED[kind]) if kind in _PASSED else _("something of type {kind}").format(kind=kind)
    return _("You passed {passed}; the {what} {symbol} itself was expected.").format(
        passed=passed, what=what, symbol=key.symbol
    )


def _judge_row(key: AnswerKey, row: KeyRow, report: Report, observe: Observe, seen: dict) -> RowResult:
    passed = {result.name for result in report.rows if result.status == "passed"}
    waits_for = [name for name in row.needs if name not in passed]
    if waits_for:
        return RowResult(row.name, row.says, row.weight, "waits", waits_for=waits_for[0])
    seen[row.name] = [observe(item.case) for item in row.cases]
    for item, observation in zip(row.cases, seen[row.name], strict=True):
        found = difference(item.expected, observation, row.tolerance, key.spoken)
        if found and found.kind == "todo":
            return RowResult(row.name, row.says, row.weight, "todo", found)
        if found:
            return RowResult(row.name, row.says, row.weight, "failed", found)
    return RowResult(row.name, row.says, row.weight, "passed")


def _diagnose(key: AnswerKey, report: Report, seen: dict[str, list[Observation]]) -> None:
    """Name the misconception that explains everything seen, else one that explains the first failure."""
    failed = [result.name for result in report.rows if result.status == "failed"]
    if not failed:
        return
    judged = [row for row in key.rows if row.name in seen]
    first = [row for row in judged if row.name == failed[0]]
    for rows in (judged, first):
        for name, says in key.misconceptions.items():
            if _explains(name, rows, seen, report):
                report.diagnosis = (name, says)
                return


def _explains(name: str, rows: list[KeyRow], seen: dict[str, list[Observation]], report: Report) -> bool:
    """Say whether misconception `name` gives what was seen in every case of `rows`.

    Rows that stopped at a TODO are left out: a half-finished class can already hold a mistake.
    """
    status = {result.name: result.status for result in report.rows}
    compared = [row for row in rows if status[row.name] != "todo"]
    return bool(compared) and all(
        name in item.wrong and agree(observation, item.wrong[name], item.expected, row.tolerance)
        for row in compared
        for item, observation in zip(row.cases, seen[row.name], strict=True)
    )
