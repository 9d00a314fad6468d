"""`make bench`: ratios, each measured side by side in one run, so that a slow machine slows both sides.

Times are facts about a machine; ratios are facts about the code. No test depends on either.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import matplotlib as mpl

from grader.authoring.build import ROOT, chapters
from grader.authoring.selftest import namespace
from grader.exercises import of_chapter
from transformer_lab.checking import run_check
from transformer_lab.checking.probes.core import observe
from transformer_lab.checking.stored.recorded import recorded_key
from transformer_lab.widgets.base import STYLE
from transformer_lab.widgets.ch02 import Waves

REPEATS = 5
CHECK_AIM = 100.0  # milliseconds that a check may take once torch is imported


def bench(say: Callable[[str], None] = print) -> int:
    """Print every comparison and return 0."""
    for section in (checks, pictures, training, grading):
        say(f"\n{section.__doc__.splitlines()[0]}")
        section(say)
    return 0


def milliseconds(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median time of `run`."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def checks(say: Callable[[str], None]) -> None:
    """A check of a right answer, against running the learner's code on the same cases and nothing else"""
    for chapter in chapters():
        if not of_chapter(chapter):
            continue
        names = namespace(ROOT / "solutions" / chapter / f"{chapter}.py")
        for exercise in of_chapter(chapter):
            _check_line(exercise.id, names[exercise.symbol], say)


def _check_line(exercise: str, symbol: object, say: Callable[[str], None]) -> None:
    first = milliseconds(lambda: run_check(exercise, symbol), repeats=1)  # reads the recorded cases
    cases = [item.case for row in recorded_key(exercise).rows for item in row.cases]
    check = milliseconds(lambda: run_check(exercise, symbol))
    alone = milliseconds(lambda: [observe(symbol, case) for case in cases])
    over = "  OVER THE AIM" if check > CHECK_AIM else ""
    say(
        f"  {exercise:>5}  first {first:6.1f} ms   again {check:6.1f} ms   code alone {alone:6.1f} ms"
        f"   ratio {check / alone:5.2f}{over}"
    )


def pictures(say: Callable[[str], None]) -> None:
    """A picture after a key press: the figure kept and updated, against a new figure each time"""
    names = namespace(ROOT / "solutions" / "02_positional_encoding" / "02_positional_encoding.py")
    kept = Waves(names["PositionalEncoding"])
    positions = iter(range(10_000))

    def update() -> None:
        kept.set(position=next(positions) % 64).png()

    def anew() -> None:
        with mpl.rc_context(STYLE):
            Waves(names["PositionalEncoding"]).png()

    old, new = milliseconds(anew), milliseconds(update)
    say(f"  new figure {old:6.1f} ms   updated {new:6.1f} ms   ratio {old / new:5.2f}")


def training(say: Callable[[str], None]) -> None:
    """Training the translator: this course's parts, against torch.nn.Transformer of the same size"""
    from transformer_lab.translation import make_corpus
    from transformer_lab.translation.benchmark import compare_throughput

    say(f"  {compare_throughput(make_corpus(seed=0))}")


def grading(say: Callable[[str], None]) -> None:
    """A class of 60 on chapter 03: every submission in a jail, against stock nbgrader autograde"""
    from grader.workshop.bench_class import measure

    measure(say)
