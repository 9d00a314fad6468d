"""What each part is for: take it away, train again with the same budget, and look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from ..parts import Parts, padding_mask
from .data import Corpus
from .decoding import exact_match
from .training import Settings, Trainer


class NoPositions(nn.Module):
    """Instead of PositionalEncoding: every order of the words looks the same."""

    def __init__(self, d_model: int, max_len: int):
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class NoResidual(nn.Module):
    """Instead of PostNorm or PreNorm: the sublayer replaces its input, nothing is added."""

    def __init__(self, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(sublayer(x))


def no_causal_mask(ids: Tensor) -> Tensor:
    """Instead of `target_mask`: every target position sees the whole sentence, its own answer included."""
    return padding_mask(ids)


@dataclass(frozen=True)
class Variant:
    name: str
    parts: dict
    h: int | None = None  # None: as in the full model


VARIANTS = (
    Variant("full model", {}),
    Variant("no positions", {"PositionalEncoding": NoPositions}),
    Variant("no causal mask", {"target_mask": no_causal_mask}),
    Variant("one head", {}, h=1),
    Variant("no residual", {"PostNorm": NoResidual, "PreNorm": NoResidual}),
)


@dataclass(frozen=True)
class Row:
    """What became of one variant: loss in nats a token at the end of training, share of exact sentences."""

    name: str
    loss: float
    heldout: float
    seconds: float


def ablation(
    corpus: Corpus,
    settings: Settings,
    parts: Parts | None = None,
    sentences: int = 300,
    progress: bool = True,
) -> Iterator[Row]:
    """Train every variant from the same start, with the same steps and the same batches; yields row by row.

    The finished `Transformer` holds the parts, so that one can be exchanged. A layer somebody else wrote
    brings its own Add & Norm: "no residual" then uses the finished layers.
    """
    for variant in VARIANTS:
        fixed = {"Transformer"}
        if "PostNorm" in variant.parts:
            fixed |= {"EncoderLayer", "Encoder", "DecoderLayer", "Decoder"}
        used = {name: part for name, part in (parts or {}).items() if name not in fixed} | variant.parts
        trainer = Trainer(corpus, replace(settings, h=variant.h or settings.h), used).train(progress=progress)
        last = trainer.losses[-20:]
        score = exact_match(trainer.model, corpus, corpus.heldout[:sentences])
        yield Row(variant.name, sum(last) / len(last), score.exact, trainer.seconds)


def table(rows: list[Row]) -> str:
    """The rows as text, one line each."""
    head = f"{'':16}{'loss':>9}{'held-out exact':>16}{'seconds':>9}"
    return "\n".join([head, *(f"{r.name:16}{r.loss:9.3f}{r.heldout:16.1%}{r.seconds:9.0f}" for r in rows)])
