"""The smallest exercises and a lesson for them, from which tests make broken ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Mistake, Row
from transformer_lab.checking.probes.core import Case

CHAPTER = "97_small"


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


def negate(x):
    return -x


def add_itself(x):
    return x + x


def _cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.normal(3, 4)]})]


def Wrong(name: str, says: str, symbol: Any) -> Mistake:  # noqa: N802  (reads like the class it stands for)
    """A mistake that is an object and no cell, so that a test can make one that counts or fails."""
    return Mistake(name, says, "", symbol)


@dataclass(frozen=True)
class Small(Exercise):
    """An exercise whose mistakes and alternatives are given as objects."""

    @property
    def misconceptions(self) -> tuple[Mistake, ...]:
        return self.mistakes

    @property
    def other_answers(self) -> dict[str, Any]:
        return dict(self.alternatives)


DOUBLE = Small(
    id="97.1",
    symbol="double",
    kind="function",
    parameters=("x",),
    points=4,
    todos=("97.1", "97.2"),
    rows=(
        Row("twice", "every number is doubled", _cases, looks=("out",), weight=3),
        Row("input kept", "x is left unchanged", _cases, looks=("changed",), needs=("twice",)),
    ),
    reference=double,
    answer=double,
    mistakes=(
        Wrong("three", "You multiplied by 3.", triple),
        Wrong("sign", "You changed the sign.", negate),
    ),
    alternatives=(("sum", add_itself),),
    hints={"97.1": ("a", "b", "c"), "97.2": ("a", "b", "c")},
)

LESSON = """# %% [markdown]
# # A small lesson

# %% setup=true
import torch
from transformer_lab import check

# %% todo="97.1"
def double(x):
    # TODO 97.1: the number to multiply by
    ### BEGIN SOLUTION
    the_number_to_multiply_by = 2
    ### END SOLUTION
    # TODO 97.2: the product
    ### BEGIN SOLUTION
    return the_number_to_multiply_by * x
    ### END SOLUTION

# %% test="97.1" points=4
check("97.1", double)
### BEGIN HIDDEN TESTS
from grader import grade
grade("97.1", double)
### END HIDDEN TESTS
"""


def write_lesson(folder: Path, text: str = LESSON) -> Path:
    """Write a lesson where the build looks for it below the course folder `folder`; return its path."""
    path = folder / "solutions" / CHAPTER / f"{CHAPTER}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def changed(old: str, new: str, text: str = LESSON) -> str:
    """Return the lesson with `old`, which stands in it once, replaced."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the lesson"
    return text.replace(old, new)


def line_of(text: str, fragment: str, which: int = 0) -> int:
    """Return the number of the line of `text` that holds `fragment` (the `which`-th of them)."""
    return [number for number, line in enumerate(text.splitlines(), 1) if fragment in line][which]


def exercise(**changes: Any) -> Exercise:
    """Return the small exercise with some fields changed."""
    return replace(DOUBLE, **changes)


def stub(x):
    raise NotImplementedError("TODO 97.1")


def on_tensors(function: Callable) -> Callable:
    """Return `function` with the parameter's name that the exercise asks for."""

    def symbol(x: torch.Tensor):
        return function(x)

    return symbol
