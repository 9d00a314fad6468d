"""A small class through nbgrader's own commands: autograde, feedback, export, validate."""

import csv
import html
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from grader.exercises import by_chapter
from grader.workshop import demo, invent
from tests.patience import HANG
from tests.test_invent import run_cell
from transformer_lab.checking import run_check

ROOT = Path(__file__).resolve().parent.parent
CHAPTER = "02_positional_encoding"
EXERCISES = {exercise.id: exercise for exercise in by_chapter()[CHAPTER]}
FULL = sum(exercise.points for exercise in EXERCISES.values())

NOISE = """
    import sys, warnings
    from tqdm import tqdm
    warnings.warn("lr_scheduler.step() was called early", UserWarning)
    print("loading 100%", file=sys.stderr)
    for _ in tqdm(range(3)):
        pass
"""


def noisy(chapter: str) -> dict[str, str]:
    """Right answers that also warn, write to stderr and show a progress bar, when called and beside it."""
    answers = invent.perfect(chapter)
    head = '"""Dot product of two codes that lie `offsets` positions apart: [K] -> [K]."""\n'
    assert head in answers["2.5"]
    answers["2.5"] = answers["2.5"].replace(head, head + NOISE)
    beside = NOISE.replace("\n    ", "\n")
    return {number: beside + source for number, source in answers.items()}


STUDENTS = {
    "perfect": invent.perfect,
    "blank": lambda chapter: {},
    "half_done": invent.half,
    "mistaken": lambda chapter: invent.mistaken(chapter, 0),
    "noisy": noisy,
}

pytestmark = pytest.mark.timeout(HANG)


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Path:
    """The course folder after the whole class went through autograde, feedback and export."""
    root = tmp_path_factory.mktemp("class") / "course"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "STUDENTS", STUDENTS)
        demo.make_class(root, [CHAPTER])
    for command in (
        ["autograde", CHAPTER],
        ["generate_feedback", CHAPTER],
        ["export", "--to", str(root / "grades.csv")],
    ):
        demo.nbgrader(root, *command)
    return root


def marks(root: Path, student: str) -> dict[str, float]:
    """{exercise: points} as the gradebook has them."""
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "transformer-lab") as gradebook:
        notebook = gradebook.find_submission(CHAPTER, student).notebooks[0]
        return {g.name.removeprefix("test-").replace("-", "."): g.score for g in notebook.grades}


def page(root: Path, student: str) -> str:
    """A student's feedback page."""
    (path,) = (root / "feedback" / student / CHAPTER).glob("*.html")
    return path.read_text(encoding="utf-8")


def words(text: str) -> str:
    """What a reader sees: no tags, no entities, single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_perfect_gets_full_marks(graded):
    assert marks(graded, "perfect") == {number: e.points for number, e in EXERCISES.items()}


def test_blank_gets_nothing(graded):
    assert marks(graded, "blank") == dict.fromkeys(EXERCISES, 0.0)


def test_half_done_gets_what_its_rows_say(graded):
    answers = invent.half(CHAPTER)
    wanted = {
        number: run_check(number, run_cell(source, EXERCISES[number].symbol)).score
        for number, source in answers.items()
    }
    assert wanted["2.1"] == 3.64 and wanted["2.5"] == 3
    assert marks(graded, "half_done") == pytest.approx(dict.fromkeys(EXERCISES, 0.0) | wanted)


def test_half_done_reads_which_rows_pass_and_what_is_next(graded):
    text = words(page(graded, "half_done"))
    assert re.search(rf"2\.1 PositionalEncoding ?: 3 of {len(EXERCISES['2.1'].rows)} rows pass", text)
    assert "Stops at TODO 2.4, which is still open." in text
    for number in EXERCISES.keys() - invent.half(CHAPTER).keys():
        assert f"Next: TODO {number}" in text


@pytest.mark.parametrize("number", EXERCISES)
def test_mistakes_are_named_in_the_feedback(graded, number):
    wrong = EXERCISES[number].misconceptions[0]
    assert marks(graded, "mistaken")[number] < EXERCISES[number].points
    assert "What this looks like: " + " ".join(wrong.says.split()) in words(page(graded, "mistaken"))


def test_right_answers_that_warn_and_print_to_stderr_keep_full_marks(graded):
    assert marks(graded, "noisy") == marks(graded, "perfect")


@pytest.mark.parametrize("student", STUDENTS)
def test_feedback_shows_no_hidden_test(graded, student):
    text = page(graded, student)
    seen = words(text)
    for secret in ("HIDDEN", "import grade", "grade("):
        assert secret not in text and secret not in seen
    dense = "".join(seen.split())
    for number, exercise in EXERCISES.items():
        assert f'check("{number}",{exercise.symbol})' in dense, "the visible half of the test cell stays"


def test_feedback_shows_marks_and_no_traceback_of_ours(graded):
    assert f"Score: {FULL:g}.0 / {FULL:g}.0" in words(page(graded, "perfect"))
    assert f"Score: 0.0 / {FULL:g}.0" in words(page(graded, "blank"))
    assert str(ROOT) not in page(graded, "mistaken").replace(str(graded), "")


def test_nobody_waits_for_a_human(graded):
    with Gradebook(f"sqlite:///{graded / 'gradebook.db'}", "transformer-lab") as gradebook:
        for student in STUDENTS:
            submission = gradebook.find_submission(CHAPTER, student)
            assert not submission.needs_manual_grade and submission.max_score == FULL


def test_exported_gradebook_has_a_row_for_everyone(graded):
    with (graded / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(STUDENTS)
    for student, row in rows.items():
        assert row["assignment"] == CHAPTER and float(row["max_score"]) == FULL
        assert float(row["score"]) == pytest.approx(sum(marks(graded, student).values()))


def test_submissions_are_left_as_they_were(graded):
    for student, answers in STUDENTS.items():
        path = graded / "submitted" / student / CHAPTER / f"{CHAPTER}.ipynb"
        kept = {
            cell.metadata.nbgrader.grade_id: cell.source
            for cell in nbformat.read(path, as_version=4).cells
            if "nbgrader" in cell.metadata
        }
        for number, source in answers(CHAPTER).items():
            assert kept["todo-" + number.replace(".", "-")] == source


def test_release_below_the_class_is_the_one_of_the_repository(graded):
    made, shipped = (
        nbformat.read(root / "course" / "en" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
        for root in (graded, ROOT)
    )
    assert [cell.source for cell in made.cells] == [cell.source for cell in shipped.cells]
    assert sorted(p.name for p in (graded / "course" / "en" / CHAPTER).iterdir()) == [f"{CHAPTER}.ipynb"]


def test_table_of_the_demo_shows_everyones_marks(graded, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "STUDENTS", STUDENTS)
        demo.print_table(graded / "grades.csv")
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].split() == ["student", "02"]
    assert lines[1].split() == ["perfect", f"{FULL:g}", "/", f"{FULL:g}"]
    assert lines[2].split() == ["blank", "0", "/", f"{FULL:g}"]


def test_a_command_that_fails_says_which_and_why(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="[ERROR] no such assignment\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: failed)
    with pytest.raises(demo.UserMistake, match="`nbgrader autograde nosuch` failed in") as caught:
        demo.nbgrader(tmp_path, "autograde", "nosuch")
    assert "no such assignment" in str(caught.value)


# ---- what a learner can run -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def validated(tmp_path_factory) -> dict[str, str]:
    """What `nbgrader validate` says to learners, who have no grader and no configuration."""
    folder = tmp_path_factory.mktemp("learner")
    said = {}
    for name in ("perfect", "blank"):
        path = folder / f"{name}.ipynb"
        nbformat.write(invent.fill(invent.released(CHAPTER), STUDENTS[name](CHAPTER)), path)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "TRANSFORMER_LAB"))}
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", "validate", path.name],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        said[name] = done.stdout + done.stderr
    return said


def test_validate_accepts_right_answers(validated):
    assert "Success! Your notebook passes all the tests." in validated["perfect"]


def test_validate_refuses_a_blank_notebook_and_says_where_to_start(validated):
    assert "VALIDATION FAILED ON 4 CELL(S)" in validated["blank"]
    assert (
        "AssertionError: 2.1 PositionalEncoding: nothing to judge yet. Next: TODO 2.1" in validated["blank"]
    )
