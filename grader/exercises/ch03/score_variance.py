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


def scatter(d_k, samples):
    """How far the variance of `samples` products q·k scatters from run to run, over its mean.

    For numbers with fourth moment κ (over the squared variance), Var(S²) / σ⁴ = (κ − (n − 3) / (n − 1)) / n; for
    q·k, a sum of d_k products of two normal numbers, κ is 3 + 6 / d_k.
    """
    return math.sqrt((3 + 6 / d_k - (samples - 3) / (samples - 1)) / samples)


def reference(d_k, samples, generator=None):
    """The exact variances, by turns as much above and below as measured ones scatter."""
    turn = 0 if generator is None else (-1) ** generator.initial_seed() * scatter(d_k, samples)
    return d_k * (1.0 + turn), 1.0 + turn


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


def bmm(d_k, samples, generator=None):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = torch.bmm(q[:, None], k[:, :, None]).flatten()
    return torch.var(scores).item(), torch.square(torch.std(scores / math.sqrt(d_k))).item()


# ---- rows -------------------------------------------------------------------------------------------
# None asks where tensors stand: no tensor goes in.

# How sure a verdict is, and a name. Below, z is a distance in standard deviations of what is measured; chance goes
# beyond z = 6.2 less than once in 10^9, beyond 7 in 10^11.
#
# raw, scaled: 180 calls of 330 samples are 59 400 products, whose variance scatters by √(2.1 / 59 400) = 0.6 %.
#   A right answer: within 4 %, z = 6.7. A mistake is named when both numbers are within 12 % of its own (three
#   tolerances), whatever numbers it drew. The most scattered is "summed over samples", a variance of d_k sums:
#   √(2 / 59) / √180 = 1.37 % for d_k = 60, two of them √2 · 1.37 = 1.94 % apart, z = 6.2; "not summed" scatters by
#   √(8 / 60 / 59 400) = 0.15 %. No two mistakes agree in both numbers to less than a factor of 2.
# no generator: 40 calls, 1.27 %; within 12 %, z = 9.5.
# repeats: a float32 number of a right answer is the same under another seed once in 10^7. Four more seeds must agree
#   to fail it (10^28), and two more runs to pass "generator ignored" (10^14).
CALLS, SAMPLES, ABOUT = 180, 330, Tolerance(atol=0.0, rtol=0.04)
FEW_CALLS, ROUGHLY = 40, Tolerance(atol=0.0, rtol=0.12)


def _case(draw: Draw, seeded: bool = True) -> Case:
    start = draw.size(0, 10**6)
    seeds = [start + i for i in range(CALLS)] if seeded else [None] * FEW_CALLS
    return Case("variance", {"d_k": draw.choice([60, 62, 64]), "samples": SAMPLES, "seeds": seeds})


def _mean(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _repeats(draw: Draw) -> list[Case]:
    return [Case("variance repeats", {"d_k": draw.size(5, 9), "samples": 20, "seed": draw.size(0, 10**6)})]


def _more_samples(draw: Draw) -> list[Case]:
    """128 times the samples: right answers scatter 12 times less (`scatter`); 3 times is asked for.

    The measured factor has 59 degrees of freedom on both sides. A right answer fails when F exceeds (12 / 3)² = 16,
    less than once in 10^18; "samples ignored", whose factor is 1, passes when F exceeds 9, once in 10^14.
    """
    start = draw.size(0, 10**6)
    sizes = {"d_k": draw.size(6, 8), "few": 8, "many": 1024, "factor": 3.0}
    return [Case("variance spread", sizes | {"seeds": list(range(start, start + 60))})]


# scatter, one feature: how far the numbers scatter from run to run, over how far they should (`scatter`), must lie
#   between 0.7 and 1.4. What answers with the right means give, as found in 2500 to 6000 repetitions (near normal):
#
#                                 340 runs, d_k ≥ 36          380 runs, d_k = 1
#     right                       1.00 ± 0.041   z = 7.2      1.00 ± 0.043   z = 6.9
#     q alone (normal scores)     0.96 ± 0.040   z = 6.5      0.50 ± 0.019   z = 10.7   (right at d_k ≥ 36)
#     std for the scaled          0.50 ± 0.019   z = 10.7     not asked: scatter has failed
#     all pairs                   0.31 ± 0.014   z = 28       not asked
#
#   20 and 100 samples: the fewer, the cheaper, but too few scatter too wildly.


def _scatter(draw: Draw) -> list[Case]:
    return [_scatter_case(draw, draw.choice([36, 42, 49]), samples=20, runs=340)]


def _one_feature(draw: Draw) -> list[Case]:
    return [_scatter_case(draw, d_k=1, samples=100, runs=380)]


def _scatter_case(draw: Draw, d_k: int, samples: int, runs: int) -> Case:
    right = scatter(d_k, samples)
    bounds = {"low": 0.7 * right, "high": 1.4 * right}
    sizes = {"d_k": d_k, "samples": samples, "start": draw.size(0, 10**6), "runs": runs}
    return Case("variance scatter", sizes | bounds)


def _no_generator(draw: Draw) -> list[Case]:
    return [_case(draw, seeded=False)]


ROWS = (
    Row(
        "raw",
        "raw, the variance of q·k, is about d_k (mean of 180 runs, within 4 %)",
        _mean,
        looks=("raw",),
        weight=2,
        tolerance=ABOUT,
    ),
    Row(
        "scaled",
        "scaled, the variance of q·k / √d_k, is about 1 (mean of 180 runs, within 4 %)",
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
        weight=0.5,
    ),
    Row(
        "scatter",
        "from run to run the numbers scatter as the variance of that many independent products q·k does",
        _scatter,
        looks=("raw_scatters", "scaled_scatters"),
        needs=("raw",),
        weight=0.25,
    ),
    Row(
        "one feature",
        "with d_k = 1, vectors of a single number, they scatter as they should, too",
        _one_feature,
        looks=("raw_scatters", "scaled_scatters"),
        needs=("scatter",),
        weight=0.25,
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
    edit(
        "scaled as std",
        "The second number is a standard deviation, the root of the variance. Both are 1 on average, but the second "
        "should be a variance as well: var.",
        "scaled.var()",
        "scaled.std()",
    ),
    edit(
        "q alone",
        "A score is summed from the numbers of one vector only; the other has no part in it. That happens to have the "
        "right variance, too, but a score is the sum of q_i · k_i.",
        "(q * k)",
        "q",
    ),
    edit(
        "all pairs",
        "q @ k.T meets every query with every key: samples² scores that are not independent. The task is one score for "
        "each pair: row i of q with row i of k.",
        "(q * k).sum(dim=-1)",
        "q @ k.T",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

OR_A_TENSOR = "the contract says two numbers; tensors of one element are taken for numbers"
EITHER_VARIANCE = "the contract says variance: divided by n or by n - 1, it does not say"

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
    alternatives=(tensors_einsum, in_blocks_by_squares, bmm),
    equivalent={
        "(q * k).sum(dim=-1) → (q * k).sum(dim=1)": "q and k have two axes",
        "scores.var().item() → scores.var()": OR_A_TENSOR,
        "(scores / math.sqrt(d_k)).var().item() → (scores / math.sqrt(d_k)).var()": OR_A_TENSOR,
        "scores.var() → scores.var(correction=0)": EITHER_VARIANCE,
        "(scores / math.sqrt(d_k)).var() → (scores / math.sqrt(d_k)).var(correction=0)": EITHER_VARIANCE,
    },
    spoken={
        "repeatable": _("“equal generators give equal numbers”"),
        "follows_generator": _("“another seed gives other numbers”"),
        "steadier": _("“1024 samples scatter less than 8”"),
        "raw_scatters": _("“raw scatters from run to run as it should”"),
        "scaled_scatters": _("“scaled scatters from run to run as it should”"),
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
