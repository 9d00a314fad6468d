"""Find and read what a student handed in, without trusting a single name in it.

No link is followed, nothing is unpacked to disk, and what needs more than reading one plain file is done in
a limited process: see `finding`.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import nbformat

from grader.grading import limited
from grader.grading.finding import (
    PLAIN_LIMIT,
    Unreadable,
    choose,
    files_in,
    is_notebook,
    listed,
    others,
    read_file,
    shown,
    size_of,
)
from grader.grading.moment import in_utc

_STAMP = ("timestamp.txt",)
_SECRET = ("submission_secret.txt",)
_SECRET_FORM = re.compile(rb"\s*([0-9A-Za-z]{1,1000})\s*")  # nbgrader writes 128 hexadecimal digits


@dataclass
class Submission:
    """One student's file for one chapter. `data` is None when there is none that can be read.

    digest: the hash of what was handed in, where `data` is not that any more.
    secret: what nbgrader's exchange put beside it, by which the learner's feedback is found again.
    """

    student: str
    data: bytes | None = None
    notes: list[str] = field(default_factory=list)
    timestamp: str | None = None
    digest: str = ""
    secret: str | None = None

    @property
    def sha256(self) -> str:
        return self.digest or hashlib.sha256(self.data or b"").hexdigest()


def students(submitted: Path, chapter: str) -> list[str]:
    """Return the ids of all students with a folder for `chapter`, sorted."""
    return sorted(name for name in _folders(submitted, chapter) if name.isprintable())


def unusable_names(submitted: Path, chapter: str) -> list[str]:
    """Return the names of folders that can be no student's id: bytes that are no text, control characters."""
    return sorted(ascii(name) for name in _folders(submitted, chapter) if not name.isprintable())


def _folders(submitted: Path, chapter: str) -> list[str]:
    if not submitted.is_dir():
        return []
    names = [entry.name for entry in os.scandir(submitted) if not entry.name.startswith(".")]
    return [name for name in names if os.path.lexists(submitted / name / chapter)]


def read_submission(submitted: Path, student: str, chapter: str, release: bytes = b"") -> Submission:
    """Read the student's notebook; `notes` tell what was odd about what was handed in.

    release: the released notebook, by which the right one is told among several; by their names when empty.
    Never raises for what is in the folder: OSError when this machine cannot start the process that reads it.
    """
    found = Submission(student)
    folder = _open_folder(submitted, student, chapter, found.notes)
    if folder is not None:
        try:
            _read_folder(folder, chapter, release, found)
        finally:
            os.close(folder)
    return found


def _open_folder(submitted: Path, student: str, chapter: str, notes: list[str]) -> int | None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    opened: list[int] = []
    try:
        opened.append(os.open(submitted, os.O_RDONLY | os.O_DIRECTORY))
        opened.append(os.open(student, flags, dir_fd=opened[0]))
        return os.open(chapter, flags, dir_fd=opened[1])
    except OSError as error:
        notes.append(
            f"The folder of the submission is a link or no folder; it was not followed ({error.strerror})."
        )
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _read_folder(folder: int, chapter: str, release: bytes, found: Submission) -> None:
    files = files_in(folder, found.notes)
    if _STAMP in files:
        found.timestamp = _timestamp(folder, found.notes)
    if _SECRET in files:
        found.secret = _secret(folder, found.notes)
    exact = (f"{chapter}.ipynb",)
    candidates = [path for path in files if is_notebook(path[-1]) or path[-1].lower().endswith(".zip")]
    if candidates == [exact] and size_of(folder, exact) <= PLAIN_LIMIT:
        found.data = _plainly(folder, exact, found.notes)
    elif candidates:
        _choose_within_limits(folder, files, chapter, release, found)
    if rest := others(files):
        found.notes.append(f"Other files were not used: {listed(rest)}.")


def _plainly(folder: int, path: tuple[str, ...], notes: list[str]) -> bytes | None:
    try:
        return read_file(folder, path)
    except Unreadable as error:
        notes.append(f"{shown('/'.join(path))} {error}.")
        return None


def _choose_within_limits(
    folder: int, files: list[tuple[str, ...]], chapter: str, release: bytes, found: Submission
) -> None:
    book = _parsed(release)

    def work() -> limited.Plain:
        notes: list[str] = []
        chosen = choose(folder, files, chapter, book, notes)
        if chosen is None or chosen.data is None:
            return {"digest": None, "notes": notes}, b""
        return {"digest": chosen.digest, "notes": notes}, chosen.data

    try:
        tree, data = limited.call(work)
    except limited.Refused as refused:
        found.notes.append(f"What was handed in could not be looked into: {refused}.")
        exact = (f"{chapter}.ipynb",)
        if exact in files and size_of(folder, exact) <= PLAIN_LIMIT:
            found.data = _plainly(folder, exact, found.notes)
        return
    found.notes += tree["notes"]
    if tree["digest"]:
        found.data, found.digest = data, tree["digest"]


@lru_cache(maxsize=4)
def _parsed(release: bytes) -> nbformat.NotebookNode | None:
    return nbformat.reads(release.decode(), as_version=4) if release else None


def _timestamp(folder: int, notes: list[str]) -> str | None:
    data = _plainly(folder, _STAMP, notes)
    return None if data is None else in_utc(data[:100].decode("utf-8", "replace"), notes)


def _secret(folder: int, notes: list[str]) -> str | None:
    data = _plainly(folder, _SECRET, notes)
    found = None if data is None else _SECRET_FORM.fullmatch(data)
    return found[1].decode() if found else None  # one that is none is made anew when the folder is written
