"""`nbgrader autograde` and formgrader's own button, led through the jail.

nbgrader has settings for the steps of its converter but none for the converter itself, and its steps begin
only after it has read the submission, which a broken file, a link or a renamed notebook does not survive. So
the class is replaced in the two modules that use it. Everything that it does not override is nbgrader's.
"""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path

from nbgrader.apps import api as formgrader_api
from nbgrader.apps import autogradeapp
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from traitlets import Bool


class JailedAutograde(Autograde):
    """Grades submissions as `python -m grader autograde` does, with nbgrader's options."""

    isolated = Bool(True, help="Run learners' code in a jail. Only for platforms that have none: False.")
    isolated.tag(config=True)

    def start(self) -> None:
        """Grade what the options select. Raises NbGraderException as nbgrader's own converter does."""
        # imported here: nbgrader reads this module's settings long before it grades, if ever
        from grader.jail import warm_up_early

        warm_up_early(self.isolated)
        from grader.classroom.run import Course, run
        from grader.errors import UserMistake

        course = Course(Path(self.coursedir.root), self.config)
        students = self._selected(course.submitted())
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
            self.log.error(str(mistake))
            raise NbGraderException(str(mistake)) from mistake
        for record in summary.graded:
            self.log.info("%s: %g of %g", record["student"], record["score"], record["max"])
            for note in record["notes"]:
                self.log.warning("%s: %s", record["student"], note)
        if summary.failed:
            for student, why in summary.failed.items():
                self.log.error("The grader failed on %s: %s", student, why)
            raise NbGraderException("The grader failed on some submissions.")

    def _selected(self, submitted: Path) -> list[str]:
        """Return the students whose submissions are new, newer than before, or wanted anew (--force)."""
        from grader.grading import intake

        chapter, pattern = self.coursedir.assignment_id, self.coursedir.student_id
        known = intake.students(submitted, chapter)
        found = [s for s in known if s == pattern] or fnmatch.filter(known, pattern)
        if not found or not fnmatch.fnmatchcase(chapter, self.coursedir.notebook_id):
            message = f"No notebooks were matched by {submitted / pattern / chapter}"
            self.log.error(message)
            raise NbGraderException(message)
        self.notebooks = [f"{chapter}.ipynb"]
        self.exporter = self.exporter_class(parent=self, config=self.config)
        return [student for student in found if self.init_destination(chapter, student)]


def install() -> None:
    """Make nbgrader use the jail from here on, in this process."""
    autogradeapp.Autograde = JailedAutograde
    formgrader_api.Autograde = JailedAutograde
