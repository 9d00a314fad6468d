"""The visible check: run a learner's symbol on recorded cases and show what is right and what is not."""

from __future__ import annotations

import os
from typing import Any

from transformer_lab.checking.judging.key import judge
from transformer_lab.checking.judging.report import Report
from transformer_lab.checking.probes import observe
from transformer_lab.checking.stored.recorded import UnknownExercise, recorded_key
from transformer_lab.notebook import in_notebook


def run_check(exercise: str, symbol: Any) -> Report:
    """Judge `symbol` by the recorded cases of `exercise` ("2.1", or any TODO of it) and return the report.

    Raises UnknownExercise (a LookupError) when there is no such exercise.
    """
    return judge(recorded_key(exercise), lambda case: observe(symbol, case))


def check(exercise: str, symbol: Any = None) -> None:
    """Show, row by row, what `symbol` gets right. Never raises for a learner's mistake.

    exercise: the number of a TODO, such as "2.1".
    symbol: the class or function itself, such as PositionalEncoding.

    Under nbgrader's Validate it raises AssertionError unless every row passes, so that Validate works.
    Under nbgrader's autograde it is silent: `grade`, in the same cell, shows its own rows.
    """
    execution = os.environ.get("NBGRADER_EXECUTION")
    if execution == "autograde":
        return
    try:
        report = run_check(str(exercise), symbol)
    except UnknownExercise as unknown:
        print(unknown)
        return
    show(report)
    if execution == "validate" and not report.passed:
        raise AssertionError(str(report))


def show(report: Report) -> None:
    """Show a report: as HTML in a notebook, as text in a terminal."""
    if not in_notebook():
        print(report)
        return
    from IPython.display import display

    display({"text/html": report._repr_html_(), "text/plain": str(report)}, raw=True)
