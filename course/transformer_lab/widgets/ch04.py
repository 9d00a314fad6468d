"""Chapter 04: how the width is cut into heads, and what single heads look at and are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from torch import nn

from transformer_lab.language import N_, _
from transformer_lab.widgets.base import Picture, choice
from transformer_lab.widgets.fonts import label_font

# ---- the head split ---------------------------------------------------------------------------------

TOKENS, WIDTH = 4, 8  # the puzzle's size: small enough to check every number by eye
TOKEN_COLOURS = ("#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6")  # pale, so that black numbers stay readable


def labels(n: int = TOKENS, d: int = WIDTH) -> torch.Tensor:
    """Return x [1, n, d] whose number at token t, feature j is 10·t + j, so each says where it came from."""
    return (10 * torch.arange(n)[:, None] + torch.arange(d))[None]


@dataclass(frozen=True)
class SplitData:
    """Labels as arrays: before [n, d], after and wrong [h, n, d_k] (for a merge the other way round).

    strangers: how many rows of `after` and of `wrong` hold a number of another token than the row's own.
    """

    before: np.ndarray
    after: np.ndarray
    wrong: np.ndarray
    strangers: tuple[int, int]


def split_data(split_heads: Callable, h: int) -> SplitData:
    """Return the labelled numbers as split_heads(x, h) lays them out, beside x.view(1, h, n, d_k)."""
    x = labels()
    wrong = x.view(1, h, TOKENS, WIDTH // h)[0].numpy()
    after = _heads_of(split_heads(x, h), wrong.shape)
    return SplitData(x[0].numpy(), after, wrong, (_strangers(after), _strangers(wrong)))


def merge_data(merge_heads: Callable, h: int) -> SplitData:
    """Return heads [h, n, d_k] as `before`, what merge_heads makes of them, and a bare reshape."""
    x = labels()
    heads = torch.stack(x.chunk(h, dim=-1), dim=1)  # [1, h, n, d_k]
    wrong = heads.reshape(TOKENS, WIDTH).numpy()
    after = _heads_of(merge_heads(heads), wrong.shape)
    return SplitData(heads[0].numpy(), after, wrong, (_strangers(after), _strangers(wrong)))


def _heads_of(result: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the learner's result as an array of `shape`. Raises ValueError that names both shapes."""
    if not isinstance(result, torch.Tensor):
        raise ValueError(_("the result is a {name}, not a tensor").format(name=type(result).__name__))
    array = result.detach().cpu().numpy()
    if array.shape == (1, *shape):
        array = array[0]
    if array.shape != shape:
        raise ValueError(
            _("the result has shape {shape}; {shape_2} can be drawn").format(
                shape=list(result.shape), shape_2=[1, *shape[-3:]]
            )
        )
    return array


def _strangers(array: np.ndarray) -> int:
    """Return how many rows hold a number of another token than the one whose row it is."""
    own = np.arange(array.shape[-2])[:, None]
    return int((array // 10 != own).any(axis=-1).sum())


class HeadSplit(Picture):
    """Three panels: before, the learner's own, and the same by a bare view. One colour for each token."""

    size = (9.6, 4.0)
    titles = (
        N_("x [n, d]: a row for each token"),
        N_("your split_heads(x, h)"),
        "x.view(B, h, n, d_k): wrong",
    )

    def __init__(self, function: Callable, data: Callable[[Callable, int], SplitData] = split_data):
        self.function, self.data_of = function, data
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {"h": choice(_("heads h"), [1, 2, 4, 8], 2, help=_("how many heads share the eight features"))}

    def compute(self, h: int) -> SplitData:
        return self.data_of(self.function, h)

    def start(self, figure: Figure, data: SplitData) -> None:
        self.panels = figure.subplots(1, 3)

    def draw(self, data: SplitData) -> None:
        for axes, title, array in zip(
            self.panels, self.titles, (data.before, data.after, data.wrong), strict=True
        ):
            _draw_blocks(axes, title, array)

    def describe(self, data: SplitData) -> str:
        own, wrong = data.strangers
        rows = data.after.size // data.after.shape[-1]
        judged = (
            _("all {rows} rows hold their own token").format(rows=rows)
            if own == 0
            else _("{own} of {rows} rows hold numbers of another token").format(own=own, rows=rows)
        )
        return _(
            "Yours: {judged}. The wrong one: {wrong} of {rows} rows hold numbers of another token."
        ).format(judged=judged, wrong=wrong, rows=rows)


class HeadMerge(HeadSplit):
    """The way back: heads, the learner's merge, and a reshape that forgot the transpose."""

    titles = ("heads [h, n, d_k]", N_("your merge_heads(x)"), "x.reshape(B, n, d): wrong")


def _draw_blocks(axes: Axes, title: str, array: np.ndarray) -> None:
    """Draw numbers in the colours of their tokens: one block of rows, or one block for each head."""
    blocks = array if array.ndim == 3 else array[None]
    count, n, width = blocks.shape
    height = count * (n + 1) - 1  # one empty line between blocks
    axes.clear()
    axes.set(xlim=(-0.6, WIDTH - 0.4), ylim=(35.5, -1.5), xticks=[], yticks=[])
    axes.set_ylim(max(height, TOKENS * 2 + 1) + 0.3, -0.7)
    axes.set_title(title, fontsize=10)
    axes.spines[:].set_visible(False)
    for head, block in enumerate(blocks):
        top = head * (n + 1)
        axes.imshow(
            block // 10,
            cmap=ListedColormap(TOKEN_COLOURS),
            vmin=-0.5,
            vmax=TOKENS - 0.5,
            extent=(-0.5, width - 0.5, top + n - 0.5, top - 0.5),
            aspect="auto",
        )
        if array.ndim == 3:
            axes.text(width - 0.3, top + (n - 1) / 2, f"head {head}", va="center", fontsize=9)
        size = 9 if height < 24 else 6
        for row, column in np.ndindex(block.shape):
            axes.text(
                column, top + row, f"{int(block[row, column]):02d}", ha="center", va="center", fontsize=size
            )


def head_split(split_heads: Callable) -> HeadSplit:
    """Show which number your split_heads puts into which head, beside a bare view."""
    return HeadSplit(split_heads)


def head_merge(merge_heads: Callable) -> HeadMerge:
    """Show where your merge_heads puts each number, beside a reshape without transpose."""
    return HeadMerge(merge_heads, merge_data)


# ---- four heads with a task each --------------------------------------------------------------------

HEADS, D_K = 4, 16
D_MODEL = HEADS * D_K
SENTENCES = {
    "the cat saw the dog": ("the", "cat", "saw", "the", "dog"),
    "猫 看见 狗 , 狗 跑 了": ("猫", "看见", "狗", ",", "狗", "跑", "了"),
}
TASKS = (N_("the token before"), N_("the same word"), N_("the first token"), N_("all tokens alike"))
_FREQUENCIES = 1.0 / 10 ** (np.arange(D_K // 2) / 4)  # eight turning speeds, from 1 down to 10^(-7/4)


def tokens_as_rows(tokens: tuple[str, ...]) -> torch.Tensor:
    """Return x [1, n, 64]: 16 features for the position, 16 for the word, one for "first", the rest 0.

    Made by hand, so that the heads' tasks can be written into the weights.
    """
    n = len(tokens)
    angles = np.arange(n)[:, None] * _FREQUENCIES  # [n, 8]
    position = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    words = sorted(set(tokens))
    one_hot = np.array([[token == word for word in words] for token in tokens], dtype=float)
    x = np.zeros((n, D_MODEL))
    x[:, :D_K] = position
    x[:, D_K : D_K + len(words)] = one_hot
    x[0, 2 * D_K] = 1.0
    return torch.tensor(x, dtype=torch.float32)[None]


def demo_weights() -> dict[str, torch.Tensor]:
    """Return weights for MultiHeadAttention(64, 4) that give each head one of TASKS.

    Head 2 looks sharply at the first token, but the output layer takes next to nothing from it.
    """
    w = {name: np.zeros((D_MODEL, D_MODEL)) for name in ("W_q", "W_k", "W_v", "W_o")}
    bias = {name: np.zeros(D_MODEL) for name in w}
    rows = [slice(head * D_K, (head + 1) * D_K) for head in range(HEADS)]
    position, word = slice(0, D_K), slice(D_K, 2 * D_K)
    w["W_q"][rows[0], position] = 4 * _turn_back()  # the query is the code of the position before
    w["W_k"][rows[0], position] = 4 * np.eye(D_K)
    w["W_q"][rows[1], word] = w["W_k"][rows[1], word] = 4 * np.eye(D_K)
    bias["W_q"][2 * D_K] = 5.0  # every query of head 2 is the same, and only the first token's key answers
    w["W_k"][2 * D_K, 2 * D_K] = 4.0
    for head in range(HEADS):
        w["W_v"][rows[head], word] = np.eye(D_K)
        w["W_o"][word, rows[head]] = (1.0, 0.7, 0.02, 0.9)[head] * np.eye(D_K)
    arrays = {f"{name}.weight": value for name, value in w.items()}
    arrays |= {f"{name}.bias": value for name, value in bias.items()}
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in arrays.items()}


def _turn_back() -> np.ndarray:
    """Return R [16, 16] with R · code(p) = code(p − 1), the codes being eight cosines, then eight sines."""
    cos, sin = np.diag(np.cos(_FREQUENCIES)), np.diag(np.sin(_FREQUENCIES))
    return np.block([[cos, sin], [-sin, cos]])


@dataclass(frozen=True)
class GridData:
    """weights [h, n, n]; changes [h, n]: how far each token's output moves without that head, in percent."""

    tokens: tuple[str, ...]
    weights: np.ndarray
    changes: np.ndarray
    head: int


def grid_data(attention: Callable[..., nn.Module], sentence: str, head: int) -> GridData:
    """Run the learner's MultiHeadAttention with demo_weights on a sentence, whole and without each head.

    A head is left out by zeroing the columns of W_o that read it.
    """
    tokens = SENTENCES[sentence]
    module, x = attention(D_MODEL, HEADS), tokens_as_rows(tokens)
    module.load_state_dict(demo_weights(), strict=False)
    module.eval()
    with torch.no_grad():
        whole = module(x, x, x)
        weights = module.weights[0].cpu().numpy().copy()
        size = whole.norm(dim=-1).clamp_min(1e-9)  # [1, n]
        changes = []
        for left_out in range(HEADS):
            columns = slice(left_out * D_K, (left_out + 1) * D_K)
            kept = module.W_o.weight[:, columns].clone()
            module.W_o.weight[:, columns] = 0
            changes.append(((module(x, x, x) - whole).norm(dim=-1) / size)[0].numpy() * 100)
            module.W_o.weight[:, columns] = kept
    if weights.shape != (HEADS, len(tokens), len(tokens)):
        raise ValueError(
            _("weights has shape {shape} after the batch axis; [h, n, n] is needed").format(
                shape=list(weights.shape)
            )
        )
    return GridData(tokens, weights, np.array(changes), head)


class HeadGrid(Picture):
    """One head with its tokens named, all heads as thumbnails, and what the output loses without each."""

    size = (10.0, 4.2)

    def __init__(self, attention: Callable[..., nn.Module]):
        self.attention = attention
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "sentence": choice("sentence", list(SENTENCES)),
            "head": choice(_("head to look at and to leave out"), list(range(HEADS)), 0),
        }

    def compute(self, sentence: str, head: int) -> GridData:
        return grid_data(self.attention, sentence, head)

    def start(self, figure: Figure, data: GridData) -> None:
        grid = figure.add_gridspec(2, 4, width_ratios=[3.2, 1, 1, 2.2])
        self.large = figure.add_subplot(grid[:, 0])
        self.thumbnails = [figure.add_subplot(grid[head // 2, 1 + head % 2]) for head in range(HEADS)]
        self.total, self.single = figure.add_subplot(grid[0, 3]), figure.add_subplot(grid[1, 3])
        self.image = self.large.imshow(data.weights[0], vmin=0, vmax=1, cmap="viridis")
        figure.colorbar(self.image, ax=self.large, label=_("weight"), shrink=0.7)
        self.small = [
            axes.imshow(data.weights[0], vmin=0, vmax=1, cmap="viridis") for axes in self.thumbnails
        ]
        self.shown: tuple[str, ...] | None = None
        self._name_tokens(data)

    def _name_tokens(self, data: GridData) -> None:
        """Lay out what depends on the sentence alone: names, extents, the boxes for numbers."""
        n, self.shown = len(data.tokens), data.tokens
        for image in (self.image, *self.small):
            image.set_extent((-0.5, n - 0.5, n - 0.5, -0.5))
        for axes in self.thumbnails:
            axes.set(xticks=[], yticks=[])
        _name_axis(self.large, data.tokens, "x")
        _name_axis(self.large, data.tokens, "y")
        self.large.set(xlabel=_("looks at (key)"), ylabel=_("token that asks (query)"))
        for text in list(self.large.texts):
            text.remove()
        self.numbers = [
            [self.large.text(j, i, "", ha="center", va="center", fontsize=8) for j in range(n)]
            for i in range(n)
        ]

    def draw(self, data: GridData) -> None:
        if self.shown != data.tokens:
            self._name_tokens(data)
        weights, n = data.weights[data.head], len(data.tokens)
        self.image.set_data(weights)
        for i, j in np.ndindex(n, n):
            self.numbers[i][j].set(
                text=f"{weights[i, j]:.2f}", color="black" if weights[i, j] > 0.6 else "white"
            )
        self.large.set_title(f"head {data.head}", fontsize=10)
        for head, (axes, image) in enumerate(zip(self.thumbnails, self.small, strict=True)):
            image.set_data(data.weights[head])
            axes.set_title(f"head {head}", fontsize=8, fontweight="bold" if head == data.head else "normal")
        self._draw_bars(data)

    def _draw_bars(self, data: GridData) -> None:
        self.total.clear()
        self.total.bar(range(HEADS), data.changes.mean(axis=1), color=_colours(HEADS, data.head))
        self.total.set(xticks=range(HEADS), ylim=(0, 100), ylabel=_("change, %"))
        self.total.set_title(_("output without head …"), fontsize=9)
        self.single.clear()
        self.single.bar(range(len(data.tokens)), data.changes[data.head], color="#e08214")
        self.single.set(ylim=(0, 100), ylabel=_("change, %"))
        self.single.set_title(_("without head {head}, by token").format(head=data.head), fontsize=9)
        _name_axis(self.single, data.tokens, "x")

    def describe(self, data: GridData) -> str:
        weights = data.weights[data.head]
        query = len(data.tokens) - 1
        key = int(weights[query].argmax())
        losses = ", ".join(f"{change:.0f}" for change in data.changes.mean(axis=1))
        return _(
            "Head {head}: '{tokens}' (token {query}) attends most to '{tokens_2}' (token "
            "{key}), {weights:.2f}. Without head 0, 1, 2, 3 the output changes by {losses} "
            "percent."
        ).format(
            head=data.head,
            tokens=data.tokens[query],
            query=query,
            tokens_2=data.tokens[key],
            key=key,
            weights=weights[query, key],
            losses=losses,
        )


def _colours(count: int, chosen: int) -> list[str]:
    return ["#e08214" if index == chosen else "#31688e" for index in range(count)]


def _name_axis(axes: Axes, tokens: tuple[str, ...], which: str) -> None:
    """Write the tokens along an axis; where no font has their glyphs, their numbers."""
    try:
        names, fonts = list(tokens), [label_font(token) for token in tokens]
    except LookupError:  # the sentence below the picture names the tokens in HTML, which finds a font
        names, fonts = [str(index) for index in range(len(tokens))], [None] * len(tokens)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(range(len(tokens)), names)
    for label, font in zip(axis.get_ticklabels(), fonts, strict=True):
        label.set_fontproperties(font or FontProperties())
        label.set_fontsize(10)


def head_grid(attention: Callable[..., nn.Module]) -> HeadGrid:
    """Draw the heads of your MultiHeadAttention, whose weights were written by hand, and leave one out."""
    return HeadGrid(attention)
