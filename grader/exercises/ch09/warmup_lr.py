"""9.1 warmup_lr: the learning rate of one step, counted from 1, a float."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch  # noqa: F401  (a mistake makes a tensor)

from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(step, d_model, warmup):
    """In logarithms: the smaller of two straight lines."""
    rising, falling = math.log(step) - 1.5 * math.log(warmup), -0.5 * math.log(step)
    return float(np.exp(min(rising, falling) - 0.5 * math.log(d_model)))


def warmup_lr(step, d_model, warmup):
    rising = step * warmup**-1.5
    falling = step**-0.5
    return d_model**-0.5 * min(rising, falling)


def two_cases(step, d_model, warmup):
    if step < warmup:
        return step / (math.sqrt(d_model) * warmup * math.sqrt(warmup))
    return 1 / math.sqrt(d_model * step)


def peak_times_a_shape(step, d_model, warmup):
    peak = (d_model * warmup) ** -0.5
    return peak * min(step / warmup, (warmup / step) ** 0.5)


def by_numpy(step, d_model, warmup):
    return float(np.power(float(d_model), -0.5) * np.minimum(step**-0.5, step * warmup**-1.5))


# ---- rows -------------------------------------------------------------------------------------------
# No row about devices: plain numbers go in and one comes out.


def _cases(where: str) -> Callable[[Draw], list[Case]]:
    """Steps before, at or after the peak; sizes for which all wrong powers differ clearly."""

    def cases(draw: Draw) -> list[Case]:
        found = []
        for _round in range(2):
            d, warmup = draw.choice([48, 96, 192, 320]), draw.choice([60, 250, 400, 1000])
            step = {
                "first": 1,
                "rising": draw.size(warmup // 4, warmup // 2),
                "peak": warmup,
                "falling": warmup * draw.size(3, 6) + draw.size(1, 9),
            }[where]
            found.append(Case("function", {"args": [step, d, warmup]}))
        return found

    return cases


EXACT = Tolerance(atol=0.0, rtol=1e-5)  # rates are small numbers

ROWS = (
    Row(
        "rising",
        "before the peak the rate grows in proportion to the step",
        _cases("rising"),
        weight=2,
        tolerance=EXACT,
    ),
    Row("falling", "after the peak it falls like 1 / √step", _cases("falling"), weight=2, tolerance=EXACT),
    Row("peak", "at step = warmup it is 1 / √(d_model · warmup)", _cases("peak"), tolerance=EXACT),
    Row("first", "step 1 is the first step, and its rate is not 0", _cases("first"), tolerance=EXACT),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "max",
        "You take the larger of the two terms; the smaller one is meant. Before the peak step^-0.5 is huge: the rate "
        "would start at its highest, which warmup is there to prevent.",
        "min(",
        "max(",
    ),
    edit(
        "times root d",
        "You multiply by √d_model; the formula divides by it (d_model^-0.5). Wide models need smaller steps.",
        "d_model**-0.5",
        "d_model**0.5",
    ),
    edit(
        "no width",
        "d_model does not enter. The whole is multiplied by d_model^-0.5.",
        "d_model**-0.5 * ",
        "",
    ),
    edit(
        "divided by d",
        "You divide by d_model; the formula divides by its square root.",
        "d_model**-0.5 * min(rising, falling)",
        "min(rising, falling) / d_model",
    ),
    edit(
        "warmup to -0.5",
        "The rising term is step · warmup^-0.5 here; the exponent is -1.5. Then both terms are equal at step = warmup, "
        "and the curve has its peak there.",
        "warmup**-1.5",
        "warmup**-0.5",
    ),
    edit(
        "share of warmup",
        "The rising term is step / warmup, which reaches 1 at the peak. It must reach warmup^-0.5 there, where the "
        "falling term begins: step · warmup^-1.5.",
        "step * warmup**-1.5",
        "step / warmup",
    ),
    edit(
        "falls too fast",
        "The falling term is 1 / step; the formula has 1 / √step, which falls more slowly.",
        "step**-0.5",
        "1 / step",
    ),
    edit(
        "never falls",
        "The rate stays at its peak after the warmup. It should fall like 1 / √step.",
        "step**-0.5",
        "warmup**-0.5",
    ),
    edit(
        "only rising",
        "The rate grows for ever: the term that falls, step^-0.5, never takes over. Take the smaller of the two terms, "
        "and look at the signs of their exponents.",
        "min(rising, falling)",
        "rising",
    ),
    edit(
        "only falling",
        "The rate is step^-0.5 from the first step on: no warmup at all. The rising term, step · warmup^-1.5, must be "
        "the smaller one at first.",
        "min(rising, falling)",
        "falling",
    ),
    edit(
        "product",
        "The two terms are multiplied; the smaller of the two is meant.",
        "min(rising, falling)",
        "rising * falling",
    ),
    edit(
        "sum",
        "The two terms are added; the smaller of the two is meant.",
        "min(rising, falling)",
        "(rising + falling)",
    ),
    edit(
        "from zero",
        "You add 1 to the step. Steps are counted from 1 already, so nothing has to be added.",
        "    rising =",
        "    step = step + 1\n    rising =",
    ),
    edit(
        "arguments swapped",
        "d_model and warmup have changed places.",
        "warmup**-1.5",
        "d_model**-1.5",
        "d_model**-0.5",
        "warmup**-0.5",
    ),
    edit(
        "tensor",
        "You return a tensor. An optimizer's rate is an ordinary float; plain Python numbers are enough.",
        "d_model**-0.5",
        "torch.tensor(float(d_model)) ** -0.5",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="9.1",
    symbol="warmup_lr",
    kind="function",
    parameters=("step", "d_model", "warmup"),
    points=4,
    todos=("9.1",),
    rows=ROWS,
    reference=reference,
    answer=warmup_lr,
    mistakes=MISTAKES,
    alternatives=(two_cases, peak_times_a_shape, by_numpy),
    spoken={"out": _("the rate")},
    hints={
        "9.1": (
            _(
                "One of the two terms grows with the step, the other falls. What does the smaller of them look like "
                "over time?"
            ),
            _("step, d_model and warmup are plain numbers. Which exponents do they carry in the formula?"),
            _("width factor times min(falling term, rising term), with ** for powers"),
        ),
    },
)
