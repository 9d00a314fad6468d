"""From what somebody types to tokens the grammar knows, and back."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from ..parts import SPECIALS
from .lexicon import NAMES

_PROPER = {*NAMES, "beijing", "shanghai", "guangzhou", "i", "english", "chinese"}
_SHORT_FORMS = (
    ("won't", "will not"),
    ("can't", "can not"),
    ("cannot", "can not"),
    ("n't", " not"),
    ("i'm", "i am"),
)
_QUESTION_STARTS = frozenset(
    (
        "do",
        "does",
        "did",
        "is",
        "are",
        "am",
        "was",
        "were",
        "will",
        "can",
        "should",
        "must",
        "who",
        "what",
        "which",
        "whose",
        "where",
        "when",
        "why",
        "how",
    )
)


class UnknownWordsError(ValueError):
    """Words outside the vocabulary. The message names them and the nearest words that are known."""

    def __init__(self, words: Sequence[str], vocab: Mapping[str, int]):
        self.words = tuple(dict.fromkeys(words))
        super().__init__(" ".join(self._sentence(word, vocab) for word in self.words))

    @staticmethod
    def _sentence(word: str, vocab: Mapping[str, int]) -> str:
        near = difflib.get_close_matches(word, [w for w in vocab if w not in SPECIALS], n=3, cutoff=0.6)
        hint = f" Known words that look like it: {', '.join(near)}." if near else ""
        return f"The word {word!r} is not in the training vocabulary.{hint}"


def tokenize(text: str, vocab: Mapping[str, int]) -> list[str]:
    """Split typed English or Chinese into known tokens; `UnknownWordsError` says which are not known.

    English: small letters, "don't" becomes "do not", "Tom's" becomes "tom 's". Chinese is cut into the fewest
    known words. A missing mark at the end is added.
    """
    if re.search(r"[\u4e00-\u9fff]", text):
        words = _cut_chinese(re.sub(r"\s+", "", text).translate(str.maketrans("?.,", "？。，")), vocab)
        closing = "？" if {"吗", "谁", "什么", "哪里", "为什么", "几", "哪", "哪些"} & set(words) else "。"
    else:
        text = text.lower().replace("’", "'")
        for short, full in _SHORT_FORMS:
            text = text.replace(short, full)
        words = re.findall(r"'s|[^\W_]+|[.?]", text)
        closing = "?" if words and words[0] in _QUESTION_STARTS else "."
    if not words:
        raise ValueError("There is nothing to translate: type a sentence.")
    if words[-1] not in ".?。？":
        words.append(closing)
    unknown = [word for word in words if word not in vocab or word in SPECIALS]
    if unknown:
        raise UnknownWordsError(unknown, vocab)
    return words


def _cut_chinese(text: str, vocab: Mapping[str, int]) -> list[str]:
    """The cut into the fewest words; of two such cuts the one whose first words are longer."""
    longest = max(map(len, vocab), default=1)
    best: list[tuple[int, list[str]]] = [(0, [])]  # for each end: (cost, words)
    for end in range(1, len(text) + 1):
        options = []
        for start in range(max(0, end - longest), end):
            word, (cost, words) = text[start:end], best[start]
            if word in vocab or end - start == 1:
                options.append((cost + (1 if word in vocab else 100), [*words, word]))
        best.append(min(options, key=lambda option: option[0]))
    return best[-1][1]


def join(words: Iterable[str]) -> str:
    """Tokens as people write them: "Tom's cat is here." or "汤姆的猫在这里。"."""
    words = list(words)
    if any("\u4e00" <= char <= "\u9fff" for char in "".join(words)):
        return "".join(words)
    text = " ".join(word.capitalize() if word in _PROPER else word for word in words)
    text = re.sub(r" ('s|[.?])", r"\1", text)
    return text[:1].upper() + text[1:]
