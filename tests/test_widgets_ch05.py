"""Chapter 05's pictures: right and wrong implementations give other arrays; words follow them."""

import numpy as np
import pytest
import torch
from torch import nn

from grader.exercises import get
from transformer_lab.widgets.ch05 import (
    by_depth,
    depth_data,
    geometry,
    geometry_data,
    gradient_data,
    gradients_by_layer,
)

LAYER_NORM, POST, PRE, RMS_NORM, NORMS = (get(f"5.{n}").reference for n in (1, 2, 3, 4, 5))
FIELDS = ("std", "mean", "kept", "gradient", "weight_gradient")


class Unfinished(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.ones(d_model)), nn.LayerNorm(d_model)

    def forward(self, *_):
        raise NotImplementedError("TODO 5.3")


def wrong(exercise: str, name: str):
    """The class or function that a known mistake defines."""
    return next(one.symbol for one in get(exercise).misconceptions if one.name == name)


def differ(a, b) -> bool:
    return any(not np.allclose(getattr(a, f), getattr(b, f), rtol=1e-3) for f in FIELDS)


def test_depth_data_tells_what_each_part_is_for():
    post, pre = (depth_data(w, 24) for w in (POST, PRE))
    assert np.allclose(post.std, 1, atol=1e-3), "Post-Norm ends every layer at spread 1"
    assert (np.diff(pre.std) > -0.05).all() and pre.std[-1] > 2, "Pre-Norm's residual path grows"
    assert pre.kept[-1] > 0.3 > post.kept[-1]
    bare = depth_data(POST, 24, residual=False, norm=False)
    assert bare.std[-1] < 1e-5 and bare.gradient[0] < 1e-3 < bare.gradient[-1]
    assert depth_data(POST, 24, norm=False).std[-1] > 10


def test_residual_is_taken_away_exactly():
    """A wrapper that has no residual gives the same with a sublayer of its own as ours without one."""
    without = depth_data(PRE, 6, residual=False)
    assert not differ(without, depth_data(wrong("5.3", "no residual"), 6))
    assert np.abs(without.kept).max() < 0.2


def test_gamma_and_beta_act_on_every_norm():
    data = depth_data(POST, 5, gamma=0.5, beta=0.25)
    assert np.allclose(data.std, 0.5, atol=1e-3) and np.allclose(data.mean, 0.25, atol=1e-3)


def test_last_gradient_falls_with_depth_in_pre_norm_only():
    last = {
        name: [depth_data(w, depth, final=name == "pre").weight_gradient[-1] for depth in (6, 24)]
        for name, w in (("post", POST), ("pre", PRE))
    }
    assert last["post"][1] > 0.9 * last["post"][0] and last["pre"][1] < 0.6 * last["pre"][0]


@pytest.mark.parametrize("name", ["pre for post", "norm then add", "no residual", "no norm", "sandwich"])
def test_wrong_wrappers_give_other_curves(name):
    assert differ(depth_data(POST, 8), depth_data(wrong("5.2", name), 8))


def test_depth_is_drawn_and_described():
    picture = by_depth(POST, PRE)
    assert "Post-Norm, with residual, 24 layers" in picture.summary() and "spread is 1," in picture.summary()
    before = picture.png()
    picture.set(order="no norm", residual=False)
    assert picture.png() != before and "3.1e-07" in picture.summary()
    assert np.array_equal(picture.gradient.get_ydata(), picture._data[1].gradient)
    assert picture.set(depth=4).title.get_text() == "no norm, without residual, 4 layers"


def test_unfinished_pre_norm_is_named_when_it_is_chosen():
    picture = by_depth(POST, Unfinished)
    assert "TODO 5.3" in picture.set(order="Pre-Norm").summary()


def test_gradient_picture_on_right_and_wrong():
    right = gradient_data(NORMS, 12, 16, 0)
    assert right.plain[0] < 2e-2 < right.residual[0]
    never = gradient_data(wrong("5.5", "never residual"), 12, 16, 0)
    assert np.allclose(never.plain, right.plain) and not np.allclose(never.residual, right.residual)
    picture = gradients_by_layer(NORMS)
    assert "30 layers" in picture.summary() and "2.5e-06 at the first" in picture.summary()
    before = picture.png()
    assert picture.set(depth=10).png() != before and "10 layers" in picture.summary()


def test_gradient_picture_leaves_the_learners_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    gradient_data(NORMS, 2, 4, 7)
    depth_data(POST, 2)
    assert torch.equal(torch.rand(2), expected)


def test_layer_norm_lies_on_a_circle_and_rms_norm_on_a_sphere():
    layer, rms = geometry_data(LAYER_NORM), geometry_data(RMS_NORM)
    assert np.allclose(layer.lengths, 3**0.5, atol=2e-3) and np.allclose(layer.sums, 0, atol=1e-5)
    assert np.allclose(rms.lengths, 3**0.5, atol=1e-3) and np.abs(rms.sums).max() > 2
    assert np.allclose(geometry_data(wrong("5.1", "unbiased variance")).lengths, 2**0.5, atol=2e-3)
    assert np.abs(geometry_data(wrong("5.1", "no mean")).sums).max() > 1
    assert np.ptp(geometry_data(LAYER_NORM, stretch=2.0).lengths) > 1


def test_geometry_is_drawn_and_described():
    picture = geometry(LayerNorm=LAYER_NORM, RMSNorm=RMS_NORM)
    assert "have length 1.73" in picture.summary() and "sum to 0" in picture.summary()
    before = picture.png()
    assert picture.set(turn=100).png() != before
    assert picture.set(norm="RMSNorm").summary().startswith("RMSNorm") and "between" in picture.summary()


def test_unfinished_norm_is_named():
    assert "TODO 5.3" in geometry(LayerNorm=Unfinished).summary()
