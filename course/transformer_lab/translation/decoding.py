"""Translating with a trained model, and counting how often it is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_lab.language import _

from ..parts import BOS, EOS, PAD, beam_search
from .data import Corpus, encode_sentences
from .grammar import Sentence
from .text import UnknownWordsError, join, tokenize

LONGEST = 32  # tokens, `</s>` included; the grammar stays below


@torch.no_grad()
def greedy_batch(model: nn.Module, src: Tensor, max_len: int = LONGEST) -> list[list[int]]:
    """Greedy translations of `src [B, n]`, all sentences side by side, without `</s>`.

    Sentences that reached `</s>` leave the batch, so the last words of the longest cost next to nothing.
    """
    model.eval()
    found: list[list[int]] = [[] for _ in range(src.size(0))]
    rows, memory = torch.arange(src.size(0)), model.encode(src)
    prefix = torch.full((src.size(0), 1), BOS, device=src.device)
    for _step in range(max_len):
        word = model.decode(prefix, memory, src)[:, -1].argmax(-1)
        going = word != EOS
        for row, token in zip(rows[going.cpu()].tolist(), word[going].tolist(), strict=True):
            found[row].append(token)
        if not going.any():
            break
        rows, src, memory = rows[going.cpu()], src[going], memory[going]
        prefix = torch.cat([prefix[going], word[going, None]], dim=1)
    return found


@dataclass(frozen=True)
class Score:
    """How many of `total` sentences came out word for word; `wrong` holds (sentence, what came out)."""

    total: int
    wrong: tuple[tuple[Sentence, tuple[str, ...]], ...]

    @property
    def exact(self) -> float:
        return 1 - len(self.wrong) / self.total

    def __str__(self) -> str:
        return _("{wrong} of {total} exact ({exact:.1%})").format(
            wrong=self.total - len(self.wrong), total=self.total, exact=self.exact
        )


def exact_match(
    model: nn.Module,
    corpus: Corpus,
    sentences: Sequence[Sentence],
    batch: int = 250,
    translate: Callable[[nn.Module, Tensor], list[list[int]]] = greedy_batch,
) -> Score:
    """Translate, sentences of like length together, and compare with the one right translation.

    translate: (model, src [B, n]) -> B lists of word ids, without <s> and </s>.
    """
    device = next(model.parameters()).device
    words = list(corpus.tgt_vocab)
    ordered = sorted(sentences, key=lambda s: len(getattr(s, corpus.source)))
    wrong = []
    for start in range(0, len(ordered), batch):
        some = ordered[start : start + batch]
        src, _ = corpus.encode(some)
        for sentence, ids in zip(some, translate(model, src.to(device)), strict=True):
            said = tuple(words[i] for i in ids)
            if said != getattr(sentence, corpus.target):
                wrong.append((sentence, said))
    return Score(len(ordered), tuple(wrong))


@dataclass(frozen=True)
class Alignment:
    """Who looked at whom: `weights [layers, h, m, n]`, a row for each target token and for `</s>`."""

    source: list[str]
    target: list[str]
    weights: Tensor


class Translator:
    """Sentences as people type them, in and out."""

    def __init__(self, model: nn.Module, corpus: Corpus):
        self.model, self.corpus = model, corpus
        self.words = list(corpus.tgt_vocab)
        self.device = next(model.parameters()).device

    def _ids(self, words: Sequence[str]) -> Tensor:
        return encode_sentences([words], self.corpus.src_vocab).to(self.device)

    def translate(self, text: str) -> str:
        """The translation; `UnknownWordsError` when a word was never in training."""
        return join(
            self.words[i]
            for i in greedy_batch(self.model, self._ids(tokenize(text, self.corpus.src_vocab)))[0]
        )

    def reply(self, text: str) -> str:
        """The translation, or a sentence that says what is wrong with the input."""
        try:
            return self.translate(text)
        except ValueError as problem:
            return str(problem)

    @torch.no_grad()
    def next_log_probs(self, words: Sequence[str]) -> Callable[[list[int]], Tensor]:
        """The function that `greedy` and `beam_search` ask: a prefix beginning with `<s>` to `[V]`."""
        self.model.eval()
        src = self._ids(words)
        memory = self.model.encode(src)

        @torch.no_grad()
        def after(prefix: list[int]) -> Tensor:
            return self.model.decode(torch.tensor([prefix], device=self.device), memory, src)[
                0, -1
            ].log_softmax(-1)

        return after

    def beam(
        self, words: Sequence[str], width: int = 4, length_penalty: float = 0.0, search=beam_search
    ) -> list[str]:
        """The words that beam search finds for a tokenised source sentence, without `</s>`."""
        ids = search(self.next_log_probs(words), BOS, EOS, width, LONGEST, length_penalty)
        return [self.words[i] for i in ids if i != EOS]

    @torch.no_grad()
    def align(self, words: Sequence[str]) -> Alignment:
        """The cross-attention of every layer and head while the model writes its own translation."""
        self.model.eval()
        src = self._ids(words)
        ids = greedy_batch(self.model, src)[0]
        self.model.decode(torch.tensor([[BOS, *ids]], device=self.device), self.model.encode(src), src)
        weights = torch.stack([layer.cross_attn.weights[0] for layer in self.model.decoder.layers])
        return Alignment([*words, "</s>"], [*(self.words[i] for i in ids), "</s>"], weights.cpu())

    def alignment_accuracy(self, sentences: Sequence[Sentence]) -> Tensor:
        """How often a head's strongest look falls on a true counterpart: shares `[layers, h]`.

        Counted over the words of right translations that have a counterpart in the source.
        """
        hits, words = torch.tensor(0.0), 0
        for sentence in sentences:
            found = self.align(getattr(sentence, self.corpus.source))
            if tuple(found.target[:-1]) != getattr(sentence, self.corpus.target):
                continue
            true = torch.zeros(len(found.target), len(found.source))
            for en, zh in sentence.alignment:
                true[(zh, en) if self.corpus.target == "zh" else (en, zh)] = 1
            has_counterpart = true.any(-1)
            looks_at = found.weights.argmax(-1, keepdim=True)  # [layers, h, m, 1]
            hit = true.expand_as(found.weights).gather(-1, looks_at)[..., 0]  # [layers, h, m]
            hits = hits + hit[..., has_counterpart].sum(-1)
            words += int(has_counterpart.sum())
        return hits / max(words, 1)


__all__ = ["PAD", "Alignment", "Score", "Translator", "UnknownWordsError", "exact_match", "greedy_batch"]
