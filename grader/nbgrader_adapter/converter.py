"""`nbgrader autograde` and formgrader's own button, led through the jail.

nbgrader has settings for the steps of its converter but none for the converter itself, and its steps begin
only after it has read the submission, which a broken file, a link or a renamed notebook does not survive. So
the class is replaced in the two modules that use it. Everything that it does not override is nbgrader's.
"""

from __future__ import annotations

import datetime
import fnmatch
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from nbgrader.apps import api as formgrader_api
from nbgrader.apps import autogradeapp
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets import Bool

from grader.nbgrader_adapter.settings import OWN_SETTINGS

if TYPE_CHECKING:
    from grader.classroom.course import Course
    from grader.errors import UserMistake


class JailedAutograde(Autograde):
    """Grades submissions as `python -m grader autograde` does, with nbgrader's options."""

    isolated = Bool(True, help="Run learners' code in a jail. Only for platforms that have none: False.")
    isolated.tag(config=True)

    def start(self) -> None:
        """Grade what the options select. Raises NbGraderException as nbgrader's own converter does."""
        # imported here: nbgrader reads this module's settings long before it grades, if ever
        from grader.jail import warm_up_early

        warm_up_early(self.isolated)
        from grader.classroom.course import Course
        from grader.classroom.run import run
        from grader.errors import UserMistake

        course = Course(Path(self.coursedir.root), self.config)
        students = self._selected(course)
        if not students:
            return
        try:
            summary = run(
                course,
                self.coursedir.assignment_id,
                students=students,
                workers=1 if len(students) == 1 else None,
                isolated=self.isolated,
                create=self.create_student,
                quiet=len(students) == 1 or not sys.stderr.isatty(),
                say=self.log.warning,
            )
        except UserMistake as mistake:
            self._refuse(_in_nbgraders_words(mistake), mistake)
        for record in summary.graded:
            self.log.info("%s: %g of %g", record["student"], record["score"], record["max"])
            for note in record["notes"]:
                self.log.warning("%s: %s", record["student"], note)
        if summary.failed:
            for student, why in summary.failed.items():
                self.log.error("The grader failed on %s: %s", student, why)
            raise NbGraderException("The grader failed on some submissions.")

    def _refuse(self, message: str, cause: Exception | None = None) -> NoReturn:
        self.log.error(message)
        raise NbGraderException(message) from cause

    def _selected(self, course: Course) -> list[str]:
        """Return the students whose submissions are new, newer than before, or wanted anew (--force)."""
        from grader.grading import intake

        submitted = course.submitted()
        chapter, pattern = self.coursedir.assignment_id, self.coursedir.student_id
        known = intake.students(submitted, chapter)
        # "*" is nbgrader's word for everyone, also where somebody's folder is called that
        exact = [s for s in known if s == pattern and pattern != "*"]
        found = exact or fnmatch.filter(known, pattern)
        if not found or not fnmatch.fnmatchcase(chapter, self.coursedir.notebook_id):
            self._refuse(f"No notebooks were matched by {submitted / pattern / chapter}")
        left_out = self.coursedir.student_id_exclude.split(",")
        return [student for student in found if student not in left_out and self._is_due(course, student)]

    def _is_due(self, course: Course, student: str) -> bool:
        """Say whether a submission is to be graded. Nothing is deleted here: grading may yet be refused.

        nbgrader's own `init_destination` decides the same, but deletes the graded notebook, and ends the
        whole command for a timestamp that is none.
        """
        from grader.grading import intake

        chapter = self.coursedir.assignment_id
        folder = course.folder("autograded", student, chapter)
        if self.force or not (folder / f"{chapter}.ipynb").is_file():
            return True
        new = _time(intake.read_submission(course.submitted(), student, chapter).timestamp)
        if new and new > (_time_in(folder / "timestamp.txt") or _BEFORE_ALL):
            return True
        self.log.info("Skipping existing assignment: %s", folder)
        return False


_BEFORE_ALL = datetime.datetime.min.replace(tzinfo=datetime.UTC)


def _time(text: str | None) -> datetime.datetime | None:
    """Return the time that some text names, in UTC; None when it names none, however odd it is."""
    from grader.grading.moment import in_utc

    found = in_utc(text, []) if text else None
    return datetime.datetime.fromisoformat(found) if found else None


def _time_in(path: Path) -> datetime.datetime | None:
    try:
        return _time(path.read_bytes()[:100].decode("utf-8", "replace"))
    except OSError:
        return None


def _existing_timestamp(_directory: CourseDirectory, folder: str) -> datetime.datetime | None:
    """Stands for nbgrader's own, which ends the program, or the page, of everyone for one odd file.

    Returns a time without a zone, in UTC, as nbgrader's own does.
    """
    time = _time_in(Path(folder) / "timestamp.txt")
    return time.replace(tzinfo=None) if time else None


def _in_nbgraders_words(mistake: UserMistake) -> str:
    from grader.grading.job import NotIsolated

    if isinstance(mistake, NotIsolated):
        return (
            f"Learners' code cannot be isolated here: {mistake.args[0]}. To go on without, put "
            f"`c.JailedAutograde.isolated = False` into {OWN_SETTINGS}; learners' code can then do all that "
            "you can."
        )
    return str(mistake)


def install() -> None:
    """Make nbgrader use the jail from here on, in this process."""
    autogradeapp.Autograde = JailedAutograde
    formgrader_api.Autograde = JailedAutograde
    CourseDirectory.get_existing_timestamp = _existing_timestamp
