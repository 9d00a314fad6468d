"""`nbgrader zip_collect` finds out whose file is whose by the roster: no regular expression to write."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.plugins.zipcollect import FileNameCollectorPlugin

from grader.classroom.lms import Roster, parse


class RosterCollector(FileNameCollectorPlugin):
    """Reads names as Canvas and Moodle give them. A regular expression of the instructor's own goes first."""

    _roster: Roster | None = None

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._count: Counter[str] = Counter()  # notebooks of each student: nbgrader ends at a second one

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
        self._count[student] += 1
        number = f"-{self._count[student]}" if self._count[student] > 1 else ""
        return {"student_id": student, "file_id": f"{self.parent.coursedir.assignment_id}{number}.ipynb"}

    def _known(self) -> Roster:
        if self._roster is None:
            directory = self.parent.coursedir
            with Gradebook(directory.db_url, directory.course_id) as book:
                self._roster = Roster(list(book.students))
        return self._roster
