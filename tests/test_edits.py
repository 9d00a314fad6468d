"""A mistake made by an edit is a cell a learner could have typed; an edit that does not apply is named."""

import math

import pytest
import torch

from grader.exercises import by_id, edits
from grader.exercises.edits import BadEdit, as_cell, defined_by, edit, names_beside, whole


def scale(x, d):
    half = x / 2
    return half / math.sqrt(d)


def by_loop(x, d):
    return torch.stack([row / 2 / math.sqrt(d) for row in x])


def helper(x):
    return x.neg()


def with_helper(x, d):
    return helper(x)


def cell(mistake) -> str:
    return as_cell(mistake, scale, "scaled", "here")


def test_an_edit_changes_the_answer_and_names_it_as_the_task_does():
    source = cell(edit("no root", "…", "math.sqrt(d)", "d", "x / 2", "x"))
    assert source == "def scaled(x, d):\n    half = x\n    return half / d\n"
    assert defined_by(source, "scaled", names_beside(scale), "here")(8.0, 4) == 2.0


def test_an_edit_may_change_another_right_answer():
    assert cell(edit("whole", "…", "row / 2", "row", of=by_loop)).startswith(
        "def scaled(x, d):\n    return torch"
    )


@pytest.mark.parametrize("old, count", [("gone", 0), ("half", 2)])
def test_an_edit_that_does_not_apply_exactly_once_is_named(old, count):
    with pytest.raises(BadEdit, match=f"here: the text to replace stands {count} times"):
        cell(edit("m", "…", old, "new"))


def test_an_edit_without_its_second_text_is_named():
    with pytest.raises(BadEdit, match="old and new text alternate"):
        edit("m", "…", "half")


def test_an_edit_that_gives_no_code_is_named():
    broken = cell(edit("m", "…", "return half", "return return"))
    with pytest.raises(BadEdit, match="its cell does not run: SyntaxError"):
        defined_by(broken, "scaled", {}, "here")


def test_a_whole_mistake_brings_what_it_calls():
    source = cell(whole("m", "…", with_helper, helper))
    names: dict = {}
    exec(source, names)
    assert source.index("def helper") < source.index("def scaled") and names["scaled"](torch.ones(1), 1) == -1


def test_two_mistakes_of_the_course_do_not_share_a_cell():
    for exercise in by_id().values():
        cells = [mistake.source for mistake in exercise.misconceptions]
        assert len(set(cells)) == len(cells), exercise.id


def test_a_cell_of_the_course_mentions_nothing_of_the_grader():
    for exercise in by_id().values():
        for mistake in exercise.misconceptions:
            assert "grader" not in mistake.source and "Draw" not in mistake.source, mistake.name
    assert edits.source_of(scale).startswith("def scale")
