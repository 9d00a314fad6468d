"""6.4 gelu: x times the share of a bell curve that lies to the left of x, with erf."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from grader.exercises import rows
from grader.exercises.ch06._common import EXACT
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(x):
    """torch's own function, exact form."""
    return F.gelu(x, approximate="none")


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def ndtr(x):
    return torch.special.ndtr(x) * x


def erfc(x):
    return x * 0.5 * torch.erfc(-x * 2**-0.5)


def normal_cdf(x):
    zero = torch.zeros((), dtype=x.dtype)
    return torch.mul(x, torch.distributions.Normal(zero, zero + 1, validate_args=False).cdf(x))


def step_by_step(x):
    root = torch.sqrt(torch.tensor(2.0, dtype=x.dtype, device=x.device))
    phi = (1 + torch.erf(x / root)) / 2
    return phi.mul(x)


# ---- rows -------------------------------------------------------------------------------------------


def _input(draw: Draw, *shape: int) -> torch.Tensor:
    return draw.uniform(*shape, low=-3.6, high=3.6)


def _values(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_input(draw, *shape)]}) for shape in ((3, 11), (4, 4))]


def _any_shape(draw: Draw) -> list[Case]:
    shapes = ((), (5,), (2, 3, 4), (1, 1))
    return [Case("function", {"args": [_input(draw, *shape)]}) for shape in shapes]


def _far_out(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [torch.tensor([-1e4, -60.0, -12.0, 0.0, 12.0, 60.0, 1e4])]})]


def _gradient(draw: Draw) -> list[Case]:
    x = _input(draw, 4, 7)
    return [Case("function", {"args": [x], "wrt": ["0"], "cotangents": [draw.normal(4, 7)]})]


def _one_axis(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_input(draw, 9)]})]


TIGHT = Tolerance(atol=2e-6, rtol=2e-6)  # the tanh form is only 0.0005 away at most
VALUES = ("values",)

ROWS = (
    Row("values", "gelu(x) is x · Φ(x), with Φ by erf", _values, looks=("out",), weight=3, tolerance=TIGHT),
    Row("any shape", "x may have any shape", _any_shape, looks=("out",), needs=VALUES, tolerance=TIGHT),
    Row(
        "far out",
        "far to the left it is 0, far to the right x itself, never NaN",
        _far_out,
        looks=("out",),
        needs=VALUES,
    ),
    Row("gradient", "the gradient is right", _gradient, looks=("grad.0",), needs=VALUES),
    rows.input_kept(_values, needs=VALUES),
    rows.float64(_one_axis, needs=VALUES, tolerance=EXACT, weight=0.5),
    rows.device(_values, needs=VALUES, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

WHOLE = "0.5 * x * (1 + torch.erf(x / math.sqrt(2)))"

MISTAKES = (
    edit(
        "tanh form",
        "This is the approximation by tanh, up to 0.0005 away. The exact form with torch.erf is asked for.",
        "torch.erf(x / math.sqrt(2))",
        "torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))",
    ),
    edit(
        "sigmoid form",
        "This is the rough approximation x · sigmoid(1.702 x). The exact form with torch.erf is asked for.",
        WHOLE,
        "x * torch.sigmoid(1.702 * x)",
    ),
    edit(
        "SiLU",
        "x · sigmoid(x) is SiLU. GELU weighs x by Φ(x), with erf.",
        WHOLE,
        "x * torch.sigmoid(x)",
    ),
    edit(
        "ReLU",
        "This is ReLU. GELU bends softly: gelu(−0.5) is −0.154, not 0.",
        WHOLE,
        "torch.relu(x)",
    ),
    edit(
        "no √2",
        "erf is taken of x. Φ(x) needs erf(x / √2), since erf belongs to a bell curve of variance ½.",
        "x / math.sqrt(2)",
        "x",
    ),
    edit(
        "times √2",
        "x is multiplied by √2 inside erf. Divide by it.",
        "x / math.sqrt(2)",
        "x * math.sqrt(2)",
    ),
    edit("over 2", "x is divided by 2 inside erf. Divide by √2.", "math.sqrt(2)", "2"),
    edit("no ½", "The factor ½ is missing: far to the right you get 2x and not x.", "0.5 * x", "x"),
    edit(
        "no 1 +",
        "The 1 is missing in ½ (1 + erf(…)): far to the left you get −x/2 and not 0.",
        "1 + ",
        "",
    ),
    edit("only Φ", "This is Φ(x) alone. Multiply it by x.", "0.5 * x", "0.5"),
    edit("minus", "The sign before erf is wrong: your curve lets negative numbers through.", "1 +", "1 -"),
    edit(
        "density",
        "x is weighed by the height of the bell curve. Φ is the area under it, from the far left up to x.",
        WHOLE,
        "x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)",
    ),
    edit(
        "bracket",
        "A bracket is missing: ½ x multiplies the whole of (1 + erf(…)).",
        "x * (1 + torch.erf(x / math.sqrt(2)))",
        "x + torch.erf(x / math.sqrt(2))",
    ),
    edit("math.erf", "math.erf takes one number. torch.erf takes a whole tensor.", "torch.erf", "math.erf"),
    edit(
        "torch.sqrt of a number",
        "torch.sqrt wants a tensor. For the plain number 2, math.sqrt(2) or 2 ** 0.5 does it.",
        "math.sqrt",
        "torch.sqrt",
    ),
    edit(
        "in place",
        "x itself is changed. Make a new tensor.",
        f"return {WHOLE}",
        f"out = {WHOLE}\n    with torch.no_grad():\n        x.copy_(out)\n    return out",
    ),
    edit(
        "detached",
        "No gradient flows through erf (detach or no_grad). Φ(x) depends on x, too.",
        "torch.erf(x ",
        "torch.erf(x.detach() ",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device.",
        "1 + ",
        "torch.ones(x.shape) + ",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

LIBRARY = _("The library's gelu does the whole exercise. Write the formula with torch.erf.")

EXERCISE = Exercise(
    id="6.4",
    symbol="gelu",
    kind="function",
    parameters=("x",),
    points=3,
    todos=("6.4",),
    rows=ROWS,
    reference=reference,
    answer=gelu,
    mistakes=MISTAKES,
    alternatives=(ndtr, erfc, normal_cdf, step_by_step),
    spoken={"out": _("gelu(x)"), "grad.0": _("the gradient of x")},
    forbidden={"gelu": LIBRARY, "GELU": LIBRARY},
    hints={
        "6.4": (
            _(
                "Which share of a bell curve lies to the left of x: near 0 for x = −3, ½ for x = 0, near 1 for x = 3?"
            ),
            _("Φ(x) has the shape of x: ½ · (1 + erf(x / √2)). torch.erf works number by number."),
            _("x times half of (one plus erf of (x over the root of two))"),
        )
    },
)
