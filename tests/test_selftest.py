"""The self-test finds what is wrong with an exercise: each fault once, in words."""

import re

import pytest
import torch

from grader.authoring import data_files
from grader.authoring import selftest as module
from grader.authoring.selftest import namespace, selftest
from grader.authoring.selftest import test_exercise as judge_exercise
from grader.exercises import of_chapter
from grader.exercises.model import Row
from tests.small import (
    CHAPTER,
    DOUBLE,
    LESSON,
    Wrong,
    add_itself,
    changed,
    double,
    exercise,
    negate,
    stub,
    triple,
    write_lesson,
)

SEEDS = (1, 2)


def faults(exercise_, solution=double, unfinished=stub) -> list[str]:
    return judge_exercise(exercise_, solution, unfinished, SEEDS).faults


def test_a_good_exercise_has_no_faults():
    result = judge_exercise(DOUBLE, double, stub, SEEDS)
    assert result.faults == [] and (result.solution, result.stub) == (1, 0)
    assert (result.named, result.accepted) == (2, 2)
    assert result.slack < 0.1 and result.margin > 1000
    assert "100%" in result.line() and "2/2" in result.line()


def test_a_wrong_solution_is_shown_with_its_report():
    (fault,) = faults(DOUBLE, solution=triple)
    assert fault.startswith("97.1: the solution earns 0%") and "You multiplied by 3." in fault


def sometimes(x):
    """Right for some draws only."""
    return 2 * x if x.sum() > 0 else 3 * x


def test_a_solution_that_is_right_for_some_seeds_only_is_wrong():
    many = Row(
        "twice", "doubles", lambda draw: [c for _ in range(20) for c in DOUBLE.rows[0].cases(draw)], ("out",)
    )
    found = faults(exercise(rows=(many,)), solution=sometimes)
    assert found and found[0].startswith("97.1: the solution earns 0%")


def test_a_stub_that_earns_points_is_named():
    def generous(x):
        return 2 * x

    assert faults(DOUBLE, unfinished=generous) == ["97.1: the stub earns 100%"]


def test_a_row_that_a_stub_passes_is_named():
    gift = Row("gift", "raises nothing else", DOUBLE.rows[0].cases, looks=("changed",))
    easy = exercise(rows=(DOUBLE.rows[0], gift), mistakes=(), alternatives=())

    def half(x):
        if x is not None:
            return x.clone()  # computes nothing, changes nothing
        raise NotImplementedError("TODO 97.1")

    assert faults(easy, unfinished=half) == ["97.1: the stub earns 25%"]


def test_a_misconception_that_passes_is_named():
    (fault,) = faults(exercise(mistakes=(Wrong("harmless", "It is right.", add_itself),)))
    assert fault.startswith("97.1: misconception 'harmless' passes")


def also_triple(x):
    return x + x + x


def test_misconceptions_that_cannot_be_told_apart_are_named():
    twins = (Wrong("three", "a", triple), Wrong("thrice", "b", also_triple))
    (fault,) = faults(exercise(mistakes=twins))
    assert fault.startswith("97.1: misconception 'thrice' is named 'three'")


def unsteady(x):
    unsteady.calls = getattr(unsteady, "calls", 0) + 1
    return x * (4 + unsteady.calls % 3)


def test_a_misconception_that_is_not_recognised_is_named():
    (fault,) = faults(exercise(mistakes=(Wrong("unsteady", "a", unsteady),)))
    assert fault.startswith("97.1: misconception 'unsteady' is named None")


def test_two_misconceptions_of_one_name_are_named():
    twins = (Wrong("one", "a", triple), Wrong("one", "b", negate))
    assert any("two misconceptions have one name" in fault for fault in faults(exercise(mistakes=twins)))


def hardly_wrong(x):
    return 2 * x + 1e-4


def test_a_misconception_too_close_to_the_truth_is_named():
    result = judge_exercise(exercise(mistakes=(Wrong("close", "a", hardly_wrong),)), double, stub, SEEDS)
    assert (
        len(result.faults) == 1 and "'close' is only" in result.faults[0] and "tolerances" in result.faults[0]
    )
    assert result.margin < 20


def test_a_refused_alternative_is_shown_with_its_report():
    strict = exercise(alternatives=(("in float64", lambda x: 2 * x.double()), ("sum", add_itself)))
    (fault,) = faults(strict)
    assert fault.startswith("97.1: alternative 'in float64' earns 0%")
    assert "dtype float64; expected float32" in fault


def test_missing_and_short_ladders_are_named():
    found = faults(exercise(hints={"97.1": ("a", "b")}))
    assert found == [f"97.1: TODO {todo} needs a ladder of three hints" for todo in ("97.1", "97.2")]


# ---- a whole chapter --------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "of_chapter", lambda chapter: (DOUBLE,))
    write_lesson(tmp_path)
    key = tmp_path / data_files.DATA / "97.1.key"
    key.parent.mkdir(parents=True)
    key.write_bytes(data_files.recorded(DOUBLE))
    return tmp_path


def test_fresh_seeds_are_printed_and_can_be_given_again(course):
    lines: list[str] = []
    selftest((CHAPTER,), lines.append, course)
    seeds = [int(seed) for seed in re.search(r"--seeds ([\d ]+)\)", lines[0])[1].split()]
    assert len(seeds) == module.FRESH_SEEDS == len(set(seeds))
    again: list[str] = []
    selftest((CHAPTER,), again.append, course, seeds)
    assert again == lines


def test_a_recorded_key_that_is_not_what_would_be_recorded_is_named(course):
    (course / data_files.DATA / "97.1.key").write_bytes(data_files.recorded(exercise(points=5)))
    lines: list[str] = []
    assert not selftest((CHAPTER,), lines.append, course)
    assert any("97.1: its recorded key is out of date" in line for line in lines)


def test_other_parameters_in_the_lesson_are_named():
    def other(y):
        return 2 * y

    (fault,) = faults(DOUBLE, solution=other)
    assert fault == "97.1: the exercise names the parameters ('x',), the lesson has ('y',)"


def test_table_ends_in_a_verdict(course):
    lines: list[str] = []
    assert selftest((CHAPTER,), lines.append, course)
    assert "solution   stub   misconceptions   alternatives" in lines[0]
    assert lines[-1] == "1 exercises, 2 misconceptions, 2 fresh seeds: all hold"


def test_a_fault_fails_the_chapter_and_is_printed(course):
    write_lesson(course, changed("the_number_to_multiply_by = 2", "the_number_to_multiply_by = 3"))
    lines: list[str] = []
    assert not selftest((), lines.append, course)
    assert lines[-1].endswith("1 faults")
    assert any(line.startswith("FAULT 97.1: the solution earns 0%") for line in lines)


def test_command_line_says_it_by_exit_code(monkeypatch):
    from grader import cli as command

    for holds, code in ((True, 0), (False, 1)):
        monkeypatch.setattr(module, "selftest", lambda names, seeds, workers, holds=holds: holds)
        assert command.main(["selftest", "97"]) == code


def test_lesson_is_run_with_solutions_and_with_stubs(tmp_path):
    path = write_lesson(tmp_path)
    x = torch.ones(2)
    assert namespace(path)["double"](x).tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match=r"TODO 97\.1"):
        namespace(path, stubs=True)["double"](x)


def test_lesson_runs_its_setup_and_its_todo_cells_only(tmp_path):
    plain = LESSON + "\n# %%\nraise RuntimeError('a picture')\n"
    assert "double" in namespace(write_lesson(tmp_path, plain))


def test_chapters_tested_by_processes_of_their_own_give_the_same_table():
    both: list[str] = []
    assert selftest(("01", "02"), both.append, seeds=(), workers=2)
    wanted = [e.id for chapter in ("01_embedding", "02_positional_encoding") for e in of_chapter(chapter)]
    assert [line.split()[0] for line in both[1:-1]] == wanted
    assert both[-1].startswith(f"{len(wanted)} exercises, ") and both[-1].endswith("0 fresh seeds: all hold")
