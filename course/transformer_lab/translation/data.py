"""Training and held-out sentences, and the batches a model eats.

Two held-out sets ask two questions. `heldout`: can the model translate *sentences* it never saw, made of
words it knows? `unseen`: can it also join a *verb and a noun* that never stood in one training sentence?
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..parts import BOS, EOS, PAD, build_vocab, encode, shift_right
from .grammar import Sentence, sentence
from .lexicon import MASS, NOUNS, PLAIN_VERBS

HELD_OUT_SHARE = 0.12  # of all verb-object pairs of the grammar


# ------------------------------------------------------------------------------------------- the split
def lemma_of() -> dict[str, str]:
    """Every English form of a verb or noun that takes part in a pair, with its first form."""
    forms = {form: noun.singular for noun in NOUNS.values() for form in (noun.singular, noun.plural)}
    forms |= {name: name for name in MASS}
    for verb in PLAIN_VERBS:
        forms |= {form.split()[0]: verb.base for form in (verb.base, verb.third, verb.past, verb.ing)}
    return forms


def choose_pairs(rng: random.Random) -> dict[str, frozenset[str]]:
    """Verb-object pairs to keep out of training: never the last two of a verb, nor of a noun."""
    pairs = [(verb.base, name) for verb in PLAIN_VERBS for name in verb.objects]
    left_verb, left_noun = ({key: 0 for key, _ in pairs}, {key: 0 for _, key in pairs})
    for verb, noun in pairs:
        left_verb[verb] += 1
        left_noun[noun] += 1
    rng.shuffle(pairs)
    banned: dict[str, set[str]] = {}
    for verb, noun in pairs:
        if sum(map(len, banned.values())) >= HELD_OUT_SHARE * len(pairs):
            break
        if left_verb[verb] > 3 and left_noun[noun] > 2 and verb != noun:
            left_verb[verb] -= 1
            left_noun[noun] -= 1
            banned.setdefault(verb, set()).add(noun)
    return {verb: frozenset(nouns) for verb, nouns in banned.items()}


def holds_pair(
    english: Iterable[str], banned: Mapping[str, frozenset[str]], lemmas: Mapping[str, str]
) -> bool:
    """Whether a banned verb and its noun, in any form, both stand in the sentence."""
    words = {lemmas[word] for word in english if word in lemmas}
    return any(verb in banned and not banned[verb].isdisjoint(words) for verb in words)


@dataclass
class Corpus:
    """Sentences by set; `source` and `target` name the languages, "en" or "zh"."""

    train: list[Sentence]
    heldout: list[Sentence]
    unseen: list[Sentence]
    banned: dict[str, frozenset[str]]
    source: str = "en"
    target: str = "zh"

    def __post_init__(self):
        self.src_vocab = build_vocab([getattr(s, self.source) for s in self.train])
        self.tgt_vocab = build_vocab([getattr(s, self.target) for s in self.train])

    def encode(self, sentences: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        """Ids `[S, n]` of the sources and `[S, m]` of the targets, each ending in `</s>`."""
        return (
            encode_sentences([getattr(s, self.source) for s in sentences], self.src_vocab),
            encode_sentences([getattr(s, self.target) for s in sentences], self.tgt_vocab),
        )


def encode_sentences(sentences: Sequence[Sequence[str]], vocab: Mapping[str, int]) -> Tensor:
    return encode([[*sentence, "</s>"] for sentence in sentences], vocab)


def make_corpus(
    seed: int = 0, train: int = 60_000, heldout: int = 1_000, unseen: int = 500, source: str = "en"
) -> Corpus:
    """Draw three sets that share no sentence on either side; held-out words all occur in training."""
    rng, lemmas = random.Random(seed), lemma_of()
    banned = choose_pairs(rng)
    seen_en: set[tuple[str, ...]] = set()
    seen_zh: set[tuple[str, ...]] = set()
    known: set[str] = set()
    sets: dict[str, list[Sentence]] = {"train": [], "heldout": [], "unseen": []}
    sizes = {"train": train, "heldout": heldout, "unseen": unseen}
    while any(len(sets[name]) < size for name, size in sizes.items()):
        drawn = sentence(rng)
        if drawn.en in seen_en or drawn.zh in seen_zh:
            continue
        if holds_pair(drawn.en, banned, lemmas):
            name = "unseen"
        else:
            name = "train" if len(sets["train"]) < train else "heldout"
        unknown = name == "heldout" and not known.issuperset(drawn.en + drawn.zh)
        if unknown or len(sets[name]) == sizes[name]:
            continue
        seen_en.add(drawn.en)
        seen_zh.add(drawn.zh)
        sets[name].append(drawn)
        if name == "train":
            known.update(drawn.en, drawn.zh)
    target = "zh" if source == "en" else "en"
    return Corpus(**sets, banned=banned, source=source, target=target)


# ------------------------------------------------------------------------------------------- batches
def batches(
    src: Tensor, tgt: Tensor, size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass in random order, `size` sentences a batch, each batch of sentences of like length.

    Sorted by source length and then by target length, equal lengths in random order: batches differ from pass
    to pass. Each is cut to its longest sentence, so hardly any work goes into padding.
    """
    length = (64 * (src != PAD).sum(1) + (tgt != PAD).sum(1)).cpu()
    order = torch.argsort(length + 2 * torch.rand(len(length), generator=generator))
    pieces = order.split(size)
    for i in torch.randperm(len(pieces), generator=generator).tolist():
        piece = pieces[i].to(src.device)
        yield trim(src[piece]), trim(tgt[piece])


def trim(ids: Tensor) -> Tensor:
    """Without the columns that are padding in every row."""
    return ids[:, : int((ids != PAD).sum(1).max())]


__all__ = ["BOS", "EOS", "PAD", "Corpus", "batches", "encode_sentences", "make_corpus", "shift_right", "trim"]
