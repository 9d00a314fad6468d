"""Chapter 05, Add & Norm: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case

CHAPTER = "05_add_norm"


# ---- 5.1 LayerNorm ----------------------------------------------------------------------------------


class LayerNormReference(nn.Module):
    """torch's own kernel."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class LayerNormVariant(nn.Module):
    """LayerNorm with every step in a method of its own, so that a mistake changes one step."""

    axes: tuple[int, ...] = (-1,)
    default_eps = 1e-5

    def __init__(self, d_model, eps=None):
        super().__init__()
        self.eps = self.default_eps if eps is None else eps
        self.keep(d_model)

    def keep(self, d_model):
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def mean(self, x):
        return x.mean(self.axes, keepdim=True)

    def variance(self, x):
        return x.var(self.axes, unbiased=False, keepdim=True)

    def root(self, x):
        return torch.sqrt(self.variance(x) + self.eps)

    def normalised(self, x):
        return (x - self.mean(x)) / self.root(x)

    def forward(self, x):
        return self.normalised(x) * self.weight + self.bias


class UnbiasedVariance(LayerNormVariant):
    def variance(self, x):
        return x.var(-1, keepdim=True)


class EpsOutside(LayerNormVariant):
    def root(self, x):
        return self.variance(x).sqrt() + self.eps


class StdPlusEps(LayerNormVariant):
    """(x - mean) / (x.std(-1) + eps), as one well-known annotated implementation has it."""

    def root(self, x):
        return x.std(-1, keepdim=True) + self.eps


class OverTokens(LayerNormVariant):
    axes = (-2,)


class OverBatch(LayerNormVariant):
    axes = (0,)


class OverTokensAndFeatures(LayerNormVariant):
    axes = (-2, -1)


class OverEverything(LayerNormVariant):
    def mean(self, x):
        return x.mean()

    def variance(self, x):
        return x.var(unbiased=False)


class LikeBatchNorm(LayerNormVariant):
    """One mean and variance a feature, over everything that is not the feature axis."""

    def mean(self, x):
        return x.mean(tuple(range(x.dim() - 1)), keepdim=True)

    def variance(self, x):
        return x.var(tuple(range(x.dim() - 1)), unbiased=False, keepdim=True)


class NoMean(LayerNormVariant):
    def mean(self, x):
        return torch.zeros_like(x[..., :1])


class MeanSquareForVariance(LayerNormVariant):
    def variance(self, x):
        return x.square().mean(-1, keepdim=True)


class NoKeepdim(LayerNormVariant):
    def mean(self, x):
        return x.mean(-1)

    def variance(self, x):
        return x.var(-1, unbiased=False)


class MeanDeviation(LayerNormVariant):
    def root(self, x):
        return (x - self.mean(x)).abs().mean(-1, keepdim=True) + self.eps


class NoRoot(LayerNormVariant):
    def root(self, x):
        return self.variance(x) + self.eps


class NoEps(LayerNormVariant):
    def root(self, x):
        return self.variance(x).sqrt()


class EpsIgnored(LayerNormVariant):
    """The parameter eps is accepted, and 1e-5 is used whatever it says."""

    def root(self, x):
        return torch.sqrt(self.variance(x) + 1e-5)


class DefaultEps12(LayerNormVariant):
    default_eps = 1e-12


class NoAffine(LayerNormVariant):
    """weight and bias exist and are never used (0 · keeps them in the graph)."""

    def forward(self, x):
        return self.normalised(x) + 0 * (self.weight + self.bias)


class NoBias(LayerNormVariant):
    def forward(self, x):
        return self.normalised(x) * self.weight + 0 * self.bias


class BiasFirst(LayerNormVariant):
    def forward(self, x):
        return (self.normalised(x) + self.bias) * self.weight


class AffineSwapped(LayerNormVariant):
    def forward(self, x):
        return self.normalised(x) * self.bias + self.weight


class GammaBeta(LayerNormVariant):
    def keep(self, d_model):
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return self.normalised(x) * self.gamma + self.beta


class NotParameters(LayerNormVariant):
    def keep(self, d_model):
        self.weight, self.bias = torch.ones(d_model), torch.zeros(d_model)


class OneNumberEach(LayerNormVariant):
    def keep(self, d_model):
        self.weight, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))


class WeightFromZero(LayerNormVariant):
    def keep(self, d_model):
        super().keep(d_model)
        nn.init.zeros_(self.weight)


class RandomStart(LayerNormVariant):
    def keep(self, d_model):
        self.weight = nn.Parameter(torch.randn(d_model))
        self.bias = nn.Parameter(torch.randn(d_model))


class StatisticsDetached(LayerNormVariant):
    def mean(self, x):
        return super().mean(x).detach()

    def variance(self, x):
        return super().variance(x).detach()


class LayerNormInPlace(LayerNormVariant):
    def normalised(self, x):
        mean, root = self.mean(x).clone(), self.root(x).clone()
        with torch.no_grad():
            x -= mean
        return x / root


class LayerNormByMoments(nn.Module):
    """Var x = mean x² - (mean x)², by plain means."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        return self.bias + self.weight * centred * torch.rsqrt(variance + self.eps)


class LayerNormByVarMean(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super(LayerNormByVarMean, self).__init__()  # noqa: UP008  (the old spelling is right, too)
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-1, correction=0)
        scale = (variance + self.eps).pow(-0.5)
        return torch.addcmul(self.bias, (x - mean.unsqueeze(-1)) * scale.unsqueeze(-1), self.weight)


class LayerNormByMatrix(nn.Module):
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


class LayerNormByTranspose(nn.Module):
    """The feature axis first, so that statistics broadcast without keepdim."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        first = x.movedim(-1, 0)
        scaled = (first - first.mean(0)) / torch.sqrt(first.var(0, unbiased=False) + self.eps)
        return scaled.movedim(0, -1) * self.weight + self.bias


def _norm_weights(draw: Draw, d: int, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Random scale and shift; the scale stays away from 0, where a mistake would not show."""
    spread = {name: draw.uniform(d, low=0.5, high=1.7) for name in sorted(names)}  # sorted, as on the wire
    return {name: value - 1.2 if name.endswith("bias") else value for name, value in spread.items()}


def _features(draw: Draw, *front: int, d: int, scale: float = 1.4, dtype=torch.float32) -> torch.Tensor:
    """Values whose tokens and features each have a centre and a spread of their own."""
    values = draw.normal(*front, d, scale=scale, dtype=dtype)
    centres = draw.normal(*front, 1, scale=scale, dtype=dtype) + draw.normal(
        d, scale=0.5 * scale, dtype=dtype
    )
    return values + centres + 0.6 * scale


class NormCases:
    """Cases for a norm whose parameters are `names`: LayerNorm and RMSNorm differ in nothing else here."""

    def __init__(self, *names: str, default_scale: float):
        self.names = names
        self.default_scale = default_scale  # of inputs whose variance is about as small as the default eps

    def _case(self, draw: Draw, front=None, d=None, input_dtype=torch.float32, **extra) -> Case:
        sizes = draw.sizes(B=(2, 4), n=(5, 7), d=(8, 11))
        d = d or sizes["d"]
        x = _features(draw, *(front or (sizes["B"], sizes["n"])), d=d, dtype=input_dtype)
        inputs = {"make": {"args": [d]}, "weights": _norm_weights(draw, d, self.names), "call": {"args": [x]}}
        return Case("module", inputs | extra)

    def values(self, draw: Draw) -> list[Case]:
        return [self._case(draw), self._case(draw)]

    def start(self, draw: Draw) -> list[Case]:
        return [Case("module", {"make": {"args": [draw.size(5, 9)]}, "keep": list(self.names)})]

    def eps(self, draw: Draw) -> list[Case]:
        case = self._case(draw, d=8)
        case.inputs["make"] = {"args": [8, draw.choice([0.5, 0.9, 1.3])]}
        return [case]

    def default_eps(self, draw: Draw) -> list[Case]:
        case = self._case(draw, d=9)
        x = case.inputs["call"]["args"][0]
        case.inputs["call"]["args"] = [x * self.default_scale]
        return [case]

    def still(self, draw: Draw) -> list[Case]:
        """Tokens whose features are all equal: nothing is left but eps under the root."""
        case = self._case(draw)
        x = case.inputs["call"]["args"][0]
        x[0, 1:3] = 0.0
        return [case]

    def axes(self, draw: Draw) -> list[Case]:
        fronts = [(draw.size(5, 7),), (2, draw.size(3, 4), draw.size(5, 7)), (1, draw.size(5, 7)), (1, 1)]
        return [self._case(draw, front=front) for front in fronts]

    def gradient(self, draw: Draw) -> list[Case]:
        case = self._case(draw)
        x = case.inputs["call"]["args"][0]
        case.inputs["call"] |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(*x.shape)]}
        return [case]

    def float64(self, draw: Draw) -> list[Case]:
        return [self._case(draw, input_dtype=torch.float64, dtype="float64")]


LAYER = NormCases("weight", "bias", default_scale=0.002)
_NORM = {
    "out": "forward(x)",
    "attr.weight": "weight",
    "attr.bias": "bias",
    "grad.0": "the gradient of x",
    "grad.weight": "the gradient of weight",
    "grad.bias": "the gradient of bias",
}

LAYER_NORM = Exercise(
    id="5.1",
    symbol="LayerNorm",
    kind="module class",
    parameters=("d_model", "eps"),
    points=8,
    todos=("5.1",),
    rows=(
        Row(
            "values",
            "every token is normalised over its own features, then scaled by weight and shifted by bias",
            LAYER.values,
            looks=("out",),
            weight=4,
            spoken=_NORM,
        ),
        Row(
            "parameters",
            "weight [d] starts as ones and bias [d] as zeros; both are trained, and nothing else is kept",
            LAYER.start,
            looks=("parameters", "buffers", "attr.weight", "attr.bias"),
            needs=("values",),
            spoken=_NORM,
        ),
        Row(
            "eps",
            "eps is added to the variance, inside the square root",
            LAYER.eps,  # needs nothing: only here is "std plus eps" told from "unbiased variance"
            looks=("out",),
            spoken=_NORM,
        ),
        Row(
            "default eps",
            "eps is 1e-5 when it is not given",
            LAYER.default_eps,
            looks=("out",),
            needs=("values", "eps"),
            spoken=_NORM,
        ),
        Row(
            "still token",
            "a token with equal features gives bias, not NaN",
            LAYER.still,
            looks=("out",),
            needs=("values",),
            spoken=_NORM,
        ),
        Row(
            "any axes",
            "x may have any axes in front of d, and a batch or a sequence of 1",
            LAYER.axes,
            looks=("out",),
            needs=("values",),
            spoken=_NORM,
        ),
        Row(
            "gradient",
            "the gradients of x, weight and bias are right",
            LAYER.gradient,
            looks=("grad.*",),
            needs=("values",),
            tolerance=Tolerance(atol=3e-5, rtol=3e-4),
            spoken=_NORM,
        ),
        Row(
            "input kept",
            "x itself is left unchanged",
            LAYER.values,
            looks=("changed",),
            needs=("values",),
        ),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            LAYER.float64,
            looks=("out",),
            needs=("values",),
            tolerance=Tolerance(atol=1e-9, rtol=1e-8),
            spoken=_NORM,
        ),
    ),
    reference=LayerNormReference,
    misconceptions=(
        Wrong(
            "unbiased variance",
            "The variance is divided by d − 1 (torch's x.var and x.std do that unless told otherwise). "
            "LayerNorm divides by d: x.var(-1, unbiased=False). For [2, 4, 6, 8] that is 5, not 6.67.",
            UnbiasedVariance,
        ),
        Wrong(
            "eps outside",
            "eps is added after the square root. It belongs under it: √(variance + eps).",
            EpsOutside,
        ),
        Wrong(
            "std plus eps",
            "Two things at once: x.std divides by d − 1 where d is meant, and eps is added after the root. "
            "√(variance + eps), with the variance divided by d.",
            StdPlusEps,
        ),
        Wrong(
            "over tokens",
            "The mean and the variance are taken over the tokens (axis −2). Each token is normalised by itself, "
            "over its features: axis −1.",
            OverTokens,
        ),
        Wrong(
            "over batch",
            "The mean and the variance are taken over the first axis, the batch: what a sentence becomes then "
            "depends on its neighbours. Use axis −1.",
            OverBatch,
        ),
        Wrong(
            "over tokens and features",
            "One mean and one variance serve a whole sentence. Every token has its own: use axis −1 alone.",
            OverTokensAndFeatures,
        ),
        Wrong(
            "over everything",
            "One mean and one variance serve the whole tensor. Give mean and var the axis −1 and keepdim=True.",
            OverEverything,
        ),
        Wrong(
            "like BatchNorm",
            "This is BatchNorm: one mean and variance a feature, over all tokens. "
            "LayerNorm turns it round: one a token, over all features.",
            LikeBatchNorm,
        ),
        Wrong(
            "no mean",
            "The mean is not subtracted; only the spread is brought to 1. (x − mean) / √(variance + eps).",
            NoMean,
        ),
        Wrong(
            "mean square",
            "You divide by the root of mean(x²). The variance is the mean of (x − mean)²: centre first.",
            MeanSquareForVariance,
        ),
        Wrong(
            "no keepdim",
            "mean and var took the feature axis away: [B, n] cannot be subtracted from [B, n, d]. "
            "With keepdim=True they stay [B, n, 1], which fits.",
            NoKeepdim,
        ),
        Wrong(
            "mean deviation",
            "You divide by the mean of |x − mean|. The standard deviation squares first, takes the mean, then the root.",
            MeanDeviation,
        ),
        Wrong(
            "no root",
            "You divide by the variance. Divide by its square root, or the result has no spread of 1.",
            NoRoot,
        ),
        Wrong(
            "no eps",
            "eps is not used: a token whose features are all equal divides 0 by 0 and becomes NaN.",
            NoEps,
        ),
        Wrong(
            "eps ignored",
            "The number 1e-5 stands in the formula, so the parameter eps changes nothing. Use self.eps.",
            EpsIgnored,
        ),
        Wrong("default eps", "When eps is not given it is 1e-5; yours is much smaller.", DefaultEps12),
        Wrong(
            "no affine",
            "weight and bias exist, but the result does not use them: multiply by weight, then add bias.",
            NoAffine,
        ),
        Wrong("no bias", "bias is not added at the end.", NoBias),
        Wrong(
            "bias first",
            "bias is added before the multiplication by weight. First scale, then shift.",
            BiasFirst,
        ),
        Wrong(
            "affine swapped",
            "weight and bias have changed places: weight multiplies, bias is added.",
            AffineSwapped,
        ),
        Wrong(
            "gamma and beta",
            "Papers write γ and β; torch, and so this course, call these parameters weight and bias. "
            "With other names no trained weights can be loaded.",
            GammaBeta,
        ),
        Wrong(
            "not parameters",
            "weight and bias are plain tensors, so an optimiser never sees them. "
            "Wrap each in nn.Parameter(…).",
            NotParameters,
        ),
        Wrong(
            "one number each",
            "weight and bias hold one number each. Every feature has its own: shape [d_model].",
            OneNumberEach,
        ),
        Wrong(
            "weight from zero",
            "weight starts as zeros, so the layer gives zeros whatever comes in. It starts as ones.",
            WeightFromZero,
        ),
        Wrong(
            "random start",
            "weight and bias start at random. They start as ones and zeros, so that at first they change nothing.",
            RandomStart,
        ),
        Wrong(
            "statistics detached",
            "No gradient flows through the mean and the variance (detach or no_grad). They depend on x, "
            "so the gradient of x has to pass through them.",
            StatisticsDetached,
        ),
        Wrong(
            "in place",
            "x −= … changes the caller's tensor, and the residual path still needs it. Make a new one: x − mean.",
            LayerNormInPlace,
        ),
    ),
    alternatives={
        "rsqrt of the mean square": LayerNormByMoments,
        "var_mean": LayerNormByVarMean,
        "projection": LayerNormByMatrix,
        "features first": LayerNormByTranspose,
    },
    hints={
        "5.1": (
            "x is [B, n, d]. How many means are there, if every token of every sentence has its own?",
            "mean [B, n, 1] and variance [B, n, 1] (keepdim=True keeps the last axis), so that x − mean "
            "broadcasts over the d features. Which keyword makes torch divide by d and not by d − 1?",
            "centre x; divide by the root of (variance + eps); times weight; plus bias",
        )
    },
    forbidden={
        "layer_norm": "F.layer_norm does the whole exercise. Build it from mean, variance and a square root.",
        "native_layer_norm": "torch.native_layer_norm does the whole exercise. Build it from mean and variance.",
    },
)


# ---- 5.2 PostNorm and 5.3 PreNorm -------------------------------------------------------------------


class PostNormReference(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(d_model), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return self.norm(torch.add(x, self.drop(sublayer(x))))


class PreNormReference(PostNormReference):
    def forward(self, x, sublayer):
        return torch.add(x, self.drop(sublayer(self.norm(x))))


class WrapperVariant(nn.Module):
    """Either wrapper: `order` says how a norm, a sublayer (its dropout included) and x are put together."""

    name = "norm"

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.p = dropout
        setattr(self, self.name, nn.LayerNorm(d_model))

    def drop(self, x):
        return F.dropout(x, self.p, self.training)

    def normalise(self, x):
        return getattr(self, self.name)(x)

    def forward(self, x, sublayer):
        return self.order(x, lambda y: self.drop(sublayer(y)), self.normalise)

    def order(self, x, sub, norm):
        raise NotImplementedError


class Post(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(x + sub(x))


class Pre(WrapperVariant):
    def order(self, x, sub, norm):
        return x + sub(norm(x))


class NormThenAdd(WrapperVariant):
    """x + norm(sublayer(x)): neither Post nor Pre."""

    def order(self, x, sub, norm):
        return x + norm(sub(x))


class NoResidualPost(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(sub(x))


class NoResidualPre(WrapperVariant):
    def order(self, x, sub, norm):
        return sub(norm(x))


class NoNorm(WrapperVariant):
    def order(self, x, sub, norm):
        return x + sub(x)


class BothNormed(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(x) + norm(sub(x))


class NormsX(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(x) + sub(x)


class ResidualFromNormed(WrapperVariant):
    """h = norm(x); h + sublayer(h)."""

    def order(self, x, sub, norm):
        h = norm(x)
        return h + sub(h)


class Sandwich(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(x + sub(norm(x)))


class AddsTwice(WrapperVariant):
    def order(self, x, sub, norm):
        return x + norm(x + sub(x))


class MultipliesPost(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(x * sub(x))


class MultipliesPre(WrapperVariant):
    def order(self, x, sub, norm):
        return x * sub(norm(x))


class NotCalled(WrapperVariant):
    """The function itself goes into dropout."""

    def forward(self, x, sublayer):
        return x + self.drop(sublayer)


class NoSublayerPost(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(x + x)


class NoSublayerPre(WrapperVariant):
    def order(self, x, sub, norm):
        return x + norm(x)


class NormsAround(WrapperVariant):
    """A norm before the sublayer and one after it."""

    def order(self, x, sub, norm):
        return x + norm(sub(norm(x)))


class SubtractsPost(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(sub(x) - x)


class SubtractsPre(WrapperVariant):
    def order(self, x, sub, norm):
        return sub(norm(x)) - x


class DetachedPost(WrapperVariant):
    def order(self, x, sub, norm):
        return norm(x.detach() + sub(x))


class DetachedPre(WrapperVariant):
    def order(self, x, sub, norm):
        return x.detach() + sub(norm(x))


class InPlacePost(WrapperVariant):
    def order(self, x, sub, norm):
        added = sub(x)
        with torch.no_grad():
            x += added
        return norm(x + added - added.detach())  # the value of x + added, with its gradient


class InPlacePre(WrapperVariant):
    def order(self, x, sub, norm):
        added = sub(norm(x.clone()))
        with torch.no_grad():
            x += added
        return x + added - added.detach()


class OtherName(WrapperVariant):
    name = "layer_norm"


class OtherNamePost(OtherName, Post):
    pass


class OtherNamePre(OtherName, Pre):
    pass


class AlwaysDrops(WrapperVariant):
    def drop(self, x):
        return F.dropout(x, self.p)


class AlwaysDropsPost(AlwaysDrops, Post):
    pass


class AlwaysDropsPre(AlwaysDrops, Pre):
    pass


class NeverDrops(WrapperVariant):
    def drop(self, x):
        return x


class NeverDropsPost(NeverDrops, Post):
    pass


class NeverDropsPre(NeverDrops, Pre):
    pass


class KeepsP(WrapperVariant):
    """dropout is taken for the share that is kept."""

    def drop(self, x):
        return F.dropout(x, 1 - self.p, self.training)


class KeepsPPost(KeepsP, Post):
    pass


class KeepsPPre(KeepsP, Pre):
    pass


class DropsSumPost(WrapperVariant):
    def forward(self, x, sublayer):
        return self.norm(self.drop(x + sublayer(x)))


class DropsResultPost(WrapperVariant):
    def forward(self, x, sublayer):
        return self.drop(self.norm(x + sublayer(x)))


class DropsInputPost(WrapperVariant):
    def forward(self, x, sublayer):
        return self.norm(x + sublayer(self.drop(x)))


class DropsXPost(WrapperVariant):
    def forward(self, x, sublayer):
        return self.norm(self.drop(x) + sublayer(x))


class DropsSumPre(WrapperVariant):
    def forward(self, x, sublayer):
        return self.drop(x + sublayer(self.norm(x)))


class DropsInputPre(WrapperVariant):
    def forward(self, x, sublayer):
        return x + sublayer(self.drop(self.norm(x)))


class DropsXPre(WrapperVariant):
    def forward(self, x, sublayer):
        return self.drop(x) + sublayer(self.norm(x))


class PostStepwise(nn.Module):
    """One step a line, F.dropout told about the mode."""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.rate = dropout
        self.norm = LayerNormByMoments(d_model)

    def forward(self, x, sublayer):
        change = sublayer(x)
        change = F.dropout(change, p=self.rate, training=self.training)
        total = change + x
        return self.norm(total)


class PostStacked(nn.Module):
    """The sum as a sum over a stack; dropout only in training, by a branch."""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm((d_model,))

    def forward(self, x, sublayer):
        change = self.dropout(sublayer(x)) if self.training else sublayer(x)
        return self.norm(torch.stack([x, change]).sum(dim=0))


class PostByHandDropout(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.p = dropout
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, sublayer):
        change = sublayer(x)
        if self.training and self.p > 0:
            keep = (torch.rand_like(change) >= self.p).to(change.dtype)
            change = change * keep / (1 - self.p)
        return self.norm(x + change)


class PreStepwise(PostStepwise):
    def forward(self, x, sublayer):
        normed = self.norm(x)
        change = F.dropout(sublayer(normed), p=self.rate, training=self.training)
        return change + x


class PreStacked(PostStacked):
    def forward(self, x, sublayer):
        return torch.stack([x, self.dropout(sublayer(self.norm(x)))], dim=-1).sum(dim=-1)


class PreByHandDropout(PostByHandDropout):
    def forward(self, x, sublayer):
        change = sublayer(self.norm(x))
        if self.training and self.p > 0:
            keep = torch.bernoulli(torch.full_like(change, 1 - self.p))
            change = change * keep / (1 - self.p)
        return torch.lerp(x, x + change, 1.0)


def _wrapper_case(draw: Draw, dtype=torch.float32, **make) -> Case:
    sizes = draw.sizes(B=(2, 4), n=(5, 7), d=(8, 11))
    d = sizes["d"]
    x = _features(draw, sizes["B"], sizes["n"], d=d, dtype=dtype)
    sublayer = {"$": "sublayer", "weight": draw.normal(d, d, scale=0.7), "bias": draw.normal(d)}
    inputs = {
        "make": {"args": [d], "kwargs": make},
        "weights": _norm_weights(draw, d, ("norm.weight", "norm.bias")),
        "call": {"args": [x, sublayer]},
    }
    return Case("module", inputs)


def _wrapper_cases(draw: Draw) -> list[Case]:
    return [_wrapper_case(draw), _wrapper_case(draw)]


def _wrapper_parameter_cases(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [draw.size(5, 9)]}})]


def _wrapper_eval_cases(draw: Draw) -> list[Case]:
    return [_wrapper_case(draw, dropout=0.5)]


def _wrapper_train_cases(draw: Draw) -> list[Case]:
    d, rate = draw.size(37, 43), draw.choice([0.2, 0.6, 0.75])
    x = draw.integers(1, 4, 3, 5, d).float()
    return [Case("where dropout acts", {"make": {"args": [d, rate]}, "x": x, "norm_adds": 100.0})]


def _wrapper_gradient_cases(draw: Draw) -> list[Case]:
    case = _wrapper_case(draw)
    x = case.inputs["call"]["args"][0]
    case.inputs["call"] |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(*x.shape)]}
    return [case]


def _wrapper_float64_cases(draw: Draw) -> list[Case]:
    case = _wrapper_case(draw, dtype=torch.float64)
    return [Case("module", case.inputs | {"dtype": "float64"})]


_WRAPPER = {
    "out": "forward(x, sublayer)",
    "grad.0": "the gradient of x",
    "grad.norm.weight": "the gradient of norm.weight",
    "grad.norm.bias": "the gradient of norm.bias",
    "steps": "the list of different values of output − x (a sublayer that gives 1 everywhere, a norm that adds 100)",
    "zeros met": "the answer to “did dropout reach the sublayer's input?”",
}


def _wrapper_rows(formula: str) -> tuple[Row, ...]:
    """The rows of PostNorm and PreNorm: the same questions, answered by another order."""
    return (
        Row(
            "order",
            f"without dropout the result is {formula}",
            _wrapper_cases,
            looks=("out",),
            weight=4,
            spoken=_WRAPPER,
        ),
        Row(
            "parameters",
            "all it holds is norm, with weight and bias of width d",
            _wrapper_parameter_cases,
            looks=("parameters", "buffers"),
            needs=("order",),
        ),
        Row(
            "evaluation",
            "in eval mode dropout does nothing, even at 0.5",
            _wrapper_eval_cases,
            looks=("out",),
            needs=("order",),
            spoken=_WRAPPER,
        ),
        Row(
            "training",
            "in training dropout acts on what the sublayer returns, and on nothing else",
            _wrapper_train_cases,
            looks=("steps", "zeros met"),
            needs=("order",),
            spoken=_WRAPPER,
        ),
        Row(
            "gradient",
            "the gradient reaches x on both paths, and the norm",
            _wrapper_gradient_cases,
            looks=("grad.*",),
            needs=("order",),
            tolerance=Tolerance(atol=3e-5, rtol=3e-4),
            spoken=_WRAPPER,
        ),
        Row("input kept", "x itself is left unchanged", _wrapper_cases, looks=("changed",), needs=("order",)),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            _wrapper_float64_cases,
            looks=("out",),
            needs=("order",),
            spoken=_WRAPPER,
        ),
    )


_ALWAYS = (
    "Dropout also acts in eval mode. F.dropout needs training=self.training; "
    "an nn.Dropout made in __init__ knows the mode by itself."
)
_NEVER = "Dropout never acts: in training, a share of the sublayer's output should be set to 0."
_KEEPS = "dropout is the share that is set to 0; you used it as the share that is kept."
_NAMED = (
    "The norm has another name: the contract calls it norm, and later chapters load weights by that name."
)
_NOT_CALLED = (
    "sublayer is a function, and the function itself was used in place of its result. "
    "Call it on what it should work on."
)
_NO_SUBLAYER = "The sublayer is never called, so attention or feed-forward would do nothing."
_NO_NORM = "The norm is never used: this is the plain residual x + sublayer(x)."
_NEITHER = (
    "x + norm(sublayer(x)) stands in some published code, and it is neither Post- nor Pre-Norm: the norm "
    "sees only the sublayer's output, so nothing keeps the sum on one scale and nothing prepares the sublayer's input."
)

POST_NORM = Exercise(
    id="5.2",
    symbol="PostNorm",
    kind="module class",
    parameters=("d_model", "dropout"),
    points=5,
    todos=("5.2",),
    rows=_wrapper_rows("norm(x + sublayer(x))"),
    reference=PostNormReference,
    misconceptions=(
        Wrong(
            "pre for post",
            "This is Pre-Norm, x + sublayer(norm(x)). PostNorm normalises after the addition.",
            Pre,
        ),
        Wrong(
            "no residual",
            "x is not added: norm(sublayer(x)) has lost the residual path.",
            NoResidualPost,
        ),
        Wrong("norm then add", _NEITHER, NormThenAdd),
        Wrong("no norm", _NO_NORM, NoNorm),
        Wrong(
            "both normed",
            "x and sublayer(x) are normalised one by one and then added. Add first, then normalise the sum once.",
            BothNormed,
        ),
        Wrong(
            "norms x only",
            "The norm is applied to x alone. It belongs around the sum: norm(x + sublayer(x)).",
            NormsX,
        ),
        Wrong(
            "sandwich",
            "There are two norms, one before the sublayer and one after the addition. PostNorm has only the second.",
            Sandwich,
        ),
        Wrong("adds twice", "x is added once more after the norm. The norm is the last step.", AddsTwice),
        Wrong("multiplies", "x is multiplied with the sublayer's output. Add them.", MultipliesPost),
        Wrong("subtracts", "x is subtracted. Add it.", SubtractsPost),
        Wrong("not called", _NOT_CALLED, NotCalled),
        Wrong("no sublayer", _NO_SUBLAYER, NoSublayerPost),
        Wrong("always drops", _ALWAYS, AlwaysDropsPost),
        Wrong("never drops", _NEVER, NeverDropsPost),
        Wrong("keeps p", _KEEPS, KeepsPPost),
        Wrong(
            "drops the sum",
            "Dropout acts on the sum, so it also cuts the residual path. Drop only what the sublayer returns.",
            DropsSumPost,
        ),
        Wrong(
            "drops the result",
            "Dropout acts after the norm. Drop only what the sublayer returns, before the addition.",
            DropsResultPost,
        ),
        Wrong(
            "drops the input",
            "Dropout acts on what goes into the sublayer. Drop what comes out of it.",
            DropsInputPost,
        ),
        Wrong(
            "drops x",
            "Dropout acts on x, the residual path. Drop what the sublayer returns instead.",
            DropsXPost,
        ),
        Wrong(
            "detached",
            "x is detached before it is added, so no gradient flows along the residual path: "
            "the very path it is there for.",
            DetachedPost,
        ),
        Wrong("in place", "x += … changes the caller's tensor. Make a new one: x + ….", InPlacePost),
        Wrong("other name", _NAMED, OtherNamePost),
    ),
    alternatives={
        "one step a line, own norm": PostStepwise,
        "stack and sum": PostStacked,
        "dropout by hand": PostByHandDropout,
    },
    hints={
        "5.2": (
            "Which is the last thing that happens: the sublayer, the addition or the norm?",
            "x, sublayer(x) and their sum are all [B, n, d]. Dropout touches only one of the three.",
            "change = dropout of what the sublayer makes of x; return the norm of (x plus change)",
        )
    },
)

PRE_NORM = Exercise(
    id="5.3",
    symbol="PreNorm",
    kind="module class",
    parameters=("d_model", "dropout"),
    points=5,
    todos=("5.3",),
    rows=_wrapper_rows("x + sublayer(norm(x))"),
    reference=PreNormReference,
    misconceptions=(
        Wrong(
            "post for pre",
            "This is Post-Norm, norm(x + sublayer(x)). PreNorm normalises before the sublayer, and nothing after.",
            Post,
        ),
        Wrong(
            "no residual",
            "x is not added: sublayer(norm(x)) has lost the residual path.",
            NoResidualPre,
        ),
        Wrong("norm then add", _NEITHER, NormThenAdd),
        Wrong("no norm", _NO_NORM, NoNorm),
        Wrong(
            "residual from normed",
            "norm(x) is what you add; the residual path must carry x itself, untouched. "
            "Keep x and give norm(x) to the sublayer only.",
            ResidualFromNormed,
        ),
        Wrong(
            "norms x only",
            "x is normalised on the residual path and the sublayer gets it raw. It is the other way round: "
            "x + sublayer(norm(x)).",
            NormsX,
        ),
        Wrong(
            "sandwich",
            "There are two norms, one before the sublayer and one after the addition. PreNorm has only the first.",
            Sandwich,
        ),
        Wrong(
            "norms around",
            "There are two norms, one before the sublayer and one after it. PreNorm has only the first.",
            NormsAround,
        ),
        Wrong("multiplies", "x is multiplied with the sublayer's output. Add them.", MultipliesPre),
        Wrong("subtracts", "x is subtracted. Add it.", SubtractsPre),
        Wrong("not called", _NOT_CALLED, NotCalled),
        Wrong("no sublayer", _NO_SUBLAYER, NoSublayerPre),
        Wrong("always drops", _ALWAYS, AlwaysDropsPre),
        Wrong("never drops", _NEVER, NeverDropsPre),
        Wrong("keeps p", _KEEPS, KeepsPPre),
        Wrong(
            "drops the sum",
            "Dropout acts on the sum, so it also cuts the residual path. Drop only what the sublayer returns.",
            DropsSumPre,
        ),
        Wrong(
            "drops the input",
            "Dropout acts on what goes into the sublayer. Drop what comes out of it.",
            DropsInputPre,
        ),
        Wrong(
            "drops x",
            "Dropout acts on x, the residual path. Drop what the sublayer returns instead.",
            DropsXPre,
        ),
        Wrong(
            "detached",
            "x is detached before it is added, so no gradient flows along the residual path: "
            "the very path it is there for.",
            DetachedPre,
        ),
        Wrong("in place", "x += … changes the caller's tensor. Make a new one: x + ….", InPlacePre),
        Wrong("other name", _NAMED, OtherNamePre),
    ),
    alternatives={
        "one step a line, own norm": PreStepwise,
        "stack and sum": PreStacked,
        "dropout by hand": PreByHandDropout,
    },
    hints={
        "5.3": (
            "The path from x to the output must stay free of norms. Where is the norm then?",
            "norm(x) is [B, n, d] and goes into the sublayer; what is added to its output is x, not norm(x).",
            "change = dropout of what the sublayer makes of the normalised x; return x plus change",
        )
    },
)


# ---- 5.4 RMSNorm ------------------------------------------------------------------------------------


class RMSNormReference(nn.Module):
    """torch's own function."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class RMSVariant(nn.Module):
    axes: tuple[int, ...] = (-1,)
    default_eps = 1e-6

    def __init__(self, d_model, eps=None):
        super().__init__()
        self.eps = self.default_eps if eps is None else eps
        self.keep(d_model)

    def keep(self, d_model):
        self.weight = nn.Parameter(torch.ones(d_model))

    def square(self, x):
        return x.square().mean(self.axes, keepdim=True)

    def root(self, x):
        return torch.sqrt(self.square(x) + self.eps)

    def scaled(self, x):
        return x / self.root(x)

    def forward(self, x):
        return self.scaled(x) * self.weight


class StdForRMS(RMSVariant):
    def square(self, x):
        return x.var(-1, unbiased=False, keepdim=True)


class UnbiasedStdForRMS(RMSVariant):
    def square(self, x):
        return x.var(-1, keepdim=True)


class LayerNormForRMS(RMSVariant):
    def scaled(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + self.eps)


class CentredTop(RMSVariant):
    def scaled(self, x):
        return (x - x.mean(-1, keepdim=True)) / self.root(x)


class SumOfSquares(RMSVariant):
    def square(self, x):
        return x.square().sum(-1, keepdim=True)


class SquareOfMean(RMSVariant):
    def square(self, x):
        return x.mean(-1, keepdim=True).square()


class OneLess(RMSVariant):
    def square(self, x):
        return x.square().sum(-1, keepdim=True) / (x.size(-1) - 1)


class MeanOfAbsolute(RMSVariant):
    def root(self, x):
        return x.abs().mean(-1, keepdim=True) + self.eps


class RMSNoRoot(RMSVariant):
    def root(self, x):
        return self.square(x) + self.eps


class RMSEpsOutside(RMSVariant):
    def root(self, x):
        return self.square(x).sqrt() + self.eps


class RMSNoEps(RMSVariant):
    def root(self, x):
        return self.square(x).sqrt()


class RMSEpsIgnored(RMSVariant):
    def root(self, x):
        return torch.sqrt(self.square(x) + 1e-6)


class RMSDefault5(RMSVariant):
    default_eps = 1e-5


class RMSOverTokens(RMSVariant):
    axes = (-2,)


class RMSOverBatch(RMSVariant):
    axes = (0,)


class RMSOverEverything(RMSVariant):
    def square(self, x):
        return x.square().mean()


class RMSNoWeight(RMSVariant):
    def forward(self, x):
        return self.scaled(x) + 0 * self.weight


class RMSAddsWeight(RMSVariant):
    def forward(self, x):
        return self.scaled(x) + self.weight


class RMSOnePlusWeight(RMSVariant):
    def forward(self, x):
        return self.scaled(x) * (1 + self.weight)


class RMSDividesByWeight(RMSVariant):
    def forward(self, x):
        return self.scaled(x) / self.weight


class RMSWithBias(RMSVariant):
    def keep(self, d_model):
        super().keep(d_model)
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return self.scaled(x) * self.weight + self.bias


class RMSGamma(RMSVariant):
    def keep(self, d_model):
        self.gamma = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return self.scaled(x) * self.gamma


class RMSFromZero(RMSVariant):
    def keep(self, d_model):
        self.weight = nn.Parameter(torch.zeros(d_model))


class RMSDetached(RMSVariant):
    def root(self, x):
        return super().root(x).detach()


class RMSInPlace(RMSVariant):
    def scaled(self, x):
        root = self.root(x)
        out = x / root
        with torch.no_grad():
            x /= root
        return out


class RMSByRsqrt(nn.Module):
    """As Llama's code writes it: multiply by the reciprocal root."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class RMSByNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.d, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        mean_square = torch.linalg.norm(x, dim=-1, keepdim=True).pow(2) / self.d
        return x.div((mean_square + self.eps).sqrt()).mul(self.weight)


class RMSByEinsum(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        mean_square = torch.einsum("...i,...i->...", x, x) / x.shape[-1]
        return torch.einsum("...i,...,i->...i", x, (mean_square + self.eps) ** -0.5, self.weight)


RMS = NormCases("weight", default_scale=0.0006)

RMS_NORM = Exercise(
    id="5.4",
    symbol="RMSNorm",
    kind="module class",
    parameters=("d_model", "eps"),
    points=5,
    todos=("5.4",),
    rows=(
        Row(
            "values",
            "every token is divided by the root of its mean square, then multiplied by weight",
            RMS.values,
            looks=("out",),
            weight=4,
            spoken=_NORM,
        ),
        Row(
            "parameters",
            "weight [d] starts as ones and is trained; there is no bias",
            RMS.start,
            looks=("parameters", "buffers", "attr.weight"),
            needs=("values",),
            spoken=_NORM,
        ),
        Row(
            "eps",
            "eps is added to the mean square, inside the square root",
            RMS.eps,
            looks=("out",),
            needs=("values",),
            spoken=_NORM,
        ),
        Row(
            "default eps",
            "eps is 1e-6 when it is not given",
            RMS.default_eps,
            looks=("out",),
            needs=("values", "eps"),
            spoken=_NORM,
        ),
        Row(
            "zero token",
            "a token of zeros stays zero, not NaN",
            RMS.still,
            looks=("out",),
            needs=("values",),
            spoken=_NORM,
        ),
        Row(
            "any axes",
            "x may have any axes in front of d, and a batch or a sequence of 1",
            RMS.axes,
            looks=("out",),
            needs=("values",),
            spoken=_NORM,
        ),
        Row(
            "gradient",
            "the gradients of x and weight are right",
            RMS.gradient,
            looks=("grad.*",),
            needs=("values",),
            tolerance=Tolerance(atol=3e-5, rtol=3e-4),
            spoken=_NORM,
        ),
        Row("input kept", "x itself is left unchanged", RMS.values, looks=("changed",), needs=("values",)),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            RMS.float64,
            looks=("out",),
            needs=("values",),
            tolerance=Tolerance(atol=1e-9, rtol=1e-8),
            spoken=_NORM,
        ),
    ),
    reference=RMSNormReference,
    misconceptions=(
        Wrong(
            "std for RMS",
            "You divide by the standard deviation, which measures the distance from the mean. "
            "RMS measures the distance from 0: the root of mean(x²), with no mean subtracted anywhere.",
            StdForRMS,
        ),
        Wrong(
            "unbiased std",
            "You divide by x.std: the mean is subtracted inside it, and it divides by d − 1. "
            "RMS is the root of mean(x²).",
            UnbiasedStdForRMS,
        ),
        Wrong(
            "LayerNorm",
            "This is LayerNorm without its bias. RMSNorm leaves the mean out altogether.",
            LayerNormForRMS,
        ),
        Wrong(
            "centred",
            "The mean is subtracted from x above the fraction line. RMSNorm only rescales: x / RMS.",
            CentredTop,
        ),
        Wrong(
            "sum of squares",
            "You divide by the length ‖x‖, the root of the sum of squares. RMS takes the mean of the squares, "
            "so that the result has length √d and not 1.",
            SumOfSquares,
        ),
        Wrong(
            "square of mean",
            "You squared the mean. RMS needs the mean of the squares: square first.",
            SquareOfMean,
        ),
        Wrong("one less", "The sum of squares is divided by d − 1. The mean divides by d.", OneLess),
        Wrong(
            "mean of absolute values",
            "You divide by the mean of |x|. RMS squares, takes the mean, then the root.",
            MeanOfAbsolute,
        ),
        Wrong("no root", "You divide by the mean square itself. Its square root is meant.", RMSNoRoot),
        Wrong(
            "eps outside",
            "eps is added after the root. It belongs under it: √(mean x² + eps).",
            RMSEpsOutside,
        ),
        Wrong("no eps", "eps is not used: a token of zeros divides 0 by 0 and becomes NaN.", RMSNoEps),
        Wrong(
            "eps ignored",
            "The number 1e-6 stands in the formula, so the parameter eps changes nothing. Use self.eps.",
            RMSEpsIgnored,
        ),
        Wrong(
            "default eps", "When eps is not given it is 1e-6 here; LayerNorm's default is 1e-5.", RMSDefault5
        ),
        Wrong(
            "over tokens",
            "The mean square is taken over the tokens. Each token has its own: axis −1, the features.",
            RMSOverTokens,
        ),
        Wrong(
            "over batch",
            "The mean square is taken over the batch. Each token has its own: axis −1, the features.",
            RMSOverBatch,
        ),
        Wrong(
            "over everything",
            "One mean square serves the whole tensor. Give mean the axis −1 and keepdim=True.",
            RMSOverEverything,
        ),
        Wrong("no weight", "weight exists, but the result is not multiplied by it.", RMSNoWeight),
        Wrong("adds weight", "weight is added. It multiplies.", RMSAddsWeight),
        Wrong("divides by weight", "The result is divided by weight. Multiply by it.", RMSDividesByWeight),
        Wrong(
            "one plus weight",
            "You multiply by 1 + weight. Gemma does so, with a weight that starts at 0; here it starts at 1.",
            RMSOnePlusWeight,
        ),
        Wrong("bias", "RMSNorm has no bias: weight is its only parameter.", RMSWithBias),
        Wrong("gamma", "The parameter is called weight, as in torch; papers write γ or g.", RMSGamma),
        Wrong(
            "weight from zero",
            "weight starts as zeros, so the layer gives zeros whatever comes in. It starts as ones.",
            RMSFromZero,
        ),
        Wrong(
            "detached",
            "No gradient flows through the root mean square (detach or no_grad). It depends on x, "
            "so the gradient of x has to pass through it.",
            RMSDetached,
        ),
        Wrong("in place", "x /= … changes the caller's tensor. Make a new one: x / ….", RMSInPlace),
    ),
    alternatives={"rsqrt": RMSByRsqrt, "vector length": RMSByNorm, "einsum": RMSByEinsum},
    hints={
        "5.4": (
            "What is left of LayerNorm when neither a mean is subtracted nor a bias added?",
            "The mean of x² over the features is [B, n, 1] (keepdim=True); x is [B, n, d]; weight is [d].",
            "divide x by the root of (the mean of its squares + eps), then multiply by weight",
        )
    },
    forbidden={
        "rms_norm": "F.rms_norm does the whole exercise. Build it from a mean and a square root.",
    },
)


# ---- 5.5 gradient_norms -----------------------------------------------------------------------------


def reference_norms(depth, d_model, residual, seed=0):
    """Backpropagation by the chain rule in numpy: g ← (g ⊙ (1 - y²)) W, plus g itself on a residual path."""
    torch.manual_seed(seed)
    layers = [nn.Linear(d_model, d_model) for _ in range(depth)]
    x = torch.randn(16, d_model).double().numpy()
    pairs = [
        (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in layers
    ]
    outputs = []
    for weight, bias in pairs:
        outputs.append(np.tanh(x @ weight.T + bias))
        x = outputs[-1] + residual * x
    gradient, norms = np.ones_like(x), []
    for (weight, _), y in zip(reversed(pairs), reversed(outputs), strict=True):
        gradient = (gradient * (1 - y**2)) @ weight + residual * gradient
        norms.append(np.linalg.norm(gradient))
    return torch.tensor(norms[::-1], dtype=torch.float32)


class Experiment:
    """The experiment step by step, so that a mistake changes one step. An instance is called like the function."""

    def __call__(self, depth, d_model, residual, seed=0):
        layers, x = self.stack(depth, d_model, seed)
        first, inputs, outputs = x, [], []
        for layer in layers:
            x = self.before(x)
            x.requires_grad_() if x.is_leaf else x.retain_grad()
            inputs.append(x)
            x = self.step(layer, x, first, residual)
            x.retain_grad()
            outputs.append(x)
        self.loss(x).backward()
        return self.answer(layers, inputs, outputs)

    def stack(self, depth, d_model, seed):
        torch.manual_seed(seed)
        layers = [nn.Linear(d_model, d_model) for _ in range(depth)]
        return layers, torch.randn(16, d_model)

    def before(self, x):
        return x

    def step(self, layer, x, first, residual):
        y = torch.tanh(layer(x))
        return x + y if residual else y

    def loss(self, x):
        return x.sum()

    def answer(self, layers, inputs, outputs):
        return torch.stack([self.size(x.grad) for x in inputs])

    def size(self, gradient):
        return gradient.norm()


class OutputsForInputs(Experiment):
    def answer(self, layers, inputs, outputs):
        return torch.stack([self.size(x.grad) for x in outputs])


class WeightGradients(Experiment):
    def answer(self, layers, inputs, outputs):
        return torch.stack([self.size(layer.weight.grad) for layer in layers])


class LastFirst(Experiment):
    def answer(self, layers, inputs, outputs):
        return super().answer(layers, inputs, outputs).flip(0)


class SizesOfInputs(Experiment):
    def answer(self, layers, inputs, outputs):
        return torch.stack([self.size(x.detach()) for x in inputs])


class NeverResidual(Experiment):
    def step(self, layer, x, first, residual):
        return torch.tanh(layer(x))


class AlwaysResidual(Experiment):
    def step(self, layer, x, first, residual):
        return x + torch.tanh(layer(x))


class ResidualReversed(Experiment):
    def step(self, layer, x, first, residual):
        return super().step(layer, x, first, not residual)


class ResidualFromFirst(Experiment):
    """The stack's own input is added at every layer."""

    def step(self, layer, x, first, residual):
        y = torch.tanh(layer(x))
        return first + y if residual else y


class ResidualInside(Experiment):
    def step(self, layer, x, first, residual):
        return torch.tanh(layer(x) + x) if residual else torch.tanh(layer(x))


class NoTanh(Experiment):
    def step(self, layer, x, first, residual):
        return x + layer(x) if residual else layer(x)


class ReluForTanh(Experiment):
    def step(self, layer, x, first, residual):
        y = torch.relu(layer(x))
        return x + y if residual else y


class MeanLoss(Experiment):
    def loss(self, x):
        return x.mean()


class SquaredLoss(Experiment):
    def loss(self, x):
        return x.square().sum()


class SquaredNorm(Experiment):
    def size(self, gradient):
        return gradient.square().sum()


class MeanAbsolute(Experiment):
    def size(self, gradient):
        return gradient.abs().mean()


class PerToken(Experiment):
    def size(self, gradient):
        return gradient.norm(dim=-1).mean()


class SeedIgnored(Experiment):
    def stack(self, depth, d_model, seed):
        return super().stack(depth, d_model, 0)


class DetachedLayers(Experiment):
    """Every layer starts from a detached copy, so only the last one hears of the loss."""

    def before(self, x):
        return x.detach().requires_grad_()

    def answer(self, layers, inputs, outputs):
        zero = torch.zeros(())
        return torch.stack([zero if x.grad is None else self.size(x.grad) for x in inputs])


class GradientsThemselves(Experiment):
    def answer(self, layers, inputs, outputs):
        return tuple(x.grad for x in inputs)


class NotRetained(Experiment):
    """x.grad of a tensor in the middle of the graph, without retain_grad."""

    def answer(self, layers, inputs, outputs):
        return torch.stack([self.size(x.grad if i == 0 else None) for i, x in enumerate(inputs)])


class NoLoss(Experiment):
    def loss(self, x):
        return x


class NormsAsList(Experiment):
    def answer(self, layers, inputs, outputs):
        return [self.size(x.grad).item() for x in inputs]


def _function(experiment: Experiment, name: str) -> Callable:
    """A plain function with the contract's signature, which the describing probe can look at."""

    def gradient_norms(depth, d_model, residual, seed=0):
        return experiment(depth, d_model, residual, seed)

    gradient_norms.__qualname__ = name
    return gradient_norms


def norms_by_grad(depth, d_model, residual, seed=0):
    """torch.autograd.grad of all inputs at once."""
    torch.manual_seed(seed)
    layers = [nn.Sequential(nn.Linear(d_model, d_model), nn.Tanh()) for _ in range(depth)]
    x = torch.randn(16, d_model, requires_grad=True)
    inputs = []
    for layer in layers:
        inputs.append(x)
        x = layer(x) + x * float(residual)
    return torch.tensor([g.norm() for g in torch.autograd.grad(x.sum(), inputs)])


def norms_by_hooks(depth, d_model, residual, seed=0):
    """A hook on every layer's input notes the gradient as it passes; it passes from last to first."""
    torch.manual_seed(seed)
    layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(depth))
    x = torch.randn(16, d_model).requires_grad_()
    norms = torch.zeros(depth)
    for i, layer in enumerate(layers):
        x.register_hook(lambda g, i=i: norms.__setitem__(i, torch.linalg.vector_norm(g)))
        x = torch.tanh(layer(x)) + (x if residual else 0)
    x.backward(torch.ones_like(x))
    return norms


def norms_by_restart(depth, d_model, residual, seed=0):
    """One backward pass for every layer, each from a fresh leaf at its input."""
    torch.manual_seed(seed)
    layers = [nn.Linear(d_model, d_model) for _ in range(depth)]
    x, norms = torch.randn(16, d_model), []
    for start in range(depth):
        leaf = x.detach().requires_grad_()
        y = leaf
        for layer in layers[start:]:
            y = y + layer(y).tanh() if residual else layer(y).tanh()
        y.sum().backward()
        norms.append((leaf.grad**2).sum().sqrt())
        x = x + layers[start](x).tanh() if residual else layers[start](x).tanh()
    return torch.stack(norms).detach()


def _norms_case(draw: Draw, residual: bool, **kwargs) -> Case:
    depth, d = draw.choice([5, 7, 9]), draw.choice([8, 10, 12])
    return Case("function", {"args": [depth, d, residual], "kwargs": kwargs})


def _plain_cases(draw: Draw) -> list[Case]:
    return [_norms_case(draw, False), _norms_case(draw, False)]


def _residual_cases(draw: Draw) -> list[Case]:
    return [_norms_case(draw, True), _norms_case(draw, True)]


def _seed_cases(draw: Draw) -> list[Case]:
    return [_norms_case(draw, residual, seed=draw.size(1, 999)) for residual in (False, True)]


def _one_layer_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [1, draw.choice([6, 11]), True], "kwargs": {"seed": draw.size(1, 99)}})]


# Gradients shrink by a third a layer here, so an absolute tolerance would let the first layers pass unseen.
_RELATIVE = Tolerance(atol=1e-6, rtol=5e-4)
_NORMS = {"out": "the result"}

GRADIENT_NORMS = Exercise(
    id="5.5",
    symbol="gradient_norms",
    kind="function",
    parameters=("depth", "d_model", "residual", "seed"),
    points=5,
    todos=("5.5",),
    rows=(
        Row(
            "plain",
            "residual=False: the gradient's norm at every layer's input, [depth], first layer first",
            _plain_cases,
            looks=("out",),
            weight=2,
            tolerance=_RELATIVE,
            spoken=_NORMS,
        ),
        Row(
            "residual",
            "residual=True: the same where every layer adds its input to its output",
            _residual_cases,
            looks=("out",),
            weight=2,
            tolerance=_RELATIVE,
            spoken=_NORMS,
        ),
        Row(
            "seed",
            "another seed makes another stack",
            _seed_cases,
            looks=("out",),
            needs=("plain", "residual"),
            tolerance=_RELATIVE,
            spoken=_NORMS,
        ),
        Row(
            "one layer",
            "a stack of one layer gives one number",
            _one_layer_cases,
            looks=("out",),
            needs=("plain", "residual"),
            tolerance=_RELATIVE,
            spoken=_NORMS,
        ),
    ),
    reference=reference_norms,
    misconceptions=tuple(
        Wrong(name, says, _function(experiment, name))
        for name, says, experiment in (
            (
                "outputs for inputs",
                "These are the gradients at the layers' outputs, one layer too late. Note x before the layer uses it.",
                OutputsForInputs(),
            ),
            (
                "weights' gradients",
                "These are the gradients of the layers' weights. The gradient of what goes into a layer is asked for.",
                WeightGradients(),
            ),
            (
                "last first",
                "The order is reversed. Backpropagation runs from last to first; the result begins with the first layer.",
                LastFirst(),
            ),
            (
                "sizes of inputs",
                "These are the norms of the inputs themselves. Take the norm of their gradient: x.grad.",
                SizesOfInputs(),
            ),
            (
                "never residual",
                "residual is not used: the layer's input is never added to its output.",
                NeverResidual(),
            ),
            (
                "always residual",
                "residual is not used: the layer's input is added even when residual is False.",
                AlwaysResidual(),
            ),
            ("residual reversed", "The two branches of residual are swapped.", ResidualReversed()),
            (
                "residual from the first",
                "The first input of the stack is added at every layer. Each layer adds its own input.",
                ResidualFromFirst(),
            ),
            (
                "residual inside",
                "x is added inside the tanh, which squeezes the residual path too. Add it outside: x + tanh(layer(x)).",
                ResidualInside(),
            ),
            ("no tanh", "The tanh after the linear layer is missing.", NoTanh()),
            ("ReLU for tanh", "The layers bend with ReLU; the experiment uses tanh.", ReluForTanh()),
            (
                "mean loss",
                "The loss is the mean of the last output; the experiment takes the sum.",
                MeanLoss(),
            ),
            (
                "squared loss",
                "The loss sums the squares of the last output; the experiment sums the numbers themselves.",
                SquaredLoss(),
            ),
            (
                "squared norm",
                "These are squared norms. A norm is the root of the sum of squares.",
                SquaredNorm(),
            ),
            (
                "mean of absolute values",
                "This is the mean of |gradient|. The norm is the root of the sum of squares: gradient.norm().",
                MeanAbsolute(),
            ),
            (
                "per token",
                "You took a norm for each of the 16 rows and then their mean. One norm over the whole gradient is meant.",
                PerToken(),
            ),
            ("seed ignored", "seed is not passed on: every call builds the same stack.", SeedIgnored()),
            (
                "detached layers",
                "Every layer starts from a detached copy, so the gradient stops at the last layer. "
                "Keep one graph, and ask for x.grad with retain_grad().",
                DetachedLayers(),
            ),
            (
                "gradients themselves",
                "A tuple of gradients came back. Take the norm of each, and put the numbers into one tensor: torch.stack.",
                GradientsThemselves(),
            ),
            (
                "not retained",
                "torch keeps .grad only for tensors that you made yourself, so it is None for the inputs in the middle. "
                "Use torch.autograd.grad(loss, inputs), or call retain_grad() on each on the way forward.",
                NotRetained(),
            ),
            (
                "no loss",
                "A gradient needs one number to start from. The loss is the sum of the last output: x.sum().",
                NoLoss(),
            ),
            ("list", "A list came back; a tensor [depth] is the contract.", NormsAsList()),
        )
    ),
    alternatives={
        "autograd.grad": norms_by_grad,
        "hooks": norms_by_hooks,
        "a pass for every layer": norms_by_restart,
    },
    hints={
        "5.5": (
            "A gradient exists at every tensor on the way from input to loss, but torch throws most of them away. "
            "Which tensors do you have to keep hold of?",
            "inputs is a list of depth tensors [16, d]; torch.autograd.grad(loss, inputs) gives as many gradients, "
            "each [16, d]; every gradient has one norm.",
            "for each layer: remember x; y = tanh of the layer at x; x becomes x + y or y. "
            "Then the gradients of the sum of x by the remembered tensors, and the norm of each.",
        )
    },
)

EXERCISES = (LAYER_NORM, POST_NORM, PRE_NORM, RMS_NORM, GRADIENT_NORMS)
