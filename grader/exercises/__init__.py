"""The exercises: one module for each chapter, each with a tuple named EXERCISES."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from grader.exercise import Exercise
from grader.mistakes import UnknownName


@cache
def by_chapter() -> dict[str, tuple[Exercise, ...]]:
    """Return {chapter: its exercises}, in course order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("ch"))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {module.CHAPTER: module.EXERCISES for module in modules}


@cache
def by_id() -> dict[str, Exercise]:
    """Return {id: exercise} for the whole course.

    Raises ValueError when two exercises share an id or a TODO.
    """
    found: dict[str, Exercise] = {}
    todos: set[str] = set()
    for exercise in (e for group in by_chapter().values() for e in group):
        if exercise.id in found or todos & set(exercise.todos):
            raise ValueError(f"exercise {exercise.id}: its id or one of its TODOs is used twice")
        found[exercise.id] = exercise
        todos |= set(exercise.todos)
    return found


def get(exercise: str) -> Exercise:
    """Return one exercise. Raises UnknownName that lists the ids there are."""
    if exercise not in by_id():
        raise UnknownName(f"There is no exercise {exercise!r}. The exercises are: {', '.join(by_id())}.")
    return by_id()[exercise]
