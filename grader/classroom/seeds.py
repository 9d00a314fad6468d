"""Which seed a submission is graded by.

A seed is a secret until feedback is out: learners see numbers of their cases there, and code can print all of
them. So it is used for what was handed in before anybody could have seen it, and for nothing later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from grader.classroom.records import Records
from grader.grading import intake
from grader.judging.judge import new_seed

_SHORT = 16  # hexadecimal digits of a hash: enough to tell one student's submissions apart


def handed_in(submitted: Path, chapter: str, students: Iterable[str], release: bytes) -> dict[str, str]:
    """Return {student: the beginning of the submission's hash}, for the line that a run begins with.

    One that cannot be read is left out here; who grades it tells why.
    """
    found = {}
    for student in students:
        with contextlib.suppress(Exception):  # one submission never costs another
            digest = intake.read_submission(submitted, student, chapter, release).sha256
            found[student] = digest[:_SHORT]
    return found


class Seeds:
    """The seeds of one run."""

    def __init__(self, records: Records, this_run: dict):
        self._seed = this_run["seed"]
        self._at_begin = this_run.get("handed_in")  # runs of older versions did not note it
        self._graded: dict[tuple[str, int], set[str]] = {}
        for line in records.lines():
            if line.get("kind") == "mark":
                self._graded.setdefault((line["student"], line["seed"]), set()).add(line["submission"])

    def seed_for(self, student: str, submission: str) -> int:
        """Return the seed for a submission with this hash: the run's, or a new one when that may be known."""
        others = self._graded.get((student, self._seed), set()) - {submission}
        late = self._at_begin is not None and self._at_begin.get(student) != submission[:_SHORT]
        return new_seed() if others or late else self._seed
