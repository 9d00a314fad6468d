"""1.3 build_vocab: the four special tokens 0 to 3, then each word as it first appears."""

from __future__ import annotations

from itertools import chain

import numpy as np

from grader.exercises.ch01._common import SPECIALS, WORDS
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(sentences):
    """Order of first appearance by numpy: the sorted unique words, put in order of their first index."""
    words = np.array([word for word in chain.from_iterable(sentences) if word not in SPECIALS], dtype=object)
    names, first = np.unique(words.astype(str), return_index=True) if len(words) else ([], [])
    ordered = [str(names[i]) for i in np.argsort(first)]
    return {word: number for number, word in enumerate([*SPECIALS, *ordered])}


def build_vocab(sentences):
    words = [word for sentence in sentences for word in sentence]
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    for word in words:
        if word not in vocab:
            vocab[word] = len(vocab)
    return vocab


def loop(sentences):
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    for sentence in sentences:
        for word in sentence:
            if word not in vocab:
                vocab[word] = len(vocab)
    return vocab


def setdefault(sentences):
    vocab = dict(zip(["<pad>", "<s>", "</s>", "<unk>"], range(4), strict=True))
    for word in (word for sentence in sentences for word in sentence):
        vocab.setdefault(word, len(vocab))
    return vocab


def from_a_list(sentences):
    words = ["<pad>", "<s>", "</s>", "<unk>"]
    for sentence in sentences:
        words += [word for i, word in enumerate(sentence) if word not in words and word not in sentence[:i]]
    return {word: words.index(word) for word in words}


# ---- rows -------------------------------------------------------------------------------------------
# No row "device": no tensor goes in or comes out.


def _text(draw: Draw) -> list[list[str]]:
    """Three sentences in which appearance, alphabet and count give three different orders.

    The first word comes late in the alphabet and is met again in the second sentence; one word of the
    second sentence is the commonest of all; one word is met with and without a capital.
    """
    pool = [WORDS[i] for i in draw.rng.permutation(len(WORDS))]
    late = max(pool)
    others = [word for word in pool if word != late]
    a, b, c, d, e = others[:5]
    return [[late, a, b, a.capitalize()], [c, late, d, c, b], [c, e]]


def _no_text(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [[]]})]


def _square(draw: Draw) -> list[list[str]]:
    """Three sentences of three words: across and down, they could be read either way."""
    a, b, c, d, e = [WORDS[i] for i in draw.rng.permutation(len(WORDS))[:5]]
    return [[a, b, c], [d, a, b], [c, e, a]]


def _words(draw: Draw) -> list[Case]:
    texts = [_text(draw), _text(draw)[::-1], _square(draw)]
    texts += [[[], texts[0][0], [], texts[0][1]]]  # with sentences that have no words
    return [Case("function", {"args": [text]}) for text in texts]


def _specials_in_text(draw: Draw) -> list[Case]:
    first, second, third = _text(draw)
    return [Case("function", {"args": [[["<s>", *first, "</s>"], [*second, "<unk>", *third]]]})]


def _kept(draw: Draw) -> list[Case]:
    return [*_words(draw), *_specials_in_text(draw), Case("function", {"args": [_text(draw)[:1]]})]


ROWS = (
    Row(
        "special tokens",
        "without any sentence, the vocabulary holds the four special tokens, 0 to 3",
        _no_text,
        looks=("out",),
    ),
    Row(
        "words",
        "then every word once, numbered from 4 in order of first appearance",
        _words,
        looks=("out",),
        weight=2.5,
    ),
    Row(
        "special tokens in the text",
        "a special token that stands in a sentence keeps its own number",
        _specials_in_text,
        looks=("out",),
        needs=("special tokens", "words"),
    ),
    Row(
        "input kept",
        "sentences, and the lists in it, are left unchanged",
        _kept,
        looks=("changed",),
        needs=("words",),
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

WALK = """\
    for word in words:
        if word not in vocab:
            vocab[word] = len(vocab)
"""
START = '{"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}'

MISTAKES = (
    edit(
        "sorted",
        "The words are in alphabetical order; they should stand as they first appear.",
        "for word in words:",
        "for word in sorted(set(words)):",
    ),
    edit(
        "by count",
        "The words are ordered by how often they occur; they should stand as they first appear.",
        "for word in words:",
        "for word in sorted(words, key=words.count, reverse=True):",
    ),
    edit(
        "no specials",
        "The four special tokens are missing. They take the numbers 0 to 3, before any word.",
        START,
        "{}",
    ),
    edit(
        "specials last",
        "The special tokens stand behind the words, so their numbers depend on the text. They come first: 0 to 3.",
        f"    vocab = {START}",
        '    specials = ["<pad>", "<s>", "</s>", "<unk>"]\n    vocab = {}',
        "for word in words:",
        "for word in [word for word in words if word not in specials] + specials:",
    ),
    edit(
        "two specials",
        "Only <pad> and <unk> are there. <s> and </s>, the beginning and the end of a sentence, are needed as well.",
        START,
        '{"<pad>": 0, "<unk>": 1}',
    ),
    edit(
        "specials in another order",
        "The special tokens are in another order: <pad> = 0, <s> = 1, </s> = 2, <unk> = 3.",
        START,
        '{"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3}',
    ),
    edit(
        "from one",
        "The numbers start at 1. They are row numbers of a table, and rows count from 0.",
        START,
        '{"<pad>": 1, "<s>": 2, "</s>": 3, "<unk>": 4}',
        "len(vocab)",
        "len(vocab) + 1",
    ),
    edit(
        "gaps",
        "A word that was seen before gets no new number, but your counter moves on all the same, so numbers are left out. "
        "Count the entries of the vocabulary, not the words read.",
        "vocab[word] = len(vocab)",
        "vocab[word] = number",
        "for word in words:",
        "for number, word in enumerate(words, 4):",
    ),
    edit(
        "overwrites",
        "A word that is met again gets a new number. Keep the one it has: ask first whether it is in the vocabulary.",
        WALK,
        "    for word in words:\n        vocab[word] = len(vocab)\n",
    ),
    edit(
        "last appearance",
        "Each word has the number of its last place in the text. The first appearance counts, and words already "
        "in the vocabulary get no new number.",
        WALK,
        "    for number, word in enumerate(words, 4):\n        vocab[word] = number\n",
    ),
    edit(
        "each sentence anew",
        "The count begins again at 4 in every sentence, so different words share a number.",
        "for word in sentence:",
        "for number, word in enumerate(sentence, 4):",
        "vocab[word] = len(vocab)",
        "vocab[word] = number",
        of=loop,
    ),
    edit(
        "first sentence",
        "Only the first sentence was read.",
        "for sentence in sentences",
        "for sentence in sentences[:1]",
    ),
    edit(
        "lower case",
        "The words were put in lower case. Here they are kept as they are given.",
        "[word for",
        "[word.lower() for",
    ),
    edit(
        "inverse",
        "The dict goes from number to word; the other way round was asked: word → number.",
        "return vocab",
        "return {number: word for word, number in vocab.items()}",
    ),
    edit(
        "characters",
        "You went one loop too deep: these are the characters of the words. A sentence is a list of words already.",
        "[word for sentence in sentences for word in sentence]",
        "[letter for sentence in sentences for word in sentence for letter in word]",
    ),
    edit(
        "list",
        "This is a list of words. A dict is needed: word → number.",
        "return vocab",
        "return list(vocab)",
    ),
    edit(
        "one too large",
        "Every word is one too high: number 4 is free. A dict with 4 entries holds the numbers 0 to 3, so the next one is 4, its size.",
        "len(vocab)",
        "len(vocab) + 1",
    ),
    edit(
        "splits",
        "A sentence is a list of words already; there is nothing to split.",
        "for word in sentence]",
        "for word in sentence.split()]",
    ),
    edit(
        "renumbers specials",
        "A special token that stands in the text got a second number, which replaced its own.",
        WALK,
        "    for number, word in enumerate(dict.fromkeys(words), 4):\n        vocab[word] = number\n",
    ),
    edit(
        "uses the text up",
        "Sentences or words are taken out of the caller's own lists (pop, remove), which are shorter afterwards. "
        "Go through them with for, and leave them whole.",
        "words = [word for sentence in sentences for word in sentence]",
        "words = []\n    while sentences:\n        words += sentences.pop(0)",
    ),
    edit(
        "joins in place",
        "words is no new list here: it is the caller's first sentence, and += makes that one longer. "
        "Start with a list of your own: words = [].",
        "words = [word for sentence in sentences for word in sentence]",
        "words = sentences[0] if sentences else []\n    for sentence in sentences[1:]:\n        words += sentence",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="1.3",
    symbol="build_vocab",
    kind="function",
    parameters=("sentences",),
    points=3,
    todos=("1.3",),
    rows=ROWS,
    reference=reference,
    answer=build_vocab,
    mistakes=MISTAKES,
    alternatives=(loop, setdefault, from_a_list),
    spoken={"out": _("the vocabulary")},
    hints={
        "1.3": (
            _("When you meet a word, what do you have to know before you give it a number?"),
            _(
                "Start from a dict with the four special tokens: it has 4 entries, and the first new word gets number 4. "
                "What is the number of the next new word, in terms of the dict itself?"
            ),
            _(
                "for each sentence, for each word in it: unless the dict has it, enter it with the dict's present size"
            ),
        )
    },
)
