"""6.8 encoder_parameters: how many numbers a Post-Norm encoder of N layers learns, biases and norms included."""

from __future__ import annotations

import math

import torch
from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import EncoderLayer

# ---- what is right ----------------------------------------------------------------------------------


def reference(d_model, d_ff, N):
    """Counted in torch's own encoder, on the meta device, which allocates nothing."""
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(d_model, 1, d_ff, batch_first=True)
        encoder = nn.TransformerEncoder(layer, N, enable_nested_tensor=False)
    return sum(p.numel() for p in encoder.parameters())


def encoder_parameters(d_model, d_ff, N):
    attention = 4 * d_model * d_model + 4 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norms = 4 * d_model
    return N * (attention + feed_forward + norms)


def matrices_and_vectors(d_model, d_ff, N):
    matrices = 4 * d_model**2 + 2 * d_model * d_ff
    vectors = 4 * d_model + (d_ff + d_model) + 2 * (2 * d_model)
    return N * (matrices + vectors)


def linear_by_linear(d_model, d_ff, N):
    def linear(a, b):
        return (a + 1) * b

    shapes = [(d_model, d_model)] * 4 + [(d_model, d_ff), (d_ff, d_model)]
    return sum(sum(linear(*shape) for shape in shapes) + 2 * 2 * d_model for _ in range(N))


def counted_in_a_layer(d_model, d_ff, N):
    layer = EncoderLayer(d_model, 1, d_ff)
    return N * sum(math.prod(p.shape) for p in layer.parameters())


# ---- rows -------------------------------------------------------------------------------------------


def _count(draw: Draw) -> list[Case]:
    three = [draw.sizes(d=(5, 16), d_ff=(17, 40), N=(2, 4)) for _ in range(3)]
    equal = draw.size(5, 9)
    sizes = [*([s["d"], s["d_ff"], s["N"]] for s in three), [equal, equal, equal], [equal + 3, equal, 1]]
    return [Case("function", {"args": args}) for args in sizes]


def _papers(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [512, 2048, 6]})]


ROWS = (  # no row for float64 or another device: no tensor goes in, none comes out
    Row(
        "count",
        "the exact number, biases and norms included, as an int",
        _count,
        looks=("out",),
        weight=2,
    ),
    Row(
        "the paper's",
        "it is right for the paper's encoder: d = 512, d_ff = 2048, N = 6",
        _papers,
        looks=("out",),
        needs=("count",),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "no biases",
        "The biases are missing: 4d in the attention, d_ff + d in the feed-forward block.",
        "4 * d_model * d_model + 4 * d_model",
        "4 * d_model * d_model",
        "2 * d_model * d_ff + d_ff + d_model",
        "2 * d_model * d_ff",
    ),
    edit(
        "4d missing",
        "4d are missing in each layer. Two things are that large: the four biases of the attention, "
        "and the two norms with a weight and a bias each. Count both.",
        "    norms = 4 * d_model\n",
        "",
        " + norms)",
        ")",
    ),
    edit(
        "no feed-forward bias",
        "The two biases of the feed-forward block are missing: d_ff + d.",
        "2 * d_model * d_ff + d_ff + d_model",
        "2 * d_model * d_ff",
    ),
    edit(
        "half the norms",
        "A layer has two norms, and each has a weight and a bias: 4d in all. You counted 2d.",
        "norms = 4 *",
        "norms = 2 *",
    ),
    edit(
        "three matrices",
        "The attention has four matrices: W_q, W_k, W_v and W_o. One is missing.",
        "4 * d_model * d_model + 4 * d_model",
        "3 * d_model * d_model + 3 * d_model",
    ),
    edit(
        "one feed-forward matrix",
        "The feed-forward block has two matrices, d × d_ff and d_ff × d. You counted one.",
        "2 * d_model * d_ff",
        "d_model * d_ff",
    ),
    edit(
        "d_ff twice as bias",
        "linear2's bias has d numbers, not d_ff: a bias is as long as what comes out.",
        "+ d_ff + d_model",
        "+ d_ff + d_ff",
    ),
    edit(
        "d twice as bias",
        "linear1's bias has d_ff numbers, not d: a bias is as long as what comes out.",
        "+ d_ff + d_model",
        "+ d_model + d_model",
    ),
    edit(
        "four times",
        "d_ff is not used: you counted with 4d.",
        "    attention =",
        "    d_ff = 4 * d_model\n    attention =",
    ),
    edit(
        "one layer",
        "This is one layer. The encoder has N of them.",
        "N * (attention + feed_forward + norms)",
        "attention + feed_forward + norms",
    ),
    edit(
        "final norm",
        "You counted a norm after the last layer. Only a Pre-Norm encoder has it; this is Post-Norm.",
        "+ norms)",
        "+ norms) + 2 * d_model",
    ),
    edit(
        "12 d²",
        "12 d² a layer is the rule of thumb for d_ff = 4d. The exact number has d_ff, biases and norms in it.",
        "attention + feed_forward + norms",
        "12 * d_model**2",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="6.8",
    symbol="encoder_parameters",
    kind="function",
    parameters=("d_model", "d_ff", "N"),
    points=3,
    todos=("6.8",),
    rows=ROWS,
    reference=reference,
    answer=encoder_parameters,
    mistakes=MISTAKES,
    alternatives=(matrices_and_vectors, linear_by_linear, counted_in_a_layer),
    spoken={"out": _("the count")},
    hints={
        "6.8": (
            _("Which parts of a layer hold numbers that are learned? There are eight: four, two and two."),
            _(
                "attention: 4 matrices [d, d] and 4 biases [d]; feed-forward: [d_ff, d] with a bias [d_ff] and [d, d_ff] "
                "with a bias [d]; two norms, each with weight [d] and bias [d]."
            ),
            _("add up the sizes of one layer's matrices and vectors, then multiply by N"),
        )
    },
)
