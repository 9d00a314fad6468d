"""Special probes of chapter 03: a function that measures by chance is judged by many of its answers."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from transformer_lab.checking.probes.core import probe
from transformer_lab.checking.probes.problems import Trouble


@probe("variance")
def _variance(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: d_k, samples, seeds (None: no generator). Reports both numbers, averaged over the seeds."""
    pairs = [_measure(symbol, inputs["d_k"], inputs["samples"], seed) for seed in inputs["seeds"]]
    values["raw"], values["scaled"] = (statistics.fmean(column) for column in zip(*pairs, strict=True))


@probe("variance repeats")
def _repeats(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: d_k, samples, seed. Equal generators must give equal numbers, whatever the global seed.

    More than one more run each, since two single numbers may agree by chance.
    """
    d_k, samples, seed = inputs["d_k"], inputs["samples"], inputs["seed"]
    first = _measure(symbol, d_k, samples, seed)
    torch.manual_seed(1)
    again = [_measure(symbol, d_k, samples, seed) for _ in range(2)]
    others = [_measure(symbol, d_k, samples, seed + more) for more in range(1, 5)]
    values["repeatable"] = all(first == numbers for numbers in again)
    values["follows_generator"] = any(first != numbers for numbers in others)


@probe("variance spread")
def _spread(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: d_k, few, many, seeds, factor. More samples must make the numbers scatter less, by `factor`."""
    few, many = (
        statistics.pstdev(_measure(symbol, inputs["d_k"], samples, seed)[0] for seed in inputs["seeds"])
        for samples in (inputs["few"], inputs["many"])
    )
    values["steadier"] = few > inputs["factor"] * many


@probe("variance scatter")
def _scatter(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: d_k, samples, start (the first seed), runs, low, high.

    Says for both numbers whether their standard deviation over the runs lies between `low` and `high` means.
    """
    seeds = range(inputs["start"], inputs["start"] + inputs["runs"])
    pairs = [_measure(symbol, inputs["d_k"], inputs["samples"], seed) for seed in seeds]
    numbers = torch.tensor(pairs, dtype=torch.float64)
    mean, spread = numbers.mean(0).abs(), numbers.std(0, correction=0)
    within = (inputs["low"] * mean < spread) & (spread < inputs["high"] * mean)
    values["raw_scatters"], values["scaled_scatters"] = within.tolist()


def _measure(symbol: Any, d_k: int, samples: int, seed: int | None) -> tuple[float, float]:
    """Call the learner's function once and return its two numbers (floats, or tensors of one element)."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    keywords = {} if generator is None else {"generator": generator}
    result = symbol(d_k, samples, **keywords)
    if result is None:
        raise Trouble("none", "The function returns None. Is a return statement missing?")
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Trouble("type", "Return two numbers: return raw, scaled.")
    return _number("raw", result[0]), _number("scaled", result[1])


def _number(name: str, value: Any) -> float:
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise Trouble(
            "shape",
            "{name} has shape {shape}; it should be one number, a variance.",
            name=name,
            shape=list(value.shape),
        )
    return float(value)
