"""Chapter 03: attention step by step, a mask to play with, variance by width, and saturation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from transformer_lab import parts
from transformer_lab.language import N_, _
from transformer_lab.widgets.base import Picture, choice, float_slider, int_slider, switch
from transformer_lab.widgets.fonts import label_font

BLUE, ORANGE, GREY = "#31688e", "#e08214", "0.6"
LANGUAGES = [("English", "en"), ("中文", "zh")]

# ---- maps whose rows and columns are tokens ---------------------------------------------------------


def name_tokens(axis: Axis, tokens: tuple[str, ...]) -> None:
    """Write the tokens along an axis; without a font for Chinese they are numbered."""
    try:
        font = label_font("".join(tokens))
    except LookupError:  # the sentence below the picture still names them
        tokens, font = tuple(f"token {i + 1}" for i in range(len(tokens))), None
    axis.set_ticks(range(len(tokens)), tokens, fontproperties=font)
    axis.set_tick_params(length=0)


class TokenMap:
    """A table [n, n] with its numbers: queries down, keys across, hatched where attending is hidden."""

    def __init__(self, axes: Axes, n: int):
        self.axes, self.tokens = axes, ()
        self.image = axes.imshow(np.zeros((n, n)))
        axes.xaxis.tick_top()
        axes.spines[:].set_visible(False)
        hidden = {"facecolor": "0.93", "edgecolor": "0.65", "hatch": "///", "linewidth": 0}
        cells = list(np.ndindex(n, n))
        self.hatches = {
            (i, j): axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **hidden)) for i, j in cells
        }
        self.numbers = {(i, j): axes.text(j, i, "", ha="center", va="center", fontsize=9) for i, j in cells}

    def show(
        self, values: np.ndarray, allowed: np.ndarray, tokens: tuple[str, ...], limit: float = 0.0
    ) -> None:
        """Show weights from 0 to 1, or, with a limit, scores from -limit to limit."""
        if tokens != self.tokens:
            self.tokens = tokens
            name_tokens(self.axes.xaxis, tokens)
            name_tokens(self.axes.yaxis, tokens)
        finite = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        self.image.set_data(finite)
        self.image.set_cmap("RdBu_r" if limit else "viridis")
        self.image.set_clim(-limit, limit or 1.0)
        dark = np.abs(finite) > 0.6 * limit if limit else finite < 0.6
        for cell, text in self.numbers.items():
            self.hatches[cell].set_visible(not allowed[cell])
            text.set_text(number(values[cell]))
            plain = "white" if dark[cell] and allowed[cell] else "black"
            text.set_color("#c0392b" if np.isnan(values[cell]) else plain)


class RowBars:
    """One bar and its number for each token."""

    def __init__(self, axes: Axes, n: int, top: float):
        self.axes, self.tokens = axes, ()
        self.bars = axes.barh(range(n), np.zeros(n))
        self.numbers = [axes.text(0, i, "", va="center", fontsize=9) for i in range(n)]
        axes.set(xlim=(0, top), ylim=(n - 0.5, -0.5), xticks=[])

    def show(self, values: np.ndarray, tokens: tuple[str, ...], colours: list[str], top: float) -> None:
        """Show the values, one colour each, on an axis from 0 to `top`."""
        if tokens != self.tokens:
            self.tokens = tokens
            name_tokens(self.axes.yaxis, tokens)
        self.axes.set_xlim(0, top)
        for bar, text, value, colour in zip(self.bars, self.numbers, values, colours, strict=True):
            length = float(np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
            bar.set_width(length)
            bar.set_color(colour)
            text.set_x(max(length, 0.0))
            text.set_text(" " + number(value))


def number(value: float) -> str:
    """Write a table's number in four characters or so."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "−∞" if value < 0 else "∞"
    return f"{value:.2f}".replace("-", "−")


def listed(values: np.ndarray) -> str:
    """Write a row of numbers for a sentence."""
    return ", ".join(number(value) for value in values)


# ---- the steps of attention -------------------------------------------------------------------------

SENTENCES = {"en": ("I", "love", "deep", "learning"), "zh": ("我", "爱", "深度", "学习")}
SCALED = np.array([[2.0, 1.0, 0.5, 0.3], [0.8, 2.2, 1.1, 0.4], [0.3, 1.5, 2.0, 0.9], [0.2, 0.7, 1.3, 2.5]])
D_K = 4
# With one-hot keys the dot product q_i·k_j is simply q_i's number j, so these queries give those scores.
QUERIES, KEYS = torch.tensor(2 * SCALED, dtype=torch.float32), torch.eye(D_K)
VALUES = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [1.0, 3.0]])
STEPS = (N_("scores q·k"), "scores / √d_k", "mask", "weights = softmax", "out = Σ weight × value")


@dataclass(frozen=True)
class StepData:
    """The tables [n, n] of every step, the output [n, d_v], and whether the weights are those expected."""

    tokens: tuple[str, ...]
    query: int
    step: int
    tables: tuple[np.ndarray, ...]
    allowed: np.ndarray
    out: np.ndarray
    expected: np.ndarray


def step_data(attention: Callable, language: str, query: int, step: int, causal: bool) -> StepData:
    """Return every step of the worked example; weights and output are what `attention` gives."""
    allowed = np.tril(np.ones(SCALED.shape, dtype=bool)) if causal else np.ones(SCALED.shape, dtype=bool)
    mask = torch.tensor(allowed) if causal else None
    inputs = (QUERIES[None], KEYS[None], VALUES[None], mask)  # a batch of 1
    out, weights = (x[0].detach().cpu().double().numpy() for x in attention(*(_copies(inputs))))
    expected = parts.attention(*inputs)[1][0].double().numpy()
    hidden = np.where(allowed, SCALED, -np.inf)
    tables = (QUERIES.double().numpy(), SCALED, hidden, weights, weights)
    return StepData(SENTENCES[language], query, step, tables, allowed, out, expected)


def _copies(inputs: tuple) -> list:
    return [None if x is None else x.clone() for x in inputs]


class Steps(Picture):
    """The table of the chosen step on the left, the chosen query's row as bars on the right."""

    size = (9.2, 3.9)

    def __init__(self, attention: Callable):
        self.attention = attention
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "step": int_slider(
                "step", 4, 1, 5, help=_("1 scores, 2 scale, 3 mask, 4 softmax, 5 weighted sum")
            ),
            "query": int_slider(_("query token"), 2, 1, 4, help=_("the token that looks around")),
            "causal": switch(_("causal mask"), True, help=_("no token may attend to a later one")),
            "language": choice("sentence", LANGUAGES),
        }

    def compute(self, step: int, query: int, causal: bool, language: str) -> StepData:
        return step_data(self.attention, language, query - 1, step, causal)

    def start(self, figure: Figure, data: StepData) -> None:
        grid = figure.add_gridspec(1, 2, width_ratios=[1, 1.15])
        left, row, total = (figure.add_subplot(grid[0, column]) for column in (0, 1, 1))
        n = len(data.tokens)
        self.map, self.row = TokenMap(left, n), RowBars(row, n, 1)
        self.frame = left.add_patch(
            Rectangle((-0.5, 0), n, 1, fill=False, edgecolor=ORANGE, linewidth=3, clip_on=False)
        )
        self.pieces = [
            [total.barh(f, 0, height=0.5, color=mpl.colormaps["cividis"](j / 3)) for j in range(n)]
            for f in (0, 1)
        ]
        self.sums = [total.text(0, f, "", va="center", fontsize=9) for f in (0, 1)]
        total.set(xlim=(0, 3.6), ylim=(1.6, -0.6), yticks=[0, 1], yticklabels=["feature 1", "feature 2"])
        total.set_xticks([])
        total.set_xlabel(_("one piece for each token: its weight × its value"))
        self.total = total

    def draw(self, data: StepData) -> None:
        table, weights, last = data.tables[data.step - 1], data.step > 3, data.step == 5
        allowed = data.allowed if data.step > 2 else np.ones_like(data.allowed)
        self.map.show(table, allowed, data.tokens, limit=0.0 if weights else 5.0)
        self.map.axes.set_title(
            _("step {step}: {name}\nrows ask, columns are asked").format(
                step=data.step, name=_(STEPS[data.step - 1])
            ),
            fontsize=9,
        )
        self.frame.set_y(data.query - 0.5)
        self.row.axes.set_visible(not last)
        self.total.set_visible(last)
        self.row.show(table[data.query], data.tokens, [BLUE] * len(data.tokens), 1.15 if weights else 5.8)
        self.row.axes.set_title(
            _("the marked row: ") + (_("how much it takes from each") if weights else _("its scores")),
            fontsize=9,
        )
        self._add_up(data)

    def _add_up(self, data: StepData) -> None:
        """Lay the weighted values end to end: their total is the output."""
        weights, values = data.tables[-1][data.query], VALUES.numpy()
        for feature, pieces in enumerate(self.pieces):
            left = 0.0
            for (bar,), part in zip(pieces, np.nan_to_num(weights * values[:, feature]), strict=True):
                bar.set_x(left)
                bar.set_width(part)
                left += part
            self.sums[feature].set_x(left)
            self.sums[feature].set_text(" " + number(data.out[data.query, feature]))
        terms = [f"{number(w)} · ({v[0]:.0f}, {v[1]:.0f})" for w, v in zip(weights, values, strict=True) if w]
        self.total.set_title(
            "out = " + " + ".join(terms) + f"\n= ({listed(data.out[data.query])})", fontsize=9
        )

    def describe(self, data: StepData) -> str:
        token, table = data.tokens[data.query], data.tables[data.step - 1]
        row = ", ".join(f"{t} {number(x)}" for t, x in zip(data.tokens, table[data.query], strict=True))
        text = _("Step {step}, {name}. Row “{token}”: {row}.").format(
            step=data.step, name=_(STEPS[data.step - 1]), token=token, row=row
        )
        if data.step == 5:
            text += _(" Its output is ({listed}).").format(listed=listed(data.out[data.query]))
        if data.step > 3 and not np.allclose(table, data.expected, atol=1e-3):
            text += _(
                ' These are your weights. Softmax over the keys gives {listed}: run check("3.6", attention).'
            ).format(listed=listed(data.expected[data.query]))
        return text


def steps(attention: Callable) -> Steps:
    """Walk through the worked example with your attention, one step and one query at a time."""
    return Steps(attention)


# ---- a mask to play with ----------------------------------------------------------------------------

PADDED = {
    "en": ("the", "cat", "sat", "down", "<pad>", "<pad>"),
    "zh": ("小", "猫", "坐", "下", "<pad>", "<pad>"),
}
_PAD_SCORES = np.array(
    [
        [1.2, 2.0, 0.3, 0.1, 1.5, 1.5],
        [0.9, 1.1, 1.9, 0.2, 1.5, 1.5],
        [0.2, 2.1, 0.8, 1.4, 1.5, 1.5],
        [0.1, 1.0, 2.2, 0.9, 1.5, 1.5],
        [0.4, 0.6, 0.5, 0.3, 1.5, 1.5],
        [0.4, 0.6, 0.5, 0.3, 1.5, 1.5],
    ]
)
MASKS = [("causal", "causal"), ("padding", "padding"), ("both", "both"), ("none", "none")]
TIMES = [(N_("before softmax (your mask)"), "before"), (N_("after softmax (weights × mask)"), "after")]


@dataclass(frozen=True)
class MaskData:
    """weights [n, n] as the chosen order of steps gives them; `allowed` is the mask, True: may attend."""

    tokens: tuple[str, ...]
    weights: np.ndarray
    allowed: np.ndarray
    when: str
    dtype: str

    @property
    def sums(self) -> np.ndarray:
        return self.weights.sum(axis=-1)


def mask_of(kind: str, first_sees_nothing: bool = False) -> np.ndarray:
    """Return the mask [n, n] of the example sentence, True: may attend."""
    n = len(_PAD_SCORES)
    real = np.array([token != "<pad>" for token in PADDED["en"]])
    allowed = np.ones((n, n), dtype=bool)
    if kind in ("causal", "both"):
        allowed &= np.tril(allowed)
    if kind in ("padding", "both"):
        allowed &= real
    if first_sees_nothing:
        allowed[0] = False
    return allowed


def mask_data(
    attention: Callable,
    kind: str,
    when: str = "before",
    empty: bool = False,
    dtype: str = "float32",
    language: str = "en",
) -> MaskData:
    """Return the weights of `attention` under a mask that is given to it, or applied to its weights."""
    allowed = mask_of(kind, empty)
    n = len(allowed)
    queries = torch.tensor(_PAD_SCORES * n**0.5)  # one-hot keys: each query is its own row of scores
    inputs = [x.to(getattr(torch, dtype))[None] for x in (queries, torch.eye(n), torch.eye(n))]
    mask = torch.tensor(allowed)
    if when == "before":
        _, weights = attention(*inputs, mask)
    else:
        _, weights = attention(*inputs)
        weights = weights * mask
    return MaskData(PADDED[language], weights[0].detach().cpu().double().numpy(), allowed, when, dtype)


class MaskEditor(Picture):
    """The map of weights under a mask of your choice, and beside it what each row sums to."""

    size = (8.6, 4.2)

    def __init__(self, attention: Callable):
        self.attention = attention
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "kind": choice("mask", MASKS),
            "when": choice("applied", TIMES),
            "empty": switch(
                _("first query may see nothing"), False, help=_("hides every key from the first query")
            ),
            "dtype": choice("numbers", ["float32", "float16", "bfloat16"]),
            "language": choice("sentence", LANGUAGES),
        }

    def compute(self, kind: str, when: str, empty: bool, dtype: str, language: str) -> MaskData:
        return mask_data(self.attention, kind, when, empty, dtype, language)

    def start(self, figure: Figure, data: MaskData) -> None:
        left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
        self.map, self.row = TokenMap(left, len(data.tokens)), RowBars(right, len(data.tokens), 1.3)
        left.set_title(_("weights (hatched: hidden by the mask)"), fontsize=9)
        right.set_title(_("sum of each row (line: 1)"), fontsize=9)
        right.axvline(1, color="black", linewidth=1)

    def draw(self, data: MaskData) -> None:
        colours = [BLUE if abs(total - 1) < 0.01 else ORANGE for total in data.sums]
        self.map.show(data.weights, data.allowed, data.tokens)
        self.row.show(data.sums, data.tokens, colours, top=1.3)

    def describe(self, data: MaskData) -> str:
        dead = [t for t, total in zip(data.tokens, data.sums, strict=True) if np.isnan(total)]
        leak = np.where(data.allowed, 0, np.nan_to_num(data.weights)).sum()
        order = "before" if data.when == "before" else "after"
        text = _("Mask {order} softmax, {dtype}. ").format(order=order, dtype=data.dtype)
        if dead:
            text += _("Row “{dead}” has no key it may attend to, and is NaN. ").format(dead=dead[0])
        whole = data.sums[~np.isnan(data.sums)]
        if np.allclose(whole, 1, atol=0.01):
            text += _("Every row sums to 1") + (_(" but that one. ") if dead else ". ")
        else:
            text += _("The rows do not sum to 1: they sum to {listed}. ").format(listed=listed(data.sums))
        blind = [t for t, row in zip(data.tokens, data.allowed, strict=True) if not row.any()]
        if blind and not dead and data.when == "before":
            text += _("Row “{blind}” may attend to nothing; your code gives it {listed}. ").format(
                blind=blind[0], listed=listed(data.weights[0])
            )
        elif leak > 1e-6:
            text += _("Hidden keys still receive weight, {leak:.2f} in all. ").format(leak=leak)
        return text.strip()


def mask_editor(attention: Callable) -> MaskEditor:
    """Put masks on your attention, before or after its softmax, and watch the rows."""
    return MaskEditor(attention)


# ---- variance by width ------------------------------------------------------------------------------

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class VarianceData:
    """The two measured variances by width, [len(WIDTHS)] each."""

    raw: np.ndarray
    scaled: np.ndarray
    samples: int


def variance_data(score_variance: Callable, samples: int, seed: int) -> VarianceData:
    """Return what the learner's score_variance measures at every width."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [score_variance(width, samples, generator=generator) for width in WIDTHS]
    raw, scaled = np.array([[float(x) for x in pair] for pair in pairs]).T
    return VarianceData(raw, scaled, samples)


class Variances(Picture):
    """Measured variances over the width, beside the lines that theory draws."""

    size = (7.0, 3.4)

    def __init__(self, score_variance: Callable):
        self.score_variance = score_variance
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "samples": choice("samples", [10, 100, 1000, 5000], 1000),
            "seed": int_slider("seed", 0, 0, 9),
        }

    def compute(self, samples: int, seed: int) -> VarianceData:
        return variance_data(self.score_variance, samples, seed)

    def start(self, figure: Figure, data: VarianceData) -> None:
        axes = figure.subplots()
        axes.plot(WIDTHS, WIDTHS, color=GREY, linewidth=1)
        axes.axhline(1, color=GREY, linewidth=1)
        (self.raw,) = axes.plot([], [], "o", color=ORANGE, label=_("variance of q·k"))
        (self.scaled,) = axes.plot([], [], "s", color=BLUE, label=_("variance of q·k / √d_k"))
        axes.set(xscale="log", yscale="log", xlabel="d_k", ylabel=_("measured variance"), ylim=(0.1, 2000))
        axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
        axes.minorticks_off()
        axes.legend(loc="upper left", frameon=False)

    def draw(self, data: VarianceData) -> None:
        self.raw.set_data(WIDTHS, data.raw)
        self.scaled.set_data(WIDTHS, data.scaled)

    def describe(self, data: VarianceData) -> str:
        at = WIDTHS.index(64)
        return _(
            "With {samples} samples: at d_k = 64 the variance of q·k is {raw:.1f}, after "
            "division by √64 it is {scaled:.2f}; at d_k = 512 they are {raw_2:.0f} and "
            "{scaled_2:.2f}."
        ).format(
            samples=data.samples,
            raw=data.raw[at],
            scaled=data.scaled[at],
            raw_2=data.raw[-1],
            scaled_2=data.scaled[-1],
        )


def variances(score_variance: Callable) -> Variances:
    """Draw what your score_variance measures over the width d_k."""
    return Variances(score_variance)


# ---- temperature, scale and the gradient that dies --------------------------------------------------

TRIALS, KEYS_SEEN, REACH = 500, 8, 60.0
SATURATION_WIDTHS = (4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class SaturationData:
    """scores [trials, 8] that enter softmax, the first trial's weights, and gradients by width.

    gradients: {True or False (scaled): [len(SATURATION_WIDTHS)]}, the mean norm of ∂(largest weight)/∂scores.
    """

    scores: np.ndarray
    weights: np.ndarray
    largest: float
    gradients: dict[bool, np.ndarray]
    d_k: int
    scaled: bool
    temperature: float


def random_scores(d_k: int) -> torch.Tensor:
    """Return scores [trials, keys] of random queries and keys of width d_k, the same ones every time."""
    generator = torch.Generator().manual_seed(d_k)
    queries = torch.randn(TRIALS, d_k, 1, generator=generator)
    keys = torch.randn(TRIALS, KEYS_SEEN, d_k, generator=generator)
    return torch.bmm(keys, queries)[..., 0]


def saturation_data(stable_softmax: Callable, d_k: int, scaled: bool, temperature: float) -> SaturationData:
    """Return weights and gradients of the learner's softmax on random scores."""
    results = {
        (width, on): _weights_and_gradient(stable_softmax, _entering(width, on, temperature))
        for width in SATURATION_WIDTHS
        for on in (False, True)
    }
    weights = results[d_k, scaled][0]
    gradients = {on: np.array([results[w, on][1] for w in SATURATION_WIDTHS]) for on in (False, True)}
    scores = _entering(d_k, scaled, temperature).numpy()
    top = float(weights.max(axis=-1).mean())
    return SaturationData(scores, np.sort(weights[0])[::-1], top, gradients, d_k, scaled, temperature)


def _entering(d_k: int, scaled: bool, temperature: float) -> torch.Tensor:
    width = d_k**0.5 if scaled else 1.0
    return random_scores(d_k) / (width * temperature)


def _weights_and_gradient(stable_softmax: Callable, scores: torch.Tensor) -> tuple[np.ndarray, float]:
    scores = scores.clone().requires_grad_()
    weights = stable_softmax(scores, -1)
    largest = weights.gather(-1, scores.argmax(-1, keepdim=True))
    (gradient,) = torch.autograd.grad(largest.sum(), scores)
    return weights.detach().numpy(), float(gradient.norm(dim=-1).mean())


class Saturation(Picture):
    """Scores as a histogram, the weights they become, and how much gradient is left, by width."""

    size = (10.0, 3.6)

    def __init__(self, stable_softmax: Callable):
        self.stable_softmax = stable_softmax
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "d_k": choice("d_k", list(SATURATION_WIDTHS), 256, help=_("the width of queries and keys")),
            "scaled": switch(_("divide by √d_k"), False),
            "temperature": float_slider(
                "temperature", 1.0, 0.25, 8.0, 0.25, help=_("scores are divided by it")
            ),
        }

    def compute(self, d_k: int, scaled: bool, temperature: float) -> SaturationData:
        return saturation_data(self.stable_softmax, d_k, scaled, temperature)

    def start(self, figure: Figure, data: SaturationData) -> None:
        self.axes = histogram, weights, gradient = figure.subplots(1, 3, width_ratios=[1.2, 1, 1.2])
        edges = np.linspace(-REACH, REACH, 61)
        self.bins = histogram.bar(edges[:-1], np.zeros(60), width=np.diff(edges), align="edge")
        histogram.set(xlabel=_("score that enters softmax"), yticks=[], ylim=(0, 1.05))
        self.bars = weights.bar(range(1, KEYS_SEEN + 1), np.zeros(KEYS_SEEN))
        weights.set(ylim=(0, 1.05), xlabel=_("key, largest weight first"), xticks=range(1, KEYS_SEEN + 1))
        weights.set_title(_("weights of one query"), fontsize=10)
        self.lines = {}
        for on, colour, marker in ((False, ORANGE, "o-"), (True, BLUE, "s-")):
            label = _("divided by √d_k") if on else _("not divided")
            (self.lines[on],) = gradient.plot(
                SATURATION_WIDTHS, data.gradients[on], marker, color=colour, label=label
            )
        (self.here,) = gradient.plot([], [], "o", markersize=14, fillstyle="none", color="black")
        gradient.set(xscale="log", ylim=(0, 0.6), xlabel="d_k")
        gradient.set_title(_("gradient that is left"), fontsize=10)
        gradient.set_xticks(SATURATION_WIDTHS, [str(width) for width in SATURATION_WIDTHS])
        gradient.minorticks_off()
        gradient.legend(frameon=False, fontsize=8)

    def draw(self, data: SaturationData) -> None:
        histogram = self.axes[0]
        colour = BLUE if data.scaled else ORANGE
        counts, _edges = np.histogram(
            np.clip(data.scores, -REACH, REACH), bins=len(self.bins), range=(-REACH, REACH)
        )
        for bar, height in zip(
            [*self.bins, *self.bars], [*(counts / counts.max()), *np.nan_to_num(data.weights)], strict=True
        ):
            bar.set_height(height)
            bar.set_color(colour)
        histogram.set_title(
            _("scores: standard deviation {scores:.2f}").format(scores=data.scores.std()), fontsize=10
        )
        for on, line in self.lines.items():
            line.set_ydata(data.gradients[on])
        at = SATURATION_WIDTHS.index(data.d_k)
        self.here.set_data([data.d_k], [data.gradients[data.scaled][at]])

    def describe(self, data: SaturationData) -> str:
        at = SATURATION_WIDTHS.index(data.d_k)
        this, other = data.gradients[data.scaled][at], data.gradients[not data.scaled][at]
        how, without = (_("divided by √d_k"), "without") if data.scaled else (_("as they are"), "with")
        return _(
            "d_k = {d_k}, scores {how}, temperature {temperature:g}: the largest of "
            "{KEYS_SEEN} weights is {largest:.2f} on average, and the gradient that is left "
            "measures {this:.3f} ({other:.3f} {without} the division)."
        ).format(
            d_k=data.d_k,
            how=how,
            temperature=data.temperature,
            KEYS_SEEN=KEYS_SEEN,
            largest=data.largest,
            this=this,
            other=other,
            without=without,
        )


def saturation(stable_softmax: Callable) -> Saturation:
    """Watch your softmax saturate when scores grow with d_k, and what division by √d_k changes."""
    return Saturation(stable_softmax)
