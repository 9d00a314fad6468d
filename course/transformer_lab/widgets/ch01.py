"""Chapter 01: a lookup as a matrix product, and the map of cosines between words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lab.language import _
from transformer_lab.widgets.base import Picture, choice

# ---- lookup -----------------------------------------------------------------------------------------

LOOKUP_WORDS = ("<pad>", "<s>", "</s>", "<unk>", "the", "cat", "eats", "fish")
POSITION_CODE = 0.7071  # root mean square of sines and cosines, chapter 02's code


@dataclass(frozen=True)
class LookupData:
    """What becomes of one id: hot [V] times table [V, d] = product [d]; row [d] is TokenEmbedding's."""

    token: int
    hot: np.ndarray
    table: np.ndarray
    product: np.ndarray
    row: np.ndarray
    before: float  # root mean square of the table
    after: float  # and of everything that TokenEmbedding makes of it


def lookup_data(
    embedding: Callable[..., nn.Module],
    one_hot_lookup: Callable[[Tensor, Tensor], Tensor],
    token: int,
    d_model: int,
    variance: str = "1",
) -> LookupData:
    """Look `token` up in both of the learner's ways, in one table of fixed random numbers.

    variance: "1", as nn.Embedding starts, or "1/d", as the paper does; the table has it exactly.
    """
    words = len(LOOKUP_WORDS)
    table = torch.randn(words, d_model, generator=torch.Generator().manual_seed(3))
    table /= table.square().mean().sqrt()
    table *= {"1": 1.0, "1/d": d_model**-0.5}[variance]
    module = embedding(words, d_model)
    with torch.no_grad():
        module.emb.weight.copy_(table)
        everything = module(torch.arange(words)[None])[0]  # [V, d]
        product = one_hot_lookup(torch.tensor([token]), table)[0]  # [d]
    hot = F.one_hot(torch.tensor(token), words)
    arrays = (_array(values) for values in (hot, table, product, everything[token]))
    return LookupData(token, *arrays, before=_rms(table), after=_rms(everything))


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().astype(float)


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


class Grid:
    """A small matrix as coloured cells with a number in each; it is made anew only when its shape changes."""

    def __init__(self, axes: Axes):
        self.axes, self.cells, self.image = axes, [], None
        self.frame = _frame(0, 0, 0)

    def show(
        self,
        values: np.ndarray,
        limit: float,
        digits: int = 1,
        columns: Any = (),
        rows: Any = (),
        frame: tuple[float, float, float] | None = None,
    ) -> None:
        """Show values [rows, columns], coloured from −limit to limit; frame: x, y and width to point at."""
        if self.image is None or self.image.get_array().shape != values.shape:
            self._make(values.shape, columns, rows)
        self.image.set_data(values)
        self.image.set_clim(-limit, limit)
        for (i, j), cell in self.cells:
            dark = abs(values[i, j]) > 0.6 * limit
            cell.set(text=_written(values[i, j], digits), color="white" if dark else "black")
        self.frame.set_visible(frame is not None)
        if frame:
            self.frame.set(xy=frame[:2], width=frame[2])

    def _make(self, shape: tuple[int, ...], columns: Any, rows: Any) -> None:
        self.axes.clear()
        self.frame = self.axes.add_patch(_frame(0, 0, 0))
        self.image = self.axes.imshow(np.zeros(shape), cmap="RdBu_r", aspect="equal")
        size = 8 if shape[1] <= 6 else 7.5
        self.cells = [
            ((i, j), self.axes.text(j, i, "", ha="center", va="center", fontsize=size))
            for i in range(shape[0])
            for j in range(shape[1])
        ]
        self.axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8)
        self.axes.set_yticks(range(len(rows)), rows, fontsize=8)
        self.axes.tick_params(length=0)
        for side in self.axes.spines.values():
            side.set_visible(False)


def _written(value: float, digits: int) -> str:
    """A number with a typographic minus, and no minus before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


class Lookup(Picture):
    """one-hot × table = row, and the row that TokenEmbedding gives, in numbers."""

    size = (9.6, 3.9)

    def __init__(
        self, embedding: Callable[..., nn.Module], one_hot_lookup: Callable[[Tensor, Tensor], Tensor]
    ):
        self.embedding, self.one_hot_lookup = embedding, one_hot_lookup
        super().__init__()

    def controls(self) -> dict[str, Any]:
        words = [(f"{number}: {word}", number) for number, word in enumerate(LOOKUP_WORDS)]
        starts = [("1 (nn.Embedding)", "1"), (_("1/d (the paper)"), "1/d")]
        return {
            "token": choice("token", words, 5, help=_("the word to look up")),
            "d_model": choice("d_model", [3, 4, 6], 4, help=_("the width of a row")),
            "variance": choice(
                _("variance of the table"), starts, help=_("how widely the starting numbers spread")
            ),
        }

    def compute(self, token: int, d_model: int, variance: str) -> LookupData:
        return lookup_data(self.embedding, self.one_hot_lookup, token, d_model, variance)

    def start(self, figure: Figure, data: LookupData) -> None:
        figure.set_layout_engine("none")
        places = (
            (0.01, 0.35, 0.3, 0.3),
            (0.425, 0.04, 0.25, 0.84),
            (0.74, 0.62, 0.25, 0.2),
            (0.74, 0.25, 0.25, 0.2),
        )
        self.axes = [figure.add_axes(place) for place in places]
        self.grids = [Grid(axes) for axes in self.axes]
        for x, sign in ((0.33, "×"), (0.71, "=")):
            figure.text(x, 0.5, sign, fontsize=16, ha="center", va="center")
        self.titles = [
            figure.text(x, y, "", fontsize=9.5, ha="center", va="bottom")
            for x, y in ((0.16, 0.62), (0.55, 0.9), (0.865, 0.82), (0.865, 0.45))
        ]
        self.factor = figure.text(0.865, 0.565, "", fontsize=10, ha="center", va="center", fontweight="bold")
        self.scale = figure.text(0.865, 0.13, "", fontsize=8.5, ha="center", va="center", color="0.25")

    def draw(self, data: LookupData) -> None:
        limit = max(2.5, float(np.abs(data.row).max()))
        hot, table, product, row = self.grids
        hot.show(data.hot[None], 1.5, 0, columns=LOOKUP_WORDS, frame=(data.token - 0.5, -0.5, 1))
        whole_row = (-0.5, data.token - 0.5, data.table.shape[1])
        table.show(data.table, limit, rows=LOOKUP_WORDS, frame=whole_row)
        product.show(data.product[None], limit)
        row.show(data.row[None], limit)
        self._write(data)

    def _write(self, data: LookupData) -> None:
        words, width = data.table.shape
        texts = (
            _("one-hot of {LOOKUP_WORDS!r}  [1, {words}]").format(
                LOOKUP_WORDS=LOOKUP_WORDS[data.token], words=words
            ),
            f"table  [{words}, {width}]",
            f"one_hot_lookup  [1, {width}]",
            f"TokenEmbedding  [1, {width}]",
        )
        for title, text in zip(self.titles, texts, strict=True):
            title.set_text(text)
        self.factor.set_text(f"↓ × {data.after / data.before:.2f}")
        self.scale.set_text(
            _(
                "root mean square of the table {before:.2f},\nof TokenEmbedding {after:.2f},\nof "
                "a position code {POSITION_CODE:.2f}"
            ).format(before=data.before, after=data.after, POSITION_CODE=POSITION_CODE)
        )

    def describe(self, data: LookupData) -> str:
        word, width = LOOKUP_WORDS[data.token], data.table.shape[1]
        same = np.allclose(data.product, data.table[data.token], atol=1e-4)
        numbers = ", ".join(f"{value:.2f}" for value in data.table[data.token])
        return _(
            "{word!r} is token {token}. Its one-hot vector times the table is {value} row "
            "{token}: {numbers}. TokenEmbedding takes the root mean square from {before:.2f} "
            "to {after:.2f}, a factor of {before_2:.2f} (√{width} is {width_2:.2f}); a "
            "position code has {POSITION_CODE:.2f}."
        ).format(
            word=word,
            token=data.token,
            value="exactly" if same else "not",
            numbers=numbers,
            before=data.before,
            after=data.after,
            before_2=data.after / data.before,
            width=width,
            width_2=width**0.5,
            POSITION_CODE=POSITION_CODE,
        )


def _frame(x: float, y: float, width: float) -> Rectangle:
    return Rectangle(
        (x, y), width, 1, fill=False, edgecolor="#e08214", linewidth=2.5, clip_on=False, zorder=5
    )


def lookup(embedding: Callable[..., nn.Module], one_hot_lookup: Callable[[Tensor, Tensor], Tensor]) -> Lookup:
    """Draw one token's way through your one_hot_lookup and your TokenEmbedding."""
    return Lookup(embedding, one_hot_lookup)


# ---- cosine map -------------------------------------------------------------------------------------

TEXT = """
cat eats fish, dog eats meat, girl eats bread, boy eats rice, cat drinks milk, dog drinks water,
girl drinks water, boy drinks milk, cat sees dog, dog sees cat, girl sees boy, boy sees girl, cat sees girl,
girl reads book, boy reads letter, girl writes letter, boy writes book, boy eats fish, girl eats meat,
dog eats bread, girl reads letter, boy writes letter
"""
SENTENCES = [sentence.split() for sentence in TEXT.split(",")]
NOUNS = ("cat", "dog", "girl", "boy", "fish", "meat", "bread", "rice", "milk", "water", "book", "letter")
VERBS = ("eats", "drinks", "sees", "reads", "writes")
MAP_WORDS = ("<pad>", *NOUNS[:4], *VERBS, *NOUNS[4:])


def neighbour_table(d_model: int) -> np.ndarray:
    """Return a table [V, d] in which words with the same neighbours in TEXT get similar rows.

    Counts of the words one and two places away, as logarithms of how much more often than by chance
    (positive pointwise mutual information), cut down to d numbers by a singular value decomposition.
    """
    counts = _neighbour_counts()
    often = counts.sum(axis=1, keepdims=True)
    chance = often * counts.sum(axis=0) / counts.sum()
    surprise = np.log(np.divide(counts, chance, out=np.ones_like(counts), where=counts > 0)).clip(0)
    vectors, strengths, _ = np.linalg.svd(surprise)
    return vectors[:, :d_model] * strengths[:d_model] * (often > 0)


def _neighbour_counts() -> np.ndarray:
    """Count [V, 3V]: the word before, the word after, and the word two places away."""
    number, size = {word: i for i, word in enumerate(MAP_WORDS)}, len(MAP_WORDS)
    counts = np.zeros((size, 3 * size))
    for sentence in SENTENCES:
        ids = [number[word] for word in sentence]
        for left, right in pairwise(ids):
            counts[right, left] += 1
            counts[left, size + right] += 1
        for left, right in zip(ids, ids[2:], strict=False):
            counts[left, 2 * size + right] += 1
            counts[right, 2 * size + left] += 1
    return counts


def word_table(kind: str, d_model: int) -> Tensor:
    """Return a table [V, d] of one kind: "one-hot" (d = V), "random", or "neighbours"."""
    size = len(MAP_WORDS)
    if kind == "one-hot":
        return torch.eye(size)
    if kind == "neighbours":
        return torch.tensor(neighbour_table(d_model), dtype=torch.float32)
    table = torch.randn(size, d_model, generator=torch.Generator().manual_seed(0))
    table[0] = 0.0  # <pad> means nothing, and often gets a row of zeros
    return table


@dataclass(frozen=True)
class CosineData:
    """The learner's similarities [V, V], and the word whose row is looked at."""

    similarity: np.ndarray
    word: int
    kind: str


def cosine_data(cosine: Callable[[Tensor], Tensor], kind: str, d_model: int, word: int) -> CosineData:
    """Return cosine(table) for a table of one kind."""
    return CosineData(_array(cosine(word_table(kind, d_model))), word, kind)


class CosineMap(Picture):
    """All similarities as a map, and one word's as bars."""

    size = (9.6, 4.6)

    def __init__(self, cosine: Callable[[Tensor], Tensor]):
        self.cosine = cosine
        super().__init__()

    def controls(self) -> dict[str, Any]:
        kinds = [
            (_("counted from neighbours"), "neighbours"),
            (_("random start"), "random"),
            ("one-hot", "one-hot"),
        ]
        words = [(word, number) for number, word in enumerate(MAP_WORDS)]
        return {
            "kind": choice("table", kinds, help=_("where the rows of the table come from")),
            "d_model": choice("d_model", [2, 4, 6], 6, help=_("the width of a row (one-hot vectors have V)")),
            "word": choice("word", words, 1, help=_("the word whose similarities are shown on the right")),
        }

    def compute(self, kind: str, d_model: int, word: int) -> CosineData:
        return cosine_data(self.cosine, kind, d_model, word)

    def start(self, figure: Figure, data: CosineData) -> None:
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        size = len(MAP_WORDS)
        self.image = left.imshow(data.similarity, cmap="RdBu_r", vmin=-1, vmax=1)
        left.set_xticks(range(size), MAP_WORDS, rotation=90, fontsize=8)
        left.set_yticks(range(size), MAP_WORDS, fontsize=8)
        figure.colorbar(self.image, ax=left, label=_("cosine"), shrink=0.8)
        self.frame = left.add_patch(_frame(-0.5, data.word - 0.5, size))
        self.bars = right.barh(range(size), np.zeros(size), color="#31688e")
        right.set_yticks(range(size), MAP_WORDS, fontsize=8)
        right.set(xlim=(-1.05, 1.05), ylim=(size - 0.5, -0.5), xlabel=_("cosine"))
        right.axvline(0, color="0.5", linewidth=0.8)
        self.title = right.set_title(" ", fontsize=10)

    def draw(self, data: CosineData) -> None:
        self.image.set_data(data.similarity)
        self.frame.set_y(data.word - 0.5)
        for number, (bar, width) in enumerate(zip(self.bars, data.similarity[data.word], strict=True)):
            bar.set_width(width)
            bar.set_color("#e08214" if number == data.word else "#31688e")
        self.title.set_text(_("{MAP_WORDS!r} and every word").format(MAP_WORDS=MAP_WORDS[data.word]))

    def describe(self, data: CosineData) -> str:
        row = data.similarity[data.word].copy()
        row[data.word] = -np.inf
        nearest = np.argsort(-row, kind="stable")[:3]
        named = ", ".join(f"{MAP_WORDS[number]!r} {row[number]:.2f}" for number in nearest)
        others = data.similarity[~np.eye(len(MAP_WORDS), dtype=bool)]
        if not np.ptp(others):
            return _("Table: {kind}. Between any two different words the similarity is {others:.2f}.").format(
                kind=data.kind, others=others[0]
            )
        return _(
            "Table: {kind}. Nearest to {MAP_WORDS!r}: {named}. Over all pairs of different "
            "words the values run from {others:.2f} to {others_2:.2f}."
        ).format(
            kind=data.kind,
            MAP_WORDS=MAP_WORDS[data.word],
            named=named,
            others=others.min(),
            others_2=others.max(),
        )


def cosine_map(cosine: Callable[[Tensor], Tensor]) -> CosineMap:
    """Draw your cosine_similarity of words under three kinds of table."""
    return CosineMap(cosine)
