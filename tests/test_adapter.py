"""What `nbgrader autograde` decides before anything is graded, and how it refuses."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbgrader.converters.base import NbGraderException

from grader.classroom import run as classroom
from grader.classroom.course import Course
from grader.grading.session import _verdict_output
from grader.judging.judge import judge_fresh
from grader.nbgrader_adapter.converter import JailedAutograde, _existing_timestamp
from tests.hostile.kit import CHAPTER, ROOT, case, notebook
from tests.patience import HANG
from transformer_lab.checking.probes.core import Observation
from transformer_lab.checking.probes.problems import Problem

pytestmark = pytest.mark.timeout(HANG)


@pytest.fixture
def root(tmp_path) -> Path:
    shutil.copytree(ROOT / "course" / "en" / CHAPTER, tmp_path / "course" / "en" / CHAPTER)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    for name in ("a", "b", "*"):
        case(name, notebook({})).write(tmp_path / "submitted")
    return tmp_path


def converter(root: Path, student: str = "*", **options) -> JailedAutograde:
    course = Course.at(root)
    directory = course.directory
    directory.assignment_id, directory.student_id = CHAPTER, student
    directory.student_id_exclude = options.pop("exclude", "")
    made = JailedAutograde(coursedir=directory, config=course.config)
    for name, value in options.items():
        setattr(made, name, value)
    return made


def graded(root: Path, student: str, timestamp: str | None = None) -> Path:
    """Put a graded notebook there, as if from an earlier run."""
    folder = root / "autograded" / student / CHAPTER
    folder.mkdir(parents=True)
    (folder / f"{CHAPTER}.ipynb").write_text("graded before")
    if timestamp:
        (folder / "timestamp.txt").write_text(timestamp)
    return folder / f"{CHAPTER}.ipynb"


def test_a_graded_notebook_stays_when_grading_is_refused(root, monkeypatch, caplog):
    kept = graded(root, "a")
    monkeypatch.setattr(classroom, "isolation_problem", lambda: "this is a test")
    monkeypatch.setattr("grader.jail.warm_up_early", lambda _isolated: None)
    with pytest.raises(NbGraderException) as caught:
        converter(root, force=True).start()
    assert kept.read_text() == "graded before"
    assert "this is a test" in str(caught.value)
    assert "c.JailedAutograde.isolated = False" in str(caught.value)
    assert "--without-isolation" not in str(caught.value)


def test_a_graded_notebook_stays_while_somebody_else_grades(root, monkeypatch):
    from grader.classroom.lock import only_writer

    kept = graded(root, "a")
    monkeypatch.setattr("grader.jail.warm_up_early", lambda _isolated: None)
    with only_writer(root), pytest.raises(NbGraderException, match="Another program is grading"):
        converter(root, force=True).start()
    assert kept.read_text() == "graded before"


def selected(root: Path, student: str = "*", **options) -> list[str]:
    return converter(root, student, **options)._selected(Course.at(root))


def test_everyone_is_graded_also_beside_a_student_called_star(root):
    assert selected(root) == ["*", "a", "b"]
    assert selected(root, exclude="a,*") == ["b"]
    assert selected(root, "[ab]") == ["a", "b"]
    case("[ab]", notebook({})).write(root / "submitted")
    assert selected(root, "[ab]") == ["[ab]"]
    with pytest.raises(NbGraderException, match="No notebooks were matched"):
        selected(root, "nobody")


@pytest.mark.parametrize(
    ("handed_in", "before", "due"),
    [
        (None, None, False),
        ("2026-03-01 00:00:00 UTC", "2026-03-01 00:00:00 UTC", False),
        ("2026-03-02 00:00:00 UTC", "2026-03-01 00:00:00 UTC", True),
        ("not a time", "2026-03-01 00:00:00 UTC", False),  # it costs nobody else the whole command
        ("2026-03-02 00:00:00 UTC", "not a time", True),
        ("2026-03-02 00:00:00 UTC", None, True),
    ],
)
def test_what_is_newer_than_before_is_graded(handed_in, before, due, root):
    kept = graded(root, "a", before)
    if handed_in:
        (root / "submitted" / "a" / CHAPTER / "timestamp.txt").write_text(handed_in)
    assert selected(root, "a") == (["a"] if due else [])
    assert selected(root, "a", force=True) == ["a"]
    assert kept.read_text() == "graded before"


def test_an_errors_words_are_not_typeset_on_a_feedback_page():
    text = r"$\href{javascript:alert(1)}{x}$"
    report = judge_fresh("2.5", lambda _case: Observation(problem=Problem("raised", text, text)))
    html = _verdict_output(report).data["text/html"]
    assert html.startswith('<div class="tex2jax_ignore mathjax_ignore">') and html.endswith("</div></div>")
    assert text in html


READS_SETTINGS = """
import sys
from pathlib import Path
from nbgrader.apps import autogradeapp
from nbgrader.converters import Autograde
from grader.classroom.course import Course

Course.at(Path({root!r}))
assert autogradeapp.Autograde is Autograde, "making a Course changed nbgrader"
"""

NBGRADER_COMMAND = """
import sys
from nbgrader.apps.nbgraderapp import NbGraderApp

sys.argv = ["nbgrader", "db", "student", "list"]
try:
    NbGraderApp.launch_instance()
finally:
    print("torch" in sys.modules)
"""


def test_making_a_course_leaves_nbgrader_as_it_was():
    done = subprocess.run(
        [sys.executable, "-c", READS_SETTINGS.format(root=str(ROOT))],
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr[-1500:]


def test_nbgraders_own_commands_do_not_wait_for_torch(tmp_path):
    (tmp_path / "nbgrader_config.py").write_bytes((ROOT / "nbgrader_config.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", NBGRADER_COMMAND], cwd=tmp_path, capture_output=True, text=True, timeout=HANG
    )
    assert done.stdout.splitlines()[-1:] == ["False"], done.stdout + done.stderr[-1500:]


ODD = ("0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "… +99:99", "\x00", "1" * 5000, "10:99:99")


@pytest.mark.parametrize("before", ODD)
@pytest.mark.parametrize("handed_in", ODD)
def test_no_odd_time_ends_the_command(handed_in, before, root):
    graded(root, "a", before)
    (root / "submitted" / "a" / CHAPTER / "timestamp.txt").write_text(handed_in)
    (root / "submitted" / "b" / CHAPTER / "timestamp.txt").write_text("2026-03-01 00:00:00 UTC")
    assert "b" in selected(root)


@pytest.mark.parametrize("text", [*ODD, "", "2026-03-01 00:00:00 UTC", "2026-03-01 01:00:00 +01:00"])
def test_nbgraders_pages_read_any_time(text, tmp_path):
    """Its own reader ends the program for one that is none; formgrader's page lists all submissions by it."""
    (tmp_path / "timestamp.txt").write_text(text)
    found = _existing_timestamp(None, str(tmp_path))
    assert found == (datetime.datetime(2026, 3, 1) if "2026" in text else None)
    assert _existing_timestamp(None, str(tmp_path / "nowhere")) is None
