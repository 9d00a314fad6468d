"""Recomputing marks: from what was graded, listed before anything is written, explained for an appeal."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from grader.classroom import regrade
from grader.classroom import run as classroom
from grader.classroom.kept import NotKept, keep, kept
from grader.classroom.records import Records
from grader.cli import main
from grader.grading.evidence import in_words
from grader.jail import isolation_problem
from grader.judging.judge import fresh_key
from tests.hostile.kit import CHAPTER, ROOT, case, changed, notebook
from tests.patience import HANG

WRONG = "def position_similarity(d_model, offsets):\n    return offsets * 1.0"
pytestmark = [
    pytest.mark.timeout(HANG),
    pytest.mark.skipif(
        isolation_problem() is not None and not os.environ.get("CI"),
        reason=f"no isolation: {isolation_problem()}",
    ),
]


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Path:
    """A course in which two were graded; tests work on copies."""
    root = tmp_path_factory.mktemp("class") / "course"
    shutil.copytree(ROOT / "course" / "en" / CHAPTER, root / "course" / "en" / CHAPTER)
    case("ann", notebook(changed(_2_5=WRONG))).write(root / "submitted")
    case("ben", notebook({})).write(root / "submitted")
    classroom.run(classroom.Course.at(root), CHAPTER, workers=1, quiet=True)
    return root


@pytest.fixture
def course(graded, tmp_path, monkeypatch) -> classroom.Course:
    monkeypatch.setattr(regrade, "cores", lambda: 1)
    shutil.copytree(graded, tmp_path / "course")
    return classroom.Course.at(tmp_path / "course")


def hand_in_anew(course: classroom.Course, student: str) -> None:
    shutil.rmtree(course.root / "submitted" / student)
    case(student, notebook()).write(course.root / "submitted")


def regrading(course: classroom.Course, *arguments: str) -> int:
    return main(["regrade", "02", *arguments, "--course", str(course.root)])


def worth(course: classroom.Course, grade_id: str, points: float) -> None:
    """Correct what an exercise of the release is worth."""
    path = course.root / "course" / "en" / CHAPTER / f"{CHAPTER}.ipynb"
    book = nbformat.read(path, as_version=4)
    (cell,) = [c for c in book.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id]
    cell.metadata.nbgrader.points = points
    nbformat.write(book, path)


def test_a_correction_is_listed_then_written_and_what_was_given_by_hand_stays(course, capsys):
    with Gradebook(course.directory.db_url) as book:
        book.find_grade("test-2-7", CHAPTER, CHAPTER, "ann").manual_score = 1
        mine = book.find_submission_notebook(CHAPTER, CHAPTER, "ann")
        next(c for c in mine.comments if c.name == "todo-2-5").manual_comment = "See me."
        book.db.commit()
    worth(course, "test-2-6", 6)
    worth(course, "test-2-7", 8)
    lines = len(Records(course.root, CHAPTER).lines())
    before = (course.root / "gradebook.db").read_bytes()
    assert regrading(course) == 0
    said = capsys.readouterr().out
    for part in (
        "2 recomputed, 1 with another mark",
        "'ann', 2.6 shift_matrix: 4 → 6\n",
        "'ann', 2.7 LearnedPositionalEncoding: 4 → 8; 1, given by hand, stays",
        "'ann', total before any late penalty: 13 → 15 of 25",
        "Nothing was written.",
    ):
        assert part in said, part
    assert len(Records(course.root, CHAPTER).lines()) == lines
    assert _scores(before) == _scores((course.root / "gradebook.db").read_bytes())
    assert regrading(course, "--write") == 0
    with Gradebook(course.directory.db_url) as book:
        mine = book.find_submission_notebook(CHAPTER, CHAPTER, "ann")
        assert mine.score == 15
        assert next(c for c in mine.comments if c.name == "todo-2-5").manual_comment == "See me."
    capsys.readouterr()
    assert regrading(course) == 0
    assert "0 with another mark" in capsys.readouterr().out
    assert regrading(course, "--verify") == 0


def _scores(database: bytes) -> dict[str, float]:
    """{student: what the automatic grader gave}, of a gradebook's bytes."""
    import sqlite3

    book = sqlite3.connect(":memory:")
    book.deserialize(database)
    found = book.execute(
        "select s.student_id, g.auto_score, g.manual_score from grade g "
        "join submitted_notebook n on g.notebook_id = n.id "
        "join submitted_assignment s on n.assignment_id = s.id order by 1, 2, 3"
    ).fetchall()
    assert found
    return found


def test_what_was_graded_is_recomputed_after_another_submission(course, capsys):
    hand_in_anew(course, "ann")
    assert regrading(course, "--student", "ann") == 0
    said = capsys.readouterr().out
    assert "0 with another mark" in said and f"'ann': {regrade.OTHER_NOW}" in said
    assert regrading(course, "--student", "ann", "--explain") == 0
    page = capsys.readouterr().out
    for part in ("another one lies in the folder now", "every mark is the same", "2      return offsets * 1"):
        assert part in page, part
    record = Records(course.root, CHAPTER).latest()["ann"]
    item = fresh_key("2.5", record["seed"]).rows[0].cases[0]
    assert f"given     args[1] = {in_words(item.case.inputs['args'][1])}" in page
    assert f"expected  out = {in_words(item.expected['out'])}" in page
    assert f"seed {record['seed']}, in a jail" in page
    shutil.rmtree(course.root / "submitted" / "ann")
    assert regrading(course, "--student", "ann", "--verify") == 0


def test_what_cannot_be_recomputed_is_told_and_the_command_fails(course, capsys):
    path = (
        course.root
        / "records"
        / "graded"
        / f"{Records(course.root, CHAPTER).latest()['ann']['submission']}.gz"
    )
    path.write_bytes(path.read_bytes()[:-20])
    shutil.rmtree(course.root / "submitted" / "ann")
    for how in ((), ("--write",)):
        assert regrading(course, *how) == 1
        said = capsys.readouterr().out
        assert (
            "1 recomputed" in said
            and "NOT RECOMPUTED: 'ann': What 'ann' was graded for cannot be read" in said
        )
    assert regrading(course, "--verify") == 1
    assert "could not be graded again" in capsys.readouterr().out
    assert regrading(course, "--student", "ann", "--explain") == 2
    assert regrading(course, "--explain") == 2
    assert "--student ID" in capsys.readouterr().err


def test_a_secret_that_is_none_is_made_anew_and_stays(course):
    """Bytes that are no secret, written into `autograded/`, would end every later regrade of the student."""
    hand_in_anew(course, "ann")
    (course.root / "submitted" / "ann" / CHAPTER / "submission_secret.txt").write_bytes("é\x00".encode() * 9)
    classroom.run(course, CHAPTER, students=["ann"], workers=1, quiet=True)
    path = course.root / "autograded" / "ann" / CHAPTER / "submission_secret.txt"
    made = path.read_text(encoding="ascii")
    assert made.isalnum()
    assert regrading(course, "--write", "--student", "ann") == 0
    assert path.read_text(encoding="ascii") == made


def test_a_notebook_that_is_kept_comes_back_or_is_refused(tmp_path):
    digest = keep(tmp_path, "a" * 64, b"data")
    record = {"student": "x", "submission": "a" * 64, "kept": digest}
    assert kept(tmp_path, record) == b"data"
    assert kept(tmp_path, record | {"kept": keep(tmp_path, "b" * 64, None)}) is None
    with pytest.raises(NotKept, match="another one"):
        kept(tmp_path, record | {"kept": "0" * 64})
    with pytest.raises(NotKept, match="older version"):
        kept(tmp_path, {"student": "x", "submission": "a" * 64})
    with pytest.raises(NotKept, match="cannot be read"):
        kept(tmp_path, record | {"submission": "c" * 64})
