"""What only an instructor or an author runs: building, judging and grading the course.

The rooms, and who may look into whom (`make lint` enforces it):

    cli ─► workshop ─► nbgrader_adapter ─► classroom ─► grading   ─► jail
                                       └─► authoring ─┴─► judging ─► exercises ─► errors, layout
"""

from __future__ import annotations

from typing import Any


def grade(exercise: str, symbol: Any = None) -> float:
    """Judge `symbol` on freshly drawn cases, show the rows and return the points earned (a plain float).

    It stands in the hidden tests of an instructor's notebooks. Raises LookupError when there is no such
    exercise.
    """
    # imported here, so that nbgrader's own commands, which import this package, do not wait for torch
    from grader.judging.judge import judge_fresh
    from transformer_lab.checking import show
    from transformer_lab.checking.probes import observe

    report = judge_fresh(str(exercise), lambda case: observe(symbol, case))
    show(report)
    return report.score
