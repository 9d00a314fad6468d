"""7.2 causal_mask: who may look at whom among m target tokens, bool [1, 1, m, m]."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(m):
    place = np.arange(m)
    return torch.from_numpy(place[None, None, :, None] >= place[None, None, None, :])


def causal_mask(m):
    return torch.ones(1, 1, m, m, dtype=torch.bool).tril()


def loops(m):
    return torch.tensor([[[[j <= i for j in range(m)] for i in range(m)]]])


def comparison(m):
    i = torch.arange(m)
    return (i[:, None] >= i)[None, None]


def torchs_mask(m):
    return (nn.Transformer.generate_square_subsequent_mask(m) == 0)[None, None]


def running_sum(m):
    return torch.eye(m).flip(-1).cumsum(-1).flip(-1).bool().view(1, 1, m, m)


# ---- rows -------------------------------------------------------------------------------------------
# No row about devices: the function takes no tensor, and whoever calls it moves its mask.


def _lower_triangle(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.size(4, 7)]})]


def _one_token(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [1]})]


ROWS = (
    Row(
        "lower triangle",
        "bool [1, 1, m, m], True on and below the diagonal",
        _lower_triangle,
        looks=("out",),
        weight=2,
    ),
    Row(
        "one token",
        "a single token may attend to itself",
        _one_token,
        looks=("out",),
        needs=("lower triangle",),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "upper triangle",
        "This is the upper triangle: every token sees itself and the future. Row i is the query, column j the key: "
        "keep j ≤ i.",
        ".tril()",
        ".triu()",
    ),
    edit(
        "torch's sign",
        "This mask is True where attention is blocked, as torch.nn counts in places. In this course True means 'may "
        "attend'.",
        ".tril()",
        ".triu(1)",
    ),
    edit(
        "excludes self",
        "The diagonal is False, so a token may not look at itself, and the first token has nothing at all to look at: "
        "its row of weights would be NaN.",
        ".tril()",
        ".tril(-1)",
    ),
    edit(
        "one ahead",
        "Every token also sees the next one, which is the answer it has to predict. Stop at the diagonal.",
        ".tril()",
        ".tril(1)",
    ),
    edit(
        "only self",
        "Every token sees only itself. The tokens before it are allowed too.",
        "torch.ones(1, 1, m, m, dtype=torch.bool).tril()",
        "torch.eye(m, dtype=torch.bool)[None, None]",
    ),
    edit("nothing blocked", "Everything is True: nothing is masked.", ".tril()", ""),
    edit(
        "float mask",
        "The pattern is right, but the mask is made of floats. Make it bool: dtype=torch.bool.",
        ", dtype=torch.bool",
        "",
    ),
    edit(
        "additive",
        "This is an additive mask, 0 and −∞, to be added to scores. Here a mask is bool.",
        "torch.ones(1, 1, m, m, dtype=torch.bool).tril()",
        'torch.full((1, 1, m, m), float("-inf")).triu(1)',
    ),
    edit(
        "two axes",
        "The pattern is right, but the shape is [m, m]. Two axes of length 1 in front, [1, 1, m, m], let it stand for "
        "every sentence and every head.",
        "1, 1, m, m",
        "m, m",
    ),
    edit(
        "two axes of floats",
        "The pattern is right. Two things are missing: dtype=torch.bool, and two axes of length 1 in front.",
        "1, 1, m, m, dtype=torch.bool",
        "m, m",
    ),
    edit(
        "other diagonal",
        "The triangle is mirrored: your boundary runs from the top right to the bottom left.",
        ".tril()",
        ".tril().flip(-1)",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="7.2",
    symbol="causal_mask",
    kind="function",
    parameters=("m",),
    points=2,
    todos=("7.2",),
    rows=ROWS,
    reference=reference,
    answer=causal_mask,
    mistakes=MISTAKES,
    alternatives=(loops, comparison, torchs_mask, running_sum),
    hints={
        "7.2": (
            _("Token 2 asks. Which of the keys 0, 1, 2, 3 have been written by then?"),
            _("Rows are queries, columns are keys: [m, m]. Two more axes in front: [1, 1, m, m]."),
            _("start from an all-True bool matrix [1, 1, m, m] and keep its lower triangle"),
        )
    },
)
