"""`nbgrader zip_collect` finds out whose file is whose by the roster: no regular expression to write."""

from __future__ import annotations

from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.plugins.zipcollect import FileNameCollectorPlugin

from grader.classroom.lms import Roster, parse


class RosterCollector(FileNameCollectorPlugin):
    """Reads names as Canvas and Moodle give them. A regular expression of the instructor's own goes first."""

    _roster: Roster | None = None

    def collect(self, submitted_file: str) -> dict[str, str] | None:
        """Return whose file it is, {"student_id", "file_id"}; None, and a warning, when nobody's."""
        if self.named_regexp:
            return super().collect(submitted_file)
        if Path(submitted_file).suffix not in self.valid_ext:
            return None
        named = parse(Path(submitted_file).as_posix())
        if named is None or named.kind != "file":
            self.log.warning("Not named as Canvas or Moodle do: %s", submitted_file)
            return None
        student = self._known().whose(named)
        if student is None:
            self.log.warning("Left out: %s", self._known().why_not(named))
            return None
        return {"student_id": student, "file_id": f"{self.parent.coursedir.assignment_id}.ipynb"}

    def _known(self) -> Roster:
        if self._roster is None:
            directory = self.parent.coursedir
            with Gradebook(directory.db_url, directory.course_id) as book:
                self._roster = Roster(list(book.students))
        return self._roster
