"""Your own parts from earlier chapters, when they pass their checks; else the finished ones.

    from transformer_lab import mine
    attention = mine.load("attention")     # prints which one it is, and why

A part is read from the notebook as it was last saved, ../NN_topic/NN_topic.ipynb beside the current one. Of
that notebook only what the part needs is run: its answer cell, and the imports, helpers and values that it
refers to, wherever you wrote them. Pictures, checks and experiments are not run. Whatever is wrong with the
notebook, `load` says so in its line and gives the finished part, so one chapter never blocks another.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import linecache
import sys
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import torch

from transformer_lab.checking import run_check
from transformer_lab.checking.probes.problems import problem_of
from transformer_lab.checking.stored.recorded import UnknownExercise
from transformer_lab.language import _
from transformer_lab.parts.notebook_slice import Cell, Unreadable, pick

FINISHED = "transformer_lab.parts.finished"
PARTS = {
    "TokenEmbedding": "1.1",
    "build_vocab": "1.3",
    "encode": "1.4",
    "PositionalEncoding": "2.1",
    "LearnedPositionalEncoding": "2.7",
    "SelfAttention": "3.1",
    "attention": "3.6",
    "MultiHeadAttention": "4.2",
    "LayerNorm": "5.1",
    "PostNorm": "5.2",
    "PreNorm": "5.3",
    "RMSNorm": "5.4",
    "FeedForward": "6.1",
    "SwiGLU": "6.5",
    "EncoderLayer": "6.6",
    "Encoder": "6.7",
    "shift_right": "7.1",
    "causal_mask": "7.2",
    "padding_mask": "7.3",
    "target_mask": "7.4",
    "DecoderLayer": "7.5",
    "Decoder": "7.6",
    "OutputLayer": "8.1",
    "tie_weights": "8.2",
    "sequence_loss": "8.3",
    "Transformer": "8.4",
    "greedy": "8.5",
    "sampling_probs": "8.6",
    "beam_search": "8.7",
}
"""Every part that can be loaded, and the exercise whose check it has to pass."""


class Reason(StrEnum):
    """Why a part is the learner's own or the finished one, for code; `Found.why` tells people."""

    PASSES = "passes"
    FAILS = "fails"
    NOT_STARTED = "not started"
    NO_NOTEBOOK = "no notebook"
    NOT_DEFINED = "not defined"
    USES_FINISHED = "uses finished"
    UNREADABLE = "unreadable"
    NO_CHECK = "no check"


@dataclass(frozen=True)
class Found:
    """A part, why it is the learner's own or the finished one, and the sentence that says so."""

    name: str
    part: Any
    reason: Reason
    why: str

    @property
    def own(self) -> bool:
        """Whether the part is the learner's own."""
        return self.reason is Reason.PASSES

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def load(name: str, folder: Path | str | None = None) -> Any:
    """Return the part `name`: yours when it passes its check, else the finished one. Prints which and why.

    folder: what holds the chapters' folders; the parent of the current folder when not given.
    Raises LookupError for a name that is not one of PARTS. What is wrong with a notebook never raises.
    """
    found = find(name, folder)
    print(found)
    return found.part


def load_all(names: Iterable[str] = tuple(PARTS), folder: Path | str | None = None) -> dict[str, Any]:
    """Return {name: part} for many parts, as `load` chooses them, and print one line for each.

    The result fits the `parts` argument of `transformer_lab.parts`.
    """
    return {name: load(name, folder) for name in names}


def find(name: str, folder: Path | str | None = None, parts: Mapping[str, Any] | None = None) -> Found:
    """Return what `load` would, with its reason, and print nothing. Raises as `load` does.

    parts: {name: part} to stand in for finished parts that the notebook imports, so that parts built on each
    other are all the learner's own.
    """
    if name not in PARTS:
        raise LookupError(
            _("there is no part {name!r}; the parts are: {PARTS}").format(name=name, PARTS=", ".join(PARTS))
        )
    given = tuple(sorted((parts or {}).items()))
    part, reason, why = _own(name, Path.cwd().parent if folder is None else Path(folder), given)
    if reason is Reason.PASSES:
        return Found(name, part, reason, _("yours, {why}").format(why=why))
    finished = getattr(importlib.import_module(FINISHED), name)
    return Found(name, finished, reason, _("the finished part, since {why}").format(why=why))


Parts = tuple[tuple[str, Any], ...]
Verdict = tuple[Any, Reason, str]  # the learner's part or None, and why
_loading: list[tuple[str, Path]] = []  # a notebook whose code loads a part loads while it is being loaded


def _own(name: str, folder: Path, parts: Parts) -> Verdict:
    chapter = f"{int(PARTS[name].split('.')[0]):02d}"
    path = notebook_of(chapter, folder)
    if path is None:
        return _no_notebook(chapter)
    if (name, path) in _loading:
        return None, Reason.USES_FINISHED, _("{chapter} loads it from itself").format(chapter=path.stem)
    _loading.append((name, path))
    try:
        stamp = path.stat()
        return _judged(name, path, (stamp.st_mtime_ns, stamp.st_size), parts)
    except OSError as error:
        why = _("{chapter} could not be read ({error})")
        return None, Reason.UNREADABLE, why.format(chapter=path.stem, error=type(error).__name__)
    finally:
        _loading.pop()


def _no_notebook(chapter: str) -> Verdict:
    why = _("there is no notebook of yours for chapter {chapter}").format(chapter=chapter)
    return None, Reason.NO_NOTEBOOK, why


def notebook_of(chapter: str, folder: Path) -> Path | None:
    """Return FOLDER/NN_topic/NN_topic.ipynb of the chapter numbered NN, or None."""
    found = sorted(
        path for path in folder.glob(f"{chapter}_*/{chapter}_*.ipynb") if path.stem == path.parent.name
    )
    return found[0] if found else None


@cache
def _judged(name: str, path: Path, _stamp: tuple[int, int], parts: Parts) -> Verdict:
    """Run and check a part; kept until the notebook is saved again."""
    try:
        cells = read_cells(path)
        if any("### BEGIN SOLUTION" in cell.source for cell in cells):  # an instructor's notebook
            return _no_notebook(path.stem[:2])
        part = _run(name, path, cells, parts)
    except Unreadable as unreadable:
        return None, Reason.UNREADABLE, unreadable.told(path.stem)
    if part is None:
        return None, Reason.NOT_DEFINED, _("{chapter} does not define it").format(chapter=path.stem)
    if getattr(part, "__module__", "") == FINISHED:
        why = _("{chapter} uses the finished one too").format(chapter=path.stem)
        return None, Reason.USES_FINISHED, why
    return _verdict(name, part, path.stem)


def _verdict(name: str, part: Any, chapter: str) -> Verdict:
    exercise = PARTS[name]
    try:
        report = run_check(exercise, part)
    except UnknownExercise:
        why = _("this course has no check {exercise} to try yours from {chapter} with")
        return None, Reason.NO_CHECK, why.format(exercise=exercise, chapter=chapter)
    total = len(report.rows)
    if report.passed:
        why = _("from {chapter} (all {total} rows pass)").format(chapter=chapter, total=total)
        return part, Reason.PASSES, why
    if not report.attempted:
        why = _("TODO {todo} in {chapter} has not been started")
        return None, Reason.NOT_STARTED, why.format(todo=report.next_todo or exercise, chapter=chapter)
    passed = sum(row.status == "passed" for row in report.rows)
    why = _("yours in {chapter} passes {passed} of {total} rows")
    return None, Reason.FAILS, why.format(chapter=chapter, passed=passed, total=total)


# ---- running what a part needs ------------------------------------------------------------------------


def read_cells(path: Path) -> list[Cell]:
    """Return a notebook's code cells. Raises Unreadable when it is none, OSError when there is no file."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in tree["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in code]
        answers = [cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", "") for cell in code]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unreadable(_("there is no readable notebook in {chapter}")) from error
    return [
        Cell(source, str(answer).removeprefix("todo-").replace("-", "."), number)
        for number, (source, answer) in enumerate(zip(sources, answers, strict=True), 1)
    ]


_numbers = itertools.count(1)


def _run(name: str, path: Path, cells: list[Cell], parts: Parts) -> Any:
    """Run what the part needs in a module of its own and return the part, None when nothing defines it.

    `parts` take the place of finished ones in that module as soon as its code has imported them.
    Raises Unreadable with the reason when the code does not compile or stops.
    """
    module = types.ModuleType(f"mine_{path.stem}_{next(_numbers)}")
    sys.modules[module.__name__] = module  # dataclasses, pickle and copy look a class's module up by name
    for number, source, code in pick(cells, name, PARTS[name], f"{path.stem}.ipynb"):
        linecache.cache[code.co_filename] = (len(source), None, source.splitlines(True), code.co_filename)
        with _quietly():
            try:
                exec(code, vars(module))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit too: another chapter's mistake must not end this one
                raise Unreadable(
                    _("code cell {number} stops ({error}) in {chapter}"),
                    number=number,
                    error=problem_of(error).error,
                ) from error
        _hand_over(parts, vars(module))
    return vars(module).get(name)


def _hand_over(parts: Parts, names: dict[str, Any]) -> None:
    for name, part in parts:
        if getattr(names.get(name), "__module__", "") == FINISHED:
            names[name] = part


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep what the code prints to ourselves, and put torch's global state back."""
    rng, dtype, grad = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    sink = io.StringIO()
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_rng_state(rng)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
