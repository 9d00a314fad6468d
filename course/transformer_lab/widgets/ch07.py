"""Chapter 07: the leak map, which output of the learner's decoder depends on which input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import nn

from transformer_lab.language import N_, _
from transformer_lab.widgets.base import Picture, choice, int_slider

LENGTH, WIDTH, HEADS, SOURCE = 8, 16, 2, 5  # a small decoder: 8 target tokens, d = 16, 5 source tokens
MASKS = [
    (N_("causal (yours)"), "causal"),
    (N_("no mask"), "none"),
    (N_("yours, transposed"), "transposed"),
    (N_("one token too far"), "ahead"),
]
FAINTEST = 1e-4  # the colours' lower end, as a share of the strongest gradient


@dataclass(frozen=True)
class LeakData:
    """strength [m, m]: the gradient of output i by input j, as a share of the largest; exactly 0 stays 0."""

    strength: np.ndarray
    mask: str
    layers: int

    @property
    def leaks(self) -> int:
        """How many cells above the diagonal are not exactly zero."""
        return int(np.count_nonzero(np.triu(self.strength, 1)))

    @property
    def reach(self) -> int:
        """How many tokens ahead the farthest leak sees (0: none)."""
        i, j = np.nonzero(self.strength)
        return int(max(0, (j - i).max(initial=0)))


def mask_of(kind: str, causal: Callable[[int], torch.Tensor]) -> torch.Tensor | None:
    """Return the target mask of a kind in MASKS; the learner's own function gives the causal one."""
    if kind == "none":
        return None
    if kind == "ahead":
        return torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).tril(1)
    own = causal(LENGTH)
    return own.transpose(-1, -2) if kind == "transposed" else own


def leak_data(
    decoder: Callable[..., nn.Module], causal: Callable[[int], torch.Tensor], mask: str, layers: int
) -> LeakData:
    """Measure the gradient of every output by every input of `decoder(d_model, h, d_ff, N)`.

    Output i is multiplied by a random direction first: what is left is zero only if no number of output i
    depends on input j (but for a chance of measure zero).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = decoder(WIDTH, HEADS, 2 * WIDTH, layers).eval()
        x = torch.randn(1, LENGTH, WIDTH, requires_grad=True)
        memory, direction = torch.randn(1, SOURCE, WIDTH), torch.randn(WIDTH)
        out = module(x, memory, mask_of(mask, causal), None)[0] @ direction  # [m]
        rows = [torch.autograd.grad(value, x, retain_graph=True)[0][0].norm(dim=-1) for value in out]
    strength = torch.stack(rows).nan_to_num(nan=0.0).numpy()
    return LeakData(strength / max(strength.max(), 1e-30), mask, layers)


class LeakMap(Picture):
    """Outputs down, inputs across. Hatched: exactly zero. Framed in red: the future leaks."""

    size = (6.4, 4.6)

    def __init__(self, decoder: Callable[..., nn.Module], causal: Callable[[int], torch.Tensor]):
        self.decoder, self.causal = decoder, causal
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "mask": choice("mask", MASKS, "causal", help=_("the target mask that your decoder is given")),
            "layers": int_slider(_("layers N"), 2, 1, 4, help=_("how many decoder layers")),
        }

    def compute(self, mask: str, layers: int) -> LeakData:
        return leak_data(self.decoder, self.causal, mask, layers)

    def start(self, figure: Figure, data: LeakData) -> None:
        axes = figure.subplots()
        self.image = axes.imshow(
            data.strength, cmap=colormaps["viridis"].with_extremes(bad="white"), norm=LogNorm(FAINTEST, 1)
        )
        self.cells = np.empty((LENGTH, LENGTH), dtype=object)
        for i in range(LENGTH):
            for j in range(LENGTH):
                cell = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, linewidth=0)
                self.cells[i, j] = axes.add_patch(cell)
        axes.set(xlabel=_("input j"), ylabel=_("output i"), xticks=range(LENGTH), yticks=range(LENGTH))
        figure.colorbar(self.image, ax=axes, label=_("gradient of output i by input j (largest = 1)"))
        self.title = axes.set_title(" ", fontsize=10)

    def draw(self, data: LeakData) -> None:
        self.image.set_data(np.where(data.strength > 0, np.maximum(data.strength, FAINTEST), np.nan))
        for (i, j), cell in np.ndenumerate(self.cells):
            leak, zero = j > i and data.strength[i, j] > 0, data.strength[i, j] == 0
            cell.set(hatch="////" if zero else None, linewidth=2.5 if leak else 0)
            cell.set_edgecolor("#d62728" if leak else "0.75")
            cell.set_zorder(3 if leak else 2)
        self.title.set_text(
            _("nothing leaks")
            if not data.leaks
            else _("{leaks} of 28 future cells leak (framed in red)").format(leaks=data.leaks)
        )

    def describe(self, data: LeakData) -> str:
        label = next(label for label, kind in MASKS if kind == data.mask)
        begin = _("Mask: {label}; {layers} layer{value}. ").format(
            label=label, layers=data.layers, value="s" if data.layers > 1 else ""
        )
        if not data.leaks:
            return begin + _("No output depends on a later input: nothing leaks.")
        ahead = "1 token" if data.reach == 1 else f"{data.reach} tokens"
        return begin + _("{leaks} of 28 future cells are not zero; outputs see up to {ahead} ahead.").format(
            leaks=data.leaks, ahead=ahead
        )


def leak_map(decoder: Callable[..., nn.Module], causal: Callable[[int], torch.Tensor]) -> LeakMap:
    """Draw which outputs of your Decoder depend on which inputs, under your causal_mask and others."""
    return LeakMap(decoder, causal)
