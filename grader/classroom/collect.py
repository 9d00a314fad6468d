"""Take a download of Canvas or Moodle apart: each file into its student's folder, by the roster.

    FILE.zip ──► submitted/STUDENT/CHAPTER/     what was there before ──► submitted_before/STUDENT/CHAPTER/N/

Names in the file are hostile, and so may be its data: nothing is written but below a student's folder, and
what cannot be read costs its own student only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nbgrader.api import Gradebook

from grader.classroom.course import Course
from grader.classroom.lms import Named, Roster, parse
from grader.classroom.lock import one_writer
from grader.errors import UserMistake
from grader.grading.finding import is_notebook
from grader.grading.reading import FILE_LIMIT

_MEMBERS = 20_000  # files of one download
_FILES = 50  # files of one student
_NAME = 100  # characters of a file's name
_OURS = {"timestamp.txt", "submission_secret.txt"}  # what a platform says, never a student


@dataclass
class Collected:
    """What became of a download. Values are students' ids, or names in the file."""

    chapter: str
    new: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)  # handed in something else before
    same: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    nothing: list[str] = field(default_factory=list)  # of the roster, and not in the file
    unmatched: dict[str, str] = field(default_factory=dict)  # name: why
    failed: dict[str, str] = field(default_factory=dict)  # student: why

    def __str__(self) -> str:
        total = len(self.new) + len(self.again) + len(self.same)
        lines = [f"{self.chapter}: {total} submissions; {len(self.new)} are new, {len(self.same)} unchanged."]
        if self.again:
            lines.append(f"Handed in again (the earlier one is in submitted_before/): {_list(self.again)}.")
        if self.late:
            lines.append(
                f"Canvas says LATE, but not how late, so no penalty follows from it: {_list(self.late)}."
            )
        if self.nothing:
            lines.append(f"Of the roster, not in the file: {_list(self.nothing)}.")
        lines += [f"NOT TAKEN: {name!r}: {why}." for name, why in self.unmatched.items()]
        lines += [f"NOT TAKEN: what {name!r} handed in: {why}." for name, why in self.failed.items()]
        return "\n".join(lines)


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


@one_writer
def collect(course: Course, download: Path, chapter: str) -> Collected:
    """Put the submissions of a download where grading finds them.

    Raises UserMistake when the file is no zip file, when nothing in it has a name as Canvas or Moodle give
    them, or when the class has no roster; Busy while somebody grades.
    """
    roster = _roster(course)
    done = Collected(chapter)
    with _opened(download) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and not _aside(m.filename)]
        if len(members) > _MEMBERS:
            raise UserMistake(f"{download} holds {len(members)} files; that is no download of one class.")
        files = _by_student(members, roster, done)
        if not files and not done.unmatched:
            raise UserMistake(
                f"No file in {download} is named as Canvas or Moodle name them. Download all submissions of "
                "the assignment there, and give the zip file as it is."
            )
        for student, own in sorted(files.items()):
            try:
                _take(course, archive, student, own, done)
            except OSError as error:
                raise UserMistake(f"{course.submitted()} cannot be written to ({error}).") from None
            except Exception as error:  # damaged data: whatever a decoder raises
                done.failed[student] = f"it cannot be read out of the zip file ({type(error).__name__})"
    done.nothing = sorted(set(roster.ids) - set(files))
    return done


def _roster(course: Course) -> Roster:
    with Gradebook(course.directory.db_url, course.directory.course_id) as book:
        roster = Roster(list(book.students))
    if not roster.ids:
        raise UserMistake(
            "The class has no roster, so nobody can be told whose file is whose. Import one: "
            "nbgrader db student import ROSTER.csv"
        )
    return roster


def _opened(download: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(download)
    except OSError as error:
        raise UserMistake(f"{download} cannot be read ({error.strerror}).") from None
    except Exception as error:  # zipfile raises whatever comes to it for bytes that are none
        raise UserMistake(f"{download} is no zip file ({type(error).__name__}).") from None


def _aside(name: str) -> bool:
    parts = name.split("/")
    return "__MACOSX" in parts or parts[-1].startswith("._") or parts[-1] == ".DS_Store"


def _by_student(
    members: list[zipfile.ZipInfo], roster: Roster, done: Collected
) -> dict[str, list[tuple[Named, zipfile.ZipInfo]]]:
    files: dict[str, list[tuple[Named, zipfile.ZipInfo]]] = {}
    for member in members:
        named = parse(member.filename)
        if named is None or named.kind != "file":
            if named is not None or is_notebook(member.filename):
                done.unmatched[member.filename] = (
                    f"it is no file but {named.kind}" if named else "it is not named as Canvas or Moodle do"
                )
            continue
        student = roster.whose(named)
        if student is None:
            done.unmatched[member.filename] = roster.why_not(named)
            continue
        files.setdefault(student, []).append((named, member))
        if named.late and student not in done.late:
            done.late.append(student)
    return files


def _take(
    course: Course,
    archive: zipfile.ZipFile,
    student: str,
    files: list[tuple[Named, zipfile.ZipInfo]],
    done: Collected,
) -> None:
    """Write one student's files beside, and move them into their place when all are there."""
    if len(files) > _FILES:
        done.failed[student] = f"{len(files)} files are more than {_FILES}"
        return
    target = course.folder("submitted", student, done.chapter)
    course.submitted().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".collect-", dir=course.submitted()) as scratch:
        made = Path(scratch) / "new"
        made.mkdir()
        for name, member in _names(done.chapter, files):
            with archive.open(member) as source:
                data = source.read(FILE_LIMIT + 1)
            if len(data) > FILE_LIMIT:
                done.failed[student] = f"{name!r} is larger than {FILE_LIMIT >> 20} MB"
                return
            (made / name).write_bytes(data)
        if os.path.lexists(target):
            if _content(made) == _content(target):
                done.same.append(student)
                return
            _put_aside(course, target, student, done.chapter)
            done.again.append(student)
        else:
            done.new.append(student)
        target.parent.mkdir(parents=True, exist_ok=True)
        made.rename(target)


def _names(chapter: str, files: list[tuple[Named, zipfile.ZipInfo]]) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the name that each file gets. A single notebook gets the chapter's: platforms change its own."""
    notebooks = [named for named, _ in files if is_notebook(named.file)]
    used: set[str] = set()
    for named, member in files:
        name = f"{chapter}.ipynb" if [named] == notebooks else _harmless(named.file)
        while name in used or name in _OURS:
            name = f"_{name}"
        used.add(name)
        yield name, member


def _harmless(name: str) -> str:
    """Return the last part of a path as a name that can lead nowhere; its end, which says the type, stays."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable()).lstrip(".")[-_NAME:] or "unnamed"


def _content(folder: Path) -> dict[str, bytes] | None:
    """Return {name: bytes} of the files in a folder but those that nbgrader's exchange adds."""
    if folder.is_symlink() or not folder.is_dir():
        return None
    entries = [entry for entry in folder.iterdir() if entry.name not in _OURS]
    if any(entry.is_symlink() or not entry.is_file() for entry in entries):
        return None
    return {entry.name: entry.read_bytes() for entry in entries}


def _put_aside(course: Course, target: Path, student: str, chapter: str) -> None:
    before = course.root / "submitted_before" / student / chapter
    before.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(p.name) for p in before.iterdir() if p.name.isdecimal()), default=0)
    shutil.move(target, before / str(number))
