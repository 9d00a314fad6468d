"""The mutation test finds a hole in the checks; nothing in it hangs, drifts or looks outside a solution."""

import ast
import dataclasses
import os
import subprocess
import textwrap
import time

import pytest

from grader import cli as command
from grader.authoring.data_files import RECORDED_SEED
from grader.authoring.lesson import BEGIN, END, read_lesson
from grader.authoring.mutants import children, record, run
from grader.authoring.mutants import judged as judging
from grader.authoring.mutants.children import Died, Limits, TimedOut, in_children
from grader.authoring.mutants.made import mutants
from grader.authoring.mutants.run import Wish, unrecorded
from grader.authoring.mutants.run import test_mutants as judge_mutants
from grader.errors import UserMistake
from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row
from grader.layout import ROOT
from transformer_lab.checking.probes.core import Case

CHAPTER = "96_toy"
HOLE = "x.abs() → x"  # no case of the toy exercise holds a negative number

LESSON = """# %% setup=true
import torch

# %% todo="96.1"
def double_size(x):
    two = 1 + 1
    # TODO 96.1: twice the size of every number
    ### BEGIN SOLUTION
    return 2 * x.abs()
    ### END SOLUTION

# %% todo="96.2"
def steps(n):
    # TODO 96.2: count down
    ### BEGIN SOLUTION
    count = 0
    while n > 0:
        n -= 1
        count += 1
    return count
    ### END SOLUTION
"""


def double_size(x):
    return 2 * x.abs()


def steps(n):
    return max(n, 0)


def positive(draw):
    return [Case("function", {"args": [draw.uniform(3, low=1.0, high=2.0)]})]


def any_sign(draw):
    return [Case("function", {"args": [draw.normal(20)]})]


def toy(number="96.1", symbol=double_size, cases=positive, **more) -> Exercise:
    return Exercise(
        id=number,
        symbol=symbol.__name__,
        kind="function",
        parameters=("x",) if symbol is double_size else ("n",),
        points=1,
        todos=(number,),
        rows=(Row("value", "the size, doubled", cases, looks=("out",)),),
        reference=symbol,
        answer=symbol,
        mistakes=(),
        alternatives=(),
        hints={},
        **more,
    )


def write_lesson(folder):
    path = record.lesson_of(CHAPTER, folder)
    path.parent.mkdir(parents=True)
    path.write_text(LESSON, encoding="utf-8")
    return folder


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course folder with the toy lesson; of its mutants two are judged, which is soon done."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # judging sets it, too; put back when the test is over
    monkeypatch.setattr(run, "of_chapter", lambda chapter: (toy(),))
    only(monkeypatch, HOLE, "2 * x.abs() → x.abs()")
    return write_lesson(tmp_path)


def only(monkeypatch, *changes):
    monkeypatch.setattr(
        judging, "mutants", lambda source: [m for m in mutants(source) if m.change in changes]
    )


def judged(course, exercise):
    answer = dict(judging.answers(record.lesson_of(CHAPTER, course)))[exercise.id]
    return judging.judged(exercise, answer, [1], workers=2)


# ---- what survives ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_hole(tmp_path_factory):
    return judged(write_lesson(tmp_path_factory.mktemp("hole")), toy())


@pytest.fixture(scope="module")
def without_hole(tmp_path_factory):
    return judged(write_lesson(tmp_path_factory.mktemp("whole")), toy(cases=any_sign))


def listing(result, equivalent):
    """The same outcomes beside an exercise that lists these changes as equivalent."""
    return dataclasses.replace(result, exercise=toy(equivalent=equivalent))


def test_a_hole_in_the_checks_is_found(with_hole):
    assert with_hole.survivors == [HOLE] and not with_hole.explained
    assert with_hole.killed == len(with_hole.outcomes) - 1 > 10


def test_a_check_without_the_hole_lets_nothing_through(without_hole):
    assert without_hole.survivors == [] and without_hole.explained
    assert without_hole.outcomes[HOLE] == "row 'value'"


def test_a_listed_equivalent_is_explained(with_hole):
    result = listing(with_hole, {HOLE: "no number is negative"})
    assert result.explained and result.equivalent == [HOLE]


def test_an_entry_that_explains_nothing_is_told(without_hole):
    result = listing(without_hole, {HOLE: "a", "x.abs() → x.sign()": "b"})
    assert not result.explained
    assert result.stale == {
        HOLE: "it is killed: row 'value'",
        "x.abs() → x.sign()": "there is no such change (any more)",
    }


def test_what_only_fresh_cases_catch_is_counted_apart(course):
    def lucky(draw):
        """No negative number from the recorded seed."""
        return positive(draw) if draw.size(0, 10**6) == Draw(RECORDED_SEED).size(0, 10**6) else any_sign(draw)

    result = judged(course, toy(cases=lucky))
    assert result.explained and result.by_fresh == 1
    assert result.outcomes[HOLE] == "row 'value', of fresh cases alone"


def test_nothing_is_judged_by_a_check_that_refuses_the_solution(course):
    wrong = dataclasses.replace(toy(), reference=lambda x: 3 * x)
    with pytest.raises(UserMistake, match=r"96\.1: the lesson's own solution does not earn full marks"):
        judged(course, wrong)


# ---- children ---------------------------------------------------------------------------------------


def work(item: str) -> str:
    if item == "endless":
        while True:
            pass
    if item == "bomb":
        bytearray(3 * children.GIB)
    if item == "gone":
        os._exit(3)
    if item == "slow":
        time.sleep(0.2)
    return item


def test_what_a_child_does_harms_nobody_and_the_order_stays():
    items = ["slow", "endless", "fine", "bomb", "gone", "last"]
    found = list(in_children(work, items, 2, Limits(cpu=1)))
    assert [found[i] for i in (0, 2, 5)] == ["slow", "fine", "last"]
    assert [type(found[i]) for i in (1, 3, 4)] == [TimedOut, Died, Died]


def test_a_child_that_waits_for_nothing_is_ended_by_the_clock():
    (found,) = in_children(lambda _: time.sleep(60), [0], 1, Limits(clock=0.2))
    assert isinstance(found, TimedOut)


def test_an_endless_mutant_is_killed_by_time(course, monkeypatch):
    endless = "n -= 1 → pass"
    monkeypatch.setattr(Limits, "cpu", 1)
    monkeypatch.setattr(
        judging, "mutants", lambda source: [m for m in mutants(source) if m.change == endless]
    )
    exercise = toy("96.2", steps, lambda draw: [Case("function", {"args": [draw.size(3, 5)]})])
    result = judged(course, exercise)
    assert result.outcomes == {endless: judging.TIMED_OUT}
    assert (result.killed, result.timed_out) == (1, 1)


# ---- which changes there are ------------------------------------------------------------------------


def cell(solution: str, before: str = "", after: str = "") -> str:
    """A cell whose solution stands between two lines that are no solution."""
    inside = textwrap.indent(f"{before}{BEGIN}\n{solution}\n{END}\n{after}", "    ")
    return f"def f(x, y, mask=None):\n{inside}"


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants(source)]


@pytest.mark.parametrize(
    ("solution", "change"),
    [
        ("return x @ y", "x @ y → x * y"),
        ("return x - y", "x - y → x + y"),
        ("return x - y", "x - y → y - x"),
        ("return x - y", "x - y → x"),
        ("return x - y", "x - y → x.sub_(y)"),
        ("return x + [0] * y", "x + [0] * y → [0] * y + x"),
        ("return x & ~mask", "x & ~mask → x & mask"),
        ("return x & ~mask", "x & ~mask → x | ~mask"),
        ("return x < y", "x < y → x <= y"),
        ("return x < y", "x < y → x > y"),
        ("return x and y", "x and y → x or y"),
        ("return x and y", "x and y → y"),
        ("return 10000 ** x", "10000 ** x → 10001 ** x"),
        ("return 10000.0 ** x", "10000.0 ** x → 10001.0 ** x"),
        ("return x + 1e-5", "x + 1e-05 → x + 1e-06"),
        ("return x + 1e-5", "x + 1e-05 → x + 0.0"),
        ("return x.sum(dim=-1)", "x.sum(dim=-1) → x.sum(dim=-2)"),
        ("return x.sum(dim=-1)", "x.sum(dim=-1) → x.sum(dim=0)"),
        ("return x.size(0)", "x.size(0) → x.size(1)"),
        ("return x.sum(-1, keepdim=True)", "x.sum(-1, keepdim=True) → x.sum(-1, keepdim=False)"),
        ("return x.sum(-1, keepdim=True)", "x.sum(-1, keepdim=True) → x.sum(-1)"),
        ("return x.sum(-1, keepdim=True)", "x.sum(-1, keepdim=True) → x.sum(keepdim=True)"),
        ("return x.sum(-1)", "x.sum(-1) → x.mean(-1)"),
        ("return x.amax(-1)", "x.amax(-1) → x.amin(-1)"),
        ("return torch.exp(x)", "torch.exp(x) → torch.exp2(x)"),
        ("return torch.exp(x)", "torch.exp(x) → x"),
        ("return torch.exp(x)", "torch.exp(x) → torch.exp(y)"),
        ("return x.to(y.device)", "x.to(y.device) → x"),
        ("return torch.cat([x, y])", "torch.cat([x, y]) → torch.stack([x, y])"),
        ("return torch.cat([x, y])", "[x, y] → [y, x]"),
        ("return torch.cat([x, y])", "[x, y] → [x]"),
        ("return g(x, y)", "g(x, y) → g(y, x)"),
        ("return x.reshape(y)", "x.reshape(y) → x.view(y)"),
        ("return x.var()", "x.var() → x.var(correction=0)"),
        ("return float('-inf')", "float('-inf') → float('inf')"),
        ("return x[:-1]", "x[:-1] → x[:]"),
        ("return x[1:]", "x[1:] → x[2:]"),
        ("return x[:, None]", "x[:, None] → x"),
        ("return x[:, None]", "x[:, None] → x[None, :]"),
        ("return x.T", "return x.T → return x"),
        ("return x, y", "return (x, y) → return x"),
        ("return x, y", "return (x, y) → return (y, x)"),
        ("return x", "return x → return -x"),
        ("if mask is not None:\n    x = y\nreturn x", "if mask is not None: → pass"),
        ("if mask is not None:\n    x = y\nreturn x", "mask is not None → True"),
        ("if mask is not None:\n    x = y\nreturn x", "mask is not None → mask is None"),
        ("return x if mask else y", "x if mask else y → y"),
        ("for z in y:\n    x += z\nreturn x", "for z in y: → for z in list(y)[:-1]:"),
        ("for z in y:\n    x += z\nreturn x", "for z in y: → for z in list(y)[:1]:"),
        ("for z in y:\n    x += z\nreturn x", "x += z → x = z"),
        ("for z in y:\n    x += z\n    break\nreturn x", "break → continue"),
        ("return [z for z in x if z]", "[z for z in x if z] → [z for z in x if True]"),
        ("with torch.no_grad():\n    return x", "with torch.no_grad(): → if True:"),
        ("y.backward()\ny.step()", "y.backward(); y.step() → y.step(); y.backward()"),
        ("raise ValueError(x)", "ValueError(x) → TypeError(x)"),
        ("return {'a': x, 'b': y}", "{'a': x, 'b': y} → {'a': y, 'b': x}"),
        ("return nn.ModuleList(x)", "nn.ModuleList(x) → list(x)"),
        ("return x[:y]", "x[:y] → x[:y + 1]"),
        ("return range(y)", "range(y) → range(y - 1)"),
        ("return x.tril()", "x.tril() → x.tril(diagonal=-1)"),
        ("return x.masked_fill(mask, 0)", "x.masked_fill(mask, 0) → x.masked_fill_(mask, 0)"),
    ],
)
def test_a_small_change_is_made(solution, change):
    assert change in changes(cell(solution))


@pytest.mark.parametrize(
    ("solution", "change"),
    [
        ("return x * y", "x * y → y * x"),
        ("return x + y", "x + y → y + x"),
        ("return min(x, y)", "min(x, y) → min(y, x)"),
        ("return x.transpose(1, 2)", "x.transpose(1, 2) → x.transpose(2, 1)"),
        ("return x[0:]", "x[0:] → x[:]"),
        ("return x[:, None, :]", "x[:, None, :] → x[:, None]"),
        ("return x == 'pre'", "x == 'pre' → x <= 'pre'"),
        ("x = x + 1\nreturn x - y", "x - y → x.sub_(y)"),
        ("for _ in y:\n    g(x)", "for _ in y: → for _ in list(y)[::-1]:"),
    ],
)
def test_a_change_that_changes_nothing_is_not_made(solution, change):
    assert change not in changes(cell(solution))


def test_an_attribute_is_taken_for_its_sibling():
    source = textwrap.dedent(f"""
        class A:
            def forward(self, x):
                {BEGIN}
                return self.W_q(x) + self.W_k(x)
                {END}
    """)
    assert "self.W_q(x) → self.W_k(x)" in changes(source)
    assert not any("self.W_q(x) → self.x" in change for change in changes(source))


def test_only_what_stands_between_the_markers_changes():
    source = cell("x = x + 1", before="y = 1 + 1\ny.a()\n", after="g(y)\nreturn x - y")
    fixed = ["def f(x, y, mask=None):", "    y = 1 + 1", "    y.a()", "    g(y)", "    return x - y"]
    made = mutants(source)
    assert len(made) > 5
    for mutant in made:
        lines = ast.unparse(mutant.tree).split("\n")
        assert [lines[i] for i in (0, 1, 2, 4, 5)] == fixed, mutant.change


def test_two_statements_change_places_only_when_both_are_between_the_markers():
    assert "g(x); g(y) → g(y); g(x)" in changes(cell("g(x)\ng(y)"))
    assert not [change for change in changes(cell("g(x)", after="g(y)")) if ";" in change]


def test_the_words_of_a_message_are_free():
    words = "f'{x} is not ' + 'more than 5'"
    assert changes(cell(f"raise ValueError({words})")) == [
        f"raise ValueError({words}) → pass",
        f"ValueError({words}) → TypeError({words})",
        f"ValueError({words}) → RuntimeError({words})",
    ]


def test_names_of_changes_do_not_depend_on_lines_or_layout():
    plain = cell("a = x.sum(-1)\nreturn g(a, y)")
    moved = cell(
        "# first\na = x.sum(\n    -1\n)\n\nreturn g(\n    a,  # a\n    y,\n)", before="# a comment\n\n"
    )
    assert changes(plain) == changes(moved)


def test_no_two_changes_share_a_name():
    found = changes(cell("a = x + 1\nb = x + 1\nreturn g(x + 1)\nreturn g(x + 1)"))
    assert len(set(found)) == len(found)
    assert "a = x + 1 → a = x - 1" in found and "b = x + 1 → b = x - 1" in found  # told by the statement
    twin = "return g(x + 1) → return g(x - 1)"
    assert twin in found and f"{twin} #2" in found


def test_each_mutant_is_another_program():
    for name in ("03_attention", "05_add_norm"):
        for todo in (c for c in read_lesson(ROOT / "solutions" / name / f"{name}.py") if c.todo):
            made = mutants(todo.source)
            programs = [ast.unparse(mutant.tree) for mutant in made]
            assert len(set(programs)) == len(programs) == len({m.change for m in made})
            assert ast.unparse(ast.parse(todo.source)) not in programs


# ---- the table, the record and the command ----------------------------------------------------------


def test_table_ends_in_a_verdict_and_names_the_survivor(course):
    lines: list[str] = []
    assert not judge_mutants(Wish(seeds=[1], workers=2), lines.append, course)
    assert lines[-2:] == [f"SURVIVOR 96.1: {HOLE}", "1 exercises, 2 mutants: 1 unexplained"]
    assert unrecorded(root=course) == ["96.1  double_size"]


def test_a_record_holds_until_something_changes_that_decides(course, monkeypatch):
    whole = (toy(cases=any_sign),)
    monkeypatch.setattr(run, "of_chapter", lambda chapter: whole)
    lines: list[str] = []
    assert judge_mutants(Wish(seeds=[1], workers=2), lines.append, course)
    assert lines[-1] == "1 exercises, 2 mutants: all explained"
    assert unrecorded(root=course) == []
    lines.clear()
    assert judge_mutants(Wish(seeds=[1], changed=True), lines.append, course)
    assert lines[-1] == "0 exercises, 0 mutants: all explained"

    lesson = record.lesson_of(CHAPTER, course)
    lesson.write_text(LESSON.replace("    return 2", "    # words\n    return 2"), encoding="utf-8")
    assert unrecorded(root=course) == []
    lesson.write_text(LESSON.replace("return 2 * x.abs()", "return x.abs() * 2"), encoding="utf-8")
    assert unrecorded(root=course) == ["96.1  double_size"]
    monkeypatch.setattr(run, "of_chapter", lambda chapter: ())
    assert unrecorded(root=course) == ["96.1  (no such exercise)"]


def test_a_record_can_be_compared_with_a_revision(course):
    def git(*words):
        subprocess.run(["git", "-C", course, *words], check=True, capture_output=True)

    path = record.record_file(CHAPTER, course)
    path.parent.mkdir(parents=True)
    path.write_text('{"96.1": {"decided by": "old"}}')
    git("init")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "a")
    path.write_text("{}")
    assert record.recorded(CHAPTER, course) == {}
    assert record.recorded(CHAPTER, course, "HEAD") == {"96.1": {"decided by": "old"}}
    with pytest.raises(UserMistake, match="git knows no revision 'nothing'"):
        record.recorded(CHAPTER, course, "nothing")


def test_comments_and_docstrings_decide_nothing(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        '"""Words."""\n\nx = "# kept"  # a comment\n\n\ndef f():\n    """More."""\n    return x\n'
    )
    assert record.code_only(path) == 'x = "# kept"\ndef f():\n    return x'


def test_command_line_says_it_by_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(run, "test_mutants", lambda wish: wish.exercise == "3.5")
    assert command.main(["selftest", "--mutants", "--exercise", "3.5"]) == 0
    assert command.main(["selftest", "--mutants", "03"]) == 1
    for stale, code in (([], 0), (["3.5  stable_softmax"], 1)):
        monkeypatch.setattr(run, "unrecorded", lambda chapters, stale=stale: stale)
        assert command.main(["selftest", "--mutants", "--check"]) == code
    assert "its mutants were not judged as it is now: 3.5  stable_softmax" in capsys.readouterr().out
