"""Grade a chapter for a whole class.

    submitted/ ──► intake ──► pool of jails ──► one writer: autograded/, gradebook.db, records/

Only this process writes (`writing`). Whatever moment a run is cut at, `resume` finds what is left by the
records and ends with the same marks.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tqdm import tqdm

from grader.classroom import pool
from grader.classroom.course import Course
from grader.classroom.kept import keep
from grader.classroom.lock import one_writer
from grader.classroom.records import Records, new_run
from grader.classroom.seeds import Seeds, handed_in
from grader.classroom.worth import other_points
from grader.classroom.writing import Reading, write, writer_of
from grader.errors import UnknownName, UserMistake
from grader.grading import intake
from grader.grading.job import Job, NotIsolated
from grader.jail import Limits, isolation_problem
from grader.judging.fingerprint import exercises_hash
from grader.judging.judge import new_seed

NO_JAIL = (
    "WARNING: learners' code runs WITHOUT isolation. It can read and change every file of this account, "
    "the gradebook and other submissions included, and reach the network."
)


@dataclass
class Summary:
    """What a run did."""

    chapter: str
    graded: list[dict] = field(default_factory=list)  # records
    failed: dict[str, str] = field(default_factory=dict)  # student: what went wrong in the grader itself
    skipped: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        late = sum(record["late_seconds"] > 0 for record in self.graded)
        odd = [record for record in self.graded if record["notes"]]
        times = sorted(record["seconds"] for record in self.graded) or [0.0]
        lines = [
            f"{self.chapter}: {len(self.graded)} graded in {self.seconds:.1f} s"
            + (f", {self.skipped} already graded before" if self.skipped else "")
            + f"; {late} late; {len(odd)} to look at.",
            f"Each took {statistics.median(times):.2f} s (median), {times[-1]:.2f} s (longest).",
        ]
        for record in odd:
            lines.append(f"  {record['student']!r}: {record['score']:g} of {record['max']:g}")
            lines += [f"      {note}" for note in record["notes"][:6]]
        lines += [
            f"THE GRADER FAILED on {name!r}, who has no mark: {why}" for name, why in self.failed.items()
        ]
        return "\n".join(lines)


@one_writer
def run(
    course: Course,
    chapter: str,
    *,
    students: Iterable[str] | None = None,
    workers: int | None = None,
    resume: bool = False,
    scheduler: str | None = None,
    seed: int | None = None,
    isolated: bool = True,
    limits: Limits | None = None,
    create: bool = True,
    quiet: bool = False,
    say: Callable[[str], None] = print,
) -> Summary:
    """Grade the class and return the summary.

    students: ids or patterns (`a*`), and an id that looks like a pattern is an id; everyone with a folder for
        the chapter when None.
    resume: go on with the last run, with its seed; what it finished is left alone.
    isolated=False: see NO_JAIL. limits: what one submission may use.
    Raises UnknownName for a chapter or students that are not there, NotIsolated, Busy while somebody else
    writes, UserMistake for a release or a run that cannot be gone on with, and the grader's own failures.
    """
    release = course.release(chapter)
    if not isolated:
        say(NO_JAIL)
    elif scheduler is None and (problem := isolation_problem()):
        raise NotIsolated(problem)
    for line in other_points(chapter, release):
        say(line)
    chosen = choose(intake.students(course.submitted(), chapter), students, chapter)
    for name in intake.unusable_names(course.submitted(), chapter):
        say(f"Left out: the folder {name} has a name that can be no student's id.")
    records = Records(course.root, chapter)
    this_run = _this_run(course, records, chapter, chosen, seed, release, resume, isolated)
    seeds = Seeds(records, this_run)
    jobs, submissions = _jobs(course, chapter, chosen, release, this_run, records, limits, seeds)
    summary = Summary(chapter, skipped=len(chosen) - len(jobs))
    start = time.monotonic()
    if scheduler:
        outcomes = pool.on_dask(jobs, scheduler)
    else:
        outcomes = pool.on_this_machine(jobs, workers or cores(), isolated)
    bar = tqdm(total=len(jobs), desc=chapter, unit="submission", disable=quiet or not jobs)
    with writer_of(course, chapter, release) as writer, bar:
        for student, outcome in outcomes:
            bar.update()
            found = submissions.pop(student, None)
            if isinstance(outcome, UserMistake):  # of everyone's, not of this submission's
                raise outcome
            if not isinstance(outcome, BaseException):
                try:
                    record = write(course, writer, found, chapter, outcome, this_run, create)
                    records.append(record)
                    summary.graded.append(record)
                except UserMistake:  # the gradebook cannot be written to, for anybody
                    raise
                except Exception as error:  # this student's alone, as what was raised before it
                    outcome = error
            if isinstance(outcome, BaseException):
                summary.failed[student] = f"{type(outcome).__name__}: {outcome}"
    summary.graded.sort(key=lambda record: record["student"])
    summary.seconds = time.monotonic() - start
    return summary


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose(known: list[str], patterns: Iterable[str] | None, chapter: str) -> list[str]:
    """Return the known students that ids or patterns select. Raises UnknownName for one that finds nobody."""
    if patterns is None:
        return known
    chosen = []
    for pattern in patterns:
        found = [s for s in known if s == pattern] or fnmatch.filter(known, pattern)
        if not found:
            raise UnknownName(f"Nobody called {pattern!r} handed in {chapter}.")
        chosen += found
    return sorted(dict.fromkeys(chosen))


def _this_run(
    course: Course,
    records: Records,
    chapter: str,
    chosen: list[str],
    seed: int | None,
    release: bytes,
    resume: bool,
    isolated: bool,
) -> dict:
    """Return the run to go on with, or begin one."""
    last = records.last_run()
    if resume and last:
        _check_resumable(last, exercises_hash(chapter, release), isolated, seed)
        return last
    begun = new_run(chapter, new_seed() if seed is None else seed, release, isolated)
    begun["handed_in"] = handed_in(course.submitted(), chapter, chosen, release)
    records.append(begun)
    return begun


def _check_resumable(last: dict, exercises: str, isolated: bool, seed: int | None) -> None:
    """Raise UserMistake when going on with that run would not be the run that was asked for."""
    if seed not in (None, last["seed"]):
        raise UserMistake("A resumed run goes on with its own seed. Leave out --seed, or --resume.")
    if last["exercises"] != exercises:
        raise UserMistake(
            "The exercises have changed since that run, so it cannot be resumed. Run without --resume."
        )
    if last.get("isolated", True) != isolated:
        was, wanted = ("in a jail", "without one") if not isolated else ("WITHOUT isolation", "in a jail")
        raise UserMistake(
            f"The run of {last['started']} graded {was}, and this one is to grade {wanted}, so it cannot be "
            "resumed. Run without --resume, which grades everybody anew."
        )


def _jobs(
    course: Course,
    chapter: str,
    chosen: list[str],
    release: bytes,
    this_run: dict,
    records: Records,
    limits: Limits | None,
    seeds: Seeds,
) -> tuple[dict, dict]:
    """Return {student: reads the submission and says how to grade it} and what was read so far."""
    done = records.latest(this_run["run"])
    submissions: dict[str, Reading] = {}

    def reader(student: str) -> pool.Read:
        def read() -> Job:
            found = intake.read_submission(course.submitted(), student, chapter, release)
            seed = seeds.seed_for(student, found.sha256)
            whole = keep(course.root, found.sha256, found.data)
            bare = replace(found, data=None, digest=found.sha256)
            submissions[student] = Reading(bare, seed, whole)
            return Job(
                found.data,
                tuple(found.notes),
                release,
                seed,
                chapter,
                this_run["exercises"],
                limits,
                this_run["isolated"],
            )

        return read

    left = []
    for student in chosen:
        finished = done.get(student)
        graded = course.folder("autograded", student, chapter) / f"{chapter}.ipynb"
        if finished and graded.is_file():
            with contextlib.suppress(Exception):  # what cannot be read now is told when its turn comes
                now = intake.read_submission(course.submitted(), student, chapter, release)
                if finished["submission"] == now.sha256:
                    continue
        left.append(student)
    return {student: reader(student) for student in left}, submissions
