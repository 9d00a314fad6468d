"""The pictures of chapter 01, on right functions and on known wrong ones."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from grader.exercises.ch01 import cosine_similarity, one_hot_lookup, token_embedding
from transformer_lab.parts import TokenEmbedding
from transformer_lab.widgets.ch01 import (
    MAP_WORDS,
    cosine_data,
    cosine_map,
    lookup,
    lookup_data,
    neighbour_table,
    word_table,
)

right_lookup = one_hot_lookup.reference
right_cosine = cosine_similarity.reference


def mistakes(module, *names):
    """Return what these known mistakes of an exercise define."""
    known = {mistake.name: mistake.symbol for mistake in module.EXERCISE.misconceptions}
    return [known[name] for name in names]


class Stub(torch.nn.Module):
    def __init__(self, vocab_size, d_model):
        raise NotImplementedError("TODO 1.1")


def unfinished_cosine(table):
    raise NotImplementedError("TODO 1.6")


@pytest.mark.parametrize("variance, before", [("1", 1.0), ("1/d", 0.5)])
def test_lookup_of_right_functions(variance, before):
    data = lookup_data(TokenEmbedding, right_lookup, token=5, d_model=4, variance=variance)
    assert data.hot.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    assert np.allclose(data.product, data.table[5], atol=1e-6)
    assert np.allclose(data.row, 2 * data.table[5], atol=1e-6)
    assert data.before == pytest.approx(before) and data.after == pytest.approx(2 * before)


@pytest.mark.parametrize(
    "wrong", mistakes(token_embedding, "no √d", "divided", "times d", "root of V", "adds √d")
)
def test_lookup_shows_a_wrong_embedding(wrong):
    good = lookup_data(TokenEmbedding, right_lookup, 5, 4)
    bad = lookup_data(wrong, right_lookup, 5, 4)
    assert not np.allclose(good.row, bad.row, atol=1e-3)


@pytest.mark.parametrize("wrong", mistakes(one_hot_lookup, "from one", "scaled", "inverted"))
def test_lookup_shows_a_wrong_product(wrong):
    picture = lookup(TokenEmbedding, wrong)
    assert not np.allclose(picture._data.product, picture._data.table[5], atol=1e-3)
    assert "not row 5" in picture.summary()


def test_lookup_follows_its_controls():
    picture = lookup(TokenEmbedding, right_lookup)
    assert "'cat' is token 5" in picture.summary() and "exactly row 5" in picture.summary()
    before = picture.png()
    picture.set(token=2, d_model=6, variance="1/d")
    assert "'</s>' is token 2" in picture.summary() and "a factor of 2.45" in picture.summary()
    assert picture.png() != before


def test_like_neighbours_give_like_rows():
    rows = torch.tensor(neighbour_table(6))
    cosine = F.cosine_similarity(rows[:, None], rows[None], dim=-1)
    cat, dog, eats, drinks, book, letter = (
        MAP_WORDS.index(word) for word in ("cat", "dog", "eats", "drinks", "book", "letter")
    )
    assert min(cosine[cat, dog], cosine[eats, drinks], cosine[book, letter]) > 0.8
    assert max(cosine[cat, eats], cosine[cat, book], cosine[eats, book]) < 0.2


@pytest.mark.parametrize("kind, shape", [("one-hot", (18, 18)), ("random", (18, 4)), ("neighbours", (18, 4))])
def test_tables(kind, shape):
    table = word_table(kind, 4)
    assert tuple(table.shape) == shape and table.dtype == torch.float32
    assert torch.equal(table, word_table(kind, 4))


@pytest.mark.parametrize(
    "wrong",
    mistakes(cosine_similarity, "dot product", "lengths of columns", "distance", "ones on the diagonal"),
)
@pytest.mark.parametrize("kind", ["random", "neighbours"])
def test_map_shows_a_wrong_cosine(wrong, kind):
    good, bad = (cosine_data(cosine, kind, 4, 1).similarity for cosine in (right_cosine, wrong))
    assert not np.allclose(good, bad, atol=1e-3, equal_nan=True)


def test_map_follows_its_controls():
    picture = cosine_map(right_cosine)
    assert "Nearest to 'cat': 'boy'" in picture.summary()
    before = picture.png()
    picture.set(word=5)
    assert "Nearest to 'eats': 'drinks'" in picture.summary()
    picture.set(kind="one-hot")
    assert "similarity is 0.00" in picture.summary()
    assert picture.png() != before


def test_unfinished_functions_are_named():
    assert "Finish TODO 1.1" in lookup(Stub, right_lookup).summary()
    assert "Finish TODO 1.6" in cosine_map(unfinished_cosine).summary()
