"""Recorded answer keys: data files that the build writes beside this module, one for each exercise."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from transformer_lab.checking.judging.compare import Tolerance, error_ratio
from transformer_lab.checking.judging.key import AnswerKey, KeyCase, KeyRow
from transformer_lab.checking.probes.core import Case, Observation
from transformer_lab.checking.probes.problems import Problem
from transformer_lab.checking.stored.wire import pack, unpack
from transformer_lab.language import _

DATA = Path(__file__).parent / "data"
INDEX = "index.json"  # which exercise a TODO belongs to
SENTENCES = "sentences.json"  # what a learner reads, by exercise and by name: rows, mistakes, hints, …

Sentences = dict[str, dict[str, Any]]


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
        raise UnknownExercise(
            _("There is no TODO {todo!r}. The numbers are: {known}.").format(todo=todo, known=known)
        )
    return index()[todo]


@cache
def _read(exercise: str) -> dict[str, Any]:
    return unpack((DATA / f"{exercise}.key").read_bytes())


@cache
def sentences() -> dict[str, Sentences]:
    """Return {exercise: its sentences in English}; a recorded key knows them by their names."""
    return json.loads((DATA / SENTENCES).read_text(encoding="utf-8"))


def recorded_key(todo: str) -> AnswerKey:
    """Return the recorded key of the exercise that `todo` belongs to, in the learner's language."""
    exercise = exercise_of(todo)
    return key_from_tree(_read(exercise), sentences()[exercise])


def recorded_hints(todo: str) -> list[str]:
    """Return the hints of one TODO, from a question to pseudocode, in the learner's language."""
    return [_(hint) for hint in sentences()[exercise_of(todo)]["hints"][todo]]


def record(key: AnswerKey) -> bytes:
    """Return the content of an exercise's data file: everything but the sentences."""
    return pack(key_tree(key))


def key_tree(key: AnswerKey) -> dict[str, Any]:
    """Return a key as a tree that `wire.pack` accepts. Rows and mistakes are in it by name alone."""
    rows = [
        {
            "name": row.name,
            "needs": list(row.needs),
            "weight": row.weight,
            "tolerance": [row.tolerance.atol, row.tolerance.rtol],
            "cases": [_case_tree(item, row.tolerance) for item in row.cases],
        }
        for row in key.rows
    ]
    plain = {name: getattr(key, name) for name in ("id", "symbol", "kind", "points")}
    return plain | {"parameters": list(key.parameters), "rows": rows, "mistakes": list(key.misconceptions)}


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


def key_from_tree(tree: dict[str, Any], sentences: Sentences) -> AnswerKey:
    """Rebuild a key from its tree and its sentences, which are translated here."""
    said = {
        part: {k: _(text) for k, text in sentences[part].items()} for part in sentences if part != "hints"
    }
    rows = tuple(
        KeyRow(
            row["name"],
            said["rows"][row["name"]],
            tuple(_case_from_tree(item) for item in row["cases"]),
            tuple(row["needs"]),
            row["weight"],
            Tolerance(*row["tolerance"]),
        )
        for row in tree["rows"]
    )
    mistakes = {name: said["mistakes"][name] for name in tree["mistakes"]}
    plain = (tree["id"], tree["symbol"], tree["kind"], tuple(tree["parameters"]), tree["points"])
    return AnswerKey(*plain, rows, mistakes, said["forbidden"], said["spoken"])


def _case_from_tree(tree: dict[str, Any]) -> KeyCase:
    wrong = {name: Observation.from_tree(seen) for name, seen in tree["wrong"].items()}
    return KeyCase(Case(**tree["case"]), tree["expected"], wrong)
