"""Judge, and when judging breaks, find out whose fault it is.

Odd data that a submission returned is the submission's: it earns nothing. Everything else is the grader's,
and must cost nobody a mark. The two are told apart by judging what is known: a right answer's observations
and those of every recorded mistake. Where that breaks too, the judge is broken.
"""

from __future__ import annotations

from collections.abc import Callable

from transformer_lab.checking.judging.key import AnswerKey, Observe
from transformer_lab.checking.judging.report import Report
from transformer_lab.checking.probes.core import Case, Observation
from transformer_lab.checking.probes.describe import DESCRIBE

Judge = Callable[[AnswerKey, Observe], Report]


class NotComparable(Exception):
    """What a submission returned could not be compared with anything."""


class JudgeFailed(RuntimeError):
    """The judge broke, whatever was handed in."""


def judged(judge: Judge, key: AnswerKey, observe: Observe) -> Report:
    """Return the verdict.

    Raises NotComparable for what was observed, JudgeFailed for a fault of the judge, and whatever `observe`
    raises, as it is.
    """
    eyes = _Watched(observe)
    try:
        return judge(key, eyes)
    except MemoryError:  # this machine's state, not the submission's: what comes back has a limit
        raise
    except Exception as error:
        if eyes.failed:
            raise
        _judge_what_is_known(judge, key, error)
        raise NotComparable(
            f"What your code returned could not be compared ({type(error).__name__})."
        ) from error


def _judge_what_is_known(judge: Judge, key: AnswerKey, first: Exception) -> None:
    for name in (None, *key.misconceptions):
        try:
            judge(key, _known(key, name))
        except Exception as error:
            text = f"the judge of exercise {key.id} broke: {type(first).__name__}: {first}"
            raise JudgeFailed(text[:500]) from error


def _known(key: AnswerKey, mistake: str | None) -> Observe:
    """Return the observations of a right answer, or of a recorded mistake as far as there are any."""
    seen = {}
    for row in key.rows:
        for item in row.cases:
            right = Observation(dict(item.expected))
            seen[id(item.case)] = item.wrong.get(mistake, right) if mistake else right
    about = Observation({"kind": key.kind, "name": key.symbol, "parameters": list(key.parameters)})

    def observe(case: Case) -> Observation:
        return about if case is DESCRIBE else seen[id(case)]

    return observe


class _Watched:
    """The judge's eyes, which remember whether it was they that failed."""

    def __init__(self, observe: Observe):
        self._observe = observe
        self.failed = False

    def __call__(self, case: Case) -> Observation:
        try:
            return self._observe(case)
        except BaseException:
            self.failed = True
            raise
