"""Chapter 09's workshop: a two-language grammar, and everything to train and try a Transformer on it."""

from .ablation import Row, ablation, table
from .data import Corpus, make_corpus
from .decoding import Alignment, Score, Translator, exact_match, greedy_batch
from .grammar import Sentence, sentence
from .text import UnknownWordsError, join, tokenize
from .training import Settings, Trainer, autograding, overfit, train_step, warmup_lr

__all__ = [
    "Alignment",
    "Corpus",
    "Row",
    "Score",
    "Sentence",
    "Settings",
    "Trainer",
    "Translator",
    "UnknownWordsError",
    "ablation",
    "autograding",
    "exact_match",
    "greedy_batch",
    "join",
    "make_corpus",
    "overfit",
    "sentence",
    "table",
    "tokenize",
    "train_step",
    "warmup_lr",
]
