"""Write what grading one submission gave: its notebook first, its marks next (in one transaction), and the
record last, so that the record says that all of it is there.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from grader.classroom.course import Course
from grader.classroom.gradebook import GradebookWriter
from grader.grading.intake import Submission
from grader.grading.job import Outcome

_SECRET = "submission_secret.txt"


@dataclass
class Reading:
    """A submission that was read (its data is not held any more), the seed that it is graded by, and the
    hash of what is kept of it (`kept.keep`).
    """

    submission: Submission
    seed: int
    kept: str | None = None


def writer_of(course: Course, chapter: str, release: bytes) -> GradebookWriter:
    """Return the gradebook's writer for a chapter. Raises UserMistake when the gradebook cannot be used."""
    notebook = nbformat.reads(release.decode(), as_version=4)
    directory = course.directory
    return GradebookWriter(directory.db_url, directory.course_id, chapter, notebook, course.config)


def write(
    course: Course,
    writer: GradebookWriter,
    reading: Reading,
    chapter: str,
    outcome: Outcome,
    this_run: dict[str, Any],
    create: bool = True,
) -> dict[str, Any]:
    """Write one submission's notebook and marks; return its record, which the caller appends.

    Raises what GradebookWriter.write does, and OSError.
    """
    found = reading.submission
    notebook = nbformat.reads(outcome.notebook, as_version=4)
    folder = course.folder("autograded", found.student, chapter)
    _write_folder(folder, chapter, outcome.notebook, found)
    late = writer.write(found.student, found.timestamp, outcome.marks, notebook, create)
    keys = ("marks", "points", "reports", "notes", "seconds", "peak_bytes")
    return {
        "kind": "mark",
        **{key: this_run[key] for key in ("run", "chapter", "exercises", "versions", "isolated")},
        "seed": reading.seed,
        "student": found.student,
        "submission": found.sha256,
        "kept": reading.kept,
        "found": found.notes,
        "timestamp": found.timestamp,
        "late_seconds": late,
        "score": round(sum(outcome.marks.values()), 2),
        "max": sum(outcome.points.values()),
        **{key: getattr(outcome, key) for key in keys},
    }


def _write_folder(folder: Path, chapter: str, notebook: str, found: Submission) -> None:
    """Replace a student's autograded folder; nothing that was in it stays but the exchange's secret.

    nbgrader's `release_feedback` takes both text files for granted and ends for everyone where one is
    missing, as it is for what came by another way than its exchange. So there are always both: a time that is
    not known is empty, a secret that is not known is one that nobody else can know.
    """
    secret = found.secret or _secret_in(folder) or secrets.token_hex(64)
    if folder.is_symlink():
        folder.unlink()
    elif folder.is_dir():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / f"{chapter}.ipynb").write_text(notebook + "\n", encoding="utf-8")
    (folder / "timestamp.txt").write_text(f"{found.timestamp}\n" if found.timestamp else "")
    (folder / _SECRET).write_text(secret)


def _secret_in(folder: Path) -> str:
    """Return the secret of the submission that was graded before: it may be recomputed, and is not read
    from the submission's folder then.
    """
    path = folder / _SECRET
    return path.read_text(encoding="ascii") if path.is_file() and not path.is_symlink() else ""
