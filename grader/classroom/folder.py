"""Make a class folder: all that grading a class needs, beside the installed package."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from nbgrader.api import Gradebook

from grader.classroom.course import CONFIG, Course
from grader.classroom.roster import read_roster
from grader.errors import UserMistake
from grader.layout import ROOT


def make_class_folder(folder: Path, roster: Path | None = None) -> list[str]:
    """Make `folder` with settings, notebooks and gradebook; return lines that say what is in it.

    Everything is made beside it first and moved there when it is whole. Raises UserMistake when there is
    something already, when the roster cannot be read, or when the course's notebooks are not here.
    """
    folder = folder.absolute()
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UserMistake(f"{folder} is there already and not empty; nothing was changed. Name a new folder.")
    students = read_roster(roster) if roster else []
    chapters = _chapters()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            made = Path(scratch) / folder.name
            _fill(made, chapters, students)
            made.rename(folder)
    except OSError as error:
        raise UserMistake(f"{folder} cannot be made ({error.strerror or error}).") from None
    return [
        f"{folder}: {len(chapters)} chapters, {len(students)} students.",
        "Work in that folder. What is handed in belongs into submitted/STUDENT/CHAPTER/CHAPTER.ipynb; then",
        "    python -m grader autograde CHAPTER",
    ]


def _chapters() -> list[str]:
    """Return the chapters that have both notebooks."""
    sources = sorted(path.stem for path in (ROOT / "solutions").glob("*/*.ipynb"))
    found = [name for name in sources if _released(name).is_file() and _source(name).is_file()]
    if not found or not (ROOT / CONFIG).is_file():
        raise UserMistake(
            f"The course's notebooks are not in {ROOT}. Install the grader from a copy of the course's "
            "repository (`make env` there), and run this with that environment."
        )
    return found


def _source(chapter: str) -> Path:
    return ROOT / "solutions" / chapter / f"{chapter}.ipynb"


def _released(chapter: str) -> Path:
    return ROOT / "course" / "en" / chapter / f"{chapter}.ipynb"


def _fill(root: Path, chapters: list[str], students: list[dict[str, str]]) -> None:
    root.mkdir()
    (root / "submitted").mkdir()
    shutil.copyfile(ROOT / CONFIG, root / CONFIG)
    directory = Course.at(root).directory
    for chapter in chapters:
        for path, step in ((_source(chapter), "source"), (_released(chapter), "release")):
            into = Path(directory.format_path(getattr(directory, f"{step}_directory"), ".", chapter))
            into.mkdir(parents=True)
            shutil.copyfile(path, into / path.name)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", directory.course_id) as book:
        for student in students:
            book.add_student(student["id"], **{k: v for k, v in student.items() if k != "id"})
