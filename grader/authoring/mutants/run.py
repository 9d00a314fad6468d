"""The mutation test of the course: a table, a line for each change that no check notices, a verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from grader.authoring.build import ROOT, select
from grader.authoring.lesson import read_lesson
from grader.authoring.mutants import record
from grader.authoring.mutants.judged import Judged, answers, judged
from grader.exercises import get, of_chapter
from grader.exercises.model import Exercise
from grader.judging.judge import new_seed

HEADER = (
    "   id  symbol                       mutants  killed (by time, by fresh cases only)"
    "  equivalent  survivors"
)


@dataclass(frozen=True)
class Wish:
    """What to judge, and how.

    chapters: their names, all when empty.
    exercise: only this one.
    changed: only exercises that differ from their record: as it is, or at the git revision of this name.
    seeds: what fresh cases are drawn from, one new seed when None.
    workers: processes at once, one for each core when None.
    every: print what became of every mutant, not only of survivors.
    """

    chapters: tuple[str, ...] = ()
    exercise: str | None = None
    changed: bool | str = False
    seeds: Sequence[int] | None = None
    workers: int | None = None
    every: bool = False


def test_mutants(wish: Wish, say: Callable[[str], None] = print, root: Path = ROOT) -> bool:
    """Judge mutants, print the table, record what is explained; return whether everything is.

    Raises UnknownName for a chapter or exercise that there is not, UserMistake for an exercise whose own
    solution is not right, a git revision that there is not, or a system without fork.
    """
    torch.set_num_threads(1)
    os.environ["CUDA_VISIBLE_DEVICES"] = (
        ""  # checks run on the CPU, and a process that uses a GPU cannot fork
    )
    seeds = [new_seed()] if wish.seeds is None else list(wish.seeds)
    say(f"fresh seeds (the same again: --seeds {' '.join(map(str, seeds))})\n{HEADER}")
    results = []
    for chapter, exercises in _wanted(wish, root):
        ours = []
        for result in _results(exercises, record.lesson_of(chapter, root), seeds, wish.workers):
            say(_row(result))
            ours.append(result)
        record.write(chapter, root, ours, {e.id for e in of_chapter(chapter)})
        results += ours
    for line in (line for result in results for line in _details(result, wish.every)):
        say(line)
    say(_verdict(results))
    return all(result.explained for result in results)


test_mutants.__test__ = False  # not a pytest test, whatever its name


def unrecorded(chapters: tuple[str, ...] = (), root: Path = ROOT) -> list[str]:
    """Return a line for each exercise whose mutants were not judged as it is now. Judges nothing."""
    found = []
    for chapter in select(chapters, root):
        entries, exercises = record.recorded(chapter, root), {e.id: e for e in of_chapter(chapter)}
        found += [f"{e.id}  {e.symbol}" for e in _differing(chapter, exercises.values(), entries, root)]
        found += [f"{name}  (no such exercise)" for name in entries if name not in exercises]
    return found


def _differing(
    chapter: str, exercises: Iterable[Exercise], entries: dict[str, dict], root: Path
) -> list[Exercise]:
    cells = read_lesson(record.lesson_of(chapter, root))
    return [e for e in exercises if not record.is_recorded(e, cells, entries)]


def _wanted(wish: Wish, root: Path) -> Iterator[tuple[str, list[Exercise]]]:
    chapters = wish.chapters
    if wish.exercise:
        chapters = (get(wish.exercise).id.split(".")[0].zfill(2),)
    for chapter in select(chapters, root):
        exercises = [e for e in of_chapter(chapter) if wish.exercise in (None, e.id)]
        if wish.changed:
            revision = wish.changed if isinstance(wish.changed, str) else None
            exercises = _differing(chapter, exercises, record.recorded(chapter, root, revision), root)
        if exercises:
            yield chapter, exercises


def _results(
    exercises: list[Exercise], lesson: Path, seeds: Sequence[int], workers: int | None
) -> Iterator[Judged]:
    wanted = {exercise.id: exercise for exercise in exercises}
    for name, answer in answers(lesson):
        if name in wanted:
            yield judged(wanted[name], answer, seeds, workers or _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _row(result: Judged) -> str:
    aside = f"({result.timed_out}, {result.by_fresh})"
    return (
        f"{result.exercise.id:>5}  {result.exercise.symbol:<28} {len(result.outcomes):>7}"
        f"  {result.killed:>6} {aside:<31}  {len(result.equivalent):>10}  {len(result.survivors):>9}"
    )


def _details(result: Judged, every: bool) -> Iterator[str]:
    name = result.exercise.id
    if every:
        yield from (f"{name}: {change}   [{end}]" for change, end in result.outcomes.items())
    yield from (f"SURVIVOR {name}: {change}" for change in result.survivors)
    yield from (
        f"STALE {name}: {change}\n      listed as equivalent, but {why}"
        for change, why in result.stale.items()
    )


def _verdict(results: list[Judged]) -> str:
    count = sum(len(result.outcomes) for result in results)
    open_ = sum(len(result.survivors) + len(result.stale) for result in results)
    return f"{len(results)} exercises, {count} mutants: " + (
        "all explained" if not open_ else f"{open_} unexplained"
    )
