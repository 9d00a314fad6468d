"""Recorded answer keys: data files that the build writes beside this module, one for each exercise."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from transformer_lab.checking.compare import Tolerance, error_ratio
from transformer_lab.checking.key import AnswerKey, KeyCase, KeyRow
from transformer_lab.checking.probe import Case, Observation
from transformer_lab.checking.problems import Problem
from transformer_lab.checking.wire import pack, unpack

DATA = Path(__file__).parent / "data"
INDEX = "index.json"  # which exercise a TODO belongs to


class UnknownExercise(LookupError):
    """There is no exercise of that number."""

    def __str__(self) -> str:
        return str(self.args[0])


@cache
def index() -> dict[str, str]:
    """Return {TODO: exercise} for the whole course."""
    return json.loads((DATA / INDEX).read_text(encoding="utf-8"))


def exercise_of(todo: str) -> str:
    """Return the exercise that a TODO belongs to ("2.3" → "2.1").

    Raises UnknownExercise, which lists the numbers there are.
    """
    if todo not in index():
        known = ", ".join(index())
        raise UnknownExercise(f"There is no TODO {todo!r}. The numbers are: {known}.")
    return index()[todo]


@cache
def _read(exercise: str) -> dict[str, Any]:
    return unpack((DATA / f"{exercise}.key").read_bytes())


def recorded_key(todo: str) -> AnswerKey:
    """Return the recorded key of the exercise that `todo` belongs to."""
    return key_from_tree(_read(exercise_of(todo))["key"])


def recorded_hints(todo: str) -> list[str]:
    """Return the hints of one TODO, from a question to pseudocode."""
    return _read(exercise_of(todo))["hints"][todo]


def record(key: AnswerKey, hints: dict[str, list[str]]) -> bytes:
    """Return the content of an exercise's data file."""
    return pack({"key": key_tree(key), "hints": hints})


def key_tree(key: AnswerKey) -> dict[str, Any]:
    """Return a key as a tree that `wire.pack` accepts."""
    rows = [
        {
            "name": row.name,
            "says": row.says,
            "needs": list(row.needs),
            "weight": row.weight,
            "tolerance": [row.tolerance.atol, row.tolerance.rtol],
            "spoken": row.spoken,
            "cases": [_case_tree(item, row.tolerance) for item in row.cases],
        }
        for row in key.rows
    ]
    plain = {name: getattr(key, name) for name in ("id", "symbol", "kind", "points")}
    return plain | {
        "parameters": list(key.parameters),
        "rows": rows,
        "misconceptions": [[name, says] for name, says in key.misconceptions.items()],  # in order
        "forbidden": key.forbidden,
    }


def _case_tree(item: KeyCase, tolerance: Tolerance) -> dict[str, Any]:
    wrong = {}
    for name, observation in item.wrong.items():
        values = {k: v for k, v in observation.values.items() if k in item.expected}
        # Most mistakes are right in most places: what is right is stored once, without its own rounding.
        values = {
            k: item.expected[k] if error_ratio(item.expected[k], v, tolerance) <= 1 else v
            for k, v in values.items()
        }
        problem = observation.problem
        if problem:  # known by its kind and error; its sentence quotes a line of the author's code
            problem = Problem(problem.kind, "", problem.error)
        wrong[name] = Observation(values, problem).tree()
    return {"case": item.case.tree(), "expected": item.expected, "wrong": wrong}


def key_from_tree(tree: dict[str, Any]) -> AnswerKey:
    """Rebuild a key from its tree."""
    rows = tuple(
        KeyRow(
            row["name"],
            row["says"],
            tuple(_case_from_tree(item) for item in row["cases"]),
            tuple(row["needs"]),
            row["weight"],
            Tolerance(*row["tolerance"]),
            row["spoken"],
        )
        for row in tree["rows"]
    )
    return AnswerKey(
        tree["id"],
        tree["symbol"],
        tree["kind"],
        tuple(tree["parameters"]),
        tree["points"],
        rows,
        dict(tree["misconceptions"]),
        tree["forbidden"],
    )


def _case_from_tree(tree: dict[str, Any]) -> KeyCase:
    wrong = {name: Observation.from_tree(seen) for name, seen in tree["wrong"].items()}
    return KeyCase(Case(**tree["case"]), tree["expected"], wrong)
