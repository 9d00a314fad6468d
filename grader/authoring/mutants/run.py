"""The mutation test of the course: a table, a line for each change that no check notices, a verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from grader.authoring.build import ROOT, select
from grader.authoring.mutants.judged import Judged, answers, judged
from grader.exercises import of_chapter
from grader.judging.judge import new_seed

HEADER = "   id  symbol                       mutants  killed (in time)  equivalent  survivors"


@dataclass(frozen=True)
class Wish:
    """What to judge, and how.

    chapters: their names, all when empty.
    exercise: only this one.
    seeds: what fresh cases are drawn from, one new seed when None.
    workers: processes at once, one for each core when None.
    every: print what became of every mutant, not only of survivors.
    """

    chapters: tuple[str, ...] = ()
    exercise: str | None = None
    seeds: Sequence[int] | None = None
    workers: int | None = None
    every: bool = False


def test_mutants(wish: Wish, say: Callable[[str], None] = print, root: Path = ROOT) -> bool:
    """Judge mutants, print the table, return whether all that survive are explained."""
    torch.set_num_threads(1)
    seeds = [new_seed()] if wish.seeds is None else list(wish.seeds)
    say(f"fresh seeds (the same again: --seeds {' '.join(map(str, seeds))})\n{HEADER}")
    results = []
    for result in _results(wish, root, seeds):
        say(_row(result))
        results.append(result)
    for result in results:
        for line in _details(result, wish.every):
            say(line)
    say(_verdict(results))
    return all(result.explained for result in results)


test_mutants.__test__ = False  # not a pytest test, whatever its name


def _results(wish: Wish, root: Path, seeds: Sequence[int]) -> Iterator[Judged]:
    workers = wish.workers or len(os.sched_getaffinity(0))
    names = (wish.exercise.split(".")[0].zfill(2),) if wish.exercise else wish.chapters
    for chapter in select(names, root):
        exercises = {e.id: e for e in of_chapter(chapter) if wish.exercise in (None, e.id)}
        lesson = root / "solutions" / chapter / f"{chapter}.py"
        for name, answer in answers(lesson) if exercises else ():
            if name in exercises:
                yield judged(exercises[name], answer, seeds, workers)


def _row(result: Judged) -> str:
    return (
        f"{result.exercise.id:>5}  {result.exercise.symbol:<28} {len(result.outcomes):>7}"
        f"  {result.killed:>6} {f'({result.timed_out})':>9}  {len(result.equivalent):>10}"
        f"  {len(result.survivors):>9}"
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
