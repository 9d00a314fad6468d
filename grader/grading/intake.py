"""Find and read what a student handed in, without trusting a single name in it.

No link is followed, nothing is unpacked to disk, and no file but one notebook is read.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import os
import re
import stat
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from dateutil.parser import ParserError
from dateutil.parser import parse as parse_time

from grader.grading.align import FILE_LIMIT

_ZIP_MEMBERS = 1000
_COPY_SUFFIX = re.compile(r"[ _-]*(\(\d+\)|copy\s*\d*|copy\(\d+\)|final|v\d+)$", re.IGNORECASE)
_IGNORED = {"timestamp.txt", ".ipynb_checkpoints", "__pycache__", ".DS_Store", "feedback"}


@dataclass
class Submission:
    """One student's file for one chapter. `data` is None when there is none that can be read."""

    student: str
    data: bytes | None = None
    notes: list[str] = field(default_factory=list)
    timestamp: str | None = None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data or b"").hexdigest()


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


def read_submission(submitted: Path, student: str, chapter: str) -> Submission:
    """Read the student's notebook. Never raises for what is in the folder; `notes` tell what was odd."""
    found = Submission(student)
    base = os.open(submitted, os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder = _open_folder(base, student, chapter, found.notes)
        if folder is not None:
            try:
                _read_folder(folder, chapter, found)
            finally:
                os.close(folder)
    finally:
        os.close(base)
    return found


def _open_folder(base: int, student: str, chapter: str, notes: list[str]) -> int | None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        outer = os.open(student, flags, dir_fd=base)
        try:
            return os.open(chapter, flags, dir_fd=outer)
        finally:
            os.close(outer)
    except OSError as error:
        notes.append(
            f"The folder of the submission is a link or no folder; it was not followed ({error.strerror})."
        )
        return None


def _read_folder(folder: int, chapter: str, found: Submission) -> None:
    names = sorted(os.listdir(folder))
    found.timestamp = _timestamp(folder, names, found.notes)
    notebooks = [name for name in names if name.lower().endswith(".ipynb")]
    chosen = _choose(notebooks, chapter, found.notes)
    others = [n for n in names if n not in notebooks and n not in _IGNORED]
    if chosen is not None:
        found.data = _read_file(folder, chosen, found.notes)
    else:
        found.data = _from_archive(
            folder, [n for n in others if n.lower().endswith(".zip")], chapter, found.notes
        )
    if others:
        found.notes.append(
            f"Other files were not used: {', '.join(map(_shown, others[:5]))}{', …' if others[5:] else ''}."
        )


def _choose(notebooks: list[str], chapter: str, notes: list[str]) -> str | None:
    """Take the notebook of the right name; else the one whose name is nearest to it."""
    if not notebooks:
        return None
    exact = f"{chapter}.ipynb"
    near = [name for name in notebooks if _plain(name) == _plain(exact)]
    chosen = exact if exact in notebooks else (near or notebooks)[0]
    if chosen != exact:
        notes.append(f"The notebook is named {_shown(chosen)}, not {exact}.")
    if len(notebooks) > 1:
        rest = ", ".join(_shown(name) for name in notebooks if name != chosen)
        notes.append(f"There are {len(notebooks)} notebooks; {_shown(chosen)} was graded, not {rest}.")
    return chosen


def _plain(name: str) -> str:
    stem = name[: -len(".ipynb")]
    while _COPY_SUFFIX.search(stem):
        stem = _COPY_SUFFIX.sub("", stem)
    return stem.strip().lower()


def _read_file(folder: int, name: str, notes: list[str]) -> bytes | None:
    try:
        # NONBLOCK: opening a named pipe must not wait for its other end
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        notes.append(f"{_shown(name)} is a link or cannot be read; it was not followed ({error.strerror}).")
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            notes.append(f"{_shown(name)} is no ordinary file; it was not read.")
            return None
        return file.read(FILE_LIMIT + 1)


def _from_archive(folder: int, archives: list[str], chapter: str, notes: list[str]) -> bytes | None:
    """Read the notebook out of a zip file, in memory: a member's path is looked at, never written to."""
    for name in archives:
        data = _read_file(folder, name, notes)
        try:
            archive = zipfile.ZipFile(io.BytesIO(data or b""))
            members = {
                m.filename: m
                for m in archive.infolist()[:_ZIP_MEMBERS]
                if m.filename.lower().endswith(".ipynb")
            }
            odd = [m for m in members if m.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", m)]
            if odd:
                notes.append(
                    f"{_shown(name)} holds a path that leaves its folder ({_shown(odd[0])}); it was not used."
                )
            by_name = {re.split(r"[/\\]", m)[-1]: members[m] for m in members if m not in odd}
            chosen = _choose(sorted(by_name), chapter, notes)
            if chosen:
                notes.append(f"The notebook was taken out of {_shown(name)}.")
                with archive.open(by_name[chosen]) as file:
                    return file.read(FILE_LIMIT + 1)
        except (
            zipfile.BadZipFile,
            RuntimeError,
            NotImplementedError,
            OSError,
            ValueError,
            EOFError,
        ) as error:
            notes.append(f"{_shown(name)} could not be read as a zip file ({type(error).__name__}).")
    return None


def _timestamp(folder: int, names: list[str], notes: list[str]) -> str | None:
    """Return the time in timestamp.txt as ISO text in UTC, or None."""
    if "timestamp.txt" not in names:
        return None
    text = (_read_file(folder, "timestamp.txt", notes) or b"")[:100].decode("utf-8", "replace").strip()
    try:
        time = parse_time(text)
    except (ParserError, OverflowError, ValueError):
        notes.append("timestamp.txt does not hold a time; the submission counts as in time.")
        return None
    utc = datetime.UTC
    return (time.replace(tzinfo=utc) if time.tzinfo is None else time.astimezone(utc)).isoformat()


def _shown(name: str) -> str:
    """A file name as it may stand in a report."""
    return repr(name)[1:-1][:80]
