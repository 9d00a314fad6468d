"""4.6 attention_parameters: how many numbers multi-head attention learns, whatever the number of heads."""

from __future__ import annotations

from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(d_model, bias=True):
    """Count what torch's own module holds."""
    return sum(p.numel() for p in nn.MultiheadAttention(d_model, 1, bias=bias).parameters())


def attention_parameters(d_model, bias=True):
    weights = 4 * d_model**2
    biases = 4 * d_model if bias else 0
    return weights + biases


def counting_layers(d_model, bias=True):
    layers = [nn.Linear(d_model, d_model, bias=bias) for _ in range(4)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def factored(d_model, bias=True):
    return 4 * d_model * (d_model + int(bias))


def by_if(d_model, bias=True):
    one = d_model * d_model
    if bias:
        one += d_model
    return one * 4


# ---- rows (none about devices: no tensor comes in or out) -------------------------------------------


def _default(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.size(5, 40)]}) for _ in range(2)]


def _both(draw: Draw) -> list[Case]:
    return [
        Case("function", {"args": [draw.size(5, 40)], "kwargs": {"bias": bias}}) for bias in (False, True)
    ]


ROWS = (
    Row("count", "the number of parameters with biases", _default, looks=("out",), weight=2),
    Row("without bias", "bias=False leaves the biases out", _both, looks=("out",)),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "no W_o",
        "You counted three layers. There are four: W_o too.",
        "4 * d_model**2",
        "3 * d_model**2",
        "4 * d_model if",
        "3 * d_model if",
    ),
    edit(
        "no biases",
        "Each layer has a bias of d numbers unless bias=False.",
        "weights + biases",
        "weights",
    ),
    edit(
        "always biases",
        "With bias=False there are none.",
        "4 * d_model if bias else 0",
        "4 * d_model",
    ),
    edit(
        "one bias",
        "Each of the four layers has a bias of its own.",
        "4 * d_model if",
        "d_model if",
    ),
    edit(
        "bias of one number",
        "A layer's bias is d numbers, one for each output feature.",
        "4 * d_model if",
        "4 if",
    ),
    edit(
        "one matrix",
        "That is one layer. There are four.",
        "4 * d_model**2",
        "d_model**2",
        "4 * d_model if",
        "d_model if",
    ),
    edit(
        "more for more heads",
        "The heads share the four matrices: h does not multiply anything.",
        "weights + biases",
        "8 * (weights + biases)",
    ),
    edit(
        "4d squared",
        "4d² is four times d², not (4d)².",
        "4 * d_model**2",
        "(4 * d_model) ** 2",
    ),
    edit(
        "bias reversed",
        "The biases are counted exactly when there are none.",
        "4 * d_model if bias else 0",
        "0 if bias else 4 * d_model",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="4.6",
    symbol="attention_parameters",
    kind="function",
    parameters=("d_model", "bias"),
    points=2,
    todos=("4.6",),
    rows=ROWS,
    reference=reference,
    answer=attention_parameters,
    mistakes=MISTAKES,
    alternatives=(counting_layers, factored, by_if),
    hints={
        "4.6": (
            _("How many numbers are in the weight of nn.Linear(d, d)? And in its bias?"),
            _("One layer: weight [d, d] and, perhaps, bias [d]. There are four layers."),
            _("four times (the weight's numbers, and the bias's if there is one)"),
        )
    },
)
