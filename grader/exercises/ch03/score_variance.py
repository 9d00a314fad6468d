"""3.7 score_variance: how far scores of random vectors scatter, before and after the division by √d_k."""

from __future__ import annotations

import math

import torch

from grader.exercises.draw import Draw
from grader.exercises.edits import edit, whole
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(d_k, samples, generator=None):
    """The exact variances, with a trace of chance so that they behave as measured ones do."""
    trace = 1e-3 * torch.randn(2, generator=generator, dtype=torch.float64) / math.sqrt(samples)
    return float(d_k * (1 + trace[0])), float(1 + trace[1])


def score_variance(d_k, samples, generator=None):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=-1)  # [samples]
    scaled = scores / math.sqrt(d_k)
    return scores.var().item(), scaled.var().item()


def tensors_einsum(d_k, samples, generator=None):
    q, k = torch.randn(2, samples, d_k, generator=generator, dtype=torch.float64)
    scores = torch.einsum("sd,sd->s", q, k)
    return scores.var(unbiased=False), (scores / d_k**0.5).var(unbiased=False)


def in_blocks_by_squares(d_k, samples, generator=None):
    """Mean of squares minus square of the mean, in blocks of 50 pairs."""
    raw = []
    for start in range(0, samples, 50):
        size = min(50, samples - start)
        q, k = torch.randn(size, d_k, generator=generator), torch.randn(size, d_k, generator=generator)
        raw += (q * k).sum(-1).tolist()
    mean = sum(raw) / samples
    variance = sum(s * s for s in raw) / samples - mean**2
    return variance, variance / d_k


def all_pairs(d_k, samples, generator=None):
    """Every query against every key."""
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = q @ k.T
    return scores.var(), (scores * d_k**-0.5).var()


def bmm(d_k, samples, generator=None):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = torch.bmm(q[:, None], k[:, :, None]).flatten()
    return torch.var(scores).item(), torch.square(torch.std(scores / math.sqrt(d_k))).item()


# ---- rows -------------------------------------------------------------------------------------------
# None asks where tensors stand: no tensor goes in.

# 200 calls of 500 samples: 100 000 products, whose variance scatters by √(2.17 / 100 000) = 0.5 %. The
# tolerance of 4 % is more than eight times that: chance fails a right answer less than once in 10^15 runs.
CALLS, SAMPLES, ABOUT = 200, 500, Tolerance(atol=0.0, rtol=0.04)
FEW_CALLS, ROUGHLY = 40, Tolerance(atol=0.0, rtol=0.12)  # the same certainty with a fifth of the samples


def _case(draw: Draw, seeded: bool = True) -> Case:
    start = draw.size(0, 10**6)
    seeds = [start + i for i in range(CALLS)] if seeded else [None] * FEW_CALLS
    return Case("variance", {"d_k": draw.choice([36, 42, 49]), "samples": SAMPLES, "seeds": seeds})


def _mean(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _repeats(draw: Draw) -> list[Case]:
    return [Case("variance repeats", {"d_k": draw.size(5, 9), "samples": 20, "seed": draw.size(0, 10**6)})]


def _more_samples(draw: Draw) -> list[Case]:
    """128 times the samples: right answers scatter about √128 = 11 times less; 3 times is asked for."""
    start = draw.size(0, 10**6)
    sizes = {"d_k": draw.size(6, 8), "few": 8, "many": 1024, "factor": 3.0}
    return [Case("variance spread", sizes | {"seeds": list(range(start, start + 60))})]


def _no_generator(draw: Draw) -> list[Case]:
    return [_case(draw, seeded=False)]


ROWS = (
    Row(
        "raw",
        "raw, the variance of q·k, is about d_k (mean of 200 runs, within 4 %)",
        _mean,
        looks=("raw",),
        weight=2,
        tolerance=ABOUT,
    ),
    Row(
        "scaled",
        "scaled, the variance of q·k / √d_k, is about 1 (mean of 200 runs, within 4 %)",
        _mean,
        looks=("scaled",),
        weight=2,
        tolerance=ABOUT,
    ),
    Row(
        "repeats",
        "equal generators give equal numbers, and another seed gives others",
        _repeats,
        looks=("repeatable", "follows_generator"),
        needs=("raw",),
    ),
    Row(
        "samples",
        "more samples make the numbers steadier",
        _more_samples,
        looks=("steadier",),
        needs=("raw",),
    ),
    Row(
        "no generator",
        "it works without a generator as well",
        _no_generator,
        looks=("raw", "scaled"),
        needs=("raw", "scaled"),
        tolerance=ROUGHLY,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

Q = "    q = torch.randn(samples, d_k, generator=generator)\n"
K = "    k = torch.randn(samples, d_k, generator=generator)\n"


def variance_not_measured(d_k, samples, generator=None):
    return float(d_k), 1.0


MISTAKES = (
    edit(
        "not scaled",
        "Both numbers are the variance of q·k. The second is that of q·k / √d_k.",
        " / math.sqrt(d_k)",
        "",
    ),
    edit(
        "scaled by d_k",
        "The scores are divided by d_k, which divides their variance by d_k². Divide the scores by √d_k.",
        "math.sqrt(d_k)",
        "d_k",
    ),
    edit("multiplied", "The scores are multiplied by √d_k; divide them by it.", "/ math", "* math"),
    edit(
        "scaled by √samples",
        "The scores are divided by the root of the number of samples. The width d_k is what makes them large.",
        "math.sqrt(d_k)",
        "math.sqrt(samples)",
    ),
    edit(
        "standard deviation",
        "These are standard deviations, the roots of the variances: use var, not std.",
        "scores.var()",
        "scores.std()",
        "scaled.var()",
        "scaled.std()",
    ),
    edit(
        "both scaled",
        "Both numbers are measured after scaling. The first is the variance of q·k as it is.",
        "scores.var()",
        "scaled.var()",
    ),
    edit(
        "mean product",
        "You take the mean of the d_k products. A dot product is their sum.",
        ".sum(dim=-1)",
        ".mean(dim=-1)",
    ),
    edit(
        "not summed",
        "The products q_i k_i are not summed, so this is the variance of single products. Sum over the d_k features "
        "first: one score a sample.",
        ".sum(dim=-1)",
        "",
    ),
    edit(
        "q @ k",
        "q @ k is a product of matrices, and these shapes do not fit. One score a pair is wanted: multiply q and k "
        "number by number, then sum over the features.",
        "(q * k).sum(dim=-1)",
        "q @ k",
    ),
    edit(
        "summed over samples",
        "The products are summed over the samples. A score is the sum over the features, the last axis.",
        "dim=-1",
        "dim=0",
    ),
    edit(
        "q with itself",
        "q and k are the same numbers (one draw, or two generators with one seed): q·q has twice the variance. "
        "Draw k after q, from the same generator.",
        K,
        "    k = q\n",
    ),
    edit(
        "uniform 0 to 1",
        "torch.rand draws from 0 to 1. The argument needs mean 0 and variance 1: torch.randn.",
        "q = torch.randn",
        "q = torch.rand",
        "k = torch.randn",
        "k = torch.rand",
    ),
    edit(
        "uniform -1 to 1",
        "Numbers spread evenly from -1 to 1 have variance 1/3. The argument needs variance 1: torch.randn.",
        Q,
        "    q = 2 * torch.rand(samples, d_k, generator=generator) - 1\n",
        K,
        "    k = 2 * torch.rand(samples, d_k, generator=generator) - 1\n",
    ),
    edit(
        "swapped results",
        "The two numbers stand in the wrong order: return raw, scaled.",
        "scores.var().item(), scaled.var().item()",
        "scaled.var().item(), scores.var().item()",
    ),
    whole(
        "not measured",
        "The numbers do not depend on the generator. Are they written down rather than measured, or is a seed set "
        "inside? Draw q and k with generator=generator.",
        variance_not_measured,
    ),
    edit(
        "generator ignored",
        "Equal generators gave different numbers. Pass it to every draw: torch.randn(…, generator=generator).",
        Q,
        "    q = torch.randn(samples, d_k)\n",
        K,
        "    k = torch.randn(samples, d_k)\n",
    ),
    edit(
        "generator required",
        "Without a generator it stops. torch.randn accepts generator=None, so hand it on as it is.",
        Q,
        f"    generator = torch.Generator().manual_seed(generator.initial_seed())\n{Q}",
    ),
    edit(
        "samples ignored",
        "The number of samples is not used: 8 and 1024 give numbers that scatter alike.",
        "q = torch.randn(samples",
        "q = torch.randn(1000",
        "k = torch.randn(samples",
        "k = torch.randn(1000",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="3.7",
    symbol="score_variance",
    kind="function",
    parameters=("d_k", "samples", "generator"),
    points=4,
    todos=("3.7",),
    rows=ROWS,
    reference=reference,
    answer=score_variance,
    mistakes=MISTAKES,
    alternatives=(tensors_einsum, in_blocks_by_squares, all_pairs, bmm),
    spoken={
        "repeatable": _("“equal generators give equal numbers”"),
        "follows_generator": _("“another seed gives other numbers”"),
        "steadier": _("“1024 samples scatter less than 8”"),
    },
    hints={
        "3.7": (
            _("How would you find out by experiment how far the scores of random vectors scatter?"),
            _("q and k: [samples, d_k], drawn from a normal distribution → q·k: [samples] → two numbers."),
            _(
                "draw q, then k, both with the generator; scores = the sum of their products over the features; give the "
                "variance of the scores, and the variance of the scores over the root of d_k"
            ),
        )
    },
)
