"""Grade a chapter for a whole class.

    submitted/ ──► intake ──► pool of jails ──► one writer: autograded/, gradebook.db, records/

Only this process writes. A submission's notebook is written first, its marks next (in one transaction), its
record last; whatever moment a run is cut at, `resume` finds what is left by the records and ends with the
same marks.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import nbformat
from tqdm import tqdm

from grader.classroom import pool
from grader.classroom.course import Course
from grader.classroom.gradebook import GradebookWriter
from grader.classroom.lock import one_writer
from grader.classroom.records import Records, new_run
from grader.classroom.seeds import Seeds, handed_in
from grader.classroom.worth import other_points
from grader.errors import UnknownName, UserMistake
from grader.grading import intake
from grader.grading.job import Job, NotIsolated, Outcome
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


@dataclass
class Reading:
    """A submission that was read, and the seed that it is graded by."""

    submission: intake.Submission
    seed: int


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
    again: Mapping[str, tuple[str, int]] | None = None,
) -> Summary:
    """Grade the class and return the summary.

    students: ids or patterns (`a*`), and an id that looks like a pattern is an id; everyone with a folder for
        the chapter when None.
    resume: go on with the last run, with its seed; what it finished is left alone.
    isolated=False: see NO_JAIL. limits: what one submission may use.
    again: {student: (hash, seed)} of recorded marks that are recomputed, each by its own seed.
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
    chosen = _choose(intake.students(course.submitted(), chapter), students, chapter)
    for name in intake.unusable_names(course.submitted(), chapter):
        say(f"Left out: the folder {name} has a name that can be no student's id.")
    records = Records(course.root, chapter)
    this_run = _this_run(course, records, chapter, chosen, seed, release, resume, isolated)
    seeds = Seeds(records, this_run, dict(again or {}))
    jobs, submissions = _jobs(course, chapter, chosen, release, this_run, records, limits, seeds)
    summary = Summary(chapter, skipped=len(chosen) - len(jobs))
    start = time.monotonic()
    if scheduler:
        outcomes = pool.on_dask(jobs, scheduler)
    else:
        outcomes = pool.on_this_machine(jobs, workers or cores(), isolated)
    bar = tqdm(total=len(jobs), desc=chapter, unit="submission", disable=quiet or not jobs)
    with _writer(course, chapter, release) as writer, bar:
        for student, outcome in outcomes:
            bar.update()
            found = submissions.pop(student, None)
            if isinstance(outcome, UserMistake):  # of everyone's, not of this submission's
                raise outcome
            if not isinstance(outcome, BaseException):
                try:
                    record = _write(course, writer, found, chapter, outcome, this_run, create)
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


def _writer(course: Course, chapter: str, release: bytes) -> GradebookWriter:
    notebook = nbformat.reads(release.decode(), as_version=4)
    directory = course.directory
    return GradebookWriter(directory.db_url, directory.course_id, chapter, notebook, course.config)


def _choose(known: list[str], patterns: Iterable[str] | None, chapter: str) -> list[str]:
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
            submissions[student] = Reading(replace(found, data=None, digest=found.sha256), seed)
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


def _write(
    course: Course,
    writer: GradebookWriter,
    reading: Reading,
    chapter: str,
    outcome: Outcome,
    this_run: dict,
    create: bool,
) -> dict:
    """Write one submission's notebook and marks; return its record."""
    found = reading.submission
    notebook = nbformat.reads(outcome.notebook, as_version=4)
    folder = course.folder("autograded", found.student, chapter)
    _write_folder(folder, chapter, outcome.notebook, found.timestamp)
    late = writer.write(found.student, found.timestamp, outcome.marks, notebook, create)
    keys = ("marks", "points", "reports", "notes", "seconds", "peak_bytes")
    return {
        "kind": "mark",
        **{key: this_run[key] for key in ("run", "chapter", "exercises", "versions", "isolated")},
        "seed": reading.seed,
        "student": found.student,
        "submission": found.sha256,
        "timestamp": found.timestamp,
        "late_seconds": late,
        "score": round(sum(outcome.marks.values()), 2),
        "max": sum(outcome.points.values()),
        **{key: getattr(outcome, key) for key in keys},
    }


def _write_folder(folder: Path, chapter: str, notebook: str, timestamp: str | None) -> None:
    """Replace a student's autograded folder; nothing that was in it stays."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.is_dir():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / f"{chapter}.ipynb").write_text(notebook + "\n", encoding="utf-8")
    if timestamp:
        (folder / "timestamp.txt").write_text(timestamp + "\n")


def run_again(
    course: Course, chapter: str, students: Iterable[str] | None = None, unprotected: bool = False
) -> Summary:
    """Grade recorded submissions once more, each by its own seed and protection; write what comes out.

    unprotected: see `regrade`. Raises UserMistake as it does.
    """
    recorded = _recorded(course, chapter)
    chosen = _choose(sorted(recorded), students, chapter)
    summary = Summary(chapter)
    for isolated, names in _by_protection(recorded, chosen, unprotected).items():
        own = {s: (recorded[s]["submission"], recorded[s]["seed"]) for s in names}
        part = run(course, chapter, students=names, isolated=isolated, again=own)
        summary.graded += part.graded
        summary.failed |= part.failed
        summary.seconds += part.seconds
    return summary


def _recorded(course: Course, chapter: str) -> dict[str, dict]:
    recorded = Records(course.root, chapter).latest()
    if not recorded:
        raise UnknownName(f"Nothing of {chapter} has been graded yet.")
    return recorded


def _by_protection(recorded: dict[str, dict], chosen: list[str], unprotected: bool) -> dict[bool, list[str]]:
    """Return {True: students graded in a jail, False: students graded without}.

    Raises UserMistake when there are some without and nobody has said that their code may run so again.
    """
    groups: dict[bool, list[str]] = {}
    for student in chosen:
        groups.setdefault(recorded[student]["isolated"], []).append(student)
    if False in groups and not unprotected:
        raise UserMistake(
            f"{len(groups[False])} of these were graded WITHOUT isolation ({groups[False][0]!r} is one), and "
            "are recomputed as they were graded. Say --without-isolation if their code may run so again, "
            "or grade them anew with autograde."
        )
    return groups


@one_writer
def regrade(
    course: Course,
    chapter: str,
    students: Iterable[str] | None = None,
    quiet: bool = False,
    unprotected: bool = False,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Recompute every recorded mark from its submission and seed; return a line for each that differs.

    Nothing is written. A submission, an exercise set or a gradebook that has changed since is a difference
    too. unprotected: what was graded without a jail may run without one again.
    Raises UserMistake when there is such a record and it may not, and Busy while somebody else writes.
    """
    release = course.release(chapter)
    recorded = _recorded(course, chapter)
    chosen = _choose(sorted(recorded), students, chapter)
    groups = _by_protection(recorded, chosen, unprotected)
    if False in groups:
        say(NO_JAIL)
    now = exercises_hash(chapter, release)
    hashes: dict[str, str] = {}

    def again(student: str) -> Job:
        found, record = (
            intake.read_submission(course.submitted(), student, chapter, release),
            recorded[student],
        )
        hashes[student] = found.sha256
        about = {"chapter": chapter, "isolated": record["isolated"]}
        return Job(found.data, tuple(found.notes), release, record["seed"], **about)

    with _writer(course, chapter, release) as writer:
        in_book = writer.marks(chosen)
    differences = []
    bar = tqdm(total=len(chosen), desc=f"{chapter} again", unit="submission", disable=quiet)
    with bar:
        for isolated, names in groups.items():
            jobs: dict[str, pool.Read] = {student: partial(again, student) for student in names}
            with contextlib.closing(pool.on_this_machine(jobs, cores(), isolated)) as outcomes:
                for student, outcome in outcomes:
                    bar.update()
                    if isinstance(outcome, BaseException):
                        differences.append(f"{student!r}: could not be graded again: {outcome}")
                        continue
                    in_gradebook = in_book.get(student, {})
                    differences += _compare(
                        recorded[student], outcome.marks, in_gradebook, now, hashes[student]
                    )
    return sorted(differences)


def _compare(
    record: dict, marks: dict[str, float], in_book: dict[str, float], exercises: str, submission: str
) -> list[str]:
    who = record["student"]
    found = []
    if record["submission"] != submission:
        found.append(f"{who!r}: the submission has changed since it was graded")
    if record["exercises"] != exercises:
        found.append(f"{who!r}: the exercises have changed since it was graded")
    for name, mark in record["marks"].items():
        if marks.get(name) != mark:
            found.append(f"{who!r}, {name}: recorded {mark:g}, recomputed {marks.get(name)}")
        if in_book.get(name) != mark:
            found.append(f"{who!r}, {name}: recorded {mark:g}, the gradebook has {in_book.get(name)}")
    return found
