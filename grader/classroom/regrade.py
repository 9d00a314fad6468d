"""Recompute recorded marks, each from what was graded, by its own seed and protection.

recompute   what would change, for whom, by the exercises as they are now; written only when that is asked for
verify      is every mark what its record says, and does the gradebook have it?
once_more   one student's, with the inputs on which rows failed
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tqdm import tqdm

from grader.classroom import pool
from grader.classroom.course import Course
from grader.classroom.gradebook import InBook
from grader.classroom.kept import NotKept, keep, kept
from grader.classroom.lock import one_writer
from grader.classroom.records import Records, new_run
from grader.classroom.run import NO_JAIL, choose, cores
from grader.classroom.worth import other_points
from grader.classroom.writing import Reading, write, writer_of
from grader.errors import UnknownName, UserMistake
from grader.grading import intake
from grader.grading.job import Job, NotIsolated, Outcome
from grader.jail import isolation_problem
from grader.judging.fingerprint import exercises_hash
from grader.judging.judge import new_seed

Say = Callable[[str], None]
OTHER_NOW = "another submission lies in the folder now, which this is not about: grade it with autograde"


@dataclass
class Again:
    """Marks that were recomputed.

    outcomes: {student: what came out}; failed: {student: why nothing did}; records: what they are compared
    with; in_book: what the gradebook has of them; elsewhere: whose folder holds something else by now.
    """

    chapter: str
    records: dict[str, dict[str, Any]]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    in_book: dict[str, InBook] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)

    def changes(self) -> list[str]:
        """Return a line for each mark that would change, and one for each student's total."""
        lines = []
        for student, outcome in sorted(self.outcomes.items()):
            lines += self._changes_of(student, outcome)
        return lines

    def _changes_of(self, student: str, outcome: Outcome) -> Iterator[str]:
        book = self.in_book.get(student, InBook())
        before = after = 0.0
        changed = False
        for name, mark in outcome.marks.items():
            old = book.auto.get(name, 0.0)
            by_hand = book.by_hand.get(name)
            before += old if by_hand is None else by_hand
            after += mark if by_hand is None else by_hand
            if old == mark:
                continue
            changed = True
            stays = "" if by_hand is None else f"; {by_hand:g}, given by hand, stays"
            yield f"{student!r}, {_title(outcome, name)}: {old:g} → {mark:g}{stays}"
        if changed:
            total = "stays" if round(before, 2) == round(after, 2) else f"{before:g} → {after:g}"
            yield f"{student!r}, total before any late penalty: {total} of {sum(outcome.points.values()):g}"

    def __str__(self) -> str:
        changes = self.changes()
        who = sum(", total before" in line for line in changes)
        lines = [f"{self.chapter}: {len(self.outcomes)} recomputed, {who} with another mark."]
        lines += [f"  {line}" for line in changes]
        lines += [f"  {student!r}: {OTHER_NOW}." for student in self.elsewhere]
        lines += [f"NOT RECOMPUTED: {student!r}: {why}" for student, why in sorted(self.failed.items())]
        return "\n".join(lines)


@one_writer
def recompute(
    course: Course,
    chapter: str,
    students: Iterable[str] | None = None,
    *,
    writing: bool = False,
    unprotected: bool = False,
    quiet: bool = False,
    say: Say = print,
) -> Again:
    """Recompute marks by the exercises as they are now; write them only where `writing` says so.

    Marks and comments given by hand stay. unprotected: what was graded without a jail may run so again.
    Raises UnknownName when nothing was graded, UserMistake when a record is of a run without a jail and that
    may not be repeated, NotIsolated, and Busy while somebody else writes.
    """
    again = _recompute(course, chapter, students, unprotected, quiet, say)
    if writing:
        _write(course, again)
    return again


def _write(course: Course, again: Again) -> None:
    chapter = again.chapter
    release, records = course.release(chapter), Records(course.root, chapter)
    with writer_of(course, chapter, release) as writer:
        for isolated, names in _by_protection(again.records, sorted(again.outcomes), True).items():
            this_run = new_run(chapter, new_seed(), release, isolated) | {"handed_in": {}, "again": True}
            records.append(this_run)
            for student in names:
                reading, outcome = _reading(again.records[student]), again.outcomes[student]
                try:
                    records.append(write(course, writer, reading, chapter, outcome, this_run, create=False))
                except UserMistake:  # the gradebook cannot be written to, for anybody
                    raise
                except Exception as error:  # this student's alone
                    again.failed[student] = f"{type(error).__name__}: {error}"


@one_writer
def verify(
    course: Course,
    chapter: str,
    students: Iterable[str] | None = None,
    quiet: bool = False,
    unprotected: bool = False,
    say: Say = print,
) -> list[str]:
    """Recompute every recorded mark; return a line for each that differs, from its record or the gradebook.

    Nothing is written. An exercise that has changed since, and a submission that is not graded yet, are
    differences too. Raises what `recompute` does.
    """
    again = _recompute(course, chapter, students, unprotected, quiet, say)
    now = exercises_hash(chapter, course.release(chapter))
    found = [f"{student!r}: {OTHER_NOW}" for student in again.elsewhere]
    found += [f"{student!r}: could not be graded again: {why}" for student, why in again.failed.items()]
    for student, outcome in again.outcomes.items():
        book = again.in_book.get(student, InBook()).auto
        found += _compare(again.records[student], outcome.marks, book, now)
    return sorted(found)


@one_writer
def once_more(
    course: Course, chapter: str, student: str, unprotected: bool = False, say: Say = print
) -> tuple[dict[str, Any], Outcome]:
    """Return one student's record, and the outcome recomputed now, with its evidence.

    Raises what `recompute` does, and UserMistake when it cannot be recomputed.
    """
    if student not in Records(course.root, chapter).latest():  # and no pattern
        raise UnknownName(f"There is no recorded mark of {student!r} in {chapter}.")
    again = _recompute(course, chapter, [student], unprotected, True, say, with_evidence=True)
    if student in again.failed:
        raise UserMistake(f"{student!r} cannot be recomputed: {again.failed[student]}")
    return again.records[student], again.outcomes[student]


# ---- recomputing -------------------------------------------------------------------------------------------


def _recompute(
    course: Course,
    chapter: str,
    students: Iterable[str] | None,
    unprotected: bool,
    quiet: bool,
    say: Say,
    with_evidence: bool = False,
) -> Again:
    release = course.release(chapter)
    other_points(chapter, release)  # refuses a release that nobody can judge
    recorded = Records(course.root, chapter).latest()
    if not recorded:
        raise UnknownName(f"Nothing of {chapter} has been graded yet.")
    chosen = choose(sorted(recorded), students, chapter)
    groups = _by_protection(recorded, chosen, unprotected)
    if False in groups:
        say(NO_JAIL)
    if True in groups and (problem := isolation_problem()):
        raise NotIsolated(problem)
    again = Again(chapter, {student: recorded[student] for student in chosen})
    with writer_of(course, chapter, release) as writer:
        again.in_book = {s: found for s in chosen if (found := writer.in_book(s)) is not None}
    read = partial(_job, course, chapter, release, again, with_evidence)
    for isolated, names in groups.items():
        jobs: dict[str, pool.Read] = {student: partial(read, student) for student in names}
        outcomes = pool.on_this_machine(jobs, cores(), isolated)  # before the bar, which starts a thread
        bar = tqdm(total=len(names), desc=f"{chapter} again", unit="submission", disable=quiet)
        with contextlib.closing(outcomes), bar:
            for student, outcome in outcomes:
                bar.update()
                if isinstance(outcome, BaseException):
                    again.failed[student] = str(outcome) or type(outcome).__name__
                else:
                    again.outcomes[student] = outcome
    again.elsewhere.sort()
    return again


def _job(course: Course, chapter: str, release: bytes, again: Again, evidence: bool, student: str) -> Job:
    """Say how to grade what a student's mark was given for. Raises NotKept."""
    record = again.records[student]
    now = None
    if student in intake.students(course.submitted(), chapter):
        now = intake.read_submission(course.submitted(), student, chapter, release)
        if now.sha256 != record["submission"]:
            again.elsewhere.append(student)
            now = None
    try:
        data, notes = kept(course.root, record), record["found"]
    except NotKept:
        if now is None:
            raise
        data, notes = now.data, now.notes
        again.records[student] = record | {
            "kept": keep(course.root, now.sha256, data),
            "found": now.notes,
        }
    about: dict[str, Any] = {"chapter": chapter, "isolated": record["isolated"], "with_evidence": evidence}
    return Job(data, tuple(notes), release, record["seed"], **about)


def _reading(record: dict[str, Any]) -> Reading:
    """Return what a record says of its submission: it is written anew as it was."""
    found = intake.Submission(
        record["student"],
        notes=record.get("found", []),
        timestamp=record["timestamp"],
        digest=record["submission"],
    )
    return Reading(found, record["seed"], record.get("kept"))


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


def _compare(
    record: dict, marks: dict[str, float], in_book: dict[str, float], exercises: str
) -> Iterator[str]:
    who = record["student"]
    if record["exercises"] != exercises:
        yield f"{who!r}: the exercises have changed since it was graded"
    for name, mark in record["marks"].items():
        if marks.get(name) != mark:
            yield f"{who!r}, {name}: recorded {mark:g}, recomputed {marks.get(name)}"
        if in_book.get(name) != mark:
            yield f"{who!r}, {name}: recorded {mark:g}, the gradebook has {in_book.get(name)}"


def _title(outcome: Outcome, grade_id: str) -> str:
    report = outcome.reports[grade_id]
    return f"{report['exercise']} {report['symbol']}"
