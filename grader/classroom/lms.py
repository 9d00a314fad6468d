"""Whose file is it? The names that Canvas and Moodle give to files in their downloads, and a roster.

    Canvas  lastnamefirst_[LATE_]USER_SUBMISSION_file.ipynb
    Moodle  First Last_NUMBER_assignsubmission_file/file.ipynb
            First Last_NUMBER_assignsubmission_file_file.ipynb

Canvas's USER is the same everywhere in it (lms_user_id in the roster). Moodle's NUMBER is made for one
assignment and tells nothing, so that its students are found by their names.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

_MOODLE = re.compile(
    r"(?P<who>[^/]*?)_(?P<number>\d+)_assignsubmission_(?P<kind>[a-z]+)(?:_?/|_)(?P<file>.+)", re.S
)
_CANVAS = re.compile(r"(?P<who>[^/]*?)_(?P<late>LATE_)?(?P<user>\d+)_(?P<number>\d+)_(?P<file>[^/]+)", re.S)


@dataclass(frozen=True)
class Named:
    """What a file's name says. `user`: Canvas's number for the student; `file`: the student's own name of it.

    kind: what Moodle calls the way in which it was handed in; "file" for all that is a file.
    """

    who: str
    file: str
    user: str = ""
    late: bool = False
    kind: str = "file"


def parse(path: str) -> Named | None:
    """Return what the path of a file in a download says; None when it has neither form."""
    if found := _MOODLE.search(path):
        return Named(found["who"], found["file"], kind=found["kind"])
    if found := _CANVAS.fullmatch(path.rsplit("/", 1)[-1]):
        return Named(found["who"], found["file"], user=found["user"], late=bool(found["late"]))
    return None


class Roster:
    """The students of a class, findable by what platforms call them.

    students: objects with id, first_name, last_name, email and lms_user_id, as the gradebook has them.
    """

    def __init__(self, students: list[Any]):
        self.ids = sorted(student.id for student in students)
        self._by_number = {s.lms_user_id: s.id for s in students if s.lms_user_id}
        self._by_name: dict[str, set[str]] = {}
        for student in students:
            first, last = student.first_name or "", student.last_name or ""
            mail = (student.email or "").split("@")[0]
            for name in (first + last, last + first, student.id, student.email or "", mail):
                if plain := _plain(name):
                    self._by_name.setdefault(plain, set()).add(student.id)

    def whose(self, named: Named) -> str | None:
        """Return the student's id; None when nobody, or more than one, can be meant."""
        if named.user in self._by_number:
            return self._by_number[named.user]
        if named.user in self.ids:
            return named.user
        found = self._by_name.get(_plain(named.who), set())
        return next(iter(found)) if len(found) == 1 else None

    def why_not(self, named: Named) -> str:
        """Say why `whose` knows nobody."""
        found = sorted(self._by_name.get(_plain(named.who), set()))
        if found:
            return f"{named.who!r} may be any of {', '.join(map(repr, found))}"
        return f"nobody in the roster is called {named.who!r}" + (
            f" or has the lms_user_id {named.user}" if named.user else ""
        )


def _plain(name: str) -> str:
    """Return a name without case, accents, spaces and marks, as platforms write it."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in parts if c.isalnum())
