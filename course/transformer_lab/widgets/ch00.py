"""Chapter 00: how far back a signal reaches, in a recurrent network and in attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from transformer_lab.language import _
from transformer_lab.parts import SelfAttention
from transformer_lab.widgets.base import Picture, choice, int_slider

WIDTH, RUNS = 32, 8  # the width d of a token; how many random starts are averaged
RECURRENT = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}


@dataclass(frozen=True)
class ReachData:
    """Gradient norm of the last output by the token `distance` places before it, distance 0 … n − 1."""

    kind: str
    recurrent: np.ndarray  # [n]
    attention: np.ndarray  # [n]


def reach_data(kind: str, n: int, seed: int = 0) -> ReachData:
    """Measure, at random weights, how strongly each of n tokens reaches the output at the last one.

    kind: "RNN", "GRU" or "LSTM". The norms are means over several random starts.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        runs = [(_reach(_recurrent(kind), n), _reach(SelfAttention(WIDTH), n)) for _ in range(RUNS)]
    recurrent, attention = (torch.stack(norms).mean(dim=0) for norms in zip(*runs, strict=True))
    return ReachData(kind, recurrent.flip(0).numpy(), attention.flip(0).numpy())


def _recurrent(kind: str) -> nn.Module:
    return RECURRENT[kind](WIDTH, WIDTH, batch_first=True)


def _reach(layer: nn.Module, n: int) -> Tensor:
    """Return the gradient norms [n] of a random direction of the last output by each input token."""
    x = torch.randn(1, n, WIDTH, requires_grad=True)
    out = layer(x)
    last = (out[0] if isinstance(out, tuple) else out)[0, -1]  # [d]
    (gradient,) = torch.autograd.grad((last * torch.randn(WIDTH)).sum(), x)
    return gradient[0].norm(dim=-1)


class Reach(Picture):
    """Two curves over distance, on a logarithmic scale."""

    size = (8.0, 3.4)

    def controls(self) -> dict[str, Any]:
        return {
            "n": int_slider("n", 40, 10, 60, 5, help=_("how many tokens the sentence has")),
            "kind": choice(
                _("recurrent network"), list(RECURRENT), help=_("which recurrent network to compare")
            ),
        }

    def compute(self, n: int, kind: str) -> ReachData:
        return reach_data(kind, n)

    def start(self, figure: Figure, data: ReachData) -> None:
        self.axes = figure.subplots()
        (self.recurrent,) = self.axes.semilogy([], [], "o-", color="#e08214", markersize=3.5)
        (self.attention,) = self.axes.semilogy(
            [], [], "s-", color="#31688e", markersize=3.5, label=_("attention")
        )
        self.axes.set(xlim=(-1, 60), ylim=(1e-14, 10), xlabel=_("distance to the last token"))
        self.axes.set_ylabel(_("gradient norm"))
        self.axes.grid(axis="y", color="0.9")

    def draw(self, data: ReachData) -> None:
        distance = np.arange(len(data.recurrent))
        self.recurrent.set_data(distance, data.recurrent)
        self.recurrent.set_label(data.kind)
        self.attention.set_data(distance, data.attention)
        self.axes.legend(loc="lower left", frameon=False)

    def describe(self, data: ReachData) -> str:
        far = len(data.recurrent) - 1
        return _(
            "From the last token back to the token {far} places before it, the {kind}'s "
            "gradient falls from {recurrent:.1g} to {recurrent_2:.1g}; attention's is "
            "{attention:.1g} at distance 1 and {attention_2:.1g} at distance {far}."
        ).format(
            far=far,
            kind=data.kind,
            recurrent=data.recurrent[0],
            recurrent_2=data.recurrent[far],
            attention=data.attention[1],
            attention_2=data.attention[far],
        )


def reach() -> Reach:
    """Draw how strongly a token reaches the last output, by distance: recurrent network and attention."""
    return Reach()
