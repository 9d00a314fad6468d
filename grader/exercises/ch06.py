"""Chapter 06, feed-forward and encoder: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.parts import MultiHeadAttention, PostNorm, PreNorm

CHAPTER = "06_feed_forward"
EXACT = Tolerance(atol=1e-9, rtol=1e-8)  # for float64
LOOSE = Tolerance(atol=5e-5, rtol=5e-4)  # for gradients, which are sums over many terms


# ---- 6.1 to 6.3 FeedForward -------------------------------------------------------------------------


class FeedForwardReference(nn.Module):
    """The formula with plain matrix products: max(0, x W1ᵀ + b1) W2ᵀ + b2."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        inner = (x @ self.linear1.weight.mT + self.linear1.bias).clamp_min(0)
        return inner @ self.linear2.weight.mT + self.linear2.bias


class FFNVariant(nn.Module):
    bias = True

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.d_model, self.d_ff = d_model, d_ff
        self.keep(d_model, d_ff)

    def keep(self, d_model, d_ff):
        self.linear1 = nn.Linear(d_model, d_ff, bias=self.bias)
        self.linear2 = nn.Linear(d_ff, d_model, bias=self.bias)

    def bend(self, x):
        return F.relu(x)

    def forward(self, x):
        return self.linear2(self.bend(self.linear1(x)))


class FFNNoBend(FFNVariant):
    def bend(self, x):
        return x


class FFNGelu(FFNVariant):
    def bend(self, x):
        return F.gelu(x)


class FFNSilu(FFNVariant):
    def bend(self, x):
        return F.silu(x)


class FFNSigmoid(FFNVariant):
    def bend(self, x):
        return torch.sigmoid(x)


class FFNTanh(FFNVariant):
    def bend(self, x):
        return torch.tanh(x)


class FFNSoftmax(FFNVariant):
    def bend(self, x):
        return torch.softmax(x, -1)


class FFNAbs(FFNVariant):
    def bend(self, x):
        return x.abs()


class FFNLeaky(FFNVariant):
    def bend(self, x):
        return F.leaky_relu(x)


class FFNReLUClass(FFNVariant):
    """nn.ReLU(x) makes a module and takes x for its only setting."""

    def bend(self, x):
        return nn.ReLU(x)


class FFNBendsInput(FFNVariant):
    def forward(self, x):
        return self.linear2(self.linear1(F.relu(x)))


class FFNBendsLast(FFNVariant):
    def forward(self, x):
        return F.relu(self.linear2(self.linear1(x)))


class FFNBendsTwice(FFNVariant):
    def forward(self, x):
        return F.relu(self.linear2(F.relu(self.linear1(x))))


class FFNResidual(FFNVariant):
    def forward(self, x):
        return x + super().forward(x)


class FFNDrops(FFNVariant):
    def bend(self, x):
        return F.dropout(F.relu(x), 0.5)


class FFNMeanOverTokens(FFNVariant):
    """Every token gets the same: the tokens are averaged on the way."""

    def forward(self, x):
        return super().forward(x).mean(-2, keepdim=True).expand_as(x)


class FFNNoBias(FFNVariant):
    bias = False


class FFNWidthsSwapped(FFNVariant):
    def keep(self, d_model, d_ff):
        super().keep(d_ff, d_model)


class FFNNoWiden(FFNVariant):
    def keep(self, d_model, d_ff):
        super().keep(d_model, d_model)


class FFNFourTimes(FFNVariant):
    def keep(self, d_model, d_ff):
        super().keep(d_model, 4 * d_model)


class FFNTied(FFNVariant):
    """One matrix for both ways, as in an autoencoder."""

    def forward(self, x):
        inner = F.relu(self.linear1(x))
        return F.linear(inner, self.linear1.weight.mT, self.linear2.bias) + 0 * self.linear2.weight.sum()


class FFNOtherNames(FFNVariant):
    def keep(self, d_model, d_ff):
        self.fc1, self.fc2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class FFNInPlace(FFNVariant):
    def forward(self, x):
        out = super().forward(x.clone())
        with torch.no_grad():
            x.relu_()
        return out


class FFNSequential(nn.Module):
    """linear1 and linear2 are attributes; nn.Sequential only calls them."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.relu = nn.ReLU()

    def forward(self, x):
        return nn.Sequential(self.linear1, self.relu, self.linear2)(x)


class FFNInPlaceReLU(nn.Module):
    """ReLU in place on the inner tensor, which nobody else sees."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1 = nn.Linear(in_features=d_model, out_features=d_ff)
        self.linear2 = nn.Linear(in_features=d_ff, out_features=d_model)

    def forward(self, x):
        inner = self.linear1(x)
        inner.relu_()
        return self.linear2(inner)


class FFNTokenByToken(FFNVariant):
    """A loop over the positions: position-wise, literally."""

    def forward(self, x):
        rows = [self.linear2(torch.where(u > 0, u, 0 * u)) for u in map(self.linear1, x.unbind(-2))]
        return torch.stack(rows, dim=-2)


class FFNEinsum(FFNVariant):
    def forward(self, x):
        inner = torch.einsum("...d,fd->...f", x, self.linear1.weight) + self.linear1.bias
        inner = torch.maximum(inner, torch.zeros((), dtype=x.dtype))
        return torch.einsum("...f,df->...d", inner, self.linear2.weight) + self.linear2.bias


def _ffn_weights(draw: Draw, d: int, d_ff: int, prefix: str = "") -> dict[str, torch.Tensor]:
    # In alphabetical order, as they cross the wire: a mistake in shape is named by the first one that does not fit.
    return {
        f"{prefix}linear1.bias": draw.normal(d_ff, scale=0.7),
        f"{prefix}linear1.weight": draw.normal(d_ff, d, scale=0.5),
        f"{prefix}linear2.bias": draw.normal(d, scale=0.7),
        f"{prefix}linear2.weight": draw.normal(d, d_ff, scale=0.5),
    }


def _ffn_case(draw: Draw, front: tuple[int, ...] = (), input_dtype=torch.float32, **extra) -> Case:
    sizes = draw.sizes(B=(2, 3), n=(4, 5), d=(6, 8), d_ff=(11, 15))
    d, d_ff = sizes["d"], sizes["d_ff"]
    x = draw.normal(*(front or (sizes["B"], sizes["n"])), d, dtype=input_dtype)
    inputs = {"make": {"args": [d, d_ff]}, "weights": _ffn_weights(draw, d, d_ff), "call": {"args": [x]}}
    return Case("module", inputs | extra)


def _with_gradient(case: Case, draw: Draw) -> Case:
    x = case.inputs["call"]["args"][0]
    case.inputs["call"] |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(*x.shape)]}
    return case


def _ffn_cases(draw: Draw) -> list[Case]:
    return [_ffn_case(draw), _ffn_case(draw)]


def _ffn_parameter_cases(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [draw.size(5, 7), draw.size(11, 13)]}})]


def _ffn_axes_cases(draw: Draw) -> list[Case]:
    return [_ffn_case(draw, front=front) for front in ((4,), (1, 1), (2, 3, 5))]


def _ffn_gradient_cases(draw: Draw) -> list[Case]:
    return [_with_gradient(_ffn_case(draw), draw)]


def _ffn_float64_cases(draw: Draw) -> list[Case]:
    return [_ffn_case(draw, input_dtype=torch.float64, dtype="float64")]


_FORWARD = {"out": "forward(x)", "grad.0": "the gradient of x"}

FEED_FORWARD = Exercise(
    id="6.1",
    symbol="FeedForward",
    kind="module class",
    parameters=("d_model", "d_ff"),
    points=5,
    todos=("6.1", "6.2", "6.3"),
    rows=(
        Row(
            "values",
            "forward(x) is linear2(ReLU(linear1(x)))",
            _ffn_cases,
            looks=("out",),
            weight=3,
            spoken=_FORWARD,
        ),
        Row(
            "parameters",
            "linear1 widens d_model to d_ff, linear2 narrows it again; both have a bias",
            _ffn_parameter_cases,  # needs nothing: 6.1 and 6.2 are worth something without 6.3
            looks=("parameters", "buffers"),
        ),
        Row(
            "any axes",
            "x may have any axes in front of d, and a batch or a sequence of 1",
            _ffn_axes_cases,
            looks=("out",),
            needs=("values",),
            spoken=_FORWARD,
        ),
        Row(
            "gradient",
            "the gradients of x and of all weights are right",
            _ffn_gradient_cases,
            looks=("grad.*",),
            needs=("values",),
            tolerance=LOOSE,
            spoken=_FORWARD,
        ),
        Row("input kept", "x itself is left unchanged", _ffn_cases, looks=("changed",), needs=("values",)),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            _ffn_float64_cases,
            looks=("out",),
            needs=("values",),
            tolerance=EXACT,
            spoken=_FORWARD,
        ),
    ),
    reference=FeedForwardReference,
    misconceptions=(
        Wrong(
            "no ReLU",
            "Nothing bends between the two linear maps, so together they are one linear map and d_ff is wasted.",
            FFNNoBend,
        ),
        Wrong(
            "GELU for ReLU", "The inner numbers go through GELU; this block uses ReLU: max(0, ·).", FFNGelu
        ),
        Wrong(
            "SiLU for ReLU", "The inner numbers go through SiLU; this block uses ReLU: max(0, ·).", FFNSilu
        ),
        Wrong(
            "sigmoid for ReLU",
            "The inner numbers go through a sigmoid; this block uses ReLU: max(0, ·).",
            FFNSigmoid,
        ),
        Wrong(
            "tanh for ReLU", "The inner numbers go through tanh; this block uses ReLU: max(0, ·).", FFNTanh
        ),
        Wrong(
            "softmax for ReLU",
            "The inner numbers go through a softmax. That belongs to attention; here it is ReLU: max(0, ·).",
            FFNSoftmax,
        ),
        Wrong(
            "absolute value",
            "Negative numbers are made positive. ReLU makes them 0.",
            FFNAbs,
        ),
        Wrong(
            "leaky ReLU",
            "Negative numbers keep a hundredth of their size. ReLU makes them 0.",
            FFNLeaky,
        ),
        Wrong(
            "ReLU as a class",
            "nn.ReLU(x) makes a module and computes nothing. torch.relu(x) computes; so does nn.ReLU()(x).",
            FFNReLUClass,
        ),
        Wrong(
            "bends the input",
            "ReLU is applied to x, before linear1: half of every token is lost and the middle stays linear.",
            FFNBendsInput,
        ),
        Wrong(
            "bends last",
            "ReLU is applied after linear2. It belongs between the two; the output may be negative.",
            FFNBendsLast,
        ),
        Wrong(
            "bends twice",
            "ReLU is applied twice, the second time to the output. The output may be negative.",
            FFNBendsTwice,
        ),
        Wrong(
            "residual",
            "x is added at the end. The residual belongs to the encoder layer's Add & Norm, around this block.",
            FFNResidual,
        ),
        Wrong(
            "drops",
            "Dropout acts although the module is in eval mode, and the contract has no dropout here.",
            FFNDrops,
        ),
        Wrong(
            "mixes tokens",
            "All tokens come out the same: you averaged over them. This block treats each position by itself.",
            FFNMeanOverTokens,
        ),
        Wrong(
            "no bias", "The linear layers have no bias; here both have one (nn.Linear's default).", FFNNoBias
        ),
        Wrong(
            "widths swapped",
            "d_model and d_ff have changed places: linear1 goes from d_model to d_ff, linear2 back.",
            FFNWidthsSwapped,
        ),
        Wrong("not widened", "d_ff is not used: the inner width is d_model.", FFNNoWiden),
        Wrong("always four times", "d_ff is not used: the inner width is always 4 · d_model.", FFNFourTimes),
        Wrong(
            "one matrix",
            "linear1's matrix is used for the way back, too. linear2 has a matrix of its own.",
            FFNTied,
        ),
        Wrong("other names", "The contract calls the two layers linear1 and linear2.", FFNOtherNames),
        Wrong(
            "in place",
            "An operation in place (relu_ or inplace=True) changes x, which the residual path still needs.",
            FFNInPlace,
        ),
    ),
    alternatives={
        "nn.Sequential": FFNSequential,
        "ReLU in place inside": FFNInPlaceReLU,
        "token by token": FFNTokenByToken,
        "einsum": FFNEinsum,
    },
    hints={
        "6.1": (
            "A token comes in with d_model features. How wide should it leave the first layer?",
            "[…, d_model] → […, d_ff]: the module that does that holds a weight [d_ff, d_model] and a bias [d_ff].",
            "an nn.Linear whose first number is the width that comes in, the second the width that goes out",
        ),
        "6.2": (
            "Add & Norm will add the result to x. How wide must it be?",
            "[…, d_ff] → […, d_model]",
            "an nn.Linear with the two widths of 6.1 the other way round",
        ),
        "6.3": (
            "Two linear maps in a row are one linear map. What has to stand between them?",
            "x […, d_model] → […, d_ff] → the same with negative numbers set to 0 → […, d_model].",
            "widen x; make negative numbers 0 (torch.relu); narrow the result",
        ),
    },
)


# ---- 6.4 gelu ---------------------------------------------------------------------------------------


def gelu_reference(x):
    """torch's own function, exact form."""
    return F.gelu(x, approximate="none")


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_sigmoid(x):
    return x * torch.sigmoid(1.702 * x)


def gelu_silu(x):
    return x * torch.sigmoid(x)


def gelu_relu(x):
    return torch.relu(x)


def gelu_no_root(x):
    return 0.5 * x * (1 + torch.erf(x))


def gelu_times_root(x):
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(2)))


def gelu_half_inside(x):
    """erf(x / 2)"""
    return 0.5 * x * (1 + torch.erf(x / 2))


def gelu_no_half(x):
    return x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_no_one(x):
    return 0.5 * x * torch.erf(x / math.sqrt(2))


def gelu_no_x(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_minus(x):
    return 0.5 * x * (1 - torch.erf(x / math.sqrt(2)))


def gelu_density(x):
    return x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_bracket(x):
    """½ x + erf(x / √2): a bracket is missing."""
    return 0.5 * x + torch.erf(x / math.sqrt(2))


def gelu_math(x):
    """math.erf, which takes one number."""
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def gelu_root_of_number(x):
    """torch.sqrt, which takes a tensor."""
    return 0.5 * x * (1 + torch.erf(x / torch.sqrt(2)))


def gelu_in_place(x):
    out = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    with torch.no_grad():
        x.copy_(out)
    return out


def gelu_detached(x):
    return x * 0.5 * (1 + torch.erf(x.detach() / math.sqrt(2)))


def gelu_ndtr(x):
    return torch.special.ndtr(x) * x


def gelu_erfc(x):
    return x * 0.5 * torch.erfc(-x * 2**-0.5)


def gelu_normal(x):
    zero = torch.zeros((), dtype=x.dtype)
    return torch.mul(x, torch.distributions.Normal(zero, zero + 1, validate_args=False).cdf(x))


def gelu_steps(x):
    root = torch.sqrt(torch.tensor(2.0, dtype=x.dtype, device=x.device))
    phi = (1 + torch.erf(x / root)) / 2
    return phi.mul(x)


def _gelu_input(draw: Draw, *shape: int, dtype=torch.float32) -> torch.Tensor:
    return draw.uniform(*shape, low=-3.6, high=3.6, dtype=dtype)


def _gelu_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_gelu_input(draw, 3, 11)]})]


def _gelu_shape_cases(draw: Draw) -> list[Case]:
    shapes = ((), (5,), (2, 3, 4), (1, 1))
    return [Case("function", {"args": [_gelu_input(draw, *shape)]}) for shape in shapes]


def _gelu_far_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [torch.tensor([-1e4, -60.0, -12.0, 0.0, 12.0, 60.0, 1e4])]})]


def _gelu_gradient_cases(draw: Draw) -> list[Case]:
    x = _gelu_input(draw, 4, 7)
    return [Case("function", {"args": [x], "wrt": ["0"], "cotangents": [draw.normal(4, 7)]})]


def _gelu_float64_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [_gelu_input(draw, 9, dtype=torch.float64)]})]


GELU_TOLERANCE = Tolerance(atol=2e-6, rtol=2e-6)  # tight: the tanh form is only 0.0005 away at most
_GELU = {"out": "gelu(x)", "grad.0": "the gradient of x"}
_LIBRARY = "The library's gelu does the whole exercise. Write the formula with torch.erf."

GELU = Exercise(
    id="6.4",
    symbol="gelu",
    kind="function",
    parameters=("x",),
    points=3,
    todos=("6.4",),
    rows=(
        Row(
            "values",
            "gelu(x) is x · Φ(x), with Φ by erf",
            _gelu_cases,
            looks=("out",),
            weight=3,
            tolerance=GELU_TOLERANCE,
            spoken=_GELU,
        ),
        Row(
            "any shape",
            "x may have any shape",
            _gelu_shape_cases,
            looks=("out",),
            needs=("values",),
            tolerance=GELU_TOLERANCE,
            spoken=_GELU,
        ),
        Row(
            "far out",
            "far to the left it is 0, far to the right x itself, never NaN",
            _gelu_far_cases,
            looks=("out",),
            needs=("values",),
            spoken=_GELU,
        ),
        Row(
            "gradient",
            "the gradient is right",
            _gelu_gradient_cases,
            looks=("grad.0",),
            needs=("values",),
            spoken=_GELU,
        ),
        Row("input kept", "x itself is left unchanged", _gelu_cases, looks=("changed",), needs=("values",)),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            _gelu_float64_cases,
            looks=("out",),
            needs=("values",),
            tolerance=EXACT,
            spoken=_GELU,
        ),
    ),
    reference=gelu_reference,
    misconceptions=(
        Wrong(
            "tanh form",
            "This is the approximation by tanh, up to 0.0005 away. The exact form with torch.erf is asked for.",
            gelu_tanh,
        ),
        Wrong(
            "sigmoid form",
            "This is the rough approximation x · sigmoid(1.702 x). The exact form with torch.erf is asked for.",
            gelu_sigmoid,
        ),
        Wrong("SiLU", "x · sigmoid(x) is SiLU. GELU weighs x by Φ(x), with erf.", gelu_silu),
        Wrong("ReLU", "This is ReLU. GELU bends softly: gelu(−0.5) is −0.154, not 0.", gelu_relu),
        Wrong(
            "no √2",
            "erf is taken of x. Φ(x) needs erf(x / √2), since erf belongs to a bell curve of variance ½.",
            gelu_no_root,
        ),
        Wrong("times √2", "x is multiplied by √2 inside erf. Divide by it.", gelu_times_root),
        Wrong("over 2", "x is divided by 2 inside erf. Divide by √2.", gelu_half_inside),
        Wrong("no ½", "The factor ½ is missing: far to the right you get 2x and not x.", gelu_no_half),
        Wrong(
            "no 1 +",
            "The 1 is missing in ½ (1 + erf(…)): far to the left you get −x/2 and not 0.",
            gelu_no_one,
        ),
        Wrong("only Φ", "This is Φ(x) alone. Multiply it by x.", gelu_no_x),
        Wrong("minus", "The sign before erf is wrong: your curve lets negative numbers through.", gelu_minus),
        Wrong(
            "density",
            "x is weighed by the height of the bell curve. Φ is the area under it, from the far left up to x.",
            gelu_density,
        ),
        Wrong("bracket", "A bracket is missing: ½ x multiplies the whole of (1 + erf(…)).", gelu_bracket),
        Wrong("math.erf", "math.erf takes one number. torch.erf takes a whole tensor.", gelu_math),
        Wrong(
            "torch.sqrt of a number",
            "torch.sqrt wants a tensor. For the plain number 2, math.sqrt(2) or 2 ** 0.5 does it.",
            gelu_root_of_number,
        ),
        Wrong("in place", "x itself is changed. Make a new tensor.", gelu_in_place),
        Wrong(
            "detached",
            "No gradient flows through erf (detach or no_grad). Φ(x) depends on x, too.",
            gelu_detached,
        ),
    ),
    alternatives={
        "ndtr": gelu_ndtr,
        "erfc": gelu_erfc,
        "Normal.cdf": gelu_normal,
        "step by step": gelu_steps,
    },
    hints={
        "6.4": (
            "Which share of a bell curve lies to the left of x: near 0 for x = −3, ½ for x = 0, near 1 for x = 3?",
            "Φ(x) has the shape of x: ½ · (1 + erf(x / √2)). torch.erf works number by number.",
            "x times half of (one plus erf of (x over the root of two))",
        )
    },
    forbidden={"gelu": _LIBRARY, "GELU": _LIBRARY},
)


# ---- 6.5 SwiGLU -------------------------------------------------------------------------------------


class SwiGLUReference(nn.Module):
    """One fused product for gate and up, and silu written out: z / (1 + e^(-z))."""

    def __init__(self, d_model, d_ff=None):
        super().__init__()
        d_ff = (8 * d_model) // 3 if d_ff is None else d_ff
        self.w1, self.w3 = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_model, d_ff, bias=False)
        self.w2 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        gate, up = (x @ torch.cat([self.w1.weight, self.w3.weight]).mT).chunk(2, dim=-1)
        return (gate / (1 + torch.exp(-gate)) * up) @ self.w2.weight.mT


class SwiGLUVariant(nn.Module):
    bias = False

    def __init__(self, d_model, d_ff=None):
        super().__init__()
        self.keep(d_model, self.default(d_model) if d_ff is None else d_ff)

    def default(self, d_model):
        return 8 * d_model // 3

    def keep(self, d_model, d_ff):
        self.w1 = nn.Linear(d_model, d_ff, bias=self.bias)
        self.w3 = nn.Linear(d_model, d_ff, bias=self.bias)
        self.w2 = nn.Linear(d_ff, d_model, bias=self.bias)

    def bend(self, x):
        return F.silu(x)

    def inner(self, x):
        return self.bend(self.w1(x)) * self.w3(x)

    def forward(self, x):
        return self.w2(self.inner(x))


class GateAndUpSwapped(SwiGLUVariant):
    def inner(self, x):
        return self.w1(x) * F.silu(self.w3(x))


class GLU(SwiGLUVariant):
    def bend(self, x):
        return torch.sigmoid(x)


class GEGLU(SwiGLUVariant):
    def bend(self, x):
        return F.gelu(x)


class ReGLU(SwiGLUVariant):
    def bend(self, x):
        return torch.relu(x)


class Bilinear(SwiGLUVariant):
    def bend(self, x):
        return x


class AddsGate(SwiGLUVariant):
    def inner(self, x):
        return F.silu(self.w1(x)) + self.w3(x)


class SiluOfProduct(SwiGLUVariant):
    def inner(self, x):
        return F.silu(self.w1(x) * self.w3(x))


class SiluOfBoth(SwiGLUVariant):
    def inner(self, x):
        return F.silu(self.w1(x)) * F.silu(self.w3(x))


class NoUp(SwiGLUVariant):
    def inner(self, x):
        return F.silu(self.w1(x)) + 0 * self.w3(x)


class SiluLast(SwiGLUVariant):
    def forward(self, x):
        return F.silu(self.w2(self.w1(x) * self.w3(x)))


class SwiGLUResidual(SwiGLUVariant):
    def forward(self, x):
        return x + super().forward(x)


class SwiGLUBias(SwiGLUVariant):
    bias = True


class SwiGLUFourTimes(SwiGLUVariant):
    def default(self, d_model):
        return 4 * d_model


class SwiGLURounds(SwiGLUVariant):
    def default(self, d_model):
        return round(8 * d_model / 3)


class SwiGLURoundsUp(SwiGLUVariant):
    def default(self, d_model):
        return math.ceil(8 * d_model / 3)


class SwiGLUThirdFirst(SwiGLUVariant):
    """d // 3 first, then times 8."""

    def default(self, d_model):
        return d_model // 3 * 8


class SwiGLUNoDefault(SwiGLUVariant):
    """None is handed to nn.Linear."""

    def default(self, d_model):
        return None


class SwiGLUFloatWidth(SwiGLUVariant):
    def default(self, d_model):
        return 8 * d_model / 3


class SwiGLUIgnoresWidth(SwiGLUVariant):
    def keep(self, d_model, d_ff):
        super().keep(d_model, 8 * d_model // 3)


class SwiGLUOtherNames(SwiGLUVariant):
    def keep(self, d_model, d_ff):
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class W2ForUp(SwiGLUVariant):
    """The numbers taken for the order of use: w2 is the second way up, w3 the way down."""

    def keep(self, d_model, d_ff):
        self.w1 = nn.Linear(d_model, d_ff, bias=False)
        self.w2 = nn.Linear(d_model, d_ff, bias=False)
        self.w3 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.w3(F.silu(self.w1(x)) * self.w2(x))


class SwiGLUStepwise(SwiGLUVariant):
    def default(self, d_model):
        return int(8 * d_model / 3)

    def forward(self, x):
        gate = self.w1(x)
        gate = gate * torch.sigmoid(gate)
        return F.linear(gate.mul(self.w3(x)), self.w2.weight)


class SwiGLUEinsum(SwiGLUVariant):
    def default(self, d_model):
        return math.floor(d_model * 8 / 3)

    def forward(self, x):
        gate = nn.SiLU()(torch.einsum("...d,fd->...f", x, self.w1.weight))
        up = torch.einsum("...d,fd->...f", x, self.w3.weight)
        return torch.einsum("...f,...f,df->...d", gate, up, self.w2.weight)


class SwiGLUOptional(nn.Module):
    """`d_ff or …` for the default."""

    def __init__(self, d_model, d_ff=None):
        super().__init__()
        d_ff = d_ff or d_model * 8 // 3
        self.w1, self.w2, self.w3 = (
            nn.Linear(a, b, bias=False) for a, b in ((d_model, d_ff), (d_ff, d_model), (d_model, d_ff))
        )

    def forward(self, x):
        return self.w2(self.w3(x) * F.silu(self.w1(x)))


def _swiglu_case(draw: Draw, front: tuple[int, ...] = (), input_dtype=torch.float32, **extra) -> Case:
    sizes = draw.sizes(B=(2, 3), n=(4, 5), d=(6, 8), d_ff=(11, 14))
    d, d_ff = sizes["d"], sizes["d_ff"]
    weights = {
        "w1.weight": draw.normal(d_ff, d, scale=0.6),
        "w2.weight": draw.normal(d, d_ff, scale=0.6),
        "w3.weight": draw.normal(d_ff, d, scale=0.6),
    }
    x = draw.normal(*(front or (sizes["B"], sizes["n"])), d, dtype=input_dtype)
    return Case("module", {"make": {"args": [d, d_ff]}, "weights": weights, "call": {"args": [x]}} | extra)


def _swiglu_cases(draw: Draw) -> list[Case]:
    return [_swiglu_case(draw), _swiglu_case(draw)]


def _swiglu_parameter_cases(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [draw.size(5, 7), draw.size(11, 13)]}})]


def _swiglu_default_cases(draw: Draw) -> list[Case]:
    """8d / 3 with a remainder of 1 and of 2, so that every way to round shows."""
    return [Case("module", {"make": {"args": [d]}}) for d in (draw.choice([8, 11, 14]), draw.choice([7, 10]))]


def _swiglu_axes_cases(draw: Draw) -> list[Case]:
    return [_swiglu_case(draw, front=front) for front in ((4,), (1, 1), (2, 3, 5))]


def _swiglu_gradient_cases(draw: Draw) -> list[Case]:
    return [_with_gradient(_swiglu_case(draw), draw)]


def _swiglu_float64_cases(draw: Draw) -> list[Case]:
    return [_swiglu_case(draw, input_dtype=torch.float64, dtype="float64")]


SWIGLU = Exercise(
    id="6.5",
    symbol="SwiGLU",
    kind="module class",
    parameters=("d_model", "d_ff"),
    points=4,
    todos=("6.5",),
    rows=(
        Row(
            "values",
            "forward(x) is w2(silu(w1(x)) · w3(x))",
            _swiglu_cases,
            looks=("out",),
            weight=3,
            spoken=_FORWARD,
        ),
        Row(
            "parameters",
            "w1 and w3 widen, w2 narrows, none has a bias",
            _swiglu_parameter_cases,
            looks=("parameters", "buffers"),
            needs=("values",),
        ),
        Row(
            "default width",
            "d_ff is 8 · d_model // 3 when it is not given",
            _swiglu_default_cases,
            looks=("parameters",),
            needs=("values",),
        ),
        Row(
            "any axes",
            "x may have any axes in front of d, and a batch or a sequence of 1",
            _swiglu_axes_cases,
            looks=("out",),
            needs=("values",),
            spoken=_FORWARD,
        ),
        Row(
            "gradient",
            "the gradients of x and of all weights are right",
            _swiglu_gradient_cases,
            looks=("grad.*",),
            needs=("values",),
            tolerance=LOOSE,
            spoken=_FORWARD,
        ),
        Row("input kept", "x itself is left unchanged", _swiglu_cases, looks=("changed",), needs=("values",)),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            _swiglu_float64_cases,
            looks=("out",),
            needs=("values",),
            tolerance=EXACT,
            spoken=_FORWARD,
        ),
    ),
    reference=SwiGLUReference,
    misconceptions=(
        Wrong(
            "gate and up swapped",
            "silu is applied to w3(x). w1 is the gate: silu(w1(x)) · w3(x).",
            GateAndUpSwapped,
        ),
        Wrong("GLU", "The gate is a plain sigmoid: that is GLU. SwiGLU's is silu(z) = z · sigmoid(z).", GLU),
        Wrong("GEGLU", "The gate is GELU: that is GEGLU. SwiGLU's is silu.", GEGLU),
        Wrong("ReGLU", "The gate is ReLU: that is ReGLU. SwiGLU's is silu.", ReGLU),
        Wrong("bilinear", "Nothing bends: the gate w1(x) needs silu.", Bilinear),
        Wrong("adds the gate", "Gate and up are added. A gate multiplies.", AddsGate),
        Wrong(
            "silu of the product", "silu is applied to the product. It bends the gate alone.", SiluOfProduct
        ),
        Wrong("silu of both", "silu is applied to both. It bends the gate w1(x) alone.", SiluOfBoth),
        Wrong("no up", "w3 is not used: the gate silu(w1(x)) has nothing to open or close.", NoUp),
        Wrong("silu last", "silu is applied to the output. It belongs on the gate w1(x).", SiluLast),
        Wrong(
            "residual",
            "x is added at the end. The residual belongs to Add & Norm, around this block.",
            SwiGLUResidual,
        ),
        Wrong("bias", "The three linear layers have no bias: nn.Linear(…, bias=False).", SwiGLUBias),
        Wrong(
            "four times",
            "The default inner width is 4d. With three matrices it is 8d // 3, so that the block is no larger.",
            SwiGLUFourTimes,
        ),
        Wrong("rounds", "8 · d / 3 is rounded to the nearest; // cuts the rest off.", SwiGLURounds),
        Wrong("rounds up", "8 · d / 3 is rounded up; // cuts the rest off.", SwiGLURoundsUp),
        Wrong(
            "a third first",
            "d // 3 · 8 cuts off too early. Multiply first: 8 · d // 3.",
            SwiGLUThirdFirst,
        ),
        Wrong(
            "no default",
            "When d_ff is not given it is None, and nn.Linear wants a number: first replace None by 8 · d_model // 3.",
            SwiGLUNoDefault,
        ),
        Wrong(
            "float width",
            "/ gives a float such as 21.33, and a width is a whole number: divide with //.",
            SwiGLUFloatWidth,
        ),
        Wrong("width ignored", "d_ff is not used when it is given.", SwiGLUIgnoresWidth),
        Wrong(
            "w2 up, w3 down",
            "w2 and w3 have changed places. The names are Llama's: w1 gate, w3 up, w2 down.",
            W2ForUp,
        ),
        Wrong("other names", "The contract calls them w1 (gate), w3 (up) and w2 (down).", SwiGLUOtherNames),
    ),
    alternatives={"one step a line": SwiGLUStepwise, "einsum": SwiGLUEinsum, "d_ff or": SwiGLUOptional},
    hints={
        "6.5": (
            "Two paths lead up from x. One decides how much of the other comes through. Which one is bent?",
            "w1(x) and w3(x) are […, d_ff]; their product, number by number, is […, d_ff]; w2 makes […, d_model] of it.",
            "the gate: F.silu of w1 at x; multiply with w3 at x; send the product through w2",
        )
    },
)


# ---- 6.6 EncoderLayer -------------------------------------------------------------------------------


def torch_names(layer: nn.Module) -> dict[str, torch.Tensor]:
    """A layer's tensors under the names of nn.TransformerEncoderLayer, which keeps Q, K, V in one matrix."""
    attn, ffn = layer.attn, layer.ffn
    stacked = [attn.W_q, attn.W_k, attn.W_v]
    tensors = {
        "self_attn.in_proj_weight": torch.cat([linear.weight for linear in stacked]),
        "self_attn.in_proj_bias": torch.cat([linear.bias for linear in stacked]),
    }
    parts = {"self_attn.out_proj": attn.W_o, "linear1": ffn.linear1, "linear2": ffn.linear2}
    for name, part in (parts | {"norm1": layer.norm1, "norm2": layer.norm2}).items():
        tensors |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    return tensors


def torch_mask(mask: torch.Tensor | None, x: torch.Tensor, h: int) -> torch.Tensor | None:
    """True means "may attend" here and "may not" in torch.nn, which wants [B · h, n, n]."""
    if mask is None:
        return None
    batch, n = x.shape[:2]
    mask = mask[:, None] if mask.dim() == 3 else mask
    return ~mask.expand(batch, h, n, n).reshape(batch * h, n, n)


class Weights(nn.Module):
    """The parameters of an encoder layer under the contract's names, and no forward."""

    def __init__(self, d_model, h, d_ff):
        super().__init__()
        self.attn, self.ffn = nn.Module(), nn.Module()
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self.attn, name, nn.Linear(d_model, d_model))
        self.ffn.linear1, self.ffn.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)


def _torch_layer(d_model, h, d_ff, norm):
    if norm not in ("post", "pre"):
        raise ValueError(norm)
    return nn.TransformerEncoderLayer(
        d_model, h, d_ff, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    )


class EncoderLayerReference(Weights):
    """nn.TransformerEncoderLayer, given these weights."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__(d_model, h, d_ff)
        self.h, self.torchs = h, (_torch_layer(d_model, h, d_ff, norm),)  # in a tuple: not a submodule

    def forward(self, x, mask=None):
        kwargs = {"src_mask": torch_mask(mask, x, self.h)}
        return functional_call(self.torchs[0], torch_names(self), (x,), kwargs)


class LayerVariant(nn.Module):
    """The usual code on bare LayerNorms, with every step in a method, so that a mistake changes one step."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        self.order = self.chosen(norm)
        self.attn = MultiHeadAttention(d_model, self.heads(h))
        self.ffn = self.make_ffn(d_model, d_ff)
        self.norms(d_model)

    def chosen(self, norm):
        if norm not in ("post", "pre"):
            raise ValueError(f"norm is post or pre, not {norm!r}")
        return norm

    def heads(self, h):
        return h

    def make_ffn(self, d_model, d_ff):
        return FFNVariant(d_model, d_ff)

    def norms(self, d_model):
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def attend(self, y, mask):
        return self.attn(y, y, y, mask)

    def post(self, x, mask):
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.ffn(x))

    def pre(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return x + self.ffn(self.norm2(x))

    def forward(self, x, mask=None):
        return self.post(x, mask) if self.order == "post" else self.pre(x, mask)


class AlwaysPost(LayerVariant):
    def pre(self, x, mask):
        return self.post(x, mask)


class AlwaysPre(LayerVariant):
    def post(self, x, mask):
        return self.pre(x, mask)


class OrdersSwapped(LayerVariant):
    def forward(self, x, mask=None):
        return self.pre(x, mask) if self.order == "post" else self.post(x, mask)


class PreByDefault(LayerVariant):
    def __init__(self, d_model, h, d_ff, norm="pre"):
        super().__init__(d_model, h, d_ff, norm)


class AnyWord(LayerVariant):
    """Whatever is not "post" counts as "pre"."""

    def chosen(self, norm):
        return norm


class OneNorm(LayerVariant):
    def norms(self, d_model):
        self.norm1 = self.norm2 = nn.LayerNorm(d_model)


class FirstNormTwice(LayerVariant):
    def post(self, x, mask):
        x = self.norm1(x + self.attend(x, mask))
        return self.norm1(x + self.ffn(x)) + 0 * self.norm2(x)

    def pre(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return x + self.ffn(self.norm1(x)) + 0 * self.norm2(x)


class NormsSwapped(LayerVariant):
    def post(self, x, mask):
        x = self.norm2(x + self.attend(x, mask))
        return self.norm1(x + self.ffn(x))

    def pre(self, x, mask):
        x = x + self.attend(self.norm2(x), mask)
        return x + self.ffn(self.norm1(x))


class LayerNoMask(LayerVariant):
    def attend(self, y, mask):
        return self.attn(y, y, y)


class LayerMaskReversed(LayerVariant):
    def attend(self, y, mask):
        return self.attn(y, y, y, None if mask is None else ~mask)


class MaskOnlyInPost(LayerVariant):
    def pre(self, x, mask):
        return super().pre(x, None)


class NoAttentionResidual(LayerVariant):
    def post(self, x, mask):
        x = self.norm1(self.attend(x, mask))
        return self.norm2(x + self.ffn(x))

    def pre(self, x, mask):
        x = self.attend(self.norm1(x), mask)
        return x + self.ffn(self.norm2(x))


class NoFFNResidual(LayerVariant):
    def post(self, x, mask):
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(self.ffn(x))

    def pre(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return self.ffn(self.norm2(x))


class NoResiduals(LayerVariant):
    def post(self, x, mask):
        return self.norm2(self.ffn(self.norm1(self.attend(x, mask))))

    def pre(self, x, mask):
        return self.ffn(self.norm2(self.attend(self.norm1(x), mask)))


class ResidualFromStart(LayerVariant):
    """The second addition takes the layer's input, not the attention's result."""

    def post(self, x, mask):
        y = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.ffn(y))

    def pre(self, x, mask):
        y = x + self.attend(self.norm1(x), mask)
        return x + self.ffn(self.norm2(y))


class InParallel(LayerVariant):
    """Attention and feed-forward side by side, both from x."""

    def post(self, x, mask):
        return self.norm2(self.norm1(x + self.attend(x, mask)) + self.ffn(x))

    def pre(self, x, mask):
        return x + self.attend(self.norm1(x), mask) + self.ffn(self.norm2(x))


class NormBeforeAdding(LayerVariant):
    def post(self, x, mask):
        x = x + self.norm1(self.attend(x, mask))
        return x + self.norm2(self.ffn(x))


class ResidualFromNormedPre(LayerVariant):
    def pre(self, x, mask):
        y = self.norm1(x)
        x = y + self.attend(y, mask)
        y = self.norm2(x)
        return y + self.ffn(y)


class OnlyQueriesNormed(LayerVariant):
    def pre(self, x, mask):
        x = x + self.attn(self.norm1(x), x, x, mask)
        return x + self.ffn(self.norm2(x))


class AttentionNotNormed(LayerVariant):
    """lambda y: attn(x, x, x): the function does not use what it is given."""

    def pre(self, x, mask):
        x = x + self.attend(x, mask)
        return x + self.ffn(self.norm2(x))


class NothingNormed(LayerVariant):
    def pre(self, x, mask):
        x = x + self.attend(x, mask)
        return x + self.ffn(x)


class AttentionLost(LayerVariant):
    """The second half starts from the layer's input."""

    def post(self, x, mask):
        self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.ffn(x))

    def pre(self, x, mask):
        self.attend(self.norm1(x), mask)
        return x + self.ffn(self.norm2(x))


class CalledTooEarly(LayerVariant):
    """norm1(x, attn(x, x, x)): the wrapper gets a tensor where it wants a function."""

    def forward(self, x, mask=None):
        return PostNorm(x.size(-1))(x, self.attend(x, mask))


class AttentionAsItIs(LayerVariant):
    """norm1(x, attn): the wrapper calls it with one argument."""

    def forward(self, x, mask=None):
        return PostNorm(x.size(-1))(x, self.attn)


class FFNFirst(LayerVariant):
    def post(self, x, mask):
        x = self.norm2(x + self.ffn(x))
        return self.norm1(x + self.attend(x, mask))

    def pre(self, x, mask):
        x = x + self.ffn(self.norm2(x))
        return x + self.attend(self.norm1(x), mask)


class NoFFN(LayerVariant):
    def post(self, x, mask):
        return self.norm2(self.norm1(x + self.attend(x, mask))) + 0 * self.ffn(x)

    def pre(self, x, mask):
        return x + self.attend(self.norm1(x), mask) + 0 * self.ffn(self.norm2(x))


class NoSecondNorm(LayerVariant):
    def post(self, x, mask):
        x = self.norm1(x + self.attend(x, mask))
        return x + self.ffn(x) + 0 * self.norm2(x)

    def pre(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return x + self.ffn(x) + 0 * self.norm2(x)


class AlwaysOneHead(LayerVariant):
    def heads(self, h):
        return 1


class LayerDrops(LayerVariant):
    def attend(self, y, mask):
        return F.dropout(super().attend(y, mask), 0.1)


class LayerGelu(LayerVariant):
    def make_ffn(self, d_model, d_ff):
        return FFNGelu(d_model, d_ff)


class LayerNoBend(LayerVariant):
    def make_ffn(self, d_model, d_ff):
        return FFNNoBend(d_model, d_ff)


class LayerFourTimes(LayerVariant):
    def make_ffn(self, d_model, d_ff):
        return FFNVariant(d_model, 4 * d_model)


class LayerOtherNames(LayerVariant):
    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__(d_model, h, d_ff, norm)
        self.self_attn, self.feed_forward = self.attn, self.ffn
        del self.attn, self.ffn


class LayerByWrappers(nn.Module):
    """Chapter 05's PostNorm and PreNorm do the adding and the norming."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        wrapper = {"post": PostNorm, "pre": PreNorm}.get(norm)
        if wrapper is None:
            raise ValueError(f"unknown norm {norm!r}")
        self.attn, self.ffn = MultiHeadAttention(d_model, h), FFNSequential(d_model, d_ff)
        self.norm1, self.norm2 = wrapper(d_model), wrapper(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(x, lambda y: self.attn(y, y, y, mask))
        return self.norm2(x, self.ffn)


class LayerByLoop(nn.Module):
    """Both sublayers in one loop; the order is asked for in forward, and so is its error."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        self.order, self.h = norm, h
        self.attn, self.ffn = Weights(d_model, h, d_ff).attn, FFNEinsum(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def attend(self, x, mask):
        q, k, v = (
            linear(x).unflatten(-1, (self.h, -1)).transpose(-3, -2)
            for linear in (self.attn.W_q, self.attn.W_k, self.attn.W_v)
        )
        scores = q @ k.mT / math.sqrt(q.size(-1))  # [B, h, n, n]
        if mask is not None:
            scores = scores.masked_fill(~(mask[:, None] if mask.dim() == 3 else mask), -math.inf)
        return self.attn.W_o((scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2))

    def forward(self, x, mask=None):
        if self.order not in ("post", "pre"):
            raise ValueError("norm must be 'post' or 'pre'")
        for norm, sublayer in ((self.norm1, lambda y: self.attend(y, mask)), (self.norm2, self.ffn)):
            x = norm(x + sublayer(x)) if self.order == "post" else x + sublayer(norm(x))
        return x


class TorchAttention(nn.Module):
    """A stand-in attention on F.multi_head_attention_forward's own mathematics, by nn.functional's kernel."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q, k, v, mask=None):
        heads = [
            linear(y).view(*y.shape[:2], self.h, -1).transpose(1, 2)
            for linear, y in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
        ]
        mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask)
        return self.W_o(mixed.transpose(1, 2).reshape(q.shape))


class LayerByBranches(nn.Module):
    """One branch an order, written out; another attention class."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        assert isinstance(norm, str)
        if norm == "post":
            self.pre_norm = False
        elif norm == "pre":
            self.pre_norm = True
        else:
            raise ValueError(norm)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.attn = TorchAttention(d_model, h)
        self.ffn = FFNInPlaceReLU(d_model, d_ff)

    def forward(self, x, mask=None):
        if self.pre_norm:
            normed = self.norm1(x)
            x = x + self.attn(normed, normed, normed, mask=mask)
            normed = self.norm2(x)
            return self.ffn(normed) + x
        x = self.norm1(self.attn(q=x, k=x, v=x, mask=mask) + x)
        return self.norm2(self.ffn(x) + x)


def _layer_sizes(draw: Draw) -> dict[str, int]:
    """d, h, d_ff, B, n, no two of them equal to each other or to d / h."""
    d, h, batch = draw.choice([(12, 4, 2), (10, 2, 3), (15, 3, 2)])
    return {"d": d, "h": h, "B": batch, "n": draw.size(6, 7), "d_ff": draw.choice([17, 19, 21])}


def _layer_weights(draw: Draw, d: int, d_ff: int, prefix: str = "") -> dict[str, torch.Tensor]:
    weights = {}
    for name in ("W_k", "W_o", "W_q", "W_v"):
        weights[f"{prefix}attn.{name}.bias"] = draw.normal(d, scale=0.3)
        weights[f"{prefix}attn.{name}.weight"] = draw.normal(d, d, scale=0.4)
    weights |= _ffn_weights(draw, d, d_ff, f"{prefix}ffn.")
    for name in ("norm1", "norm2"):
        weights |= _bare_norm(draw, d, f"{prefix}{name}.")
    return weights


def _bare_norm(draw: Draw, d: int, prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}bias": draw.normal(d, scale=0.4), f"{prefix}weight": draw.uniform(d, low=0.6, high=1.6)}


def _mask(draw: Draw, kind: str, batch: int, n: int) -> torch.Tensor:
    """padding [B, 1, 1, n], causal [n, n], or a mask of its own for each sentence [B, n, n]."""
    if kind == "padding":
        real = torch.tensor([n - 1 - i for i in range(batch)])  # every sentence has another length
        return (torch.arange(n) < real[:, None])[:, None, None]
    if kind == "causal":
        return torch.ones(n, n).tril().bool()
    return (draw.uniform(batch, n, n) < 0.6) | torch.eye(n, dtype=torch.bool)


def _layer_case(
    draw: Draw,
    norm: str | None = None,
    mask: str = "",
    front: tuple[int, int] | None = None,
    dtype=torch.float32,
) -> Case:
    s = _layer_sizes(draw)
    batch, n = front or (s["B"], s["n"])
    x = draw.normal(batch, n, s["d"], dtype=dtype) + 0.3
    args = [x, _mask(draw, mask, batch, n)] if mask else [x]
    inputs = {
        "make": {"args": [s["d"], s["h"], s["d_ff"]], "kwargs": {"norm": norm} if norm else {}},
        "weights": _layer_weights(draw, s["d"], s["d_ff"]),
        "call": {"args": args},
    }
    return Case("composite", inputs)


def _layer_post_cases(draw: Draw) -> list[Case]:
    return [_layer_case(draw), _layer_case(draw, "post")]


def _layer_pre_cases(draw: Draw) -> list[Case]:
    return [_layer_case(draw, "pre")]


def _layer_mask_cases(draw: Draw) -> list[Case]:
    by_name = _layer_case(draw, "post", "padding")
    by_name.inputs["call"]["kwargs"] = {"mask": by_name.inputs["call"]["args"].pop()}
    return [by_name, _layer_case(draw, "pre", "own"), _layer_case(draw, None, "causal")]


def _other_norm_cases(draw: Draw) -> list[Case]:
    s = _layer_sizes(draw)
    x = draw.normal(s["B"], s["n"], s["d"])
    words = ("middle", "none")
    makes = [{"args": [s["d"], s["h"], s["d_ff"]], "kwargs": {"norm": word}} for word in words]
    cases = [Case("module", {"make": make, "call": {"args": [x]}}) for make in makes]
    return [Case("raises", {"run": case.tree(), "error": "ValueError"}) for case in cases]


def _layer_small_cases(draw: Draw) -> list[Case]:
    return [_layer_case(draw, "post", front=(1, 5)), _layer_case(draw, "pre", front=(2, 1))]


def _layer_gradient_cases(draw: Draw) -> list[Case]:
    cases = [_layer_case(draw, "post", "padding"), _layer_case(draw, "pre", "own")]
    return [_with_gradient(case, draw) for case in cases]


def _layer_float64_cases(draw: Draw) -> list[Case]:
    case = _layer_case(draw, "pre", "padding", dtype=torch.float64)
    return [Case("composite", case.inputs | {"dtype": "float64"})]


_NEITHER = (
    "x + norm(sublayer(x)) is neither order: Post-Norm normalises the sum, norm(x + sublayer(x)), "
    "Pre-Norm the sublayer's input."
)

ENCODER_LAYER = Exercise(
    id="6.6",
    symbol="EncoderLayer",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "norm"),
    points=8,
    todos=("6.6",),
    rows=(
        Row(
            "post",
            'norm="post" (the default): attention, add & norm, feed-forward, add & norm',
            _layer_post_cases,
            looks=("out",),
            weight=3,
            spoken=_FORWARD,
        ),
        Row(
            "pre",
            'norm="pre": norm, attention, add; norm, feed-forward, add',
            _layer_pre_cases,
            looks=("out",),
            weight=2,
            spoken=_FORWARD,
        ),
        Row(
            "mask",
            "the mask reaches the attention, in both orders",
            _layer_mask_cases,
            looks=("out",),
            needs=("post", "pre"),
            weight=2,
            spoken={"out": "forward(x, mask)"},
        ),
        Row(
            "other norm",
            "any other norm is a ValueError",
            _other_norm_cases,
            looks=("raised",),
            needs=("post",),
        ),
        Row(
            "small",
            "a batch of 1 and a sequence of 1 work",
            _layer_small_cases,
            looks=("out",),
            needs=("post", "pre"),
            spoken=_FORWARD,
        ),
        Row(
            "gradient",
            "the gradients of x and of every part's weights are right",
            _layer_gradient_cases,
            looks=("grad.*",),
            needs=("post", "pre", "mask"),
            tolerance=LOOSE,
            spoken=_FORWARD,
        ),
        Row(
            "input kept",
            "x and the mask are left unchanged",
            _layer_mask_cases,
            looks=("changed",),
            needs=("mask",),
        ),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            _layer_float64_cases,
            looks=("out",),
            needs=("post", "pre", "mask"),
            tolerance=EXACT,
            spoken=_FORWARD,
        ),
    ),
    reference=EncoderLayerReference,
    misconceptions=(
        Wrong(
            "always post", 'norm="pre" gives the Post-Norm order: the parameter norm is not used.', AlwaysPost
        ),
        Wrong(
            "always pre", 'norm="post" gives the Pre-Norm order: the parameter norm is not used.', AlwaysPre
        ),
        Wrong(
            "orders swapped", '"post" gives the Pre-Norm order and "pre" the Post-Norm order.', OrdersSwapped
        ),
        Wrong(
            "pre by default", 'Without norm=… the order is "post", as in the original paper.', PreByDefault
        ),
        Wrong(
            "any word",
            'A norm such as "middle" is taken for one of the two. A typing error should not pass unseen: raise ValueError.',
            AnyWord,
        ),
        Wrong(
            "one norm",
            "norm1 and norm2 are one and the same module, so the two places share their weights. Make two.",
            OneNorm,
        ),
        Wrong("first norm twice", "norm1 is used in both places; the second is norm2's.", FirstNormTwice),
        Wrong(
            "norms swapped",
            "norm2 stands at the attention and norm1 at the feed-forward block. It is the other way round.",
            NormsSwapped,
        ),
        Wrong(
            "no mask",
            "The mask is not handed to the attention, so tokens attend to padding. Pass it on.",
            LayerNoMask,
        ),
        Wrong(
            "mask reversed",
            "The mask is turned round. Here True means “may attend”, and MultiHeadAttention wants it like that.",
            LayerMaskReversed,
        ),
        Wrong(
            "mask only in post",
            "In the Pre-Norm order the mask is not handed to the attention.",
            MaskOnlyInPost,
        ),
        Wrong(
            "no residual at attention",
            "x is not added to the attention's output. Both sublayers have a residual path.",
            NoAttentionResidual,
        ),
        Wrong(
            "no residual at feed-forward",
            "Nothing is added to the feed-forward block's output. Both sublayers have a residual path.",
            NoFFNResidual,
        ),
        Wrong("no residuals", "Neither sublayer has a residual path: add what went in.", NoResiduals),
        Wrong(
            "residual from the start",
            "The second addition takes the layer's input. It takes the result of the first half: "
            "what the feed-forward block (or its norm) was given.",
            ResidualFromStart,
        ),
        Wrong(
            "in parallel",
            "Attention and feed-forward both start from x. Here the feed-forward block gets the first half's result.",
            InParallel,
        ),
        Wrong("norm before adding", _NEITHER, NormBeforeAdding),
        Wrong(
            "residual from normed",
            "In the Pre-Norm order norm(x) is added where x itself is meant: the residual path passes no norm.",
            ResidualFromNormedPre,
        ),
        Wrong(
            "only queries normed",
            "In the Pre-Norm order only the queries are normalised. Normalise once and give the result to all three: "
            "y = norm1(x), then attention of y, y and y.",
            OnlyQueriesNormed,
        ),
        Wrong(
            "attention not normed",
            "In the Pre-Norm order the attention gets x and not norm1(x). In a lambda y: … use y, not x.",
            AttentionNotNormed,
        ),
        Wrong(
            "nothing normed",
            "In the Pre-Norm order neither sublayer gets a normalised input. In a lambda y: … use y, not x.",
            NothingNormed,
        ),
        Wrong(
            "attention lost",
            "The attention's result is not used: the second half starts from the layer's input x. "
            "Start it from the result of the first half.",
            AttentionLost,
        ),
        Wrong(
            "called too early",
            "PostNorm and PreNorm want a function and call it themselves. You called the attention first and handed "
            "over its result. Wrap it: lambda y: …",
            CalledTooEarly,
        ),
        Wrong(
            "attention as it is",
            "PostNorm and PreNorm call their function with one argument, and the attention wants q, k and v (and the mask). "
            "Wrap it: lambda y: …",
            AttentionAsItIs,
        ),
        Wrong(
            "feed-forward first",
            "The feed-forward block runs before the attention. Attention comes first.",
            FFNFirst,
        ),
        Wrong("no feed-forward", "The feed-forward block's result is not used.", NoFFN),
        Wrong("no second norm", "norm2 is not used. Every sublayer has its norm.", NoSecondNorm),
        Wrong("one head", "h is not used: the attention has one head, whatever h is.", AlwaysOneHead),
        Wrong(
            "drops in eval",
            "Dropout acts although the module is in eval mode. The contract has no dropout here.",
            LayerDrops,
        ),
        Wrong(
            "no ReLU inside",
            "The feed-forward block inside does not bend: its ReLU is missing. Look at 6.3 again.",
            LayerNoBend,
        ),
        Wrong(
            "GELU inside",
            "The feed-forward block bends with GELU; the contract's FeedForward uses ReLU.",
            LayerGelu,
        ),
        Wrong(
            "always four times", "d_ff is not used: the inner width is always 4 · d_model.", LayerFourTimes
        ),
        Wrong("other names", "The contract calls the parts attn, ffn, norm1 and norm2.", LayerOtherNames),
    ),
    alternatives={
        "wrappers of chapter 05": LayerByWrappers,
        "one loop, attention by hand": LayerByLoop,
        "branches, another attention": LayerByBranches,
    },
    hints={
        "6.6": (
            "There are two sublayers, each in an Add & Norm of its own. What does the second one start from?",
            "x [B, n, d] → attention of y with itself (Q, K and V are all y) → [B, n, d] → feed-forward → [B, n, d]. "
            "The mask goes only to the attention.",
            "in __init__: refuse another norm; make an attention, a feed-forward block, and two of PostNorm or PreNorm. "
            "In forward: x = norm1 of x around (y ↦ attention of y, y, y and the mask); return norm2 of x around ffn.",
        )
    },
)


# ---- 6.7 Encoder ------------------------------------------------------------------------------------


class EncoderReference(nn.Module):
    """nn.TransformerEncoder, given these weights."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.h = h
        self.layers = nn.ModuleList(Weights(d_model, h, d_ff) for _ in range(N))
        final = nn.LayerNorm(d_model) if norm == "pre" else None
        if final:
            self.norm = nn.LayerNorm(d_model)
        layer = _torch_layer(d_model, h, d_ff, norm)
        self.torchs = (nn.TransformerEncoder(layer, N, final, enable_nested_tensor=False),)

    def forward(self, x, mask=None):
        tensors = {
            f"layers.{i}.{name}": tensor
            for i, layer in enumerate(self.layers)
            for name, tensor in torch_names(layer).items()
        }
        if "norm" in dict(self.named_children()):
            tensors |= {"norm.weight": self.norm.weight, "norm.bias": self.norm.bias}
        return functional_call(self.torchs[0], tensors, (x,), {"mask": torch_mask(mask, x, self.h)})


class EncoderVariant(nn.Module):
    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.sizes, self.order = (d_model, h, d_ff), norm
        self.stack(N)
        if self.has_final(norm):
            self.norm = nn.LayerNorm(d_model)

    def make(self):
        return LayerVariant(*self.sizes, self.order)

    def stack(self, N):
        self.layers = nn.ModuleList(self.make() for _ in range(N))

    def has_final(self, norm):
        return norm == "pre"

    def final(self, x):
        return self.norm(x) if hasattr(self, "norm") else x

    def through(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def forward(self, x, mask=None):
        return self.final(self.through(x, mask))


class OneLayerNTimes(EncoderVariant):
    def stack(self, N):
        self.layers = nn.ModuleList([self.make()] * N)


class FirstLayerNTimes(EncoderVariant):
    """N layers exist; the first runs N times."""

    def through(self, x, mask):
        for _ in self.layers:
            x = self.layers[0](x, mask)
        return x


class PlainList(EncoderVariant):
    def stack(self, N):
        self.layers = [self.make() for _ in range(N)]


class NoFinalNorm(EncoderVariant):
    def has_final(self, norm):
        return False


class FinalNormUnused(EncoderVariant):
    def final(self, x):
        return x + 0 * self.norm(x) if self.order == "pre" else x


class FinalNormInPostToo(EncoderVariant):
    def has_final(self, norm):
        return True


class FinalNormAfterEach(EncoderVariant):
    def through(self, x, mask):
        for layer in self.layers:
            x = self.final(layer(x, mask))
        return x

    def forward(self, x, mask=None):
        return self.through(x, mask)


class FinalNormFirst(EncoderVariant):
    def forward(self, x, mask=None):
        return self.through(self.final(x), mask)


class EncoderNoMask(EncoderVariant):
    def through(self, x, mask):
        return super().through(x, None)


class MaskFirstLayerOnly(EncoderVariant):
    def through(self, x, mask):
        for layer in self.layers:
            x, mask = layer(x, mask), None
        return x


class NormNotPassedOn(EncoderVariant):
    def make(self):
        return LayerVariant(*self.sizes)


class LastLayerOnly(EncoderVariant):
    """Every layer gets the encoder's input, and the last result is returned."""

    def through(self, x, mask):
        outputs = [layer(x, mask) for layer in self.layers]
        return outputs[-1] + 0 * sum(outputs)


class SumOfLayers(EncoderVariant):
    def through(self, x, mask):
        return sum(layer(x, mask) for layer in self.layers)


class AroundAll(EncoderVariant):
    def through(self, x, mask):
        return x + super().through(x, mask)


class LastFirstLayer(EncoderVariant):
    def through(self, x, mask):
        for layer in reversed(self.layers):
            x = layer(x, mask)
        return x


class ReturnsInLoop(EncoderVariant):
    """The return statement stands inside the loop."""

    def through(self, x, mask):
        for layer in self.layers:
            return layer(x, mask)


class ResultDropped(EncoderVariant):
    """y = layer(x, mask), and x goes on."""

    def through(self, x, mask):
        for layer in self.layers:
            layer(x, mask)
        return x


class WidthsSwapped(EncoderVariant):
    def make(self):
        d_model, h, d_ff = self.sizes
        return LayerVariant(d_model, d_ff, h, self.order)


class OneTooFew(EncoderVariant):
    def stack(self, N):
        self.layers = nn.ModuleList(self.make() for _ in range(1, N))


class EncoderOtherName(EncoderVariant):
    def stack(self, N):
        self.blocks = nn.ModuleList(self.make() for _ in range(N))

    def through(self, x, mask):
        for layer in self.blocks:
            x = layer(x, mask)
        return x


class EncoderRecursive(EncoderVariant):
    def make(self):
        return LayerByWrappers(*self.sizes, self.order)

    def through(self, x, mask, index=0):
        if index == len(self.layers):
            return x
        return self.through(self.layers[index](x, mask=mask), mask, index + 1)


class EncoderOfCopies(nn.Module):
    """Deep copies of one layer, as torch makes them: equal at first, independent ever after."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        layer = LayerByBranches(d_model, h, d_ff, norm)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(N)])
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def forward(self, x, mask=None):
        for i in range(len(self.layers)):
            x = self.layers[i](x, mask)
        return self.norm(x)


class EncoderOfNone(nn.Module):
    """norm is None in the Post-Norm order."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(N):
            self.layers.append(LayerByLoop(d_model=d_model, h=h, d_ff=d_ff, norm=norm))
        self.norm = None
        if norm == "pre":
            self.norm = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return x if self.norm is None else self.norm(x)


def _encoder_case(draw: Draw, N: int, norm: str | None = None, mask: str = "") -> Case:
    case = _layer_case(draw, norm, mask)
    d, h, d_ff = case.inputs["make"]["args"]
    weights = {}
    for i in range(N):
        weights |= _layer_weights(draw, d, d_ff, f"layers.{i}.")
    if norm == "pre":
        weights |= _bare_norm(draw, d, "norm.")
    make = {"args": [d, h, d_ff, N], "kwargs": case.inputs["make"]["kwargs"]}
    return Case("composite", case.inputs | {"make": make, "weights": weights})


def _encoder_post_cases(draw: Draw) -> list[Case]:
    return [_encoder_case(draw, 3), _encoder_case(draw, 2, "post")]


def _encoder_pre_cases(draw: Draw) -> list[Case]:
    return [_encoder_case(draw, 3, "pre")]


def _encoder_mask_cases(draw: Draw) -> list[Case]:
    return [_encoder_case(draw, 2, "pre", "padding"), _encoder_case(draw, 3, None, "own")]


def _encoder_one_cases(draw: Draw) -> list[Case]:
    return [_encoder_case(draw, 1, "pre"), _encoder_case(draw, 1)]


def _encoder_gradient_cases(draw: Draw) -> list[Case]:
    return [_with_gradient(_encoder_case(draw, 2, "pre", "padding"), draw)]


_STACKED = Tolerance(atol=3e-5, rtol=3e-4)

ENCODER = Exercise(
    id="6.7",
    symbol="Encoder",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "N", "norm"),
    points=6,
    todos=("6.7",),
    rows=(
        Row(
            "post",
            "N layers of their own, one after the other",
            _encoder_post_cases,
            looks=("out",),
            weight=3,
            tolerance=_STACKED,
            spoken=_FORWARD,
        ),
        Row(
            "pre",
            'norm="pre" reaches every layer, and one more norm ends the stack',
            _encoder_pre_cases,
            looks=("out",),
            weight=2,
            tolerance=_STACKED,
            spoken=_FORWARD,
        ),
        Row(
            "mask",
            "the mask reaches every layer",
            _encoder_mask_cases,
            looks=("out",),
            needs=("post", "pre"),
            tolerance=_STACKED,
            spoken={"out": "forward(x, mask)"},
        ),
        Row(
            "one layer",
            "N = 1 works in both orders",
            _encoder_one_cases,
            looks=("out",),
            needs=("post", "pre"),
            tolerance=_STACKED,
            spoken=_FORWARD,
        ),
        Row(
            "gradient",
            "the gradient reaches x and every layer's weights",
            _encoder_gradient_cases,
            looks=("grad.*",),
            needs=("post", "pre", "mask"),
            tolerance=Tolerance(atol=2e-4, rtol=1e-3),
            spoken=_FORWARD,
        ),
        Row(
            "input kept",
            "x and the mask are left unchanged",
            _encoder_mask_cases,
            looks=("changed",),
            needs=("mask",),
        ),
    ),
    reference=EncoderReference,
    misconceptions=(
        Wrong(
            "one layer N times",
            "[layer] * N holds one layer N times: all share one set of weights. Call EncoderLayer(…) N times.",
            OneLayerNTimes,
        ),
        Wrong(
            "first layer N times",
            "The first layer runs N times and the others never. Go through self.layers.",
            FirstLayerNTimes,
        ),
        Wrong(
            "plain list",
            "A plain list hides the layers from torch: no parameters, no training. Use nn.ModuleList([…]).",
            PlainList,
        ),
        Wrong(
            "no final norm",
            'With norm="pre" nothing normalises the residual path itself: the encoder needs one more norm at its end, '
            "in the attribute norm.",
            NoFinalNorm,
        ),
        Wrong(
            "final norm unused",
            'The final norm exists, and the result of norm="pre" does not pass it.',
            FinalNormUnused,
        ),
        Wrong(
            "final norm in post too",
            'With norm="post" every layer already ends in a norm. Only "pre" has a final one.',
            FinalNormInPostToo,
        ),
        Wrong(
            "final norm after each",
            "The final norm runs after every layer. It runs once, at the end.",
            FinalNormAfterEach,
        ),
        Wrong(
            "final norm first",
            "The final norm runs before the first layer. It runs at the end.",
            FinalNormFirst,
        ),
        Wrong("no mask", "The mask is not handed to the layers.", EncoderNoMask),
        Wrong(
            "mask for the first layer",
            "Only the first layer gets the mask. Every layer needs it.",
            MaskFirstLayerOnly,
        ),
        Wrong(
            "norm not passed on",
            'norm="pre" is not handed to the layers, so they are all Post-Norm. Pass it on.',
            NormNotPassedOn,
        ),
        Wrong(
            "last layer only",
            "Every layer starts from the encoder's input. Each starts from the result before it: x = layer(x, mask).",
            LastLayerOnly,
        ),
        Wrong(
            "sum of layers",
            "The layers' results are added. Each layer's result goes into the next.",
            SumOfLayers,
        ),
        Wrong("residual around all", "The encoder's input is added once more at the end.", AroundAll),
        Wrong("last first", "The layers run from last to first.", LastFirstLayer),
        Wrong(
            "returns in the loop",
            "The return stands inside the loop, so only the first layer runs.",
            ReturnsInLoop,
        ),
        Wrong(
            "result dropped",
            "The layers run, but their results are not kept: x must become what the layer returns.",
            ResultDropped,
        ),
        Wrong(
            "h and d_ff swapped",
            "h and d_ff have changed places: EncoderLayer takes (d_model, h, d_ff, norm).",
            WidthsSwapped,
        ),
        Wrong("one too few", "There are N − 1 layers.", OneTooFew),
        Wrong("other name", "The contract calls the list layers.", EncoderOtherName),
    ),
    alternatives={
        "recursion, wrappers": EncoderRecursive,
        "deep copies, identity": EncoderOfCopies,
        "norm is None": EncoderOfNone,
    },
    hints={
        "6.7": (
            "N layers with weights of their own: how often must EncoderLayer(…) be called?",
            "x [B, n, d] keeps its shape from layer to layer. Which result does the second layer get?",
            "layers: nn.ModuleList of N fresh EncoderLayers, all told the norm; for Pre-Norm one nn.LayerNorm more. "
            "Forward: x becomes each layer's result in turn, with the same mask; then the last norm if there is one.",
        )
    },
)


# ---- 6.8 encoder_parameters -------------------------------------------------------------------------


def parameters_reference(d_model, d_ff, N):
    """Counted in torch's own encoder, on the meta device, which allocates nothing."""
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(d_model, 1, d_ff, batch_first=True)
        encoder = nn.TransformerEncoder(layer, N, enable_nested_tensor=False)
    return sum(p.numel() for p in encoder.parameters())


def _count(attention=None, ffn=None, norms=None, total=None) -> Callable:
    """encoder_parameters with one term replaced."""
    attention = attention or (lambda d: 4 * d * d + 4 * d)
    ffn = ffn or (lambda d, f: 2 * d * f + f + d)
    norms = norms or (lambda d: 4 * d)
    total = total or (lambda layer, d, N: N * layer)

    def encoder_parameters(d_model, d_ff, N):
        layer = attention(d_model) + ffn(d_model, d_ff) + norms(d_model)
        return total(layer, d_model, N)

    return encoder_parameters


def parameters_by_matrices(d_model, d_ff, N):
    matrices = 4 * d_model**2 + 2 * d_model * d_ff
    vectors = 4 * d_model + (d_ff + d_model) + 2 * (2 * d_model)
    return N * (matrices + vectors)


def parameters_by_linears(d_model, d_ff, N):
    def linear(a, b):
        return (a + 1) * b

    shapes = [(d_model, d_model)] * 4 + [(d_model, d_ff), (d_ff, d_model)]
    return sum(sum(linear(*shape) for shape in shapes) + 2 * 2 * d_model for _ in range(N))


def parameters_by_counting(d_model, d_ff, N):
    layer = LayerVariant(d_model, 1, d_ff)
    return N * sum(math.prod(p.shape) for p in layer.parameters())


def _parameter_cases(draw: Draw) -> list[Case]:
    cases = []
    for _ in range(3):
        s = draw.sizes(d=(5, 16), d_ff=(17, 40), N=(2, 4))
        cases.append(Case("function", {"args": [s["d"], s["d_ff"], s["N"]]}))
    return cases


def _paper_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [512, 2048, 6]})]


_COUNT = {"out": "the count"}

PARAMETERS = Exercise(
    id="6.8",
    symbol="encoder_parameters",
    kind="function",
    parameters=("d_model", "d_ff", "N"),
    points=3,
    todos=("6.8",),
    rows=(
        Row(
            "count",
            "the exact number, biases and norms included, as an int",
            _parameter_cases,
            looks=("out",),
            weight=2,
            spoken=_COUNT,
        ),
        Row(
            "the paper's",
            "it is right for the paper's encoder: d = 512, d_ff = 2048, N = 6",
            _paper_cases,
            looks=("out",),
            needs=("count",),
            spoken=_COUNT,
        ),
    ),
    reference=parameters_reference,
    misconceptions=(
        Wrong(
            "no biases",
            "The biases are missing: 4d in the attention, d_ff + d in the feed-forward block.",
            _count(attention=lambda d: 4 * d * d, ffn=lambda d, f: 2 * d * f),
        ),
        Wrong(
            "4d missing",
            "4d are missing in each layer. Two things are that large: the four biases of the attention, "
            "and the two norms with a weight and a bias each. Count both.",
            _count(norms=lambda d: 0),
        ),
        Wrong(
            "no feed-forward bias",
            "The two biases of the feed-forward block are missing: d_ff + d.",
            _count(ffn=lambda d, f: 2 * d * f),
        ),
        Wrong(
            "half the norms",
            "A layer has two norms, and each has a weight and a bias: 4d in all. You counted 2d.",
            _count(norms=lambda d: 2 * d),
        ),
        Wrong(
            "three matrices",
            "The attention has four matrices: W_q, W_k, W_v and W_o. One is missing.",
            _count(attention=lambda d: 3 * d * d + 3 * d),
        ),
        Wrong(
            "one feed-forward matrix",
            "The feed-forward block has two matrices, d × d_ff and d_ff × d. You counted one.",
            _count(ffn=lambda d, f: d * f + f + d),
        ),
        Wrong(
            "d_ff twice as bias",
            "linear2's bias has d numbers, not d_ff: a bias is as long as what comes out.",
            _count(ffn=lambda d, f: 2 * d * f + 2 * f),
        ),
        Wrong(
            "d twice as bias",
            "linear1's bias has d_ff numbers, not d: a bias is as long as what comes out.",
            _count(ffn=lambda d, f: 2 * d * f + 2 * d),
        ),
        Wrong(
            "four times",
            "d_ff is not used: you counted with 4d.",
            _count(ffn=lambda d, f: 8 * d * d + 5 * d),
        ),
        Wrong(
            "one layer",
            "This is one layer. The encoder has N of them.",
            _count(total=lambda layer, d, N: layer),
        ),
        Wrong(
            "final norm",
            "You counted a norm after the last layer. Only a Pre-Norm encoder has it; this is Post-Norm.",
            _count(total=lambda layer, d, N: N * layer + 2 * d),
        ),
        Wrong(
            "12 d²",
            "12 d² a layer is the rule of thumb for d_ff = 4d. The exact number has d_ff, biases and norms in it.",
            _count(attention=lambda d: 12 * d * d, ffn=lambda d, f: 0, norms=lambda d: 0),
        ),
    ),
    alternatives={
        "matrices and vectors": parameters_by_matrices,
        "linear by linear": parameters_by_linears,
        "counted in a layer": parameters_by_counting,
    },
    hints={
        "6.8": (
            "Which parts of a layer hold numbers that are learned? There are eight: four, two and two.",
            "attention: 4 matrices [d, d] and 4 biases [d]; feed-forward: [d_ff, d] with a bias [d_ff] and [d, d_ff] "
            "with a bias [d]; two norms, each with weight [d] and bias [d].",
            "add up the sizes of one layer's matrices and vectors, then multiply by N",
        )
    },
)

EXERCISES = (FEED_FORWARD, GELU, SWIGLU, ENCODER_LAYER, ENCODER, PARAMETERS)
