"""The map of the machine, and the picture of chapter 00."""

import numpy as np
import pytest
import torch

from transformer_lab.widgets.architecture import BLOCKS, PARTS, architecture, lit_parts
from transformer_lab.widgets.ch00 import reach, reach_data

PNG = b"\x89PNG"


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_lights_its_boxes(block):
    lit = lit_parts(block)
    assert lit and len(lit) < len(PARTS)
    picture = architecture(block)
    assert not picture.problem
    assert picture.png().startswith(PNG)
    assert f"Lit: {block}," in picture.summary()


def test_pictures_of_two_blocks_differ():
    assert architecture("encoder").png() != architecture("decoder").png() != architecture().png()


def test_every_box_belongs_to_a_block():
    assert {part.block for part in PARTS} == set(BLOCKS)


def test_unknown_block_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"no block 'softmax'.*embedding, positional encoding"):
        architecture("softmax")


def test_signal_fades_with_distance_in_a_recurrent_network_only():
    data = reach_data("RNN", 30)
    assert data.recurrent.shape == data.attention.shape == (30,)
    assert data.recurrent[29] < 1e-6 * data.recurrent[0]
    assert data.attention[29] > 0.2 * data.attention[1]


def test_gates_help():
    assert reach_data("LSTM", 30).recurrent[29] > 10 * reach_data("RNN", 30).recurrent[29]


def test_measuring_leaves_the_learners_random_numbers_alone():
    state = torch.get_rng_state()
    reach_data("RNN", 10)
    assert torch.equal(state, torch.get_rng_state())


def test_reach_draws_and_says_what_it_shows():
    picture = reach()
    before = picture.png()
    assert "distance 39" in picture.summary()
    picture.set(kind="LSTM", n=20)
    assert "LSTM" in picture.summary() and "distance 19" in picture.summary()
    assert picture.png() != before
    assert np.isfinite(picture._data.recurrent).all()
