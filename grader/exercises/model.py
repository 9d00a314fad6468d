"""What an author writes for an exercise: rows of cases, a reference, mistakes, alternatives, hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from grader.exercises.draw import Draw
from grader.exercises.edits import Change, Whole, as_cell, defined_by, names_beside
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case


@dataclass(frozen=True)
class Row:
    """One named aspect of an exercise.

    name: short and unique in the exercise; other rows' `needs` refer to it.
    says: what a learner reads beside the mark; true when the row passes.
    cases: draws this row's cases from a seeded Draw.
    looks: patterns for the observed values it compares ("out", "out.*", "grad.*", "attr.pe", "parameters",
        "buffers", "changed"). See transformer_lab.checking.probes for what probes report.
    needs: rows that must pass before this one is tried, so that nobody earns marks for the side
        conditions of a wrong answer.
    """

    name: str
    says: str
    cases: Callable[[Draw], list[Case]]
    looks: tuple[str, ...] = ("out", "out.*")
    needs: tuple[str, ...] = ()
    weight: float = 1.0
    tolerance: Tolerance = Tolerance()


@dataclass(frozen=True)
class Mistake:
    """A known mistake: its name, the sentence a learner reads, and the cell that a learner would have typed."""

    name: str
    says: str
    source: str
    symbol: Any


@dataclass(frozen=True)
class Exercise:
    """One exercise. `todos` are the numbers of the TODOs that it covers, its own id first.

    answer: a right answer, as code. `mistakes` made by `edit` change its text.
    alternatives: right answers written another way; each one's name in reports is its own in the code.
    spoken: words for values in sentences, {"out.1": "the weights"}.
    forbidden: {a name that the answer must not use: why}; "{name}" in the sentence becomes the name.
    equivalent: {a change that the mutation test makes: why no input can tell it from the answer}.
    """

    id: str
    symbol: str
    kind: str  # "function" or "module class"
    parameters: tuple[str, ...]
    points: float
    todos: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: Any  # independent of the lesson's solution, with the learner's interface
    answer: Any
    mistakes: tuple[Change | Whole, ...]
    alternatives: tuple[Any, ...]
    hints: Mapping[str, tuple[str, ...]]
    spoken: Mapping[str, str] = field(default_factory=dict)
    forbidden: Mapping[str, str] = field(default_factory=dict)
    equivalent: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def misconceptions(self) -> tuple[Mistake, ...]:
        """The mistakes, each as a cell and as what that cell defines. Raises BadEdit."""
        return tuple(self._mistake(one) for one in self.mistakes)

    def _mistake(self, one: Change | Whole) -> Mistake:
        where = f"{self.id}, mistake {one.name!r}"
        cell = as_cell(one, self.answer, self.symbol, where)
        return Mistake(
            one.name, one.says, cell, defined_by(cell, self.symbol, names_beside(self.answer), where)
        )

    @cached_property
    def other_answers(self) -> dict[str, Any]:
        """{name: a right answer that is written another way}."""
        return {one.__name__: one for one in self.alternatives}
