"""Chapter 06's pictures: right and wrong blocks give other arrays, and the words follow them."""

import numpy as np
import pytest
import torch
from torch import nn

from grader.exercises import get
from grader.exercises.ch06 import encoder_layer, encoder_parameters, feed_forward, gelu, swiglu
from transformer_lab.widgets.ch06 import bend_data, bends, influence, parameter_shares, share_data


def mistaken(exercise: str, name: str):
    """What the cell of a known mistake defines."""
    return next(one.symbol for one in get(exercise).misconceptions if one.name == name)


class Unfinished(nn.Module):
    def __init__(self, d_model, d_ff):
        raise NotImplementedError("TODO 6.1")


def unfinished_gelu(x):
    raise NotImplementedError("TODO 6.4")


def test_wider_blocks_come_nearer():
    misses = [bend_data(feed_forward.Reference, m).miss for m in (1, 4, 16)]
    assert misses[0] > 0.5 and misses[1] < 0.15 and misses[2] < 0.01


def test_without_a_bend_width_is_wasted():
    curves = [bend_data(mistaken("6.1", "no ReLU"), m).curve for m in (1, 16)]
    assert np.allclose(curves[0], curves[1], atol=1e-2)
    assert np.abs(np.diff(curves[1], 2)).max() < 1e-4, "a straight line"
    assert np.abs(np.diff(bend_data(feed_forward.Reference, 4).curve, 2)).max() > 1e-2


def test_swiglu_bends_without_corners():
    assert bend_data(swiglu.Reference, 8).miss < 0.01
    assert bend_data(mistaken("6.5", "bilinear"), 8).miss > 0.1, "a gate that does not bend leaves a parabola"


@pytest.mark.parametrize(
    "wrong", ["no ReLU", "bends the input", "bends last", "absolute value", "GELU for ReLU"]
)
def test_wrong_blocks_draw_another_curve(wrong):
    assert not np.allclose(
        bend_data(mistaken("6.1", wrong), 4).curve, bend_data(feed_forward.Reference, 4).curve, atol=0.02
    )


def test_influence_shows_who_hears_whom():
    right = bend_data(feed_forward.Reference, 2)
    assert right.alone and (np.diag(right.influence) > 0.1).all()
    mixing = bend_data(mistaken("6.1", "mixes tokens"), 2)
    assert not mixing.alone and (mixing.influence > 0.01).all()
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    influence(feed_forward.Reference)
    assert torch.equal(torch.rand(1), expected), "the learner's random numbers are left alone"


def test_bends_are_drawn_and_described():
    picture = bends(feed_forward.Reference, gelu.step_by_step, swiglu.Reference)
    assert "8 inner units" in picture.summary() and "on no other token" in picture.summary()
    before = picture.png()
    assert picture.set(multiplier=16).png() != before and "32 inner units" in picture.summary()
    assert np.array_equal(picture.curve.get_ydata(), picture._data[1].curve)
    for name in picture.blocks:
        assert name in picture.set(activation=name).summary()
    assert "on other tokens, too" in bends(mistaken("6.1", "mixes tokens")).summary()


def test_unfinished_parts_are_named():
    assert "TODO 6.1" in bends(Unfinished).summary()
    picture = bends(feed_forward.Reference, unfinished_gelu)
    assert "TODO 6.4" in picture.set(activation="GELU (your gelu)").summary()


def test_shares_of_the_papers_model():
    data = share_data(encoder_layer.WrappersOfChapter05, encoder_parameters.linear_by_linear)
    assert data.formula == sum(data.counts["encoder"].values()) == 18_914_304
    assert data.counts["decoder"]["attention"] == 2 * data.counts["encoder"]["attention"]
    assert data.share("encoder", "feed-forward") == pytest.approx(2 / 3, abs=0.005)
    assert data.share("decoder", "feed-forward") == pytest.approx(1 / 2, abs=0.005)
    assert data.counts["embeddings"]["tables"] == 37000 * 512


def test_wrong_layers_are_counted_as_they_are():
    right, shared = (
        share_data(layer, None, 64, 2) for layer in (encoder_layer.EncoderLayer, mistaken("6.6", "one norm"))
    )
    assert shared.counts["encoder"]["norms"] * 2 == right.counts["encoder"]["norms"]
    four = share_data(mistaken("6.6", "always four times"), None, 64, 2)
    assert four.counts["encoder"]["feed-forward"] > right.counts["encoder"]["feed-forward"]


def test_shares_are_drawn_and_described():
    picture = parameter_shares(encoder_layer.EncoderLayer, encoder_parameters.matrices_and_vectors)
    assert "67% of the encoder" in picture.summary() and "they agree" in picture.summary()
    before = picture.png()
    assert picture.set(multiplier=1, vocabulary=0).png() != before
    assert "33% of the encoder" in picture.summary() and "embeddings 0.0" in picture.summary()
    assert picture.words["embeddings", "tables"].get_text() == ""
    assert (
        "they differ" in parameter_shares(encoder_layer.EncoderLayer, mistaken("6.8", "4d missing")).summary()
    )
    assert "encoder_parameters" not in parameter_shares(encoder_layer.EncoderLayer).summary()
