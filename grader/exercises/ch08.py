"""Chapter 08, from rows to sentences: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from grader.exercises.ch07 import ReferenceDecoder, padded_ids, projections, torch_state, two_linears
from grader.exercises.ch07 import reference_causal as causal
from grader.exercises.ch07 import reference_padding as padding
from grader.exercises.ch07 import reference_target as both
from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.probes.core import Case, observe
from transformer_lab.parts import Decoder, Encoder, OutputLayer, PositionalEncoding, TokenEmbedding

CHAPTER = "08_output"


def telling(draw: Draw, make: Callable[[Draw], Case], symbols: dict[str, Any], most: int = 8) -> list[Case]:
    """Draw cases until they tell all `symbols` apart, keeping only those that tell more of them apart.

    A random case may hide a mistake (a beam of 2 often finds what a beam of 3 finds), so cases are chosen.
    """
    kept: list[Case] = []
    groups = [list(symbols)]  # names that no case so far has told apart
    for _ in range(200):
        case = make(draw)
        parted = [_parted(group, symbols, case) for group in groups]
        if any(len(parts) > 1 for parts in parted):
            kept.append(case)
        groups = [part for parts in parted for part in parts if len(part) > 1]
        if not groups or len(kept) == most:
            break
    return kept or [case]


def _parted(names: list[str], symbols: dict[str, Any], case: Case) -> list[list[str]]:
    """Group `names` by what their symbols give on `case`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_gist(symbols[name], case), []).append(name)
    return list(groups.values())


def _gist(symbol: Any, case: Case) -> str:
    observation = observe(symbol, case)
    out = observation.values.get("out")
    if isinstance(out, torch.Tensor):
        out = [round(value, 3) for value in out.double().flatten().tolist()]
    return f"{out}{observation.problem and observation.problem.error};"


# ---- 8.1 OutputLayer --------------------------------------------------------------------------------


class ReferenceOutput(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        return torch.einsum("bmd,vd->bmv", x, self.proj.weight)


class OutputVariant(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        return self.proj(x)


class OutputBias(OutputVariant):
    def __init__(self, d_model, vocab_size):
        super().__init__(d_model, vocab_size)
        self.proj = nn.Linear(d_model, vocab_size)


class OutputTurned(OutputVariant):
    def __init__(self, d_model, vocab_size):
        super().__init__(vocab_size, d_model)


class OutputNamed(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.linear = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        return self.linear(x)


class OutputSoftmax(OutputVariant):
    def forward(self, x):
        return self.proj(x).softmax(-1)


class OutputLogSoftmax(OutputVariant):
    def forward(self, x):
        return self.proj(x).log_softmax(-1)


class OutputLast(OutputVariant):
    def forward(self, x):
        return self.proj(x[:, -1])


class OutputMean(OutputVariant):
    def forward(self, x):
        return self.proj(x.mean(dim=1, keepdim=True)).expand(-1, x.size(1), -1).clone()


class OutputFlat(OutputVariant):
    def forward(self, x):
        return self.proj(x).flatten(0, 1)


class OutputArgmax(OutputVariant):
    def forward(self, x):
        return self.proj(x).argmax(-1)


class OutputScaled(OutputVariant):
    def forward(self, x):
        return self.proj(x) * x.size(-1) ** -0.5


class OutputMatmul(OutputVariant):
    def forward(self, x):
        return x @ self.proj.weight.transpose(0, 1)


class OutputFunctional(OutputVariant):
    def forward(self, x):
        return F.linear(x.reshape(-1, x.size(-1)), self.proj.weight).view(*x.shape[:-1], -1)


def _output_cases(draw: Draw, wrt: bool = False) -> list[Case]:
    s = draw.sizes(B=(2, 4), m=(5, 7), d=(8, 10), V=(11, 14))
    x = draw.normal(s["B"], s["m"], s["d"])
    call: dict = {"args": [x]}
    if wrt:
        call |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(s["B"], s["m"], s["V"])]}
    weights = {"proj.weight": draw.normal(s["V"], s["d"])}
    return [Case("module", {"make": {"args": [s["d"], s["V"]]}, "weights": weights, "call": call})]


OUTPUT = Exercise(
    id="8.1",
    symbol="OutputLayer",
    kind="module class",
    parameters=("d_model", "vocab_size"),
    points=2,
    todos=("8.1",),
    rows=(
        Row("logits", "[B, m, d] → logits [B, m, V], by proj, without bias", _output_cases, looks=("out",)),
        Row(
            "gradient",
            "the gradient reaches x and proj",
            lambda draw: _output_cases(draw, wrt=True),
            looks=("grad.*",),
            needs=("logits",),
            spoken={"grad.0": "the gradient of x"},
        ),
    ),
    reference=ReferenceOutput,
    misconceptions=(
        Wrong(
            "with bias",
            "proj has a bias. The contract has none, so that proj can share its matrix with an embedding, which has no bias either: bias=False.",
            OutputBias,
        ),
        Wrong(
            "sizes swapped",
            "nn.Linear takes the input's width first: from d_model to vocab_size.",
            OutputTurned,
        ),
        Wrong(
            "another name",
            "The layer works, but later chapters look for it under the name proj.",
            OutputNamed,
        ),
        Wrong(
            "softmax inside",
            "These are probabilities already. Return the logits as they are: the loss and the decoding take the softmax themselves, and twice is wrong.",
            OutputSoftmax,
        ),
        Wrong(
            "log-softmax inside",
            "These are log-probabilities already. Return the logits as they are.",
            OutputLogSoftmax,
        ),
        Wrong(
            "last place only",
            "Only the last place is projected. In training every one of the m places makes a prediction.",
            OutputLast,
        ),
        Wrong(
            "mean over places",
            "You averaged over the places, so all predictions are the same. The layer works on each place by itself.",
            OutputMean,
        ),
        Wrong("flattened", "Keep the axes of batch and place: [B, m, V].", OutputFlat),
        Wrong(
            "chosen tokens",
            "You chose a token already (argmax). No gradient passes through a choice; return the logits.",
            OutputArgmax,
        ),
        Wrong("scaled", "The logits are divided by √d. That belongs to attention scores.", OutputScaled),
    ),
    alternatives={
        "nn.Linear": OutputVariant,
        "matrix product": OutputMatmul,
        "F.linear on rows": OutputFunctional,
    },
    hints={
        "8.1": (
            "One score for every word of the vocabulary, from d numbers. Which layer turns d numbers into V?",
            "x [B, m, d] times the transpose of proj.weight [V, d] gives [B, m, V].",
            "proj = a linear layer from d_model to vocab_size that has no bias; forward applies it to x, and nothing more",
        )
    },
)


# ---- 8.2 tie_weights --------------------------------------------------------------------------------


def reference_tie(embedding, output):
    del output.proj._parameters["weight"]
    output.proj._parameters["weight"] = embedding.emb._parameters["weight"]


def tie_forward(embedding, output):
    output.proj.weight = embedding.emb.weight


def tie_backward(embedding, output):
    embedding.emb.weight = output.proj.weight


def tie_by_register(embedding, output):
    output.proj.register_parameter("weight", embedding.emb.weight)
    return output


def tie_by_name(embedding, output):
    setattr(output.proj, "weight", getattr(embedding.emb, "weight"))  # noqa: B009, B010


def tie_nothing(embedding, output):
    output = embedding  # noqa: F841


def tie_copies(embedding, output):
    output.proj.weight.data.copy_(embedding.emb.weight.data)


def tie_clones(embedding, output):
    output.proj.weight = nn.Parameter(embedding.emb.weight.detach().clone())


def tie_storage(embedding, output):
    output.proj.weight.data = embedding.emb.weight.data


def tie_outer(embedding, output):
    output.weight = embedding.emb.weight


def tie_module(embedding, output):
    output.proj = embedding.emb


def tie_missing(embedding, output):
    output.proj.weight = embedding.weight


def tie_tensor(embedding, output):
    output.proj.weight = embedding.emb.weight.clone()


def tie_turned(embedding, output):
    output.proj.weight = nn.Parameter(embedding.emb.weight.detach().t())


def tie_frozen(embedding, output):
    embedding.emb.weight.requires_grad_(False)
    output.proj.weight = embedding.emb.weight


def tie_linear(embedding, output):
    output.proj = nn.Linear(embedding.emb.embedding_dim, embedding.emb.num_embeddings)
    output.proj.weight = embedding.emb.weight


def tie_zero(embedding, output):
    nn.init.zeros_(embedding.emb.weight)
    output.proj.weight = embedding.emb.weight


def _tie_case(draw: Draw, equal: bool) -> list[Case]:
    s = draw.sizes(V=(9, 12), d=(5, 7), n=(3, 4))
    table = draw.normal(s["V"], s["d"])
    return [
        Case(
            "tie",
            {
                "table": table,
                "matrix": table if equal else draw.normal(s["V"], s["d"]),
                "ids": draw.integers(0, s["V"] - 1, s["n"]),
                "cotangent": draw.normal(s["n"], s["V"]),
            },
        )
    ]


_TIE_SAID = {
    "parameters": "the number of parameters of both together",
    "shared": "whether both use the same memory",
    "names": "the list of output's parameters",
    "alike": "whether both have equal values",
    "kept": "whether the shared tensor still holds the values of one of the two",
    "out": "output(embedding(ids))",
    "table": "the embedding's table after a training step",
    "matrix": "the output layer's matrix after a training step",
}

TIE = Exercise(
    id="8.2",
    symbol="tie_weights",
    kind="function",
    parameters=("embedding", "output"),
    points=3,
    todos=("8.2",),
    rows=(
        Row(
            "one tensor",
            "embedding.emb and output.proj hold one and the same parameter",
            lambda draw: _tie_case(draw, equal=False),
            looks=("shared", "parameters", "names", "alike"),
            weight=2,
            spoken=_TIE_SAID,
        ),
        Row(
            "values kept",
            "its values are those that one of the two had before",
            lambda draw: _tie_case(draw, equal=False),
            looks=("kept",),
            needs=("one tensor",),
            spoken=_TIE_SAID,
        ),
        Row(
            "trained together",
            "a training step moves both, by the sum of both gradients",
            lambda draw: _tie_case(draw, equal=True),
            looks=("out", "table", "matrix"),
            needs=("one tensor",),
            spoken=_TIE_SAID,
        ),
    ),
    reference=reference_tie,
    misconceptions=(
        # Three more would look alike from outside: a local variable, a forgotten assignment, a returned copy.
        Wrong(
            "nothing tied",
            "Nothing was tied: giving a local variable another value does not touch the modules. Assign to output.proj.weight.",
            tie_nothing,
        ),
        Wrong(
            "copied",
            "The values were copied. They are equal now and will part at the first training step. Share the parameter itself.",
            tie_copies,
        ),
        Wrong(
            "same memory, two parameters",
            "Both use the same memory, yet they are two parameters: the optimizer would step twice, and moving the model to another "
            "device would part them. Assign the parameter, not its .data.",
            tie_storage,
        ),
        Wrong(
            "wrong attribute",
            "You gave output an attribute weight, which nothing uses. The matrix is output.proj.weight.",
            tie_outer,
        ),
        Wrong(
            "module shared",
            "You put the embedding module in the place of proj. An embedding looks rows up, it does not multiply. Share the weight only.",
            tie_module,
        ),
        Wrong(
            "one level too high",
            "embedding is a whole module without a weight of its own. Its table is embedding.emb.weight.",
            tie_missing,
        ),
        Wrong(
            "tensor, not parameter",
            "Only a parameter fits here: embedding.emb.weight itself. A clone or a transpose of it is a new tensor, and embedding.emb is a whole module.",
            tie_tensor,
        ),
        Wrong(
            "transposed",
            "You transposed the table. nn.Linear stores its matrix as [V, d], which is the embedding's shape already.",
            tie_turned,
        ),
        Wrong(
            "frozen",
            "The shared tensor no longer requires a gradient, so it would never learn.",
            tie_frozen,
        ),
        Wrong(
            "new layer",
            "You made a new linear layer, with a bias that the contract does not have. Keep the layer, change its weight.",
            tie_linear,
        ),
        Wrong("values lost", "The shared tensor has new values; the old ones are lost.", tie_zero),
    ),
    alternatives={
        "output takes the table": tie_forward,
        "embedding takes the matrix": tie_backward,
        "register_parameter": tie_by_register,
        "setattr": tie_by_name,
    },
    hints={
        "8.2": (
            "Two attributes should name one object. What does a plain assignment do in Python: copy, or name?",
            "embedding.emb.weight is [V, d]; output.proj.weight is [V, d].",
            "assign the parameter of the one module to the attribute weight of the other module's layer",
        )
    },
)


# ---- 8.3 sequence_loss ------------------------------------------------------------------------------


def reference_loss(logits, target, pad_id=0, label_smoothing=0.0):
    """torch.nn.functional.cross_entropy."""
    flat = logits.reshape(-1, logits.size(-1))
    return F.cross_entropy(flat, target.reshape(-1), ignore_index=pad_id, label_smoothing=label_smoothing)


class _Loss:
    """The usual code with every step in a method of its own."""

    def log_probs(self, logits):
        return logits.log_softmax(-1)

    def smooth(self, log_probs, right, epsilon):
        return -(1 - epsilon) * right - epsilon * log_probs.mean(-1)

    def real(self, target, pad_id):
        return target != pad_id

    def reduce(self, losses, real):
        return losses[real].mean()

    def of(self, logits, target, pad_id, epsilon):
        log_probs = self.log_probs(logits)
        right = log_probs.gather(-1, target[..., None])[..., 0]
        return self.reduce(self.smooth(log_probs, right, epsilon), self.real(target, pad_id))


def _loss(kind: type[_Loss]):
    def sequence_loss(logits, target, pad_id=0, label_smoothing=0.0):
        return kind().of(logits, target, pad_id, label_smoothing)

    return sequence_loss


class CountsPadding(_Loss):
    def reduce(self, losses, real):
        return losses.mean()


class DividesByAll(_Loss):
    def reduce(self, losses, real):
        return (losses * real).mean()


class Sums(_Loss):
    def reduce(self, losses, real):
        return losses[real].sum()


class PerSentence(_Loss):
    def reduce(self, losses, real):
        return ((losses * real).sum(1) / real.sum(1)).mean()


class DividesByBatch(_Loss):
    def reduce(self, losses, real):
        return (losses * real).sum() / losses.size(0)


class PadAlwaysZero(_Loss):
    def real(self, target, pad_id):
        return target != 0


class OnlyPadding(_Loss):
    def real(self, target, pad_id):
        return target == pad_id


class NoSmoothing(_Loss):
    def smooth(self, log_probs, right, epsilon):
        return -right


class SmoothOthers(_Loss):
    """ε shared by the V − 1 wrong classes only."""

    def smooth(self, log_probs, right, epsilon):
        others = (log_probs.sum(-1) - right) / (log_probs.size(-1) - 1)
        return -(1 - epsilon) * right - epsilon * others


class SmoothNotToRight(_Loss):
    """ε/V to each wrong class, 1 − ε to the right one: sums to less than 1."""

    def smooth(self, log_probs, right, epsilon):
        others = (log_probs.sum(-1) - right) / log_probs.size(-1)
        return -(1 - epsilon) * right - epsilon * others


class SmoothNotTaken(_Loss):
    """ε/V to every class, and the right one keeps its 1."""

    def smooth(self, log_probs, right, epsilon):
        return -right - epsilon * log_probs.mean(-1)


class SmoothSum(_Loss):
    def smooth(self, log_probs, right, epsilon):
        return -(1 - epsilon) * right - epsilon * log_probs.sum(-1)


class NoSign(_Loss):
    def smooth(self, log_probs, right, epsilon):
        return -super().smooth(log_probs, right, epsilon)


class NoSoftmax(_Loss):
    def log_probs(self, logits):
        return logits


class OverPlaces(_Loss):
    def log_probs(self, logits):
        return logits.log_softmax(1)


class TwiceSoftmax(_Loss):
    def log_probs(self, logits):
        return logits.softmax(-1).log_softmax(-1)


class Unstable(_Loss):
    def log_probs(self, logits):
        return (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()


class LogOfSoftmax(_Loss):
    def log_probs(self, logits):
        return logits.softmax(-1).log()


class NoLog(_Loss):
    def log_probs(self, logits):
        return logits.softmax(-1)


class TwoBased(_Loss):
    def log_probs(self, logits):
        return logits.log_softmax(-1) / math.log(2)


class Detaches(_Loss):
    def log_probs(self, logits):
        return torch.tensor(logits.detach().numpy()).log_softmax(-1)


def loss_flat_gather(logits, target, pad_id=0, label_smoothing=0.0):
    return -logits.log_softmax(-1).gather(-1, target)[target != pad_id].mean()


def loss_by_one_hot(logits, target, pad_id=0, label_smoothing=0.0):
    classes = logits.size(-1)
    wanted = F.one_hot(target, classes).to(logits.dtype) * (1 - label_smoothing) + label_smoothing / classes
    real = (target != pad_id).to(logits.dtype)
    return -((wanted * torch.log_softmax(logits, -1)).sum(-1) * real).sum() / real.sum()


def loss_by_logsumexp(logits, target, pad_id=0, label_smoothing=0.0):
    flat, wanted = logits.flatten(0, 1), target.flatten()
    flat, wanted = flat[wanted != pad_id], wanted[wanted != pad_id]
    right = flat[torch.arange(len(wanted)), wanted]
    total = flat.logsumexp(-1) - (1 - label_smoothing) * right - label_smoothing * flat.mean(-1)
    return total.mean()


def loss_by_loops(logits, target, pad_id=0, label_smoothing=0.0):
    terms = []
    for scores, wanted in zip(logits.flatten(0, 1), target.flatten().tolist(), strict=True):
        if wanted == pad_id:
            continue
        shifted = scores - scores.max()
        log_probs = shifted - shifted.exp().sum().log()
        terms.append(-(1 - label_smoothing) * log_probs[wanted] - label_smoothing * log_probs.mean())
    return torch.stack(terms).mean()


def _loss_case(
    draw: Draw, scale: float = 2.0, pad_id: int = 0, kwargs: dict | None = None, wrt=False
) -> Case:
    s = draw.sizes(B=(3, 4), m=(6, 7), V=(9, 12))
    target = padded_ids(draw, s["B"], s["m"], low=0 if pad_id else 1, high=s["V"] - 2, pad_id=pad_id)
    if pad_id:
        target[0, 0], target[1, 1], target[-1, 2] = 0, 0, 0  # a word here
    call: dict = {
        "args": [draw.normal(s["B"], s["m"], s["V"], scale=scale), target],
        "kwargs": kwargs or ({"pad_id": pad_id} if pad_id else {}),
    }
    if wrt:
        call |= {"wrt": ["0"], "cotangents": [draw.normal()]}
    return Case("function", call)


def _plain_loss_cases(draw: Draw) -> list[Case]:
    strided = _loss_case(draw)
    strided.inputs["args"][0] = {"$": "strided", "tensor": strided.inputs["args"][0]}
    return [_loss_case(draw), strided]


def _smooth_cases(draw: Draw) -> list[Case]:
    return [_loss_case(draw, kwargs={"label_smoothing": epsilon}) for epsilon in (0.1, 0.3, 0.2)]


def _other_pad_loss_cases(draw: Draw) -> list[Case]:
    return [_loss_case(draw, pad_id=pad_id) for pad_id in (draw.size(3, 4), draw.size(5, 6))]


def _large_cases(draw: Draw) -> list[Case]:
    return [_loss_case(draw, scale=300.0, kwargs={"label_smoothing": 0.1})]


def _loss_gradient_cases(draw: Draw) -> list[Case]:
    return [_loss_case(draw, kwargs={"label_smoothing": 0.1}, wrt=True)]


_LOSS_SAID = {"out": "the loss", "grad.0": "the gradient of the logits"}
_BY_HAND = (
    "This one is by hand: take log_softmax, pick the right entries and average, without the ready-made loss."
)

LOSS = Exercise(
    id="8.3",
    symbol="sequence_loss",
    kind="function",
    parameters=("logits", "target", "pad_id", "label_smoothing"),
    points=5,
    todos=("8.3",),
    forbidden=dict.fromkeys(
        ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss", "kl_div", "KLDivLoss"), _BY_HAND
    ),
    rows=(
        Row(
            "mean over real tokens",
            "without smoothing: −log p of the right token, the mean over real tokens",
            _plain_loss_cases,
            looks=("out",),
            weight=3,
            spoken=_LOSS_SAID,
        ),
        Row(
            "smoothing",
            "label_smoothing ε: ε/V to every class, 1 − ε more to the right one",
            _smooth_cases,
            looks=("out",),
            weight=2,
            spoken=_LOSS_SAID,
        ),
        Row(
            "other pad_id",
            "any pad_id, and id 0 is a word then",
            _other_pad_loss_cases,
            looks=("out",),
            needs=("mean over real tokens",),
            spoken=_LOSS_SAID,
        ),
        Row(
            "large logits",
            "logits of several hundreds give a finite loss",
            _large_cases,
            looks=("out",),
            needs=("mean over real tokens", "smoothing"),
            spoken=_LOSS_SAID,
        ),
        Row(
            "gradient",
            "the gradient reaches the logits, and is zero at padding",
            _loss_gradient_cases,
            looks=("grad.0",),
            needs=("mean over real tokens", "smoothing"),
            spoken=_LOSS_SAID,
        ),
        Row(
            "inputs kept",
            "logits and target are left unchanged",
            _plain_loss_cases,
            looks=("changed",),
            needs=("mean over real tokens",),
        ),
    ),
    reference=reference_loss,
    misconceptions=(
        Wrong(
            "padding counted",
            "The mean runs over all places, padding included. Short sentences would teach the model to write <pad>. Keep real tokens only.",
            _loss(CountsPadding),
        ),
        Wrong(
            "divided by all places",
            "The padding's losses are zero, but you still divide by all B·m places. Divide by the number of real tokens.",
            _loss(DividesByAll),
        ),
        Wrong("sum", "This is the sum over real tokens; the mean was meant.", _loss(Sums)),
        Wrong(
            "mean of means",
            "You averaged within each sentence and then over sentences, so a token of a short sentence counts more. "
            "All real tokens of the batch count alike.",
            _loss(PerSentence),
        ),
        Wrong(
            "divided by the batch",
            "You divided by the number of sentences. Divide by the number of real tokens.",
            _loss(DividesByBatch),
        ),
        Wrong("pad is always 0", "pad_id is not used: 0 is always taken for padding.", _loss(PadAlwaysZero)),
        Wrong(
            "only padding",
            "You kept the padding and dropped the words: target != pad_id was meant.",
            _loss(OnlyPadding),
        ),
        Wrong("no smoothing", "label_smoothing is not used.", _loss(NoSmoothing)),
        Wrong(
            "smoothing over the others",
            "You shared ε among the V − 1 wrong classes. Here, as in torch, every class gets ε/V, the right one too: it ends with 1 − ε + ε/V.",
            _loss(SmoothOthers),
        ),
        Wrong(
            "right class left out",
            "Your smoothed targets sum to less than 1: the right class needs its own ε/V on top of 1 − ε.",
            _loss(SmoothNotToRight),
        ),
        Wrong(
            "more than 1",
            "Your smoothed targets sum to 1 + ε: what is given to all classes must be taken from the right one, which keeps 1 − ε.",
            _loss(SmoothNotTaken),
        ),
        Wrong(
            "ε to every class",
            "You gave ε to each class. They share it: each gets ε/V, so take the mean of the log-probabilities, not their sum.",
            _loss(SmoothSum),
        ),
        Wrong(
            "no minus", "The sign is missing: log-probabilities are negative, a loss is not.", _loss(NoSign)
        ),
        Wrong(
            "no softmax",
            "The logits are used as if they were log-probabilities. Take log_softmax first.",
            _loss(NoSoftmax),
        ),
        Wrong(
            "softmax over places",
            "log_softmax runs over the places (dim 1). The words of the vocabulary compete: the last axis.",
            _loss(OverPlaces),
        ),
        Wrong(
            "softmax twice",
            "You took softmax and then log_softmax of it. log_softmax contains the softmax already.",
            _loss(TwiceSoftmax),
        ),
        Wrong(
            "exp overflows",
            "exp of a large logit is infinite, and infinite / infinite is NaN. log_softmax subtracts the largest logit first.",
            _loss(Unstable),
        ),
        Wrong(
            "log of softmax",
            "softmax rounds a small probability to 0, and log 0 is −∞. log_softmax never leaves the logarithm: use it.",
            _loss(LogOfSoftmax),
        ),
        Wrong("no logarithm", "The loss is −log p; you took −p.", _loss(NoLog)),
        Wrong("bits", "This is in bits (log to base 2). The natural logarithm was meant.", _loss(TwoBased)),
        Wrong(
            "gather needs an axis",
            "gather wants an index with as many axes as the logits have: target[..., None] is [B, m, 1].",
            loss_flat_gather,
        ),
        Wrong(
            "graph cut",
            "The value is right, but no gradient reaches the logits: they were detached or passed through numpy or .item().",
            _loss(Detaches),
        ),
    ),
    alternatives={"one-hot targets": loss_by_one_hot, "logsumexp": loss_by_logsumexp, "loops": loss_by_loops},
    hints={
        "8.3": (
            "For one place: what probability did the model give to the right token, and what is minus its logarithm?",
            "logits → log-probabilities [B, m, V] → those of the right tokens [B, m] (gather with target[..., None]); their mean over V is [B, m] too.",
            "lp = log_softmax over V; right = lp gathered at target; loss = −(1 − ε)·right − ε·(mean of lp over V); "
            "return the mean of loss where target is not pad_id",
        )
    },
)


# ---- 8.4 Transformer --------------------------------------------------------------------------------


class _EncoderNames(nn.Module):
    """An encoder's parameters by the contract's names."""

    def __init__(self, d_model, h, d_ff, n_layers, norm):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(n_layers):
            layer = nn.Module()
            layer.attn, layer.ffn = projections(d_model), two_linears(d_model, d_ff)
            layer.norm1, layer.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
            self.layers.append(layer)
        if norm == "pre":
            self.norm = nn.LayerNorm(d_model)


class ReferenceTransformer(nn.Module):
    """torch.nn.TransformerEncoder and TransformerDecoder around numpy's sines."""

    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        super().__init__()
        self.src_emb = nn.ModuleDict({"emb": nn.Embedding(src_vocab, d_model)})
        self.tgt_emb = nn.ModuleDict({"emb": nn.Embedding(tgt_vocab, d_model)})
        self.encoder = _EncoderNames(d_model, h, d_ff, N, norm)
        self.decoder = ReferenceDecoder(d_model, h, d_ff, N, norm)
        self.output = nn.ModuleDict({"proj": nn.Linear(d_model, tgt_vocab, bias=False)})
        self.output["proj"].weight = self.tgt_emb["emb"].weight
        layer = nn.TransformerEncoderLayer(
            d_model, h, d_ff, dropout=0.0, batch_first=True, norm_first=norm == "pre"
        )
        final = nn.LayerNorm(d_model) if norm == "pre" else None
        self._encoder = [nn.TransformerEncoder(layer, N, final, enable_nested_tensor=False).eval()]
        self._dropout = dropout

    def place(self, table, ids):
        d, n = table.size(1), ids.size(1)
        wave = np.exp(1j * np.outer(np.arange(n), np.power(10000.0, -np.arange(0, d, 2) / d)))
        codes = np.stack([wave.imag, wave.real], axis=-1).reshape(n, d)
        x = F.embedding(ids, table) * math.sqrt(d) + torch.tensor(codes, dtype=table.dtype)
        return F.dropout(x, self._dropout, self.training)

    def encode(self, src):
        x = self.place(self.src_emb["emb"].weight, src)
        mask = {"src_key_padding_mask": src == 0}
        return functional_call(self._encoder[0], torch_state(self.encoder), (x,), mask)

    def decode(self, tgt_in, memory, src):
        x = self.place(self.tgt_emb["emb"].weight, tgt_in)
        return self.decoder(x, memory, both(tgt_in), padding(src)) @ self.tgt_emb["emb"].weight.T

    def forward(self, src, tgt_in):
        return self.decode(tgt_in, self.encode(src), src)


class ModelVariant(nn.Module):
    """The usual code with every step in a method of its own, so that a mistake changes one step."""

    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        super().__init__()
        self.src_emb, self.tgt_emb = TokenEmbedding(src_vocab, d_model), TokenEmbedding(tgt_vocab, d_model)
        self.pos = PositionalEncoding(d_model, max_len)
        self.dropout = nn.Dropout(dropout)
        self.encoder, self.decoder = self.halves(d_model, h, d_ff, N, norm)
        self.output = OutputLayer(d_model, tgt_vocab)
        self.tie()

    def halves(self, *sizes):
        return Encoder(*sizes), Decoder(*sizes)

    def tie(self):
        self.output.proj.weight = self.tgt_emb.emb.weight

    def embed(self, embedding, ids):
        return embedding(ids)

    def place(self, embedding, ids):
        return self.dropout(self.pos(self.embed(embedding, ids)))

    def source_mask(self, src, of="encoder"):
        return padding(src)

    def target_mask(self, tgt_in):
        return both(tgt_in)

    def encode(self, src):
        return self.encoder(self.place(self.src_emb, src), self.source_mask(src))

    def decode(self, tgt_in, memory, src):
        x = self.place(self.tgt_emb, tgt_in)
        return self.output(
            self.decoder(x, memory, self.target_mask(tgt_in), self.source_mask(src, "decoder"))
        )

    def forward(self, src, tgt_in):
        return self.decode(tgt_in, self.encode(src), src)


class NoCausal(ModelVariant):
    def target_mask(self, tgt_in):
        return padding(tgt_in)


class NoTargetPadding(ModelVariant):
    def target_mask(self, tgt_in):
        return causal(tgt_in.size(1))


class NoTargetMask(ModelVariant):
    def target_mask(self, tgt_in):
        return None


class ExcludesSelf(ModelVariant):
    """Strictly earlier tokens only; the first token, which would see nothing, keeps itself."""

    def target_mask(self, tgt_in):
        strict = torch.ones(tgt_in.size(1), tgt_in.size(1), dtype=torch.bool).tril(-1)
        strict[0, 0] = True
        return strict[None, None] & padding(tgt_in)


class NoMaskAcross(ModelVariant):
    def source_mask(self, src, of="encoder"):
        return None if of == "decoder" else padding(src)


class NoMaskInEncoder(ModelVariant):
    def source_mask(self, src, of="encoder"):
        return None if of == "encoder" else padding(src)


class NoSourceMask(ModelVariant):
    def source_mask(self, src, of="encoder"):
        return None


class CausalEncoder(ModelVariant):
    def source_mask(self, src, of="encoder"):
        return both(src) if of == "encoder" else padding(src)


class TargetMaskAcross(ModelVariant):
    def decode(self, tgt_in, memory, src):
        x = self.place(self.tgt_emb, tgt_in)
        return self.output(self.decoder(x, memory, both(tgt_in), padding(tgt_in)))


class MasksSwapped(ModelVariant):
    def decode(self, tgt_in, memory, src):
        x = self.place(self.tgt_emb, tgt_in)
        return self.output(self.decoder(x, memory, padding(src), both(tgt_in)))


class NoPositions(ModelVariant):
    def place(self, embedding, ids):
        return self.dropout(self.embed(embedding, ids))


class NoTargetPositions(ModelVariant):
    def place(self, embedding, ids):
        return super().place(embedding, ids) if embedding is self.src_emb else self.embed(embedding, ids)


class NoSourcePositions(ModelVariant):
    def place(self, embedding, ids):
        return super().place(embedding, ids) if embedding is self.tgt_emb else self.embed(embedding, ids)


class PositionsTwice(ModelVariant):
    def place(self, embedding, ids):
        return self.pos(super().place(embedding, ids))


class NoRoot(ModelVariant):
    def embed(self, embedding, ids):
        return embedding.emb(ids)


class RootTwice(ModelVariant):
    def embed(self, embedding, ids):
        return embedding(ids) * math.sqrt(embedding.emb.embedding_dim)


class Shifts(ModelVariant):
    def forward(self, src, tgt_in):
        first = torch.ones_like(tgt_in[:, :1])
        return super().forward(src, torch.cat([first, tgt_in[:, :-1]], dim=1))


class ShiftsLeft(ModelVariant):
    def forward(self, src, tgt_in):
        return super().forward(src, tgt_in[:, :-1])


class Probabilities(ModelVariant):
    def decode(self, tgt_in, memory, src):
        return super().decode(tgt_in, memory, src).softmax(-1)


class LogProbabilities(ModelVariant):
    def decode(self, tgt_in, memory, src):
        return super().decode(tgt_in, memory, src).log_softmax(-1)


class LastPlace(ModelVariant):
    def decode(self, tgt_in, memory, src):
        return super().decode(tgt_in, memory, src)[:, -1]


class HiddenStates(ModelVariant):
    def decode(self, tgt_in, memory, src):
        return self.decoder(self.place(self.tgt_emb, tgt_in), memory, both(tgt_in), padding(src))


class OutputInForward(ModelVariant):
    """decode stops before the output layer, forward applies it."""

    def decode(self, tgt_in, memory, src):
        return self.decoder(self.place(self.tgt_emb, tgt_in), memory, both(tgt_in), padding(src))

    def forward(self, src, tgt_in):
        return self.output(super().forward(src, tgt_in))


class EncodesAgain(ModelVariant):
    def decode(self, tgt_in, memory, src):
        return super().decode(tgt_in, self.encode(src), src)


class NoEncoder(ModelVariant):
    def encode(self, src):
        return self.place(self.src_emb, src)


class MemoryFirst(ModelVariant):
    def decode(self, tgt_in, memory, src):
        x = self.place(self.tgt_emb, tgt_in)
        return self.output(self.decoder(memory, x, padding(src), both(tgt_in)))


class NotTied(ModelVariant):
    def tie(self):
        pass


class TiedToSource(ModelVariant):
    def tie(self):
        self.output.proj.weight = self.src_emb.emb.weight


class NormUnused(ModelVariant):
    def halves(self, d_model, h, d_ff, n_layers, norm):
        return super().halves(d_model, h, d_ff, n_layers, "post")


class OneLayer(ModelVariant):
    def halves(self, d_model, h, d_ff, n_layers, norm):
        return super().halves(d_model, h, d_ff, 1, norm)


class NoDropout(ModelVariant):
    def place(self, embedding, ids):
        return self.pos(self.embed(embedding, ids))


class DropoutAlways(ModelVariant):
    def place(self, embedding, ids):
        return F.dropout(self.pos(self.embed(embedding, ids)), self.dropout.p, training=True)


class OwnMasks(ModelVariant):
    """Masks by comparison, dropout before nothing else, everything in one method."""

    def encode(self, src):
        real = src.ne(0)
        return self.encoder(self.dropout(self.pos(self.src_emb(src))), mask=real[:, None, None])

    def decode(self, tgt_in, memory, src):
        place = torch.arange(tgt_in.size(1))
        allowed = (place[:, None] >= place) & (tgt_in != 0)[:, None, None, :]
        x = self.decoder(
            self.dropout(self.pos(self.tgt_emb(tgt_in))),
            memory,
            tgt_mask=allowed,
            memory_mask=(src != 0)[:, None, None],
        )
        return F.linear(x, self.tgt_emb.emb.weight)


class TiedBackward(ModelVariant):
    """The embedding takes the output layer's matrix; the projection is written as a product."""

    def tie(self):
        self.tgt_emb.emb.weight = self.output.proj.weight

    def forward(self, src, tgt_in):
        memory = self.encode(src)
        return self.decode(tgt_in, memory, src)


class OutputFirst(nn.Module):
    """Parts made in another order, so that the shared tensor has its other name first."""

    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        super().__init__()
        self.output = OutputLayer(d_model, tgt_vocab)
        self.decoder = Decoder(d_model, h, d_ff, N, norm=norm)
        self.encoder = Encoder(d_model, h, d_ff, N, norm=norm)
        self.tgt_emb, self.src_emb = TokenEmbedding(tgt_vocab, d_model), TokenEmbedding(src_vocab, d_model)
        self.tgt_emb.emb.weight = self.output.proj.weight
        self.pos, self.drop = PositionalEncoding(d_model, max_len), nn.Dropout(dropout)

    def encode(self, src):
        return self.encoder(self.drop(self.pos(self.src_emb(src))), padding(src))

    def decode(self, tgt_in, memory, src):
        x = self.drop(self.pos(self.tgt_emb(tgt_in)))
        return self.output(self.decoder(x, memory, both(tgt_in), padding(src)))

    def forward(self, src, tgt_in):
        return self.decode(tgt_in, self.encode(src), src)


TIED = {"output.proj.weight": "tgt_emb.emb.weight"}


def _model_case(
    draw: Draw, norm: str = "post", padded: bool = True, method: str | None = None, wrt: bool = False
) -> Case:
    s = draw.sizes(h=[2, 4], B=(2, 3), m=(5, 6), n=(7, 9), d=[8, 12], d_ff=(10, 15), S=(17, 20), T=(21, 24))
    n_layers = 2 if norm == "post" else 1
    make = {
        "args": [s["S"], s["T"]],
        "kwargs": {
            "d_model": s["d"],
            "h": s["h"],
            "d_ff": s["d_ff"],
            "N": n_layers,
            "max_len": 16,
            "dropout": 0.0,
            "norm": norm,
        },
    }
    if norm == "post":
        del make["kwargs"]["norm"]
    src, tgt_in = draw.integers(3, s["S"] - 1, s["B"], s["n"]), draw.integers(3, s["T"] - 1, s["B"], s["m"])
    if padded:
        src = padded_ids(draw, s["B"], s["n"], high=s["S"] - 1).flip(0)  # the first source has no padding
        tgt_in = padded_ids(draw, s["B"], s["m"], high=s["T"] - 1)  # the last target has none
    args = {
        None: [src, tgt_in],
        "encode": [src],
        "decode": [tgt_in, draw.normal(s["B"], s["n"], s["d"]), src],
    }[method]
    call: dict = {"args": args}
    if wrt:
        call |= {"wrt": ["weights"], "cotangents": [draw.normal(s["B"], s["m"], s["T"])]}
    inputs = {"make": make, "tied": TIED, "call": call} | ({"method": method} if method else {})
    skeleton = ReferenceTransformer(*make["args"], **make["kwargs"])
    return Case("composite", inputs | {"weights": draw.weights(skeleton)})


def _dropout_cases(draw: Draw) -> list[Case]:
    s = draw.sizes(B=(2, 3), m=(5, 6), n=(7, 9))
    make = {"args": [19, 23], "kwargs": {"d_model": 8, "h": 2, "d_ff": 12, "N": 1, "dropout": 0.5}}
    args = [draw.integers(3, 18, s["B"], s["n"]), draw.integers(3, 22, s["B"], s["m"])]
    return [Case("dropout", {"make": make, "args": args})]


_MODEL_SAID = {
    "out": "the output",
    f"tied.{next(iter(TIED))}": "whether output.proj.weight is tgt_emb.emb.weight",
    "grad.src_emb.emb.weight": "the gradient of the source embedding",
    "grad.tgt_emb.emb.weight": "the gradient of the target embedding",
    "eval repeats": "whether two runs of model.eval() agree",
    "train repeats": "whether two runs of model.train() with dropout=0.5 agree",
    **{
        f"default.{name}": f"the default of {name}"
        for name in ("d_model", "h", "d_ff", "N", "max_len", "dropout", "norm")
    },
}

MODEL = Exercise(
    id="8.4",
    symbol="Transformer",
    kind="module class",
    parameters=("src_vocab", "tgt_vocab", "d_model", "h", "d_ff", "N", "max_len", "dropout", "norm"),
    points=10,
    todos=("8.4",),
    rows=(
        Row(
            "logits",
            "forward(src, tgt_in) gives logits [B, m, V], without padding",
            lambda draw: [_model_case(draw, padded=False)],
            looks=("out",),
            weight=3,
            spoken=_MODEL_SAID,
        ),
        Row(
            "padding",
            "padding in source and target is masked",
            lambda draw: [_model_case(draw)],
            looks=("out",),
            weight=3,
            spoken=_MODEL_SAID,
        ),
        Row(
            "encode",
            "encode(src) gives the memory [B, n, d]",
            lambda draw: [_model_case(draw, method="encode")],
            looks=("out",),
            spoken=_MODEL_SAID,
        ),
        Row(
            "decode",
            "decode(tgt_in, memory, src) gives logits from the memory it is handed",
            lambda draw: [_model_case(draw, method="decode")],
            looks=("out",),
            spoken=_MODEL_SAID,
        ),
        Row(
            "pre-norm",
            'norm="pre" reaches both halves',
            lambda draw: [_model_case(draw, norm="pre")],
            looks=("out",),
            spoken=_MODEL_SAID,
        ),
        Row(
            "tied",
            "the target embedding and the output layer are one parameter",
            lambda draw: [_model_case(draw)],
            looks=("tied.*",),
            needs=("logits",),
            spoken=_MODEL_SAID,
        ),
        Row(
            "dropout",
            "dropout acts in training and rests in evaluation",
            _dropout_cases,
            looks=("eval repeats", "train repeats"),
            needs=("logits",),
            spoken=_MODEL_SAID,
        ),
        Row(
            "defaults",
            "the defaults are the paper's: d = 512, h = 8, d_ff = 2048, N = 6, dropout = 0.1, Post-LN",
            lambda draw: [Case("defaults", {})],
            looks=("default.*",),
            needs=("logits",),
            spoken=_MODEL_SAID,
        ),
        Row(
            "gradient",
            "the gradient reaches both embeddings",
            lambda draw: [_model_case(draw, wrt=True)],
            looks=("grad.src_emb.emb.weight", "grad.tgt_emb.emb.weight"),
            needs=("logits", "padding", "tied"),
            spoken=_MODEL_SAID,
        ),
    ),
    reference=ReferenceTransformer,
    misconceptions=(
        Wrong(
            "no causal mask",
            "The decoder's self-attention masks padding only, so every place sees the token it should predict. Use target_mask.",
            NoCausal,
        ),
        Wrong(
            "target padding seen",
            "The decoder's self-attention is causal, but it looks at the target's padding. Use target_mask(tgt_in), which masks both.",
            NoTargetPadding,
        ),
        Wrong("no target mask", "The decoder is given no target mask at all.", NoTargetMask),
        Wrong(
            "mask excludes self",
            "In your target mask a token may not look at itself. The input is shifted already: the diagonal stays allowed.",
            ExcludesSelf,
        ),
        Wrong(
            "no mask across",
            "The decoder is not told where the source's padding is, so its cross-attention reads it. Pass padding_mask(src) as memory_mask.",
            NoMaskAcross,
        ),
        Wrong(
            "no mask in the encoder",
            "The encoder is given no mask, so real tokens look at padding. Pass padding_mask(src).",
            NoMaskInEncoder,
        ),
        Wrong(
            "no source mask",
            "The source's padding is masked nowhere: both the encoder and the cross-attention need padding_mask(src).",
            NoSourceMask,
        ),
        Wrong(
            "causal encoder",
            "The encoder is causal here. The source is given whole, so its tokens may look both ways: only padding is masked.",
            CausalEncoder,
        ),
        Wrong(
            "target's mask across",
            "The cross-attention got the target's padding. Its keys are source tokens: the mask comes from src.",
            TargetMaskAcross,
        ),
        Wrong(
            "masks swapped",
            "The decoder got its two masks in the wrong order: first the target's, then the source's.",
            MasksSwapped,
        ),
        Wrong(
            "no positions",
            "No positions are added: the model could not tell 'dog bites man' from 'man bites dog'.",
            NoPositions,
        ),
        Wrong("no target positions", "The target gets no positions.", NoTargetPositions),
        Wrong("no source positions", "The source gets no positions.", NoSourcePositions),
        Wrong("positions twice", "The positions are added twice.", PositionsTwice),
        Wrong(
            "no √d",
            "The embeddings are not multiplied by √d. TokenEmbedding does it: call src_emb(src), not src_emb.emb(src).",
            NoRoot,
        ),
        Wrong(
            "√d twice",
            "The embeddings are multiplied by √d twice. TokenEmbedding has done it already.",
            RootTwice,
        ),
        Wrong(
            "shifts again",
            "forward shifts tgt_in to the right, but it comes shifted. Place i would then be given token i − 2.",
            Shifts,
        ),
        Wrong(
            "drops the last",
            "forward drops the last token of tgt_in. tgt_in is ready as it comes: m tokens in, m predictions out.",
            ShiftsLeft,
        ),
        Wrong(
            "probabilities",
            "These are probabilities. Return logits: the loss takes the softmax itself.",
            Probabilities,
        ),
        Wrong(
            "log-probabilities",
            "These are log-probabilities. Return the logits as they are.",
            LogProbabilities,
        ),
        Wrong(
            "last place only",
            "Only the last place's logits come back. Training needs all m of them; whoever writes a sentence picks the last.",
            LastPlace,
        ),
        Wrong(
            "no output layer",
            "The decoder's rows [B, m, d] come back. Pass them through the output layer.",
            HiddenStates,
        ),
        Wrong(
            "output in forward",
            "forward is right, but decode returns rows of width d. decode ends in the output layer: sentences are written with it alone.",
            OutputInForward,
        ),
        Wrong(
            "encodes again",
            "decode ignores the memory it is handed and encodes the source again. Then each written token would pay for the encoder once more.",
            EncodesAgain,
        ),
        Wrong("no encoder", "encode returns the embedded source. Pass it through the encoder.", NoEncoder),
        Wrong(
            "memory first",
            "The decoder's first argument is the target, its second the memory. Yours are swapped.",
            MemoryFirst,
        ),
        Wrong(
            "not tied",
            "The target embedding and the output layer are two tensors. Call tie_weights(self.tgt_emb, self.output) in __init__.",
            NotTied,
        ),
        Wrong(
            "tied to the source",
            "The output layer shares its matrix with the source embedding. It scores target words: tie it to tgt_emb.",
            TiedToSource,
        ),
        Wrong("norm unused", "norm is not passed to the encoder and the decoder.", NormUnused),
        Wrong("N unused", "N is not passed on: each half has one layer.", OneLayer),
        Wrong(
            "no dropout",
            "dropout is never applied. It acts on the sum of embedding and positions.",
            NoDropout,
        ),
        Wrong(
            "dropout always",
            "Dropout also acts in evaluation, so two runs disagree. Use an nn.Dropout module, which knows model.eval().",
            DropoutAlways,
        ),
    ),
    alternatives={
        "steps in methods": ModelVariant,
        "own masks": OwnMasks,
        "tied the other way": TiedBackward,
        "output first": OutputFirst,
    },
    hints={
        "8.4": (
            "Follow a source sentence from its ids to the memory, then a target sentence to the logits. Which parts does each pass, in which order?",
            "src [B, n] → src_emb, pos, dropout [B, n, d] → encoder → memory [B, n, d]. tgt_in [B, m] → tgt_emb, pos, dropout [B, m, d] "
            "→ decoder with memory → output → [B, m, V].",
            "encode: x = dropout(pos(src_emb(src))), then the encoder with the source's padding mask. decode: the same with tgt_emb, then the decoder "
            "with memory, the target mask and the source's padding mask, then output. forward: decode what encode gives.",
        )
    },
)


# ---- 8.5 greedy -------------------------------------------------------------------------------------


def reference_greedy(next_log_probs, bos_id, eos_id, max_len):
    def go_on(prefix):
        token = int(np.argmax(next_log_probs(prefix).numpy()))
        done = token == eos_id or len(prefix) == max_len
        return [token] if done else [token, *go_on([*prefix, token])]

    return go_on([bos_id]) if max_len > 0 else []


def _write(next_log_probs, bos_id, eos_id, max_len, choose=None, seen=None):
    """The usual loop; `choose` picks a token, `seen` says which prefix is passed."""
    tokens = []
    while len(tokens) < max_len:
        prefix = [bos_id, *tokens]
        token = (choose or torch.argmax)(next_log_probs(seen(prefix) if seen else prefix)).item()
        tokens.append(token)
        if token == eos_id:
            break
    return tokens


def greedy_keeps_bos(next_log_probs, bos_id, eos_id, max_len):
    return [bos_id, *_write(next_log_probs, bos_id, eos_id, max_len)]


def greedy_drops_eos(next_log_probs, bos_id, eos_id, max_len):
    return [token for token in _write(next_log_probs, bos_id, eos_id, max_len) if token != eos_id]


def greedy_never_stops(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, None, max_len)


def greedy_counts_bos(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, eos_id, max_len - 1)


def greedy_one_more(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, eos_id, max_len + 1)


def greedy_last_only(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, eos_id, max_len, seen=lambda prefix: prefix[-1:])


def greedy_forgets(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, eos_id, max_len, seen=lambda p: [p[0], p[-1]] if len(p) > 1 else p)


def greedy_no_bos(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, eos_id, max_len, seen=lambda prefix: prefix[1:])


def greedy_least(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, eos_id, max_len, choose=torch.argmin)


def greedy_samples(next_log_probs, bos_id, eos_id, max_len):
    return _write(
        next_log_probs, bos_id, eos_id, max_len, choose=lambda lp: torch.multinomial(lp.exp(), 1)[0]
    )


def greedy_eos_two(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, bos_id, 2, max_len)


def greedy_bos_one(next_log_probs, bos_id, eos_id, max_len):
    return _write(next_log_probs, 1, eos_id, max_len)


def greedy_tensors(next_log_probs, bos_id, eos_id, max_len):
    prefix = [bos_id]
    while len(prefix) <= max_len and prefix[-1] != eos_id:
        prefix.append(next_log_probs(prefix).argmax())
    return prefix[1:]


def greedy_returns_tensor(next_log_probs, bos_id, eos_id, max_len):
    return torch.tensor(_write(next_log_probs, bos_id, eos_id, max_len))


def greedy_for(next_log_probs, bos_id, eos_id, max_len):
    prefix = [bos_id]
    for _ in range(max_len):
        prefix.append(int(next_log_probs(prefix).topk(1).indices))
        if prefix[-1] == eos_id:
            return prefix[1:]
    return prefix[1:]


def greedy_by_lists(next_log_probs, bos_id, eos_id, max_len):
    written = []
    while len(written) < max_len and eos_id not in written:
        scores = next_log_probs([bos_id] + written).tolist()  # noqa: RUF005
        written = written + [scores.index(max(scores))]  # noqa: RUF005
    return written


def _scores(draw: Draw, vocabulary: int, eos_id: int, ending: float) -> torch.Tensor:
    """Scores [L, V, V] by which next tokens depend on the whole prefix; `ending` favours eos more and more."""
    scores = draw.normal(8, vocabulary, vocabulary, scale=1.0)
    scores[:, :, eos_id] += ending
    return scores


def _writing_case(draw: Draw, ending: float = 0.4, **more: Any) -> Case:
    vocabulary = draw.size(6, 7)
    bos_id, eos_id = (int(i) for i in draw.rng.permutation(np.arange(vocabulary))[:2])
    model = {
        "$": "scores of next tokens",
        "scores": _scores(draw, vocabulary, eos_id, ending),
        "bos_id": bos_id,
    }
    max_len = more.pop("max_len", None) or draw.size(4, 6)
    return Case("function", {"args": [model, bos_id, eos_id], "kwargs": more | {"max_len": max_len}})


GREEDY_WRONG = (
    Wrong("keeps bos", "Your result begins with bos_id. Return the generated tokens only.", greedy_keeps_bos),
    Wrong(
        "drops eos",
        "eos_id is missing at the end. It was generated too: whoever reads the result can then tell a finished sentence from one that was cut off.",
        greedy_drops_eos,
    ),
    Wrong("never stops", "It goes on after eos_id. The sentence ends there.", greedy_never_stops),
    Wrong(
        "counts bos",
        "It stops one token early. max_len counts generated tokens; bos_id is not one of them.",
        greedy_counts_bos,
    ),
    Wrong("one too many", "It writes one token more than max_len.", greedy_one_more),
    Wrong(
        "only the last token",
        "next_log_probs was given the last token alone. A decoder is not an RNN: it keeps no state, so hand it the whole prefix every time.",
        greedy_last_only,
    ),
    Wrong(
        "forgets the middle",
        "The prefix is rebuilt from bos_id and the last token only; what stood between is lost. Append to one list.",
        greedy_forgets,
    ),
    Wrong(
        "prefix without bos",
        "next_log_probs was given the generated tokens only. The prefix begins with bos_id.",
        greedy_no_bos,
    ),
    Wrong(
        "least likely",
        "You took the least likely token: argmax, or the first when sorted from large to small.",
        greedy_least,
    ),
    Wrong(
        "samples", "You drew a token at random. Greedy takes the likeliest, always the same.", greedy_samples
    ),
    Wrong("eos is always 2", "eos_id is not used: the loop stops at 2.", greedy_eos_two),
    Wrong("bos is always 1", "bos_id is not used: the prefix begins with 1.", greedy_bos_one),
    Wrong(
        "tensors in the list",
        "The list holds tensors. Make whole numbers of them, with .item() or int(...).",
        greedy_tensors,
    ),
    Wrong(
        "returns a tensor",
        "The result is a tensor; a list of whole numbers was meant.",
        greedy_returns_tensor,
    ),
)


def _symbols(reference: Any, wrongs: tuple[Wrong, ...]) -> dict[str, Any]:
    return {"": reference} | {wrong.name: wrong.symbol for wrong in wrongs}


def _greedy_cases(draw: Draw) -> list[Case]:
    return telling(draw, _writing_case, _symbols(reference_greedy, GREEDY_WRONG))


def _cut_cases(draw: Draw) -> list[Case]:
    return [_writing_case(draw, ending=-3.0, max_len=k) for k in (1, 3)]


GREEDY = Exercise(
    id="8.5",
    symbol="greedy",
    kind="function",
    parameters=("next_log_probs", "bos_id", "eos_id", "max_len"),
    points=4,
    todos=("8.5",),
    rows=(
        Row(
            "likeliest",
            "the likeliest next token each time, until eos_id, which is included",
            _greedy_cases,
            looks=("out",),
            weight=3,
        ),
        Row(
            "max_len",
            "at most max_len tokens when eos_id does not come",
            _cut_cases,
            looks=("out",),
            weight=1,
        ),
    ),
    reference=reference_greedy,
    misconceptions=GREEDY_WRONG,
    alternatives={"for loop": greedy_for, "lists": greedy_by_lists, "while loop": _write},
    hints={
        "8.5": (
            "You hold the tokens written so far. What do you ask the model, and what do you do with the answer?",
            "prefix: a list that begins with bos_id. next_log_probs(prefix) is [V]; its argmax is one token.",
            "repeat at most max_len times: token = the argmax for the prefix, as a whole number; append it to the prefix; stop if it is eos_id. "
            "Return the prefix without its first element",
        )
    },
)


# ---- 8.6 sampling_probs -----------------------------------------------------------------------------


def reference_sampling(logits, temperature=1.0, top_k=None, top_p=None):
    """By sets, in numpy: which tokens stay, then one softmax over those that do."""
    scores = logits.double().numpy()
    order = np.argsort(-scores, kind="stable")
    if temperature == 0:
        kept, temperature = order[:1], 1.0
    else:
        kept = order[: top_k if top_k is not None else None]
    weights = np.exp((scores - scores.max()) / temperature)
    if top_p is not None:
        mass = np.cumsum(weights[kept]) / weights[kept].sum()
        kept = kept[: int(np.searchsorted(mass, top_p - 1e-12)) + 1]
    probs = np.zeros_like(weights)
    probs[kept] = weights[kept] / weights[kept].sum()
    return torch.tensor(probs, dtype=logits.dtype)


class _Sampler:
    """The usual code with every step in a method of its own."""

    def heat(self, logits, temperature):
        return logits / temperature

    def cold(self, logits):
        return F.one_hot(logits.argmax(), logits.numel()).to(logits.dtype)

    def keep_k(self, logits, k):
        kept = logits.topk(min(k, logits.numel())).indices
        return torch.full_like(logits, -math.inf).index_copy(0, kept, logits[kept])

    def inside(self, ranked, p):
        """Which of the probabilities, from large to small, stay."""
        return ranked.cumsum(0) - ranked < p

    def keep_p(self, logits, p):
        ranked, order = logits.softmax(-1).sort(descending=True)
        kept = order[self.inside(ranked, p)]
        return torch.full_like(logits, -math.inf).index_copy(0, kept, logits[kept])

    def steps(self):
        return ("heat", "keep_k", "keep_p")

    def finish(self, logits):
        return logits.softmax(-1)

    def of(self, logits, temperature, top_k, top_p):
        if temperature == 0:
            return self.cold(logits)
        values = {"heat": temperature, "keep_k": top_k, "keep_p": top_p}
        for step in self.steps():
            if values[step] is not None:
                logits = getattr(self, step)(logits, values[step])
        return self.finish(logits)


def _sampler(kind: type[_Sampler]):
    def sampling_probs(logits, temperature=1.0, top_k=None, top_p=None):
        return kind().of(logits, temperature, top_k, top_p)

    return sampling_probs


class TimesTemperature(_Sampler):
    def heat(self, logits, temperature):
        return logits * temperature


class NoTemperature(_Sampler):
    def heat(self, logits, temperature):
        return logits


class HeatsProbabilities(_Sampler):
    def heat(self, logits, temperature):
        return logits.softmax(-1) / temperature


class DividesByZero(_Sampler):
    def cold(self, logits):
        return (logits / 0).softmax(-1)


class ColdIndex(_Sampler):
    def cold(self, logits):
        return logits.argmax()


class ColdIsOne(_Sampler):
    def cold(self, logits):
        return logits.softmax(-1)


class FiltersFirst(_Sampler):
    def steps(self):
        return ("keep_k", "keep_p", "heat")


class MassBeforeK(_Sampler):
    def steps(self):
        return ("heat", "keep_p", "keep_k")


class LeavesOutLast(_Sampler):
    """Keeps the largest set whose mass is below p (and one token at least)."""

    def inside(self, ranked, p):
        kept = ranked.cumsum(0) <= p
        kept[0] = True
        return kept


class EmptySet(_Sampler):
    def inside(self, ranked, p):
        return ranked.cumsum(0) <= p


class OneTooMany(_Sampler):
    def inside(self, ranked, p):
        before = ranked.cumsum(0) - ranked
        return torch.cat([torch.tensor([True]), before[:-1] < p])


class Threshold(_Sampler):
    def inside(self, ranked, p):
        kept = ranked >= p
        kept[0] = True
        return kept


class ShareOfBest(_Sampler):
    def inside(self, ranked, p):
        return ranked >= (1 - p) * ranked[0]


class SmallestK(_Sampler):
    def keep_k(self, logits, k):
        return -super().keep_k(-logits, k)

    def finish(self, logits):
        return torch.where(logits.isinf(), -math.inf, logits).softmax(-1)


class OneFewer(_Sampler):
    def keep_k(self, logits, k):
        return super().keep_k(logits, max(k - 1, 1))


class KTooLarge(_Sampler):
    def keep_k(self, logits, k):
        return torch.where(logits >= logits.topk(k).values[-1], logits, -math.inf)


class ZeroLogits(_Sampler):
    def finish(self, logits):
        return logits.masked_fill(logits.isinf(), 0.0).softmax(-1)


class NotRenormalised(_Sampler):
    def of(self, logits, temperature, top_k, top_p):
        probs = super().of(logits, temperature, top_k, top_p)
        return probs if temperature == 0 else (logits / temperature).softmax(-1) * (probs > 0)


class Sorted(_Sampler):
    def finish(self, logits):
        return logits.softmax(-1).sort(descending=True).values


class InPlace(_Sampler):
    def heat(self, logits, temperature):
        logits /= temperature
        return logits


def sampling_by_threshold(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature == 0.0:
        probs = torch.zeros_like(logits)
        probs[logits.argmax()] = 1.0
        return probs
    probs = torch.softmax(logits / temperature, dim=0)
    if top_k is not None and top_k < len(probs):
        probs = torch.where(probs < probs.sort().values[-top_k], torch.zeros_like(probs), probs)
        probs = probs / probs.sum()
    if top_p is not None:
        ranked, order = probs.sort(descending=True)
        keep = ranked.cumsum(0).roll(1)
        keep[0] = 0
        probs = torch.zeros_like(probs).scatter(0, order, torch.where(keep < top_p, ranked, 0 * ranked))
    return probs / probs.sum()


def sampling_by_loop(logits, temperature=1.0, top_k=None, top_p=None):
    ranked = sorted(range(len(logits)), key=lambda i: -logits[i].item())
    if temperature == 0:
        return torch.eye(len(logits), dtype=logits.dtype)[ranked[0]]
    kept = ranked[:top_k] if top_k else ranked
    probs = torch.softmax(logits[kept] / temperature, dim=-1)
    if top_p is not None:
        mass, count = 0.0, 0
        while mass < top_p and count < len(kept):
            mass += probs[count].item()
            count += 1
        kept, probs = kept[:count], probs[:count] / probs[:count].sum()
    return torch.zeros_like(logits).index_add(0, torch.tensor(kept), probs)


def _sampling_case(draw: Draw, **options: Any) -> Case:
    """Logits [V] without near ties, and p well away from every sum that could be compared with it."""
    while True:
        logits = draw.normal(draw.size(8, 11), scale=1.5)
        top_p = options.get("top_p") or 0.5
        ranked = logits.sort(descending=True).values
        sums = [
            (part / t).softmax(-1).cumsum(0)
            for t in (1.0, options.get("temperature") or 1.0)
            for part in (ranked, ranked[: options.get("top_k") or len(ranked)])
        ]
        if (-ranked.diff()).min() > 0.02 and all(((s[:-1] - top_p).abs() > 0.01).all() for s in sums):
            return Case("function", {"args": [logits], "kwargs": options})


def _all_three(draw: Draw) -> Case:
    return _sampling_case(
        draw, temperature=draw.choice([0.6, 1.6]), top_k=draw.size(3, 5), top_p=draw.choice([0.6, 0.75])
    )


def _order_cases(draw: Draw) -> list[Case]:
    kinds = (_Sampler, FiltersFirst, MassBeforeK)
    return telling(draw, _all_three, {kind.__name__: _sampler(kind) for kind in kinds})


def _top_p_cases(draw: Draw) -> list[Case]:
    kinds = (_Sampler, LeavesOutLast, EmptySet, OneTooMany, Threshold, ShareOfBest)

    def make(draw):
        return _sampling_case(draw, top_p=draw.choice([0.15, 0.5, 0.7, 0.8]))

    return telling(draw, make, {kind.__name__: _sampler(kind) for kind in kinds})


_PROBS_SAID = {"out": "the probabilities"}


def _sampling_row(name: str, says: str, cases: Callable, **more: Any) -> Row:
    return Row(name, says, cases, **({"looks": ("out",), "spoken": _PROBS_SAID} | more))


SAMPLING = Exercise(
    id="8.6",
    symbol="sampling_probs",
    kind="function",
    parameters=("logits", "temperature", "top_k", "top_p"),
    points=5,
    todos=("8.6",),
    rows=(
        _sampling_row("plain", "without options it is the softmax", lambda draw: [_sampling_case(draw)]),
        _sampling_row(
            "temperature",
            "a temperature divides the logits",
            lambda draw: [_sampling_case(draw, temperature=t) for t in (0.5, 2.0)],
        ),
        _sampling_row(
            "temperature 0",
            "temperature 0 puts all probability on the likeliest token",
            lambda draw: [
                _sampling_case(draw, temperature=0),
                _sampling_case(draw, temperature=0.0, top_k=3),
            ],
        ),
        _sampling_row(
            "top_k",
            "top_k keeps the k likeliest and renormalises",
            lambda draw: [_sampling_case(draw, top_k=k) for k in (draw.size(3, 4), 2)],
        ),
        _sampling_row(
            "k at the edges",
            "top_k = 1 keeps one token, a top_k above V keeps all",
            lambda draw: [_sampling_case(draw, top_k=1), _sampling_case(draw, top_k=50)],
            needs=("top_k",),
        ),
        _sampling_row(
            "top_p", "top_p keeps the smallest set of likeliest tokens with mass at least p", _top_p_cases
        ),
        _sampling_row(
            "order",
            "temperature first, then k, then p of what is left",
            _order_cases,
            needs=("temperature", "top_k", "top_p"),
        ),
        Row(
            "input kept",
            "logits are left unchanged",
            lambda draw: [_all_three(draw)],
            looks=("changed",),
            needs=("temperature",),
        ),
    ),
    reference=reference_sampling,
    misconceptions=(
        Wrong(
            "times temperature",
            "The logits are multiplied by the temperature. Divide: a low temperature makes differences larger, so the best token stands out.",
            _sampler(TimesTemperature),
        ),
        Wrong("no temperature", "temperature is not used.", _sampler(NoTemperature)),
        Wrong(
            "probabilities heated",
            "You divided probabilities by the temperature and took the softmax of that. The temperature divides the logits.",
            _sampler(HeatsProbabilities),
        ),
        Wrong(
            "division by 0",
            "Temperature 0 divides by zero. Its limit is argmax: return 1 for the likeliest token and 0 for the others.",
            _sampler(DividesByZero),
        ),
        Wrong(
            "0 gives an index",
            "At temperature 0 you return the index of the best token. Return probabilities [V] here too: 1 there, 0 elsewhere.",
            _sampler(ColdIndex),
        ),
        Wrong(
            "0 means off",
            "Temperature 0 is treated as 'no temperature'. It means no chance at all: argmax.",
            _sampler(ColdIsOne),
        ),
        Wrong(
            "filters first",
            "The filters ran before the temperature, so p saw the wrong masses. Temperature comes first.",
            _sampler(FiltersFirst),
        ),
        Wrong(
            "p before k",
            "p counts the masses from before k. k comes first; what it leaves is renormalised to 1, and p is a share of that.",
            _sampler(MassBeforeK),
        ),
        Wrong(
            "one too few",
            "Your set stops just before it reaches mass p. The token that reaches p belongs to it: mass at least p.",
            _sampler(LeavesOutLast),
        ),
        Wrong(
            "empty set",
            "When the first token alone exceeds p, nothing is left, and 0 / 0 is NaN. The token that reaches p belongs to the set.",
            _sampler(EmptySet),
        ),
        Wrong(
            "one too many",
            "Your set holds one token more than it needs. Keep a token only if the mass before it is still below p.",
            _sampler(OneTooMany),
        ),
        Wrong(
            "p as a threshold",
            "You kept tokens whose own probability is at least p. p is about their sum, from the likeliest down.",
            _sampler(Threshold),
        ),
        Wrong(
            "share of the best",
            "You kept tokens by comparing them with the likeliest one. p is about the sum of the kept tokens, from the likeliest down.",
            _sampler(ShareOfBest),
        ),
        Wrong("smallest k", "The k least likely tokens were kept.", _sampler(SmallestK)),
        Wrong(
            "k minus one", "One token fewer than k is kept: compare with ≥, not with >.", _sampler(OneFewer)
        ),
        Wrong(
            "k above V",
            "A top_k above V ends in an error inside topk. Then all tokens stay: take min(top_k, V).",
            _sampler(KTooLarge),
        ),
        Wrong(
            "logit 0 for removed",
            "Removed tokens were given the logit 0, and e^0 is 1: they stay possible. −∞ removes them, or set their probability to 0 and renormalise.",
            _sampler(ZeroLogits),
        ),
        Wrong(
            "not renormalised",
            "The kept probabilities no longer sum to 1. Divide by their sum.",
            _sampler(NotRenormalised),
        ),
        Wrong(
            "sorted",
            "The probabilities come back sorted. They belong in the vocabulary's order: probs[i] is token i's.",
            _sampler(Sorted),
        ),
        Wrong(
            "in place",
            "logits itself was changed. logits /= t writes into the caller's tensor: make a new one.",
            _sampler(InPlace),
        ),
    ),
    alternatives={
        "steps in methods": _sampler(_Sampler),
        "thresholds": sampling_by_threshold,
        "loop over ranks": sampling_by_loop,
    },
    hints={
        "8.6": (
            "Each filter only decides which tokens may stay. In which order do they decide, and who sees whose result?",
            "logits / temperature [V] → −∞ outside the k best → softmax, sorted: mass before each token [V] → 0 where that mass is ≥ p → divide by the sum.",
            "temperature 0: a vector of zeros with 1 at the argmax. Else divide; set logits below the k-th best to −∞; softmax; sort; "
            "before = cumulative sum − the value itself; keep where before < p; put the kept values back in their places; divide by their sum",
        )
    },
)


# ---- 8.7 beam_search --------------------------------------------------------------------------------


def reference_beam(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    """Level by level in numpy: a table of totals [open, V], its `width` largest entries."""
    beam, totals, done = [()], np.zeros(1), []
    for _ in range(max_len):
        grown = np.stack([next_log_probs([bos_id, *h]).double().numpy() for h in beam]) + totals[:, None]
        best = np.argsort(-grown, axis=None, kind="stable")[:width]
        pairs = [divmod(int(i), grown.shape[1]) for i in best]
        new = [((*beam[row], token), grown[row, token]) for row, token in pairs]
        done += [item for item in new if item[0][-1] == eos_id]
        still = [item for item in new if item[0][-1] != eos_id]
        beam, totals = [h for h, _ in still], np.array([total for _, total in still])
        if not beam:
            break
    scored = [
        (total / len(h) ** length_penalty, h) for h, total in done + list(zip(beam, totals, strict=True))
    ]
    best_score = max(score for score, _ in scored)
    return list(next(h for score, h in scored if score == best_score))


class _Beam:
    """The usual code with every step in a method of its own, so that a mistake changes one step."""

    def __init__(self, next_log_probs, bos_id, eos_id, width, max_len, length_penalty):
        self.ask, self.bos, self.eos = next_log_probs, bos_id, eos_id
        self.width, self.max_len, self.penalty = width, max_len, length_penalty

    def add(self, total, log_prob):
        return total + log_prob

    def grow(self, hypothesis, total):
        log_probs = self.ask([self.bos, *hypothesis]).tolist()
        return [([*hypothesis, token], self.add(total, lp)) for token, lp in enumerate(log_probs)]

    def prune(self, grown):
        return sorted(grown, key=lambda item: -item[1])[: self.width]

    def step(self, beam, done):
        """Return the open hypotheses after one more token; finished ones are added to `done`."""
        grown = self.prune([item for pair in beam for item in self.grow(*pair)])
        done += [item for item in grown if item[0][-1] == self.eos]
        return [item for item in grown if item[0][-1] != self.eos]

    def stops(self, beam, done):
        return not beam

    def length(self, hypothesis):
        return len(hypothesis)

    def score(self, item):
        return item[1] / self.length(item[0]) ** self.penalty

    def candidates(self, beam, done):
        return done + beam

    def run(self):
        beam, done = [([], 0.0)], []
        for _ in range(self.max_len):
            beam = self.step(beam, done)
            if self.stops(beam, done):
                break
        return max(self.candidates(beam, done), key=self.score)[0]


def _beam(kind: type[_Beam]):
    def beam_search(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
        return kind(next_log_probs, bos_id, eos_id, width, max_len, length_penalty).run()

    return beam_search


class WidthOne(_Beam):
    def prune(self, grown):
        return sorted(grown, key=lambda item: -item[1])[:1]


class NoPruning(_Beam):
    """Each hypothesis keeps its own `width` best continuations; nothing is compared across."""

    def step(self, beam, done):
        grown = [item for pair in beam for item in self.prune(self.grow(*pair))]
        done += [item for item in grown if item[0][-1] == self.eos]
        return [item for item in grown if item[0][-1] != self.eos]


class EachItsBest(_Beam):
    """The first `width` tokens differ; from there each hypothesis goes on greedily."""

    def step(self, beam, done):
        first = beam == [([], 0.0)]
        best = [self.prune(self.grow(*pair))[: None if first else 1] for pair in beam]
        grown = [item for items in best for item in items]
        done += [item for item in grown if item[0][-1] == self.eos]
        return [item for item in grown if item[0][-1] != self.eos]


class Refills(_Beam):
    """Finished hypotheses take no place: the `width` best open ones always go on."""

    def step(self, beam, done):
        grown = sorted((item for pair in beam for item in self.grow(*pair)), key=lambda item: -item[1])
        kept = []
        for item in grown:
            if item[0][-1] == self.eos:
                done.append(item)
            elif len(kept) < self.width:
                kept.append(item)
            if len(kept) == self.width:
                break
        return kept


class Narrows(_Beam):
    """Every finished hypothesis takes its place in the beam for good."""

    def step(self, beam, done):
        width, self.width = self.width, self.width - len(done)
        beam = super().step(beam, done)
        self.width = width
        return beam[: self.width - len(done)] if len(done) < self.width else []


class FinishedStay(_Beam):
    """Finished hypotheses stay in the beam and compete with longer ones at every step."""

    def step(self, beam, done):
        grown = self.prune(done + [item for pair in beam for item in self.grow(*pair)])
        done[:] = [item for item in grown if item[0][-1] == self.eos]
        return [item for item in grown if item[0][-1] != self.eos]


class FirstEnds(_Beam):
    def stops(self, beam, done):
        return bool(done)

    def candidates(self, beam, done):
        return done or beam


class EnoughFinished(_Beam):
    def stops(self, beam, done):
        return not beam or len(done) >= self.width


class OnlyFinished(_Beam):
    def candidates(self, beam, done):
        return done or beam


class OnlyOpen(_Beam):
    def candidates(self, beam, done):
        return beam or done


class GoesOn(_Beam):
    """eos is a token like others: hypotheses are extended beyond it."""

    def step(self, beam, done):
        return self.prune([item for pair in beam for item in self.grow(*pair)])


class LastOnly(_Beam):
    def add(self, total, log_prob):
        return log_prob


class SumsProbabilities(_Beam):
    def add(self, total, log_prob):
        return total + math.exp(log_prob)


class Smallest(_Beam):
    def prune(self, grown):
        return sorted(grown, key=lambda item: item[1])[: self.width]


class BeamKeepsBos(_Beam):
    def run(self):
        return [self.bos, *super().run()]


class BeamDropsEos(_Beam):
    def run(self):
        return [token for token in super().run() if token != self.eos]


class BeamCountsBos(_Beam):
    def run(self):
        self.max_len -= 1
        return super().run()


class NoPenalty(_Beam):
    def score(self, item):
        return item[1]


class AlwaysMean(_Beam):
    def score(self, item):
        return item[1] / len(item[0])


class TimesPenalty(_Beam):
    def score(self, item):
        return item[1] * self.length(item[0]) ** self.penalty


class LengthWithBos(_Beam):
    def length(self, hypothesis):
        return len(hypothesis) + 1


class LengthWithoutEos(_Beam):
    def length(self, hypothesis):
        return max(1, len(hypothesis) - (hypothesis[-1] == self.eos))


class PenaltyFactor(_Beam):
    """Divides by length times penalty."""

    def score(self, item):
        return item[1] / (self.length(item[0]) * self.penalty) if self.penalty else item[1]


class TiesCompared(_Beam):
    """Sorts (total, tensor) pairs: equal totals make Python compare the tensors."""

    def prune(self, grown):
        pairs = sorted([(-total, torch.tensor(h)) for h, total in grown])[: self.width]
        return [(h.tolist(), -total) for total, h in pairs]


class TiesLost(_Beam):
    """Keeps hypotheses in a dict by their total: of two equal ones the second overwrites the first."""

    def prune(self, grown):
        return super().prune([(h, total) for total, h in {total: h for h, total in grown}.items()])


def beam_by_heap(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    alive, ended = [(0.0, [bos_id])], []
    for _ in range(max_len):
        options = []
        for total, prefix in alive:
            options += [(total + float(lp), [*prefix, i]) for i, lp in enumerate(next_log_probs(prefix))]
        alive = []
        for total, prefix in heapq.nlargest(width, options, key=lambda option: option[0]):
            (ended if prefix[-1] == eos_id else alive).append((total, prefix))
        if not alive:
            break
    return max(ended + alive, key=lambda o: o[0] / (len(o[1]) - 1) ** length_penalty)[1][1:]


def beam_by_topk(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    """Totals in a tensor, `topk` over the flattened table."""
    prefixes, totals, pool = [[bos_id]], torch.zeros(1), []
    for step in range(max_len):
        table = torch.stack([next_log_probs(prefix) for prefix in prefixes]) + totals[:, None]
        values, where = table.flatten().topk(min(width, table.numel()))
        new = [[*prefixes[int(i) // table.size(1)], int(i) % table.size(1)] for i in where]
        for prefix, value in zip(new, values, strict=True):
            if prefix[-1] == eos_id or step == max_len - 1:
                pool.append((float(value) / (len(prefix) - 1) ** length_penalty, prefix))
        keep = [i for i, prefix in enumerate(new) if prefix[-1] != eos_id]
        prefixes, totals = [new[i] for i in keep], values[keep]
        if not keep:
            break
    return max(pool, key=lambda pair: pair[0])[1][1:]


class _BeamTuples(_Beam):
    """Hypotheses as (total, tuple) pairs; ties go to the larger token, which the contract leaves open."""

    def prune(self, grown):
        return [(h, total) for total, h in sorted(((t, h) for h, t in grown), reverse=True)[: self.width]]


BEAM_WRONG = (
    Wrong(
        "width unused",
        "Only one hypothesis survives each step: this is greedy. Keep `width` of them.",
        _beam(WidthOne),
    ),
    Wrong(
        "no competition",
        "Each hypothesis keeps its own best continuations, and the beam grows without end. All continuations of all hypotheses compete for `width` places.",
        _beam(NoPruning),
    ),
    Wrong(
        "each its best",
        "Each hypothesis goes on with its own best token. Two continuations of one hypothesis may both be better than any of another: let all of them compete.",
        _beam(EachItsBest),
    ),
    Wrong(
        "first one ends it",
        "The search stops at the first finished hypothesis. A better one may still be open: stop when no open one is left.",
        _beam(FirstEnds),
    ),
    Wrong(
        "stops when enough ended",
        "The search stops as soon as `width` hypotheses have ended. Open ones may still win: stop when none is left, or at max_len.",
        _beam(EnoughFinished),
    ),
    Wrong(
        "unfinished dropped",
        "At max_len the unfinished hypotheses were dropped. Finished and unfinished compete.",
        _beam(OnlyFinished),
    ),
    Wrong(
        "finished dropped",
        "The finished hypotheses were dropped at the end. Finished and unfinished compete.",
        _beam(OnlyOpen),
    ),
    Wrong(
        "writes beyond eos",
        "Hypotheses are continued after eos_id. A sentence ends there: set it aside.",
        _beam(GoesOn),
    ),
    Wrong(
        "only the last token counts",
        "Hypotheses are ranked by their last token alone. Add its log-probability to the sum so far.",
        _beam(LastOnly),
    ),
    Wrong(
        "probabilities added",
        "You added probabilities. The probability of a sentence is the product of its tokens', so their logarithms are added.",
        _beam(SumsProbabilities),
    ),
    Wrong(
        "worst survive", "The least likely continuations survive. Sort from large to small.", _beam(Smallest)
    ),
    Wrong(
        "keeps bos", "Your result begins with bos_id. Return the generated tokens only.", _beam(BeamKeepsBos)
    ),
    Wrong("drops eos", "eos_id is missing at the end. It was generated too.", _beam(BeamDropsEos)),
    Wrong("counts bos", "It stops one token early: max_len counts generated tokens.", _beam(BeamCountsBos)),
    Wrong(
        "always the mean",
        "You divide by the length even when length_penalty is 0. The divisor is length^penalty, and length^0 is 1.",
        _beam(AlwaysMean),
    ),
)

PENALTY_WRONG = (
    Wrong("penalty unused", "length_penalty is not used.", _beam(NoPenalty)),
    Wrong(
        "multiplied",
        "The sum is multiplied by length^penalty. Sums of logarithms are negative, so that punishes long sentences even more. Divide.",
        _beam(TimesPenalty),
    ),
    Wrong(
        "length with bos", "The length counts bos_id. It counts generated tokens only.", _beam(LengthWithBos)
    ),
    Wrong(
        "length without eos",
        "The length leaves eos_id out. It was generated, so it counts.",
        _beam(LengthWithoutEos),
    ),
    Wrong(
        "factor, not power",
        "You divide by length · penalty. The penalty is an exponent: length ** penalty.",
        _beam(PenaltyFactor),
    ),
)

PLACES_WRONG = (
    Wrong(
        "places refilled",
        "When a hypothesis ends, you let the next best one take its place in the same step. Here the `width` best survive, finished ones included, and then the finished are set aside.",
        _beam(Refills),
    ),
    Wrong(
        "beam narrows",
        "Your beam becomes narrower with every finished hypothesis. At each step the `width` best continuations survive, whatever has ended before.",
        _beam(Narrows),
    ),
    Wrong(
        "finished stay in the beam",
        "Finished hypotheses stay in the beam and push open ones out. Set them aside: they compete again only at the end.",
        _beam(FinishedStay),
    ),
)

TIES_WRONG = (
    Wrong(
        "ties compared",
        "When two totals are equal, Python goes on to compare what stands beside them in the tuple, and tensors refuse. Sort by the total only: key=….",
        _beam(TiesCompared),
    ),
    Wrong(
        "ties lost",
        "Of two hypotheses with the same total one disappeared. A dict has one entry for each key: keep a list.",
        _beam(TiesLost),
    ),
)


def _plain_beam_case(draw: Draw, **drawn: Callable[[], Any]) -> Case:
    """A case on which mistakes of the places do not show: they have a row of their own, "set aside"."""
    others = [reference_beam, *(wrong.symbol for wrong in PLACES_WRONG)]
    while True:
        case = _writing_case(draw, **{name: value() for name, value in drawn.items()})
        if len({_gist(symbol, case) for symbol in others}) == 1:
            return case


def _beam_cases(draw: Draw) -> list[Case]:
    def make(draw):
        return _plain_beam_case(
            draw,
            ending=lambda: draw.choice([0.2, 0.5, 0.9]),
            width=lambda: draw.size(2, 3),
            max_len=lambda: draw.size(2, 5),
        )

    return telling(draw, make, _symbols(reference_beam, BEAM_WRONG), most=12)


def _width_one_cases(draw: Draw) -> list[Case]:
    return [_writing_case(draw, width=1) for _ in range(2)]


def _penalty_cases(draw: Draw) -> list[Case]:
    def make(draw):
        return _plain_beam_case(
            draw,
            ending=lambda: 0.6,
            width=lambda: draw.size(2, 3),
            max_len=lambda: draw.size(3, 5),
            length_penalty=lambda: draw.choice([0.5, 0.7, 1.0, 1.5]),
        )

    return telling(draw, make, _symbols(reference_beam, PENALTY_WRONG))


def _letters(draw: Draw) -> dict[str, int]:
    """Return random tokens for "^" (bos), "." (eos) and the letters of a story."""
    return dict(zip("^.abcdef", draw.rng.permutation(np.arange(9)).tolist(), strict=False))


def _story(token: dict[str, int], branches: dict[str, dict[str, float]], **kwargs: Any) -> Case:
    """A hand-built table: a beginning in letters ("" is the very first) → chances of what comes next."""

    def row(chances: dict[str, float]) -> torch.Tensor:
        rest = (1 - sum(chances.values())) / (9 - len(chances))
        values = torch.full((9,), rest)
        for letter, chance in chances.items():
            values[token[letter]] = chance
        return values

    table = {
        " ".join(str(token[c]) for c in "^" + prefix): row(chances) for prefix, chances in branches.items()
    }
    model = {"$": "table of next tokens", "table": table, "otherwise": row({".": 0.9}), "bos_id": token["^"]}
    return Case("function", {"args": [model, token["^"], token["."]], "kwargs": kwargs})


def _missed_cases(draw: Draw) -> list[Case]:
    """Greedy takes "a" (0.5) and ends with 0.15; "bc." has 0.33."""
    branches = {
        "": {"a": 0.5, "b": 0.4, ".": 0.02},
        "a": {"c": 0.34, "d": 0.3, "e": 0.2, ".": 0.02},
        "b": {"c": 0.9, ".": 0.02},
        "ac": {".": 0.88},
        "bc": {".": 0.92},
    }
    return [_story(_letters(draw), branches, width=width, max_len=5) for width in (2, 3)]


def _places_cases(draw: Draw) -> list[Case]:
    """Something ends at the first step, and the best sentence per token needs a place later.

    Without a penalty this could not be seen: a sum only falls, so what a finished hypothesis pushes out of
    the beam could never overtake it.
    """
    surer = {"ad": {"e": 0.95}, "ade": {".": 0.95}, "ac": {"e": 0.4, ".": 0.3}}
    strong_end = {"": {"a": 0.5, ".": 0.3, "b": 0.1}, "a": {"c": 0.5, "d": 0.4}} | surer
    weak_end = {"": {"a": 0.7, ".": 0.12, "b": 0.08}, "a": {"c": 0.5, "d": 0.4}} | surer
    third = {
        "": {"a": 0.5, ".": 0.3, "b": 0.15},
        "a": {"c": 0.16, "d": 0.15, "e": 0.14, "f": 0.13},
        "b": {"c": 0.95},
        "bc": {"d": 0.9},
    }
    stories = (strong_end, weak_end, third)
    return [_story(_letters(draw), story, width=2, max_len=5, length_penalty=1.0) for story in stories]


def _tie_cases(draw: Draw) -> list[Case]:
    """a and b are equally likely, and the better sentence goes once through a, once through b."""
    cases, token = [], _letters(draw)
    for good, bad in ("ab", "ba"):
        branches = {
            "": {"a": 0.4, "b": 0.4, ".": 0.02},
            good: {"d": 0.7, ".": 0.02},
            bad: {"c": 0.3, "e": 0.3, ".": 0.05},
            good + "d": {".": 0.9},
        }
        cases.append(_story(token, branches, width=2, max_len=4))
    return cases


def _cut_beam_cases(draw: Draw) -> list[Case]:
    """The best sentence is still open at max_len; a finished one competes and loses."""
    branches = {
        "": {"a": 0.55, "b": 0.2, ".": 0.15},
        "a": {"c": 0.8, ".": 0.1},
        "ac": {"d": 0.85, ".": 0.05},
        "acd": {"e": 0.9, ".": 0.02},
    }
    return [_story(_letters(draw), branches, width=3, max_len=length) for length in (1, 2, 3)]


BEAM = Exercise(
    id="8.7",
    symbol="beam_search",
    kind="function",
    parameters=("next_log_probs", "bos_id", "eos_id", "width", "max_len", "length_penalty"),
    points=6,
    todos=("8.7",),
    rows=(
        Row(
            "better than greedy",
            "it finds the better sentence where greedy misses it",
            _missed_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "the beam",
            "the `width` best continuations survive each step; finished ones are set aside; the best of all is returned",
            _beam_cases,
            looks=("out",),
            weight=3,
        ),
        Row("width 1", "width 1 is greedy", _width_one_cases, looks=("out",), needs=("better than greedy",)),
        Row("max_len", "at max_len finished and unfinished compete", _cut_beam_cases, looks=("out",)),
        Row(
            "length penalty",
            "a score is the summed log-probability / length^penalty",
            _penalty_cases,
            looks=("out",),
            needs=("the beam",),
            weight=2,
        ),
        Row(
            "set aside",
            "finished hypotheses keep no place in the beam, and give none away in the step in which they end",
            _places_cases,
            looks=("out",),
            needs=("the beam", "length penalty"),
        ),
        Row("ties", "two equally good hypotheses both survive", _tie_cases, looks=("out",)),
    ),
    reference=reference_beam,
    misconceptions=BEAM_WRONG + PENALTY_WRONG + PLACES_WRONG + TIES_WRONG,
    alternatives={
        "heap": beam_by_heap,
        "topk": beam_by_topk,
        "steps in methods": _beam(_Beam),
        "tuples": _beam(_BeamTuples),
    },
    hints={
        "8.7": (
            "With width 2: which sentences do you hold after one token? How many candidates do they have for two tokens, and how many of those do you keep?",
            "open: a list of (tokens, total). Each gives V continuations: (tokens + [token], total + its log-probability). The `width` best by total survive.",
            "continuations: for every open (tokens, total) and every token. best: sorted by total from large to small, cut at width. Then best is split: last token eos → "
            "finished, else → open. At the end: the maximum over finished and open of total / (number of tokens) ** length_penalty",
        )
    },
)

EXERCISES = (OUTPUT, TIE, LOSS, MODEL, GREEDY, SAMPLING, BEAM)
