"""5.2 PostNorm: norm(x + dropout(sublayer(x))), the order of the first Transformer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises.ch05 import _common as common
from grader.exercises.ch05.layer_norm import LayerNorm
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


class PostNormReference(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(d_model), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return self.norm(torch.add(x, self.drop(sublayer(x))))


class PostNorm(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        change = self.dropout(sublayer(x))
        return self.norm(x + change)


class OneStepALineOwnNorm(nn.Module):
    """F.dropout told about the mode."""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.rate = dropout
        self.norm = LayerNorm(d_model)

    def forward(self, x, sublayer):
        change = sublayer(x)
        change = F.dropout(change, p=self.rate, training=self.training)
        total = change + x
        return self.norm(total)


class StackAndSum(nn.Module):
    """The sum as a sum over a stack; dropout only in training, by a branch."""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm((d_model,))

    def forward(self, x, sublayer):
        change = self.dropout(sublayer(x)) if self.training else sublayer(x)
        return self.norm(torch.stack([x, change]).sum(dim=0))


class DropoutByHand(nn.Module):
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


# ---- rows -------------------------------------------------------------------------------------------

ROWS = (
    Row(
        "order",
        "without dropout the result is norm(x + sublayer(x))",
        common.wrapper_order,
        looks=("out",),
        weight=4,
    ),
    *common.WRAPPER_ROWS,
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "pre for post",
        "This is Pre-Norm, x + sublayer(norm(x)). PostNorm normalises after the addition.",
        "sublayer(x)",
        "sublayer(self.norm(x))",
        "self.norm(x + change)",
        "x + change",
    ),
    edit(
        "no residual",
        "x is not added: norm(sublayer(x)) has lost the residual path.",
        "x + change",
        "change",
    ),
    edit(
        "norm then add",
        common.NEITHER,
        "self.norm(x + change)",
        "x + self.norm(change)",
    ),
    edit(
        "no norm",
        common.NO_NORM,
        "self.norm(x + change)",
        "x + change",
    ),
    edit(
        "both normed",
        "x and sublayer(x) are normalised one by one and then added. Add first, then normalise the sum once.",
        "self.norm(x + change)",
        "self.norm(x) + self.norm(change)",
    ),
    edit(
        "norms x only",
        "The norm is applied to x alone. It belongs around the sum: norm(x + sublayer(x)).",
        "self.norm(x + change)",
        "self.norm(x) + change",
    ),
    edit(
        "sandwich",
        "There are two norms, one before the sublayer and one after the addition. PostNorm has only the second.",
        "sublayer(x)",
        "sublayer(self.norm(x))",
    ),
    edit(
        "adds twice",
        "x is added once more after the norm. The norm is the last step.",
        "self.norm(x + change)",
        "x + self.norm(x + change)",
    ),
    edit(
        "multiplies",
        common.MULTIPLIES,
        "x + change",
        "x * change",
    ),
    edit(
        "subtracts",
        common.SUBTRACTS,
        "x + change",
        "change - x",
    ),
    edit(
        "not called",
        common.NOT_CALLED,
        "sublayer(x)",
        "sublayer",
    ),
    edit(
        "no sublayer",
        common.NO_SUBLAYER,
        "sublayer(x)",
        "x",
    ),
    edit(
        "always drops",
        common.ALWAYS_DROPS,
        "self.dropout = nn.Dropout(dropout)",
        "self.p = dropout",
        "self.dropout(sublayer(x))",
        "F.dropout(sublayer(x), self.p)",
    ),
    edit(
        "never drops",
        common.NEVER_DROPS,
        "self.dropout(sublayer(x))",
        "sublayer(x)",
    ),
    edit(
        "keeps p",
        common.KEEPS_P,
        "nn.Dropout(dropout)",
        "nn.Dropout(1 - dropout)",
    ),
    edit(
        "drops the sum",
        common.DROPS_SUM,
        "self.dropout(sublayer(x))",
        "sublayer(x)",
        "x + change",
        "self.dropout(x + change)",
    ),
    edit(
        "drops the result",
        "Dropout acts after the norm. Drop only what the sublayer returns, before the addition.",
        "self.dropout(sublayer(x))",
        "sublayer(x)",
        "self.norm(x + change)",
        "self.dropout(self.norm(x + change))",
    ),
    edit(
        "drops the input",
        common.DROPS_INPUT,
        "self.dropout(sublayer(x))",
        "sublayer(self.dropout(x))",
    ),
    edit(
        "drops x",
        common.DROPS_X,
        "self.dropout(sublayer(x))",
        "sublayer(x)",
        "x + change",
        "self.dropout(x) + change",
    ),
    edit(
        "detached",
        common.DETACHED,
        "x + change",
        "x.detach() + change",
    ),
    edit(
        "in place",
        common.IN_PLACE,
        "        return self.norm(x + change)",
        "        x += change\n        return self.norm(x)",
    ),
    edit(
        "other name",
        common.OTHER_NAME,
        "self.norm = nn",
        "self.layer_norm = nn",
        "self.norm(x + change)",
        "self.layer_norm(x + change)",
    ),
    edit(
        "on the CPU",
        common.ON_THE_CPU,
        "torch.rand_like(change)",
        "torch.rand(change.shape)",
        of=DropoutByHand,
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="5.2",
    symbol="PostNorm",
    kind="module class",
    parameters=("d_model", "dropout"),
    points=5,
    todos=("5.2",),
    rows=ROWS,
    reference=PostNormReference,
    answer=PostNorm,
    mistakes=MISTAKES,
    alternatives=(OneStepALineOwnNorm, StackAndSum, DropoutByHand),
    spoken=common.WRAPPER_SPOKEN,
    hints={
        "5.2": (
            _("Which is the last thing that happens: the sublayer, the addition or the norm?"),
            _("x, sublayer(x) and their sum are all [B, n, d]. Dropout touches only one of the three."),
            _("change = dropout of what the sublayer makes of x; return the norm of (x plus change)"),
        )
    },
)
