"""Test the tests: the solution earns everything, the stub nothing, each mistake less, under its own name."""

from __future__ import annotations

import inspect
import linecache
import math
import multiprocessing
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from grader.authoring.build import ROOT, select
from grader.authoring.data_files import RECORDED_SEED, is_recorded
from grader.authoring.lesson import Cell, read_lesson, without_solutions
from grader.exercises import of_chapter
from grader.exercises.edits import defined_by
from grader.exercises.model import Exercise, Mistake
from grader.judging.judge import new_seed
from grader.judging.keys import draw_key
from transformer_lab.checking.judging.compare import error_ratio
from transformer_lab.checking.judging.key import AnswerKey, judge
from transformer_lab.checking.judging.report import Report
from transformer_lab.checking.probes.core import Case, Observation, observe
from transformer_lab.checking.stored.recorded import record

FRESH_SEEDS = 2
MARGIN = 20.0  # the nearest mistake must be at least this many tolerances away


@dataclass
class Result:
    """What the self-test saw of one exercise; `faults` are sentences, empty when all is well."""

    exercise: Exercise
    solution: float = 0.0
    stub: float = 0.0
    named: int = 0
    accepted: int = 0
    margin: float = math.inf
    slack: float = 0.0  # the largest error of a right answer, in tolerances
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        wrong, other = len(self.exercise.misconceptions), len(self.exercise.alternatives) + 1
        margin = "shape only" if math.isinf(self.margin) else f"{self.margin:,.0f}x"
        return (
            f"{self.exercise.id:>5}  {self.exercise.symbol:<26} {self.solution:6.0%} {self.stub:6.0%}"
            f"   {self.named:>2}/{wrong:<2} {'' if not wrong else f'{self.named / wrong:4.0%}':>5}"
            f"   {self.accepted:>2}/{other:<2} {'' if not other else f'{self.accepted / other:4.0%}':>5}"
            f"   {margin:>12}   {self.slack:7.3f}"
        )


HEADER = (
    "   id  symbol                   solution   stub   misconceptions   alternatives   "
    "      margin     slack\n"
    "       (margin: the nearest mistake's error in tolerances; slack: the largest error of a right answer)"
)


def namespace(lesson: Path, stubs: bool = False) -> dict[str, Any]:
    """Run a lesson's setup and TODO cells (with solutions, or as stubs) and return what they define."""
    names: dict[str, Any] = {"__name__": "__lesson__"}
    for cell in read_lesson(lesson):
        if cell.kind == "code" and (cell.todo or cell.metadata.get("setup")):
            source = without_solutions(cell.source) if stubs and cell.todo else cell.source
            _run(source, f"<{lesson.name} line {cell.line}>", names)
    return names


def _run(source: str, filename: str, names: dict[str, Any]) -> None:
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), names)


def selftest(
    names: tuple[str, ...] = (),
    say: Callable[[str], None] = print,
    root: Path = ROOT,
    seeds: Sequence[int] | None = None,
    workers: int = 1,
) -> bool:
    """Test the exercises of the named chapters (all when none is named), print a table, return success.

    seeds: what the fresh cases are drawn from; FRESH_SEEDS new ones when None. They are printed, so that a
    fault can be looked at again. workers: chapters that are tested at once, each by a process of its own.
    """
    seeds = [new_seed() for _ in range(FRESH_SEEDS)] if seeds is None else list(seeds)
    say(f"fresh seeds (the same again: --seeds {' '.join(map(str, seeds))})\n{HEADER}")
    chapters = select(names, root)
    if workers == 1 or len(chapters) < 2:
        tested = [_tested(chapter, root, seeds, say) for chapter in chapters]
    else:
        tested = []
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            for one in pool.map(partial(_tested, root=root, seeds=seeds), chapters):
                for line in one.lines:
                    say(line)
                tested.append(one)
    faults = [fault for one in tested for fault in one.faults]
    for fault in faults:
        say(f"FAULT {fault}")
    exercises, wrong = sum(len(one.lines) for one in tested), sum(one.mistakes for one in tested)
    verdict = "all hold" if not faults else f"{len(faults)} faults"
    say(f"{exercises} exercises, {wrong} misconceptions, {len(seeds)} fresh seeds: {verdict}")
    return not faults


@dataclass(frozen=True)
class Tested:
    """What came of a chapter: a line for each exercise, the faults, and how many mistakes there are."""

    lines: tuple[str, ...]
    faults: tuple[str, ...]
    mistakes: int


def _nothing(_line: str) -> None:
    pass


def _tested(chapter: str, root: Path, seeds: Sequence[int], say: Callable[[str], None] = _nothing) -> Tested:
    results = list(chapter_results(chapter, root, say, seeds))
    return Tested(
        tuple(result.line() for result in results),
        tuple(fault for result in results for fault in result.faults),
        sum(len(result.exercise.misconceptions) for result in results),
    )


def chapter_results(
    chapter: str, root: Path, say: Callable[[str], None], seeds: Sequence[int]
) -> Iterator[Result]:
    """Yield the result of each exercise of a chapter, printing its line as it comes."""
    exercises = of_chapter(chapter)
    if not exercises:
        return
    lesson = root / "solutions" / chapter / f"{chapter}.py"
    solutions, stubs = namespace(lesson), namespace(lesson, stubs=True)
    for exercise in exercises:
        symbol = exercise.symbol
        result = test_exercise(exercise, solutions[symbol], stubs[symbol], seeds, root, solutions)
        say(result.line())
        yield result


class Memory:
    """`observe`, remembered: judging, naming and measuring look at the same cases again and again."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[Any, Case, Observation]] = {}

    def __call__(self, symbol: Any, case: Case) -> Observation:
        key = id(symbol), id(case)
        if key not in self._seen:  # both are kept, so that no other object gets their number
            self._seen[key] = symbol, case, observe(symbol, case)
        return self._seen[key][2]


def test_exercise(
    exercise: Exercise,
    solution: Any,
    stub: Any,
    seeds: Sequence[int],
    root: Path | None = None,
    notebook: Mapping[str, Any] | None = None,
) -> Result:
    """Judge the solution, the stub, every misconception and every alternative on recorded and fresh keys.

    root: where the recorded key lies that must be the same; not looked at when None.
    notebook: the names that a learner's cell knows, in which mistakes are run once more as cells.
    """
    result, look = Result(exercise), Memory()
    # The recorded key's mistakes are looked at twice, the second time as cells of the notebook: one that
    # comes out otherwise each time, or that uses what a learner's notebook does not know, is found.
    keys = [draw_key(exercise, RECORDED_SEED), *(draw_key(exercise, seed, look) for seed in seeds)]
    if root is not None and not is_recorded(exercise, record(keys[0]), root):
        result.faults.append(f"{exercise.id}: its recorded key is out of date; run `python -m grader build`")
    _test_interface(exercise, solution, result)
    result.solution = min(_share(key, solution, result, look) for key in keys)
    if result.solution < 1:
        result.faults.append(
            f"{exercise.id}: the solution earns {result.solution:.0%}\n{_first_bad(keys, solution, look)}"
        )
    result.stub = max(_judge(key, stub, look).share for key in keys)
    if result.stub > 0:
        result.faults.append(f"{exercise.id}: the stub earns {result.stub:.0%}")
    for wrong in exercise.misconceptions:
        _test_wrong(exercise, wrong, keys, result, look, notebook)
    for name, symbol in ({"the exercise's own answer": exercise.answer} | exercise.other_answers).items():
        share = min(_share(key, symbol, result, look) for key in keys)
        result.accepted += share == 1
        if share < 1:
            report = _first_bad(keys, symbol, look)
            result.faults.append(f"{exercise.id}: alternative {name!r} earns {share:.0%}\n{report}")
    _test_words(exercise, result)
    return result


test_exercise.__test__ = False  # not a pytest test, whatever its name


def _test_interface(exercise: Exercise, solution: Any, result: Result) -> None:
    own = tuple(inspect.signature(solution).parameters)
    if own != exercise.parameters:
        told = f"the exercise names the parameters {exercise.parameters}, the lesson has {own}"
        result.faults.append(f"{exercise.id}: {told}")


def _judge(key: AnswerKey, symbol: Any, look: Memory) -> Report:
    return judge(key, lambda case: look(symbol, case))


def _first_bad(keys: list[AnswerKey], symbol: Any, look: Memory) -> Report:
    return next(report for report in (_judge(key, symbol, look) for key in keys) if not report.passed)


def _share(key: AnswerKey, symbol: Any, result: Result, look: Memory) -> float:
    result.slack = max(result.slack, largest_error(key, symbol, look, only_values=True))
    return _judge(key, symbol, look).share


def _test_wrong(
    exercise: Exercise,
    wrong: Mistake,
    keys: list[AnswerKey],
    result: Result,
    look: Memory,
    notebook: Mapping[str, Any] | None,
) -> None:
    named, name = True, wrong.name
    typed = wrong.symbol
    if notebook is not None and wrong.source:
        typed = defined_by(wrong.source, exercise.symbol, notebook, f"{exercise.id}, mistake {name!r}")
    for key in keys:
        symbol = typed if key is keys[0] else wrong.symbol
        if (lost := _lost_import(key, symbol, look)) is not None:
            result.faults.append(
                f"{exercise.id}: misconception {name!r} fails for want of {lost}: the file must import it, "
                "with a comment that keeps it (# noqa: F401), and the lesson's setup too"
            )
        report = _judge(key, symbol, look)
        diagnosed = report.diagnosis[0] if report.diagnosis else None
        if report.passed or diagnosed != name:
            named = False
            what = "passes" if report.passed else f"is named {diagnosed!r}"
            result.faults.append(f"{exercise.id}: misconception {name!r} {what}\n{report}")
            break
        result.margin = min(result.margin, largest_error(key, symbol, look))
    result.named += named
    if result.margin < MARGIN and named and largest_error(keys[0], typed, look) < MARGIN:
        result.faults.append(
            f"{exercise.id}: misconception {name!r} is only {result.margin:.1f} tolerances away"
        )


_IMPORTED = ("torch", "F", "nn", "math", "Tensor")


def _lost_import(key: AnswerKey, symbol: Any, look: Memory) -> str | None:
    """Return the name of an import whose absence is all that makes a mistake fail."""
    problem = look(symbol, key.rows[-1].cases[0].case).problem
    found = re.match(r"NameError: name '(\w+)'", problem.error) if problem else None
    return found[1] if found and found[1] in _IMPORTED else None


def largest_error(key: AnswerKey, symbol: Any, look: Memory, only_values: bool = False) -> float:
    """Return the largest error of `symbol` over all cases, in tolerances (inf for a wrong shape or type)."""
    worst = 0.0
    for row in key.rows:
        for item in row.cases:
            seen = look(symbol, item.case)
            for name, value in item.expected.items():
                if name not in seen.values:
                    ratio = math.inf
                else:
                    ratio = error_ratio(value, seen.values[name], row.tolerance)
                if not (only_values and math.isinf(ratio)):
                    worst = max(worst, ratio)
    return worst


def _test_words(exercise: Exercise, result: Result) -> None:
    for todo in exercise.todos:
        if len(exercise.hints.get(todo, ())) < 3:
            result.faults.append(f"{exercise.id}: TODO {todo} needs a ladder of three hints")
    names = [wrong.name for wrong in exercise.misconceptions]
    if len(names) != len(set(names)):
        result.faults.append(f"{exercise.id}: two misconceptions have one name")


def learner_cells(lesson: Path) -> list[Cell]:
    """Return the TODO cells of a lesson, in order (for scripts that invent submissions)."""
    return [cell for cell in read_lesson(lesson) if cell.todo]
