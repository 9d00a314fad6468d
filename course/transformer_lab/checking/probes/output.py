"""Chapter 08: tied weights, a whole model's dropout and defaults, and stand-ins for a language model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from transformer_lab.checking.probes.arguments import build, builder
from transformer_lab.checking.probes.core import make_module, probe
from transformer_lab.checking.probes.problems import Trouble

# ---- 8.2 tie_weights --------------------------------------------------------------------------------


class _Embedding(nn.Module):
    def __init__(self, table: torch.Tensor):
        super().__init__()
        self.emb = nn.Embedding(table.size(0), table.size(1), _weight=table.clone())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.emb(ids)


class _Output(nn.Module):
    def __init__(self, matrix: torch.Tensor):
        super().__init__()
        self.proj = nn.Linear(matrix.size(1), matrix.size(0), bias=False)
        self.proj.weight = nn.Parameter(matrix.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x)


@probe("tie")
def _tie(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Tie an embedding and an output layer, say what they share, then train both by one step.

    inputs: table and matrix [V, d], the weights before; ids [n] and cotangent [n, V] of the training step.
    """
    table, matrix, ids, cotangent = (build(inputs[name]) for name in ("table", "matrix", "ids", "cotangent"))
    embedding, output = _Embedding(table), _Output(matrix)
    symbol(embedding, output)
    _still_usable(embedding, output)
    a, b = embedding.emb.weight, output.proj.weight
    parameters = list(nn.ModuleList([embedding, output]).parameters())
    values["parameters"] = len(parameters)
    values["shared"] = a.data_ptr() == b.data_ptr()
    values["alike"] = bool(torch.equal(a, b))
    values["names"] = [name for name, _ in output.named_parameters()]
    values["kept"] = any(torch.equal(a, old) and torch.equal(b, old) for old in (table, matrix))
    logits = output(embedding(ids))
    values["out"] = logits.detach().clone()
    if not (a.requires_grad and b.requires_grad):
        raise Trouble(
            "no_gradient", "The shared tensor does not require a gradient, so it could never learn."
        )
    (logits * cotangent.to(logits.dtype)).sum().backward()
    _descend(parameters)
    values["table"], values["matrix"] = (
        embedding.emb.weight.detach().clone(),
        output.proj.weight.detach().clone(),
    )


def _descend(parameters: list[nn.Parameter]) -> None:
    """One step of gradient descent, by hand: the first optimizer of a session costs a second of imports."""
    with torch.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-0.1)


def _still_usable(embedding: nn.Module, output: nn.Module) -> None:
    if type(embedding.emb) is not nn.Embedding:
        kind = type(embedding.emb).__name__
        raise Trouble(
            "attributes", "embedding.emb became a {kind}. Share the weight, and leave the module.", kind=kind
        )
    if type(output.proj) is not nn.Linear:
        kind = type(output.proj).__name__
        raise Trouble(
            "attributes", "output.proj became a {kind}. Share the weight, and leave the module.", kind=kind
        )


# ---- 8.4 Transformer --------------------------------------------------------------------------------


@probe("dropout")
def _dropout(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Run a module twice in evaluation and twice in training. inputs: make, args."""
    module, args = make_module(symbol, inputs, values), build(inputs["args"])
    for mode, training in (("eval", False), ("train", True)):
        module.train(training)
        first, second = module(*args), module(*args)
        values[f"{mode} repeats"] = bool(torch.equal(first, second))


HALVES = ("encoder", "decoder")


@probe("where dropout acts in a model")
def _where_in_a_model(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Compare what enters the encoder and the decoder in training with what does in evaluation.

    inputs: make, args. Reports "encoder's input" and "decoder's input", in words, and whether a half repeats
    itself in training when it is given the same numbers again: it does when there is no dropout inside.
    """
    module, args = make_module(symbol, inputs, values), build(inputs["args"])
    calm, trained = _what_enters(module.eval(), args), _what_enters(module.train(), args)
    for name in HALVES:
        values[f"{name}'s input"] = _change(calm[name].numbers, trained[name].numbers)
    values["inside repeats"] = any(trained[name].repeats() for name in HALVES)


@dataclass(frozen=True)
class _Entry:
    """The first call of a half of the model, or of its first layer."""

    part: nn.Module
    args: tuple
    kwargs: dict[str, Any]

    @property
    def numbers(self) -> torch.Tensor:
        given = (value for value in (*self.args, *self.kwargs.values()) if isinstance(value, torch.Tensor))
        return next(value for value in given if value.is_floating_point()).detach()

    def repeats(self) -> bool:
        first, second = (self.part(*self.args, **self.kwargs) for _ in range(2))
        return bool(torch.equal(first, second))


def _what_enters(module: nn.Module, args: list) -> dict[str, _Entry]:
    """Run the module and return what entered each half. A half's layers may be called one by one, too."""
    entered: dict[str, _Entry] = {}
    hooks = []
    for name in HALVES:

        def note(part: nn.Module, args: tuple, kwargs: dict, name: str = name) -> None:
            entered.setdefault(name, _Entry(part, args, kwargs))

        half = getattr(module, name)
        for part in (half, *list(getattr(half, "layers", []))[:1]):
            hooks.append(part.register_forward_pre_hook(note, with_kwargs=True))
    try:
        module(*args)
    finally:
        for hook in hooks:
            hook.remove()
    for name in HALVES:
        if name not in entered:
            raise Trouble("attributes", f"The model never calls self.{name}.")
    return entered


def _change(calm: torch.Tensor, trained: torch.Tensor) -> str:
    """Say in words what dropout made of numbers: nothing, zeros and one factor, or something else."""
    if calm.shape != trained.shape:
        return "another shape"
    large = calm.abs() > 1e-2
    factors = trained[large] / calm[large]
    left = factors[factors != 0]
    if not len(left) or (left - left[0]).abs().max() > 1e-3:
        return "other numbers, by no common factor"
    zeros = "zeros here and there" if len(left) < len(factors) else ""
    rest = "nothing" if (left[0] - 1).abs() < 1e-3 else f"{float(left[0]):.2f} times the number"
    return f"{zeros}, elsewhere {rest}" if zeros else rest


@probe("defaults")
def _defaults(symbol: Any, _inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Report the default of every parameter that has one."""
    for name, parameter in inspect.signature(symbol).parameters.items():
        if parameter.default is not inspect.Parameter.empty and isinstance(
            parameter.default, (int, float, str)
        ):
            values[f"default.{name}"] = parameter.default


# ---- 8.6 sampling_probs -----------------------------------------------------------------------------


@probe("tokens kept")
def _tokens_kept(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Report how many tokens have a probability above 0, where it is open which. inputs: args, kwargs."""
    probs = symbol(*build(inputs["args"]), **build(inputs["kwargs"]))
    if not isinstance(probs, torch.Tensor):
        raise Trouble("type", f"The probabilities are of type {type(probs).__name__}; a tensor was expected.")
    values["kept"] = int((probs > 0).sum())


# ---- 8.5 and 8.7: a language model to decode from ---------------------------------------------------

LONGEST = 40  # tokens of a prefix; every case ends far below, so a longer one comes from an endless loop
NextLogProbs = Callable[[list[int]], torch.Tensor]


@builder("table of next tokens")
def _from_table(table: dict[str, torch.Tensor], otherwise: torch.Tensor, bos_id: int) -> NextLogProbs:
    """next_log_probs from probabilities [V] by prefix ("1 5 3"); a prefix not listed gets `otherwise`."""

    def next_log_probs(prefix: list[int]) -> torch.Tensor:
        _must_be_prefix(prefix, bos_id, otherwise.numel())
        return table.get(" ".join(map(str, prefix)), otherwise).log()

    return next_log_probs


@builder("scores of next tokens")
def _from_scores(scores: torch.Tensor, bos_id: int) -> NextLogProbs:
    """next_log_probs from scores [L, V, V]: the logits are the sum of scores[i, prefix[i]] over the prefix.

    So they depend on every token of the prefix and on its place.
    """

    def next_log_probs(prefix: list[int]) -> torch.Tensor:
        _must_be_prefix(prefix, bos_id, scores.size(-1))
        places = [min(place, len(scores) - 1) for place in range(len(prefix))]
        return scores[places, list(prefix)].sum(dim=0).log_softmax(dim=-1)

    return next_log_probs


def _must_be_prefix(prefix: Any, bos_id: int, vocabulary: int) -> None:
    """Raise Trouble, in words, unless `prefix` is a list of token ids that begins with bos_id."""
    if not isinstance(prefix, (list, tuple)):
        kind = type(prefix).__name__
        raise Trouble(
            "prefix", "next_log_probs was called with a {kind}; it takes the prefix as a list.", kind=kind
        )
    odd = next((token for token in prefix if not isinstance(token, int)), None)
    if odd is not None:
        kind = type(odd).__name__
        raise Trouble(
            "prefix",
            "next_log_probs was called with a list that holds a {kind}; tokens are whole "
            "numbers. int(...) or .item() makes one.",
            kind=kind,
        )
    if len(prefix) > LONGEST:
        raise Trouble(
            "endless",
            "The prefix has grown to {prefix_count} tokens, far beyond max_len: the loop does not end.",
            prefix_count=len(prefix),
        )
    if not prefix or prefix[0] != bos_id:
        raise Trouble(
            "prefix",
            "next_log_probs was called with {prefix}; the prefix begins with bos_id, here {bos_id}.",
            prefix=list(prefix),
            bos_id=bos_id,
        )
    if not all(0 <= token < vocabulary for token in prefix):
        raise Trouble(
            "prefix",
            "{prefix} holds a token outside the vocabulary of {vocabulary}.",
            prefix=list(prefix),
            vocabulary=vocabulary,
        )
