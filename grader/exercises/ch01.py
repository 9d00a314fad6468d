"""Chapter 01, embedding: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.probes.core import Case

CHAPTER = "01_embedding"


# ---- 1.1 and 1.2 TokenEmbedding ---------------------------------------------------------------------


class Reference(nn.Module):
    """The rows by an einsum with one-hot vectors, so no lookup is involved."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        table = self.emb.weight
        hot = torch.eye(table.shape[0], dtype=table.dtype)[ids]  # [B, n, V]
        return torch.einsum("bnv,vd->bnd", hot, table) * float(np.sqrt(table.shape[1]))


class Variant(nn.Module):
    """The usual code with every step in a method of its own, so that a mistake changes one step."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.vocab_size, self.d_model = vocab_size, d_model
        self.emb = self.table(vocab_size, d_model)

    def table(self, vocab_size, d_model):
        return nn.Embedding(vocab_size, d_model)

    def rows(self, ids):
        return self.emb(ids)

    def factor(self, ids):
        return math.sqrt(self.d_model)

    def forward(self, ids):
        return self.rows(ids) * self.factor(ids)


class NoFactor(Variant):
    def factor(self, ids):
        return 1.0


class Divides(Variant):
    def factor(self, ids):
        return 1 / math.sqrt(self.d_model)


class TimesD(Variant):
    def factor(self, ids):
        return self.d_model


class RootOfV(Variant):
    def factor(self, ids):
        return math.sqrt(self.vocab_size)


class RootOfN(Variant):
    def factor(self, ids):
        return math.sqrt(ids.size(-1))


class SwappedSizes(Variant):
    def table(self, vocab_size, d_model):
        return nn.Embedding(d_model, vocab_size)


class ExtraRows(Variant):
    def table(self, vocab_size, d_model):
        return nn.Embedding(vocab_size + 4, d_model)


class LinearTable(Variant):
    def table(self, vocab_size, d_model):
        return nn.Linear(vocab_size, d_model, bias=False)

    def rows(self, ids):
        return self.emb(F.one_hot(ids, self.vocab_size).to(self.emb.weight.dtype))


class BareParameter(Variant):
    def table(self, vocab_size, d_model):
        return nn.Parameter(torch.randn(vocab_size, d_model))

    def rows(self, ids):
        return self.emb[ids]


class Frozen(Variant):
    def table(self, vocab_size, d_model):
        return nn.Embedding.from_pretrained(torch.randn(vocab_size, d_model))


class PastTheGradient(Variant):
    def rows(self, ids):
        return self.emb.weight.data[ids]


class ScalesTheTable(Variant):
    def forward(self, ids):
        self.emb.weight.data *= math.sqrt(self.d_model)
        return self.emb(ids)


class AddsRoot(Variant):
    def forward(self, ids):
        return self.emb(ids) + math.sqrt(self.d_model)


class UnitRows(Variant):
    def rows(self, ids):
        return F.normalize(self.emb(ids), dim=-1)


class SumOfTokens(Variant):
    def forward(self, ids):
        return (self.emb(ids) * math.sqrt(self.d_model)).sum(dim=1)


class MeanOfTokens(Variant):
    def forward(self, ids):
        return (self.emb(ids) * math.sqrt(self.d_model)).mean(dim=1)


class SequenceFirst(Variant):
    def forward(self, ids):
        return super().forward(ids).transpose(0, 1)


class FromOne(Variant):
    def rows(self, ids):
        return self.emb(ids - 1)


class OneToken(Variant):
    """Only the last token of each sentence, as an RNN's last state would be taken."""

    def forward(self, ids):
        return super().forward(ids)[:, -1]


class IndexesTheModule(Variant):
    def rows(self, ids):
        return self.emb[ids]


class WidthForgotten(Variant):
    def factor(self, ids):
        return math.sqrt(d_model)  # noqa: F821 (the mistake itself)


class RootOfTorch(Variant):
    def factor(self, ids):
        return torch.sqrt(self.d_model)


class NameOfTorch(nn.Module):
    """The class with the attribute's own shape asked for, and the product written as an operation of torch."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(num_embeddings=vocab_size, embedding_dim=d_model, padding_idx=0)

    def forward(self, ids):
        return torch.mul(self.emb(ids), self.emb.embedding_dim**0.5)


class InPlaceProduct(nn.Module):
    """Scales the fresh rows in place; the table is left alone, so this is right."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)
        self.scale = d_model**0.5

    def forward(self, ids):
        out = self.emb(ids)
        out *= self.scale
        return out


class ScaledTable(nn.Module):
    """Scales a copy of the table and indexes that; the gradient passes through both."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        return (self.emb.weight * torch.tensor(float(self.emb.embedding_dim)).sqrt())[ids]


def _sizes(draw: Draw) -> dict[str, int]:
    return draw.sizes(V=(11, 15), d=[5, 6, 7, 10], B=(2, 4), n=(3, 8))


def _make(sizes: dict[str, int]) -> dict:
    return {"args": [sizes["V"], sizes["d"]]}


def _ids(draw: Draw, sizes: dict[str, int], lowest: int = 0) -> torch.Tensor:
    """Return ids [B, n] that repeat one id and hold the smallest and the largest there is."""
    ids = draw.integers(lowest, sizes["V"] - 1, sizes["B"], sizes["n"])
    ids[0, 0], ids[0, 1], ids[-1, -1], ids[-1, 0] = sizes["V"] - 1, lowest, lowest + 2, lowest + 2
    return ids


def _embedding_case(draw: Draw, lowest: int = 0, **more) -> Case:
    sizes = _sizes(draw)
    weights = {"emb.weight": draw.normal(sizes["V"], sizes["d"])}
    call = {"args": [_ids(draw, sizes, lowest)]}
    return Case("module", {"make": _make(sizes), "weights": weights, "call": call, **more})


def _table_cases(draw: Draw) -> list[Case]:
    return [Case("module", {"make": _make(_sizes(draw)), "keep": ["emb", "emb.weight"]})]


def _embedding_cases(draw: Draw) -> list[Case]:
    single = _embedding_case(draw)
    single.inputs["call"]["args"] = [single.inputs["call"]["args"][0][:1]]
    return [_embedding_case(draw), single]


def _kept_cases(draw: Draw) -> list[Case]:
    return [_embedding_case(draw, keep=["emb.weight"])]


def _table_gradient_cases(draw: Draw) -> list[Case]:
    # No id 0 here: an nn.Embedding with padding_idx=0 is a right answer, too, and keeps row 0 from learning.
    case = _embedding_case(draw, lowest=1)
    ids = case.inputs["call"]["args"][0]
    case.inputs["call"] |= {"wrt": ["weights"], "cotangents": [draw.normal(*ids.shape, _width(case))]}
    return [case]


def _width(case: Case) -> int:
    return case.inputs["make"]["args"][1]


def _double_cases(draw: Draw) -> list[Case]:
    return [_embedding_case(draw, dtype="float64")]


_TABLE = {
    "parameters": "the list of parameters",
    "attr.emb": "the attribute emb",
    "attr.emb.weight.requires_grad": "emb.weight.requires_grad",
    "attr.emb.weight": "emb.weight after the call",
    "out": "forward(ids)",
    "grad.emb.weight": "the gradient of emb.weight",
}

EMBEDDING = Exercise(
    id="1.1",
    symbol="TokenEmbedding",
    kind="module class",
    parameters=("vocab_size", "d_model"),
    points=5,
    todos=("1.1", "1.2"),
    rows=(
        Row(
            "table",
            "emb is a trainable nn.Embedding with vocab_size rows of d_model numbers, and nothing else is trained",
            _table_cases,
            looks=("attr.emb", "parameters", "attr.emb.weight.requires_grad"),
            weight=2,
            spoken=_TABLE,
        ),
        Row(
            "rows",
            "forward(ids [B, n]) gives each id its row of emb, times √d_model: [B, n, d]",
            _embedding_cases,
            looks=("out",),
            weight=3,
            spoken=_TABLE,
        ),
        Row(
            "inputs kept",
            "neither ids nor the table is changed by a call",
            _kept_cases,
            looks=("changed", "attr.emb.weight"),
            needs=("rows",),
            spoken=_TABLE,
        ),
        Row(
            "gradient",
            "the table learns: the gradient reaches the rows that were looked up",
            _table_gradient_cases,
            looks=("grad.emb.weight",),
            needs=("rows",),
            spoken=_TABLE,
        ),
        Row(
            "float64",
            "a float64 table gives a float64 output",
            _double_cases,
            looks=("out",),
            needs=("rows",),
            spoken=_TABLE,
        ),
    ),
    reference=Reference,
    misconceptions=(
        Wrong(
            "no √d",
            "The rows come back as they stand in the table: the factor √d_model is missing. "
            "Multiply in forward. (Scaling the table once in __init__ is not the same: training and loading change it later.)",
            NoFactor,
        ),
        Wrong("divided", "The rows are divided by √d_model; they should be multiplied by it.", Divides),
        Wrong("times d", "The factor is d_model; its square root is meant.", TimesD),
        Wrong(
            "root of V",
            "The factor is √vocab_size. It should be √d_model, the root of the width of a row.",
            RootOfV,
        ),
        Wrong(
            "root of n",
            "The factor is √n, so it changes with the length of the sentence. It should be √d_model.",
            RootOfN,
        ),
        Wrong(
            "sizes swapped",
            "The two sizes are swapped: nn.Embedding takes the number of rows (vocab_size) first, then their width (d_model).",
            SwappedSizes,
        ),
        Wrong(
            "extra rows",
            "The table has four rows too many. vocab_size already counts the four special tokens.",
            ExtraRows,
        ),
        Wrong(
            "linear layer",
            "emb is an nn.Linear. Its product with one-hot vectors gives the same rows, but its weight is [d, V] "
            "and it multiplies V numbers to fetch one row. nn.Embedding does the lookup.",
            LinearTable,
        ),
        Wrong(
            "bare parameter",
            "emb is an nn.Parameter. Later chapters look for an nn.Embedding, whose table is emb.weight.",
            BareParameter,
        ),
        Wrong(
            "frozen",
            "The table is frozen (requires_grad is False), so training would never move it. "
            "nn.Embedding.from_pretrained freezes unless told otherwise; nn.Embedding(…, …) does not.",
            Frozen,
        ),
        Wrong(
            "past the gradient",
            "The numbers are right, but they were taken past autograd (.data, .detach() or no_grad), "
            "so no gradient reaches the table. Call self.emb(ids).",
            PastTheGradient,
        ),
        Wrong(
            "scales the table",
            "Every call multiplies the table itself by √d_model, so it grows from call to call. "
            "Multiply the rows that come out, not the table.",
            ScalesTheTable,
        ),
        Wrong("adds √d", "√d_model is added to every number; multiply by it.", AddsRoot),
        Wrong(
            "unit rows",
            "Every row is brought to one length first. The length of a row is learned, too: take the row as it is.",
            UnitRows,
        ),
        Wrong(
            "sum of tokens",
            "The rows of a sentence are summed into one. Each of the n tokens keeps a row of its own: [B, n, d].",
            SumOfTokens,
        ),
        Wrong(
            "mean of tokens",
            "The rows of a sentence are averaged into one. Each of the n tokens keeps a row of its own: [B, n, d].",
            MeanOfTokens,
        ),
        Wrong(
            "one token",
            "Only the last token of each sentence comes back. All n tokens go on into the encoder: [B, n, d].",
            OneToken,
        ),
        Wrong(
            "sequence first",
            "The output is [n, B, d]. In this course the batch comes first: [B, n, d].",
            SequenceFirst,
        ),
        Wrong(
            "from one",
            "1 is taken off the ids. They already count from 0, and id 0 (<pad>) has row 0.",
            FromOne,
        ),
        Wrong(
            "square brackets",
            "A module is called with round brackets: self.emb(ids). (The bare tensor inside it is self.emb.weight.)",
            IndexesTheModule,
        ),
        Wrong(
            "width forgotten",
            "forward does not know the names of __init__. Keep the width there (self.d_model = d_model), or ask the table: "
            "it has an attribute embedding_dim.",
            WidthForgotten,
        ),
        Wrong(
            "torch.sqrt",
            "torch.sqrt wants a tensor, and d_model is a plain number: math.sqrt takes it.",
            RootOfTorch,
        ),
    ),
    alternatives={"padding_idx": NameOfTorch, "in place": InPlaceProduct, "scaled table": ScaledTable},
    hints={
        "1.1": (
            "You need a table with one row of numbers for each word of the vocabulary. Which class of torch.nn is one?",
            "The table has the shape [V, d]: vocab_size rows, each d_model numbers wide.",
            "self.emb = the lookup table of torch.nn, made with the number of rows, then the width of a row",
        ),
        "1.2": (
            "A module is called like a function. What does your table give when you call it with ids?",
            "ids [B, n] → rows [B, n, d]. The factor is one number, the same for every token.",
            "return (the table, called with ids) times the square root of d; a table of torch knows its own width",
        ),
    },
)


# ---- 1.3 build_vocab --------------------------------------------------------------------------------

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")


def reference_vocab(sentences):
    """Order of first appearance by numpy: the sorted unique words, put in order of their first index."""
    words = np.array([word for word in chain.from_iterable(sentences) if word not in SPECIALS], dtype=object)
    names, first = np.unique(words.astype(str), return_index=True) if len(words) else ([], [])
    ordered = [str(names[i]) for i in np.argsort(first)]
    return {word: number for number, word in enumerate([*SPECIALS, *ordered])}


def _numbered(words, specials=SPECIALS, start=0):
    return {word: number for number, word in enumerate(dict.fromkeys([*specials, *words]), start)}


def vocab_sorted(sentences):
    return _numbered(sorted(set(chain.from_iterable(sentences)) - set(SPECIALS)))


def vocab_by_count(sentences):
    return _numbered(word for word, _ in Counter(chain.from_iterable(sentences)).most_common())


def vocab_no_specials(sentences):
    return _numbered(chain.from_iterable(sentences), specials=())


def vocab_specials_last(sentences):
    words = dict.fromkeys(word for word in chain.from_iterable(sentences) if word not in SPECIALS)
    return {word: number for number, word in enumerate([*words, *SPECIALS])}


def vocab_two_specials(sentences):
    return _numbered(chain.from_iterable(sentences), specials=("<pad>", "<unk>"))


def vocab_unk_second(sentences):
    return _numbered(chain.from_iterable(sentences), specials=("<pad>", "<unk>", "<s>", "</s>"))


def vocab_from_one(sentences):
    return _numbered(chain.from_iterable(sentences), start=1)


def vocab_gaps(sentences):
    """Counts every word read, also the ones it has seen."""
    vocab = {word: number for number, word in enumerate(SPECIALS)}
    for number, word in enumerate(chain.from_iterable(sentences), len(SPECIALS)):
        vocab.setdefault(word, number)
    return vocab


def vocab_overwrites(sentences):
    """Gives a word a new number each time it is met."""
    vocab = {word: number for number, word in enumerate(SPECIALS)}
    for word in chain.from_iterable(sentences):
        vocab[word] = len(vocab)
    return vocab


def vocab_last_seen(sentences):
    """Numbers all words read; the last appearance stays."""
    vocab = {word: number for number, word in enumerate(SPECIALS)}
    vocab |= {word: number for number, word in enumerate(chain.from_iterable(sentences), len(SPECIALS))}
    return vocab


def vocab_each_sentence(sentences):
    """Begins anew in every sentence."""
    vocab = {word: number for number, word in enumerate(SPECIALS)}
    for sentence in sentences:
        for number, word in enumerate(sentence, len(SPECIALS)):
            vocab.setdefault(word, number)
    return vocab


def vocab_first_sentence(sentences):
    return _numbered(sentences[0] if sentences else [])


def vocab_lower(sentences):
    return _numbered(word.lower() for word in chain.from_iterable(sentences))


def vocab_inverse(sentences):
    return {number: word for word, number in _numbered(chain.from_iterable(sentences)).items()}


def vocab_characters(sentences):
    return _numbered(character for word in chain.from_iterable(sentences) for character in word)


def vocab_list(sentences):
    return list(_numbered(chain.from_iterable(sentences)))


def vocab_one_too_large(sentences):
    vocab = {word: number for number, word in enumerate(SPECIALS)}
    for word in chain.from_iterable(sentences):
        if word not in vocab:
            vocab[word] = len(vocab) + 1
    return vocab


def vocab_splits(sentences):
    return _numbered(word for sentence in sentences for word in sentence.split())


def vocab_renumbers(sentences):
    """Puts the words behind the specials without asking whether one of them is a special."""
    vocab = {word: number for number, word in enumerate(SPECIALS)}
    words = dict.fromkeys(chain.from_iterable(sentences))
    return vocab | {word: number for number, word in enumerate(words, len(SPECIALS))}


def vocab_loop(sentences):
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    for sentence in sentences:
        for word in sentence:
            if word not in vocab:
                vocab[word] = len(vocab)
    return vocab


def vocab_setdefault(sentences):
    vocab = dict(zip(SPECIALS, range(4), strict=True))
    for word in (word for sentence in sentences for word in sentence):
        vocab.setdefault(word, len(vocab))
    return vocab


def vocab_from_list(sentences):
    words = list(SPECIALS)
    for sentence in sentences:
        words += [word for i, word in enumerate(sentence) if word not in words and word not in sentence[:i]]
    return {word: words.index(word) for word in words}


_WORDS = ["owl", "fox", "bee", "ant", "jay", "elk", "yak", "gnu", "cod", "hen", "rat", "sow"]


def _text(draw: Draw) -> list[list[str]]:
    """Three sentences in which appearance, alphabet and count give three different orders.

    The first word comes late in the alphabet and is met again in the second sentence; one word of the
    second sentence is the commonest of all; one word is met with and without a capital.
    """
    pool = [_WORDS[i] for i in draw.rng.permutation(len(_WORDS))]
    late = max(pool)
    others = [word for word in pool if word != late]
    a, b, c, d, e = others[:5]
    return [[late, a, b, a.capitalize()], [c, late, d, c, b], [c, e]]


def _text_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_text(draw)]}), Case("function", {"args": [_text(draw)[::-1]]})]


def _no_text_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [[]]})]


def _special_text_cases(draw: Draw) -> list[Case]:
    first, second, third = _text(draw)
    return [Case("function", {"args": [[["<s>", *first, "</s>"], [*second, "<unk>", *third]]]})]


_VOCAB = {"out": "the vocabulary"}

VOCAB = Exercise(
    id="1.3",
    symbol="build_vocab",
    kind="function",
    parameters=("sentences",),
    points=3,
    todos=("1.3",),
    rows=(
        Row(
            "special tokens",
            "without any sentence, the vocabulary holds the four special tokens, 0 to 3",
            _no_text_cases,
            looks=("out",),
            spoken=_VOCAB,
        ),
        Row(
            "words",
            "then every word once, numbered from 4 in order of first appearance",
            _text_cases,
            looks=("out",),
            weight=3,
            spoken=_VOCAB,
        ),
        Row(
            "special tokens in the text",
            "a special token that stands in a sentence keeps its own number",
            _special_text_cases,
            looks=("out",),
            needs=("special tokens", "words"),
            spoken=_VOCAB,
        ),
    ),
    reference=reference_vocab,
    misconceptions=(
        Wrong(
            "sorted",
            "The words are in alphabetical order; they should stand as they first appear.",
            vocab_sorted,
        ),
        Wrong(
            "by count",
            "The words are ordered by how often they occur; they should stand as they first appear.",
            vocab_by_count,
        ),
        Wrong(
            "no specials",
            "The four special tokens are missing. They take the numbers 0 to 3, before any word.",
            vocab_no_specials,
        ),
        Wrong(
            "specials last",
            "The special tokens stand behind the words, so their numbers depend on the text. They come first: 0 to 3.",
            vocab_specials_last,
        ),
        Wrong(
            "two specials",
            "Only <pad> and <unk> are there. <s> and </s>, the beginning and the end of a sentence, are needed as well.",
            vocab_two_specials,
        ),
        Wrong(
            "specials in another order",
            "The special tokens are in another order: <pad> = 0, <s> = 1, </s> = 2, <unk> = 3.",
            vocab_unk_second,
        ),
        Wrong(
            "from one",
            "The numbers start at 1. They are row numbers of a table, and rows count from 0.",
            vocab_from_one,
        ),
        Wrong(
            "gaps",
            "A word that was seen before gets no new number, but your counter moves on all the same, so numbers are left out. "
            "Count the entries of the vocabulary, not the words read.",
            vocab_gaps,
        ),
        Wrong(
            "overwrites",
            "A word that is met again gets a new number. Keep the one it has: ask first whether it is in the vocabulary.",
            vocab_overwrites,
        ),
        Wrong(
            "last appearance",
            "Each word has the number of its last place in the text. The first appearance counts, and words already "
            "in the vocabulary get no new number.",
            vocab_last_seen,
        ),
        Wrong(
            "each sentence anew",
            "The count begins again at 4 in every sentence, so different words share a number.",
            vocab_each_sentence,
        ),
        Wrong("first sentence", "Only the first sentence was read.", vocab_first_sentence),
        Wrong(
            "lower case",
            "The words were put in lower case. Here they are kept as they are given.",
            vocab_lower,
        ),
        Wrong(
            "inverse",
            "The dict goes from number to word; the other way round was asked: word → number.",
            vocab_inverse,
        ),
        Wrong(
            "characters",
            "You went one loop too deep: these are the characters of the words. A sentence is a list of words already.",
            vocab_characters,
        ),
        Wrong("list", "This is a list of words. A dict is needed: word → number.", vocab_list),
        Wrong(
            "one too large",
            "Every word is one too high: number 4 is free. A dict with 4 entries holds the numbers 0 to 3, so the next one is 4, its size.",
            vocab_one_too_large,
        ),
        Wrong("splits", "A sentence is a list of words already; there is nothing to split.", vocab_splits),
        Wrong(
            "renumbers specials",
            "A special token that stands in the text got a second number, which replaced its own.",
            vocab_renumbers,
        ),
    ),
    alternatives={"loop": vocab_loop, "setdefault": vocab_setdefault, "from a list": vocab_from_list},
    hints={
        "1.3": (
            "When you meet a word, what do you have to know before you give it a number?",
            "Start from a dict with the four special tokens: it has 4 entries, and the first new word gets number 4. "
            "What is the number of the next new word, in terms of the dict itself?",
            "for each sentence, for each word in it: unless the dict has it, enter it with the dict's present size",
        )
    },
)


# ---- 1.4 encode -------------------------------------------------------------------------------------


def reference_encode(sentences, vocab):
    """A padded numpy table, filled cell by cell."""
    table = np.full((len(sentences), max(map(len, sentences))), vocab["<pad>"], dtype=np.int64)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence):
            table[row, column] = vocab[word] if word in vocab else vocab["<unk>"]
    return torch.from_numpy(table)


def _encode(sentences, vocab, pad=0, unknown=3, left=False, length=None, dtype=torch.long):
    length = max(map(len, sentences)) if length is None else length
    rows = []
    for sentence in sentences:
        ids = [vocab.get(word, unknown) for word in sentence][:length]
        filler = [pad] * (length - len(ids))
        rows.append(filler + ids if left else ids + filler)
    return torch.tensor(rows, dtype=dtype)


def encode_left(sentences, vocab):
    return _encode(sentences, vocab, left=True)


def encode_shortest(sentences, vocab):
    return _encode(sentences, vocab, length=min(map(len, sentences)))


def encode_one_more(sentences, vocab):
    return _encode(sentences, vocab, length=max(map(len, sentences)) + 1)


def encode_pads_unk(sentences, vocab):
    return _encode(sentences, vocab, pad=3)


def encode_pads_end(sentences, vocab):
    return _encode(sentences, vocab, pad=2)


def encode_pads_minus(sentences, vocab):
    return _encode(sentences, vocab, pad=-1)


def encode_unknown_pad(sentences, vocab):
    return _encode(sentences, vocab, unknown=0)


def encode_unknown_new(sentences, vocab):
    return _encode(sentences, vocab, unknown=len(vocab))


def encode_unknown_dropped(sentences, vocab):
    known = [[word for word in sentence if word in vocab] for sentence in sentences]
    return _encode(known, vocab, length=max(map(len, sentences)))


def encode_key_error(sentences, vocab):
    length = max(map(len, sentences))
    return torch.tensor([[vocab[word] for word in s] + [0] * (length - len(s)) for s in sentences])


def encode_none(sentences, vocab):
    length = max(map(len, sentences))
    return torch.tensor([[vocab.get(word) for word in s] + [0] * (length - len(s)) for s in sentences])


def encode_ragged(sentences, vocab):
    return torch.tensor([[vocab.get(word, 3) for word in sentence] for sentence in sentences])


def encode_float(sentences, vocab):
    return _encode(sentences, vocab, dtype=torch.float32)


def encode_int32(sentences, vocab):
    return _encode(sentences, vocab, dtype=torch.int32)


def encode_list(sentences, vocab):
    return _encode(sentences, vocab).tolist()


def encode_numpy(sentences, vocab):
    return _encode(sentences, vocab).numpy()


def encode_framed(sentences, vocab):
    return _encode([["<s>", *sentence, "</s>"] for sentence in sentences], vocab)


def encode_transposed(sentences, vocab):
    return _encode(sentences, vocab).T


def encode_one_long(sentences, vocab):
    return torch.tensor([vocab.get(word, 3) for sentence in sentences for word in sentence])


def encode_loop(sentences, vocab):
    longest = max(len(sentence) for sentence in sentences)
    rows = []
    for sentence in sentences:
        row = [vocab.get(word, vocab["<unk>"]) for word in sentence]
        rows.append(row + [vocab["<pad>"]] * (longest - len(row)))
    return torch.tensor(rows)


def encode_pad_sequence(sentences, vocab):
    rows = [
        torch.tensor([vocab.get(word, 3) for word in sentence], dtype=torch.long) for sentence in sentences
    ]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=vocab["<pad>"])


def encode_filled(sentences, vocab):
    ids = torch.zeros(len(sentences), max(len(s) for s in sentences), dtype=torch.int64)
    for i, sentence in enumerate(sentences):
        for j, word in enumerate(sentence):
            ids[i, j] = vocab.get(word, 3)
    return ids


def _vocab(draw: Draw) -> tuple[dict[str, int], list[str], list[str]]:
    """Return a vocabulary, its words, and words that are not in it."""
    pool = [_WORDS[i] for i in draw.rng.permutation(len(_WORDS))]
    known, unknown = pool[:8], pool[8:]
    return {word: number for number, word in enumerate([*SPECIALS, *known])}, known, unknown


def _pick(draw: Draw, words: list[str], count: int) -> list[str]:
    return [words[i] for i in draw.rng.permutation(len(words))[:count]]


def _even_cases(draw: Draw) -> list[Case]:
    vocab, known, _ = _vocab(draw)
    sizes = draw.sizes(B=(2, 3), n=(4, 5))
    several = [_pick(draw, known, sizes["n"]) for _ in range(sizes["B"])]
    return [Case("function", {"args": [several, vocab]}), Case("function", {"args": [several[:1], vocab]})]


def _ragged_cases(draw: Draw) -> list[Case]:
    vocab, known, _ = _vocab(draw)
    lengths = [draw.size(2, 3), draw.size(6, 7), draw.size(4, 5), 1]
    return [Case("function", {"args": [[_pick(draw, known, length) for length in lengths], vocab]})]


def _unknown_cases(draw: Draw) -> list[Case]:
    vocab, known, unknown = _vocab(draw)
    sentences = [_pick(draw, known, 4) for _ in range(3)]
    sentences[0][2], sentences[1][0], sentences[2][1] = unknown[:3]
    return [Case("function", {"args": [sentences, vocab]})]


_IDS = {"out": "the tensor of ids"}

ENCODE = Exercise(
    id="1.4",
    symbol="encode",
    kind="function",
    parameters=("sentences", "vocab"),
    points=4,
    todos=("1.4",),
    rows=(
        Row(
            "ids",
            "sentences of one length become their ids, an int64 tensor [B, n]",
            _even_cases,
            looks=("out",),
            weight=2,
            spoken=_IDS,
        ),
        Row(
            "padding",
            "shorter sentences are filled up on the right with <pad> (0), as far as the longest one",
            _ragged_cases,
            looks=("out",),
            spoken=_IDS,
        ),
        Row(
            "unknown words",
            "a word that the vocabulary does not have becomes <unk> (3)",
            _unknown_cases,
            looks=("out",),
            spoken=_IDS,
        ),
    ),
    reference=reference_encode,
    misconceptions=(
        Wrong(
            "left padding",
            "The filling stands on the left, so the first word is no longer at position 0. Fill up on the right.",
            encode_left,
        ),
        Wrong(
            "cut to the shortest",
            "All sentences are cut to the shortest one: words are lost. Fill the shorter ones up instead.",
            encode_shortest,
        ),
        Wrong("one too wide", "The tensor is one column wider than the longest sentence.", encode_one_more),
        Wrong(
            "pads with <unk>",
            "Shorter sentences are filled with <unk> (3); the filling is <pad> (0).",
            encode_pads_unk,
        ),
        Wrong(
            "pads with </s>",
            "Shorter sentences are filled with </s> (2); the filling is <pad> (0).",
            encode_pads_end,
        ),
        Wrong(
            "pads with −1",
            "Shorter sentences are filled with −1, which is no row of any table. The filling is <pad> (0).",
            encode_pads_minus,
        ),
        Wrong(
            "unknown is <pad>",
            "Unknown words become <pad> (0), so the model would skip them as if nothing stood there. They become <unk> (3).",
            encode_unknown_pad,
        ),
        Wrong(
            "unknown is new",
            "Unknown words get a number beyond the vocabulary. The table has no row for it; they become <unk> (3).",
            encode_unknown_new,
        ),
        Wrong(
            "unknown is dropped",
            "Unknown words are left out, so what follows moves one place to the left. They become <unk> (3).",
            encode_unknown_dropped,
        ),
        Wrong(
            "unknown raises",
            "A word that is not in the vocabulary stops your code with a KeyError. vocab.get(word, something) does not.",
            encode_key_error,
        ),
        Wrong(
            "unknown is None",
            "vocab.get(word) gives None for a word that is not there. Its second argument says what to give instead.",
            encode_none,
        ),
        Wrong(
            "not filled up",
            "The rows have different lengths, and torch.tensor needs them equal. Fill the shorter ones up with <pad> first.",
            encode_ragged,
        ),
        Wrong("float", "The ids are floating-point numbers. Ids are row numbers: int64.", encode_float),
        Wrong("int32", "The ids are int32; torch's usual integers are int64 (torch.long).", encode_int32),
        Wrong("list", "This is a list of lists. Make a tensor of it: torch.tensor(…).", encode_list),
        Wrong("numpy", "This is a numpy array; a torch.Tensor is needed.", encode_numpy),
        Wrong(
            "framed",
            "<s> and </s> were added. Here only the words are wanted; chapter 07 adds the frame.",
            encode_framed,
        ),
        Wrong(
            "transposed",
            "The tensor is [n, B]. The batch comes first: one row for each sentence.",
            encode_transposed,
        ),
        Wrong(
            "one long row",
            "All sentences are joined in one row. Each sentence is a row of its own: [B, n].",
            encode_one_long,
        ),
    ),
    alternatives={"loop": encode_loop, "pad_sequence": encode_pad_sequence, "filled zeros": encode_filled},
    hints={
        "1.4": (
            "A tensor is a rectangle. How wide must it be, and what stands where a sentence has ended?",
            "Make one list of ids per sentence, all n_max long; then torch.tensor of the list of lists is [B, n_max].",
            "n_max = length of the longest sentence; for each sentence: the ids of its words (<unk>'s where the vocabulary "
            "has none), then <pad>'s id as often as words are missing",
        )
    },
)


# ---- 1.5 one_hot_lookup -----------------------------------------------------------------------------


def reference_lookup(ids, table):
    """einsum over a one-hot array made by comparing with an open grid."""
    hot = torch.from_numpy(np.equal.outer(ids.numpy(), np.arange(table.shape[0]))).to(table.dtype)  # [..., V]
    return torch.einsum("...v,vd->...d", hot, table)


def _hot(ids, table):
    return F.one_hot(ids, table.size(0)).to(table.dtype)


def lookup_index(ids, table):
    return table[ids]


def lookup_width_d(ids, table):
    return F.one_hot(ids, table.size(1)).to(table.dtype) @ table


def lookup_width_guessed(ids, table):
    return F.one_hot(ids).to(table.dtype) @ table


def lookup_long(ids, table):
    return F.one_hot(ids, table.size(0)) @ table


def lookup_float32(ids, table):
    return F.one_hot(ids, table.size(0)).float() @ table


def lookup_table_first(ids, table):
    return table @ _hot(ids, table)


def lookup_table_transposed(ids, table):
    return _hot(ids, table) @ table.T


def lookup_from_one(ids, table):
    hot = (ids[..., None] == torch.arange(1, table.size(0) + 1)).to(table.dtype)
    return hot @ table


def lookup_scaled(ids, table):
    return _hot(ids, table) @ table * math.sqrt(table.size(1))


def lookup_flat(ids, table):
    return _hot(ids.reshape(-1), table) @ table


def lookup_bag(ids, table):
    return _hot(ids, table).sum(dim=-2) @ table


def lookup_soft(ids, table):
    return _hot(ids, table).softmax(dim=-1) @ table


def lookup_hot_only(ids, table):
    return _hot(ids, table)


def lookup_detached(ids, table):
    return _hot(ids, table) @ table.detach()


def lookup_complement(ids, table):
    return (1 - _hot(ids, table)) @ table


def lookup_cumulative(ids, table):
    """Ones up to the id, as when `arange(V) <= id` is written for `==`."""
    return (torch.arange(table.size(0)) <= ids[..., None]).to(table.dtype) @ table


def lookup_elementwise(ids, table):
    return _hot(ids, table) * table


def lookup_both_transposed(ids, table):
    return table.T @ _hot(ids, table)


def lookup_one_hot(ids, table):
    return F.one_hot(ids, num_classes=len(table)).type_as(table) @ table


def lookup_eye(ids, table):
    return torch.matmul(torch.eye(table.size(0), dtype=table.dtype)[ids], table)


def lookup_scatter(ids, table):
    hot = torch.zeros(*ids.shape, table.shape[0], dtype=table.dtype)
    hot.scatter_(-1, ids.unsqueeze(-1), 1.0)
    return torch.tensordot(hot, table, dims=1)


def lookup_sum(ids, table):
    """The product written out: V terms, each a zero or a one times a row."""
    return sum((ids == v).to(table.dtype).unsqueeze(-1) * table[v] for v in range(table.size(0)))


def _lookup_case(draw: Draw, axes: int, dtype: torch.dtype = torch.float32) -> Case:
    """Ids of one to three axes; the largest number is not among them, so the width cannot be guessed."""
    sizes = draw.sizes(V=(9, 12), d=(5, 7), a=[2, 3], b=[3, 4], c=[8])
    shape = [sizes["c"], sizes["b"], sizes["a"]][:axes][::-1]
    ids = draw.integers(0, sizes["V"] - 2, *shape)
    ids.view(-1)[:3] = torch.tensor([0, sizes["V"] - 2, 0])
    return Case("function", {"args": [ids, draw.normal(sizes["V"], sizes["d"], dtype=dtype)]})


def _row_cases(draw: Draw) -> list[Case]:
    return [_lookup_case(draw, 1)]


def _shape_cases(draw: Draw) -> list[Case]:
    single = _lookup_case(draw, 1)
    single.inputs["args"][0] = torch.tensor(2)
    return [_lookup_case(draw, 2), _lookup_case(draw, 3), single]


def _product_cases(draw: Draw) -> list[Case]:
    return [Case("takes rows", _lookup_case(draw, 2).inputs)]


def _lookup_gradient_cases(draw: Draw) -> list[Case]:
    case = _lookup_case(draw, 2)
    ids, table = case.inputs["args"]
    case.inputs.update(wrt=["1"], cotangents=[draw.normal(*ids.shape, table.size(1))])
    return [case]


def _lookup_double_cases(draw: Draw) -> list[Case]:
    return [_lookup_case(draw, 2, dtype=torch.float64)]


_LOOKUP = {"way": "the way from ids to rows", "grad.1": "the gradient of the table"}

LOOKUP = Exercise(
    id="1.5",
    symbol="one_hot_lookup",
    kind="function",
    parameters=("ids", "table"),
    points=4,
    todos=("1.5",),
    rows=(
        Row(
            "rows",
            "each id of a vector [n] gives its row of the table: [n, d]",
            _row_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "product",
            "the rows come from a matrix product, not from indexing",
            _product_cases,
            looks=("way",),
            needs=("rows",),
            weight=2,
            spoken=_LOOKUP,
        ),
        Row(
            "any shape",
            "ids of any shape [...] give [..., d]",
            _shape_cases,
            looks=("out",),
            needs=("rows",),
        ),
        Row(
            "gradient",
            "the gradient reaches the rows of the table that were asked for",
            _lookup_gradient_cases,
            looks=("grad.1",),
            needs=("rows",),
            spoken=_LOOKUP,
        ),
        Row(
            "float64",
            "a float64 table gives a float64 result",
            _lookup_double_cases,
            looks=("out",),
            needs=("rows",),
        ),
    ),
    reference=reference_lookup,
    misconceptions=(
        Wrong(
            "indexing",
            "The numbers are right, but the rows were taken by their number (table[ids], F.embedding, index_select, …). "
            "Make the one-hot matrix [..., V] and multiply it with the table: that is what this exercise is about.",
            lookup_index,
        ),
        Wrong(
            "width d",
            "The one-hot vectors are d long. Each needs one place for every word, so V, the number of rows of the table.",
            lookup_width_d,
        ),
        Wrong(
            "width guessed",
            "Without a second argument, F.one_hot makes vectors as long as the largest id that happens to occur. Tell it V.",
            lookup_width_guessed,
        ),
        Wrong(
            "integers",
            "F.one_hot gives int64, and a product needs one dtype on both sides. Convert the one-hot matrix to the table's dtype.",
            lookup_long,
        ),
        Wrong(
            "always float32",
            "The one-hot matrix is always float32, so a float64 table cannot be multiplied with it. Use the table's own dtype.",
            lookup_float32,
        ),
        Wrong(
            "table first",
            "The two factors are in the wrong order: one-hot [..., V] times table [V, d] gives [..., d].",
            lookup_table_first,
        ),
        Wrong(
            "transposed",
            "The table is transposed. It is [V, d] already, and its V rows meet the V places of a one-hot vector.",
            lookup_table_transposed,
        ),
        Wrong(
            "element by element",
            "* multiplies element by element. A matrix product is written @.",
            lookup_elementwise,
        ),
        Wrong(
            "column picture",
            "table.T @ hot is the product for one-hot columns. Here they are rows, [..., V]: the one-hot vectors come first, "
            "and the table stays as it is.",
            lookup_both_transposed,
        ),
        Wrong(
            "from one",
            "The comparison counts the rows from 1, so every id gets the row before its own. Rows count from 0.",
            lookup_from_one,
        ),
        Wrong(
            "scaled",
            "The rows are multiplied by √d here. That factor belongs to TokenEmbedding; this is the bare lookup.",
            lookup_scaled,
        ),
        Wrong(
            "flattened",
            "ids were flattened and their shape was lost: [B, n] should give [B, n, d].",
            lookup_flat,
        ),
        Wrong(
            "summed",
            "The one-hot vectors of a sentence are added up, so you get the sum of its rows. Each id keeps its own row.",
            lookup_bag,
        ),
        Wrong(
            "softened",
            "After a softmax the one-hot vectors are no longer one-hot: every row is mixed in a little.",
            lookup_soft,
        ),
        Wrong(
            "one-hot only",
            "These are the one-hot vectors themselves. Multiply them with the table.",
            lookup_hot_only,
        ),
        Wrong(
            "detached",
            "The table was detached (.detach(), .data or no_grad), so no gradient reaches it and it could not learn.",
            lookup_detached,
        ),
        Wrong(
            "inverted",
            "Zeros and ones are swapped: you add up all rows except the one that was asked for.",
            lookup_complement,
        ),
        Wrong(
            "ones up to the id",
            "Your vectors are one in every place up to the id, so rows are summed. One-hot means a single one, where place == id.",
            lookup_cumulative,
        ),
    ),
    alternatives={
        "F.one_hot": lookup_one_hot,
        "rows of the identity": lookup_eye,
        "scatter": lookup_scatter,
        "sum over the vocabulary": lookup_sum,
    },
    hints={
        "1.5": (
            "Which vector picks row 2 out of a table with 5 rows when you multiply it with the table from the left?",
            "ids [...] → one-hot [..., V]; one-hot [..., V] times table [V, d] → [..., d]. V is the number of rows of the table.",
            "hot = one-hot vectors of ids with V places (torch.nn.functional has a function for them), in the table's dtype; "
            "return the matrix product of hot and the table",
        )
    },
)


# ---- 1.6 cosine_similarity --------------------------------------------------------------------------


def reference_cosine(table):
    """numpy: outer products of norms, and a zero wherever one of them is zero."""
    rows = table.detach().numpy()
    norms = np.sqrt(np.einsum("vd,vd->v", rows, rows))
    scale = np.multiply.outer(norms, norms)
    dots = np.einsum("vd,wd->vw", rows, rows)
    return torch.from_numpy(np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0))


def _unit(table):
    norms = table.norm(dim=1, keepdim=True)
    return table / torch.where(norms == 0, torch.ones_like(norms), norms)


def cosine_dot(table):
    return table @ table.T


def cosine_one_norm(table):
    return _unit(table) @ table.T


def cosine_no_root(table):
    squares = table.square().sum(dim=1)
    scale = squares[:, None] * squares
    return table @ table.T / torch.where(scale == 0, torch.ones_like(scale), scale)


def cosine_unguarded(table):
    norms = table.norm(dim=1)
    return table @ table.T / (norms[:, None] * norms)


def cosine_no_keepdim(table):
    unit = table / table.norm(dim=1)
    return unit @ unit.T


def cosine_ones_on_diagonal(table):
    return (_unit(table) @ _unit(table).T).fill_diagonal_(1.0)


def cosine_nan_to_one(table):
    return cosine_unguarded(table).nan_to_num(nan=1.0)


def cosine_columns(table):
    unit = table / table.norm(dim=0, keepdim=True)
    return unit @ unit.T


def cosine_whole_table(table):
    unit = table / table.norm()
    return unit @ unit.T


def cosine_centred(table):
    centred = _unit(table - table.mean(dim=1, keepdim=True))
    return centred @ centred.T


def cosine_features(table):
    unit = table / table.norm(dim=0, keepdim=True)
    return unit.T @ unit


def cosine_diagonal(table):
    return F.cosine_similarity(table, table, dim=1)


def cosine_distance(table):
    return 1 - _unit(table) @ _unit(table).T


def cosine_absolute(table):
    return (_unit(table) @ _unit(table).T).abs()


def cosine_sum_of_sizes(table):
    norms = table.abs().sum(dim=1)
    scale = norms[:, None] * norms
    return table @ table.T / torch.where(scale == 0, torch.ones_like(scale), scale)


def cosine_in_place(table):
    table /= table.norm(dim=1, keepdim=True).clamp_min(1e-8)
    return table @ table.T


def cosine_softmax(table):
    return (_unit(table) @ _unit(table).T).softmax(dim=-1)


def cosine_first_row(table):
    return F.cosine_similarity(table[:1], table, dim=1)


def cosine_library(table):
    return F.cosine_similarity(table[:, None], table[None], dim=-1)


def cosine_normalize(table):
    unit = F.normalize(table, dim=1)
    return torch.einsum("id,jd->ij", unit, unit)


def cosine_nan_to_num(table):
    norms = (table * table).sum(1).sqrt()
    return torch.nan_to_num((table @ table.T) / torch.outer(norms, norms), nan=0.0)


def cosine_loops(table):
    out = torch.zeros(len(table), len(table), dtype=table.dtype)
    for i, a in enumerate(table):
        for j, b in enumerate(table):
            size = math.sqrt(a.dot(a)) * math.sqrt(b.dot(b))
            out[i, j] = a.dot(b) / size if size else 0.0
    return out


def _rows_of_sizes(draw: Draw, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a table whose rows have clearly different lengths."""
    sizes = draw.sizes(V=(5, 8), d=(3, 4))
    table = draw.normal(sizes["V"], sizes["d"], dtype=dtype)
    return table * torch.tensor([0.2, 3.0, 1.0, 0.5, 2.0] * 2, dtype=dtype)[: len(table), None]


def _cosine_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_rows_of_sizes(draw)]}) for _ in range(2)]


def _zero_row_cases(draw: Draw) -> list[Case]:
    table = _rows_of_sizes(draw)
    table[2] = 0.0
    return [Case("function", {"args": [table]})]


def _cosine_double_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_rows_of_sizes(draw, dtype=torch.float64)]})]


_SIMILAR = {"out": "the similarities"}

COSINE = Exercise(
    id="1.6",
    symbol="cosine_similarity",
    kind="function",
    parameters=("table",),
    points=4,
    todos=("1.6",),
    rows=(
        Row(
            "cosines",
            "entry [i, j] is the cosine between rows i and j: [V, V]",
            _cosine_cases,
            looks=("out",),
            weight=2,
            spoken=_SIMILAR,
        ),
        Row(
            "zero row",
            "a row of zeros has similarity 0 to every row, itself included, and nothing is NaN",
            _zero_row_cases,
            looks=("out",),
            needs=("cosines",),
            spoken=_SIMILAR,
        ),
        Row(
            "input kept",
            "table itself is left unchanged",
            _cosine_cases,
            looks=("changed",),
            needs=("cosines",),
        ),
        Row(
            "float64",
            "a float64 table gives a float64 result",
            _cosine_double_cases,
            looks=("out",),
            needs=("cosines",),
            spoken=_SIMILAR,
        ),
    ),
    reference=reference_cosine,
    misconceptions=(
        Wrong(
            "dot product",
            "These are plain dot products: long rows look similar to everything. Divide by the lengths of both rows.",
            cosine_dot,
        ),
        Wrong(
            "one length",
            "The dot products are divided by the length of one row only. Both rows have a length; divide by both.",
            cosine_one_norm,
        ),
        Wrong(
            "no root",
            "You divide by the squared lengths: the square root of Σ x² is missing.",
            cosine_no_root,
        ),
        Wrong(
            "NaN",
            "A row of zeros has length 0, and 0 / 0 is NaN. Make sure that you never divide by 0 (clamp the lengths, for instance).",
            cosine_unguarded,
        ),
        Wrong(
            "lengths as a row",
            "The lengths are a vector [V], and torch lines it up with the columns of the table. As a column [V, 1] "
            "they meet the rows: keepdim=True.",
            cosine_no_keepdim,
        ),
        Wrong(
            "ones on the diagonal",
            "The diagonal is set to 1. A row of zeros has no direction, so its similarity to itself is 0 here.",
            cosine_ones_on_diagonal,
        ),
        Wrong(
            "NaN becomes one",
            "NaN is replaced by 1: a row of zeros would be the same as every other row. It should be 0.",
            cosine_nan_to_one,
        ),
        Wrong(
            "lengths of columns",
            "The lengths are taken down the columns (dim=0). The words are rows: add up along the last axis.",
            cosine_columns,
        ),
        Wrong(
            "length of the table",
            "One length was taken for the whole table. Every row has its own: norm(dim=1, keepdim=True).",
            cosine_whole_table,
        ),
        Wrong(
            "centred",
            "The mean was taken off each row first. That is a correlation; the cosine takes rows as they are.",
            cosine_centred,
        ),
        Wrong(
            "features",
            "This compares the d columns with each other: [d, d]. Compare the V rows: table times its transpose.",
            cosine_features,
        ),
        Wrong(
            "with itself only",
            "Each row is compared only with itself: [V]. All pairs are wanted: [V, V].",
            cosine_diagonal,
        ),
        Wrong(
            "first row only",
            "Only the first row is compared with all others: [V]. All pairs are wanted: [V, V].",
            cosine_first_row,
        ),
        Wrong(
            "distance",
            "This is 1 − cosine, a distance: it is 0 for equal rows. The cosine itself is wanted.",
            cosine_distance,
        ),
        Wrong("absolute", "The sign is gone. Opposite directions have cosine −1, not 1.", cosine_absolute),
        Wrong(
            "sum of sizes",
            "The length was taken as the sum of the numbers' sizes. It is the root of the sum of their squares.",
            cosine_sum_of_sizes,
        ),
        Wrong(
            "in place",
            "table /= … changes the caller's tensor. Make a new one: unit = table / ….",
            cosine_in_place,
        ),
        Wrong(
            "softmax",
            "A softmax turns the cosines into shares of 1. They are wanted as they are.",
            cosine_softmax,
        ),
    ),
    alternatives={
        "F.cosine_similarity": cosine_library,
        "F.normalize": cosine_normalize,
        "nan_to_num": cosine_nan_to_num,
        "plain loops": cosine_loops,
    },
    hints={
        "1.6": (
            "What is left of a dot product when both vectors have length 1?",
            "lengths of the rows [V, 1]; rows divided by them [V, d]; all pairs of dot products [V, V].",
            "lengths = the norm along the last axis, kept as a column, never smaller than something tiny; unit = table over lengths; "
            "return unit times its transpose",
        )
    },
)


EXERCISES = (EMBEDDING, VOCAB, ENCODE, LOOKUP, COSINE)
