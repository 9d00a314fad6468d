"""5.1 LayerNorm: every token brought to mean 0 and variance 1 over its features, then scaled and shifted."""

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


class LayerNormReference(nn.Module):
    """torch's own kernel."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, unbiased=False, keepdim=True)
        normalised = (x - mean) / torch.sqrt(variance + self.eps)
        return normalised * self.weight + self.bias


class RsqrtOfTheMeanSquare(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        return self.bias + self.weight * centred * torch.rsqrt(variance + self.eps)


class VarMean(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super(VarMean, self).__init__()  # noqa: UP008  (the old spelling is right, too)
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-1, correction=0)
        scale = (variance + self.eps).pow(-0.5)
        return torch.addcmul(self.bias, (x - mean.unsqueeze(-1)) * scale.unsqueeze(-1), self.weight)


class Projection(nn.Module):
    """Centring is a projection: x - mean = x @ (I - 1/d); the length then gives the variance."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.d, self.eps = d_model, eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        project = torch.eye(self.d, dtype=x.dtype, device=x.device) - 1 / self.d
        centred = x @ project
        variance = torch.linalg.vector_norm(centred, dim=-1, keepdim=True) ** 2 / self.d
        return centred / (variance + self.eps) ** 0.5 * self.weight + self.bias


class FeaturesFirst(nn.Module):
    """The feature axis first, so that statistics broadcast without keepdim."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        first = x.movedim(-1, 0)
        scaled = (first - first.mean(0)) / torch.sqrt(first.var(0, unbiased=False) + self.eps)
        return scaled.movedim(0, -1) * self.weight + self.bias


# ---- rows -------------------------------------------------------------------------------------------

CASES = NormCases("weight", "bias", default_scale=0.002)
VALUES = ("values",)

ROWS = (
    Row(
        "values",
        "every token is normalised over its own features, then scaled by weight and shifted by bias",
        CASES.values,
        looks=("out",),
        weight=4,
    ),
    Row(
        "parameters",
        "weight [d] starts as ones and bias [d] as zeros; both are trained, and nothing else is kept",
        CASES.start,
        looks=("parameters", "buffers", "attr.weight", "attr.bias"),
        needs=VALUES,
    ),
    Row(
        "eps",
        "eps is added to the variance, inside the square root",
        CASES.eps,  # needs nothing: only here is "std plus eps" told from "unbiased variance"
        looks=("out",),
    ),
    Row(
        "default eps",
        "eps is 1e-5 when it is not given",
        CASES.default_eps,
        looks=("out",),
        needs=("values", "eps"),
    ),
    Row(
        "still token",
        "a token with equal features gives bias, not NaN",
        CASES.still,
        looks=("out",),
        needs=VALUES,
    ),
    Row(
        "any axes",
        "x may have any axes in front of d, and a batch or a sequence of 1",
        CASES.axes,
        looks=("out",),
        needs=VALUES,
    ),
    Row(
        "gradient",
        "the gradients of x, weight and bias are right",
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
        "unbiased variance",
        "The variance is divided by d − 1 (torch's x.var and x.std do that unless told otherwise). "
        "LayerNorm divides by d: x.var(-1, unbiased=False). For [2, 4, 6, 8] that is 5, not 6.67.",
        "unbiased=False, ",
        "",
    ),
    edit(
        "eps outside",
        "eps is added after the square root. It belongs under it: √(variance + eps).",
        "torch.sqrt(variance + self.eps)",
        "(torch.sqrt(variance) + self.eps)",
    ),
    edit(  # as one well-known annotated implementation has it
        "std plus eps",
        "Two things at once: x.std divides by d − 1 where d is meant, and eps is added after the root. "
        "√(variance + eps), with the variance divided by d.",
        "variance = x.var(-1, unbiased=False, keepdim=True)",
        "std = x.std(-1, keepdim=True)",
        "torch.sqrt(variance + self.eps)",
        "(std + self.eps)",
    ),
    edit(
        "over tokens",
        "The mean and the variance are taken over the tokens (axis −2). Each token is normalised by itself, "
        "over its features: axis −1.",
        "x.mean(-1",
        "x.mean(-2",
        "x.var(-1",
        "x.var(-2",
    ),
    edit(
        "over batch",
        "The mean and the variance are taken over the first axis, the batch: what a sentence becomes then "
        "depends on its neighbours. Use axis −1.",
        "x.mean(-1",
        "x.mean(0",
        "x.var(-1",
        "x.var(0",
    ),
    edit(
        "over tokens and features",
        "One mean and one variance serve a whole sentence. Every token has its own: use axis −1 alone.",
        "x.mean(-1",
        "x.mean((-2, -1)",
        "x.var(-1",
        "x.var((-2, -1)",
    ),
    edit(
        "over everything",
        "One mean and one variance serve the whole tensor. Give mean and var the axis −1 and keepdim=True.",
        "x.mean(-1, keepdim=True)",
        "x.mean()",
        "x.var(-1, unbiased=False, keepdim=True)",
        "x.var(unbiased=False)",
    ),
    edit(
        "like BatchNorm",
        "This is BatchNorm: one mean and variance a feature, over all tokens. "
        "LayerNorm turns it round: one a token, over all features.",
        "        mean = x.mean(-1",
        "        axes = tuple(range(x.dim() - 1))\n        mean = x.mean(axes",
        "x.var(-1",
        "x.var(axes",
    ),
    edit(
        "no mean",
        "The mean is not subtracted; only the spread is brought to 1. (x − mean) / √(variance + eps).",
        "(x - mean)",
        "x",
    ),
    edit(
        "mean square",
        "You divide by the root of mean(x²). The variance is the mean of (x − mean)²: centre first.",
        "x.var(-1, unbiased=False, keepdim=True)",
        "(x**2).mean(-1, keepdim=True)",
    ),
    edit(
        "no keepdim",
        "mean and var took the feature axis away: [B, n] cannot be subtracted from [B, n, d]. "
        "With keepdim=True they stay [B, n, 1], which fits.",
        "x.mean(-1, keepdim=True)",
        "x.mean(-1)",
        "unbiased=False, keepdim=True",
        "unbiased=False",
    ),
    edit(
        "mean deviation",
        "You divide by the mean of |x − mean|. The standard deviation squares first, takes the mean, then the root.",
        "variance = x.var(-1, unbiased=False, keepdim=True)",
        "deviation = (x - mean).abs().mean(-1, keepdim=True)",
        "torch.sqrt(variance + self.eps)",
        "(deviation + self.eps)",
    ),
    edit(
        "no root",
        "You divide by the variance. Divide by its square root, or the result has no spread of 1.",
        "torch.sqrt(variance + self.eps)",
        "(variance + self.eps)",
    ),
    edit(
        "no eps",
        "eps is not used: a token whose features are all equal divides 0 by 0 and becomes NaN.",
        "variance + self.eps",
        "variance",
    ),
    edit(
        "eps ignored",
        "The number 1e-5 stands in the formula, so the parameter eps changes nothing. Use self.eps.",
        "variance + self.eps",
        "variance + 1e-5",
    ),
    edit(
        "default eps",
        "When eps is not given it is 1e-5; yours is much smaller.",
        "eps=1e-5",
        "eps=1e-12",
    ),
    edit(
        "no affine",
        "weight and bias exist, but the result does not use them: multiply by weight, then add bias.",
        "normalised * self.weight + self.bias",
        "normalised",
    ),
    edit(
        "no bias",
        "bias is not added at the end.",
        "normalised * self.weight + self.bias",
        "normalised * self.weight",
    ),
    edit(
        "bias first",
        "bias is added before the multiplication by weight. First scale, then shift.",
        "normalised * self.weight + self.bias",
        "(normalised + self.bias) * self.weight",
    ),
    edit(
        "affine swapped",
        "weight and bias have changed places: weight multiplies, bias is added.",
        "normalised * self.weight + self.bias",
        "normalised * self.bias + self.weight",
    ),
    edit(
        "gamma and beta",
        "Papers write γ and β; torch, and so this course, call these parameters weight and bias. "
        "With other names no trained weights can be loaded.",
        "self.weight = nn",
        "self.gamma = nn",
        "self.bias = nn",
        "self.beta = nn",
        "normalised * self.weight + self.bias",
        "normalised * self.gamma + self.beta",
    ),
    edit(
        "not parameters",
        "weight and bias are plain tensors, so an optimiser never sees them. Wrap each in nn.Parameter(…).",
        "nn.Parameter(torch.ones(d_model))",
        "torch.ones(d_model)",
        "nn.Parameter(torch.zeros(d_model))",
        "torch.zeros(d_model)",
    ),
    edit(
        "one number each",
        "weight and bias hold one number each. Every feature has its own: shape [d_model].",
        "torch.ones(d_model)",
        "torch.ones(1)",
        "torch.zeros(d_model)",
        "torch.zeros(1)",
    ),
    edit(
        "weight from zero",
        "weight starts as zeros, so the layer gives zeros whatever comes in. It starts as ones.",
        "torch.ones(d_model)",
        "torch.zeros(d_model)",
    ),
    edit(
        "random start",
        "weight and bias start at random. They start as ones and zeros, so that at first they change nothing.",
        "torch.ones(d_model)",
        "torch.randn(d_model)",
        "torch.zeros(d_model)",
        "torch.randn(d_model)",
    ),
    edit(
        "statistics detached",
        "No gradient flows through the mean and the variance (detach or no_grad). They depend on x, "
        "so the gradient of x has to pass through them.",
        "x.mean(-1, keepdim=True)",
        "x.mean(-1, keepdim=True).detach()",
        "x.var(-1, unbiased=False, keepdim=True)",
        "x.var(-1, unbiased=False, keepdim=True).detach()",
    ),
    edit(
        "in place",
        "x −= … changes the caller's tensor, and the residual path still needs it. Make a new one: x − mean.",
        "        variance =",
        "        x -= mean\n        variance =",
        "(x - mean)",
        "x",
    ),
    edit("on the CPU", ON_THE_CPU, "dtype=x.dtype, device=x.device", "dtype=x.dtype", of=Projection),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="5.1",
    symbol="LayerNorm",
    kind="module class",
    parameters=("d_model", "eps"),
    points=8,
    todos=("5.1",),
    rows=ROWS,
    reference=LayerNormReference,
    answer=LayerNorm,
    mistakes=MISTAKES,
    alternatives=(RsqrtOfTheMeanSquare, VarMean, Projection, FeaturesFirst),
    spoken=NORM_SPOKEN,
    equivalent={
        "variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True) → "
        "variance = ((mean - x) ** 2).mean(dim=-1, keepdim=True)": "it is squared at once, and (−a)² = a²"
    },
    forbidden={
        "layer_norm": _(
            "F.layer_norm does the whole exercise. Build it from mean, variance and a square root."
        ),
        "native_layer_norm": _(
            "torch.native_layer_norm does the whole exercise. Build it from mean and variance."
        ),
    },
    hints={
        "5.1": (
            _("x is [B, n, d]. How many means are there, if every token of every sentence has its own?"),
            _(
                "mean [B, n, 1] and variance [B, n, 1] (keepdim=True keeps the last axis), so that x − mean "
                "broadcasts over the d features. Which keyword makes torch divide by d and not by d − 1?"
            ),
            _("centre x; divide by the root of (variance + eps); times weight; plus bias"),
        )
    },
)
