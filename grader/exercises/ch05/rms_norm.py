"""5.4 RMSNorm: every token divided by the root of its mean square, then scaled; no mean, no bias."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises import rows
from grader.exercises.ch05._common import DOUBLE, GRADIENT, NORM_SPOKEN, ON_THE_CPU, NormCases
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


class RMSNormReference(nn.Module):
    """torch's own function."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        mean_square = x.square().mean(-1, keepdim=True)
        root = torch.sqrt(mean_square + self.eps)
        return x / root * self.weight


class Rsqrt(nn.Module):
    """As Llama's code writes it: multiply by the reciprocal root."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class VectorLength(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.d, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        mean_square = torch.linalg.norm(x, dim=-1, keepdim=True).pow(2) / self.d
        return x.div((mean_square + self.eps).sqrt()).mul(self.weight)


class Einsum(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        mean_square = torch.einsum("...i,...i->...", x, x) / x.shape[-1]
        return torch.einsum("...i,...,i->...i", x, (mean_square + self.eps) ** -0.5, self.weight)


# ---- rows -------------------------------------------------------------------------------------------

CASES = NormCases("weight", default_scale=0.0006)
VALUES = ("values",)

ROWS = (
    Row(
        "values",
        "every token is divided by the root of its mean square, then multiplied by weight",
        CASES.values,
        looks=("out",),
        weight=4,
    ),
    Row(
        "parameters",
        "weight [d] starts as ones and is trained; there is no bias",
        CASES.start,
        looks=("parameters", "buffers", "attr.weight"),
        needs=VALUES,
    ),
    Row(
        "eps",
        "eps is added to the mean square, inside the square root",
        CASES.eps,
        looks=("out",),
        needs=VALUES,
    ),
    Row(
        "default eps",
        "eps is 1e-6 when it is not given",
        CASES.default_eps,
        looks=("out",),
        needs=("values", "eps"),
    ),
    Row("zero token", "a token of zeros stays zero, not NaN", CASES.still, looks=("out",), needs=VALUES),
    Row(
        "any axes",
        "x may have any axes in front of d, and a batch or a sequence of 1",
        CASES.axes,
        looks=("out",),
        needs=VALUES,
    ),
    Row(
        "gradient",
        "the gradients of x and weight are right",
        CASES.gradient,
        looks=("grad.*",),
        needs=VALUES,
        tolerance=GRADIENT,
    ),
    rows.input_kept(CASES.two, needs=VALUES),
    rows.float64(CASES.one, needs=VALUES, tolerance=DOUBLE, weight=0.5),
    rows.device(CASES.one, needs=VALUES, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "std for RMS",
        "You divide by the standard deviation, which measures the distance from the mean. "
        "RMS measures the distance from 0: the root of mean(x²), with no mean subtracted anywhere.",
        "mean_square = x.square().mean(-1, keepdim=True)",
        "variance = x.var(-1, unbiased=False, keepdim=True)",
        "mean_square + self.eps",
        "variance + self.eps",
    ),
    edit(
        "unbiased std",
        "You divide by x.std: the mean is subtracted inside it, and it divides by d − 1. "
        "RMS is the root of mean(x²).",
        "mean_square = x.square().mean(-1, keepdim=True)",
        "variance = x.var(-1, keepdim=True)",
        "mean_square + self.eps",
        "variance + self.eps",
    ),
    edit(
        "LayerNorm",
        "This is LayerNorm without its bias. RMSNorm leaves the mean out altogether.",
        "        mean_square =",
        "        x = x - x.mean(-1, keepdim=True)\n        mean_square =",
    ),
    edit(
        "centred",
        "The mean is subtracted from x above the fraction line. RMSNorm only rescales: x / RMS.",
        "x / root",
        "(x - x.mean(-1, keepdim=True)) / root",
    ),
    edit(
        "sum of squares",
        "You divide by the length ‖x‖, the root of the sum of squares. RMS takes the mean of the squares, "
        "so that the result has length √d and not 1.",
        "square().mean(",
        "square().sum(",
    ),
    edit(
        "square of mean",
        "You squared the mean. RMS needs the mean of the squares: square first.",
        "x.square().mean(-1, keepdim=True)",
        "x.mean(-1, keepdim=True).square()",
    ),
    edit(
        "one less",
        "The sum of squares is divided by d − 1. The mean divides by d.",
        "x.square().mean(-1, keepdim=True)",
        "x.square().sum(-1, keepdim=True) / (x.size(-1) - 1)",
    ),
    edit(
        "mean of absolute values",
        "You divide by the mean of |x|. RMS squares, takes the mean, then the root.",
        "mean_square = x.square().mean(-1, keepdim=True)",
        "size = x.abs().mean(-1, keepdim=True)",
        "torch.sqrt(mean_square + self.eps)",
        "size + self.eps",
    ),
    edit(
        "no root",
        "You divide by the mean square itself. Its square root is meant.",
        "torch.sqrt(mean_square + self.eps)",
        "mean_square + self.eps",
    ),
    edit(
        "eps outside",
        "eps is added after the root. It belongs under it: √(mean x² + eps).",
        "torch.sqrt(mean_square + self.eps)",
        "torch.sqrt(mean_square) + self.eps",
    ),
    edit(
        "no eps",
        "eps is not used: a token of zeros divides 0 by 0 and becomes NaN.",
        "mean_square + self.eps",
        "mean_square",
    ),
    edit(
        "eps ignored",
        "The number 1e-6 stands in the formula, so the parameter eps changes nothing. Use self.eps.",
        "mean_square + self.eps",
        "mean_square + 1e-6",
    ),
    edit(
        "default eps",
        "When eps is not given it is 1e-6 here; LayerNorm's default is 1e-5.",
        "eps=1e-6",
        "eps=1e-5",
    ),
    edit(
        "over tokens",
        "The mean square is taken over the tokens. Each token has its own: axis −1, the features.",
        "mean(-1",
        "mean(-2",
    ),
    edit(
        "over batch",
        "The mean square is taken over the batch. Each token has its own: axis −1, the features.",
        "mean(-1",
        "mean(0",
    ),
    edit(
        "over everything",
        "One mean square serves the whole tensor. Give mean the axis −1 and keepdim=True.",
        "mean(-1, keepdim=True)",
        "mean()",
    ),
    edit(
        "no weight",
        "weight exists, but the result is not multiplied by it.",
        "x / root * self.weight",
        "x / root",
    ),
    edit("adds weight", "weight is added. It multiplies.", "root * self.weight", "root + self.weight"),
    edit(
        "divides by weight",
        "The result is divided by weight. Multiply by it.",
        "root * self.weight",
        "root / self.weight",
    ),
    edit(
        "one plus weight",
        "You multiply by 1 + weight. Gemma does so, with a weight that starts at 0; here it starts at 1.",
        "* self.weight",
        "* (1 + self.weight)",
    ),
    edit(
        "bias",
        "RMSNorm has no bias: weight is its only parameter.",
        "        self.weight = nn",
        "        self.bias = nn.Parameter(torch.zeros(d_model))\n        self.weight = nn",
        "* self.weight",
        "* self.weight + self.bias",
    ),
    edit(
        "gamma",
        "The parameter is called weight, as in torch; papers write γ or g.",
        "self.weight = nn",
        "self.gamma = nn",
        "* self.weight",
        "* self.gamma",
    ),
    edit(
        "weight from zero",
        "weight starts as zeros, so the layer gives zeros whatever comes in. It starts as ones.",
        "torch.ones(",
        "torch.zeros(",
    ),
    edit(
        "detached",
        "No gradient flows through the root mean square (detach or no_grad). It depends on x, "
        "so the gradient of x has to pass through it.",
        "torch.sqrt(mean_square + self.eps)",
        "torch.sqrt(mean_square + self.eps).detach()",
    ),
    edit(
        "in place",
        "x /= … changes the caller's tensor. Make a new one: x / ….",
        "        return x / root * self.weight",
        "        x /= root\n        return x * self.weight",
    ),
    edit(
        "on the CPU",
        ON_THE_CPU,
        "mean_square + self.eps",
        "mean_square + torch.tensor([self.eps])",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="5.4",
    symbol="RMSNorm",
    kind="module class",
    parameters=("d_model", "eps"),
    points=5,
    todos=("5.4",),
    rows=ROWS,
    reference=RMSNormReference,
    answer=RMSNorm,
    mistakes=MISTAKES,
    alternatives=(Rsqrt, VectorLength, Einsum),
    spoken=NORM_SPOKEN,
    forbidden={
        "rms_norm": _("F.rms_norm does the whole exercise. Build it from a mean and a square root."),
    },
    hints={
        "5.4": (
            _("What is left of LayerNorm when neither a mean is subtracted nor a bias added?"),
            _("The mean of x² over the features is [B, n, 1] (keepdim=True); x is [B, n, d]; weight is [d]."),
            _("divide x by the root of (the mean of its squares + eps), then multiply by weight"),
        )
    },
)
