"""The exercises: one module for each chapter, each with a tuple named EXERCISES."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from grader.exercise import Exercise
from grader.mistakes import UnknownName


def of_chapter(chapter: str) -> tuple[Exercise, ...]:
    """Return the exercises of one chapter ("02_positional_encoding"), none when it has none."""
    name = f"ch{chapter.split('_')[0]}"
    return importlib.import_module(f"{__name__}.{name}").EXERCISES if name in _modules() else ()


@cache
def _modules() -> tuple[str, ...]:
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name.startswith("ch")))


@cache
def by_chapter() -> dict[str, tuple[Exercise, ...]]:
    """Return {chapter: its exercises}, in course order."""
    modules = [importlib.import_module(f"{__name__}.{name}") for name in _modules()]
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
    number = exercise.split(".")[0]
    found = {e.id: e for e in of_chapter(number.zfill(2))} if number.isdigit() else {}
    if exercise not in found:  # only now import every chapter, to say what there is
        raise UnknownName(f"There is no exercise {exercise!r}. The exercises are: {', '.join(by_id())}.")
    return found[exercise]
