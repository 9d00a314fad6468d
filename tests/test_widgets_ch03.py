"""The pictures of chapter 03, on right and on known-wrong implementations; and what its exercises promise."""

import math

import numpy as np
import pytest
import torch

from grader.exercises import get
from grader.exercises.ch03 import _attention_cases
from grader.exercises.ch03 import score_variance as variance_exercise
from grader.exercises.ch03.attention import attention
from grader.exercises.ch03.score_variance import tensors_einsum as score_variance
from grader.exercises.draw import Draw
from grader.judging.judge import judge_fresh
from transformer_lab import parts
from transformer_lab.checking.probes.core import observe
from transformer_lab.widgets import ch03, fonts
from transformer_lab.widgets.ch03 import (
    SCALED,
    WIDTHS,
    mask_data,
    mask_editor,
    mask_of,
    saturation,
    saturation_data,
    step_data,
    steps,
    variance_data,
    variances,
)

PNG = b"\x89PNG"
WRONG, WRONG_SOFTMAX, WRONG_VARIANCE = (
    {wrong.name: wrong.symbol for wrong in get(number).misconceptions} for number in ("3.6", "3.5", "3.7")
)


def softmax(x, dim=-1):
    return torch.softmax(x, dim)


def with_number(q, k, v, mask=None):
    """Attention that hides with −1e9, as many programs do, and not with −∞."""
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    return weights @ v, weights


def todo(*_args, **_kwargs):
    raise NotImplementedError("TODO 3.6")


# ---- the stepper ----


def test_steps_show_the_worked_example():
    data = step_data(parts.attention, "en", 2, 4, causal=True)
    raw, scaled, hidden, weights, _ = data.tables
    assert np.allclose(raw, 2 * SCALED)
    assert np.allclose(scaled, SCALED)
    assert np.isneginf(hidden[0, 1:]).all()
    assert weights.round(2)[:3].tolist() == [[1, 0, 0, 0], [0.2, 0.8, 0, 0], [0.1, 0.34, 0.56, 0]]
    assert np.allclose(data.out, weights @ ch03.VALUES.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["over queries", "no scale", "mask sign", "mask after softmax", "hidden scores set to 0", "uniform"],
)
def test_a_mistake_shows_in_the_steps(name):
    picture = steps(WRONG[name])
    right = step_data(parts.attention, "en", 1, 4, causal=True)
    assert not np.allclose(picture._data.tables[3], right.tables[3], atol=0.01, equal_nan=True)
    assert 'run check("3.6", attention)' in picture.summary()
    assert picture.png() != steps(parts.attention).png()


@pytest.mark.parametrize("step", range(1, 6))
def test_each_step_draws_and_says_what_it_shows(step):
    picture = steps(attention).set(step=step, query=3)
    assert picture.png().startswith(PNG)
    assert f"Step {step}" in picture.summary() and "“deep”" in picture.summary()
    assert "check(" not in picture.summary()
    assert ("output is (1.78, 1.24)" in picture.summary()) == (step == 5)


def test_chinese_tokens_are_named():
    picture = steps(attention).set(language="zh")
    assert "爱 0.80" in picture.summary()
    if fonts.cjk_family() is None:
        pytest.skip("no font with Chinese glyphs is installed, so the map numbers its tokens")
    assert [label.get_text() for label in picture.map.axes.get_xticklabels()] == ["我", "爱", "深度", "学习"]


def test_without_a_chinese_font_tokens_are_numbered(monkeypatch):
    monkeypatch.setattr(fonts, "cjk_family", lambda: None)
    picture = steps(attention).set(language="zh")
    assert picture.png().startswith(PNG)
    assert picture.map.axes.get_xticklabels()[0].get_text() == "token 1"
    assert "爱 0.80" in picture.summary()


# ---- the mask editor ----


def test_masks_are_what_their_names_say():
    assert mask_of("none").all()
    assert not mask_of("causal")[0, 1:].any() and mask_of("causal")[5].all()
    assert not mask_of("padding")[:, 4:].any() and mask_of("padding")[:, :4].all()
    assert (mask_of("both") == (mask_of("causal") & mask_of("padding"))).all()
    assert not mask_of("causal", first_sees_nothing=True)[0].any()


def test_before_softmax_rows_sum_to_one_and_after_they_do_not():
    before = mask_data(attention, "both")
    after = mask_data(attention, "both", "after")
    assert np.allclose(before.sums, 1)
    assert after.sums.max() < 0.8
    assert not before.weights[~before.allowed].any() and not after.weights[~after.allowed].any()


@pytest.mark.parametrize(
    "name", ["mask sign", "mask after softmax", "not negative enough", "mask ignored", "mask added"]
)
def test_a_mistake_shows_in_the_mask_editor(name):
    right, wrong = mask_data(attention, "causal"), mask_data(WRONG[name], "causal")
    assert not np.allclose(right.weights, wrong.weights, atol=1e-6, equal_nan=True)


def test_a_row_that_may_see_nothing():
    picture = mask_editor(attention).set(empty=True)
    assert "Row “the” has no key" in picture.summary() and "NaN" in picture.summary()
    assert np.allclose(mask_data(with_number, "causal", empty=True).weights[0], 1 / 6)
    assert "your code gives it 0.17" in mask_editor(with_number).set(empty=True).summary()
    assert np.isnan(mask_data(attention, "causal", empty=True, dtype="float16").weights[0]).all()
    assert "overflow" in mask_editor(with_number).set(dtype="float16").summary()


def test_leaking_weight_is_said():
    assert "Hidden keys still receive weight" in mask_editor(WRONG["mask ignored"]).summary()


def test_mask_editor_draws():
    picture = mask_editor(attention)
    before = picture.png()
    assert before.startswith(PNG)
    assert picture.set(kind="both", when="after", language="zh").png() != before
    assert "do not sum to 1" in picture.summary()


# ---- variance and saturation ----


def test_variances_follow_the_theory():
    data = variance_data(score_variance, 5000, seed=0)
    assert np.allclose(data.raw / WIDTHS, 1, atol=0.2)
    assert np.allclose(data.scaled, 1, atol=0.2)


@pytest.mark.parametrize("name", ["not scaled", "scaled by d_k", "standard deviation", "uniform 0 to 1"])
def test_a_mistake_shows_in_the_variances(name):
    right, other = (variance_data(f, 1000, seed=0) for f in (score_variance, WRONG_VARIANCE[name]))
    assert (
        abs(math.log(right.raw[-1] / other.raw[-1])) + abs(math.log(right.scaled[-1] / other.scaled[-1])) > 1
    )


def test_variances_draw():
    picture = variances(score_variance)
    before = picture.png()
    assert "d_k = 64" in picture.summary()
    assert picture.set(samples=10).png() != before


def test_unscaled_scores_saturate_and_the_gradient_dies():
    data = saturation_data(softmax, 256, False, 1.0)
    assert data.scores.std() == pytest.approx(16, rel=0.05)
    assert data.largest > 0.9
    assert data.gradients[False][-1] < 0.25 * data.gradients[True][-1]
    assert data.gradients[True].min() > 0.8 * data.gradients[True].max()


def test_temperature_imitates_the_scale():
    by_temperature, by_scale = (
        saturation_data(softmax, 64, False, 8.0),
        saturation_data(softmax, 64, True, 1.0),
    )
    assert np.allclose(by_temperature.weights, by_scale.weights, atol=1e-6)


@pytest.mark.parametrize("name", ["not stable", "no exponential", "base two", "sum of everything"])
def test_a_mistake_shows_in_the_saturation(name):
    right, other = (saturation_data(f, 1024, False, 0.25) for f in (softmax, WRONG_SOFTMAX[name]))
    same = np.allclose(right.weights, other.weights, atol=1e-3)
    assert not (same and np.allclose(right.gradients[True], other.gradients[True], rtol=1e-2))


def test_saturation_draws():
    picture = saturation(softmax)
    before = picture.png()
    assert "as they are" in picture.summary()
    assert picture.set(scaled=True).png() != before
    assert "divided by √d_k" in picture.summary()


@pytest.mark.parametrize("picture", [steps, mask_editor, variances, saturation])
def test_an_unfinished_todo_is_said(picture):
    assert picture(todo).summary().startswith("This picture is drawn from your code. Finish TODO 3.6")


def test_pictures_leave_the_learners_random_numbers_alone():
    state = torch.get_rng_state()
    saturation(softmax), variances(score_variance), steps(attention), mask_editor(attention)
    assert torch.equal(state, torch.get_rng_state())


# ---- what the exercises promise ----


def _report(exercise, symbol):
    return judge_fresh(exercise, lambda case: observe(symbol, case), seed=1)


def test_a_library_softmax_is_refused_kindly():
    def by_logarithm(x, dim=-1):
        return torch.log_softmax(x, dim).exp()

    for symbol, name in ((softmax, "softmax"), (by_logarithm, "log_softmax")):
        report = _report("3.5", symbol)
        assert report.score == 0
        assert f"the library's {name}," in str(report) and "exp, a sum and a division" in str(report)


def test_more_than_chance_is_needed_to_fail_a_right_variance():
    """Ten fresh cases: the mean of 180 runs stays within half of the tolerance."""
    for seed in range(10):
        case = variance_exercise._case(Draw(seed))
        seen = observe(score_variance, case).values
        assert seen["raw"] == pytest.approx(case.inputs["d_k"], rel=0.02)
        assert seen["scaled"] == pytest.approx(1, rel=0.02)


def test_both_ways_to_hide_are_accepted():
    for symbol in (with_number, attention):
        assert _report("3.6", symbol).passed


def test_no_two_axes_of_a_case_are_equal():
    for seed in range(20):
        draw = Draw(seed)
        for lead in ("B", "Bh"):
            qkv, sizes = _attention_cases.qkv(draw, lead)
            assert len({*sizes.values()}) == len(sizes)
            assert all(len(set(x.shape)) == x.dim() for x in qkv)
