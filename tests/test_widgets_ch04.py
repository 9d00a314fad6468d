"""Chapter 04's pictures: right and known-wrong implementations must look different."""

import numpy as np
import pytest
import torch

from transformer_lab import parts
from transformer_lab.widgets import ch04


def split(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def bare_split(x, h):
    return x.reshape(x.size(0), h, x.size(1), -1)


def interleaved_split(x, h):
    return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def bare_merge(x):
    return x.reshape(x.size(0), x.size(2), -1)


def unfinished(*_):
    raise NotImplementedError("TODO 4.1")


class BareViews(parts.MultiHeadAttention):
    """Cuts and merges without a transpose."""

    def forward(self, q, k, v, mask=None):
        Q, K, V = (bare_split(w(x), self.h) for w, x in ((self.W_q, q), (self.W_k, k), (self.W_v, v)))
        out, self.seen = parts.attention(Q, K, V, mask)
        return self.W_o(bare_merge(out))

    @property
    def weights(self):
        return self.seen.detach()


# ---- the head split -----------------------------------------------------------------------------------


def test_labels_say_token_and_feature():
    assert ch04.labels(4, 8)[0, 2, 5] == 25


@pytest.mark.parametrize("h", [1, 2, 4, 8])
def test_right_split_keeps_every_row_with_its_token(h):
    data = ch04.split_data(split, h)
    assert data.strangers[0] == 0
    assert np.array_equal(np.concatenate(list(data.after), axis=1), data.before)


@pytest.mark.parametrize("wrong", [bare_split, interleaved_split])
def test_wrong_split_looks_different(wrong):
    assert not np.array_equal(ch04.split_data(wrong, 2).after, ch04.split_data(split, 2).after)


def test_bare_split_is_what_the_right_panel_shows():
    data = ch04.split_data(bare_split, 2)
    assert np.array_equal(data.after, data.wrong)
    assert data.strangers == (6, 6)  # of 8 rows, only the first and the last are in place


@pytest.mark.parametrize("h", [2, 4, 8])
def test_merge(h):
    data = ch04.merge_data(merge, h)
    assert data.strangers == (0, 4)
    assert np.array_equal(data.after, ch04.labels()[0].numpy())
    assert not np.array_equal(ch04.merge_data(bare_merge, h).after, data.after)


@pytest.mark.parametrize(
    "picture", [ch04.head_split(split), ch04.head_split(bare_split), ch04.head_merge(merge)]
)
def test_split_pictures_follow_their_control(picture):
    first, sentence = picture.png(), picture.summary()
    picture.set(h=4)
    assert picture.png() != first
    assert picture.summary() != sentence or "all" in sentence


def test_summary_names_what_is_wrong():
    assert "all 8 rows hold their own token" in ch04.head_split(split).summary()
    assert "6 of 8 rows hold numbers of another token" in ch04.head_split(bare_split).summary()


def test_todo_and_wrong_shapes_are_sentences():
    assert "Finish TODO 4.1" in ch04.head_split(unfinished).summary()
    assert "shape [1, 4, 8]" in ch04.head_split(lambda x, h: x).summary()
    assert "not a tensor" in ch04.head_merge(lambda x: x.unbind(1)).summary()


# ---- the head grid ------------------------------------------------------------------------------------


def grid(attention=parts.MultiHeadAttention, sentence="the cat saw the dog", head=0):
    return ch04.grid_data(attention, sentence, head)


def test_heads_do_their_tasks():
    weights = grid().weights
    assert np.allclose(weights.sum(-1), 1, atol=1e-5)
    assert list(weights[0].argmax(-1)[1:]) == [0, 1, 2, 3]  # the token before
    assert list(weights[1][4].round(1)) == [0, 0, 0, 0, 0.9]  # the same word: itself
    assert np.isclose(weights[1][0, 0], weights[1][0, 3], atol=1e-4)  # "the" stands twice
    assert (weights[2][:, 0] > 0.95).all()  # the first token
    assert np.allclose(weights[3], 0.2, atol=1e-6)  # all alike


def test_the_sharpest_head_matters_least():
    changes = grid().changes.mean(axis=1)
    assert changes.argmin() == 2 and changes[2] < 2
    assert changes[3] > 20


def test_wrong_views_look_different():
    right, wrong = grid(), grid(BareViews)
    assert np.abs(right.weights - wrong.weights).max() > 0.3
    assert np.abs(right.changes - wrong.changes).max() > 10


def test_leaving_out_a_head_is_undone():
    made = []

    def attention(d_model, h):
        made.append(parts.MultiHeadAttention(d_model, h))
        return made[-1]

    grid(attention)
    assert torch.equal(made[0].W_o.weight, ch04.demo_weights()["W_o.weight"])


def test_grid_follows_its_controls_and_names_chinese_tokens():
    picture = ch04.head_grid(parts.MultiHeadAttention)
    first = picture.png()
    assert "Head 0: 'dog' (token 4) attends most to 'the' (token 3)" in picture.summary()
    chinese = next(sentence for sentence in ch04.SENTENCES if "狗" in sentence)
    picture.set(sentence=chinese, head=2)
    assert "attends most to '猫' (token 0)" in picture.summary()
    assert picture.png() != first
    assert picture.set(sentence="the cat saw the dog", head=0).png() == first


def test_grid_without_a_chinese_font(monkeypatch):
    def no_font(text):
        raise LookupError("no font")

    monkeypatch.setattr(ch04, "label_font", no_font)
    picture = ch04.head_grid(parts.MultiHeadAttention)
    assert [label.get_text() for label in picture.large.get_xticklabels()] == ["0", "1", "2", "3", "4"]
    assert picture.png()


def test_grid_says_which_todo():
    def stub(d_model, h):
        raise NotImplementedError("TODO 4.2")

    assert "Finish TODO 4.2" in ch04.head_grid(stub).summary()
