"""Draw an answer key: cases from a seed, expected values from the reference, mistakes from the mistaken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from grader.errors import UserMistake
from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import selected
from transformer_lab.checking.judging.key import AnswerKey, KeyCase, KeyRow
from transformer_lab.checking.probes.core import Case, Observation, observe

Look = Callable[[Any, Case], Observation]  # observe, or one that remembers what it saw


class BadExercise(UserMistake, ValueError):
    """An exercise's own parts contradict each other; the author must mend it."""


class _Mistakes(Mapping):
    """What each misconception gives on one case, computed when asked for and kept."""

    def __init__(self, exercise: Exercise, case: Case, look: Look):
        self._symbols = {wrong.name: wrong.symbol for wrong in exercise.misconceptions}
        self._case, self._look = case, look
        self._seen: dict[str, Observation] = {}

    def __getitem__(self, name: str) -> Observation:
        if name not in self._seen:
            self._seen[name] = self._look(self._symbols[name], self._case)
        return self._seen[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._symbols)

    def __len__(self) -> int:
        return len(self._symbols)


def draw_key(exercise: Exercise, seed: int, look: Look = observe) -> AnswerKey:
    """Return the answer key of `exercise` with cases drawn from `seed`.

    Raises BadExercise when a row needs one that is not there, looks at nothing, or the reference fails on a
    case; BadEdit when a mistake no longer applies to its answer.
    """
    _check_needs(exercise)
    draw = Draw(seed)
    rows = tuple(_key_row(exercise, row, draw, look) for row in exercise.rows)
    misconceptions = {wrong.name: wrong.says for wrong in exercise.misconceptions}
    plain = (exercise.id, exercise.symbol, exercise.kind, exercise.parameters, exercise.points)
    return AnswerKey(*plain, rows, misconceptions, dict(exercise.forbidden), dict(exercise.spoken))


def _check_needs(exercise: Exercise) -> None:
    earlier: list[str] = []
    for row in exercise.rows:
        for need in row.needs:
            if need not in earlier:
                known = ", ".join(earlier) or "none"
                raise BadExercise(
                    f"{exercise.id}, row {row.name!r}: it needs {need!r}, which is no row above it ({known})"
                )
        if row.name in earlier:
            raise BadExercise(f"{exercise.id}: two rows are called {row.name!r}")
        earlier.append(row.name)


def _key_row(exercise: Exercise, row: Row, draw: Draw, look: Look) -> KeyRow:
    cases = tuple(
        KeyCase(case, expected_values(exercise, row, case), _Mistakes(exercise, case, look))
        for case in row.cases(draw)
    )
    return KeyRow(row.name, row.says, cases, row.needs, row.weight, row.tolerance)


def expected_values(exercise: Exercise, row: Row, case: Case) -> dict[str, Any]:
    """Return what the reference gives: values computed in float64, in the dtype of a native run."""
    native = observe(exercise.reference, case)
    exact = observe(exercise.reference, Case(case.probe, _in_float64(case.inputs)))
    for seen in (native, exact):
        if seen.problem:
            raise BadExercise(f"{exercise.id}, row {row.name!r}: the reference fails: {seen.problem.text}")
    names = selected(native.values, row.looks)
    if not names:
        raise BadExercise(f"{exercise.id}, row {row.name!r}: it looks at {row.looks}, which nothing reports")
    return {name: _in_dtype_of(native.values[name], exact.values[name]) for name in names}


def _in_float64(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.double() if tree.is_floating_point() else tree
    if isinstance(tree, dict):
        changed = {key: _in_float64(value) for key, value in tree.items()}
        return changed | {"dtype": "float64"} if "make" in changed else changed
    if isinstance(tree, (list, tuple)):
        return [_in_float64(item) for item in tree]
    return tree


def _in_dtype_of(native: Any, exact: Any) -> Any:
    if isinstance(native, torch.Tensor):
        return exact.to(native.dtype)
    return native if not isinstance(native, float) else exact
