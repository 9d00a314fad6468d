"""Chapter 08: sampling bars, and the tree that a beam search explores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from transformer_lab.language import _
from transformer_lab.widgets.base import Picture, float_slider, int_slider

# ---- sampling bars ----------------------------------------------------------------------------------

NEXT_WORDS = ("mat", "floor", "sofa", "bed", "roof", "table", "moon", "car", "idea", "of")
LOGITS = (3.0, 2.5, 2.2, 1.8, 1.2, 0.9, 0.0, -0.5, -1.5, -2.5)  # after "the cat sat on the"


@dataclass(frozen=True)
class SamplingData:
    """model and filtered [V]: the softmax of the logits, and what the learner's function gives."""

    model: np.ndarray
    filtered: np.ndarray
    options: str

    @property
    def kept(self) -> int:
        return int(np.count_nonzero(self.filtered))


def sampling_data(
    sampling_probs: Callable[..., torch.Tensor], temperature: float, top_k: int | None, top_p: float | None
) -> SamplingData:
    """Return the model's probabilities of NEXT_WORDS, and those that `sampling_probs` makes of them."""
    logits = torch.tensor(LOGITS)
    filtered = sampling_probs(logits.clone(), temperature=temperature, top_k=top_k, top_p=top_p)
    said = f"T = {temperature:.1f}, k = {'off' if top_k is None else top_k}, "
    said += f"p = {'off' if top_p is None else f'{top_p:.2f}'}"
    return SamplingData(logits.softmax(-1).numpy(), filtered.detach().cpu().numpy(), said)


class SamplingBars(Picture):
    """Grey bars: the model. Blue bars: after temperature, k and p."""

    size = (8.0, 3.4)

    def __init__(self, sampling_probs: Callable[..., torch.Tensor]):
        self.sampling_probs = sampling_probs
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "temperature": float_slider("temperature", 1.0, 0.0, 2.0, 0.1, help=_("0 is argmax")),
            "top_k": int_slider("k (0: off)", 6, 0, len(LOGITS), help=_("keep the k likeliest")),
            "top_p": float_slider("p (1: off)", 0.8, 0.05, 1.0, 0.05, help=_("keep a mass of at least p")),
        }

    def compute(self, temperature: float, top_k: int, top_p: float) -> SamplingData:
        return sampling_data(self.sampling_probs, temperature, top_k or None, None if top_p >= 1 else top_p)

    def start(self, figure: Figure, data: SamplingData) -> None:
        axes, places = figure.subplots(), np.arange(len(LOGITS))
        axes.bar(places - 0.2, data.model, 0.4, color="0.75", label=_("model (T = 1)"))
        self.bars = axes.bar(places + 0.2, data.model, 0.4, color="#31688e", label=_("after T, k, p"))
        self.numbers = [axes.text(x + 0.2, 0, "", ha="center", va="bottom", fontsize=8) for x in places]
        axes.set(ylim=(0, 1.08), ylabel=_("probability"), xlabel=_("the cat sat on the …"))
        axes.set_xticks(places, NEXT_WORDS)
        axes.legend(loc="upper right", frameon=False)
        self.title = axes.set_title(" ", fontsize=10)

    def draw(self, data: SamplingData) -> None:
        for bar, number, height in zip(self.bars, self.numbers, data.filtered, strict=True):
            bar.set_height(height)
            number.set_y(height + 0.01)
            number.set_text(f"{height:.2f}" if height else "")
        self.title.set_text(
            _("{options}: {kept} of {LOGITS_count} words stay").format(
                options=data.options, kept=data.kept, LOGITS_count=len(LOGITS)
            )
        )

    def describe(self, data: SamplingData) -> str:
        best = int(data.filtered.argmax())
        words = (
            _("1 of 10 words stays")
            if data.kept == 1
            else _("{kept} of 10 words stay").format(kept=data.kept)
        )
        return _(
            "{options}: {words}. '{NEXT_WORDS}' has {filtered:.2f}; in the model it has {model:.2f}."
        ).format(
            options=data.options,
            words=words,
            NEXT_WORDS=NEXT_WORDS[best],
            filtered=data.filtered[best],
            model=data.model[best],
        )


def sampling_bars(sampling_probs: Callable[..., torch.Tensor]) -> SamplingBars:
    """Draw what your sampling_probs makes of a model's next-word probabilities."""
    return SamplingBars(sampling_probs)


# ---- a language model that fits into a table --------------------------------------------------------

WORDS = ("<pad>", "<s>", "</s>", "a", "the", "cat", "dog", "sleep", "sleeps")
BOS, EOS = 1, 2
MAX_LEN = 6
_OPTIONS: dict[str, dict[str, float]] = {
    "": {"a": 0.45, "the": 0.35, "sleep": 0.19},
    "a": {"cat": 0.40, "dog": 0.35, "</s>": 0.10},
    "the": {"cat": 0.80, "dog": 0.10, "</s>": 0.04},
    "sleep": {"</s>": 0.97},
    "a cat": {"sleeps": 0.60, "</s>": 0.30},
    "a dog": {"sleeps": 0.60, "</s>": 0.30},
    "the cat": {"sleeps": 0.75, "</s>": 0.20},
    "the dog": {"sleeps": 0.60, "</s>": 0.30},
    "a cat sleeps": {"</s>": 0.80},
    "a dog sleeps": {"</s>": 0.80},
    "the cat sleeps": {"</s>": 0.85},
    "the dog sleeps": {"</s>": 0.85},
}
_OTHERWISE = {"</s>": 0.90}


def toy_log_probs(prefix: list[int]) -> torch.Tensor:
    """Log-probabilities [V] of the next word after `prefix`, a list of ids that begins with BOS.

    What the table leaves over is shared evenly by all other tokens.
    """
    said = " ".join(WORDS[token] for token in prefix[1:])
    options = _OPTIONS.get(said, _OTHERWISE)
    rest = (1 - sum(options.values())) / (len(WORDS) - len(options))
    return torch.tensor([options.get(word, rest) for word in WORDS]).log()


# ---- the decode tree --------------------------------------------------------------------------------

FAINT = 0.03  # a beginning less likely than this is not drawn, unless it is on a path that was chosen


@dataclass(frozen=True)
class Node:
    """A beginning (words without <s>), its probability, and whether it survived its step of the search."""

    words: tuple[str, ...]
    probability: float
    kept: bool


@dataclass(frozen=True)
class TreeData:
    """What the learner's search looked at and chose, beside the greedy path."""

    nodes: tuple[Node, ...]
    result: tuple[str, ...]
    greedy: tuple[str, ...]
    asked: int
    options: str


def probability(words: tuple[str, ...]) -> float:
    """Return the toy model's probability of a beginning."""
    ids = [BOS, *(WORDS.index(word) for word in words)]
    return float(np.exp(sum(float(toy_log_probs(ids[:i])[ids[i]]) for i in range(1, len(ids)))))


def tree_data(beam_search: Callable[..., list[int]], width: int, length_penalty: float) -> TreeData:
    """Run the learner's search on the toy model and note every prefix that it asks for."""
    asked: list[tuple[str, ...]] = []

    def watched(prefix: list[int]) -> torch.Tensor:
        asked.append(tuple(WORDS[token] for token in list(prefix)[1:]))
        return toy_log_probs(prefix)

    result = tuple(WORDS[token] for token in beam_search(watched, BOS, EOS, width, MAX_LEN, length_penalty))
    likeliest = _likeliest()
    grown = {(*words, word) for words in asked for word in WORDS}
    drawn = {words for words in grown if probability(words) >= FAINT}
    drawn |= {path[:i] for path in (result, likeliest) for i in range(1, len(path) + 1)}
    kept = {*asked, *_ended(asked, grown, width)}
    nodes = tuple(Node(words, probability(words), words in kept) for words in sorted(drawn))
    said = _("width {width}, length penalty {length_penalty:.1f}").format(
        width=width, length_penalty=length_penalty
    )
    return TreeData(nodes, result, likeliest, len(asked), said)


def _ended(asked: list, grown: set, width: int) -> list[tuple[str, ...]]:
    """Return the finished beginnings that survived: the places of a step that open ones did not take."""
    ended = []
    for length in range(1, MAX_LEN + 1):
        free = width - sum(len(words) == length for words in asked)
        finished = [words for words in grown if len(words) == length and words[-1] == "</s>"]
        ended += sorted(finished, key=probability, reverse=True)[: max(free, 0)]
    return ended


def _likeliest() -> tuple[str, ...]:
    prefix = [BOS]
    while prefix[-1] != EOS and len(prefix) <= MAX_LEN:
        prefix.append(int(toy_log_probs(prefix).argmax()))
    return tuple(WORDS[token] for token in prefix[1:])


def places(nodes: tuple[Node, ...]) -> dict[tuple[str, ...], float]:
    """Return a height for every beginning: leaves one below the other, parents amid their children."""
    words = {node.words for node in nodes} | {()}
    heights: dict[tuple[str, ...], float] = {}
    leaves = iter(range(len(words)))

    def place(parent: tuple[str, ...]) -> float:
        children = sorted((w for w in words if w[:-1] == parent and w), key=lambda w: WORDS.index(w[-1]))
        below = [place(child) for child in children]
        heights[parent] = sum(below) / len(below) if below else float(next(leaves))
        return heights[parent]

    place(())
    return heights


class DecodeTree(Picture):
    """Beginnings from left to right; orange is what the search returned, dashed what greedy writes."""

    size = (9.0, 4.2)

    def __init__(self, beam_search: Callable[..., list[int]]):
        self.beam_search = beam_search
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "width": int_slider("width", 2, 1, 5, help=_("how many hypotheses survive each step")),
            "length_penalty": float_slider(
                _("length penalty"), 0.0, 0.0, 1.5, 0.1, help=_("the exponent of length")
            ),
        }

    def compute(self, width: int, length_penalty: float) -> TreeData:
        return tree_data(self.beam_search, width, length_penalty)

    def start(self, figure: Figure, data: TreeData) -> None:
        self.axes = figure.subplots()
        self.axes.set_title(" ", fontsize=10)

    def draw(self, data: TreeData) -> None:
        axes, heights = self.axes, places(data.nodes)
        axes.clear()
        axes.set_axis_off()
        axes.set(xlim=(-0.3, 4.9), ylim=(max(heights.values()) + 0.7, -0.7))
        axes.set_title(
            _("{options}: {asked} questions to the model").format(options=data.options, asked=data.asked),
            fontsize=10,
        )
        self._word(0, heights[()], "<s>", "black", bold=True)
        for node in data.nodes:
            self._branch(node, heights, data)

    def _branch(self, node: Node, heights: dict, data: TreeData) -> None:
        chosen = data.result[: len(node.words)] == node.words
        greedy = data.greedy[: len(node.words)] == node.words
        gone = not (node.kept or chosen)
        x, y = len(node.words), heights[node.words]
        colour = "#e08214" if chosen else "0.72" if gone else "#31688e"
        start, ends = heights[node.words[:-1]], [-0.1 if x == 1 else x - 0.62, x - 0.3]
        self.axes.plot(ends, [start, y], color=colour, linewidth=3 if chosen else 1.2)
        if greedy:
            self.axes.plot(ends, [start + 0.1, y + 0.1], "--", color="black", linewidth=1)
        self._word(x, y, f"{node.words[-1]} {node.probability:.2f}", colour if gone else "black", chosen)

    def _word(self, x: float, y: float, text: str, colour: str, bold: bool = False) -> None:
        self.axes.text(
            x - 0.28,
            y,
            text,
            va="center",
            ha="left",
            fontsize=9,
            color=colour,
            fontweight="bold" if bold else "normal",
        )

    def describe(self, data: TreeData) -> str:
        return _(
            "With {options}, after {asked} questions to the model, your search returned "
            "'{result}' (probability {probability:.3f}). Greedy writes '{greedy}' "
            "({probability_2:.3f})."
        ).format(
            options=data.options,
            asked=data.asked,
            result=" ".join(data.result),
            probability=probability(data.result),
            greedy=" ".join(data.greedy),
            probability_2=probability(data.greedy),
        )


def decode_tree(beam_search: Callable[..., list[int]]) -> DecodeTree:
    """Draw the beginnings that your beam_search keeps, and the sentence it returns."""
    return DecodeTree(beam_search)
