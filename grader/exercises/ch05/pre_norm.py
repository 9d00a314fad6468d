"""5.3 PreNorm: x + dropout(sublayer(norm(x))), whose residual path no norm touches."""

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


class PreNormReference(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(d_model), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return torch.add(x, self.drop(sublayer(self.norm(x))))


class PreNorm(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        change = self.dropout(sublayer(self.norm(x)))
        return x + change


class OneStepALineOwnNorm(nn.Module):
    """F.dropout told about the mode."""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.rate = dropout
        self.norm = LayerNorm(d_model)

    def forward(self, x, sublayer):
        normed = self.norm(x)
        change = F.dropout(sublayer(normed), p=self.rate, training=self.training)
        return change + x


class StackAndSum(nn.Module):
    """The sum as a sum over a stack."""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm((d_model,))

    def forward(self, x, sublayer):
        return torch.stack([x, self.dropout(sublayer(self.norm(x)))], dim=-1).sum(dim=-1)


class DropoutByHand(nn.Module):
    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.p = dropout
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, sublayer):
        change = sublayer(self.norm(x))
        if self.training and self.p > 0:
            keep = torch.bernoulli(torch.full_like(change, 1 - self.p))
            change = change * keep / (1 - self.p)
        return torch.lerp(x, x + change, 1.0)


# ---- rows -------------------------------------------------------------------------------------------

ROWS = (
    Row(
        "order",
        "without dropout the result is x + sublayer(norm(x))",
        common.wrapper_order,
        looks=("out",),
        weight=4,
    ),
    *common.WRAPPER_ROWS,
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "post for pre",
        "This is Post-Norm, norm(x + sublayer(x)). PreNorm normalises before the sublayer, and nothing after.",
        "sublayer(self.norm(x))",
        "sublayer(x)",
        "x + change",
        "self.norm(x + change)",
    ),
    edit(
        "no residual",
        "x is not added: sublayer(norm(x)) has lost the residual path.",
        "x + change",
        "change",
    ),
    edit(
        "norm then add",
        common.NEITHER,
        "sublayer(self.norm(x))",
        "sublayer(x)",
        "x + change",
        "x + self.norm(change)",
    ),
    edit(
        "no norm",
        common.NO_NORM,
        "sublayer(self.norm(x))",
        "sublayer(x)",
    ),
    edit(
        "residual from normed",
        "norm(x) is what you add; the residual path must carry x itself, untouched. Keep x and give norm(x) to the sublayer only.",
        "        change = self.dropout(sublayer(self.norm(x)))",
        "        x = self.norm(x)\n        change = self.dropout(sublayer(x))",
    ),
    edit(
        "norms x only",
        "x is normalised on the residual path and the sublayer gets it raw. It is the other way round: x + sublayer(norm(x)).",
        "sublayer(self.norm(x))",
        "sublayer(x)",
        "x + change",
        "self.norm(x) + change",
    ),
    edit(
        "sandwich",
        "There are two norms, one before the sublayer and one after the addition. PreNorm has only the first.",
        "x + change",
        "self.norm(x + change)",
    ),
    edit(
        "norms around",
        "There are two norms, one before the sublayer and one after it. PreNorm has only the first.",
        "x + change",
        "x + self.norm(change)",
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
        "sublayer(self.norm(x))",
        "sublayer",
    ),
    edit(
        "no sublayer",
        common.NO_SUBLAYER,
        "sublayer(self.norm(x))",
        "self.norm(x)",
    ),
    edit(
        "always drops",
        common.ALWAYS_DROPS,
        "self.dropout = nn.Dropout(dropout)",
        "self.p = dropout",
        "self.dropout(sublayer(self.norm(x)))",
        "F.dropout(sublayer(self.norm(x)), self.p)",
    ),
    edit(
        "never drops",
        common.NEVER_DROPS,
        "self.dropout(sublayer(self.norm(x)))",
        "sublayer(self.norm(x))",
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
        "self.dropout(sublayer(self.norm(x)))",
        "sublayer(self.norm(x))",
        "x + change",
        "self.dropout(x + change)",
    ),
    edit(
        "drops the input",
        common.DROPS_INPUT,
        "self.dropout(sublayer(self.norm(x)))",
        "sublayer(self.dropout(self.norm(x)))",
    ),
    edit(
        "drops x",
        common.DROPS_X,
        "self.dropout(sublayer(self.norm(x)))",
        "sublayer(self.norm(x))",
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
        "        return x + change",
        "        x += change\n        return x",
    ),
    edit(
        "other name",
        common.OTHER_NAME,
        "self.norm = nn",
        "self.layer_norm = nn",
        "self.norm(x)",
        "self.layer_norm(x)",
    ),
    edit(
        "on the CPU",
        common.ON_THE_CPU,
        "torch.bernoulli(torch.full_like(change, 1 - self.p))",
        "(torch.rand(change.shape) >= self.p).to(change.dtype)",
        of=DropoutByHand,
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="5.3",
    symbol="PreNorm",
    kind="module class",
    parameters=("d_model", "dropout"),
    points=5,
    todos=("5.3",),
    rows=ROWS,
    reference=PreNormReference,
    answer=PreNorm,
    mistakes=MISTAKES,
    alternatives=(OneStepALineOwnNorm, StackAndSum, DropoutByHand),
    spoken=common.WRAPPER_SPOKEN,
    hints={
        "5.3": (
            _("The path from x to the output must stay free of norms. Where is the norm then?"),
            _(
                "norm(x) is [B, n, d] and goes into the sublayer; what is added to its output is x, not norm(x)."
            ),
            _("change = dropout of what the sublayer makes of the normalised x; return x plus change"),
        )
    },
)
