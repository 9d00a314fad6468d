"""One writer at a time: the command, formgrader and nbgrader's own command share a gradebook and records."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from filelock import FileLock, Timeout

from grader.classroom.course import Course
from grader.errors import UserMistake

P = ParamSpec("P")
R = TypeVar("R")


class Busy(UserMistake):
    """Somebody else is writing marks into this course right now."""


@contextlib.contextmanager
def only_writer(root: Path) -> Iterator[None]:
    """Hold the lock of the course in `root`. Raises Busy at once when another process holds it.

    The system lets go of it when its process ends, however it ends.
    """
    folder = root / "records"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise Busy(
            f"Another program is grading in {root} (this command in another window, or formgrader). Nothing "
            "was changed; wait until it is done."
        ) from None
    try:
        yield
    finally:
        lock.release()


def one_writer(work: Callable[Concatenate[Course, P], R]) -> Callable[Concatenate[Course, P], R]:
    """Make `work(course, ...)` hold the course's lock while it runs."""

    @functools.wraps(work)
    def alone(course: Course, *args: P.args, **options: P.kwargs) -> R:
        with only_writer(course.root):
            return work(course, *args, **options)

    return alone
