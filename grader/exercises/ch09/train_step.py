"""9.2 train_step: one teacher-forced step on src [B, n] and tgt [B, m]; returns the loss before it, a float."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from grader.exercises.ch09._common import FIRST_WORD
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case, observe
from transformer_lab.language import _
from transformer_lab.parts import BOS, EOS, PAD, sequence_loss, shift_right

# ---- what is right ----------------------------------------------------------------------------------


def reference(model, optimizer, src, tgt):
    """The loss by hand from log-probabilities, gradients through autograd.grad."""
    inputs = torch.cat([torch.full_like(tgt[:, :1], BOS), tgt[:, :-1]], dim=1)
    spoken = model(src, inputs).log_softmax(-1).gather(-1, tgt[..., None])[..., 0]  # [B, m]
    real = tgt != PAD
    loss = -(spoken * real).sum() / real.sum()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()
    return loss.item()


def train_step(model, optimizer, src, tgt):
    tgt_in = shift_right(tgt, BOS)
    logits = model(src, tgt_in)  # [B, m, V]
    loss = sequence_loss(logits, tgt)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def flattened(model, optimizer, src, tgt):
    optimizer.zero_grad(set_to_none=False)
    first = tgt.new_full((tgt.size(0), 1), BOS)
    logits = model(src, torch.hstack((first, tgt[:, :-1])))
    loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten(), ignore_index=PAD)
    loss.backward()
    optimizer.step()
    return loss.detach().item()


def closure(model, optimizer, src, tgt):
    def evaluate():
        model.zero_grad()
        logits = model(src, tgt.roll(1, dims=1).index_fill(1, torch.tensor([0]), BOS))
        real = tgt != PAD
        loss = F.nll_loss(logits[real].log_softmax(-1), tgt[real])
        loss.backward()
        return loss

    return float(optimizer.step(evaluate))


def cleared_at_the_end(model, optimizer, src, tgt):
    model.train()
    losses = F.cross_entropy(model(src, shift_right(tgt, BOS)).mT, tgt, reduction="none")
    loss = losses[tgt.ne(PAD)].mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.tolist()


# ---- rows -------------------------------------------------------------------------------------------
# No row about devices: a right answer reads the loss as a number, and its batch and model come from elsewhere.


def _batch(draw: Draw, B: int, n: int, m: int, src_words: int, tgt_words: int) -> list[torch.Tensor]:
    """One batch as the corpus makes them: rows of unlike lengths, ending in </s>, padded."""
    src, tgt = (
        draw.integers(FIRST_WORD, src_words - 1, B, n),
        draw.integers(FIRST_WORD, tgt_words - 1, B, m),
    )
    for ids, longest in ((src, n), (tgt, m)):
        for row in range(B):
            end = longest - 1 if row == 0 else longest - 1 - draw.size(1, longest - 2)
            ids[row, end], ids[row, end + 1 :] = EOS, PAD
    return [src, tgt]


def _case(draw: Draw, steps: int, sizes: dict[str, int]) -> Case:
    batches = [
        _batch(draw, *(sizes[k] for k in ("B", "n", "m", "src_words", "tgt_words"))) for _ in range(steps)
    ]
    inputs = {
        "source": draw.normal(sizes["src_words"], sizes["tgt_words"], scale=0.7),
        "target": draw.normal(sizes["tgt_words"], sizes["tgt_words"], scale=0.7),
        "batches": batches,
        "lr": 0.5,
    }
    return Case("train step", inputs)


def _calls(steps: int) -> Callable[[Draw], list[Case]]:
    def cases(draw: Draw) -> list[Case]:
        sizes = draw.sizes(src_words=(15, 16), tgt_words=(11, 13), B=(3, 4), n=(5, 6), m=(7, 8))
        return [_case(draw, steps, sizes)]

    return cases


def _loss(draw: Draw) -> list[Case]:
    equal = dict.fromkeys(
        ("src_words", "tgt_words", "B", "n", "m"), 8
    )  # no length tells an axis from another
    return [*_calls(1)(draw), _case(draw, 1, equal)]


def _by_heart(draw: Draw) -> list[Case]:
    """A batch that the reference learns in 40 steps, so that never rounding decides whether 60 are enough.

    As it comes, one batch in 150 takes a right answer more than 60 steps. Right answers written in other ways
    took at most 2 steps more or less than the reference on 60 batches, and the same on all of 40 steps.
    """
    for _try in range(50):  # four batches of five will do
        src, tgt = _batch(draw, 4, 5, 4, 12, 12)
        src[:, 0] = torch.arange(FIRST_WORD, FIRST_WORD + 4)  # no two sources alike, so all can be learned
        inputs = {"src": src, "tgt": tgt, "words": 12, "steps": 60, "goal": 0.2}
        if observe(reference, Case("by heart", inputs | {"steps": 25})).values["learned"]:
            return [Case("by heart", inputs)]
    raise ValueError("no batch that is learned in 25 steps")


ROWS = (
    Row(
        "input",
        "the model reads <s> and the target without its last token",
        _calls(1),
        looks=("tgt_in",),
        weight=2,
    ),
    Row(
        "loss",
        "the loss before the step is returned, as a float",
        _loss,
        looks=("loss.*",),
        weight=2,
    ),
    Row(
        "one step",
        "the weights move by one step down the gradient of that loss",
        _calls(1),
        looks=("steps", "source", "target"),
        weight=2,
    ),
    Row(
        "next steps",
        "a second and a third step start from fresh gradients",
        _calls(3),
        looks=("loss.*", "source", "target"),
    ),
    Row(
        "input kept",
        "src and tgt are left unchanged, and the model in training mode",
        _calls(1),
        looks=("changed", "training"),
        needs=("input", "loss"),
    ),
    Row(
        "by heart",
        "with it, a small Transformer learns four sentences by heart",
        _by_heart,
        looks=("learned",),
        needs=("one step", "next steps"),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "no shift",
        "The model is given the target itself, so it reads each answer before it has to say it. It will learn to copy. "
        "Give it shift_right(tgt, BOS).",
        "shift_right(tgt, BOS)",
        "tgt",
    ),
    edit(
        "target without first",
        "Input tgt[:, :-1] and target tgt[:, 1:] fit a tgt that begins with <s>. Ours does not: so the first word is "
        "never learned. The input is shift_right(tgt, BOS), the target tgt.",
        "shift_right(tgt, BOS)",
        "tgt[:, :-1]",
        "(logits, tgt)",
        "(logits, tgt[:, 1:])",
    ),
    edit(
        "shifted by end",
        "The shifted input begins with </s>; the decoder's first token is <s> (BOS).",
        "BOS",
        "EOS",
    ),
    edit(
        "shifted by padding",
        "The shifted input begins with <pad>; the decoder's first token is <s> (BOS).",
        "BOS",
        "PAD",
    ),
    edit(
        "shifted twice",
        "The target is shifted twice: at each place the model misses the word just before it.",
        "shift_right(tgt, BOS)",
        "shift_right(shift_right(tgt, BOS), BOS)",
    ),
    edit(
        "shifted left",
        "You shift to the left: at each place the model reads the word after the one it has to say.",
        "shift_right(tgt, BOS)",
        "torch.cat([tgt[:, 1:], torch.full_like(tgt[:, :1], EOS)], dim=1)",
    ),
    edit(
        "compared with input",
        "The logits are compared with the shifted input, so the model learns to repeat the word it was given. Compare "
        "them with tgt.",
        "(logits, tgt)",
        "(logits, tgt_in)",
    ),
    edit(
        "swapped",
        "src and tgt have changed places in model(src, tgt_in).",
        "model(src, tgt_in)",
        "model(tgt_in, src)",
    ),
    edit(
        "padding counts",
        "The loss counts the padding too. The mean goes over real tokens only, as your sequence_loss of chapter 08 does.",
        "sequence_loss(logits, tgt)",
        "torch.nn.functional.cross_entropy(logits.transpose(1, 2), tgt)",
    ),
    edit(
        "loss arguments swapped",
        "sequence_loss takes the logits first and the target second.",
        "(logits, tgt)",
        "(tgt, logits)",
    ),
    edit(
        "classes on the wrong axis",
        "F.cross_entropy wants the words on axis 1, [B, V, m], and your logits are [B, m, V]. sequence_loss of chapter "
        "08 takes them as they are.",
        "sequence_loss(logits, tgt)",
        "torch.nn.functional.cross_entropy(logits, tgt, ignore_index=PAD)",
    ),
    edit(
        "no source",
        "The model is called with one argument. A translation needs both: model(src, tgt_in).",
        "model(src, tgt_in)",
        "model(tgt_in)",
    ),
    edit(
        "sum",
        "The loss is the sum over the tokens, so a longer batch takes a larger step. Take the mean over real tokens.",
        "sequence_loss(logits, tgt)",
        "torch.nn.functional.cross_entropy(logits.transpose(1, 2), tgt, ignore_index=PAD, reduction='sum')",
    ),
    edit(
        "mean of means",
        "Each sentence's loss is averaged first. The mean goes over all real tokens of the batch alike.",
        "loss = sequence_loss(logits, tgt)",
        "losses = torch.nn.functional.cross_entropy(logits.mT, tgt, ignore_index=PAD, reduction='none')\n"
        "    loss = (losses.sum(1) / (tgt != PAD).sum(1)).mean()",
    ),
    edit(
        "softmax first",
        "The loss is given probabilities; it expects the logits as the model returns them, and takes their softmax "
        "itself.",
        "(logits, tgt)",
        "(logits.softmax(-1), tgt)",
    ),
    edit(
        "not cleared",
        "The gradients of earlier steps are still there: backward() adds to them. Clear them with optimizer.zero_grad() "
        "before backward().",
        "    optimizer.zero_grad()\n",
        "",
    ),
    edit(
        "no gradient at the step",
        "When optimizer.step() runs there is no gradient to follow, so the weights never move: either zero_grad() comes "
        "after backward(), or step() comes before it. The order is zero_grad, backward, step.",
        "    optimizer.zero_grad()\n    loss.backward()\n",
        "    loss.backward()\n    optimizer.zero_grad()\n",
    ),
    edit(
        "one step behind",
        "optimizer.step() comes first and follows the gradient of the batch before.",
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n",
        "    optimizer.step()\n    optimizer.zero_grad()\n    loss.backward()\n",
    ),
    edit(
        "no step",
        "Gradients are computed, but optimizer.step() is missing: the weights never move.",
        "    optimizer.step()\n",
        "",
    ),
    edit(
        "uphill",
        "The step goes up the loss instead of down: the sign is turned somewhere.",
        "loss.backward()",
        "(-loss).backward()",
    ),
    edit(
        "two steps",
        "optimizer.step() is called twice for one batch.",
        "    optimizer.step()\n",
        "    optimizer.step()\n    optimizer.step()\n",
    ),
    edit(
        "tensor",
        "A tensor is returned. It keeps the whole computation alive: thousands of steps would fill the memory. "
        "loss.item() is the plain number.",
        "loss.item()",
        "loss",
    ),
    edit(
        "loss after",
        "The loss after the step is returned. The one before it is already there and costs nothing.",
        "loss.item()",
        "sequence_loss(model(src, shift_right(tgt, BOS)), tgt).item()",
    ),
    edit(
        "in place",
        "tgt itself is changed, so the caller's data is spoiled for the next epoch. Make a new tensor.",
        "tgt_in = shift_right(tgt, BOS)",
        "target = tgt.clone()\n    tgt[:, 1:] = target[:, :-1]\n    tgt[:, 0] = BOS",
        "model(src, tgt_in)",
        "model(src, tgt)",
        "(logits, tgt)",
        "(logits, target)",
    ),
    edit(
        "evaluation mode",
        "model.eval() switches dropout off. A training step runs in training mode.",
        "    tgt_in =",
        "    model.eval()\n    tgt_in =",
    ),
    edit(
        "no gradient",
        "The loss is computed under torch.no_grad(), so there is nothing for backward() to follow.",
        "    logits = model(src, tgt_in)  # [B, m, V]\n    loss =",
        "    with torch.no_grad():\n        logits = model(src, tgt_in)\n        loss =",
    ),
    edit(
        "float too early",
        "loss became a number (item) before backward(). Call backward() on the tensor, and take the number at the end.",
        "sequence_loss(logits, tgt)",
        "sequence_loss(logits, tgt).item()",
        "return loss.item()",
        "return loss",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="9.2",
    symbol="train_step",
    kind="function",
    parameters=("model", "optimizer", "src", "tgt"),
    points=8,
    todos=("9.2",),
    rows=ROWS,
    reference=reference,
    answer=train_step,
    mistakes=MISTAKES,
    alternatives=(flattened, closure, cleared_at_the_end),
    spoken={
        "loss.1": _("the returned loss"),
        "loss.2": _("the second returned loss"),
        "loss.3": _("the third returned loss"),
        "steps": _("the number of calls of optimizer.step()"),
        "source": _("a weight after the step"),
        "target": _("a weight after the step"),
        "tgt_in": _("what the model was given as tgt_in"),
        "training": _("whether the model was in training mode"),
        "changed": _("the list of changed inputs"),
        "learned": _("whether four sentences were learned by heart in 60 steps (loss below 0.2)"),
    },
    equivalent={
        "loss = sequence_loss(logits, tgt); optimizer.zero_grad() → "
        "optimizer.zero_grad(); loss = sequence_loss(logits, tgt)": "gradients are first needed by backward()",
        "optimizer.zero_grad() → model.zero_grad()": "the optimizer that it is given holds the model's parameters",
    },
    hints={
        "9.2": (
            _("Which two tensors does the model need, and with what are its logits compared?"),
            _(
                "tgt [B, m] → tgt_in [B, m] → logits [B, m, V] → one number. Then clear, backward, step, in this order."
            ),
            _(
                "loss = sequence_loss(logits of the model on src and the shifted target, the target); three calls; the "
                "loss as a plain number"
            ),
        ),
    },
)
