"""What exercises of chapter 05 share: the cases of the two norms, and of the two wrappers around a sublayer."""

from __future__ import annotations

import torch

from grader.exercises import rows
from grader.exercises.draw import Draw
from grader.exercises.model import Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

GRADIENT = Tolerance(atol=3e-5, rtol=3e-4)
DOUBLE = Tolerance(atol=1e-9, rtol=1e-8)


def norm_weights(draw: Draw, d: int, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Random scale and shift; the scale stays away from 0, where a mistake would not show."""
    spread = {name: draw.uniform(d, low=0.5, high=1.7) for name in sorted(names)}  # sorted, as on the wire
    return {name: value - 1.2 if name.endswith("bias") else value for name, value in spread.items()}


def features(draw: Draw, *front: int, d: int, scale: float = 1.4) -> torch.Tensor:
    """Values whose tokens and features each have a centre and a spread of their own."""
    values = draw.normal(*front, d, scale=scale)
    centres = draw.normal(*front, 1, scale=scale) + draw.normal(d, scale=0.5 * scale)
    return values + centres + 0.6 * scale


# ---- 5.1 LayerNorm and 5.4 RMSNorm ------------------------------------------------------------------

NORM_SPOKEN = {
    "out": _("forward(x)"),
    "attr.weight": _("weight"),
    "attr.bias": _("bias"),
    "grad.0": _("the gradient of x"),
    "grad.weight": _("the gradient of weight"),
    "grad.bias": _("the gradient of bias"),
}


class NormCases:
    """Cases for a norm whose parameters are `names`: LayerNorm and RMSNorm differ in nothing else here."""

    def __init__(self, *names: str, default_scale: float):
        self.names = names
        self.default_scale = default_scale  # of inputs whose variance is about as small as the default eps

    def _case(self, draw: Draw, front=None, d=None) -> Case:
        sizes = draw.sizes(B=(2, 4), n=(5, 7), d=(8, 11))
        d = d or sizes["d"]
        x = features(draw, *(front or (sizes["B"], sizes["n"])), d=d)
        weights = norm_weights(draw, d, self.names)
        return Case("module", {"make": {"args": [d]}, "weights": weights, "call": {"args": [x]}})

    def one(self, draw: Draw) -> list[Case]:
        return [self._case(draw)]

    def two(self, draw: Draw) -> list[Case]:
        return [self._case(draw), self._case(draw)]

    def values(self, draw: Draw) -> list[Case]:
        """Also with equal axes, where code that finds the features by their number is lost."""
        n = draw.size(5, 7)
        return [*self.two(draw), self._case(draw, (2, n), n), self._case(draw, (n, n), n)]

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


# ---- 5.2 PostNorm and 5.3 PreNorm -------------------------------------------------------------------

WRAPPER_SPOKEN = {
    "out": _("forward(x, sublayer)"),
    "grad.0": _("the gradient of x"),
    "grad.norm.weight": _("the gradient of norm.weight"),
    "grad.norm.bias": _("the gradient of norm.bias"),
    "steps": _(
        "the list of different values of output − x (a sublayer that gives 1 everywhere, a norm that adds 100)"
    ),
    "zeros met": _("the answer to “did dropout reach the sublayer's input?”"),
}


def _wrapper_case(draw: Draw, equal: bool = False, **make) -> Case:
    sizes = draw.sizes(B=(2, 4), n=(5, 7), d=(8, 11))
    d = sizes["n"] if equal else sizes["d"]
    x = features(draw, sizes["n"] if equal else sizes["B"], sizes["n"], d=d)
    sublayer = {"$": "sublayer", "weight": draw.normal(d, d, scale=0.7), "bias": draw.normal(d)}
    inputs = {
        "make": {"args": [d], "kwargs": make},
        "weights": norm_weights(draw, d, ("norm.weight", "norm.bias")),
        "call": {"args": [x, sublayer]},
    }
    return Case("module", inputs)


def _two(draw: Draw) -> list[Case]:
    return [_wrapper_case(draw), _wrapper_case(draw)]


def wrapper_order(draw: Draw) -> list[Case]:
    return [*_two(draw), _wrapper_case(draw, equal=True)]


def _one(draw: Draw) -> list[Case]:
    return [_wrapper_case(draw)]


def _parameters(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [draw.size(5, 9)]}})]


def _evaluation(draw: Draw) -> list[Case]:
    return [_wrapper_case(draw, dropout=0.5)]


def _training(draw: Draw) -> list[Case]:
    """At least 15 · 37 numbers, so that both kept and dropped ones are seen: all but never (0.8 ** 555 < 1e-53)."""
    d, rate = draw.size(37, 43), draw.choice([0.2, 0.6, 0.75])
    x = draw.integers(1, 4, 3, 5, d).float()
    return [Case("where dropout acts", {"make": {"args": [d, rate]}, "x": x, "norm_adds": 100.0})]


def _gradient(draw: Draw) -> list[Case]:
    case = _wrapper_case(draw)
    x = case.inputs["call"]["args"][0]
    case.inputs["call"] |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(*x.shape)]}
    return [case]


def _dropping(draw: Draw) -> list[Case]:
    """In train mode, since a mask of dropout is what a learner would make on the CPU."""
    return [Case("module", case.inputs | {"mode": "train"}) for case in _evaluation(draw)]


ORDER = ("order",)

WRAPPER_ROWS = (  # after "order", in which alone PostNorm and PreNorm differ
    Row(
        "parameters",
        "all it holds is norm, with weight and bias of width d",
        _parameters,
        looks=("parameters", "buffers"),
        needs=ORDER,
    ),
    Row(
        "evaluation",
        "in eval mode dropout does nothing, even at 0.5",
        _evaluation,
        looks=("out",),
        needs=ORDER,
    ),
    Row(
        "training",
        "in training dropout acts on what the sublayer returns, and on nothing else",
        _training,
        looks=("steps", "zeros met"),
        needs=ORDER,
    ),
    Row(
        "gradient",
        "the gradient reaches x on both paths, and the norm",
        _gradient,
        looks=("grad.*",),
        needs=ORDER,
        tolerance=GRADIENT,
    ),
    rows.input_kept(_two, needs=ORDER),
    rows.float64(_one, needs=ORDER, weight=0.5),
    rows.device(_dropping, needs=ORDER, weight=0.5),
)

ALWAYS_DROPS = _(
    "Dropout also acts in eval mode. F.dropout needs training=self.training; "
    "an nn.Dropout made in __init__ knows the mode by itself."
)
NEVER_DROPS = _("Dropout never acts: in training, a share of the sublayer's output should be set to 0.")
KEEPS_P = _("dropout is the share that is set to 0; you used it as the share that is kept.")
OTHER_NAME = _(
    "The norm has another name: the contract calls it norm, and later chapters load weights by that name."
)
NOT_CALLED = _(
    "sublayer is a function, and the function itself was used in place of its result. "
    "Call it on what it should work on."
)
NO_SUBLAYER = _("The sublayer is never called, so attention or feed-forward would do nothing.")
NO_NORM = _("The norm is never used: this is the plain residual x + sublayer(x).")
NEITHER = _(
    "x + norm(sublayer(x)) stands in some published code, and it is neither Post- nor Pre-Norm: the norm "
    "sees only the sublayer's output, so nothing keeps the sum on one scale and nothing prepares the sublayer's input."
)
MULTIPLIES = _("x is multiplied with the sublayer's output. Add them.")
SUBTRACTS = _("x is subtracted. Add it.")
DROPS_SUM = _(
    "Dropout acts on the sum, so it also cuts the residual path. Drop only what the sublayer returns."
)
DROPS_INPUT = _("Dropout acts on what goes into the sublayer. Drop what comes out of it.")
DROPS_X = _("Dropout acts on x, the residual path. Drop what the sublayer returns instead.")
DETACHED = _(
    "x is detached before it is added, so no gradient flows along the residual path: "
    "the very path it is there for."
)
IN_PLACE = _("x += … changes the caller's tensor. Make a new one: x + ….")
ON_THE_CPU = _("Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device.")
