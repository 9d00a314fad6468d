"""What is asked: a folder for each chapter, in it a module for each exercise. Runs and judges nothing.

An exercise is found by being there: a module `chNN/….py` that defines EXERCISE. `chNN/__init__.py` names the
chapter. Modules whose names begin with "_" are shared by a chapter's exercises.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from grader.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from grader.exercises.model import Exercise


@cache
def of_chapter(chapter: str) -> tuple[Exercise, ...]:
    """Return the exercises of one chapter ("02_positional_encoding") by number, none when it has none."""
    name = f"ch{chapter.split('_')[0]}"
    return _exercises(name) if name in _chapters() else ()


@cache
def _chapters() -> tuple[str, ...]:
    found = (module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    return tuple(sorted(name for name in found if name.startswith("ch")))


def _exercises(chapter: str) -> tuple[Exercise, ...]:
    package = importlib.import_module(f"{__name__}.{chapter}")
    names = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    for module in modules:
        if not hasattr(module, "EXERCISE"):
            raise UserMistake(
                f"{module.__file__} defines no EXERCISE. Define it; a module of shared code begins with '_'."
            )
    return tuple(sorted((module.EXERCISE for module in modules), key=lambda e: _number(e.id)))


def _number(exercise: str) -> tuple[int, ...]:
    return tuple(map(int, exercise.split(".")))


@cache
def by_chapter() -> dict[str, tuple[Exercise, ...]]:
    """Return {chapter: its exercises}, in course order."""
    packages = [importlib.import_module(f"{__name__}.{name}") for name in _chapters()]
    return {package.CHAPTER: of_chapter(package.CHAPTER) for package in packages}


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
