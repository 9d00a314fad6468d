"""Chapter 02: the waves of the positional code, and similarity by distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from transformer_lab.language import _
from transformer_lab.widgets.base import Picture, choice, int_slider

# ---- waves ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaveData:
    """codes [length, d]; `position` is the row that is looked at, its bits written lowest first."""

    codes: np.ndarray
    position: int
    bits: list[int]


def wave_data(encoding: Callable[..., nn.Module], d_model: int, length: int, position: int) -> WaveData:
    """Return the codes that `encoding(d_model, max_len)` adds to a sequence of zeros.

    They are taken from `forward`, not from the buffer, so the picture shows what tokens really get.
    """
    module = encoding(d_model, length)
    with torch.no_grad():
        codes = module(torch.zeros(1, length, d_model))[0]  # [length, d]
    position = min(position, length - 1)
    return WaveData(codes.detach().cpu().numpy(), position, [position >> k & 1 for k in range(6)])


class Waves(Picture):
    """The table of codes as an image, one row of it as bars, and the same position as a binary counter."""

    size = (9.0, 3.8)

    def __init__(self, encoding: Callable[..., nn.Module]):
        self.encoding = encoding
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "position": int_slider(
                "position", 5, 0, 63, help=_("the token whose code is shown on the right")
            ),
            "d_model": choice("d_model", [16, 32, 64], 32, help=_("the width of a code")),
            "length": choice("length", [16, 32, 64], 64, help=_("how many positions the image shows")),
        }

    def compute(self, position: int, d_model: int, length: int) -> WaveData:
        return wave_data(self.encoding, d_model, length, position)

    def start(self, figure: Figure, data: WaveData) -> None:
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        self.image = left.imshow(data.codes, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, origin="upper")
        self.marker = left.axhline(data.position, color="black", linewidth=1.5)
        left.set_xlabel(_("dimension (low: turns fast, high: turns slowly)"))
        left.set_ylabel(_("position"))
        figure.colorbar(self.image, ax=left, label=_("value"))
        self.axes, self.row = (left, right), None

    def draw(self, data: WaveData) -> None:
        right = self.axes[1]
        length, d_model = data.codes.shape
        self.image.set_data(data.codes)
        self.image.set_extent((-0.5, d_model - 0.5, length - 0.5, -0.5))
        self.marker.set_ydata([data.position, data.position])
        if self.row is None or len(self.row) != d_model:
            right.clear()
            right.set(ylim=(-1.1, 1.1), xlim=(-0.7, d_model - 0.3), xlabel=_("dimension"), ylabel=_("value"))
            self.row = right.bar(
                range(d_model), np.zeros(d_model), color=["#31688e", "#e08214"] * (d_model // 2)
            )
        for bar, height in zip(self.row, data.codes[data.position], strict=True):
            bar.set_height(height)
        bits = "".join(str(bit) for bit in reversed(data.bits))
        right.set_title(
            _("position {position} (binary {bits})\nblue: even columns, orange: odd columns").format(
                position=data.position, bits=bits
            ),
            fontsize=9,
        )

    def describe(self, data: WaveData) -> str:
        row = data.codes[data.position]
        flips = [int((np.diff(data.codes[1:, j] < 0) != 0).sum()) for j in (0, data.codes.shape[1] - 2)]
        return _(
            "Position {position}: the code begins with {row:.2f}, {row_2:.2f}. Over "
            "{codes_count} positions the first dimension changes sign {flips} times, the last "
            "even one {flips_2} times."
        ).format(
            position=data.position,
            row=row[0],
            row_2=row[1],
            codes_count=len(data.codes),
            flips=flips[0],
            flips_2=flips[1],
        )


def waves(encoding: Callable[..., nn.Module]) -> Waves:
    """Draw the codes of your PositionalEncoding."""
    return Waves(encoding)


# ---- similarity by distance -------------------------------------------------------------------------


@dataclass(frozen=True)
class SimilarityData:
    """What the learner's function gives for offsets 0 … K − 1, and where it rises again most."""

    values: np.ndarray  # [K]
    low: int
    high: int


def similarity_data(similarity: Callable[..., torch.Tensor], d_model: int, reach: int) -> SimilarityData:
    """Return similarity(d_model, 0 … reach), with the largest climb: from offset `low` to `high`."""
    values = similarity(d_model, torch.arange(reach + 1)).detach().cpu().numpy().astype(float)
    lowest = np.minimum.accumulate(values)
    high = int(np.argmax(values - lowest))
    return SimilarityData(values, int(np.argmin(values[: high + 1])), high)


class Similarity(Picture):
    """The dot product of two codes by their distance."""

    size = (8.0, 3.2)

    def __init__(self, similarity: Callable[..., torch.Tensor]):
        self.similarity = similarity
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "d_model": choice("d_model", [16, 64, 128, 512], 64),
            "reach": int_slider(_("farthest offset"), 60, 20, 200, 10),
        }

    def compute(self, d_model: int, reach: int) -> SimilarityData:
        return similarity_data(self.similarity, d_model, reach)

    def start(self, figure: Figure, data: SimilarityData) -> None:
        self.axes = figure.subplots()
        (self.line,) = self.axes.plot([], [], ".-", color="#31688e")
        (self.climb,) = self.axes.plot([], [], "o", color="#e08214", markersize=8, fillstyle="none")
        self.axes.axhline(0, color="0.7", linewidth=0.8)
        self.axes.set(xlabel=_("offset between the two positions"), ylabel=_("dot product of their codes"))

    def draw(self, data: SimilarityData) -> None:
        offsets = np.arange(len(data.values))
        self.line.set_data(offsets, data.values)
        self.climb.set_data([data.low, data.high], [data.values[data.low], data.values[data.high]])
        top = max(data.values.max(), 1.0)
        self.axes.set(xlim=(-1, len(data.values)), ylim=(min(data.values.min(), 0) - 0.05 * top, 1.05 * top))

    def describe(self, data: SimilarityData) -> str:
        return _(
            "The dot product is {values:.1f} at offset 0 and {values_2:.1f} at offset "
            "{values_3}. It does not only fall: from offset {low} to {high} it rises from "
            "{values_4:.1f} to {values_5:.1f}."
        ).format(
            values=data.values[0],
            values_2=data.values[-1],
            values_3=len(data.values) - 1,
            low=data.low,
            high=data.high,
            values_4=data.values[data.low],
            values_5=data.values[data.high],
        )


def similarity_by_distance(similarity: Callable[..., torch.Tensor]) -> Similarity:
    """Draw your position_similarity over the offset."""
    return Similarity(similarity)
