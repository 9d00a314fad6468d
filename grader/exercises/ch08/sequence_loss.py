"""8.3 sequence_loss: cross-entropy with label smoothing, the mean over real tokens, by hand.

There is no row for another device: `losses[mask]` and a loop over tokens look at the numbers themselves, and
the device that the check uses has none.
"""

from __future__ import annotations

import math  # noqa: F401 (mistakes use it)

import torch
import torch.nn.functional as F

from grader.exercises.ch08._common import padded_ids
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(logits, target, pad_id=0, label_smoothing=0.0):
    flat = logits.reshape(-1, logits.size(-1))
    return F.cross_entropy(flat, target.reshape(-1), ignore_index=pad_id, label_smoothing=label_smoothing)


def sequence_loss(logits, target, pad_id=0, label_smoothing=0.0):
    log_probs = torch.log_softmax(logits, dim=-1)
    right = log_probs.gather(-1, target[..., None]).squeeze(-1)
    losses = -(1 - label_smoothing) * right - label_smoothing * log_probs.mean(dim=-1)
    real = target != pad_id
    return losses[real].mean()


def one_hot_targets(logits, target, pad_id=0, label_smoothing=0.0):
    classes = logits.size(-1)
    wanted = F.one_hot(target, classes).to(logits.dtype) * (1 - label_smoothing) + label_smoothing / classes
    real = (target != pad_id).to(logits.dtype)
    return -((wanted * torch.log_softmax(logits, -1)).sum(-1) * real).sum() / real.sum()


def logsumexp(logits, target, pad_id=0, label_smoothing=0.0):
    flat, wanted = logits.flatten(0, 1), target.flatten()
    flat, wanted = flat[wanted != pad_id], wanted[wanted != pad_id]
    right = flat[torch.arange(len(wanted)), wanted]
    total = flat.logsumexp(-1) - (1 - label_smoothing) * right - label_smoothing * flat.mean(-1)
    return total.mean()


def loops(logits, target, pad_id=0, label_smoothing=0.0):
    terms = []
    for scores, wanted in zip(logits.flatten(0, 1), target.flatten().tolist(), strict=True):
        if wanted == pad_id:
            continue
        shifted = scores - scores.max()
        log_probs = shifted - shifted.exp().sum().log()
        terms.append(-(1 - label_smoothing) * log_probs[wanted] - label_smoothing * log_probs.mean())
    return torch.stack(terms).mean()


# ---- rows -------------------------------------------------------------------------------------------


def _case(
    draw: Draw,
    scale: float = 2.0,
    pad_id: int = 0,
    kwargs: dict | None = None,
    wrt: bool = False,
    likely: float = 0.0,
    **equal: int,
) -> Case:
    """`likely` is added to the logits of right tokens, and taken from those of padding."""
    s = draw.sizes(B=(3, 4), m=(6, 7), V=(9, 12)) | equal
    target = padded_ids(draw, s["B"], s["m"], low=0 if pad_id else 1, high=s["V"] - 2, pad_id=pad_id)
    if pad_id:
        target[0, 0], target[1, 1], target[-1, 2] = 0, 0, 0  # a word here
    logits = draw.normal(s["B"], s["m"], s["V"], scale=scale)
    if likely:
        logits += F.one_hot(target, s["V"]) * torch.where(target != pad_id, likely, -likely)[..., None]
    call: dict = {
        "args": [logits, target],
        "kwargs": kwargs or ({"pad_id": pad_id} if pad_id else {}),
    }
    if wrt:
        call |= {"wrt": ["0"], "cotangents": [draw.uniform(low=1.0, high=3.0)]}
    return Case("function", call)


def _plain(draw: Draw) -> list[Case]:
    strided = _case(draw)
    strided.inputs["args"][0] = {"$": "strided", "tensor": strided.inputs["args"][0]}
    square = [_case(draw, B=6, m=6), _case(draw, m=9, V=9), _case(draw, B=5, V=5), _case(draw, B=7, m=7, V=7)]
    single = [_case(draw, B=1), _case(draw, m=1), _case(draw, B=1, m=1)]
    return [_case(draw), strided, *square, *single]


def _smooth(draw: Draw) -> list[Case]:
    """Sharing ε among V classes or V - 1 differs by ε/V · (the others' mean log-probability - the right one's).

    For random logits that difference may be near 0. With `likely` its mean over 15 tokens or more is -4, with a
    standard deviation below 0.6: it is beyond 40 tolerances unless it comes out above -0.4 (ε = 0.3) and above
    -1.1 (ε = 0.1), 6 and 4.8 standard deviations away; together that is less likely than 1e-14.
    """
    pairs = ((0.1, 4.0), (0.3, 4.0), (0.2, 0.0))
    return [_case(draw, kwargs={"label_smoothing": epsilon}, likely=likely) for epsilon, likely in pairs]


def _other_pad(draw: Draw) -> list[Case]:
    """Padding is unlikely here (a loss of 8 beside 0.5), so that a mean which counts it is another one for sure."""
    return [_case(draw, pad_id=pad_id, likely=4.0) for pad_id in (draw.size(3, 4), draw.size(5, 6))]


def _large(draw: Draw) -> list[Case]:
    return [_case(draw, scale=300.0, kwargs={"label_smoothing": 0.1})]


def _gradient(draw: Draw) -> list[Case]:
    return [_case(draw, kwargs={"label_smoothing": 0.1}, wrt=True)]


BOTH = ("mean over real tokens", "smoothing")

ROWS = (
    Row(
        "mean over real tokens",
        "without smoothing: −log p of the right token, the mean over real tokens",
        _plain,
        looks=("out",),
        weight=3,
    ),
    Row(
        "smoothing",
        "label_smoothing ε: ε/V to every class, 1 − ε more to the right one",
        _smooth,
        looks=("out",),
        weight=2,
    ),
    Row(
        "other pad_id",
        "any pad_id, and id 0 is a word then",
        _other_pad,
        looks=("out",),
        needs=("mean over real tokens",),
    ),
    Row(
        "large logits",
        "logits of several hundreds give a finite loss",
        _large,
        looks=("out",),
        needs=BOTH,
    ),
    Row(
        "gradient",
        "the gradient reaches the logits, and is zero at padding",
        _gradient,
        looks=("grad.0",),
        needs=BOTH,
    ),
    Row(
        "inputs kept",
        "logits and target are left unchanged",
        _plain,
        looks=("changed",),
        needs=("mean over real tokens",),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

SMOOTHED = "label_smoothing * log_probs.mean(dim=-1)"

MISTAKES = (
    edit(
        "padding counted",
        "The mean runs over all places, padding included. Short sentences would teach the model to write "
        "<pad>. Keep real tokens only.",
        "losses[real].mean()",
        "losses.mean()",
    ),
    edit(
        "divided by all places",
        "The padding's losses are zero, but you still divide by all B·m places. Divide by the number of "
        "real tokens.",
        "losses[real].mean()",
        "(losses * real).mean()",
    ),
    edit(
        "sum",
        "This is the sum over real tokens; the mean was meant.",
        "losses[real].mean()",
        "losses[real].sum()",
    ),
    edit(
        "mean of means",
        "You averaged within each sentence and then over sentences, so a token of a short sentence counts "
        "more. All real tokens of the batch count alike.",
        "losses[real].mean()",
        "((losses * real).sum(dim=1) / real.sum(dim=1)).mean()",
    ),
    edit(
        "divided by the batch",
        "You divided by the number of sentences. Divide by the number of real tokens.",
        "losses[real].mean()",
        "losses[real].sum() / len(losses)",
    ),
    edit(
        "pad is always 0",
        "pad_id is not used: 0 is always taken for padding.",
        "target != pad_id",
        "target != 0",
    ),
    edit(
        "only padding",
        "You kept the padding and dropped the words: target != pad_id was meant.",
        "target != pad_id",
        "target == pad_id",
    ),
    edit(
        "no smoothing",
        "label_smoothing is not used.",
        "-(1 - label_smoothing) * right - " + SMOOTHED,
        "-right",
    ),
    edit(
        "smoothing over the others",
        "You shared ε among the V − 1 wrong classes. Here, as in torch, every class gets ε/V, the right "
        "one too: it ends with 1 − ε + ε/V.",
        "    losses =",
        "    others = (log_probs.sum(dim=-1) - right) / (log_probs.size(-1) - 1)\n    losses =",
        SMOOTHED,
        "label_smoothing * others",
    ),
    edit(
        "right class left out",
        "Your smoothed targets sum to less than 1: the right class needs its own ε/V on top of 1 − ε.",
        "    losses =",
        "    others = (log_probs.sum(dim=-1) - right) / log_probs.size(-1)\n    losses =",
        SMOOTHED,
        "label_smoothing * others",
    ),
    edit(
        "more than 1",
        "Your smoothed targets sum to 1 + ε: what is given to all classes must be taken from the right "
        "one, which keeps 1 − ε.",
        "-(1 - label_smoothing) * right",
        "-right",
    ),
    edit(
        "ε to every class",
        "You gave ε to each class. They share it: each gets ε/V, so take the mean of the "
        "log-probabilities, not their sum.",
        "log_probs.mean(dim=-1)",
        "log_probs.sum(dim=-1)",
    ),
    edit(
        "no minus",
        "The sign is missing: log-probabilities are negative, a loss is not.",
        "-(1 - label_smoothing) * right - ",
        "(1 - label_smoothing) * right + ",
    ),
    edit(
        "no softmax",
        "The logits are used as if they were log-probabilities. Take log_softmax first.",
        "torch.log_softmax(logits, dim=-1)",
        "logits",
    ),
    edit(
        "softmax over places",
        "log_softmax runs over the places (dim 1). The words of the vocabulary compete: the last axis.",
        "torch.log_softmax(logits, dim=-1)",
        "torch.log_softmax(logits, dim=1)",
    ),
    edit(
        "softmax twice",
        "You took softmax and then log_softmax of it. log_softmax contains the softmax already.",
        "torch.log_softmax(logits, dim=-1)",
        "torch.log_softmax(torch.softmax(logits, dim=-1), dim=-1)",
    ),
    edit(
        "exp overflows",
        "exp of a large logit is infinite, and infinite / infinite is NaN. log_softmax subtracts the "
        "largest logit first.",
        "torch.log_softmax(logits, dim=-1)",
        "torch.log(logits.exp() / logits.exp().sum(dim=-1, keepdim=True))",
    ),
    edit(
        "log of softmax",
        "softmax rounds a small probability to 0, and log 0 is −∞. log_softmax never leaves the logarithm: "
        "use it.",
        "torch.log_softmax(logits, dim=-1)",
        "torch.log(torch.softmax(logits, dim=-1))",
    ),
    edit(
        "no logarithm",
        "The loss is −log p; you took −p.",
        "torch.log_softmax(",
        "torch.softmax(",
    ),
    edit(
        "bits",
        "This is in bits (log to base 2). The natural logarithm was meant.",
        "torch.log_softmax(logits, dim=-1)",
        "torch.log_softmax(logits, dim=-1) / math.log(2)",
    ),
    edit(
        "gather needs an axis",
        "gather wants an index with as many axes as the logits have: target[..., None] is [B, m, 1].",
        "gather(-1, target[..., None]).squeeze(-1)",
        "gather(-1, target)",
    ),
    edit(
        "squeezes everything",
        "squeeze() drops every axis of length 1: also that of the batch when there is one sentence, and that of the "
        "places when there is one token. Say which one to drop: squeeze(-1).",
        "squeeze(-1)",
        "squeeze()",
    ),
    edit(
        "graph cut",
        "The value is right, but no gradient reaches the logits: they were detached or passed through "
        "numpy or .item().",
        "torch.log_softmax(logits, ",
        "torch.log_softmax(torch.tensor(logits.detach().numpy()), ",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

BY_HAND = _(
    "This one is by hand: take log_softmax, pick the right entries and average, without the ready-made loss."
)
THREE_AXES = "the contract has three axes, [B, m, V], of which 2 is the last"
LIBRARY = ["cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss", "kl_div", "KLDivLoss"]

EXERCISE = Exercise(
    id="8.3",
    symbol="sequence_loss",
    kind="function",
    parameters=("logits", "target", "pad_id", "label_smoothing"),
    points=5,
    todos=("8.3",),
    rows=ROWS,
    reference=reference,
    answer=sequence_loss,
    mistakes=MISTAKES,
    alternatives=(one_hot_targets, logsumexp, loops),
    spoken={"out": _("the loss"), "grad.0": _("the gradient of the logits")},
    forbidden=dict.fromkeys(LIBRARY, BY_HAND),
    equivalent={
        "torch.log_softmax(logits, dim=-1) → torch.log_softmax(logits, dim=2)": THREE_AXES,
        "log_probs.gather(-1, target[..., None]) → log_probs.gather(2, target[..., None])": THREE_AXES,
        "log_probs.gather(-1, target[..., None]).squeeze(-1) → "
        "log_probs.gather(-1, target[..., None]).squeeze(2)": THREE_AXES,
        "log_probs.mean(dim=-1) → log_probs.mean(dim=2)": THREE_AXES,
    },
    hints={
        "8.3": (
            _(
                "For one place: what probability did the model give to the right token, and what is minus "
                "its logarithm?"
            ),
            _(
                "logits → log-probabilities [B, m, V] → those of the right tokens [B, m] (gather with "
                "target[..., None]); their mean over V is [B, m] too."
            ),
            _(
                "lp = log_softmax over V; right = lp gathered at target; loss = −(1 − ε)·right − ε·(mean "
                "of lp over V); return the mean of loss where target is not pad_id"
            ),
        )
    },
)
