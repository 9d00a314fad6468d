"""Tables of next tokens made by hand, in which a beam search (8.7) must take one path and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from grader.exercises.draw import Draw
from transformer_lab.checking.probes.core import Case


def _letters(draw: Draw) -> dict[str, int]:
    """Return random tokens for "^" (bos), "." (eos) and the letters of a story."""
    return dict(zip("^.abcdef", draw.rng.permutation(np.arange(9)).tolist(), strict=False))


def _story(token: dict[str, int], branches: dict[str, dict[str, float]], **kwargs: Any) -> Case:
    """A hand-built table: a beginning in letters ("" is the very first) → chances of what comes next."""

    def row(chances: dict[str, float]) -> torch.Tensor:
        rest = (1 - sum(chances.values())) / (9 - len(chances))
        values = torch.full((9,), rest)
        for letter, chance in chances.items():
            values[token[letter]] = chance
        return values

    table = {
        " ".join(str(token[c]) for c in "^" + prefix): row(chances) for prefix, chances in branches.items()
    }
    model = {"$": "table of next tokens", "table": table, "otherwise": row({".": 0.9}), "bos_id": token["^"]}
    return Case("function", {"args": [model, token["^"], token["."]], "kwargs": kwargs})


def missed(draw: Draw) -> list[Case]:
    """Greedy takes "a" (0.5) and ends with 0.15; "bc." has 0.33."""
    branches = {
        "": {"a": 0.5, "b": 0.4, ".": 0.02},
        "a": {"c": 0.34, "d": 0.3, "e": 0.2, ".": 0.02},
        "b": {"c": 0.9, ".": 0.02},
        "ac": {".": 0.88},
        "bc": {".": 0.92},
    }
    return [_story(_letters(draw), branches, width=width, max_len=5) for width in (2, 3)]


def places(draw: Draw) -> list[Case]:
    """Something ends at the first step, and the best sentence per token needs a place later.

    Without a penalty this could not be seen: a sum only falls, so what a finished hypothesis pushes out of
    the beam could never overtake it.
    """
    surer = {"ad": {"e": 0.95}, "ade": {".": 0.95}, "ac": {"e": 0.4, ".": 0.3}}
    strong_end = {"": {"a": 0.5, ".": 0.3, "b": 0.1}, "a": {"c": 0.5, "d": 0.4}} | surer
    weak_end = {"": {"a": 0.7, ".": 0.12, "b": 0.08}, "a": {"c": 0.5, "d": 0.4}} | surer
    third = {
        "": {"a": 0.5, ".": 0.3, "b": 0.15},
        "a": {"c": 0.16, "d": 0.15, "e": 0.14, "f": 0.13},
        "b": {"c": 0.95},
        "bc": {"d": 0.9},
    }
    stories = (strong_end, weak_end, third)
    return [_story(_letters(draw), story, width=2, max_len=5, length_penalty=1.0) for story in stories]


def ties(draw: Draw) -> list[Case]:
    """a and b are equally likely, and the better sentence goes once through a, once through b."""
    cases, token = [], _letters(draw)
    for good, bad in ("ab", "ba"):
        branches = {
            "": {"a": 0.4, "b": 0.4, ".": 0.02},
            good: {"d": 0.7, ".": 0.02},
            bad: {"c": 0.3, "e": 0.3, ".": 0.05},
            good + "d": {".": 0.9},
        }
        cases.append(_story(token, branches, width=2, max_len=4))
    return cases


def cut(draw: Draw) -> list[Case]:
    """The best sentence is still open at max_len; a finished one competes and loses."""
    branches = {
        "": {"a": 0.55, "b": 0.2, ".": 0.15},
        "a": {"c": 0.8, ".": 0.1},
        "ac": {"d": 0.85, ".": 0.05},
        "acd": {"e": 0.9, ".": 0.02},
    }
    return [_story(_letters(draw), branches, width=3, max_len=length) for length in (1, 2, 3)]
