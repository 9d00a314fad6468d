"""What the notebook of chapter 09 needs around the learner's own functions.

Which parts the model is made of, how much there is to train (the budget), where the checkpoint lies, and how
many held-out sentences the learner's `translate` gets right.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lab.checking import run_check
from transformer_lab.language import _
from transformer_lab.parts import mine
from transformer_lab.translation import (
    Corpus,
    Score,
    Sentence,
    Settings,
    Trainer,
    exact_match,
    greedy_batch,
    make_corpus,
)
from transformer_lab.translation import train_step as finished_step

# ---- parts ------------------------------------------------------------------------------------------

USED = (
    "TokenEmbedding",
    "PositionalEncoding",
    "MultiHeadAttention",
    "LayerNorm",
    "PostNorm",
    "PreNorm",
    "FeedForward",
    "EncoderLayer",
    "Encoder",
    "shift_right",
    "padding_mask",
    "target_mask",
    "DecoderLayer",
    "Decoder",
    "OutputLayer",
    "tie_weights",
    "sequence_loss",
    "Transformer",
    "greedy",
    "beam_search",
)
"""The parts of chapters 01 to 08 that a translator is made of."""


# Why a learner has nothing of their own to be told about.
_NOT_BEGUN = (mine.Reason.NO_NOTEBOOK, mine.Reason.NOT_STARTED, mine.Reason.USES_FINISHED)


def choose_parts(folder: Path | str | None = None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Return {name: part}: the learner's own where they pass their checks, else the finished ones.

    Own parts use each other: where a notebook took a finished part although the learner's own passes, it is
    run with the own one in its place. Says in a few lines which are whose. `folder` is as for `mine.load`.
    """
    found: dict[str, mine.Found] = {}
    for name in USED:  # in the order of the course: a part is found before those that are built on it
        own = {item.name: item.part for item in found.values() if item.own}
        found[name] = mine.find(name, folder, own)
    _tell(found.values(), say)
    return {name: item.part for name, item in found.items()}


def _tell(found: Iterable[mine.Found], say: Callable[[str], None]) -> None:
    own = [item.name for item in found if item.own]
    waiting = [item.name for item in found if item.reason in _NOT_BEGUN]
    if own:
        say(_("Yours ({count}): {names}.").format(count=len(own), names=", ".join(own)))
    if waiting:
        text = _("Finished parts, as you have none yet ({count}): {names}.")
        say(text.format(count=len(waiting), names=", ".join(waiting)))
    for item in found:
        if not item.own and item.name not in waiting:
            say(f"{item}.")


def origins(model: nn.Module) -> str:
    """Say which classes the model really holds, and whose they are."""
    count: Counter[tuple[str, str]] = Counter()
    for module in model.modules():
        kind = type(module)
        if kind.__module__.startswith("torch."):
            continue
        whose = "finished" if kind.__module__.startswith("transformer_lab.") else "yours"
        count[kind.__name__, whose] += 1
    lines = [f"{number:4} × {name:20} {whose}" for (name, whose), number in sorted(count.items())]
    return "\n".join(lines)


def step_to_use(train_step: Callable, say: Callable[[str], None] = print) -> Callable:
    """Return the learner's `train_step` when it passes check 9.2, else the finished one; says which."""
    return _own_or_finished("9.2", "train_step", train_step, finished_step, say)


def translate_to_use(translate: Callable, say: Callable[[str], None] = print) -> Callable:
    """Return the learner's `translate` when it passes check 9.4, else the finished one; says which."""
    return _own_or_finished("9.4", "translate", translate, greedy_batch, say)


def _own_or_finished(exercise: str, name: str, own: Callable, finished: Callable, say: Callable) -> Callable:
    if run_check(exercise, own).passed:
        say(_("{name}: yours.").format(name=name))
        return own
    text = _("{name}: the finished one, since yours does not pass check {exercise} yet.")
    say(text.format(name=name, exercise=exercise))
    return finished


# ---- budget -----------------------------------------------------------------------------------------

VARIABLE = "TRANSFORMER_LAB_BUDGET"
SHORT = 7  # English words, the mark at the end included


@dataclass(frozen=True)
class Budget:
    """How much to train. `name` is "full", "small" or "tiny"."""

    name: str
    sentences: int  # drawn for training, before long ones are left out
    longest: int | None  # English words; None: all lengths
    settings: Settings
    heldout: int
    unseen: int

    def __str__(self) -> str:
        s = self.settings
        kept = (
            ""
            if self.longest is None
            else _(", those of at most {longest} words kept").format(longest=self.longest)
        )
        return _(
            "Budget {name!r}: {sentences:,} sentences drawn{kept}; d = {d_model}, h = {h}, N = "
            "{N}, {epochs} epochs of batches of {batch_size}."
        ).format(
            name=self.name,
            sentences=self.sentences,
            kept=kept,
            d_model=s.d_model,
            h=s.h,
            N=s.N,
            epochs=s.epochs,
            batch_size=s.batch_size,
        )


BUDGETS = {
    "full": Budget("full", 60_000, None, Settings(), 1_000, 500),
    "small": Budget(
        "small",
        20_000,
        SHORT,
        Settings(d_model=64, h=4, d_ff=128, N=1, epochs=8, batch_size=64, warmup=100, cooldown=0.6),
        600,
        300,
    ),
    "tiny": Budget(
        "tiny", 1_500, SHORT, Settings(d_model=16, h=2, d_ff=32, N=1, epochs=1, autograde_steps=3), 100, 100
    ),
}


def budget() -> Budget:
    """Return the budget of this run: tiny while nbgrader grades, what TRANSFORMER_LAB_BUDGET says, else full.

    Raises ValueError for a name that is not one of BUDGETS.
    """
    if os.environ.get("NBGRADER_EXECUTION") in ("autograde", "validate"):
        return BUDGETS["tiny"]
    name = os.environ.get(VARIABLE, "full")
    if name not in BUDGETS:
        raise ValueError(
            _("{VARIABLE} is one of {BUDGETS}, not {name!r}").format(
                VARIABLE=VARIABLE, BUDGETS=", ".join(BUDGETS), name=name
            )
        )
    return BUDGETS[name]


def corpus_for(budget: Budget, seed: int = 0) -> Corpus:
    """Draw the sentences of a budget; every held-out word occurs in training."""
    corpus = make_corpus(seed, budget.sentences, budget.heldout, budget.unseen)
    if budget.longest is None:
        return corpus
    train = [s for s in corpus.train if len(s.en) <= budget.longest]
    known = {word for s in train for word in s.en + s.zh}

    def short(sentences: Sequence[Sentence]) -> list[Sentence]:
        return [s for s in sentences if len(s.en) <= budget.longest and known.issuperset(s.en + s.zh)]

    return Corpus(train, short(corpus.heldout), short(corpus.unseen), corpus.banned)


# ---- training ---------------------------------------------------------------------------------------


def checkpoint_path(budget: Budget) -> Path:
    """Return where a run is saved: beside the notebook; a smaller budget's in a new temporary folder."""
    folder = Path() if budget.name == "full" else Path(tempfile.mkdtemp(prefix="translator-"))
    return folder / f"translator-{budget.name}.pt"


def trainer_for(
    corpus: Corpus,
    budget: Budget,
    parts: Mapping[str, Any],
    step: Callable,
    path: Path | None = None,
    **other,
) -> Trainer:
    """Return a trainer; with `path` it goes on from the run saved there, if that run fits, and says so.

    `other` settings replace those of the budget.
    """
    trainer = Trainer(corpus, replace(budget.settings, **other), parts, step)
    if path is None or not path.exists():
        return trainer
    try:
        trainer.resume(path)
    except (ValueError, RuntimeError, KeyError, EOFError, pickle.UnpicklingError) as other_run:
        reason = str(other_run).splitlines()[0][:120]
        print(_("{path} holds another run ({reason}); starting afresh.").format(path=path, reason=reason))
        return Trainer(corpus, trainer.settings, parts, step)
    print(
        _("Going on from {path}: {losses_count} steps are done.").format(
            path=path, losses_count=len(trainer.losses)
        )
    )
    return trainer


def eight_sentences(
    corpus: Corpus, settings: Settings, parts: Mapping[str, Any]
) -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]:
    """Return (model, optimizer, src [8, n], tgt [8, m]): a fresh model, and what it shall learn by heart."""
    few = replace(corpus, train=corpus.train[:8])
    few.src_vocab, few.tgt_vocab = corpus.src_vocab, corpus.tgt_vocab  # the model that will be trained
    trainer = Trainer(few, settings, parts)
    optimizer = torch.optim.Adam(trainer.model.parameters(), lr=3e-3)
    return trainer.model.train(), optimizer, trainer.src, trainer.tgt


# ---- scores -----------------------------------------------------------------------------------------

Translate = Callable[[nn.Module, Tensor], list[list[int]]]


def score(
    translate: Translate, model: nn.Module, corpus: Corpus, sentences: Sequence[Sentence], batch: int = 250
) -> Score:
    """Translate with the learner's function and count exact matches."""
    return exact_match(model, corpus, sentences, batch, translate)
