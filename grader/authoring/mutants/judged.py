"""Judge the mutants of one exercise: which of them keep full marks, and which of those are explained."""

from __future__ import annotations

import ast
import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.authoring.data_files import RECORDED_SEED
from grader.authoring.lesson import Cell, read_lesson
from grader.authoring.mutants.children import Died, Limits, TimedOut, in_children
from grader.authoring.mutants.made import mutants
from grader.errors import UserMistake
from grader.exercises.model import Exercise
from grader.judging.keys import draw_key
from transformer_lab.checking.judging.key import AnswerKey, judge
from transformer_lab.checking.probes.core import observe

Code = str | ast.Module
SURVIVED, TIMED_OUT, DIED = "survived", "timed out", "died"
FRESH = ", of fresh cases alone"  # a learner's check passes what an instructor's grade does not


@dataclass
class Judged:
    """What became of the mutants of one exercise: {change: what killed it, or SURVIVED}."""

    exercise: Exercise
    outcomes: dict[str, str] = field(default_factory=dict)

    @property
    def survivors(self) -> list[str]:
        """Changes that keep full marks without a reason."""
        return [
            c for c, end in self.outcomes.items() if end == SURVIVED and c not in self.exercise.equivalent
        ]

    @property
    def equivalent(self) -> list[str]:
        """Changes that keep full marks for a reason that the exercise gives."""
        return [c for c, end in self.outcomes.items() if end == SURVIVED and c in self.exercise.equivalent]

    @property
    def killed(self) -> int:
        return sum(end != SURVIVED for end in self.outcomes.values())

    @property
    def timed_out(self) -> int:
        return sum(end == TIMED_OUT for end in self.outcomes.values())

    @property
    def by_fresh(self) -> int:
        return sum(end.endswith(FRESH) for end in self.outcomes.values())

    @property
    def stale(self) -> dict[str, str]:
        """{an entry of `equivalent` that explains nothing: why not}."""
        found = {}
        for change in self.exercise.equivalent:
            end = self.outcomes.get(change, "")
            if end != SURVIVED:
                found[change] = f"it is killed: {end}" if end else "there is no such change (any more)"
        return found

    @property
    def explained(self) -> bool:
        return not self.survivors and not self.stale


@dataclass(frozen=True)
class Answer:
    """The cell of an exercise in its lesson, and what the lesson defines before it."""

    cell: Cell
    names: dict[str, Any]


def answers(lesson: Path) -> Iterator[tuple[str, Answer]]:
    """Yield (exercise, its Answer) of each TODO cell, running the lesson's setup and TODO cells in order."""
    names: dict[str, Any] = {"__name__": "__lesson__"}
    for cell in read_lesson(lesson):
        if cell.todo:
            yield cell.todo, Answer(cell, dict(names))
        if cell.kind == "code" and (cell.todo or cell.metadata.get("setup")):
            exec(compile(cell.source, f"<{lesson.name} line {cell.line}>", "exec"), names)


def judged(exercise: Exercise, answer: Answer, seeds: Sequence[int], workers: int) -> Judged:
    """Judge every mutant of an exercise on its recorded cases and on those drawn from `seeds`.

    Raises UserMistake when the lesson's own solution does not earn full marks: then survivors mean nothing.
    """
    keys = [_plain(draw_key(exercise, seed)) for seed in (RECORDED_SEED, *seeds)]

    def work(code: Code) -> str:
        return _lost_by(code, exercise, answer, keys)

    started = time.process_time()
    work(answer.cell.source)  # what torch loads at its first call is then there for every child
    limits = Limits.beside(time.process_time() - started)
    made = mutants(answer.cell.source)
    own, *ends = in_children(work, [answer.cell.source, *(m.tree for m in made)], workers, limits)
    if own != SURVIVED:
        raise UserMistake(
            f"{exercise.id}: the lesson's own solution does not earn full marks ({_word(own)}): "
            "no mutant of it is judged."
        )
    return Judged(exercise, {m.change: _word(end) for m, end in zip(made, ends, strict=True)})


def _word(end: Any) -> str:
    return {TimedOut: TIMED_OUT, Died: DIED}.get(type(end), end)


def _plain(key: AnswerKey) -> AnswerKey:
    """Return the key without mistakes: nobody reads a diagnosis here, and finding one takes longest."""
    return dataclasses.replace(key, misconceptions={})


def _lost_by(code: Code, exercise: Exercise, answer: Answer, keys: list[AnswerKey]) -> str:
    """Run a cell and judge what it defines; return by what it lost marks, or SURVIVED."""
    names = dict(answer.names)
    try:
        exec(compile(code, f"<mutant of {exercise.id}>", "exec"), names)
        symbol = names[exercise.symbol]
    except Exception as error:
        return f"the cell fails: {type(error).__name__}: {error}"
    for number, key in enumerate(keys):
        for part in _row_by_row(key):
            report = judge(part, lambda case: observe(symbol, case))
            if not report.passed:
                return f"row {report.rows[0].name!r}" + (FRESH if number else "")
    return SURVIVED


def _row_by_row(key: AnswerKey) -> Iterator[AnswerKey]:
    """Full marks need every row, so the first that fails decides, and the others need not run."""
    for row in key.rows:
        yield dataclasses.replace(key, rows=(dataclasses.replace(row, needs=()),))
