"""8.1 OutputLayer: one score for every word of the vocabulary, by a linear layer `proj` without bias."""

from __future__ import annotations

import math  # noqa: F401 (mistakes use it)

import torch
from torch import nn

from grader.exercises import rows
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


class Reference(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        return torch.einsum("bmd,vd->bmv", x, self.proj.weight)


class OutputLayer(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        return self.proj(x)


class MatrixProduct(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        return x @ self.proj.weight.transpose(0, 1)


class LinearOnRows(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        return nn.functional.linear(flat, self.proj.weight).view(*x.shape[:-1], -1)


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, wrt: bool = False, **equal: int) -> Case:
    s = draw.sizes(B=(2, 4), m=(5, 7), d=(8, 10), V=(11, 14)) | equal
    x = draw.normal(s["B"], s["m"], s["d"])
    call: dict = {"args": [x]}
    if wrt:
        call |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(s["B"], s["m"], s["V"])]}
    weights = {"proj.weight": draw.normal(s["V"], s["d"])}
    return Case("module", {"make": {"args": [s["d"], s["V"]]}, "weights": weights, "call": call})


def _logits(draw: Draw) -> list[Case]:
    """All sizes different, then equal in pairs: code that tells axes by their lengths fails there."""
    return [_case(draw), _case(draw, B=5, m=5), _case(draw, m=6, d=6), _case(draw, d=8, V=8)]


def _gradient(draw: Draw) -> list[Case]:
    return [_case(draw, wrt=True)]


ROWS = (
    Row(
        "logits",
        "[B, m, d] → logits [B, m, V], by proj, without bias",
        _logits,
        looks=("out",),
    ),
    Row(
        "gradient",
        "the gradient reaches x and proj",
        _gradient,
        looks=("grad.*",),
        needs=("logits",),
        weight=0.5,
    ),
    rows.device(lambda draw: [_case(draw)], needs=("logits",), weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "with bias",
        "proj has a bias. The contract has none, so that proj can share its matrix with an embedding, "
        "which has no bias either: bias=False.",
        ", bias=False",
        "",
    ),
    edit(
        "sizes swapped",
        "nn.Linear takes the input's width first: from d_model to vocab_size.",
        "nn.Linear(d_model, vocab_size",
        "nn.Linear(vocab_size, d_model",
    ),
    edit(
        "another name",
        "The layer works, but later chapters look for it under the name proj.",
        "self.proj = ",
        "self.linear = ",
        "self.proj(x)",
        "self.linear(x)",
    ),
    edit(
        "softmax inside",
        "These are probabilities already. Return the logits as they are: the loss and the decoding take "
        "the softmax themselves, and twice is wrong.",
        "self.proj(x)",
        "torch.softmax(self.proj(x), dim=-1)",
    ),
    edit(
        "log-softmax inside",
        "These are log-probabilities already. Return the logits as they are.",
        "self.proj(x)",
        "torch.log_softmax(self.proj(x), dim=-1)",
    ),
    edit(
        "last place only",
        "Only the last place is projected. In training every one of the m places makes a prediction.",
        "self.proj(x)",
        "self.proj(x[:, -1])",
    ),
    edit(
        "mean over places",
        "You averaged over the places, so all predictions are the same. The layer works on each place by "
        "itself.",
        "self.proj(x)",
        "self.proj(x.mean(dim=1, keepdim=True)).repeat(1, x.size(1), 1)",
    ),
    edit(
        "flattened",
        "Keep the axes of batch and place: [B, m, V].",
        "self.proj(x)",
        "self.proj(x).flatten(0, 1)",
    ),
    edit(
        "chosen tokens",
        "You chose a token already (argmax). No gradient passes through a choice; return the logits.",
        "self.proj(x)",
        "self.proj(x).argmax(dim=-1)",
    ),
    edit(
        "scaled",
        "The logits are divided by √d. That belongs to attention scores.",
        "self.proj(x)",
        "self.proj(x) / math.sqrt(x.size(-1))",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device; here none is "
        "needed, since proj works on all places at once.",
        "        return self.proj(x)",
        "        logits = torch.zeros(x.size(0), x.size(1), self.proj.out_features)\n"
        "        for i in range(x.size(1)):\n"
        "            logits[:, i] = self.proj(x[:, i])\n"
        "        return logits",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="8.1",
    symbol="OutputLayer",
    kind="module class",
    parameters=("d_model", "vocab_size"),
    points=2,
    todos=("8.1",),
    rows=ROWS,
    reference=Reference,
    answer=OutputLayer,
    mistakes=MISTAKES,
    alternatives=(MatrixProduct, LinearOnRows),
    spoken={"grad.0": _("the gradient of x")},
    hints={
        "8.1": (
            _(
                "One score for every word of the vocabulary, from d numbers. Which layer turns d numbers "
                "into V?"
            ),
            _("x [B, m, d] times the transpose of proj.weight [V, d] gives [B, m, V]."),
            _(
                "proj = a linear layer from d_model to vocab_size that has no bias; forward applies it to "
                "x, and nothing more"
            ),
        )
    },
)
