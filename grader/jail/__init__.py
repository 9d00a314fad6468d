"""Runs learners' code where it can reach nothing. Knows no exercise, no answer and no mark."""

from grader.jail.outside import (
    Jail,
    JailError,
    Killed,
    Limits,
    Prisoner,
    close_shared_jail,
    isolation_problem,
    shared_jail,
    warm_up_early,
)

__all__ = [
    "Jail",
    "JailError",
    "Killed",
    "Limits",
    "Prisoner",
    "close_shared_jail",
    "isolation_problem",
    "shared_jail",
    "warm_up_early",
]
