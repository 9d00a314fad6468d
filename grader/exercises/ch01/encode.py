"""1.4 encode: sentences as a rectangle of ids, filled up on the right; unknown words are <unk>."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from grader.exercises.ch01._common import SPECIALS, WORDS
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(sentences, vocab):
    """A padded numpy table, filled cell by cell."""
    table = np.full((len(sentences), max(map(len, sentences))), vocab["<pad>"], dtype=np.int64)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence):
            table[row, column] = vocab[word] if word in vocab else vocab["<unk>"]
    return torch.from_numpy(table)


def encode(sentences, vocab):
    n_max = max(len(sentence) for sentence in sentences)
    rows = []
    for sentence in sentences:
        ids = [vocab.get(word, vocab["<unk>"]) for word in sentence]
        padding = [vocab["<pad>"]] * (n_max - len(ids))
        rows.append(ids + padding)
    return torch.tensor(rows)


def loop(sentences, vocab):
    longest = max(len(sentence) for sentence in sentences)
    rows = []
    for sentence in sentences:
        row = []
        for word in sentence:
            row.append(vocab[word] if word in vocab else vocab["<unk>"])
        while len(row) < longest:
            row.append(vocab["<pad>"])
        rows.append(row)
    return torch.tensor(rows)


def pad_sequence(sentences, vocab):
    rows = [
        torch.tensor([vocab.get(word, 3) for word in sentence], dtype=torch.long) for sentence in sentences
    ]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=vocab["<pad>"])


def filled_zeros(sentences, vocab):
    ids = torch.zeros(len(sentences), max(len(s) for s in sentences), dtype=torch.int64)
    for i, sentence in enumerate(sentences):
        for j, word in enumerate(sentence):
            ids[i, j] = vocab.get(word, 3)
    return ids


# ---- rows -------------------------------------------------------------------------------------------
# No row "device": no tensor goes in.


def _vocab(draw: Draw) -> tuple[dict[str, int], list[str], list[str]]:
    """Return a vocabulary, its words, and words that are not in it."""
    pool = [WORDS[i] for i in draw.rng.permutation(len(WORDS))]
    known, unknown = pool[:8], pool[8:]
    return {word: number for number, word in enumerate([*SPECIALS, *known])}, known, unknown


def _pick(draw: Draw, words: list[str], count: int) -> list[str]:
    return [words[i] for i in draw.rng.permutation(len(words))[:count]]


def _even(draw: Draw) -> list[Case]:
    vocab, known, _ = _vocab(draw)
    sizes = draw.sizes(B=(2, 3), n=(4, 5))
    several = [_pick(draw, known, sizes["n"]) for _ in range(sizes["B"])]
    a, b, c = _pick(draw, known, 3)
    # B = n, a word and a sentence twice, special tokens among the words
    square = [[a, b, a, a], ["<s>", c, "</s>", "<pad>"], [a, b, a, a], [b, "<unk>", c, b]]
    return [Case("function", {"args": [some, vocab]}) for some in (several, several[:1], square)]


def _ragged(draw: Draw) -> list[Case]:
    vocab, known, _ = _vocab(draw)
    lengths = [draw.size(2, 3), draw.size(6, 7), draw.size(4, 5), 1]
    # Then the longest first and last, which makes B = n.
    texts = [[_pick(draw, known, length) for length in some] for some in (lengths, [4, 2, 1, 4])]
    return [Case("function", {"args": [text, vocab]}) for text in texts]


def _unknown(draw: Draw) -> list[Case]:
    vocab, known, unknown = _vocab(draw)
    sentences = [_pick(draw, known, 4) for _ in range(3)]
    sentences[0][2], sentences[1][0], sentences[2][1] = unknown[:3]
    return [Case("function", {"args": [sentences, vocab]})]


def _kept(draw: Draw) -> list[Case]:
    return [*_ragged(draw), *_unknown(draw)]


ROWS = (
    Row(
        "ids",
        "sentences of one length become their ids, an int64 tensor [B, n]",
        _even,
        looks=("out",),
        weight=1.5,
    ),
    Row(
        "padding",
        "shorter sentences are filled up on the right with <pad> (0), as far as the longest one",
        _ragged,
        looks=("out",),
    ),
    Row(
        "unknown words",
        "a word that the vocabulary does not have becomes <unk> (3)",
        _unknown,
        looks=("out",),
    ),
    Row(
        "input kept",
        "sentences and vocab are left unchanged",
        _kept,
        looks=("changed",),
        needs=("padding", "unknown words"),
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "left padding",
        "The filling stands on the left, so the first word is no longer at position 0. Fill up on the right.",
        "ids + padding",
        "padding + ids",
    ),
    edit(
        "cut to the shortest",
        "All sentences are cut to the shortest one: words are lost. Fill the shorter ones up instead.",
        "n_max = max(",
        "n_max = min(",
        "rows.append(ids + padding)",
        "rows.append(ids[:n_max])",
    ),
    edit(
        "one too wide",
        "The tensor is one column wider than the longest sentence.",
        "for sentence in sentences)",
        "for sentence in sentences) + 1",
    ),
    edit(
        "pads with <unk>",
        "Shorter sentences are filled with <unk> (3); the filling is <pad> (0).",
        '[vocab["<pad>"]]',
        '[vocab["<unk>"]]',
    ),
    edit(
        "pads with </s>",
        "Shorter sentences are filled with </s> (2); the filling is <pad> (0).",
        '[vocab["<pad>"]]',
        '[vocab["</s>"]]',
    ),
    edit(
        "pads with −1",
        "Shorter sentences are filled with −1, which is no row of any table. The filling is <pad> (0).",
        '[vocab["<pad>"]]',
        "[-1]",
    ),
    edit(
        "unknown is <pad>",
        "Unknown words become <pad> (0), so the model would skip them as if nothing stood there. They become <unk> (3).",
        'vocab.get(word, vocab["<unk>"])',
        "vocab.get(word, 0)",
    ),
    edit(
        "unknown is new",
        "Unknown words get a number beyond the vocabulary. The table has no row for it; they become <unk> (3).",
        'vocab.get(word, vocab["<unk>"])',
        "vocab.get(word, len(vocab))",
    ),
    edit(
        "unknown is dropped",
        "Unknown words are left out, so what follows moves one place to the left. They become <unk> (3).",
        '[vocab.get(word, vocab["<unk>"]) for word in sentence]',
        "[vocab[word] for word in sentence if word in vocab]",
    ),
    edit(
        "unknown raises",
        "A word that is not in the vocabulary stops your code with a KeyError. vocab.get(word, something) does not.",
        'vocab.get(word, vocab["<unk>"])',
        "vocab[word]",
    ),
    edit(
        "unknown is None",
        "vocab.get(word) gives None for a word that is not there. Its second argument says what to give instead.",
        'vocab.get(word, vocab["<unk>"])',
        "vocab.get(word)",
    ),
    edit(
        "not filled up",
        "The rows have different lengths, and torch.tensor needs them equal. Fill the shorter ones up with <pad> first.",
        "rows.append(ids + padding)",
        "rows.append(ids)",
    ),
    edit(
        "float",
        "The ids are floating-point numbers. Ids are row numbers: int64.",
        "torch.tensor(rows)",
        "torch.tensor(rows, dtype=torch.float32)",
    ),
    edit(
        "int32",
        "The ids are int32; torch's usual integers are int64 (torch.long).",
        "torch.tensor(rows)",
        "torch.tensor(rows, dtype=torch.int32)",
    ),
    edit(
        "list",
        "This is a list of lists. Make a tensor of it: torch.tensor(…).",
        "torch.tensor(rows)",
        "rows",
    ),
    edit(
        "numpy",
        "This is a numpy array; a torch.Tensor is needed.",
        "torch.tensor(rows)",
        "torch.tensor(rows).numpy()",
    ),
    edit(
        "framed",
        "<s> and </s> were added. Here only the words are wanted; chapter 07 adds the frame.",
        "    n_max =",
        '    sentences = [["<s>", *sentence, "</s>"] for sentence in sentences]\n    n_max =',
    ),
    edit(
        "transposed",
        "The tensor is [n, B]. The batch comes first: one row for each sentence.",
        "torch.tensor(rows)",
        "torch.tensor(rows).T",
    ),
    edit(
        "one long row",
        "All sentences are joined in one row. Each sentence is a row of its own: [B, n].",
        "rows.append(ids + padding)",
        "rows += ids",
    ),
    edit(
        "fills the caller's lists",
        "The filling goes into the caller's own sentences, which are longer afterwards. Fill up your list of ids.",
        "        ids =",
        '        sentence += ["<pad>"] * (n_max - len(sentence))\n        ids =',
    ),
    edit(
        "grows the vocabulary",
        "Unknown words are entered into the caller's vocabulary, so len(vocab) and the size of the table no longer "
        "agree. vocab.get looks a word up and enters nothing.",
        "vocab.get(",
        "vocab.setdefault(",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="1.4",
    symbol="encode",
    kind="function",
    parameters=("sentences", "vocab"),
    points=4,
    todos=("1.4",),
    rows=ROWS,
    reference=reference,
    answer=encode,
    mistakes=MISTAKES,
    alternatives=(loop, pad_sequence, filled_zeros),
    spoken={"out": _("the tensor of ids")},
    equivalent={
        "(len(sentence) for sentence in sentences) → (len(sentence) for sentence in list(sentences)[::-1])": (
            "The largest of some lengths is the same in any order."
        ),
        "len(ids) → len(sentence)": "A sentence has one id for each word.",
    },
    hints={
        "1.4": (
            _("A tensor is a rectangle. How wide must it be, and what stands where a sentence has ended?"),
            _(
                "Make one list of ids per sentence, all n_max long; then torch.tensor of the list of lists is [B, n_max]."
            ),
            _(
                "n_max = length of the longest sentence; for each sentence: the ids of its words (<unk>'s where the "
                "vocabulary has none), then <pad>'s id as often as words are missing"
            ),
        )
    },
)
