"""Grade one submission: run its cells in a jail, judge its exercises outside.

    aligned notebook ──► cells run, in order, in a process forked for it
                    └──► at each test cell cases go in and observations come out; verdicts are reached here

A cell that ends its process (a crash, a hang, too much memory) is charged and left out; a fresh process runs
the earlier cells again and the rest is tried. Verdicts already reached stay.
Everything that comes out of the jail is checked and cleaned before anything else sees it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import itertools
import re
import time
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from nbformat import NotebookNode, from_dict

from grader.grading.align import EXTRA, role
from grader.grading.blame import NotComparable, judged
from grader.grading.evidence import evidence
from grader.grading.liveness import live_cells
from grader.jail import Jail, Killed, Limits, Prisoner
from grader.judging.judge import fresh_key
from transformer_lab.checking.judging.key import AnswerKey, judge
from transformer_lab.checking.judging.report import SYMBOLS, Report, RowResult
from transformer_lab.checking.probes.core import Case, Observation
from transformer_lab.checking.probes.describe import DESCRIBE
from transformer_lab.checking.probes.problems import Problem
from transformer_lab.checking.stored import wire
from transformer_lab.language import _

_PICTURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
_TEXT_LIMIT = 400  # characters of a problem's text, or of an exception's name
_STRING_LIMIT = 1000  # characters of a string in a value; no answer holds a longer one
_PARTS_LIMIT = 100_000  # strings, numbers, lists, ... in all values of one observation
_AXES_LIMIT = 16  # of a tensor
_OUTPUTS_LIMIT = 1000  # outputs of one cell
_LINES_LIMIT = 500  # of a traceback
_ALWAYS_LOOKED_AT = ("kind", "name", "parameters", "uses", "borrowed", "out", "out.0")


@dataclass
class Verdict:
    """The judge's word on one test cell."""

    grade_id: str
    points: float
    report: Report

    @property
    def score(self) -> float:
        """Points earned, between 0 and the release's points for this cell."""
        return min(max(float(self.report.score), 0.0), float(self.points))


@dataclass
class Graded:
    """What grading one submission gave. `notebook` is the aligned one, with outputs and verdicts in it.

    evidence: {grade_id: on which input each row failed}, where it was asked for.
    """

    notebook: NotebookNode
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    peak_bytes: int = 0
    evidence: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


class _OutOfTime(Exception):
    """The submission's whole time or its fresh starts are used up; the text says which."""


def test_call(source: str) -> tuple[str, str]:
    """Return (exercise, symbol) of a released test cell, `check("2.1", PositionalEncoding)`.

    Raises ValueError when the cell is not one.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check" and len(node.args) == 2:
            exercise, symbol = node.args
            if isinstance(exercise, ast.Constant) and isinstance(symbol, ast.Name):
                return str(exercise.value), symbol.id
    raise ValueError(f"not a test cell: {source!r}")


class Session:
    """One submission on its way through a jail. Use `grade`."""

    def __init__(self, jail: Jail, limits: Limits, seed: int, with_evidence: bool = False):
        self._jail, self._limits, self._seed = jail, limits, seed
        self._with_evidence = with_evidence
        self._prisoner: Prisoner | None = None
        self._good: list[str] = []  # cells to run again in a fresh process
        self._deaths = 0
        self._ended_since_test: str | None = None
        self._error_since_test = ""  # what a cell of the learner's stopped with
        self._stop: str | None = None
        self._output_left = limits.total_output_bytes
        self._deadline = time.monotonic() + limits.submission_seconds
        self.graded: Graded

    def grade(self, notebook: NotebookNode, notes: list[str]) -> Graded:
        """Run and judge an aligned notebook. Raises JailError only when the jail itself fails."""
        start = time.monotonic()
        self.graded = Graded(notebook, notes=list(notes))
        try:
            for cell, live in zip(notebook.cells, live_cells(notebook), strict=True):
                if role(cell) == "test":
                    self._judge_cell(cell)
                elif live:
                    self._run_cell(cell)
        finally:
            self._dismiss()
        self.graded.seconds = time.monotonic() - start
        return self.graded

    # ---- cells ---------------------------------------------------------------------------------------------

    def _run_cell(self, cell: NotebookNode) -> None:
        cell.outputs, cell.execution_count = [], None
        if not cell.source.strip():
            return
        try:
            prisoner, seconds = self._ready(), self._at_most(self._limits.cell_seconds)
            answer, _ = prisoner.request({"do": "cell", "source": cell.source}, seconds=seconds)
            if left := prisoner.sweep():
                self.graded.notes.append(
                    f"Cell {_label(cell)} left {left} processes running; they were ended."
                )
        except Killed as killed:
            self._lost(f"this cell ended the process: {killed}", cell)
        except _OutOfTime as out:
            self._stop = str(out)
            cell.outputs = [_error_output("NotRun", str(out))]
        else:
            self._good.append(cell.source)
            if answer.get("error") and (role(cell) == "answer" or cell.metadata.get(EXTRA)):
                self._error_since_test = error_in_words(answer["error"])
            cell.outputs, self._output_left = clean_outputs(answer.get("outputs"), self._output_left)
            cell.execution_count = len(self._good)

    def _ready(self) -> Prisoner:
        """Return a live process in which all earlier good cells have run. Raises Killed or _OutOfTime."""
        if self._stop:
            raise _OutOfTime(self._stop)
        while self._prisoner is None:
            if self._deaths > self._limits.restarts:
                raise _OutOfTime(f"not run: the submission's process ended {self._deaths} times before")
            self._prisoner = self._jail.fork(self._limits)
            self._run_again(self._prisoner)
        return self._prisoner

    def _run_again(self, prisoner: Prisoner) -> None:
        """Bring a fresh process to where the last one was; a cell that fails to come through is left out."""
        for source in list(self._good):
            try:
                request = {"do": "cell", "source": source}
                prisoner.request(request, seconds=self._at_most(self._limits.cell_seconds))
            except Killed:
                self._good.remove(source)
                self._dismiss()
                self._deaths += 1
                return

    def _at_most(self, seconds: float) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _OutOfTime(f"not run: the submission used up its {self._limits.submission_seconds:.0f} s")
        return min(seconds, left)

    def _lost(self, text: str, cell: NotebookNode) -> None:
        self._dismiss()
        self._deaths += 1
        self._ended_since_test = text.replace("this cell", "a cell above")
        cell.outputs = [_error_output("Ended", text)]
        self.graded.notes.append(f"In cell {_label(cell)}: {text}.")

    def _dismiss(self) -> None:
        if self._prisoner is not None:
            self.graded.peak_bytes = max(self.graded.peak_bytes, self._prisoner.peak_bytes)
            self._prisoner.close()
            self._prisoner = None

    # ---- verdicts ------------------------------------------------------------------------------------------

    def _judge_cell(self, cell: NotebookNode) -> None:
        exercise, symbol = test_call(cell.source)
        key = fresh_key(exercise, self._seed)  # an error here is the grader's, so it is not caught
        observer = _Observer(self, symbol, looked_at(key))
        try:
            report = judged(judge, key, observer)
            if self._with_evidence:
                found = evidence(key, report, observer.seen)
                self.graded.evidence[cell.metadata.nbgrader.grade_id] = found
        except NotComparable as odd:  # whatever odd data came back, it earns nothing
            report = _failed(key, str(odd))
            self.graded.notes.append(f"Exercise {exercise}: {odd} Look at it yourself.")
        report.points = float(cell.metadata.nbgrader.points)  # the release says what an exercise is worth
        report.stopped = observer.ended or ("" if report.passed else self._ended_since_test or "")
        self._ended_since_test, self._error_since_test = None, ""
        if observer.ended:
            self.graded.notes.append(f"Exercise {exercise}: {observer.ended}.")
        about = cell.metadata.nbgrader
        self.graded.verdicts.append(Verdict(about.grade_id, float(about.points), report))
        cell.outputs, cell.execution_count = [_verdict_output(report)], None

    def observe(self, symbol: str, case: Case, seconds: float, wanted: Collection[str]) -> Observation:
        """Run one case in the jail and see the wanted values. Raises Killed or _OutOfTime."""
        request = {"do": "probe", "symbol": symbol}
        _, blob = self._ready().request(request, wire.pack(case.tree()), seconds=self._at_most(seconds))
        seen = clean_observation(blob, wanted)
        if seen.problem and seen.problem.kind == "missing" and self._error_since_test:
            text = f"{seen.problem.text} A cell above stopped with {self._error_since_test}"
            seen.problem = replace(seen.problem, text=text)
        return seen

    def ended_in_probe(self) -> None:
        """Note that a case ended the process."""
        self._dismiss()
        self._deaths += 1


class _Observer:
    """The judge's eyes for one exercise: after a death or past the time, nothing more is tried."""

    def __init__(self, session: Session, symbol: str, wanted: Collection[str]):
        self._session, self._symbol, self._wanted = session, symbol, wanted
        self._left = session._limits.exercise_seconds
        self.ended = ""
        self.seen: dict[int, Observation] = {}  # by the case's id: cases are compared by identity

    def __call__(self, case: Case) -> Observation:
        self.seen[id(case)] = observed = self._look(case)
        return observed

    def _look(self, case: Case) -> Observation:
        if self.ended:
            return _stopped(self.ended)
        start = time.monotonic()
        try:
            self._session._ready()  # a fresh process's catching up is not this exercise's time
            start = time.monotonic()
            return self._session.observe(self._symbol, case, max(self._left, 0.1), self._wanted)
        except Killed as killed:
            self._session.ended_in_probe()
            what = "was looked at" if case == DESCRIBE else "was called"
            self.ended = f"when {self._symbol} {what}, {killed}"
        except _OutOfTime as out:
            self.ended = str(out)
        finally:
            self._left -= time.monotonic() - start
        return _stopped(self.ended)


def _stopped(reason: str) -> Observation:
    text = f"Not judged: {reason}."
    return Observation(problem=Problem("stopped", text, text))


def _failed(key: AnswerKey, text: str) -> Report:
    from transformer_lab.checking.judging.compare import Difference

    rows = [RowResult(r.name, r.says, r.weight, "failed", Difference("unreadable", text)) for r in key.rows]
    return Report(key.id, key.symbol, key.points, rows)


def _verdict_output(report: Report) -> NotebookNode:
    # The page typesets mathematics, and a learner's own words in an error could pass for some: not in here.
    worth = _worth_of_rows(report)
    below = f"<div>{worth}</div>" if worth else ""
    html = f'<div class="tex2jax_ignore mathjax_ignore">{report._repr_html_()}{below}</div>'
    data = {"text/plain": f"{report}\n  {worth}" if worth else str(report), "text/html": html}
    return NotebookNode(output_type="display_data", data=_node(data), metadata=NotebookNode())


def _worth_of_rows(report: Report) -> str:
    """Say how a mark between nothing and everything came about; "" for those two."""
    if not 0 < report.score < report.points:
        return ""
    total = sum(row.weight for row in report.rows)
    rows = (f"{SYMBOLS[row.status]} {report.points * row.weight / total:.2f}" for row in report.rows)
    return _("{score:g} of {points:g} points. What each row is worth, from the top: {rows}").format(
        score=report.score, points=report.points, rows=", ".join(rows)
    )


def _error_output(name: str, text: str) -> NotebookNode:
    return NotebookNode(output_type="error", ename=name, evalue=text, traceback=[f"{name}: {text}"])


def _label(cell: NotebookNode) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id") or cell.get("id", "?")


# ---- cleaning what came out of the jail --------------------------------------------------------------------


class _TooMuch(Exception):
    """A value is larger than any answer; the text says in what."""


def looked_at(key: AnswerKey) -> frozenset[str]:
    """Return the names of all values that judging by `key` looks at."""
    cases = (item for row in key.rows for item in row.cases)
    return frozenset(_ALWAYS_LOOKED_AT).union(*(item.expected for item in cases))


def error_in_words(error: Any) -> str:
    """Return a cell's own error as a sentence that names the odd characters which Python only numbers."""
    text = " ".join(_text(error).split())[:_TEXT_LIMIT].rstrip(".")
    found = dict.fromkeys(re.findall(r"U\+([0-9A-F]{4,6})", text))
    names = [unicodedata.name(chr(int(number, 16)), "") for number in found if int(number, 16) < 0x110000]
    named = ", ".join(name.lower() for name in names if name)
    return f"{text}. The character is: {named}." if named else f"{text}."


def clean_observation(blob: bytes, wanted: Collection[str] | None = None) -> Observation:
    """Return the observation in `blob`; one that says so when there is none.

    Values of other names than the wanted ones are dropped, all when it is None kept. Texts are cut, and an
    observation that holds more than any answer's is no observation.
    """
    try:
        seen = Observation.from_tree(wire.unpack(blob))
        count = itertools.count()
        seen.values = {
            name: _bounded(value, count)
            for name, value in seen.values.items()
            if isinstance(name, str) and (wanted is None or name in wanted)
        }
        if seen.problem is not None:
            seen.problem = Problem(*(str(t)[:_TEXT_LIMIT] for t in seen.problem.tree().values()))
    except _TooMuch as error:
        return _unreadable(str(error))
    except Exception as error:  # hostile bytes can fail in any way; all of them are one
        return _unreadable(type(error).__name__)
    return seen


def _unreadable(why: str) -> Observation:
    text = f"What came back could not be read ({why})."
    return Observation(problem=Problem("unreadable", text, text))


def _bounded(value: Any, count: Iterator[int]) -> Any:
    """Return a value with its strings cut. Raises _TooMuch for one that is larger than any answer."""
    if next(count) >= _PARTS_LIMIT:
        raise _TooMuch(f"it holds more than {_PARTS_LIMIT} values")
    if isinstance(value, str):
        return value if len(value) <= _STRING_LIMIT else value[:_STRING_LIMIT] + "…"
    if isinstance(value, list):
        return [_bounded(item, count) for item in value]
    if isinstance(value, dict):
        return {_bounded(key, count): _bounded(item, count) for key, item in value.items()}
    if isinstance(value, torch.Tensor) and value.dim() > _AXES_LIMIT:
        raise _TooMuch(f"a tensor of {value.dim()} axes")
    if isinstance(value, int) and value.bit_length() > 64:
        raise _TooMuch("an integer of more than 64 bits")
    return value


def clean_outputs(outputs: Any, budget: int) -> tuple[list[NotebookNode], int]:
    """Return a cell's outputs as plain text and pictures only, and what is left of `budget` (bytes).

    HTML, JavaScript, SVG, LaTeX and widgets are dropped: a feedback page must run nothing of a learner's.
    """
    kept: list[NotebookNode] = []
    for raw in outputs[:_OUTPUTS_LIMIT] if isinstance(outputs, list) else []:
        cleaned = _clean_output(raw) if isinstance(raw, dict) else None
        if cleaned is None:
            continue
        size = len(repr(cleaned))
        if size > budget:
            kept.append(_stream("stderr", "[More output than is kept; the rest is left out.]\n"))
            return kept, 0
        budget -= size
        kept.append(_node(cleaned))
    return kept, budget


def _clean_output(raw: dict) -> dict | None:
    kind = raw.get("output_type")
    if kind == "stream":
        name = "stderr" if raw.get("name") == "stderr" else "stdout"
        return {"output_type": "stream", "name": name, "text": _text(raw.get("text"))}
    if kind in ("display_data", "execute_result"):
        data = raw.get("data")
        kept = _clean_data(data if isinstance(data, dict) else {})
        return {"output_type": "display_data", "data": kept, "metadata": {}} if kept else None
    if kind == "error":
        lines = raw.get("traceback")
        lines = lines[-_LINES_LIMIT:] if isinstance(lines, list) else []
        traceback = [_text(line)[:_STRING_LIMIT] for line in lines]
        return {
            "output_type": "error",
            "ename": _text(raw.get("ename"))[:_TEXT_LIMIT],
            "evalue": _text(raw.get("evalue"))[: 2 * _STRING_LIMIT],
            "traceback": traceback,
        }
    return None


def _clean_data(data: dict) -> dict[str, str]:
    kept = {}
    if "text/plain" in data:
        kept["text/plain"] = _text(data["text/plain"])
    for mime, magic in _PICTURES.items():
        with contextlib.suppress(ValueError, TypeError):
            picture = base64.b64decode("".join(_text(data.get(mime)).split()), validate=True)
            if picture.startswith(magic):
                kept[mime] = base64.b64encode(picture).decode()
    return kept


def _text(value: Any) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _node(data: dict) -> NotebookNode:
    node = from_dict(data)
    assert isinstance(node, NotebookNode)  # a dict always becomes one
    return node


def _stream(name: str, text: str) -> NotebookNode:
    return NotebookNode(output_type="stream", name=name, text=text)


def grade_notebook(
    jail: Jail,
    notebook: NotebookNode,
    notes: list[str],
    seed: int,
    limits: Limits | None = None,
    with_evidence: bool = False,
) -> Graded:
    """Grade one aligned notebook in `jail`, with cases drawn from `seed`."""
    return Session(jail, limits or jail.limits, seed, with_evidence).grade(notebook, notes)
