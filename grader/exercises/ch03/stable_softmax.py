"""3.5 stable_softmax: softmax by hand, along any axis, right for numbers of any size."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from grader.exercises import rows
from grader.exercises.draw import Draw
from grader.exercises.edits import edit, whole
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

INF = float("inf")

# ---- what is right ----------------------------------------------------------------------------------


def reference(x, dim=-1):
    return F.softmax(x, dim=dim)


def stable_softmax(x, dim=-1):
    largest = x.amax(dim, keepdim=True)
    e = torch.exp(x - largest)
    return e / e.sum(dim, keepdim=True)


def by_logarithms(x, dim=-1):
    largest = torch.max(x, dim=dim, keepdim=True)[0].detach()
    total = (x - largest).exp().sum(dim=dim, keepdim=True)
    return torch.exp(x - largest - total.log())


def slice_by_slice(x, dim=-1):
    slices = x.unbind(dim)
    largest = slices[0]
    for piece in slices[1:]:
        largest = torch.maximum(largest, piece)
    e = [torch.exp(piece - largest) for piece in slices]
    return torch.stack([piece / sum(e) for piece in e], dim)


def axis_moved_to_the_front(x, dim=-1):
    moved = x.movedim(dim, 0)
    e = torch.exp(moved - moved.max(0).values)
    return (e / e.sum(0)).movedim(0, dim)


def cumulative(x, dim=-1):
    last = x.size(dim) - 1
    return torch.exp(x - x.logcumsumexp(dim).narrow(dim, last, 1))


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, *dim: int, **more) -> Case:
    sizes = draw.sizes(a=(2, 4), b=(3, 5), c=(5, 7))
    return Case("function", {"args": [draw.normal(*sizes.values(), scale=1.5), *dim], **more})


def _last_axis(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _value(draw: Draw) -> list[Case]:
    """Also with equal axes: what guesses an axis by its length goes wrong elsewhere."""
    return [_case(draw), *(Case("function", {"args": [draw.normal(*[4] * axes)]}) for axes in (2, 3))]


def _middle_axis(draw: Draw) -> list[Case]:
    return [_case(draw, 1)]


def _any_axis(draw: Draw) -> list[Case]:
    by_name = _case(draw)
    by_name.inputs["kwargs"] = {"dim": -2}
    one_axis = Case("function", {"args": [draw.normal(draw.size(4, 6)), 0]})
    cube = draw.normal(4, 4, 4)
    equal = [Case("function", {"args": [cube, dim]}) for dim in (0, 1, 2)]
    return [*(_case(draw, dim) for dim in (0, 1, -1, -3)), by_name, one_axis, *equal]


def _large(draw: Draw) -> list[Case]:
    """Rows near 1e4, near -1e4 and both: each has its own largest number."""
    columns = draw.size(4, 6)
    x = draw.normal(3, columns, scale=2.0)
    x[0] += 1e4
    x[1] -= 1e4
    x[2, :2] += torch.tensor([1e4, -1e4])
    return [Case("function", {"args": [x]}), Case("function", {"args": [x.T.contiguous(), 0]})]


def _minus_infinity(draw: Draw) -> list[Case]:
    x = draw.normal(3, draw.size(4, 6))
    x[0, 1] = x[1, 0] = x[1, -1] = -INF
    return [Case("function", {"args": [x]})]


def _gradient(draw: Draw) -> list[Case]:
    case = _case(draw, 1)
    x = case.inputs["args"][0]
    return [Case("function", case.inputs | {"wrt": ["0"], "cotangents": [draw.normal(*x.shape)]})]


ROUGH = Tolerance(atol=1e-3, rtol=1e-3)  # near 1e4 a float32 itself is only good to 1e-3
BOTH = ("value", "any axis")

ROWS = (
    Row("value", "along the last axis: exp(x) / Σ exp(x)", _value, looks=("out",), weight=2),
    Row(
        "any axis",
        "dim chooses the axis, counted from the front or from the end",
        _any_axis,
        looks=("out",),
    ),
    Row(
        "large numbers",
        "numbers near 1e4 and -1e4 give finite weights that are right",
        _large,
        looks=("out",),
        weight=2,
        tolerance=ROUGH,
        needs=("value",),
    ),
    Row(
        "minus infinity",
        "an entry of -∞ gets the weight 0 and the others share the rest",
        _minus_infinity,
        looks=("out",),
        needs=("value",),
    ),
    Row("gradient", "the gradient of x is right", _gradient, looks=("grad.0",), needs=BOTH),
    rows.input_kept(_last_axis),
    rows.float64(_last_axis, weight=0.5),
    rows.layout(_middle_axis, needs=BOTH),
    rows.device(_last_axis, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------


def softmax_without_exp(x, dim=-1):
    return x / x.sum(dim, keepdim=True)


MISTAKES = (
    edit(
        "not stable",
        "The formula is right, but exp(1e4) is too large for a float: it gives inf, and inf / inf is NaN; exp(-1e4) "
        "is 0, and 0 / 0 is NaN. Subtract the largest x of each row first: that changes no weight.",
        "x - largest",
        "x",
    ),
    edit(
        "one maximum for all",
        "You subtract the largest number of the whole tensor. A row that lies far below it becomes 0 / 0. "
        "Each row needs its own maximum, along dim.",
        "x.amax(dim, keepdim=True)",
        "x.max()",
    ),
    edit(
        "subtracts the mean",
        "You subtract the mean. The largest exponent can then still be huge; after the maximum it is 0.",
        "x.amax(",
        "x.mean(",
    ),
    edit(
        "subtracts the minimum",
        "You subtract the smallest number, which makes the exponents larger. Subtract the largest.",
        "x.amax(",
        "x.amin(",
    ),
    edit(
        "always the last axis",
        "dim is not used: you always work along the last axis.",
        "amax(dim",
        "amax(-1",
        "sum(dim",
        "sum(-1",
    ),
    edit(
        "maximum over the last axis",
        "The sum runs along dim, but the maximum is always taken along the last axis. Numbers that share a sum "
        "must share the number that is subtracted, or their weights change.",
        "amax(dim",
        "amax(-1",
    ),
    edit(
        "maximum over the first axis",
        "The maximum is taken along the first axis. Take it along dim, like the sum: numbers that share a sum must "
        "share the number that is subtracted.",
        "amax(dim",
        "amax(0",
    ),
    edit(
        "sum of everything",
        "You divide by the sum of the whole tensor. Every row along dim must sum to 1: sum along dim.",
        "e.sum(dim, keepdim=True)",
        "e.sum()",
    ),
    edit(
        "not divided",
        "The exponentials are not divided by their sum along dim.",
        "e / e.sum(dim, keepdim=True)",
        "e",
    ),
    edit(
        "no keepdim",
        "The maximum or the sum lost its axis, so it no longer lines up with x. Keep the axis, with length 1: "
        "keepdim=True.",
        "x.amax(dim, keepdim=True)",
        "x.amax(dim)",
    ),
    edit(
        "max is a pair",
        "x.max(dim) gives two things, the values and where they stand. Take its .values, or use x.amax(dim).",
        "x.amax(dim, keepdim=True)",
        "x.max(dim, keepdim=True)",
    ),
    whole(
        "no exponential",
        "You divide x by its sum. Without exp a negative x gives a negative weight, and a sum near 0 explodes.",
        softmax_without_exp,
    ),
    edit(
        "logarithm",
        "This is the logarithm of the weights (log-softmax). Return the weights.",
        "e / e.sum(dim, keepdim=True)",
        "(e / e.sum(dim, keepdim=True)).log()",
    ),
    edit(
        "negated",
        "The largest x gets the smallest weight: there is a minus sign too many.",
        "    largest =",
        "    x = -x\n    largest =",
    ),
    edit(
        "base two",
        "The base is 2; softmax uses e: torch.exp.",
        "torch.exp(x - largest)",
        "2.0 ** (x - largest)",
    ),
    edit(
        "divided by the largest",
        "You divide by the largest number. That changes the weights; subtracting it does not.",
        "x.amax",
        "x.abs().amax",
        "x - largest",
        "x / largest",
    ),
    edit(
        "clamped",
        "You clamp x. Beyond the limit all numbers look alike, so their weights are wrong. Subtract the maximum.",
        "x - largest",
        "x.clamp(-50, 50)",
    ),
    edit(
        "NaN painted over",
        "The NaN are replaced afterwards, so those rows sum to 0. Subtract the maximum and none arises.",
        "x - largest",
        "x",
        "e / e.sum(dim, keepdim=True)",
        "(e / e.sum(dim, keepdim=True)).nan_to_num()",
    ),
    edit(
        "in place",
        "x -= … changes the caller's tensor. Make a new one: x = x - ….",
        "    e = torch.exp(x - largest)",
        "    x -= largest\n    e = torch.exp(x)",
    ),
    edit(
        "float32 only",
        "The result is cast to float32. Keep the dtype of the input.",
        "    largest =",
        "    x = x.float()\n    largest =",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device.",
        "e.sum(dim, keepdim=True)",
        "(e.sum(dim, keepdim=True) + torch.zeros(e.size(-1))[:1])",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

BY_HAND = _(
    "This one is by hand: your code uses the library's {name}, which does all of it for you. Write it with exp, a "
    "sum and a division, and take care of large numbers first. From 3.6 on the library's is yours to use."
)
LIBRARY = [
    "softmax",
    "log_softmax",
    "logsumexp",
    "softmin",
    "Softmax",
    "LogSoftmax",
    "Softmin",
    "_softmax",
    "cross_entropy",
    "scaled_dot_product_attention",
    "gumbel_softmax",
    "Softmax2d",
]

EXERCISE = Exercise(
    id="3.5",
    symbol="stable_softmax",
    kind="function",
    parameters=("x", "dim"),
    points=4,
    todos=("3.5",),
    rows=ROWS,
    reference=reference,
    answer=stable_softmax,
    mistakes=MISTAKES,
    alternatives=(by_logarithms, slice_by_slice, axis_moved_to_the_front, cumulative),
    spoken={"grad.0": _("the gradient of x")},
    forbidden=dict.fromkeys(LIBRARY, BY_HAND),
    hints={
        "3.5": (
            _("Add 100 to every x of a row. What happens to each exp(x), to their sum, and to the quotient?"),
            _(
                "x [..., n, ...] → its maximum along dim with the axis kept [..., 1, ...] → x minus it → exp → the "
                "sum along dim, axis kept → the quotient, of x's shape."
            ),
            _(
                "largest = maximum of x along dim, axis kept; e = exp of (x minus largest); return e over its sum "
                "along dim"
            ),
        )
    },
)
