"""6.1 to 6.3 FeedForward: widens every token to d_ff, bends with ReLU, narrows back to d_model."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: F401 (cells of mistakes use it)
from torch import nn

from grader.exercises import rows
from grader.exercises.ch06._common import EXACT, LOOSE, SPOKEN, ffn_weights, with_gradient
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


class Reference(nn.Module):
    """The formula with plain matrix products: max(0, x W1ᵀ + b1) W2ᵀ + b2."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        inner = (x @ self.linear1.weight.mT + self.linear1.bias).clamp_min(0)
        return inner @ self.linear2.weight.mT + self.linear2.bias


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        inner = torch.relu(self.linear1(x))
        return self.linear2(inner)


class NNSequential(nn.Module):
    """linear1 and linear2 are attributes; nn.Sequential only calls them."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.relu = nn.ReLU()

    def forward(self, x):
        return nn.Sequential(self.linear1, self.relu, self.linear2)(x)


class ReLUInPlaceInside(nn.Module):
    """ReLU in place on the inner tensor, which nobody else sees."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1 = nn.Linear(in_features=d_model, out_features=d_ff)
        self.linear2 = nn.Linear(in_features=d_ff, out_features=d_model)

    def forward(self, x):
        inner = self.linear1(x)
        inner.relu_()
        return self.linear2(inner)


class TokenByToken(FeedForward):
    """A loop over the positions: position-wise, literally."""

    def forward(self, x):
        tokens = [self.linear2(torch.where(u > 0, u, 0 * u)) for u in map(self.linear1, x.unbind(-2))]
        return torch.stack(tokens, dim=-2)


class Einsum(FeedForward):
    def forward(self, x):
        inner = torch.einsum("...d,fd->...f", x, self.linear1.weight) + self.linear1.bias
        inner = torch.maximum(inner, torch.zeros((), dtype=x.dtype))
        return torch.einsum("...f,df->...d", inner, self.linear2.weight) + self.linear2.bias


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, front: tuple[int, ...] = (), sizes: dict[str, int] | None = None) -> Case:
    sizes = sizes or draw.sizes(B=(2, 3), n=(4, 5), d=(6, 8), d_ff=(11, 15))
    d, d_ff = sizes["d"], sizes["d_ff"]
    x = draw.normal(*(front or (sizes["B"], sizes["n"])), d)
    weights = ffn_weights(draw, d, d_ff)
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


def _any_axes(draw: Draw) -> list[Case]:
    return [_case(draw, front) for front in ((4,), (1, 1), (2, 3, 5))]


def _gradient(draw: Draw) -> list[Case]:
    return [with_gradient(_case(draw), draw)]


VALUES = ("values",)

ROWS = (
    Row("values", "forward(x) is linear2(ReLU(linear1(x)))", _values, looks=("out",), weight=3),
    Row(
        "parameters",
        "linear1 widens d_model to d_ff, linear2 narrows it again; both have a bias",
        _parameters,  # needs nothing: 6.1 and 6.2 are worth something without 6.3
        looks=("parameters", "buffers"),
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

MISTAKES = (
    edit(
        "no ReLU",
        "Nothing bends between the two linear maps, so together they are one linear map and d_ff is wasted.",
        "torch.relu(self.linear1(x))",
        "self.linear1(x)",
    ),
    edit(
        "GELU for ReLU",
        "The inner numbers go through GELU; this block uses ReLU: max(0, ·).",
        "torch.relu",
        "F.gelu",
    ),
    edit(
        "SiLU for ReLU",
        "The inner numbers go through SiLU; this block uses ReLU: max(0, ·).",
        "torch.relu",
        "F.silu",
    ),
    edit(
        "sigmoid for ReLU",
        "The inner numbers go through a sigmoid; this block uses ReLU: max(0, ·).",
        "torch.relu",
        "torch.sigmoid",
    ),
    edit(
        "tanh for ReLU",
        "The inner numbers go through tanh; this block uses ReLU: max(0, ·).",
        "torch.relu",
        "torch.tanh",
    ),
    edit(
        "softmax for ReLU",
        "The inner numbers go through a softmax. That belongs to attention; here it is ReLU: max(0, ·).",
        "torch.relu(self.linear1(x))",
        "torch.softmax(self.linear1(x), -1)",
    ),
    edit(
        "absolute value",
        "Negative numbers are made positive. ReLU makes them 0.",
        "torch.relu",
        "torch.abs",
    ),
    edit(
        "leaky ReLU",
        "Negative numbers keep a hundredth of their size. ReLU makes them 0.",
        "torch.relu",
        "F.leaky_relu",
    ),
    edit(
        "ReLU as a class",
        "nn.ReLU(x) makes a module and computes nothing. torch.relu(x) computes; so does nn.ReLU()(x).",
        "torch.relu",
        "nn.ReLU",
    ),
    edit(
        "bends the input",
        "ReLU is applied to x, before linear1: half of every token is lost and the middle stays linear.",
        "torch.relu(self.linear1(x))",
        "self.linear1(torch.relu(x))",
    ),
    edit(
        "bends last",
        "ReLU is applied after linear2. It belongs between the two; the output may be negative.",
        "torch.relu(self.linear1(x))",
        "self.linear1(x)",
        "self.linear2(inner)",
        "torch.relu(self.linear2(inner))",
    ),
    edit(
        "bends twice",
        "ReLU is applied twice, the second time to the output. The output may be negative.",
        "self.linear2(inner)",
        "torch.relu(self.linear2(inner))",
    ),
    edit(
        "residual",
        "x is added at the end. The residual belongs to the encoder layer's Add & Norm, around this block.",
        "self.linear2(inner)",
        "x + self.linear2(inner)",
    ),
    edit(
        "drops",
        "Dropout acts although the module is in eval mode, and the contract has no dropout here.",
        "self.linear2(inner)",
        "self.linear2(F.dropout(inner, 0.5))",
    ),
    edit(
        "mixes tokens",
        "All tokens come out the same: you averaged over them. This block treats each position by itself.",
        "self.linear2(inner)",
        "self.linear2(inner).mean(-2, keepdim=True).expand_as(x)",
    ),
    edit(
        "no bias",
        "The linear layers have no bias; here both have one (nn.Linear's default).",
        "nn.Linear(d_model, d_ff)",
        "nn.Linear(d_model, d_ff, bias=False)",
        "nn.Linear(d_ff, d_model)",
        "nn.Linear(d_ff, d_model, bias=False)",
    ),
    edit(
        "widths swapped",
        "d_model and d_ff have changed places: linear1 goes from d_model to d_ff, linear2 back.",
        "self.linear1 = nn.Linear(d_model, d_ff)",
        "self.linear1 = nn.Linear(d_ff, d_model)",
        "self.linear2 = nn.Linear(d_ff, d_model)",
        "self.linear2 = nn.Linear(d_model, d_ff)",
    ),
    edit(
        "not widened",
        "d_ff is not used: the inner width is d_model.",
        "nn.Linear(d_model, d_ff)",
        "nn.Linear(d_model, d_model)",
        "nn.Linear(d_ff, d_model)",
        "nn.Linear(d_model, d_model)",
    ),
    edit(
        "always four times",
        "d_ff is not used: the inner width is always 4 · d_model.",
        "nn.Linear(d_model, d_ff)",
        "nn.Linear(d_model, 4 * d_model)",
        "nn.Linear(d_ff, d_model)",
        "nn.Linear(4 * d_model, d_model)",
    ),
    edit(
        "one matrix",
        "linear1's matrix is used for the way back, too. linear2 has a matrix of its own.",
        "self.linear2(inner)",
        "F.linear(inner, self.linear1.weight.T, self.linear2.bias)",
    ),
    edit(
        "other names",
        "The contract calls the two layers linear1 and linear2.",
        "self.linear1 =",
        "self.fc1 =",
        "self.linear2 =",
        "self.fc2 =",
        "self.linear1(x)",
        "self.fc1(x)",
        "self.linear2(inner)",
        "self.fc2(inner)",
    ),
    edit(
        "in place",
        "An operation in place (relu_ or inplace=True) changes x, which the residual path still needs.",
        "        inner = torch.relu(self.linear1(x))\n",
        "        inner = torch.relu(self.linear1(x.clone()))\n        x.detach().relu_()\n",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device.",
        "torch.relu(self.linear1(x))",
        "torch.maximum(self.linear1(x), torch.zeros(self.linear1.out_features))",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="6.1",
    symbol="FeedForward",
    kind="module class",
    parameters=("d_model", "d_ff"),
    points=5,
    todos=("6.1", "6.2", "6.3"),
    rows=ROWS,
    reference=Reference,
    answer=FeedForward,
    mistakes=MISTAKES,
    alternatives=(NNSequential, ReLUInPlaceInside, TokenByToken, Einsum),
    spoken=SPOKEN,
    hints={
        "6.1": (
            _("A token comes in with d_model features. How wide should it leave the first layer?"),
            _(
                "[…, d_model] → […, d_ff]: the module that does that holds a weight [d_ff, d_model] and a bias [d_ff]."
            ),
            _(
                "an nn.Linear whose first number is the width that comes in, the second the width that goes out"
            ),
        ),
        "6.2": (
            _("Add & Norm will add the result to x. How wide must it be?"),
            _("[…, d_ff] → […, d_model]"),
            _("an nn.Linear with the two widths of 6.1 the other way round"),
        ),
        "6.3": (
            _("Two linear maps in a row are one linear map. What has to stand between them?"),
            _("x […, d_model] → […, d_ff] → the same with negative numbers set to 0 → […, d_model]."),
            _("widen x; make negative numbers 0 (torch.relu); narrow the result"),
        ),
    },
)
