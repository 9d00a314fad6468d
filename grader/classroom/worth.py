"""What the exercises of a release are worth.

The release decides how many points an exercise has, since those are what nbgrader shows and adds up: an
instructor who weighs a chapter's exercises anew in the source notebook and releases it means it. The exercise
decides which share of them is earned. So marks are scaled, and it is said.
"""

from __future__ import annotations

import nbformat

from grader.errors import UnknownName, UserMistake
from grader.exercises import get
from grader.grading.align import role
from grader.grading.session import test_call


def other_points(chapter: str, release: bytes) -> list[str]:
    """Return a line for each exercise that has other points in the release than its author gave it.

    Raises UserMistake when a test cell of the release is for no exercise there is.
    """
    lines = []
    for cell in nbformat.reads(release.decode(), as_version=4).cells:
        if role(cell) != "test":
            continue
        points = float(cell.metadata.nbgrader.points)
        exercise = _exercise(chapter, cell)
        if points != exercise.points:
            lines.append(
                f"Exercise {exercise.id} has {points:g} points in the release and {exercise.points:g} by its "
                f"author; its marks are scaled to {points:g}."
            )
    return lines


def _exercise(chapter: str, cell: nbformat.NotebookNode):
    name = cell.metadata.nbgrader.grade_id
    try:
        return get(test_call(cell.source)[0])
    except (ValueError, UnknownName) as problem:
        raise UserMistake(
            f"Nothing was graded: the test cell {name} of the released {chapter} cannot be judged "
            f"({' '.join(str(problem).split())}). Release the chapter anew from its source notebook."
        ) from None
