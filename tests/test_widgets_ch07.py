"""Chapter 07's picture: right decoders do not leak, wrong ones do, and both are said in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grader.exercises import get
from transformer_lab.parts import Decoder, causal_mask
from transformer_lab.widgets.ch07 import LENGTH, MASKS, leak_data, leak_map

PAIRS = LENGTH * (LENGTH - 1) // 2


def mistaken(exercise: str, name: str):
    return next(wrong.symbol for wrong in get(exercise).misconceptions if wrong.name == name)


def test_a_right_decoder_does_not_leak():
    strength = leak_data(Decoder, causal_mask, "causal", 2).strength
    assert np.all(np.triu(strength, 1) == 0)
    assert np.all(strength[np.tril_indices(LENGTH)] > 0)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_leak_of_one_token_grows_by_one_token_a_layer(layers):
    assert leak_data(Decoder, causal_mask, "ahead", layers).reach == layers


@pytest.mark.parametrize(("mask", "leaks"), [("none", PAIRS), ("transposed", PAIRS)])
def test_without_the_mask_every_future_cell_leaks(mask, leaks):
    assert leak_data(Decoder, causal_mask, mask, 2).leaks == leaks


def test_a_transposed_mask_hides_the_past():
    assert np.all(np.tril(leak_data(Decoder, causal_mask, "transposed", 2).strength, -1) == 0)


def test_wrong_implementations_give_other_maps():
    right = leak_data(Decoder, causal_mask, "causal", 2)
    for decoder, causal in (
        (mistaken("7.6", "target mask unused"), causal_mask),
        (Decoder, mistaken("7.2", "upper triangle")),
        (Decoder, mistaken("7.2", "nothing blocked")),
    ):
        wrong = leak_data(decoder, causal, "causal", 2)
        assert wrong.leaks == PAIRS
        assert not np.allclose(wrong.strength, right.strength)


def test_the_random_state_of_the_notebook_is_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    leak_data(Decoder, causal_mask, "causal", 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_choice_is_drawn_and_said_in_words():
    picture = leak_map(Decoder, causal_mask)
    pictures = set()
    for _, kind in MASKS:
        picture.set(mask=kind, layers=2)
        pictures.add(picture.png())
        assert ("nothing leaks" in picture.summary()) == (kind == "causal")
    assert len(pictures) == len(MASKS)
    assert repr(picture) == "LeakMap()"


def test_an_unfinished_decoder_names_its_todo():
    class Stub(torch.nn.Module):
        def __init__(self, *_):
            raise NotImplementedError("TODO 7.6")

    assert "TODO 7.6" in leak_map(Stub, causal_mask).summary()
