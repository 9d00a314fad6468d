"""6.5 SwiGLU: w2(silu(w1 x) ⊙ w3 x), without biases; d_ff is 8 · d_model // 3 unless given."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises import rows
from grader.exercises.ch06._common import EXACT, LOOSE, SPOKEN, with_gradient
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


class Reference(nn.Module):
    """One fused product for gate and up, and silu written out: z / (1 + e^(-z))."""

    def __init__(self, d_model, d_ff=None):
        super().__init__()
        d_ff = (8 * d_model) // 3 if d_ff is None else d_ff
        self.w1, self.w3 = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_model, d_ff, bias=False)
        self.w2 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        gate, up = (x @ torch.cat([self.w1.weight, self.w3.weight]).mT).chunk(2, dim=-1)
        return (gate / (1 + torch.exp(-gate)) * up) @ self.w2.weight.mT


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff=None):
        super().__init__()
        if d_ff is None:
            d_ff = 8 * d_model // 3
        self.w1 = nn.Linear(d_model, d_ff, bias=False)
        self.w3 = nn.Linear(d_model, d_ff, bias=False)
        self.w2 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        inner = F.silu(self.w1(x)) * self.w3(x)
        return self.w2(inner)


class OneStepALine(SwiGLU):
    def __init__(self, d_model, d_ff=None):
        super().__init__(d_model, int(8 * d_model / 3) if d_ff is None else d_ff)

    def forward(self, x):
        gate = self.w1(x)
        gate = gate * torch.sigmoid(gate)
        return F.linear(gate.mul(self.w3(x)), self.w2.weight)


class Einsum(SwiGLU):
    def __init__(self, d_model, d_ff=None):
        super().__init__(d_model, math.floor(d_model * 8 / 3) if d_ff is None else d_ff)

    def forward(self, x):
        gate = nn.SiLU()(torch.einsum("...d,fd->...f", x, self.w1.weight))
        up = torch.einsum("...d,fd->...f", x, self.w3.weight)
        return torch.einsum("...f,...f,df->...d", gate, up, self.w2.weight)


class DffOr(nn.Module):
    """`d_ff or …` for the default."""

    def __init__(self, d_model, d_ff=None):
        super().__init__()
        d_ff = d_ff or d_model * 8 // 3
        self.w1, self.w2, self.w3 = (
            nn.Linear(a, b, bias=False) for a, b in ((d_model, d_ff), (d_ff, d_model), (d_model, d_ff))
        )

    def forward(self, x):
        return self.w2(self.w3(x) * F.silu(self.w1(x)))


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, front: tuple[int, ...] = (), sizes: dict[str, int] | None = None) -> Case:
    sizes = sizes or draw.sizes(B=(2, 3), n=(4, 5), d=(6, 8), d_ff=(11, 14))
    d, d_ff = sizes["d"], sizes["d_ff"]
    weights = {
        "w1.weight": draw.normal(d_ff, d, scale=0.6),
        "w2.weight": draw.normal(d, d_ff, scale=0.6),
        "w3.weight": draw.normal(d_ff, d, scale=0.6),
    }
    x = draw.normal(*(front or (sizes["B"], sizes["n"])), d)
    return Case("module", {"make": {"args": [d, d_ff]}, "weights": weights, "call": {"args": [x]}})


def _one(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _two(draw: Draw) -> list[Case]:
    return [_case(draw), _case(draw)]


def _values(draw: Draw) -> list[Case]:
    """Beside axes of different lengths: equal ones, where code that finds an axis by its length goes wrong."""
    all_equal = dict.fromkeys(("B", "n", "d", "d_ff"), draw.size(4, 6))
    return [
        *_two(draw),
        _case(draw, sizes={"B": 4, "n": 4, "d": 7, "d_ff": 11}),
        _case(draw, sizes=all_equal),
    ]


def _parameters(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [draw.size(5, 7), draw.size(11, 13)]}})]


def _default_width(draw: Draw) -> list[Case]:
    """8d / 3 with a remainder of 1 and of 2, so that every way to round shows."""
    return [Case("module", {"make": {"args": [d]}}) for d in (draw.choice([8, 11, 14]), draw.choice([7, 10]))]


def _any_axes(draw: Draw) -> list[Case]:
    return [_case(draw, front) for front in ((4,), (1, 1), (2, 3, 5))]


def _gradient(draw: Draw) -> list[Case]:
    return [with_gradient(_case(draw), draw)]


VALUES = ("values",)

ROWS = (
    Row("values", "forward(x) is w2(silu(w1(x)) · w3(x))", _values, looks=("out",), weight=3),
    Row(
        "parameters",
        "w1 and w3 widen, w2 narrows, none has a bias",
        _parameters,
        looks=("parameters", "buffers"),
        needs=VALUES,
    ),
    Row(
        "default width",
        "d_ff is 8 · d_model // 3 when it is not given",
        _default_width,
        looks=("parameters",),
        needs=VALUES,
    ),
    Row(
        "any axes",
        "x may have any axes in front of d, and a batch or a sequence of 1",
        _any_axes,
        looks=("out",),
        needs=VALUES,
    ),
    Row(
        "gradient",
        "the gradients of x and of all weights are right",
        _gradient,
        looks=("grad.*",),
        needs=VALUES,
        tolerance=LOOSE,
    ),
    rows.input_kept(_two, needs=VALUES),
    rows.float64(_one, needs=VALUES, tolerance=EXACT, weight=0.5),
    rows.device(_one, needs=VALUES, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

INNER = "F.silu(self.w1(x)) * self.w3(x)"
DEFAULT = "        if d_ff is None:\n            d_ff = 8 * d_model // 3\n"

MISTAKES = (
    edit(
        "gate and up swapped",
        "silu is applied to w3(x). w1 is the gate: silu(w1(x)) · w3(x).",
        INNER,
        "self.w1(x) * F.silu(self.w3(x))",
    ),
    edit(
        "GLU",
        "The gate is a plain sigmoid: that is GLU. SwiGLU's is silu(z) = z · sigmoid(z).",
        "F.silu",
        "torch.sigmoid",
    ),
    edit("GEGLU", "The gate is GELU: that is GEGLU. SwiGLU's is silu.", "F.silu", "F.gelu"),
    edit("ReGLU", "The gate is ReLU: that is ReGLU. SwiGLU's is silu.", "F.silu", "torch.relu"),
    edit("bilinear", "Nothing bends: the gate w1(x) needs silu.", INNER, "self.w1(x) * self.w3(x)"),
    edit("adds the gate", "Gate and up are added. A gate multiplies.", ") * self.w3", ") + self.w3"),
    edit(
        "silu of the product",
        "silu is applied to the product. It bends the gate alone.",
        INNER,
        "F.silu(self.w1(x) * self.w3(x))",
    ),
    edit(
        "silu of both",
        "silu is applied to both. It bends the gate w1(x) alone.",
        "self.w3(x)",
        "F.silu(self.w3(x))",
    ),
    edit(
        "no up",
        "w3 is not used: the gate silu(w1(x)) has nothing to open or close.",
        " * self.w3(x)",
        "",
    ),
    edit(
        "silu last",
        "silu is applied to the output. It belongs on the gate w1(x).",
        INNER,
        "self.w1(x) * self.w3(x)",
        "self.w2(inner)",
        "F.silu(self.w2(inner))",
    ),
    edit(
        "residual",
        "x is added at the end. The residual belongs to Add & Norm, around this block.",
        "self.w2(inner)",
        "x + self.w2(inner)",
    ),
    edit(
        "bias",
        "The three linear layers have no bias: nn.Linear(…, bias=False).",
        "w1 = nn.Linear(d_model, d_ff, bias=False)",
        "w1 = nn.Linear(d_model, d_ff)",
        "w3 = nn.Linear(d_model, d_ff, bias=False)",
        "w3 = nn.Linear(d_model, d_ff)",
        "w2 = nn.Linear(d_ff, d_model, bias=False)",
        "w2 = nn.Linear(d_ff, d_model)",
    ),
    edit(
        "four times",
        "The default inner width is 4d. With three matrices it is 8d // 3, so that the block is no larger.",
        "8 * d_model // 3",
        "4 * d_model",
    ),
    edit(
        "rounds",
        "8 · d / 3 is rounded to the nearest; // cuts the rest off.",
        "8 * d_model // 3",
        "round(8 * d_model / 3)",
    ),
    edit(
        "rounds up",
        "8 · d / 3 is rounded up; // cuts the rest off.",
        "8 * d_model // 3",
        "math.ceil(8 * d_model / 3)",
    ),
    edit(
        "a third first",
        "d // 3 · 8 cuts off too early. Multiply first: 8 · d // 3.",
        "8 * d_model // 3",
        "d_model // 3 * 8",
    ),
    edit(
        "no default",
        "When d_ff is not given it is None, and nn.Linear wants a number: first replace None by 8 · d_model // 3.",
        DEFAULT,
        "",
    ),
    edit(
        "float width",
        "/ gives a float such as 21.33, and a width is a whole number: divide with //.",
        "8 * d_model // 3",
        "8 * d_model / 3",
    ),
    edit(
        "width ignored",
        "d_ff is not used when it is given.",
        DEFAULT,
        "        d_ff = 8 * d_model // 3\n",
    ),
    edit(
        "w2 up, w3 down",
        "w2 and w3 have changed places. The names are Llama's: w1 gate, w3 up, w2 down.",
        "self.w3 = nn.Linear(d_model, d_ff, bias=False)",
        "self.w2 = nn.Linear(d_model, d_ff, bias=False)",
        "self.w2 = nn.Linear(d_ff, d_model, bias=False)",
        "self.w3 = nn.Linear(d_ff, d_model, bias=False)",
        "self.w3(x)",
        "self.w2(x)",
        "self.w2(inner)",
        "self.w3(inner)",
    ),
    edit(
        "other names",
        "The contract calls them w1 (gate), w3 (up) and w2 (down).",
        "self.w1 =",
        "self.gate_proj =",
        "self.w3 =",
        "self.up_proj =",
        "self.w2 =",
        "self.down_proj =",
        INNER,
        "F.silu(self.gate_proj(x)) * self.up_proj(x)",
        "self.w2(inner)",
        "self.down_proj(inner)",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device.",
        f"        inner = {INNER}\n",
        "        gate = self.w1(x)\n"
        "        gate = gate / (torch.ones(gate.shape) + torch.exp(-gate))\n"
        "        inner = gate * self.w3(x)\n",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="6.5",
    symbol="SwiGLU",
    kind="module class",
    parameters=("d_model", "d_ff"),
    points=4,
    todos=("6.5",),
    rows=ROWS,
    reference=Reference,
    answer=SwiGLU,
    mistakes=MISTAKES,
    alternatives=(OneStepALine, Einsum, DffOr),
    spoken=SPOKEN,
    hints={
        "6.5": (
            _(
                "Two paths lead up from x. One decides how much of the other comes through. Which one is bent?"
            ),
            _(
                "w1(x) and w3(x) are […, d_ff]; their product, number by number, is […, d_ff]; w2 makes […, d_model] of it."
            ),
            _("the gate: F.silu of w1 at x; multiply with w3 at x; send the product through w2"),
        )
    },
)
