"""Grade one submission: a Job in, an Outcome out. The same runs here, in a pool and on a Dask worker.

It needs no shared disk, no gradebook and nothing from an earlier call; each process keeps one warm jail.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

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


@dataclass(frozen=True)
class Job:
    """One submission and how it is to be graded; it can be sent to another machine.

    submission: the submitted file, None when there is none; notes: what is known about it already.
    release: the released notebook; seed: draws the judge's cases.
    isolated=False runs learners' code WITHOUT a jail (no file or network protection at all).
    exercises: the hash of what decides the chapter's marks, which must be the same where it is graded; not
        compared when it is empty.
    with_evidence: say on which input each row failed, for an appeal.
    """

    submission: bytes | None
    notes: tuple[str, ...]
    release: bytes
    seed: int
    chapter: str = ""
    exercises: str = ""
    limits: Limits | None = None
    isolated: bool = True
    with_evidence: bool = False


@dataclass(frozen=True)
class Outcome:
    """What grading one submission gave.

    marks, points, reports: by the test cell's grade_id. notebook: the graded one, as text.
    seconds, peak_bytes: what it cost. evidence: see grading.evidence; empty unless the job asks for it.
    """

    marks: dict[str, float]
    points: dict[str, float]
    reports: dict[str, dict[str, Any]]
    notes: list[str]
    notebook: str
    seconds: float
    peak_bytes: int
    evidence: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Outcome:
        return Outcome(**json.loads(text))


def grade(job: Job) -> Outcome:
    """Grade a submission.

    Raises NotIsolated, OtherExercises or JailError, never anything for what a submission does.
    """
    if job.exercises and _exercises_here(job.chapter, job.release) != job.exercises:
        raise OtherExercises
    with _lock:
        aligned = align(job.submission, _release(job.release))
        notes = [*job.notes, *aligned.notes]
        asked = (aligned.notebook, notes, job.seed, job.limits, job.with_evidence)
        return _outcome(_try_twice(lambda: grade_notebook(warm_jail(job.isolated), *asked)))


def grade_elsewhere(job: Job) -> str:
    """Grade in another process or on another machine: what comes back is JSON, not an object of its own."""
    return grade(job).to_json()


def _outcome(graded: Graded) -> Outcome:
    return Outcome(
        marks={verdict.grade_id: verdict.score for verdict in graded.verdicts},
        points={verdict.grade_id: verdict.points for verdict in graded.verdicts},
        reports={verdict.grade_id: verdict.report.tree() for verdict in graded.verdicts},
        notes=graded.notes,
        notebook=nbformat.writes(graded.notebook),
        seconds=round(graded.seconds, 3),
        peak_bytes=graded.peak_bytes,
        evidence=graded.evidence,
    )


@lru_cache(maxsize=4)
def _exercises_here(chapter: str, release: bytes) -> str:
    return exercises_hash(chapter, release)


@lru_cache(maxsize=4)
def _release(data: bytes) -> nbformat.NotebookNode:
    return nbformat.reads(data.decode(), as_version=4)


def _try_twice(attempt: Callable[[], Graded]) -> Graded:
    """A jail that broke (its machine killed it, say) is started anew once."""
    try:
        return attempt()
    except JailError:
        close_shared_jail()
        return attempt()


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
