"""Chapter 09, translation: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.parts import BOS, EOS, PAD, sequence_loss, shift_right

CHAPTER = "09_translation"
FIRST_WORD = 4  # ids below are special tokens


# ---- 9.1 warmup_lr ----------------------------------------------------------------------------------


def reference_lr(step, d_model, warmup):
    """In logarithms: the smaller of two straight lines."""
    rising, falling = math.log(step) - 1.5 * math.log(warmup), -0.5 * math.log(step)
    return float(np.exp(min(rising, falling) - 0.5 * math.log(d_model)))


def _lr(
    width: Callable = lambda d: d**-0.5,
    rising: Callable = lambda s, w: s * w**-1.5,
    falling: Callable = lambda s, w: s**-0.5,
    choose: Callable = min,
) -> Callable:
    """The usual code with every piece exchangeable."""

    def warmup_lr(step, d_model, warmup):
        return width(d_model) * choose(rising(step, warmup), falling(step, warmup))

    return warmup_lr


def lr_by_cases(step, d_model, warmup):
    if step < warmup:
        return step / (math.sqrt(d_model) * warmup * math.sqrt(warmup))
    return 1 / math.sqrt(d_model * step)


def lr_by_peak(step, d_model, warmup):
    peak = (d_model * warmup) ** -0.5
    return peak * min(step / warmup, (warmup / step) ** 0.5)


def lr_by_numpy(step, d_model, warmup):
    return float(np.power(float(d_model), -0.5) * np.minimum(step**-0.5, step * warmup**-1.5))


def lr_as_tensor(step, d_model, warmup):
    return torch.tensor(float(d_model)) ** -0.5 * min(step**-0.5, step * warmup**-1.5)


def lr_from_zero(step, d_model, warmup):
    return _lr()(step + 1, d_model, warmup)


def lr_swapped_arguments(step, d_model, warmup):
    return _lr()(step, warmup, d_model)


def _lr_cases(where: str) -> Callable[[Draw], list[Case]]:
    """Steps before, at or after the peak; sizes for which all wrong powers differ clearly."""

    def cases(draw: Draw) -> list[Case]:
        found = []
        for _ in range(2):
            d, warmup = draw.choice([48, 96, 192, 320]), draw.choice([60, 250, 400, 1000])
            step = {
                "first": 1,
                "rising": draw.size(warmup // 4, warmup // 2),
                "peak": warmup,
                "falling": warmup * draw.size(3, 6) + draw.size(1, 9),
            }[where]
            found.append(Case("function", {"args": [step, d, warmup]}))
        return found

    return cases


_RATE = {"out": "the rate"}
_EXACT = Tolerance(atol=0.0, rtol=1e-5)  # rates are small numbers

WARMUP = Exercise(
    id="9.1",
    symbol="warmup_lr",
    kind="function",
    parameters=("step", "d_model", "warmup"),
    points=4,
    todos=("9.1",),
    rows=(
        Row("rising", "before the peak the rate grows in proportion to the step", _lr_cases("rising"), weight=2, tolerance=_EXACT, spoken=_RATE),
        Row("falling", "after the peak it falls like 1 / √step", _lr_cases("falling"), weight=2, tolerance=_EXACT, spoken=_RATE),
        Row("peak", "at step = warmup it is 1 / √(d_model · warmup)", _lr_cases("peak"), tolerance=_EXACT, spoken=_RATE),
        Row("first", "step 1 is the first step, and its rate is not 0", _lr_cases("first"), tolerance=_EXACT, spoken=_RATE),
    ),
    reference=reference_lr,
    misconceptions=(
        Wrong("max", "You take the larger of the two terms; the smaller one is meant. Before the peak "
              "step^-0.5 is huge: the rate would start at its highest, which warmup is there to prevent.",
              _lr(choose=max)),
        Wrong("times root d", "You multiply by √d_model; the formula divides by it (d_model^-0.5). Wide models need smaller "
              "steps.", _lr(width=lambda d: d**0.5)),
        Wrong("no width", "d_model does not enter. The whole is multiplied by d_model^-0.5.", _lr(width=lambda d: 1.0)),
        Wrong("divided by d", "You divide by d_model; the formula divides by its square root.", _lr(width=lambda d: d**-1.0)),
        Wrong("warmup to -0.5", "The rising term is step · warmup^-0.5 here; the exponent is -1.5. Then both terms are equal "
              "at step = warmup, and the curve has its peak there.", _lr(rising=lambda s, w: s * w**-0.5)),
        Wrong("share of warmup", "The rising term is step / warmup, which reaches 1 at the peak. It must reach "
              "warmup^-0.5 there, where the falling term begins: step · warmup^-1.5.", _lr(rising=lambda s, w: s / w)),
        Wrong("falls too fast", "The falling term is 1 / step; the formula has 1 / √step, which falls more slowly.",
              _lr(falling=lambda s, w: 1 / s)),
        Wrong("never falls", "The rate stays at its peak after the warmup. It should fall like 1 / √step.",
              _lr(falling=lambda s, w: w**-0.5)),
        Wrong("only rising", "The rate grows for ever: the term that falls, step^-0.5, never takes over. Take the smaller of the two terms, "
              "and look at the signs of their exponents.",
              _lr(choose=lambda a, b: a)),
        Wrong("only falling", "The rate is step^-0.5 from the first step on: no warmup at all. The rising term, step · warmup^-1.5, must be the "
              "smaller one at first.",
              _lr(choose=lambda a, b: b)),
        Wrong("product", "The two terms are multiplied; the smaller of the two is meant.", _lr(choose=lambda a, b: a * b)),
        Wrong("sum", "The two terms are added; the smaller of the two is meant.", _lr(choose=lambda a, b: a + b)),
        Wrong("from zero", "You add 1 to the step. Steps are counted from 1 already, so nothing has to be added.",
              lr_from_zero),
        Wrong("arguments swapped", "d_model and warmup have changed places.", lr_swapped_arguments),
        Wrong("tensor", "You return a tensor. An optimizer's rate is an ordinary float; plain Python numbers are enough.",
              lr_as_tensor),
    ),
    alternatives={"two cases": lr_by_cases, "peak times a shape": lr_by_peak, "numpy": lr_by_numpy},
    hints={
        "9.1": (
            "One of the two terms grows with the step, the other falls. What does the smaller of them look like over time?",
            "step, d_model and warmup are plain numbers. Which exponents do they carry in the formula?",
            "width factor times min(falling term, rising term), with ** for powers",
        ),
    },
)  # fmt: skip


# ---- 9.2 train_step ---------------------------------------------------------------------------------


def reference_step(model, optimizer, src, tgt):
    """The loss by hand from log-probabilities, gradients through autograd.grad."""
    inputs = torch.cat([torch.full_like(tgt[:, :1], BOS), tgt[:, :-1]], dim=1)
    spoken = model(src, inputs).log_softmax(-1).gather(-1, tgt[..., None])[..., 0]  # [B, m]
    real = tgt != PAD
    loss = -(spoken * real).sum() / real.sum()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()
    return float(loss)


def _loss(logits, target):
    return F.cross_entropy(logits.transpose(1, 2), target, ignore_index=PAD)


def _update(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _step(
    shift: Callable = lambda tgt: shift_right(tgt, BOS),
    logits: Callable = lambda model, src, tgt_in: model(src, tgt_in),
    loss: Callable = _loss,
    wanted: Callable = lambda tgt, tgt_in: tgt,
    update: Callable = _update,
    result: Callable = lambda loss, again: loss.item(),
) -> Callable:
    """The usual step with every piece exchangeable. `again()` computes the loss once more."""

    def train_step(model, optimizer, src, tgt):
        def compute():
            tgt_in = shift(tgt)
            return loss(logits(model, src, tgt_in), wanted(tgt, tgt_in))

        value = compute()
        update(model, optimizer, value)
        return result(value, compute)

    return train_step


def _no_zero(model, optimizer, loss):
    loss.backward()
    optimizer.step()


def _zero_too_late(model, optimizer, loss):
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()


def _step_before_zero(model, optimizer, loss):
    """Uses the gradient of the call before."""
    optimizer.step()
    optimizer.zero_grad()
    loss.backward()


def _no_step(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()


def _uphill(model, optimizer, loss):
    _update(model, optimizer, -loss)


def _twice(model, optimizer, loss):
    _update(model, optimizer, loss)
    optimizer.step()


def _shift_without_first(model, optimizer, src, tgt):
    """The habit from language models: input tgt[:, :-1], target tgt[:, 1:]; here tgt has no <s>."""
    loss = _loss(model(src, tgt[:, :-1]), tgt[:, 1:])
    _update(model, optimizer, loss)
    return loss.item()


def _in_place(model, optimizer, src, tgt):
    target = tgt.clone()
    tgt[:, 1:] = target[:, :-1]
    tgt[:, 0] = BOS
    loss = _loss(model(src, tgt), target)
    _update(model, optimizer, loss)
    return loss.item()


def _evaluates(model, optimizer, src, tgt):
    model.eval()
    return _step()(model, optimizer, src, tgt)


def _no_grad(model, optimizer, src, tgt):
    with torch.no_grad():
        loss = _loss(model(src, shift_right(tgt, BOS)), tgt)
    _update(model, optimizer, loss)
    return loss.item()


def _float_too_early(model, optimizer, src, tgt):
    loss = _loss(model(src, shift_right(tgt, BOS)), tgt).item()
    _update(model, optimizer, loss)
    return loss


def _per_sentence(logits, target):
    losses = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=PAD, reduction="none")
    return (losses.sum(1) / (target != PAD).sum(1)).mean()


def _cross_entropy_of_rows(logits, target):
    return F.cross_entropy(logits, target, ignore_index=PAD)


def step_by_flattening(model, optimizer, src, tgt):
    optimizer.zero_grad(set_to_none=False)
    first = tgt.new_full((tgt.size(0), 1), BOS)
    logits = model(src, torch.hstack((first, tgt[:, :-1])))
    loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten(), ignore_index=PAD)
    loss.backward()
    optimizer.step()
    return loss.detach().item()


def step_by_closure(model, optimizer, src, tgt):
    def closure():
        model.zero_grad()
        logits = model(src, tgt.roll(1, dims=1).index_fill(1, torch.tensor([0]), BOS))
        real = tgt != PAD
        loss = F.nll_loss(logits[real].log_softmax(-1), tgt[real])
        loss.backward()
        return loss

    return float(optimizer.step(closure))


def step_that_clears_last(model, optimizer, src, tgt):
    model.train()
    losses = F.cross_entropy(model(src, shift_right(tgt, BOS)).mT, tgt, reduction="none")
    loss = losses[tgt.ne(PAD)].mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.tolist()


def _batch(draw: Draw, B: int, n: int, m: int, src_words: int, tgt_words: int) -> list[torch.Tensor]:
    """One batch as the corpus makes them: rows of unlike lengths, ending in </s>, padded."""
    src, tgt = draw.integers(FIRST_WORD, src_words - 1, B, n), draw.integers(FIRST_WORD, tgt_words - 1, B, m)
    for ids, longest in ((src, n), (tgt, m)):
        for row in range(B):
            end = longest - 1 if row == 0 else longest - 1 - draw.size(1, longest - 2)
            ids[row, end], ids[row, end + 1 :] = EOS, PAD
    return [src, tgt]


def _step_cases(steps: int) -> Callable[[Draw], list[Case]]:
    def cases(draw: Draw) -> list[Case]:
        sizes = draw.sizes(src_words=(15, 16), tgt_words=(11, 13), B=(3, 4), n=(5, 6), m=(7, 8))
        batches = [
            _batch(draw, *(sizes[k] for k in ("B", "n", "m", "src_words", "tgt_words"))) for _ in range(steps)
        ]
        inputs = {
            "source": draw.normal(sizes["src_words"], sizes["tgt_words"], scale=0.7),
            "target": draw.normal(sizes["tgt_words"], sizes["tgt_words"], scale=0.7),
            "batches": batches,
            "lr": 0.5,
        }
        return [Case("train step", inputs)]

    return cases  # fmt: skip


def _heart_cases(draw: Draw) -> list[Case]:
    src, tgt = _batch(draw, 8, 6, 7, 24, 24)
    src[:, 0] = torch.arange(FIRST_WORD, FIRST_WORD + 8)  # no two sources alike, so all can be learned
    return [Case("by heart", {"src": src, "tgt": tgt, "words": 24, "steps": 60, "goal": 0.05})]


_STEP_WORDS = {
    "loss.1": "the returned loss",
    "loss.2": "the second returned loss",
    "loss.3": "the third returned loss",
    "steps": "the number of calls of optimizer.step()",
    "source": "a weight after the step",
    "target": "a weight after the step",
    "tgt_in": "what the model was given as tgt_in",
    "training": "whether the model was in training mode",
    "changed": "the list of changed inputs",
    "learned": "whether eight sentences were learned by heart in 60 steps (loss below 0.05)",
}

TRAIN_STEP = Exercise(
    id="9.2",
    symbol="train_step",
    kind="function",
    parameters=("model", "optimizer", "src", "tgt"),
    points=8,
    todos=("9.2",),
    rows=(
        Row("input", "the model reads <s> and the target without its last token", _step_cases(1), looks=("tgt_in",),
            weight=2, spoken=_STEP_WORDS),
        Row("loss", "the loss before the step is returned, as a float", _step_cases(1), looks=("loss.*",), weight=2,
            spoken=_STEP_WORDS),
        Row("one step", "the weights move by one step down the gradient of that loss", _step_cases(1),
            looks=("steps", "source", "target"), weight=2, spoken=_STEP_WORDS),
        Row("next steps", "a second and a third step start from fresh gradients", _step_cases(3),
            looks=("loss.*", "source", "target"), spoken=_STEP_WORDS),
        Row("input kept", "src and tgt are left unchanged, and the model in training mode", _step_cases(1),
            looks=("changed", "training"), needs=("input", "loss"), spoken=_STEP_WORDS),
        Row("by heart", "with it, a small Transformer learns eight sentences by heart", _heart_cases, looks=("learned",),
            needs=("one step", "next steps"), spoken=_STEP_WORDS),
    ),
    reference=reference_step,
    misconceptions=(
        Wrong("no shift", "The model is given the target itself, so it reads each answer before it has to say it. It will "
              "learn to copy. Give it shift_right(tgt, BOS).", _step(shift=lambda tgt: tgt)),
        Wrong("target without first", "Input tgt[:, :-1] and target tgt[:, 1:] fit a tgt that begins with <s>. Ours does not: "
              "so the first word is never learned. The input is shift_right(tgt, BOS), the target tgt.",
              _shift_without_first),
        Wrong("shifted by end", "The shifted input begins with </s>; the decoder's first token is <s> (BOS).",
              _step(shift=lambda tgt: shift_right(tgt, EOS))),
        Wrong("shifted by padding", "The shifted input begins with <pad>; the decoder's first token is <s> (BOS).",
              _step(shift=lambda tgt: shift_right(tgt, PAD))),
        Wrong("shifted twice", "The target is shifted twice: at each place the model misses the word just before it.",
              _step(shift=lambda tgt: shift_right(shift_right(tgt, BOS), BOS))),
        Wrong("shifted left", "You shift to the left: at each place the model reads the word after the one it has to say.",
              _step(shift=lambda tgt: torch.cat([tgt[:, 1:], torch.full_like(tgt[:, :1], EOS)], 1))),
        Wrong("compared with input", "The logits are compared with the shifted input, so the model learns to repeat the word "
              "it was given. Compare them with tgt.", _step(wanted=lambda tgt, tgt_in: tgt_in)),
        Wrong("swapped", "src and tgt have changed places in model(src, tgt_in).",
              _step(logits=lambda model, src, tgt_in: model(tgt_in, src))),
        Wrong("padding counts", "The loss counts the padding too. The mean goes over real tokens only, as your "
              "sequence_loss of chapter 08 does.", _step(loss=lambda logits, t: F.cross_entropy(logits.transpose(1, 2), t))),
        Wrong("loss arguments swapped", "sequence_loss takes the logits first and the target second.",
              _step(loss=lambda logits, t: sequence_loss(t, logits))),
        Wrong("classes on the wrong axis", "F.cross_entropy wants the words on axis 1, [B, V, m], and your logits are [B, m, V]. "
              "sequence_loss of chapter 08 takes them as they are.", _step(loss=_cross_entropy_of_rows)),
        Wrong("no source", "The model is called with one argument. A translation needs both: model(src, tgt_in).",
              _step(logits=lambda model, src, tgt_in: model(tgt_in))),
        Wrong("sum", "The loss is the sum over the tokens, so a longer batch takes a larger step. Take the mean over real "
              "tokens.", _step(loss=lambda logits, t: F.cross_entropy(logits.transpose(1, 2), t, ignore_index=PAD, reduction="sum"))),
        Wrong("mean of means", "Each sentence's loss is averaged first. The mean goes over all real tokens of the batch alike.",
              _step(loss=_per_sentence)),
        Wrong("softmax first", "The loss is given probabilities; it expects the logits as the model returns them, and takes "
              "their softmax itself.", _step(loss=lambda logits, t: _loss(logits.softmax(-1), t))),
        Wrong("not cleared", "The gradients of earlier steps are still there: backward() adds to them. Clear them with "
              "optimizer.zero_grad() before backward().", _step(update=_no_zero)),
        Wrong("no gradient at the step", "When optimizer.step() runs there is no gradient to follow, so the weights never move: "
              "either zero_grad() comes after backward(), or step() comes before it. The order is zero_grad, backward, step.",
              _step(update=_zero_too_late)),
        Wrong("one step behind", "optimizer.step() comes first and follows the gradient of the batch before.",
              _step(update=_step_before_zero)),
        Wrong("no step", "Gradients are computed, but optimizer.step() is missing: the weights never move.",
              _step(update=_no_step)),
        Wrong("uphill", "The step goes up the loss instead of down: the sign is turned somewhere.", _step(update=_uphill)),
        Wrong("two steps", "optimizer.step() is called twice for one batch.", _step(update=_twice)),
        Wrong("tensor", "A tensor is returned. It keeps the whole computation alive: thousands of steps would fill the "
              "memory. loss.item() is the plain number.", _step(result=lambda loss, again: loss)),
        Wrong("loss after", "The loss after the step is returned. The one before it is already there and costs nothing.",
              _step(result=lambda loss, again: again().item())),
        Wrong("in place", "tgt itself is changed, so the caller's data is spoiled for the next epoch. Make a new tensor.",
              _in_place),
        Wrong("evaluation mode", "model.eval() switches dropout off. A training step runs in training mode.", _evaluates),
        Wrong("no gradient", "The loss is computed under torch.no_grad(), so there is nothing for backward() to follow.",
              _no_grad),
        Wrong("float too early", "loss became a number (item) before backward(). Call backward() on the tensor, and take "
              "the number at the end.", _float_too_early),
    ),
    alternatives={
        "flattened": step_by_flattening,
        "closure": step_by_closure,
        "cleared at the end": step_that_clears_last,
    },
    hints={
        "9.2": (
            "Which two tensors does the model need, and with what are its logits compared?",
            "tgt [B, m] → tgt_in [B, m] → logits [B, m, V] → one number. Then clear, backward, step, in this order.",
            "loss = sequence_loss(logits of the model on src and the shifted target, the target); three calls; the loss as "
            "a plain number",
        ),
    },
)  # fmt: skip


# ---- 9.3 overfit ------------------------------------------------------------------------------------


def reference_overfit(step, goal=0.05, most=300):
    """All losses at hand, cut after the first one below the goal."""
    losses = []
    for loss in itertools.islice(iter(step, None), most):
        losses += [loss]
        if loss < goal:
            return losses
    return losses


def _overfit(
    enough: Callable = lambda losses, goal: losses[-1] < goal,
    limit: Callable = lambda most: most,
    result: Callable = lambda losses: losses,
    keeps_last: bool = True,
    more: int = 0,
) -> Callable:
    """The usual loop with every piece exchangeable."""

    def overfit(step, goal=0.05, most=300):
        losses = []
        for _ in range(limit(most)):
            loss = step()
            if not keeps_last and enough([loss], goal):
                break
            losses.append(loss)
            if enough(losses, goal):
                losses += [step() for _ in range(more)]
                break
        return result(losses)

    return overfit


def _endless(step, goal=0.05, most=300):
    losses = [step()]
    while losses[-1] >= goal:
        losses.append(step())
    return losses


def _same_loss_again(step, goal=0.05, most=300):
    loss, losses = step(), []
    for _ in range(most):
        losses.append(loss)
        if loss < goal:
            break
    return losses


def _not_called(step, goal=0.05, most=300):
    losses = []
    for _ in range(most):
        losses.append(step)
        if losses[-1] < goal:
            break
    return losses


def _two_a_round(step, goal=0.05, most=300):
    losses = []
    while step() > goal:
        losses.append(step())
    return losses


def _looks_twice(step, goal=0.05, most=300):
    losses = []
    for _ in range(most):
        losses.append(step())
        if step() < goal:
            break
    return losses


def _other_defaults(step, goal=0.5, most=300):
    return reference_overfit(step, goal, most)


def _fewer(step, goal=0.05, most=100):
    return reference_overfit(step, goal, most)


def overfit_by_while(step, goal=0.05, most=300):
    losses = []
    while len(losses) < most and not (losses and losses[-1] < goal):
        losses.append(step())
    return losses


def overfit_by_recursion(step, goal=0.05, most=300):
    if most == 0:
        return []
    loss = step()
    return [loss, *([] if loss < goal else overfit_by_recursion(step, goal, most - 1))]


def overfit_by_generator(step, goal=0.05, most=300):
    def losses():
        for _ in range(most):
            loss = step()
            yield loss
            if loss < goal:
                return

    return list(losses())


def _falling(draw: Draw, steps: int, low: float = 0.3, high: float = 3.0) -> list[float]:
    """Losses as training gives them: falling, with a rise here and there."""
    falling = np.sort(np.round(draw.rng.uniform(low, high, steps), 3))[::-1].copy()
    at = draw.size(1, steps - 3)
    falling[[at, at + 1]] = falling[[at + 1, at]]
    return falling.tolist()


def _reaching_cases(draw: Draw) -> list[Case]:
    """The goal is met at a known step; the loss before it equals the goal, which is not yet below."""
    goal = 0.2
    losses = [*_falling(draw, draw.size(6, 9)), goal, 0.15, 0.1, 0.09]
    return [
        Case("losses of steps", {"losses": losses, "kwargs": {"goal": goal, "most": 40}}),
        Case("losses of steps", {"losses": [0.05, *losses], "kwargs": {"goal": goal, "most": 40}}),
    ]


def _stopping_cases(draw: Draw) -> list[Case]:
    losses = _falling(draw, draw.size(15, 18))
    return [Case("losses of steps", {"losses": losses, "kwargs": {"goal": 0.1, "most": draw.size(8, 12)}})]


def _default_cases(draw: Draw) -> list[Case]:
    learned = [*_falling(draw, draw.size(5, 8)), 0.07, 0.04, 0.03]
    return [
        Case("losses of steps", {"losses": learned, "kwargs": {}}),
        Case("losses of steps", {"losses": _falling(draw, 9), "kwargs": {}}),
    ]


_LOOP = {"out": "the list of losses", "calls": "the number of calls of step()"}

OVERFIT = Exercise(
    id="9.3",
    symbol="overfit",
    kind="function",
    parameters=("step", "goal", "most"),
    points=4,
    todos=("9.3",),
    rows=(
        Row("reaches", "it stops right after the first loss below the goal and returns all losses, that one included",
            _reaching_cases, looks=("out", "calls"), weight=2, spoken=_LOOP),
        Row("gives up", "it stops after `most` steps when the goal is not reached", _stopping_cases,
            looks=("out", "calls"), spoken=_LOOP),
        Row("defaults", "goal is 0.05 and most is 300 when they are not given", _default_cases, looks=("out", "calls"),
            needs=("reaches", "gives up"), spoken=_LOOP),
    ),
    reference=reference_overfit,
    misconceptions=(
        Wrong("last loss dropped", "The loss that reached the goal is missing from the list. Append it before you leave the "
              "loop.", _overfit(keeps_last=False)),
        Wrong("one step more", "One step more is made after the goal is reached. Look at the loss right after each step.",
              _overfit(more=1)),
        Wrong("equal is enough", "A loss equal to the goal already ends your loop; it should end when a loss is below it.",
              _overfit(enough=lambda losses, goal: losses[-1] <= goal)),
        Wrong("never satisfied", "The goal is never looked at: all `most` steps are made.",
              _overfit(enough=lambda losses, goal: False)),
        Wrong("wrong way round", "Your loop ends while the loss is still above the goal: the comparison is turned round.",
              _overfit(enough=lambda losses, goal: losses[-1] > goal)),
        Wrong("mean", "The mean of all losses is compared with the goal. The latest loss alone decides.",
              _overfit(enough=lambda losses, goal: sum(losses) / len(losses) < goal)),
        Wrong("stops at a rise", "Your loop ends as soon as a loss is larger than the one before. Single rises are normal; "
              "go on until the goal.",
              _overfit(enough=lambda losses, goal: losses[-1] < goal or losses[-1] > min(losses))),
        Wrong("no limit", "When the goal is never reached, your loop never ends. Stop after `most` steps.", _endless),
        Wrong("one too many", "`most` + 1 steps are made when the goal is not reached.", _overfit(limit=lambda most: most + 1)),
        Wrong("one too few", "`most` - 1 steps are made when the goal is not reached.", _overfit(limit=lambda most: most - 1)),
        Wrong("last only", "Only the last loss is returned. The list of all losses was asked for: it can be drawn.",
              _overfit(result=lambda losses: losses[-1])),
        Wrong("count", "The number of steps is returned; the list of losses was asked for.", _overfit(result=len)),
        Wrong("same loss again", "step() is called only once, and its loss is repeated. Each call makes one step.",
              _same_loss_again),
        Wrong("not called", "You use step itself, the function. step() calls it and gives the loss.", _not_called),
        Wrong("two steps a round", "step() is called twice in each round, once to look and once to keep. Each call is a step: "
              "keep its loss in a variable, or look at losses[-1]. And `most` is not looked at.", _two_a_round),
        Wrong("called again to look", "step() is called a second time to compare it with the goal. Each call is a step: look at "
              "losses[-1].", _looks_twice),
        Wrong("another goal", "The default of goal is 0.05.", _other_defaults),
        Wrong("another limit", "The default of most is 300.", _fewer),
    ),
    alternatives={
        "while": overfit_by_while,
        "recursion": overfit_by_recursion,
        "generator": overfit_by_generator,
    },
    hints={
        "9.3": (
            "Which two events end the loop?",
            "step() takes nothing and returns one float. You return a list of floats, as long as the number of calls.",
            "for at most `most` rounds: append what step() returns; leave when the latest is below goal",
        ),
    },
)  # fmt: skip


# ---- 9.4 translate ----------------------------------------------------------------------------------


@torch.no_grad()
def reference_translate(model, src, max_len=32):
    """Sentence by sentence."""
    model.eval()
    memory, found = model.encode(src), []
    for row in range(len(src)):
        said = []
        while len(said) < max_len:
            prefix = torch.tensor([[BOS, *said]])
            word = int(model.decode(prefix, memory[row : row + 1], src[row : row + 1])[0, -1].argmax())
            if word == EOS:
                break
            said.append(word)
        found.append(said)
    return found


def _cut(row: list[int]) -> list[int]:
    return row[: row.index(EOS)] if EOS in row else row


def _translate(
    first: int = BOS,
    pick: Callable = lambda logits: logits[:, -1].argmax(-1),  # [B, m, V] -> [B]
    fed: Callable = lambda prefix: prefix,
    done: Callable = lambda prefix: (prefix == EOS).any(1).all(),
    limit: Callable = lambda max_len: max_len,
    words: Callable = lambda prefix: [_cut(row[1:].tolist()) for row in prefix],
    prepare: Callable = lambda model: model.eval(),
    again: bool = False,
    gradients: bool = False,
) -> Callable:
    """The usual loop with every piece exchangeable."""

    def translate(model, src, max_len=32):
        with torch.set_grad_enabled(gradients):
            prepare(model)
            memory = model.encode(src)
            prefix = torch.full((len(src), 1), first)
            for _ in range(limit(max_len)):
                if again:
                    memory = model.encode(src)
                word = pick(model.decode(fed(prefix), memory, src))
                prefix = torch.cat([prefix, word[:, None]], dim=1)
                if done(prefix):
                    break
        return words(prefix)

    return translate


def _sampled(logits):
    return torch.multinomial(logits[:, -1].softmax(-1), 1)[:, 0]


def _replaces(model, src, max_len=32):
    """Keeps only the newest word and joins them afterwards."""
    with torch.no_grad():
        model.eval()
        memory, word = model.encode(src), torch.full((len(src), 1), BOS)
        said = []
        for _ in range(max_len):
            word = model.decode(word, memory, src)[:, -1:].argmax(-1)
            said.append(word)
            if (word == EOS).all():
                break
    return [_cut(row) for row in torch.cat(said, 1).tolist()]


def _in_source_first(model, src, max_len=32):
    """Starts from the source's own tokens."""
    with torch.no_grad():
        model.eval()
        memory, prefix = model.encode(src), src
        for _ in range(max_len):
            prefix = torch.cat([prefix, model.decode(prefix, memory, src)[:, -1:].argmax(-1)], dim=1)
    return [_cut(row) for row in prefix[:, src.size(1) :].tolist()]


def _all_positions(model, src, max_len=32):
    """Joins the words of all positions, not of the last one."""
    with torch.no_grad():
        model.eval()
        memory, prefix = model.encode(src), torch.full((len(src), 1), BOS)
        for _ in range(min(max_len, 5)):  # the prefix doubles each time
            prefix = torch.cat([prefix, model.decode(prefix, memory, src).argmax(-1)], dim=1)
    return [_cut(row[1:].tolist()) for row in prefix]


def _whole_model(model, src, max_len=32):
    """Calls the model on source and prefix each time."""
    model.eval()
    with torch.no_grad():
        prefix = torch.full((len(src), 1), BOS)
        for _ in range(max_len):
            prefix = torch.cat([prefix, model(src, prefix)[:, -1:].argmax(-1)], dim=1)
            if (prefix == EOS).any(1).all():
                break
    return [_cut(row[1:].tolist()) for row in prefix]


def _word_without_axis(model, src, max_len=32):
    model.eval()
    with torch.no_grad():
        memory, prefix = model.encode(src), torch.full((len(src), 1), BOS)
        for _ in range(max_len):
            prefix = torch.cat([prefix, model.decode(prefix, memory, src)[:, -1].argmax(-1)], dim=1)
    return prefix.tolist()


def _only_first_sentence(model, src, max_len=32):
    return _translate()(model, src[:1], max_len)[0]


def _short_default(model, src, max_len=8):
    return _translate()(model, src, max_len)


@torch.inference_mode()
def translate_dropping_finished(model, src, max_len=32):
    """Rows that are finished leave the batch."""
    model.train(False)
    memory, found, going = model.encode(src), [[] for _ in src], list(range(len(src)))
    for _ in range(max_len):
        prefix = torch.tensor([[BOS, *found[row]] for row in going])
        words = model.decode(prefix, memory[going], src[going])[:, -1].max(dim=-1).indices.tolist()
        going = [
            row
            for row, word in zip(list(going), words, strict=True)
            if word != EOS and not found[row].append(word)
        ]
        if not going:
            break
    return found  # fmt: skip


def translate_with_flags(model, src, max_len=32):
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        ids = torch.full((src.size(0), max_len + 1), PAD)
        ids[:, 0] = BOS
        open_ = torch.ones(src.size(0), dtype=torch.bool)
        for place in range(1, max_len + 1):
            scores = model.decode(ids[:, :place], memory, src).softmax(-1)
            ids[:, place] = torch.where(open_, scores[:, place - 1].argmax(-1), PAD)
            open_ &= ids[:, place] != EOS
            if not bool(open_.any()):
                break
    return [[token for token in row[1:] if token not in (PAD, EOS)] for row in ids.tolist()]


def translate_one_by_one(model, src, max_len=32):
    was = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        found = []
        for one, m in zip(src.split(1), memory.split(1), strict=True):
            ids = [BOS]
            for _ in range(max_len):
                ids.append(torch.topk(model.decode(torch.tensor([ids]), m, one)[0, -1], 1).indices.item())
                if ids[-1] == EOS:
                    ids.pop()
                    break
            found.append(ids[1:])
    model.train(was)
    return found


def _scripts(draw: Draw, lengths: list[int]) -> dict:
    """A case's inputs: sentences of these lengths, all words different from `wrong`, in random rows."""
    vocabulary = draw.size(21, 25)
    wrong = vocabulary - 1
    lengths = [lengths[i] for i in draw.rng.permutation(len(lengths))]
    firsts = (FIRST_WORD + draw.rng.permutation(len(lengths) + 3)[: len(lengths)]).tolist()
    sentences = {
        str(first): [*draw.integers(FIRST_WORD, wrong - 1, length).tolist(), EOS]
        for first, length in zip(firsts, lengths, strict=True)
    }
    src = draw.integers(FIRST_WORD, 9, len(lengths), 5)
    src[:, 0] = torch.tensor(firsts)
    src[:, 3], src[0, 4], src[1:, 4] = EOS, EOS, PAD
    return {"sentences": sentences, "vocabulary": vocabulary, "wrong": wrong, "src": src}


def _translate_cases(draw: Draw) -> list[Case]:
    return [
        Case("translate", _scripts(draw, [2, 6, 4, 9]) | {"kwargs": {"max_len": 15}}),
        Case("translate", _scripts(draw, [4]) | {"kwargs": {"max_len": 11}}),
    ]


def _limit_cases(draw: Draw) -> list[Case]:
    return [Case("translate", _scripts(draw, [3, 8, 11]) | {"kwargs": {"max_len": draw.size(5, 6)}})]


def _default_length_cases(draw: Draw) -> list[Case]:
    return [Case("translate", _scripts(draw, [3, 38]) | {"kwargs": {}})]


_SAID = {
    "out": "the list of translations",
    "encoded": "the number of calls of encode",
    "evaluating": "whether the model was in evaluation mode",
    "gradients": "whether gradients were recorded",
}

TRANSLATE = Exercise(
    id="9.4",
    symbol="translate",
    kind="function",
    parameters=("model", "src", "max_len"),
    points=8,
    todos=("9.4",),
    rows=(
        Row("words", "each sentence is written word by word until </s>, whatever the others' lengths",
            _translate_cases, looks=("out",), weight=4, spoken=_SAID),
        Row("limit", "a sentence that does not end is cut after max_len words", _limit_cases, looks=("out",), spoken=_SAID),
        Row("default", "max_len is 32 when it is not given", _default_length_cases, looks=("out",), needs=("words", "limit"),
            spoken=_SAID),
        Row("encoded once", "the source is encoded once, not again for each word", _translate_cases, looks=("encoded",),
            needs=("words",), spoken=_SAID),
        Row("evaluation", "the model is in evaluation mode (no dropout), and no gradients are recorded", _translate_cases,
            looks=("evaluating", "gradients"), needs=("words",), spoken=_SAID),
        Row("input kept", "src is left unchanged", _translate_cases, looks=("changed",), needs=("words",), spoken=_SAID),
    ),
    reference=reference_translate,
    misconceptions=(
        Wrong("first position", "You read the logits of the first position. The next word is what the last position says.",
              _translate(pick=lambda logits: logits[:, 0].argmax(-1))),
        Wrong("wrong axis", "logits[:, :, -1] is one word's score at all positions. logits are [B, m, V]: the last position is "
              "logits[:, -1], and argmax runs over its words.", _translate(pick=lambda logits: logits[:, :, -1].argmax(-1))),
        Wrong("all positions", "The words of all positions are joined to the prefix. Only the last position's word is new; the "
              "others are said already.", _all_positions),
        Wrong("word without axis", "The new words have shape [B] and the prefix [B, m]. Give the words a second axis, "
              "word[:, None], before you join them.", _word_without_axis),
        Wrong("least likely", "You take the least likely word (argmin).",
              _translate(pick=lambda logits: logits[:, -1].argmin(-1))),
        Wrong("sampled", "Words are drawn at random. Greedy writing takes the likeliest one.", _translate(pick=_sampled)),
        Wrong("newest word only", "The decoder is given only the newest word. It needs the whole beginning of the sentence, "
              "from <s> on.", _replaces),
        Wrong("starts with end", "The sentence starts with </s>; the decoder learned to start from <s> (BOS).",
              _translate(first=EOS)),
        Wrong("starts with padding", "The sentence starts with <pad>; the decoder learned to start from <s> (BOS).",
              _translate(first=PAD)),
        Wrong("starts from source", "The decoder is given the source as its beginning. It starts from <s> alone; the source "
              "reaches it through memory.", _in_source_first),
        Wrong("stops with the first", "The loop ends when the first sentence has reached </s>; the others are cut. Go on until "
              "all have.", _translate(done=lambda prefix: (prefix == EOS).any())),
        Wrong("stops together", "The loop ends only when all sentences say </s> at the same step, and what stands behind the "
              "first </s> is kept.",
              _translate(done=lambda prefix: (prefix[:, -1] == EOS).all(), words=lambda p: [
                  [t for t in row[1:].tolist() if t != EOS] for row in p])),
        Wrong("words after the end", "What the model says after </s> is kept. A sentence ends at its first </s>.",
              _translate(words=lambda prefix: [[t for t in row[1:].tolist() if t != EOS] for row in prefix])),
        Wrong("keeps end", "</s> is part of your translations. Leave it out: it only says where to stop.",
              _translate(words=lambda prefix: [
                  [*_cut(row[1:].tolist()), *([EOS] if EOS in row else [])] for row in prefix])),
        Wrong("keeps beginning", "<s> is part of your translations. Leave it out.",
              _translate(words=lambda prefix: [_cut(row.tolist()) for row in prefix])),
        Wrong("last word lost", "The last word of each sentence is missing.",
              _translate(words=lambda prefix: [_cut(row[1:].tolist())[:-1] for row in prefix])),
        Wrong("tensor", "You return a tensor; a list of lists of ints was asked for (sentences have unlike lengths).",
              _translate(words=lambda prefix: prefix[:, 1:])),
        Wrong("first sentence only", "Only the first sentence is translated. src holds B of them.", _only_first_sentence),
        Wrong("one too many", "max_len + 1 words are written.", _translate(limit=lambda n: n + 1)),
        Wrong("one too few", "Only max_len - 1 words are written.", _translate(limit=lambda n: n - 1)),
        Wrong("another limit", "The default of max_len is 32.", _short_default),
        Wrong("encoded again", "The source is encoded again for every word. Its memory never changes: encode it once, before "
              "the loop.", _translate(again=True)),
        Wrong("whole model", "model(src, prefix) reads the source again for every word. Its memory never changes: "
              "model.encode(src) once, then model.decode(prefix, memory, src).", _whole_model),
        Wrong("training mode", "The model stays in training mode, so dropout changes words at random. Call model.eval() "
              "first.", _translate(prepare=lambda model: None)),
        Wrong("gradients", "Gradients are recorded for every word, which costs time and memory. Translate under "
              "torch.no_grad().", _translate(gradients=True)),
    ),
    alternatives={
        "rows leave": translate_dropping_finished,
        "flags": translate_with_flags,
        "one by one": translate_one_by_one,
    },
    hints={
        "9.4": (
            "What does the decoder need at the first step, and which of its outputs is the next word?",
            "prefix [B, 1] of <s> → logits [B, m, V] → last position [B, V] → words [B] → prefix [B, 2] → … and at the "
            "end one list for each row.",
            "encode once; up to max_len times: decode the prefix, take the likeliest word of the last position, join it on; "
            "stop when each row holds </s>; give each row back without <s> and up to its first </s>",
        ),
    },
)  # fmt: skip

EXERCISES = (WARMUP, TRAIN_STEP, OVERFIT, TRANSLATE)
