"""Chapter 05: statistics and gradients by depth, what a residual does to gradients, normalised vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from transformer_lab.language import _
from transformer_lab.widgets.base import Picture, choice, float_slider, int_slider, switch

BLUE, ORANGE, GREY = "#31688e", "#e08214", "0.65"
TOKENS = 16

Wrapper = Callable[..., nn.Module]

# ---- statistics and gradients by depth --------------------------------------------------------------


@dataclass(frozen=True)
class DepthData:
    """What is measured along a stack of `depth` layers; index l belongs to layer l + 1."""

    mean: np.ndarray  # [depth] mean of a token's features after the layer, averaged over tokens
    std: np.ndarray  # [depth] standard deviation of a token's features after the layer, averaged over tokens
    kept: np.ndarray  # [depth] cosine between the layer's output and the input of the whole stack
    gradient: np.ndarray  # [depth] norm of the gradient at the layer's input
    weight_gradient: np.ndarray  # [depth] norm of the gradient of the sublayer's last weight matrix


def depth_data(
    wrapper: Wrapper,
    depth: int = 24,
    d_model: int = 32,
    residual: bool = True,
    norm: bool = True,
    gamma: float = 1.0,
    beta: float = 0.0,
    seed: int = 0,
    final: bool = False,
) -> DepthData:
    """Send 16 random tokens through `depth` wrapped feed-forward sublayers and back.

    wrapper: PostNorm or PreNorm, called as wrapper(d_model) and then with (x, sublayer).
    residual=False hands it a sublayer that takes x away again, so that x + sublayer(x) - x is left;
    norm=False puts an identity in the place of its norm.
    gamma and beta are what its norms multiply by and add.
    final=True sends the result through one more norm, as a Pre-Norm encoder does.
    The loss is the sum of all outputs, each times a random number.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sublayers = [_sublayer(d_model) for _ in range(depth)]
        wrappers = [_prepared(wrapper(d_model), norm, gamma, beta) for _ in range(depth)]
        start = x = torch.randn(TOKENS, d_model, requires_grad=True)
        cotangent = torch.randn(TOKENS, d_model)
    inputs, outputs = [], []
    for wrap, sublayer in zip(wrappers, sublayers, strict=True):
        inputs.append(x)
        x = wrap(x, sublayer if residual else _without(x, sublayer))
        outputs.append(x.detach())
    if final:
        x = _prepared(wrapper(d_model), norm, gamma, beta).norm(x)
    matrices = [sublayer[2].weight for sublayer in sublayers]
    gradients = torch.autograd.grad((x * cotangent).sum(), [*inputs, *matrices], allow_unused=True)
    norms = np.array([0.0 if g is None else float(g.norm()) for g in gradients])
    return DepthData(
        _per_layer(outputs, lambda y: y.mean(-1).mean()),
        _per_layer(outputs, lambda y: y.std(-1, unbiased=False).mean()),
        _per_layer(outputs, lambda y: torch.cosine_similarity(y, start.detach(), dim=-1).mean()),
        norms[:depth],
        norms[depth:],
    )


def _sublayer(d_model: int) -> nn.Sequential:
    """A feed-forward sublayer with the initial weights that torch's own Transformer uses."""
    sublayer = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model))
    for linear in (sublayer[0], sublayer[2]):
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
    return sublayer


def _without(x: torch.Tensor, sublayer: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda y: sublayer(y) - x


def _prepared(wrap: nn.Module, norm: bool, gamma: float, beta: float) -> nn.Module:
    with torch.no_grad():
        wrap.norm.weight.fill_(gamma)
        wrap.norm.bias.fill_(beta)
    if not norm:
        wrap.norm = nn.Identity()
    return wrap.eval()


def _per_layer(outputs: list[torch.Tensor], measure: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    return np.array([float(measure(y)) for y in outputs])


class Depth(Picture):
    """Three curves over the layers: a token's statistics, what is left of the input, the gradient."""

    size = (10.0, 3.4)

    def __init__(self, post: Wrapper, pre: Wrapper):
        self.wrappers = {"Post-Norm": post, "Pre-Norm": pre, "no norm": post}
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "order": choice(
                "order", ["Post-Norm", "Pre-Norm", _("no norm")], help=_("where the norm stands")
            ),
            "residual": switch("residual", True, help=_("whether x is added to what the sublayer returns")),
            "depth": int_slider("layers", 24, 4, 48, 4),
            "gamma": float_slider("γ", 1.0, 0.25, 2.0, 0.25, help=_("every norm multiplies by it (weight)")),
            "beta": float_slider("β", 0.0, -1.0, 1.0, 0.25, help=_("every norm adds it (bias)")),
        }

    def compute(
        self, order: str, residual: bool, depth: int, gamma: float, beta: float
    ) -> tuple[str, DepthData]:
        norm = order != "no norm"
        name = f"{order}, {'with' if residual else 'without'} residual"
        return name, depth_data(
            self.wrappers[order], depth, 32, residual, norm, gamma, beta, final=order == "Pre-Norm"
        )

    def start(self, figure: Figure, data: tuple[str, DepthData]) -> None:
        left, middle, right = self.axes = figure.subplots(1, 3)
        (self.std,) = left.plot([], [], ".-", color=BLUE, label=_("spread (standard deviation)"))
        (self.mean,) = left.plot([], [], ".-", color=ORANGE, label=_("mean"))
        (self.kept,) = middle.plot([], [], ".-", color=BLUE)
        (self.gradient,) = right.plot([], [], ".-", color=BLUE)
        left.set(yscale="symlog", ylim=(-2, 60), ylabel=_("over a token's features"))
        left.set_yticks([-1, 0, 1, 10], ["−1", "0", "1", "10"])
        left.legend(fontsize=8, loc="upper left", frameon=False)
        middle.set(ylim=(-0.3, 1.05), ylabel=_("cosine with the stack's input"))
        right.set(yscale="log", ylim=(1e-12, 1e5), ylabel=_("norm of the gradient at the input"))
        for axes in self.axes:
            axes.axhline(1.0 if axes is left else 0.0, color="0.85", linewidth=0.8, zorder=0)
            axes.set_xlabel(_("layer"))
        self.title = figure.suptitle("", fontsize=10)

    def draw(self, data: tuple[str, DepthData]) -> None:
        name, d = data
        layers = np.arange(1, len(d.std) + 1)
        for line, values in (
            (self.std, d.std),
            (self.mean, d.mean),
            (self.kept, d.kept),
            (self.gradient, np.maximum(d.gradient, 1e-30)),
        ):
            line.set_data(layers, values)
        for axes in self.axes:
            axes.set_xlim(0, len(layers) + 1)
        self.title.set_text(f"{name}, {len(layers)} layers")

    def describe(self, data: tuple[str, DepthData]) -> str:
        name, d = data
        return _(
            "{name}, {std_count} layers: after the last layer a token's spread is {short}, its "
            "mean {mean:.2f} and its cosine with what came in {kept:.2f}. The gradient's norm "
            "is {short_2} at the last layer's input and {short_3} at the first's."
        ).format(
            name=name,
            std_count=len(d.std),
            short=_short(d.std[-1]),
            mean=d.mean[-1],
            kept=d.kept[-1],
            short_2=_short(d.gradient[-1]),
            short_3=_short(d.gradient[0]),
        )


def _short(value: float) -> str:
    """Two or three figures that say the size of a number: 0.0000022 as 2.2e-06, 57.3 as 57.3."""
    return (
        f"{value:.1e}"
        if value and abs(value) < 0.01
        else f"{value:.3g}"
        if abs(value) < 100
        else f"{value:.0f}"
    )


def by_depth(post: Wrapper, pre: Wrapper) -> Depth:
    """Draw what happens layer by layer in a deep stack of your PostNorm or PreNorm."""
    return Depth(post, pre)


# ---- gradients with and without a residual ----------------------------------------------------------


@dataclass(frozen=True)
class GradientData:
    """The learner's gradient norms [depth] without and with a residual."""

    plain: np.ndarray
    residual: np.ndarray


def gradient_data(norms: Callable[..., torch.Tensor], depth: int, d_model: int, seed: int) -> GradientData:
    """Return gradient_norms(depth, d_model, residual, seed) for residual False and True."""
    with torch.random.fork_rng(devices=[]):
        plain, residual = (
            torch.as_tensor(norms(depth, d_model, flag, seed)).detach().double().numpy()
            for flag in (False, True)
        )
    return GradientData(plain, residual)


class Gradients(Picture):
    """The gradient's norm by layer, on a logarithmic scale: one line without a residual, one with it."""

    size = (8.0, 3.2)

    def __init__(self, norms: Callable[..., torch.Tensor]):
        self.norms = norms
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "depth": int_slider("layers", 30, 2, 60, 2),
            "d_model": choice("d_model", [16, 64, 128], 64),
            "seed": int_slider("seed", 0, 0, 9),
        }

    def compute(self, depth: int, d_model: int, seed: int) -> GradientData:
        return gradient_data(self.norms, depth, d_model, seed)

    def start(self, figure: Figure, data: GradientData) -> None:
        self.axes = figure.subplots()
        (self.with_it,) = self.axes.plot([], [], ".-", color=BLUE, label=_("with residual"))
        (self.without,) = self.axes.plot([], [], ".-", color=ORANGE, label=_("without"))
        self.axes.set(
            yscale="log", ylim=(1e-14, 1e5), xlabel=_("layer"), ylabel=_("norm of the gradient at its input")
        )
        self.axes.legend(loc="lower right", frameon=False)

    def draw(self, data: GradientData) -> None:
        layers = np.arange(1, len(data.plain) + 1)
        self.without.set_data(layers, np.maximum(data.plain, 1e-30))
        self.with_it.set_data(layers, np.maximum(data.residual, 1e-30))
        self.axes.set_xlim(0, len(layers) + 1)

    def describe(self, data: GradientData) -> str:
        plain, residual = data.plain, data.residual
        return _(
            "{plain_count} layers: without a residual the gradient's norm is {short} at the "
            "last layer and {short_2} at the first; with it, {short_3} and {short_4}."
        ).format(
            plain_count=len(plain),
            short=_short(plain[-1]),
            short_2=_short(plain[0]),
            short_3=_short(residual[-1]),
            short_4=_short(residual[0]),
        )


def gradients_by_layer(norms: Callable[..., torch.Tensor]) -> Gradients:
    """Draw your gradient_norms, with and without the residual path."""
    return Gradients(norms)


# ---- where normalised vectors lie -------------------------------------------------------------------


@dataclass(frozen=True)
class GeometryData:
    """Vectors of three features before and after a norm, [points, 3] each."""

    before: np.ndarray
    after: np.ndarray
    gamma: np.ndarray  # [3]

    @property
    def lengths(self) -> np.ndarray:
        return np.linalg.norm(self.after, axis=1)

    @property
    def sums(self) -> np.ndarray:
        return self.after.sum(axis=1)


def geometry_data(norm: Callable[..., nn.Module], stretch: float = 1.0, points: int = 120) -> GeometryData:
    """Return random vectors of 3 features and what `norm(3)` makes of them.

    stretch: the norm's weight for the first feature (the other two keep 1).
    """
    module = norm(3)
    gamma = torch.tensor([stretch, 1.0, 1.0])
    generator = torch.Generator().manual_seed(5)
    spread, centre = torch.tensor([1.0, 0.8, 1.3]), torch.tensor([0.5, -0.3, 0.2])
    x = torch.randn(points, 3, generator=generator) * spread + centre
    with torch.no_grad():
        module.weight.copy_(gamma)
        after = module(x)
    return GeometryData(x.numpy(), after.numpy(), gamma.numpy())


class Geometry(Picture):
    """Vectors of three features before (grey) and after (blue) a norm, seen from a side you choose.

    norms: {name: class}; the first is shown at first.
    """

    size = (8.0, 4.6)

    def __init__(self, norms: dict[str, Callable[..., nn.Module]]):
        self.norms = norms
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "norm": choice("norm", list(self.norms)),
            "stretch": float_slider(_("γ of feature 1"), 1.0, 0.0, 2.0, 0.25),
            "turn": int_slider(_("turn the view"), 15, 0, 360, 5, help=_("degrees around the vertical axis")),
        }

    def compute(self, norm: str, stretch: float, turn: int) -> tuple[str, int, GeometryData]:
        return norm, turn, geometry_data(self.norms[norm], stretch)

    def start(self, figure: Figure, data: tuple[str, int, GeometryData]) -> None:
        self.axes = figure.add_subplot(projection="3d")
        self.before = self.axes.scatter([], [], [], s=8, color=GREY, depthshade=False, label=_("before"))
        self.after = self.axes.scatter([], [], [], s=14, color=BLUE, depthshade=False, label=_("after"))
        self.axes.plot([-1.6, 1.6], [-1.6, 1.6], [-1.6, 1.6], color=ORANGE, linewidth=1.2, label="(1, 1, 1)")
        u, v = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(0, np.pi, 13))
        sphere = np.sqrt(3) * np.array([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)])
        self.axes.plot_wireframe(*sphere, color="0.8", linewidth=0.3)
        limits = (-2.2, 2.2)
        self.axes.set(
            xlim=limits,
            ylim=limits,
            zlim=limits,
            xlabel=_("feature 1"),
            ylabel=_("feature 2"),
            zlabel="feature 3",
        )
        self.axes.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2], zticks=[-2, 0, 2])
        self.axes.set_box_aspect((1, 1, 1), zoom=0.93)
        self.axes.legend(loc="center left", bbox_to_anchor=(1.12, 0.5), frameon=False, fontsize=9)

    def draw(self, data: tuple[str, int, GeometryData]) -> None:
        name, turn, d = data
        inside = (np.abs(d.before) < 2.2).all(axis=1)
        self.before._offsets3d = tuple(d.before[inside].T)
        self.after._offsets3d = tuple(d.after.T)
        # at this height and 45 degrees the eye looks along (1, 1, 1)
        self.axes.view_init(elev=35.3, azim=turn)
        self.axes.set_title(
            _("{name} on vectors of 3 features; the sphere has radius √3").format(name=name), fontsize=10
        )

    def describe(self, data: tuple[str, int, GeometryData]) -> str:
        name, _kind, d = data
        low, high = d.lengths.min(), d.lengths.max()
        length = f"{high:.2f}" if high - low < 0.005 else f"between {low:.2f} and {high:.2f}"
        most = np.abs(d.sums).max()
        sums = (
            _("sum to 0")
            if most < 0.005
            else _("sum to anything between {sums:.2f} and {sums_2:.2f}").format(
                sums=d.sums.min(), sums_2=d.sums.max()
            )
        )
        return _(
            "{name}, γ of feature 1 at {gamma:.2f}: after it, the {after_count} vectors have "
            "length {length} (√3 is 1.73), and their features {sums}."
        ).format(name=name, gamma=d.gamma[0], after_count=len(d.after), length=length, sums=sums)


def geometry(**norms: Callable[..., nn.Module]) -> Geometry:
    """Draw where your norms put vectors of three features: geometry(RMSNorm=RMSNorm, LayerNorm=LayerNorm)."""
    return Geometry(norms)
