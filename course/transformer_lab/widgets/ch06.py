"""Chapter 06: what a feed-forward block can bend, whom it hears, and where the parameters sit."""

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

BLUE, ORANGE, GREEN, GREY = "#31688e", "#e08214", "#35a07a", "0.6"

Block = Callable[[int, int], nn.Module]

# ---- what a feed-forward block can bend -------------------------------------------------------------


@dataclass(frozen=True)
class BendData:
    """A curve that a block was fitted to, and how much each of its tokens hears of the others."""

    x: np.ndarray  # [points]
    target: np.ndarray  # [points]
    curve: np.ndarray  # [points] what the block gives
    d_ff: int
    influence: np.ndarray  # [n, n] size of the derivative of output i by input j

    @property
    def miss(self) -> float:
        """How far the curve is from the target, on average."""
        return float(np.abs(self.curve - self.target).mean())

    @property
    def alone(self) -> bool:
        """Whether every output depends on the input at its own position and on no other."""
        return float((self.influence * (1 - np.eye(len(self.influence)))).max()) < 1e-6


def bend_data(block: Block, multiplier: int) -> BendData:
    """Fit `block(2, 2 · multiplier)` to a wave: the way up is given, the way down by least squares.

    A token is (x, 1), so that blocks without a bias have one, too. What each inner unit makes of the tokens
    is seen by letting it through alone; the way down then gets the weights that come nearest to the wave.
    """
    d_ff = 2 * multiplier
    x = torch.linspace(-3, 3, 121)
    target = torch.sin(2.2 * x) + 0.3 * x
    tokens = torch.stack([x, torch.ones_like(x)], dim=-1)[None]  # [1, points, 2]
    module = block(2, d_ff).eval()
    ups, down = _ways(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for index, linear in enumerate(ups):
            linear.weight.copy_(_bends(d_ff, index))
        units = []
        for unit in torch.eye(d_ff):
            down.weight[0] = unit
            units.append(module(tokens)[0, :, 0].double())
        inner = torch.stack(units, dim=-1)  # [points, d_ff]
        # rcond: units that are equal up to rounding must not be played off against each other
        found = torch.linalg.lstsq(inner, target[:, None].double(), rcond=1e-5, driver="gelsd")
        down.weight[0] = found.solution[:, 0].to(down.weight.dtype)
        curve = module(tokens)[0, :, 0]
    return BendData(x.numpy(), target.numpy(), curve.numpy(), d_ff, influence(block))


def _ways(module: nn.Module) -> tuple[list[nn.Linear], nn.Linear]:
    """The linear layers that widen, and the one that narrows."""
    if hasattr(module, "w2"):
        return [module.w1, module.w3], module.w2
    return [module.linear1], module.linear2


def _bends(d_ff: int, index: int) -> torch.Tensor:
    """Weights [d_ff, 2] of units that bend at places spread over the range; another set for each `index`."""
    places = torch.linspace(-3, 3, d_ff + 1)[:-1] + 0.35 * index
    slopes = 1.5 * (-1.0) ** torch.arange(d_ff) if index == 0 else torch.ones(d_ff) * 0.5
    return torch.stack([slopes, -slopes * places], dim=-1)


def influence(block: Block, n: int = 6, d_model: int = 8, seed: int = 0) -> np.ndarray:
    """Return [n, n]: the size of the derivative of output i by input j, for n random tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = block(d_model, 4 * d_model).eval()
        x = torch.randn(1, n, d_model)
    jacobian = torch.autograd.functional.jacobian(lambda y: module(y)[0], x)  # [n, d, 1, n, d]
    return jacobian[:, :, 0].pow(2).sum(dim=(1, 3)).sqrt().numpy()


class _Straight(nn.Module):
    """A feed-forward block with nothing between its two linear maps."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def bend(self, inner: torch.Tensor) -> torch.Tensor:
        return inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(self.bend(self.linear1(x)))


def _with_bend(function: Callable[[torch.Tensor], torch.Tensor]) -> Block:
    """A feed-forward block that bends with `function`."""

    class Bent(_Straight):
        def bend(self, inner: torch.Tensor) -> torch.Tensor:
            return function(inner)

    return Bent


class Bends(Picture):
    """Left: a wave and the curve that a block of this width makes of it. Right: who hears whom."""

    size = (9.5, 3.6)

    def __init__(self, feed_forward: Block, gelu: Callable | None = None, swiglu: Block | None = None):
        self.blocks: dict[str, Block] = {"ReLU (your FeedForward)": feed_forward, "none": _Straight}
        if gelu is not None:
            self.blocks["GELU (your gelu)"] = _with_bend(gelu)
        if swiglu is not None:
            self.blocks["SwiGLU (yours)"] = swiglu
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "activation": choice(
                "activation", list(self.blocks), help=_("what stands between the linear maps")
            ),
            "multiplier": choice("d_ff / d_model", [1, 2, 4, 8, 16], 4, help=_("how much the block widens")),
        }

    def compute(self, activation: str, multiplier: int) -> tuple[str, BendData]:
        return activation, bend_data(self.blocks[activation], multiplier)

    def start(self, figure: Figure, data: tuple[str, BendData]) -> None:
        left, right = self.axes = figure.subplots(1, 2, width_ratios=[3, 2])
        left.plot(data[1].x, data[1].target, color=GREY, linewidth=4, alpha=0.5, label=_("wanted"))
        (self.curve,) = left.plot([], [], color=BLUE, label=_("the block's output"))
        left.set(ylim=(-2.6, 2.6), xlim=(-3, 3), xlabel=_("a feature of the token"), ylabel=_("output"))
        left.legend(loc="upper left", frameon=False, fontsize=9)
        self.image = right.imshow(data[1].influence, cmap="cividis", vmin=0)
        right.set(xlabel=_("input token j"), ylabel=_("output token i"))
        right.set_title(_("how much output i depends on input j"), fontsize=10)
        figure.colorbar(self.image, ax=right)

    def draw(self, data: tuple[str, BendData]) -> None:
        name, d = data
        self.curve.set_data(d.x, d.curve)
        self.axes[0].set_title(_("{name}, {d_ff} inner units").format(name=name, d_ff=d.d_ff), fontsize=10)
        self.image.set_data(d.influence)
        self.image.set_clim(0, float(d.influence.max()))

    def describe(self, data: tuple[str, BendData]) -> str:
        name, d = data
        alone = (
            _("a token's output depends on its own input and on no other token")
            if d.alone
            else _("a token's output depends on other tokens, too")
        )
        return _(
            "Activation {name}, {d_ff} inner units: the curve misses the wanted one by "
            "{miss:.3f} on average; {alone}."
        ).format(name=name, d_ff=d.d_ff, miss=d.miss, alone=alone)


def bends(feed_forward: Block, gelu: Callable | None = None, swiglu: Block | None = None) -> Bends:
    """Draw what your feed-forward blocks can bend, and which tokens they look at."""
    return Bends(feed_forward, gelu, swiglu)


# ---- where the parameters sit -----------------------------------------------------------------------


@dataclass(frozen=True)
class ShareData:
    """Parameters by place and kind, and what the learner's own formula says of the encoder."""

    counts: dict[str, dict[str, int]]  # {"encoder": {"attention": …, "feed-forward": …, "norms": …}, …}
    formula: int | None

    @property
    def total(self) -> int:
        return sum(sum(kinds.values()) for kinds in self.counts.values())

    def share(self, place: str, kind: str) -> float:
        """The part, from 0 to 1, that `kind` has in `place`."""
        return self.counts[place].get(kind, 0) / max(sum(self.counts[place].values()), 1)


def share_data(
    encoder_layer: Callable[..., nn.Module],
    encoder_parameters: Callable[[int, int, int], int] | None,
    d_model: int = 512,
    multiplier: int = 4,
    N: int = 6,
    vocabulary: int = 37000,
) -> ShareData:
    """Count in one encoder layer of the learner's, built without memory, and multiply.

    A decoder layer has a second attention and a third norm; one table of V · d numbers serves both embeddings
    and the output layer, as in the paper.
    """
    with torch.device("meta"):
        layer = encoder_layer(d_model, 8, multiplier * d_model)
    attention, ffn = _size(layer.attn), _size(layer.ffn)
    norms = _size(layer) - attention - ffn
    counts = {
        "encoder": {"attention": N * attention, "feed-forward": N * ffn, "norms": N * norms},
        "decoder": {"attention": N * 2 * attention, "feed-forward": N * ffn, "norms": N * norms * 3 // 2},
        "embeddings": {"tables": vocabulary * d_model},
    }
    formula = encoder_parameters(d_model, multiplier * d_model, N) if encoder_parameters else None
    return ShareData(counts, formula)


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


COLOURS = {"attention": BLUE, "feed-forward": GREEN, "norms": "black", "tables": ORANGE}


class Shares(Picture):
    """One bar each for encoder, decoder and embeddings, cut by kind of part."""

    size = (9.0, 3.2)

    def __init__(self, encoder_layer: Callable[..., nn.Module], encoder_parameters: Callable | None = None):
        self.encoder_layer, self.encoder_parameters = encoder_layer, encoder_parameters
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "d_model": choice("d_model", [256, 512, 768, 1024], 512),
            "multiplier": choice("d_ff / d_model", [1, 2, 4, 8], 4),
            "N": int_slider(_("layers N"), 6, 1, 12),
            "vocabulary": choice(_("vocabulary V"), [0, 8000, 37000, 128000], 37000),
        }

    def compute(self, d_model: int, multiplier: int, N: int, vocabulary: int) -> ShareData:
        return share_data(self.encoder_layer, self.encoder_parameters, d_model, multiplier, N, vocabulary)

    def start(self, figure: Figure, data: ShareData) -> None:
        self.axes = figure.subplots()
        self.bars = {
            (place, kind): self.axes.barh(place, 0, color=COLOURS[kind], label=kind if row != 1 else None)[0]
            for row, (place, kinds) in enumerate(data.counts.items())
            for kind in kinds
        }
        self.words = {
            key: self.axes.text(0, 0, "", ha="center", va="center", color="white") for key in self.bars
        }
        self.axes.invert_yaxis()
        self.axes.set_xlabel(_("million parameters"))
        self.axes.legend(loc="center right", frameon=False)

    def draw(self, data: ShareData) -> None:
        widest = max(sum(kinds.values()) for kinds in data.counts.values()) / 1e6
        for place, kinds in data.counts.items():
            left = 0.0
            for kind, count in kinds.items():
                bar, word, width = self.bars[place, kind], self.words[place, kind], count / 1e6
                bar.set_x(left)
                bar.set_width(width)
                word.set_position((left + width / 2, bar.get_y() + bar.get_height() / 2))
                word.set_text(f"{data.share(place, kind):.0%}" if width > 0.06 * widest else "")
                left += width
        self.axes.set_xlim(0, widest * 1.25)
        self.axes.set_title(_("{total:.1f} million in all").format(total=data.total / 1000000.0), fontsize=10)

    def describe(self, data: ShareData) -> str:
        millions = {place: sum(kinds.values()) / 1e6 for place, kinds in data.counts.items()}
        held = sum(data.counts["encoder"].values())
        return _(
            "{total:.1f} million parameters: encoder {millions:.1f}, decoder {millions_2:.1f}, "
            "embeddings {millions_3:.1f}. The feed-forward blocks hold {data:.0%} of the "
            "encoder and {data_2:.0%} of the decoder.{self}"
        ).format(
            total=data.total / 1000000.0,
            millions=millions["encoder"],
            millions_2=millions["decoder"],
            millions_3=millions["embeddings"],
            data=data.share("encoder", "feed-forward"),
            data_2=data.share("decoder", "feed-forward"),
            self=self._agreement(data.formula, held),
        )

    @staticmethod
    def _agreement(formula: int | None, held: int) -> str:
        if formula is None:
            return ""
        verdict = _("they agree") if formula == held else _("they differ")
        return _(" Your encoder_parameters says {formula:,}, your layers hold {held:,}: {verdict}.").format(
            formula=formula, held=held, verdict=verdict
        )


def parameter_shares(
    encoder_layer: Callable[..., nn.Module], encoder_parameters: Callable[[int, int, int], int] | None = None
) -> Shares:
    """Draw where the parameters of a Transformer sit, counted in your EncoderLayer."""
    return Shares(encoder_layer, encoder_parameters)
