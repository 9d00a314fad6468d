"""The judge: draws fresh cases and decides. It sees observations only, never the learner's objects."""

from __future__ import annotations

import secrets
from functools import lru_cache

from grader.exercises import get
from grader.judging.keys import draw_key
from transformer_lab.checking.judging.key import AnswerKey, Observe, judge
from transformer_lab.checking.judging.report import Report

SEED_BITS = 32


@lru_cache(maxsize=256)
def fresh_key(exercise: str, seed: int) -> AnswerKey:
    """Return the key of `exercise` drawn from `seed` (kept: a class may be judged by the same one)."""
    return draw_key(get(exercise), seed)


def new_seed() -> int:
    """Return a seed that nobody can foresee."""
    return secrets.randbits(SEED_BITS)


def judge_fresh(exercise: str, observe: Observe, seed: int | None = None) -> Report:
    """Judge a learner's symbol on cases drawn from `seed` (fresh when None).

    observe: runs one Case on the learner's symbol and returns the Observation. It may cross a process
    boundary; what it returns is data, and nothing it says about marks is asked for.
    Raises LookupError when there is no such exercise.
    """
    return judge(fresh_key(exercise, new_seed() if seed is None else seed), observe)
