"""A judge that breaks, and data that cannot be judged: whose fault was it?"""

from __future__ import annotations

import pickle

import pytest

from grader.grading import blame
from grader.grading.blame import JudgeFailed, NotComparable, judged
from grader.jail import JailError
from grader.judging.judge import fresh_key
from transformer_lab.checking.judging.key import judge
from transformer_lab.checking.probes.core import Observation
from transformer_lab.checking.probes.describe import DESCRIBE

KEY = fresh_key("2.5", 7)


def right(**described):
    """The observations of a right answer, described as one likes."""
    known = blame._known(KEY, None)
    return lambda case: Observation(known(case).values | described) if case is DESCRIBE else known(case)


def test_a_right_answer_is_judged_as_ever():
    assert judged(judge, KEY, right()).passed
    for name in KEY.misconceptions:
        assert judged(judge, KEY, blame._known(KEY, name)).diagnosis[0] == name


@pytest.mark.parametrize(
    "described", [{"uses": 5}, {"uses": [[]]}, {"parameters": [[], {}, 5]}, {"parameters": 5}]
)
def test_odd_data_is_the_submissions_own_fault(described):
    if described == {"parameters": [[], {}, 5]}:
        assert judged(judge, KEY, right(**described)).passed  # odd, and no obstacle
        return
    with pytest.raises(NotComparable, match=r"could not be compared \(TypeError\)"):
        judged(judge, KEY, right(**described))


def test_odd_results_are_the_submissions_own_fault():
    def odd(case):
        return right()(case) if case is DESCRIBE else Observation({"out": {"$type": ["x"]}})

    with pytest.raises(NotComparable, match="AttributeError"):
        judged(judge, KEY, odd)


def broken(key, observe):
    raise KeyError("a bug")


def breaks_on_mistakes(key, observe):
    report = judge(key, observe)
    if report.diagnosis:
        raise ZeroDivisionError("a bug in what is said about mistakes")
    return report


@pytest.mark.parametrize("judge_with", [broken, breaks_on_mistakes])
def test_a_broken_judge_is_the_graders_fault(judge_with):
    mistake = next(iter(KEY.misconceptions))
    with pytest.raises(
        JudgeFailed, match=r"exercise 2\.5 broke: (KeyError|ZeroDivisionError): .*a bug"
    ) as caught:
        judged(judge_with, KEY, blame._known(KEY, mistake))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # it comes back from workers


@pytest.mark.parametrize("error", [JailError("the jail broke"), OSError("no room"), RuntimeError("a bug")])
def test_what_fails_while_observing_stays_what_it_is(error):
    def observe(_case):
        raise error

    with pytest.raises(type(error), match=str(error)):
        judged(judge, KEY, observe)


def test_too_little_memory_is_no_mark():
    def no_room(_key, _observe):
        raise MemoryError

    with pytest.raises(MemoryError):
        judged(no_room, KEY, right())
