"""Chapter 02's pictures: their data on right and wrong functions, their words, and what slips show."""

import io
import math

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from matplotlib import image as images

from grader.exercises.ch02 import position_similarity, positional_encoding
from transformer_lab.widgets.base import LiveImage
from transformer_lab.widgets.ch02 import similarity_by_distance, similarity_data, wave_data, waves

RIGHT, SIMILARITY = positional_encoding.Reference, position_similarity.reference
WRONG = {wrong.name: wrong.symbol for wrong in positional_encoding.EXERCISE.misconceptions}
WRONG_SIMILARITY = {wrong.name: wrong.symbol for wrong in position_similarity.EXERCISE.misconceptions}


class Stub(torch.nn.Module):
    def __init__(self, d_model, max_len=5000):
        raise NotImplementedError("TODO 2.1")


class NoForward(RIGHT):
    def forward(self, x):
        raise NotImplementedError("TODO 2.4")


def pixels(picture) -> np.ndarray:
    """The picture as it is drawn, [height, width, 4]."""
    return images.imread(io.BytesIO(picture.png()), format="png")


# ---- waves ------------------------------------------------------------------------------------------


def test_waves_are_the_codes_that_tokens_really_get():
    data = wave_data(RIGHT, d_model=16, length=20, position=5)
    for position, column in ((0, 0), (5, 0), (5, 1), (19, 14), (19, 15)):
        angle = position / 10000 ** ((column - column % 2) / 16)
        wanted = math.sin(angle) if column % 2 == 0 else math.cos(angle)
        assert data.codes[position, column] == pytest.approx(wanted, abs=1e-5)
    assert data.codes.shape == (20, 16)


@pytest.mark.parametrize("position", [0, 5, 63])
def test_bits_are_the_position_lowest_first(position):
    data = wave_data(RIGHT, 16, 64, position)
    assert sum(bit << k for k, bit in enumerate(data.bits)) == position == data.position


def test_position_beyond_the_length_is_the_last_one():
    assert wave_data(RIGHT, 16, 16, 63).position == 15
    assert "Position 15:" in waves(RIGHT).set(length=16, position=63).summary()


@pytest.mark.parametrize(
    "name",
    [
        "i for 2i",
        "base 1000",
        "no divisor",
        "multiplied",
        "halves",
        "swapped",
        "only sine",
        "from one",
        "multiplies",
    ],
)
def test_waves_of_a_wrong_encoding_differ(name):
    right, other = (wave_data(symbol, 16, 20, 5).codes for symbol in (RIGHT, WRONG[name]))
    assert not np.allclose(right, other, atol=1e-3)


def test_waves_of_a_wrong_encoding_look_different():
    right, other = waves(RIGHT), waves(WRONG["halves"])
    assert not np.array_equal(pixels(right), pixels(other)) and right.summary() != other.summary()


def test_waves_say_what_they_show():
    picture = waves(RIGHT)
    assert picture.summary() == (
        "Position 5: the code begins with -0.96, 0.28. Over 64 positions the first dimension changes sign "
        "20 times, the last even one 0 times."
    )
    assert "binary 000101" in picture.axes[1].get_title()


@pytest.mark.parametrize("change", [{"position": 9}, {"d_model": 64}, {"length": 16}])
def test_every_control_changes_picture_and_words(change):
    picture = waves(RIGHT)
    before, words = pixels(picture), picture.summary()
    picture.set(**change)
    assert not np.array_equal(before, pixels(picture))
    assert picture.summary() != words or "d_model" in change
    heights = [bar.get_height() for bar in picture.row]
    assert np.allclose(heights, picture._data.codes[picture._data.position])


def test_all_sizes_can_be_drawn():
    picture = waves(RIGHT)
    for d_model in (16, 64):
        for length in (16, 64):
            assert not picture.set(d_model=d_model, length=length, position=length - 1).problem


# ---- similarity -------------------------------------------------------------------------------------


def test_similarity_is_what_the_function_gives_and_names_the_largest_climb():
    data = similarity_data(SIMILARITY, 64, 60)
    assert len(data.values) == 61 and data.values[0] == pytest.approx(32)
    climbs = [(data.values[j] - data.values[i], i, j) for i in range(61) for j in range(i, 61)]
    assert (data.low, data.high) == max(climbs)[1:]


@pytest.mark.parametrize(
    "name", ["i for 2i", "sine", "mean", "d frequencies", "one frequency", "divided by √d"]
)
def test_a_wrong_similarity_differs(name):
    wrong = WRONG_SIMILARITY[name]
    right, other = (similarity_data(function, 64, 60).values for function in (SIMILARITY, wrong))
    assert not np.allclose(right, other, atol=1e-3)


def test_a_wrong_similarity_looks_different():
    right, other = (
        similarity_by_distance(function) for function in (SIMILARITY, WRONG_SIMILARITY["i for 2i"])
    )
    assert not np.array_equal(pixels(right), pixels(other)) and right.summary() != other.summary()


def test_similarity_says_that_it_rises_again():
    picture = similarity_by_distance(SIMILARITY)
    data = picture._data
    assert picture.summary().startswith("The dot product is 32.0 at offset 0 and ")
    assert f"from offset {data.low} to {data.high} it rises" in picture.summary()
    assert data.values[data.high] > data.values[data.low]


def test_similarity_follows_its_controls():
    picture = similarity_by_distance(SIMILARITY)
    before = pixels(picture)
    picture.set(d_model=512, reach=200)
    assert "256.0 at offset 0" in picture.summary() and "at offset 200" in picture.summary()
    assert picture.axes.get_xlim()[1] >= 200 and not np.array_equal(before, pixels(picture))


# ---- slips ------------------------------------------------------------------------------------------


def shown_by(picture) -> list[dict]:
    """The data of what a cell that ends in `picture` displays."""
    shell = InteractiveShell.instance()
    try:
        with capture_output() as captured:
            shell.display_formatter.format(picture)
        return [output.data for output in captured.outputs]
    finally:
        InteractiveShell.clear_instance()


def no_return(d_model, offsets):
    SIMILARITY(d_model, offsets)


def nan(d_model, offsets):
    return torch.full(offsets.shape, math.nan)


def a_column(d_model, offsets):
    return SIMILARITY(d_model, offsets)[:, None]


def fails(d_model, offsets):
    return offsets[999]


def unfinished(d_model, offsets):
    raise NotImplementedError("TODO 2.5")


SLIPS = {
    "a stub": (waves, Stub, "Finish TODO 2.1, then run this cell again"),
    "a later stub": (waves, NoForward, "Finish TODO 2.4, then run this cell again"),
    "a function's stub": (similarity_by_distance, unfinished, "Finish TODO 2.5, then run this cell again"),
    "an exception": (similarity_by_distance, fails, "it stopped. Your code raised IndexError"),
    "all rows added": (waves, WRONG["plain attribute"], None),
    "no return": (similarity_by_distance, no_return, "it stopped. Something is None here."),
    "NaN": (similarity_by_distance, nan, "What your code returned cannot be drawn"),
    "a wrong shape": (similarity_by_distance, a_column, "What your code returned cannot be drawn"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_a_sentence_and_never_a_traceback(name):
    draw, symbol, words = SLIPS[name]
    picture = draw(symbol)
    shown = shown_by(picture)
    if words is None:
        assert "image/png" in shown[0]
        return
    assert words in picture.summary() and len(shown) == 1
    assert words in shown[0]["text/plain"] and "image/png" not in shown[0]


def test_text_of_an_error_is_escaped():
    def hostile(d_model, offsets):
        raise ValueError("<script>alert(1)</script>")

    (shown,) = shown_by(similarity_by_distance(hostile))
    assert "<script" not in shown["text/html"] and "&lt;script&gt;" in shown["text/html"]


def only_wide(d_model, offsets):
    if d_model < 128:
        raise ValueError("too narrow")
    return SIMILARITY(d_model, offsets)


def test_a_picture_starts_as_soon_as_the_code_works_and_says_so_when_it_stops():
    picture = similarity_by_distance(only_wide)
    assert "too narrow" in picture.summary()
    assert picture.set(d_model=128).summary().startswith("The dot product is 64.0")
    assert "too narrow" in picture.set(d_model=16).summary()
    assert picture.set(d_model=512).summary().startswith("The dot product is 256.0")


# ---- in a notebook ----------------------------------------------------------------------------------


def test_static_copy_carries_its_text_alternative():
    shell = InteractiveShell.instance()
    try:
        with capture_output() as captured:
            shell.display_formatter.format(waves(RIGHT))
    finally:
        InteractiveShell.clear_instance()
    first = captured.outputs[0]
    assert first.data["image/png"][:4] in (b"\x89PNG", "iVBO")
    assert first.data["text/plain"] == first.metadata["image/png"]["alt"] == waves(RIGHT).summary()


def widgets_in(widget) -> list:
    return [widget, *(w for child in getattr(widget, "children", ()) for w in widgets_in(child))]


def test_moving_a_slider_changes_the_image_its_alternative_and_the_words():
    picture = waves(RIGHT)
    found = widgets_in(picture._live())
    (live,) = [w for w in found if isinstance(w, LiveImage)]
    words = found[-1]
    assert live.alt == picture.summary() and live.png[:4] == b"\x89PNG"
    before = live.png
    picture.inputs["position"].value = 20
    assert "Position 20:" in live.alt and live.png != before
    assert "Position 20:" in words.value and 'role="status"' in words.value


def test_a_learner_who_breaks_their_code_sees_why_while_sliding():
    picture = similarity_by_distance(only_wide).set(d_model=128)
    found = widgets_in(picture._live())
    picture.inputs["d_model"].value = 16
    assert "too narrow" in found[-1].value
    picture.inputs["d_model"].value = 512
    assert "too narrow" not in found[-1].value


def test_controls_have_names_that_a_screen_reader_says():
    for picture in (waves(RIGHT), similarity_by_distance(SIMILARITY)):
        assert all(control.description and control.tooltip for control in picture.inputs.values())


def test_text_form_has_no_address():
    picture = waves(RIGHT)
    assert repr(picture) == "Waves()" and "0x" not in repr(picture._live())
