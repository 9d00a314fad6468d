"""Invented submissions: every known mistake in a notebook's cell, as a learner would have written it."""

import nbformat
import pytest

from grader.errors import UserMistake
from grader.exercises import by_chapter
from grader.workshop import invent
from transformer_lab.checking import run_check

CHAPTER = "02_positional_encoding"
SETUP = "import math\nimport torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
EXERCISES = {exercise.id: exercise for exercise in by_chapter()[CHAPTER]}
MISTAKES = {
    f"{exercise.id} {wrong.name}": (exercise, wrong)
    for exercise in EXERCISES.values()
    for wrong in exercise.misconceptions
}


def run_cell(source: str, symbol: str):
    """What a cell defines when nothing but the notebook's setup cell ran before it."""
    names: dict = {"__name__": "__main__"}
    exec(compile(SETUP, "<ipython-input-1>", "exec"), names)
    exec(compile(source, "<ipython-input-2>", "exec"), names)
    return names[symbol]


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_in_a_learners_cell_is_named(name):
    exercise, wrong = MISTAKES[name]
    report = run_check(exercise.id, run_cell(wrong.source, exercise.symbol))
    assert not report.passed and report.diagnosis == (wrong.name, wrong.says)


def test_there_are_enough_mistakes_for_the_acceptance():
    assert len(EXERCISES["2.1"].misconceptions) >= 8 and len(EXERCISES["2.6"].misconceptions) >= 8


@pytest.mark.parametrize("exercise", EXERCISES)
def test_perfect_answers_pass(exercise):
    answers = invent.perfect(CHAPTER)
    assert set(answers) == set(EXERCISES) and "SOLUTION" not in "".join(answers.values())
    assert run_check(exercise, run_cell(answers[exercise], EXERCISES[exercise].symbol)).passed


def test_half_done_answers_are_half_done():
    answers = invent.half(CHAPTER)
    assert list(answers) == ["2.1", "2.5"]
    report = run_check("2.1", run_cell(answers["2.1"], "PositionalEncoding"))
    passed = [row.name for row in report.rows if row.status == "passed"]
    assert passed == ["codes", "nothing to train", "default length"]
    assert run_check("2.5", run_cell(answers["2.5"], "position_similarity")).passed


def test_answers_land_in_their_cells_and_the_rest_stays():
    blank = invent.released(CHAPTER)
    filled = invent.fill(invent.released(CHAPTER), {"2.5": "answer = 42"})
    changed = [a.source for a, b in zip(filled.cells, blank.cells, strict=True) if a.source != b.source]
    assert changed == ["answer = 42"]
    assert [cell.metadata for cell in filled.cells] == [cell.metadata for cell in blank.cells]


def test_submission_stands_where_nbgrader_looks_for_it(tmp_path):
    path = invent.submit(tmp_path, "ada", CHAPTER, invent.released(CHAPTER))
    assert path == tmp_path / "submitted" / "ada" / CHAPTER / f"{CHAPTER}.ipynb"
    nbformat.validate(nbformat.read(path, as_version=4))


def test_chapter_that_was_not_built_says_what_to_run(tmp_path):
    with pytest.raises(UserMistake, match=r"is missing. Run `make build` first"):
        invent.released(CHAPTER, tmp_path)
