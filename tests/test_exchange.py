"""nbgrader's own exchange, once round: released, fetched, handed in, collected, graded, read by the learner.

The instructor and the learners are Unix users of their own, as on a JupyterHub.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from grader.classroom.folder import make_class_folder
from grader.jail import isolation_problem
from grader.layout import COURSE
from grader.workshop import invent
from tests.hostile.kit import CHAPTER, changed, notebook
from tests.patience import HANG
from tests.unprivileged import User, as_user, open_scratch, real_users

pytestmark = [
    pytest.mark.timeout(HANG),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("useradd") is None, reason="only root can make the users it needs"
    ),
    pytest.mark.skipif(
        isolation_problem() is not None and not os.environ.get("CI"),
        reason=f"no isolation: {isolation_problem()}",
    ),
]
WRONG = "def position_similarity(d_model, offsets):\n    return offsets * 1.0"


class School:
    """A machine with an exchange, an instructor's class folder and two learners."""

    def __init__(self, scratch: Path, users: list[User]):
        self.teacher, self.ann, self.ben = users
        self.exchange, self.settings = scratch / "exchange", scratch / "etc"
        self.exchange.mkdir()
        self.exchange.chmod(0o777)
        self.settings.mkdir()
        (self.settings / "nbgrader_config.py").write_text(
            "c = get_config()\n"
            f"c.CourseDirectory.course_id = {COURSE!r}\n"
            f"c.Exchange.root = {str(self.exchange)!r}\n"
        )
        self.folder = self.teacher.home / "class"
        make_class_folder(self.folder)
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, self.teacher.uid, self.teacher.gid)

    def run(self, user: User, *command: str) -> str:
        folder = self.folder if user is self.teacher else user.home
        done = as_user(
            [sys.executable, "-m", *command], user, folder, {"JUPYTER_CONFIG_PATH": str(self.settings)}
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-1500:]}{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    def hands_in(self, user: User, book: nbformat.NotebookNode) -> None:
        """Write into what was fetched, and hand it in."""
        nbformat.write(book, user.home / CHAPTER / f"{CHAPTER}.ipynb")
        self.run(user, "nbgrader", "submit", CHAPTER)

    def page(self, user: User) -> str:
        """Fetch the feedback as a learner, and return the words of the newest page."""
        self.run(user, "nbgrader", "fetch_feedback", CHAPTER)
        pages = sorted((user.home / CHAPTER / "feedback").glob(f"*/{CHAPTER}.html"))
        text = re.sub(r"<(style|script).*?</\1>", " ", pages[-1].read_text(encoding="utf-8"), flags=re.S)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())

    def records(self) -> list[dict]:
        lines = (self.folder / "records" / f"{CHAPTER}.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["kind"] == "mark"]


@pytest.fixture(scope="module")
def school():
    with open_scratch() as scratch:
        scratch.chmod(0o755)
        with real_users(scratch, "teacher", "ann", "ben") as users:
            yield School(scratch, users)


def test_once_round(school):
    teacher, ann, ben = school.teacher, school.ann, school.ben
    school.run(teacher, "nbgrader", "generate_assignment", CHAPTER, "--force")
    school.run(teacher, "nbgrader", "release_assignment", CHAPTER)
    for user in (ann, ben):
        school.run(user, "nbgrader", "fetch_assignment", CHAPTER)
    school.hands_in(ann, notebook(changed(_2_5=WRONG)))
    school.hands_in(ben, notebook())
    school.run(teacher, "nbgrader", "collect", CHAPTER)
    by_mail = school.folder / "submitted" / "zoe"  # handed in by mail: without a time and a secret
    shutil.copytree(school.folder / "submitted" / ben.name, by_mail)
    for name in ("timestamp.txt", "submission_secret.txt"):
        (by_mail / CHAPTER / name).unlink()
    for path in (by_mail, *by_mail.rglob("*")):
        os.chown(path, teacher.uid, teacher.gid)

    said = school.run(teacher, "grader", "autograde", "02", "--workers", "1")
    assert "3 graded" in said and "; 0 to look at." in said
    assert {r["student"]: r["score"] for r in school.records()} == {ann.name: 16, ben.name: 19, "zoe": 19}

    school.run(teacher, "nbgrader", "generate_feedback", CHAPTER)
    _comment(school, ann.name, "Come and see me.")  # the page is made anew without --force
    school.run(teacher, "nbgrader", "generate_feedback", CHAPTER)
    school.run(teacher, "nbgrader", "release_feedback", CHAPTER)
    page = school.page(ann)
    assert "Score: 16.0 / 19.0" in page and "Come and see me." in page
    assert "Score: 19.0 / 19.0" in school.page(ben)
    _what_was_graded_stays(school)


def _comment(school: School, student: str, text: str) -> None:
    with Gradebook(f"sqlite:///{school.folder / 'gradebook.db'}", COURSE) as book:
        mine = book.find_submission_notebook(CHAPTER, CHAPTER, student)
        next(c for c in mine.comments if c.name == "todo-2-5").manual_comment = text
        book.db.commit()


def _what_was_graded_stays(school: School) -> None:
    """A second submission: the first mark can still be recomputed, and the new page is fetched."""
    teacher, ann = school.teacher, school.ann
    school.hands_in(ann, invent.fill(invent.released(CHAPTER), {}))
    school.run(teacher, "nbgrader", "collect", CHAPTER, "--update")
    page = school.run(teacher, "grader", "regrade", "02", "--student", ann.name, "--explain")
    assert "another one lies in the folder now" in page
    assert "every mark is the same" in page
    assert "return offsets * 1.0" in page and "given     args[0] = " in page
    school.run(teacher, "nbgrader", "autograde", CHAPTER)  # only what is newer
    assert [r["student"] for r in school.records()].count("zoe") == 1
    assert school.records()[-1]["student"] == ann.name
    school.run(teacher, "nbgrader", "generate_feedback", CHAPTER)
    school.run(teacher, "nbgrader", "release_feedback", CHAPTER)
    assert "Score: 0.0 / 19.0" in school.page(ann)
