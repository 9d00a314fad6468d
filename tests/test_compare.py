"""What differs is said in words: the first difference, where it is, and a simple relation if there is one."""

import math
import subprocess
import sys

import pytest
import torch

from grader.layout import ROOT
from transformer_lab.checking.judging.compare import Tolerance, agree, difference, error_ratio, selected
from transformer_lab.checking.probes.core import Observation
from transformer_lab.checking.probes.problems import Problem

RIGHT = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def said(seen, expected=RIGHT, name="out", spoken=None, tolerance=None):
    """The difference between one expected value and one seen."""
    return difference({name: expected}, Observation({name: seen}), tolerance or Tolerance(), spoken or {})


WORDS = {
    "value": (
        RIGHT + torch.eye(3)[:2],
        "value",
        ["the output[0, 0] is 2.0000; expected 1.0000", "2 of 6 numbers"],
    ),
    "factor": (RIGHT * 3, "value", ["Every number is 3 times the expected one"]),
    "sign": (-RIGHT, "value", ["Every number is -1 times"]),
    "shift": (RIGHT + 0.5, "value", ["Every number is off by 0.5"]),
    "transposed": (RIGHT.T, "shape", ["shape [3, 2]; expected [2, 3]", "wrong order", "transpose"]),
    "kept axis": (RIGHT[None], "shape", ["axes of length 1"]),
    "one axis": (RIGHT[0], "shape", ["It has 1 axis; 2 are needed"]),
    "other length": (torch.zeros(2, 5), "shape", ["shape [2, 5]; expected [2, 3]"]),
    "dtype": (RIGHT.double(), "dtype", ["dtype float64; expected float32"]),
    "nan": (RIGHT.clone().fill_(math.nan), "nan", ["NaN in 6 of 6 places"]),
    "infinite": (RIGHT / 0, "value", ["inf"]),
    "nothing": (None, "none", ["is None", "return"]),
    "numpy": ({"$type": "numpy.ndarray"}, "numpy", ["numpy array", "torch.Tensor"]),
    "list": ([1.0], "type", ["is a list", "torch.Tensor"]),
    "number": (3, "type", ["is an int", "torch.Tensor"]),
    "elsewhere": ({"$type": "a tensor on cuda:0"}, "device", ["on cuda:0", "CPU", "device=x.device"]),
    "sparse": ({"$type": "a sparse tensor"}, "type", ["is a sparse tensor"]),
}


@pytest.mark.parametrize("name", WORDS)
def test_each_difference_has_its_own_words(name):
    seen, kind, words = WORDS[name]
    found = said(seen)
    assert found.kind == kind
    for word in words:
        assert word in found.text


def test_equal_values_make_no_difference():
    assert said(RIGHT.clone()) is None and said(RIGHT + 1e-6) is None
    for value in (True, 3, "text", [1, [2]], None, 0.25):
        assert said(value, value) is None


@pytest.mark.parametrize(
    ("seen", "expected"),
    [(1, True), (True, 1), (2, 3), ("a", "b"), ([1], [2]), (0.5, 0.51), (1, 1.0), (RIGHT, 3), (3, "3")],
)
def test_unequal_plain_values_do_differ(seen, expected):
    assert said(seen, expected) is not None


def test_one_bad_element_among_many_is_found_and_named():
    right = torch.zeros(4, 5, 6)
    seen = right.clone()
    seen[3, 1, 2] = 0.5
    assert said(seen, right).text.startswith("the output[3, 1, 2] is 0.5000; expected 0. 1 of 120")


def test_tolerance_is_absolute_plus_relative():
    coarse = Tolerance(atol=0.1, rtol=0.1)
    large = torch.tensor([1000.0, 0.0])
    assert said(large + torch.tensor([99.0, 0.09]), large, tolerance=coarse) is None
    assert said(large + torch.tensor([0.0, 0.11]), large, tolerance=coarse) is not None


def test_infinities_where_they_are_expected_are_right():
    wanted = torch.tensor([1.0, -math.inf, math.nan])
    assert said(wanted.clone(), wanted) is None
    assert said(torch.tensor([1.0, math.inf, math.nan]), wanted) is not None
    assert said(torch.tensor([1.0, -math.inf, 0.0]), wanted) is not None


def test_integers_and_booleans_are_compared_exactly():
    ids = torch.tensor([3, 2, 7])
    assert said(torch.tensor([3, 2, 8]), ids).text == "the output[2] is 8; expected 7. 1 of 3 numbers differ."
    assert said(torch.tensor([True, False]), torch.tensor([True, True])) is not None


def test_scalars_are_shown_without_an_index():
    assert said(torch.tensor(2.0), torch.tensor(1.0)).text == "the output is 2.0000; expected 1.0000."


def test_empty_tensors_are_compared_by_shape():
    assert said(torch.zeros(0, 3), torch.zeros(0, 3)) is None
    assert said(torch.zeros(0, 4), torch.zeros(0, 3)).kind == "shape"


NAMES = {
    "out.1": "output 1",
    "grad.x": "the gradient of x",
    "attr.pe": "pe ",
    "attr.pe.requires_grad": "pe.requires_grad",
    "parameters": "the list of parameters",
    "buffers": "the list of buffers",
    "changed": "the list of changed inputs",
    "raised": "the exception raised",
}


@pytest.mark.parametrize("name", NAMES)
def test_internal_names_are_put_into_words(name):
    assert said([1], [2], name).text.startswith(NAMES[name])


def test_an_exercise_may_say_it_in_its_own_words():
    assert said(RIGHT + 1, name="out.1", spoken={"out.1": "the weights"}).text.startswith("the weights[")


def test_wrong_number_of_results_is_named():
    one = difference({"out.0": RIGHT}, Observation({"out": RIGHT}), Tolerance(), {})
    two = difference({"out": RIGHT}, Observation({"out.0": RIGHT, "out.1": RIGHT}), Tolerance(), {})
    three = difference({"out.2": RIGHT}, Observation({"out.0": RIGHT, "out.1": RIGHT}), Tolerance(), {})
    assert "a tuple of results was expected, and one value came back" in one.text
    assert "one value was expected, and a tuple came back" in two.text
    assert "output 2: nothing like it" in three.text


def test_a_problem_is_the_difference_unless_all_that_is_looked_at_was_seen():
    problem = Problem("raised", "Your code raised ValueError.")
    assert difference({"out": RIGHT}, Observation({}, problem), Tolerance(), {}).text == problem.text
    assert difference({"out": RIGHT}, Observation({"out": RIGHT}, problem), Tolerance(), {}) is None


def test_dictionaries_differ_by_order_and_content():
    wanted = {"$dict": [["a", 1], ["b", 2]]}
    assert said({"$dict": [["a", 1], ["b", 2]]}, wanted) is None
    other = said({"$dict": [["b", 2], ["a", 1]]}, wanted)
    assert other.kind == "value" and "{'b': 2, 'a': 1}" in other.text and "$dict" not in other.text


def test_sentences_stay_short_whatever_came_back():
    assert len(said("x" * 5000, "y" * 5000).text) < 500
    assert len(said(list(range(5000)), [1]).text) < 500


def test_numbers_in_lists_and_dictionaries_may_differ_by_rounding():
    assert said([0.1, [0.2]], [0.1 + 1e-9, [0.2]]) is None
    assert said([0.1, [0.2]], [0.1, [0.3]]) is not None
    assert said({"$dict": [["a", 0.5]]}, {"$dict": [["a", 0.5 + 1e-9]]}) is None
    assert said(1.0 + 1e-9, 1.0, tolerance=Tolerance(1e-10, 0)) is not None, "in full precision"
    assert said(math.inf, math.inf) is None and said(math.nan, 1.0) is not None
    assert agree(Observation({"out": [0.1]}), Observation({"out": [0.1 + 1e-9]}), ["out"], Tolerance())


@pytest.mark.parametrize(
    "seen",
    [[RIGHT, RIGHT], [torch.tensor(1), torch.tensor(2)], [True, 2], [1, 2.0], [1], [1, 2, 3], {"a": 1}],
)
def test_lists_of_other_things_differ_and_are_no_crash(seen):
    assert said(seen, [1, 2]).kind == "value"
    assert not agree(Observation({"out": seen}), Observation({"out": [1, 2]}), ["out"], Tolerance())


def test_tensors_in_lists_are_compared():
    assert said([RIGHT.clone(), 1], [RIGHT, 1]) is None
    assert said([RIGHT + 1, 1], [RIGHT, 1]) is not None and said([RIGHT.T, 1], [RIGHT, 1]) is not None


# ---- recognising a mistake --------------------------------------------------------------------------


def test_observations_agree_by_what_a_row_looks_at():
    a = Observation({"out": RIGHT, "changed": []})
    b = Observation({"out": RIGHT + 1e-6, "changed": ["0"]})
    assert agree(a, b, ["out"], Tolerance()) and not agree(a, b, ["out", "changed"], Tolerance())
    assert not agree(a, Observation({"out": RIGHT + 1}), ["out"], Tolerance())
    assert not agree(a, Observation({"out": [1]}), ["out"], Tolerance())
    assert not agree(a, Observation({}), ["out"], Tolerance())


def test_observations_that_stopped_agree_by_their_errors():
    def stopped(error, kind="raised"):
        return Observation({}, Problem(kind, "a sentence", error))

    assert agree(stopped("ValueError: size 3"), stopped("ValueError: size 3"), [], Tolerance())
    assert not agree(stopped("ValueError: size 3"), stopped("ValueError: size 4"), [], Tolerance())
    assert not agree(stopped("ValueError: a"), Observation({"out": 1}), [], Tolerance())
    assert not agree(stopped("a", "shape"), stopped("a", "raised"), [], Tolerance())
    mine = "AttributeError: '__main__.Mine' object at 0x7f01 has no attribute 'pe'"
    ours = "AttributeError: 'grader.Ours' object at 0x7f99 has no attribute 'pe'"
    assert agree(stopped(mine), stopped(ours), [], Tolerance())


def test_error_ratio_counts_tolerances():
    tolerance = Tolerance(atol=0.1, rtol=0.0)
    assert error_ratio(torch.zeros(2), torch.tensor([0.05, -0.2]), tolerance) == pytest.approx(2.0)
    assert error_ratio(torch.zeros(2), torch.zeros(3), tolerance) == math.inf
    assert error_ratio(torch.zeros(2), torch.zeros(2).double(), tolerance) == math.inf
    assert error_ratio(torch.zeros(2), torch.tensor([0.0, math.nan]), tolerance) == math.inf
    assert error_ratio(1.0, 1.05, tolerance) == pytest.approx(0.5)
    assert error_ratio("a", "a", tolerance) == 0 and error_ratio("a", "b", tolerance) == math.inf


def test_patterns_choose_values_in_their_order():
    values = ["changed", "out.0", "out.1", "grad.0"]
    assert selected(values, ("grad.*", "out*")) == ["grad.0", "out.0", "out.1"]
    assert selected(values, ("out",)) == []


WRONG_NUMBER = """
import sys, torch
from tests.test_compare import RIGHT, said
assert "sympy" not in sys.modules, "torch imports it by itself"
assert said(RIGHT + torch.eye(3)[:2]).kind == "value"
assert "sympy" not in sys.modules
"""


def test_a_wrong_number_is_told_without_importing_what_takes_a_second():
    done = subprocess.run([sys.executable, "-c", WRONG_NUMBER], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
