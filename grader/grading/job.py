"""Grade one submission: bytes in, JSON out. The same function runs here, in a pool and on a Dask worker.

It needs no shared disk, no gradebook and nothing from an earlier call; each process keeps one warm jail.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import lru_cache

import nbformat

from grader.errors import UserMistake
from grader.grading.align import align
from grader.grading.session import Graded, grade_notebook
from grader.jail import Jail, JailError, Limits, close_shared_jail, isolation_problem, shared_jail
from grader.judging.fingerprint import exercises_hash

_lock = threading.Lock()  # judging sets torch's defaults for a moment, so a process grades one at a time


class NotIsolated(UserMistake):
    """This machine cannot isolate learners' code, and nobody has said to go on without."""

    def __str__(self) -> str:
        return f"Learners' code cannot be isolated here: {self.args[0]}. See `--without-isolation`."


class OtherExercises(UserMistake):
    """A worker's copy of the course is not the one that the class is graded by."""

    def __str__(self) -> str:
        return "A worker has another version of the course than this machine. Bring both to the same."


def grade_bytes(
    data: bytes | None,
    notes: list[str],
    release: bytes,
    seed: int,
    limits: Limits | None = None,
    isolated: bool = True,
    exercises: tuple[str, str] | None = None,
) -> str:
    """Return what `result` describes, as JSON text.

    data: the submitted file, None when there is none; notes: what is known about it already.
    release: the released notebook; seed: draws the judge's cases.
    isolated=False runs learners' code WITHOUT a jail (no file or network protection at all).
    exercises: the chapter and the hash of what decides its marks, which must be the same here.
    Raises NotIsolated, OtherExercises or JailError, never anything for what a submission does.
    """
    if exercises and _exercises_here(exercises[0], release) != exercises[1]:
        raise OtherExercises
    with _lock:
        aligned = align(data, _release(release))
        graded = _try_twice(
            lambda: grade_notebook(
                warm_jail(isolated), aligned.notebook, [*notes, *aligned.notes], seed, limits
            )
        )
    return json.dumps(result(graded))


def result(graded: Graded) -> dict:
    """Return the outcome as plain data: marks, reports, notes, the graded notebook, what it cost."""
    return {
        "marks": {verdict.grade_id: verdict.score for verdict in graded.verdicts},
        "points": {verdict.grade_id: verdict.points for verdict in graded.verdicts},
        "reports": {verdict.grade_id: verdict.report.tree() for verdict in graded.verdicts},
        "notes": graded.notes,
        "notebook": nbformat.writes(graded.notebook, version=4),
        "seconds": round(graded.seconds, 3),
        "peak_bytes": graded.peak_bytes,
    }


@lru_cache(maxsize=4)
def _exercises_here(chapter: str, release: bytes) -> str:
    return exercises_hash(chapter, release)


@lru_cache(maxsize=4)
def _release(data: bytes) -> nbformat.NotebookNode:
    return nbformat.reads(data.decode(), as_version=4)


def _try_twice(grade: Callable[[], Graded]) -> Graded:
    """A jail that broke (its machine killed it, say) is started anew once."""
    try:
        return grade()
    except JailError:
        close_shared_jail()
        return grade()


def warm_jail(isolated: bool = True) -> Jail:
    """Return this process's jail, ready to use. Raises NotIsolated or JailError."""
    try:
        jail = shared_jail(isolated)
        jail.wait_until_warm()
    except JailError:
        if isolated and (problem := isolation_problem()):
            raise NotIsolated(problem) from None
        raise
    return jail
