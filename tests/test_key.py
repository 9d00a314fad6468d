"""An answer key judges a symbol: rows, marks, what waits for what, and which mistake it is."""

import re

import pytest
import torch
from torch import nn

from grader.authoring.data_files import sentences_of
from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Mistake, Row
from grader.judging.keys import BadExercise, draw_key
from tests.small import DOUBLE, Wrong, double, exercise, negate, on_tensors, stub, triple
from transformer_lab.checking.judging.key import AnswerKey, judge
from transformer_lab.checking.judging.report import Report
from transformer_lab.checking.probes.core import Case, Observation, observe
from transformer_lab.checking.probes.problems import Problem
from transformer_lab.checking.stored.recorded import key_from_tree, key_tree
from transformer_lab.checking.stored.wire import pack, unpack

KEY = draw_key(DOUBLE, seed=1)


def judged(symbol, key: AnswerKey = KEY) -> Report:
    return judge(key, lambda case: observe(symbol, case))


def statuses(report: Report) -> list[str]:
    return [row.status for row in report.rows]


# ---- marks ------------------------------------------------------------------------------------------


def test_right_answer_gets_everything():
    report = judged(double)
    assert report.passed and report.score == 4 and report.diagnosis is None
    assert type(report.score) is float, "nbgrader reads a plain float"


def test_stub_gets_nothing_and_is_told_where_to_start():
    report = judged(stub)
    assert statuses(report) == ["todo", "waits"] and report.score == 0 and not report.attempted
    assert str(report) == "97.1 double: nothing to judge yet. Next: TODO 97.1"


def test_rows_earn_by_their_weight():
    def changes(x):
        out = 2 * x
        x += 1
        return out

    report = judged(changes)
    assert statuses(report) == ["passed", "failed"] and report.score == 3.0


def test_a_row_waits_for_what_it_needs():
    report = judged(on_tensors(lambda x: x.abs()))
    assert statuses(report) == ["failed", "waits"] and report.score == 0
    assert report.rows[1].waits_for == "twice" and report.rows[1].sentence == ""


def test_rounding_never_gives_full_marks_to_what_did_not_pass():
    light = Row("light", "weighs almost nothing", DOUBLE.rows[0].cases, looks=("changed",), weight=1e-6)
    key = draw_key(exercise(points=1, rows=(DOUBLE.rows[0], light)), 1)

    def changes(x):
        out = 2 * x
        x += 1
        return out

    assert statuses(judged(changes, key)) == ["passed", "failed"] and judged(changes, key).score == 0.99


def test_no_rows_is_no_pass():
    report = judged(double, draw_key(exercise(rows=()), 1))
    assert not report.passed and report.score == 0


# ---- which mistake it is ----------------------------------------------------------------------------


def test_a_known_mistake_is_named_with_its_sentence():
    assert judged(on_tensors(lambda x: x * 3)).diagnosis == ("three", "You multiplied by 3.")
    assert judged(on_tensors(lambda x: 0 - x)).diagnosis == ("sign", "You changed the sign.")


def test_an_unknown_mistake_is_not_named():
    assert judged(on_tensors(lambda x: x * 5)).diagnosis is None


def raises(error):
    def symbol(x):
        raise error

    return symbol


def test_mistakes_that_raise_are_known_by_their_error():
    broken = exercise(mistakes=(Wrong("breaks", "It breaks.", raises(ValueError("too big"))),))
    key = draw_key(broken, 1)
    assert judged(raises(ValueError("too big")), key).diagnosis == ("breaks", "It breaks.")
    assert judged(raises(ValueError("too small")), key).diagnosis is None


def _cases_of_double(draw: Draw) -> list[Case]:
    return DOUBLE.rows[0].cases(draw)


def positive(x):
    return 2 * x.abs()


def first_row_like_triple(x):
    return 3 * x


def two_rows(*wrong: Mistake) -> AnswerKey:
    """An exercise whose second row tells apart what the first does not."""
    plus = Row("plus", "works for positive x", lambda draw: [_positive_case(draw)], looks=("out",))
    minus = Row("minus", "works for negative x", lambda draw: [_negative_case(draw)], looks=("out",))
    return draw_key(exercise(rows=(plus, minus), mistakes=wrong), 3)


def _positive_case(draw: Draw) -> Case:
    return Case("function", {"args": [draw.uniform(4, low=1, high=2)]})


def _negative_case(draw: Draw) -> Case:
    return Case("function", {"args": [draw.uniform(4, low=-2, high=-1)]})


def test_the_mistake_that_explains_every_row_goes_first():
    key = two_rows(Wrong("absolute, then three", "a", _abs_triple), Wrong("three", "b", triple))
    assert judged(on_tensors(lambda x: x * 3), key).diagnosis[0] == "three"
    assert judged(on_tensors(lambda x: 3 * x.abs()), key).diagnosis[0] == "absolute, then three"


def _abs_triple(x):
    return 3 * x.abs()


def test_else_the_one_that_explains_the_first_failure():
    key = two_rows(Wrong("three", "b", triple))
    report = judged(on_tensors(lambda x: torch.where(x > 0, 3 * x, 7 * x)), key)
    assert report.diagnosis[0] == "three"


def test_a_half_done_answer_can_already_hold_a_mistake():
    def half(x):
        if (x < 0).all():
            raise NotImplementedError("TODO 97.2")
        return 3 * x

    report = judged(half, two_rows(Wrong("three", "b", triple)))
    assert statuses(report) == ["failed", "todo"] and report.diagnosis[0] == "three"
    assert report.rows[1].sentence == "Stops at TODO 97.2, which is still open."


# ---- what cannot be judged at all -------------------------------------------------------------------


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


MODULE_KEY = draw_key(
    Exercise(
        id="97.3",
        symbol="Double",
        kind="module class",
        parameters=(),
        points=1,
        todos=("97.3",),
        rows=(Row("twice", "doubles", lambda draw: [Case("module", {"call": {"args": [draw.normal(3)]}})]),),
        reference=Double,
        answer=Double,
        mistakes=(),
        alternatives=(),
        hints={},
    ),
    1,
)


class NoModule:
    def forward(self, x):
        return 2 * x


UNFIT = {
    "an object for a class": (Double(), MODULE_KEY, "Pass the class itself: Double, without parentheses"),
    "a class that is no module": (NoModule, MODULE_KEY, "NoModule does not inherit from nn.Module"),
    "a function for a class": (double, MODULE_KEY, "You passed a function; the class Double itself"),
    "a class for a function": (Double, KEY, "You passed the class Double; the function double was expected"),
    "a plain class for a function": (NoModule, KEY, "You passed the class NoModule; the function double"),
    "an object for a function": (Double(), KEY, "a module object; the function double was expected"),
    "a string": ("double", KEY, "You passed a string (leave the quotes away); the function double itself"),
    "nothing": (None, KEY, "You passed nothing (None); the function double itself was expected"),
    "a number": (3, KEY, "something of type int; the function double itself"),
    "a tensor": (torch.ones(2), KEY, "something of type Tensor; the function double itself"),
    "a string for a class": ("Double", MODULE_KEY, "the class Double itself was expected"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_the_wrong_thing_is_named_once_and_earns_nothing(name):
    symbol, key, words = UNFIT[name]
    report = judged(symbol, key)
    assert words in report.rows[0].sentence and report.score == 0
    assert set(statuses(report)) == {"failed"}
    assert str(report).count(words) == 1, "one sentence explains every row, so it stands once"


def pair(a, b):
    return 2 * a + b


def test_parameters_in_another_order_are_named():
    case = [Case("function", {"args": [torch.ones(2), torch.zeros(2)]})]
    row = Row("sum", "sums", lambda draw: case)
    key = draw_key(
        exercise(parameters=("a", "b"), reference=pair, rows=(row,), mistakes=(), alternatives=()), 1
    )
    sentence = judged(lambda b, a: 2 * a + b, key).rows[0].sentence
    assert "order (b, a)" in sentence and "the task says (a, b)" in sentence
    assert judged(lambda a, b: 2 * a + b, key).passed
    assert judged(lambda first, second: 2 * first + second, key).passed, (
        "other names in the right order will do"
    )


def test_a_forbidden_name_gets_its_sentence_and_a_comment_about_it_does_not():
    key = draw_key(exercise(forbidden={"mul": "Write the product yourself."}), 1)

    def uses(x):
        return x.mul(2)

    def mentions(x):
        # mul is not used
        return 2 * x

    assert judged(uses, key).rows[0].sentence == "Write the product yourself."
    assert judged(mentions, key).passed


def test_a_process_that_died_gives_a_report():
    dead = Observation({}, Problem("died", "Your code ended the process."))
    report = judge(KEY, lambda case: dead)
    assert report.score == 0 and "ended the process" in report.rows[0].sentence


def test_hostile_observations_are_no_crash():
    for values in ({"kind": ["a"], "parameters": 3}, {"kind": "function", "parameters": None, "uses": None}):
        report = judge(KEY, lambda case, values=values: Observation(dict(values)))
        assert report.score == 0


# ---- drawing and recording --------------------------------------------------------------------------


def test_equal_seeds_draw_equal_keys_and_others_do_not():
    a, b, c = (pack(key_tree(draw_key(DOUBLE, seed))) for seed in (1, 1, 2))
    assert a == b and a != c


def test_a_recorded_key_judges_as_the_drawn_one():
    recorded = key_from_tree(unpack(pack(key_tree(KEY))), sentences_of(DOUBLE))
    for symbol in (double, triple, negate, stub, None, Double):
        assert str(judged(symbol, recorded)) == str(judged(symbol, KEY))


@pytest.mark.parametrize(
    "rows, words",
    [
        (
            (Row("a", "a", _cases_of_double, needs=("valeu",)),),
            "it needs 'valeu', which is no row above",
        ),
        ((Row("a", "a", _cases_of_double), Row("a", "b", _cases_of_double)), "two rows are called 'a'"),
    ],
    ids=["a need that is misspelt", "two rows of one name"],
)
def test_rows_that_contradict_each_other_are_named(rows, words):
    with pytest.raises(BadExercise, match=re.escape(words)):
        draw_key(exercise(rows=rows), 1)


def test_expected_values_come_from_float64():
    third = exercise(reference=lambda x: x / 3, mistakes=(), alternatives=())
    case = draw_key(third, 1).rows[0].cases[0]
    x = case.case.inputs["args"][0]
    assert case.expected["out"].dtype == torch.float32
    assert torch.equal(case.expected["out"], (x.double() / 3).float())


def broken(x):
    raise RuntimeError("the author slept")


BAD = {
    "a reference that fails": (exercise(reference=broken), "the author slept"),
    "a row that looks at nothing": (
        exercise(rows=(Row("nothing", "says", DOUBLE.rows[0].cases, looks=("atr.pe",)),)),
        "atr.pe",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_authors_mistake_names_exercise_row_and_reason(name):
    bad, words = BAD[name]
    with pytest.raises(BadExercise, match=r"97\.1, row '(twice|nothing)'") as caught:
        draw_key(bad, 1)
    assert words in str(caught.value)


def test_drawn_sizes_differ_and_impossible_ranges_say_so():
    for seed in range(20):
        sizes = Draw(seed).sizes(a=(2, 4), b=(2, 4), c=[3, 4, 9])
        assert len(set(sizes.values())) == 3
    with pytest.raises(ValueError, match="no different sizes"):
        Draw(0).sizes(a=[2], b=[2])
