"""What an author writes for an exercise: rows of cases, a reference, misconceptions, alternatives, hints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from grader.draw import Draw
from transformer_lab.checking.compare import Tolerance
from transformer_lab.checking.probe import Case


@dataclass(frozen=True)
class Row:
    """One named aspect of an exercise.

    name: short and unique in the exercise; other rows' `needs` refer to it.
    says: what a learner reads beside the mark; true when the row passes.
    cases: draws this row's cases from a seeded Draw.
    looks: patterns for the observed values it compares ("out", "out.*", "grad.*", "attr.pe", "parameters",
        "buffers", "changed"). See transformer_lab.checking.probe for what probes report.
    needs: rows that must pass before this one is tried, so that nobody earns marks for the side
        conditions of a wrong answer.
    spoken: words for values in sentences, {"out.1": "the weights"}.
    """

    name: str
    says: str
    cases: Callable[[Draw], list[Case]]
    looks: tuple[str, ...] = ("out", "out.*")
    needs: tuple[str, ...] = ()
    weight: float = 1.0
    tolerance: Tolerance = Tolerance()
    spoken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wrong:
    """A misconception: its name, the sentence a learner reads, and an implementation that has it."""

    name: str
    says: str
    symbol: Any


@dataclass(frozen=True)
class Exercise:
    """One exercise. `todos` are the numbers of the TODOs that it covers, its own id first."""

    id: str
    symbol: str
    kind: str  # "function" or "module class"
    parameters: tuple[str, ...]
    points: float
    todos: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: Any  # independent of the lesson's solution, with the learner's interface
    misconceptions: tuple[Wrong, ...]
    alternatives: dict[str, Any]  # name -> a right implementation, written another way
    hints: dict[str, tuple[str, ...]]
    forbidden: dict[str, str] = field(default_factory=dict)
