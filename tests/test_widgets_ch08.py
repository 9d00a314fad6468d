"""Chapter 08's pictures, on right and on known-wrong implementations."""

from __future__ import annotations

import numpy as np
import pytest

from grader.exercises import get
from transformer_lab.parts import beam_search, sampling_probs
from transformer_lab.widgets.ch08 import (
    WORDS,
    decode_tree,
    places,
    probability,
    sampling_bars,
    sampling_data,
    toy_log_probs,
    tree_data,
)


def mistaken(exercise, name):
    """What a known mistake of an exercise defines."""
    return next(one.symbol for one in get(exercise).misconceptions if one.name == name)


# ---- sampling bars ----


def test_without_filters_the_bars_are_the_model():
    data = sampling_data(sampling_probs, 1.0, None, None)
    np.testing.assert_allclose(data.filtered, data.model, atol=1e-6)


def test_a_higher_temperature_keeps_more_words_at_the_same_p():
    kept = [sampling_data(sampling_probs, t, None, 0.8).kept for t in (0.0, 0.5, 1.0, 2.0)]
    assert kept == sorted(kept) and kept[0] == 1 and kept[-1] > kept[1]


@pytest.mark.parametrize("wrong", ["times temperature", "filters first", "one too few"])
def test_wrong_filters_give_other_bars(wrong):
    options = (0.5, 5, 0.8)
    right = sampling_data(sampling_probs, *options).filtered
    assert not np.allclose(sampling_data(mistaken("8.6", wrong), *options).filtered, right, atol=0.01)


def test_bars_are_drawn_and_said_in_words():
    picture = sampling_bars(sampling_probs)
    first = picture.png()
    picture.set(temperature=0.0)
    assert picture.png() != first
    assert "1 of 10 words stays" in picture.summary()
    assert repr(picture) == "SamplingBars()"


# ---- the toy model and the tree ----


@pytest.mark.parametrize("prefix", [[1], [1, 4], [1, 4, 5, 8], [1, 7]])
def test_the_toy_model_gives_probabilities(prefix):
    probs = toy_log_probs(prefix).exp()
    assert probs.shape == (len(WORDS),)
    assert probs.min() > 0
    assert abs(float(probs.sum()) - 1) < 1e-5


@pytest.mark.parametrize(
    ("width", "penalty", "sentence"),
    [
        (1, 0.0, "a cat sleeps </s>"),
        (2, 0.0, "the cat sleeps </s>"),
        (3, 0.0, "sleep </s>"),
        (3, 1.0, "the cat sleeps </s>"),
    ],
)
def test_the_toy_model_tells_the_story_of_the_lesson(width, penalty, sentence):
    data = tree_data(beam_search, width, penalty)
    assert " ".join(data.result) == sentence
    assert " ".join(data.greedy) == "a cat sleeps </s>"


def test_the_lessons_numbers():
    told = {"the cat sleeps </s>": 0.18, "a cat sleeps </s>": 0.09, "sleep </s>": 0.18}
    for sentence, chance in told.items():
        assert round(probability(tuple(sentence.split())), 2) == chance


@pytest.mark.parametrize("wrong", ["width unused", "first one ends it", "only the last token counts"])
def test_wrong_searches_give_other_trees(wrong):
    right, other = tree_data(beam_search, 3, 1.0), tree_data(mistaken("8.7", wrong), 3, 1.0)
    assert (other.nodes, other.result) != (right.nodes, right.result)


def test_no_two_beginnings_of_one_length_share_a_height():
    nodes = tree_data(beam_search, 4, 0.0).nodes
    heights = places(nodes)
    for length in range(1, 7):
        level = [heights[node.words] for node in nodes if len(node.words) == length]
        assert len(set(level)) == len(level)


def test_the_tree_is_drawn_and_said_in_words():
    picture = decode_tree(beam_search)
    first = picture.png()
    picture.set(width=3)
    assert picture.png() != first
    assert "'sleep </s>'" in picture.summary()


def test_unfinished_functions_name_their_todo():
    def stub(*_, **__):
        raise NotImplementedError("TODO 8.7")

    assert "TODO 8.7" in decode_tree(stub).summary()
    assert "TODO 8.7" in sampling_bars(stub).summary()
