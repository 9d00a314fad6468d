"""The whole machine on one page, with one block lit: the first picture of every chapter."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from transformer_lab.language import N_, _
from transformer_lab.widgets.base import Picture

BLOCKS: dict[str, str] = {
    "embedding": N_("turns every token of a sentence into a row of d numbers."),
    "positional encoding": N_("adds to every row a code that says where in the sentence its token stands."),
    "attention": N_("lets a token collect from all tokens, as much from each as its weight says."),
    "multi-head attention": N_("runs h attentions side by side, each on its own d / h features."),
    "add & norm": N_("adds a block's input to its output and brings every token back to one scale."),
    "feed-forward": N_("works on each token by itself: widen to d_ff, bend, narrow back to d."),
    "encoder": N_("reads the whole source sentence, N layers deep, and hands over its memory."),
    "decoder": N_("writes the target sentence, N layers deep, looking only at what it has written so far."),
    "cross-attention": N_(
        "lets the decoder ask the encoder's memory: Q from the target, K, V from the source."
    ),
    "masks": N_("say who may attend to whom: nobody to padding, no target token to a later one."),
    "output": N_("turns every row of the decoder into a probability for each word of the vocabulary."),
    "translation": N_("is the whole machine at work, from a source sentence to a target sentence."),
}

PALE = {
    "attention": N_("#dfe9f5"),
    "core": N_("#f4f8fd"),
    "norm": N_("#eef1e4"),
    "ffn": N_("#e3f0ea"),
    "token": N_("#ffffff"),
    "embed": N_("#f3e6ef"),
    "output": N_("#ebe6f5"),
    "mask": N_("#ffffff"),
    "frame": N_("#fafafa"),
}
LIT, LIT_FRAME, LIT_EDGE = "#ffb347", "#fff0d9", "#a64b00"
EDGE, LINE, INK = "#8c96a0", "#6b7680", "#22282e"


@dataclass(frozen=True)
class Part:
    """A box of the map: where it stands (lower left corner, width, height) and the block it belongs to."""

    text: str
    block: str
    look: str
    x: float
    y: float
    w: float
    h: float
    size: float = 9.0
    place: str = "middle"  # where the text stands: "middle" or "top" (a box that holds another)


def _heads(text: str, x: float, y: float, block: str = "multi-head attention") -> list[Part]:
    """A multi-head attention and, inside it, the attention that every head computes."""
    core = Part("softmax(QKᵀ/√dₖ) V", "attention", "core", x + 3, y + 0.7, 20, 2.5, 8.0)
    return [Part(text, block, "attention", x, y, 26, 6.2, place="top"), core]


def _norm(x: float, y: float) -> Part:
    return Part("Add & Norm", "add & norm", "norm", x, y, 26, 2.5)


def _ffn(x: float, y: float) -> Part:
    return Part("Feed-forward", "feed-forward", "ffn", x, y, 26, 3.2)


def _inputs(x: float, tokens: str) -> list[Part]:
    return [
        Part(tokens, "translation", "token", x, 1.0, 26, 2.9),
        Part("Embedding × √d", "embedding", "embed", x, 5.9, 26, 3.0),
        Part("+ Positional encoding", "positional encoding", "embed", x, 10.6, 26, 3.0),
    ]


def _mask(text: str, x: float, y: float) -> Part:
    return Part(text, "masks", "mask", x, y, 10.5, 3.6, 7.5)


ENC, DEC = 15.0, 57.0  # left edges of the encoder's and the decoder's boxes
PARTS: tuple[Part, ...] = (
    Part("Encoder\nN ×", "encoder", "frame", ENC - 2.5, 16.2, 31, 20.8, place="left"),
    Part("Decoder\nN ×", "decoder", "frame", DEC - 2.5, 16.2, 31, 33.0, place="left"),
    *_inputs(ENC, "source tokens"),
    *_heads("Multi-head self-attention", ENC, 18.4),
    _norm(ENC, 25.3),
    _ffn(ENC, 29.6),
    _norm(ENC, 33.5),
    *_inputs(DEC, "target tokens, shifted right"),
    *_heads("Masked multi-head self-attention", DEC, 18.4),
    _norm(DEC, 25.3),
    *_heads("Multi-head cross-attention", DEC, 30.2, "cross-attention"),
    _norm(DEC, 37.1),
    _ffn(DEC, 41.4),
    _norm(DEC, 45.3),
    Part("Linear: d → V, then softmax", "output", "output", DEC, 51.4, 26, 3.2),
    Part("next token", "translation", "token", DEC, 56.6, 26, 2.9),
    _mask("padding\nmask", ENC - 13.8, 19.7),
    _mask("causal and\npadding mask", DEC + 30, 19.7),
    _mask("padding\nmask", DEC + 30, 31.5),
)


def lit_parts(block: str | None) -> list[Part]:
    """Return the boxes that belong to `block` (none for None).

    Raises ValueError, which lists the blocks, when there is no such block.
    """
    if block is not None and block not in BLOCKS:
        known = ", ".join(BLOCKS)
        raise ValueError(
            _("The map has no block {block!r}. It has: {known}.").format(block=block, known=known)
        )
    also = {"multi-head attention": {"cross-attention"}}.get(block or "", set())
    return [part for part in PARTS if part.block == block or part.block in also]


class Architecture(Picture):
    """The map. It has no controls: only the lit block differs from chapter to chapter."""

    size = (9.6, 6.2)

    def __init__(self, block: str | None = None):
        self.lit = lit_parts(block)
        self.block = block
        super().__init__()

    def compute(self) -> list[Part]:
        return self.lit

    def start(self, figure: Figure, data: list[Part]) -> None:
        axes = figure.add_subplot()
        axes.set(xlim=(0, 98), ylim=(0, 60.5))
        axes.axis("off")
        for part in PARTS:
            _box(axes, part, part in data)
        _arrows(axes)
        self._title(axes)

    def draw(self, data: list[Part]) -> None:
        """Nothing moves on the map."""

    def _title(self, axes: Axes) -> None:
        head = _(self.block).capitalize() if self.block else _("The Transformer")
        axes.text(1.2, 57.8, head, fontsize=15, fontweight="bold", color=LIT_EDGE, va="center")
        words = textwrap.fill(_sentence(self.block), 56)
        axes.text(1.2, 55.2, words, fontsize=9.5, color=INK, va="top", linespacing=1.35)

    def describe(self, data: list[Part]) -> str:
        said = _("Lit: {block}, which {does}") if self.block else ""
        lit = said.format(block=_(self.block), does=_sentence(self.block)) if self.block else ""
        return " ".join(filter(None, (_("Map of the Transformer."), lit, self._whole())))

    @staticmethod
    def _whole() -> str:
        return _(
            "The encoder (N layers of self-attention and feed-forward) turns source tokens into a memory; "
            "the decoder (N layers of masked self-attention, cross-attention to the memory, feed-forward) "
            "turns target tokens into the next token. Add & Norm follows every block."
        )


def _sentence(block: str | None) -> str:
    if block is None:
        return _(
            "reads a source sentence on the left and writes a target sentence, token by token, on the right."
        )
    return _(BLOCKS[block])


def _box(axes: Axes, part: Part, lit: bool) -> None:
    frame = part.look == "frame"
    face = (LIT_FRAME if frame else LIT) if lit else PALE[part.look]
    patch = FancyBboxPatch(
        (part.x, part.y),
        part.w,
        part.h,
        boxstyle=f"round,pad=0,rounding_size={1.4 if frame else 0.7}",
        facecolor=face,
        edgecolor=LIT_EDGE if lit else EDGE,
        linewidth=2.2 if lit else 0.9,
        linestyle=(0, (3, 2)) if part.look == "mask" and not lit else "-",
        zorder=1 if frame else 3 if part.look == "core" else 2,
    )
    axes.add_patch(patch)
    _write(axes, part, lit)


def _write(axes: Axes, part: Part, lit: bool) -> None:
    places = {
        "middle": (part.x + part.w / 2, part.y + part.h / 2, "center", "center"),
        "top": (part.x + part.w / 2, part.y + part.h - 1.5, "center", "center"),
        "left": (part.x - 1.0, part.y + part.h - 0.6, "right", "top"),
    }
    x, y, ha, va = places[part.place]
    weight = "bold" if lit or part.look == "frame" else "normal"
    axes.text(x, y, _(part.text), ha=ha, va=va, fontsize=part.size, fontweight=weight, color=INK, zorder=4)


def _arrows(axes: Axes) -> None:
    enc, dec = ENC + 13, DEC + 13
    for x, stops in (
        (enc, [(3.9, 5.9), (8.9, 10.6), (13.6, 18.4), (24.6, 25.3), (27.8, 29.6), (32.8, 33.5)]),
        (dec, [(3.9, 5.9), (8.9, 10.6), (13.6, 18.4), (24.6, 25.3), (27.8, 30.2), (36.4, 37.1),
               (39.6, 41.4), (44.6, 45.3), (47.8, 51.4), (54.6, 56.6)]),
    ):  # fmt: skip
        for low, high in stops:
            _arrow(axes, [(x, low), (x, high)])
    for x, turns in ((ENC, [(17.3, 26.5), (28.6, 34.7)]), (DEC, [(17.3, 26.5), (28.9, 38.3), (40.3, 46.5)])):
        for low, high in turns:  # the residual path, around each block
            _arrow(axes, [(x + 13, low), (x - 1.3, low), (x - 1.3, high), (x, high)])
    _arrow(axes, [(enc, 36.0), (enc, 39.8), (49.5, 39.8), (49.5, 33.3), (DEC, 33.3)], width=1.6)
    axes.text(enc + 1.0, 40.6, "memory  [B, n, d]", fontsize=8.5, color=INK)
    axes.text(51.6, 34.0, "K, V", fontsize=8, color=INK, ha="center")
    axes.text(dec + 0.7, 28.9, "Q", fontsize=8, color=INK, va="center")
    for x, y in ((ENC - 3.3, 21.5), (DEC + 30, 21.5), (DEC + 30, 33.3)):
        end = ENC if x < ENC else DEC + 26
        axes.plot([x, end], [y, y], color=LINE, linewidth=0.9, linestyle=(0, (3, 2)), zorder=2)
    for x, length in ((enc, "n"), (dec, "m")):
        axes.text(x + 0.7, 14.9, f"[B, {length}, d]", fontsize=7.5, color=LINE, va="center")
    axes.text(dec + 0.7, 50.2, "[B, m, d]", fontsize=7.5, color=LINE, va="center")


def _arrow(axes: Axes, points: list[tuple[float, float]], width: float = 1.0) -> None:
    """A line through `points` with an arrow head at its end."""
    xs, ys = zip(*points, strict=True)
    axes.plot(xs[:-1], ys[:-1], color=LINE, linewidth=width, zorder=2, solid_joinstyle="round")
    style = {"arrowstyle": "-|>", "color": LINE, "lw": width, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
    axes.annotate("", xy=points[-1], xytext=points[-2], arrowprops=style, zorder=2)


def architecture(block: str | None = None) -> Architecture:
    """Show the whole machine with `block` lit; without a block, the machine alone.

    Raises ValueError, which lists the blocks, when there is no such block.
    """
    return Architecture(block)
