"""What several exercises of chapter 08 share: padded ids, and cases in which a sentence is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise
from transformer_lab.checking.probes.core import Case, observe


def padded_ids(draw: Draw, rows: int, length: int, low: int = 3, high: int = 30, pad_id: int = 0):
    """Random ids [rows, length] padded on the right: the first row by one, the next by two, …, the last by none.

    The number of pads differs from row to row, so that a mask of the wrong row shows.
    """
    ids = draw.integers(low, high, rows, length)
    ids[ids == pad_id] = high + 1
    for row in range(rows - 1):
        ids[row, length - 1 - row % max(length - 1, 1) :] = pad_id
    return ids


# ---- cases that tell mistakes apart -----------------------------------------------------------------


def symbols(exercise: Exercise, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the reference, under the name "", and the mistakes of these names (all of them when None)."""
    mistakes = {one.name: one.symbol for one in exercise.misconceptions}
    return {"": exercise.reference} | {
        name: mistakes[name] for name in (mistakes if names is None else names)
    }


def telling(draw: Draw, make: Callable[[Draw], Case], symbols: dict[str, Any], most: int = 8) -> list[Case]:
    """Draw cases until they tell all `symbols` apart, keeping only those that tell more of them apart.

    A random case may hide a mistake (a beam of 2 often finds what a beam of 3 finds), so cases are chosen.
    """
    kept: list[Case] = []
    groups = [list(symbols)]  # names that no case so far has told apart
    for _ in range(200):
        case = make(draw)
        parted = [_parted(group, symbols, case) for group in groups]
        if any(len(parts) > 1 for parts in parted):
            kept.append(case)
        groups = [part for parts in parted for part in parts if len(part) > 1]
        if not groups or len(kept) == most:
            break
    return kept or [case]


def _parted(names: list[str], symbols: dict[str, Any], case: Case) -> list[list[str]]:
    """Group `names` by what their symbols give on `case`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(gist(symbols[name], case), []).append(name)
    return list(groups.values())


def gist(symbol: Any, case: Case) -> str:
    """Return what `symbol` gives on `case`, rounded, or the error in which it ends."""
    observation = observe(symbol, case)
    out = observation.values.get("out")
    if isinstance(out, torch.Tensor):
        out = [round(value, 3) for value in out.double().flatten().tolist()]
    return f"{out}{observation.problem and observation.problem.error};"


# ---- a language model to write with -----------------------------------------------------------------


def _scores(draw: Draw, vocabulary: int, eos_id: int, ending: float) -> torch.Tensor:
    """Scores [place, token there, next token] of which none has two best: which is taken, no contract says."""
    while True:
        scores = draw.normal(8, vocabulary, vocabulary)
        scores[:, :, eos_id] += ending
        best = scores.topk(2).values
        if (best[..., 0] > best[..., 1]).all():
            return scores


def writing_case(draw: Draw, ending: float = 0.4, **more: Any) -> Case:
    """A model whose next token depends on the whole prefix; `ending` favours eos at every place alike."""
    vocabulary = draw.size(6, 7)
    bos_id, eos_id = (int(i) for i in draw.rng.permutation(np.arange(vocabulary))[:2])
    scores = _scores(draw, vocabulary, eos_id, ending)
    model = {"$": "scores of next tokens", "scores": scores, "bos_id": bos_id}
    max_len = more.pop("max_len", None) or draw.size(4, 6)
    return Case("function", {"args": [model, bos_id, eos_id], "kwargs": more | {"max_len": max_len}})
