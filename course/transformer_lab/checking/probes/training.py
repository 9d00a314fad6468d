"""Chapter 09: stand-ins for a model, a training step and a batch, which note how they are used."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from transformer_lab.checking.probes.arguments import build, builder, plain
from transformer_lab.checking.probes.core import probe
from transformer_lab.checking.probes.problems import Trouble
from transformer_lab.parts import BOS, EOS, Transformer

MOST_CALLS = 400  # of a stand-in, in one case; more means a loop without an end
HOPELESS_AFTER = 8  # steps on four sentences
MOST_TOKENS = 100  # in a prefix; a prefix that doubles each time would take minutes to answer


# ---- 9.2 train_step ---------------------------------------------------------------------------------


class StandIn(nn.Module):
    """A model of two tables: logits [B, m, V] from the source's rows and the tokens of the prefix."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor):
        super().__init__()
        self.source, self.target = nn.Parameter(source), nn.Parameter(target)  # [V_src, V] and [V, V]
        self.calls: list[dict[str, Any]] = []

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        for name, ids, table in (("src", src, self.source), ("tgt_in", tgt_in, self.target)):
            _must_be_ids(name, ids, len(table))
        self.calls.append({"src": src.clone(), "tgt_in": tgt_in.clone(), "training": self.training})
        before = self.target[tgt_in].cumsum(dim=1)  # the logits at i depend on all tokens up to i
        return self.source[src].mean(dim=1, keepdim=True) + before


def _must_be_ids(name: str, ids: Any, size: int) -> None:
    """Raise Trouble, in words, unless `ids` is a batch of token ids below `size`."""
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.is_floating_point():
        found = f"shape {list(ids.shape)}" if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise Trouble(
            "ids",
            "The model was called with {name} of {found}; ids [B, n] were expected.",
            name=name,
            found=found,
        )
    if ids.numel() and int(ids.max()) >= size:
        raise Trouble(
            "ids",
            "The model was called with {name} that holds the id {id}, but that vocabulary "
            "has {size} words. Did source and target change places?",
            name=name,
            id=int(ids.max()),
            size=size,
        )


class _Counting(torch.optim.SGD):
    """Plain gradient descent that counts its steps."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return super().step(closure)


@probe("train step")
def _train_step(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Train a model of two tables by `steps` calls, with plain gradient descent at rate `lr`.

    inputs: source, target (tables), batches [[src, tgt], …], lr. Reports the returned losses, the steps
    made, the tables afterwards, what the model was given, and whether a batch was changed.
    """
    model = StandIn(build(inputs["source"]), build(inputs["target"]))
    optimizer = _Counting(model.parameters(), lr=inputs["lr"])
    changed: list[str] = []
    for number, (src, tgt) in enumerate(inputs["batches"], 1):
        own = build([src, tgt])
        values[f"loss.{number}"] = plain(symbol(model, optimizer, *own))
        changed += [
            name for name, a, b in zip(("src", "tgt"), own, (src, tgt), strict=True) if not torch.equal(a, b)
        ]
    values["changed"], values["steps"] = changed, optimizer.steps
    values["source"], values["target"] = model.source.detach().clone(), model.target.detach().clone()
    if not model.calls:
        raise Trouble("unused", "The model was never called: model(src, …) gives the logits.")
    values["tgt_in"] = model.calls[0]["tgt_in"]
    values["training"] = all(call["training"] for call in model.calls)


@probe("by heart")
def _by_heart(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Train a small finished Transformer with the learner's step on one batch; say whether it learned it.

    inputs: src, tgt, words (in both vocabularies), steps (at most), goal (a loss).
    """
    src, tgt, words = inputs["src"], inputs["tgt"], inputs["words"]
    model = Transformer(words, words, d_model=32, h=2, d_ff=64, N=1, max_len=16, dropout=0.0, norm="pre")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2, foreach=True)
    losses: list[float] = []
    while len(losses) < inputs["steps"] and not (losses and losses[-1] < inputs["goal"]):
        losses.append(float(symbol(model, optimizer, src.clone(), tgt.clone())))
        if len(losses) == HOPELESS_AFTER and losses[-1] > 0.6 * losses[0]:
            break  # a right step has at most half of the first loss by now
    values["learned"] = losses[-1] < inputs["goal"]


# ---- 9.3 overfit ------------------------------------------------------------------------------------


@probe("losses of steps")
def _losses_of_steps(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Give the learner's loop a step whose losses are known. inputs: losses, kwargs.

    When the listed losses are used up, the last one is repeated.
    """
    losses, calls = inputs["losses"], 0

    def step() -> float:
        nonlocal calls
        calls += 1
        if calls > MOST_CALLS:
            raise Trouble(
                "endless",
                "step() was called more than {most} times: the loop has no end.",
                most=MOST_CALLS,
            )
        return losses[min(calls, len(losses)) - 1]

    values["out"] = plain(symbol(step, **inputs["kwargs"]))
    values["calls"] = calls


# ---- 9.4 translate ----------------------------------------------------------------------------------


class Scripted(nn.Module):
    """Writes a known sentence for each source row, as long as its prefix is the beginning of that sentence.

    sentences: for each source token that can stand first in a row, the ids to write, `</s>` included. On any
    other prefix the row says `wrong`. Every position of the logits speaks, so only the last one is right.
    """

    def __init__(self, sentences: dict[str, list[int]], vocabulary: int, wrong: int):
        super().__init__()
        self.sentences, self.vocabulary, self.wrong = sentences, vocabulary, wrong
        self.anchor = nn.Parameter(torch.zeros(1))  # a model has parameters, and logits a gradient
        self.encoded = self.decoded = 0
        self.needless = False  # was it asked for words when every sentence had ended?
        self.modes: list[bool] = []
        self.gradients: list[bool] = []

    def encode(self, src: torch.Tensor) -> torch.Tensor:
        _must_be_ids("src", src, self.vocabulary)
        self.encoded += 1
        self._note()
        return src[:, :, None] + self.anchor  # [B, n, 1]: a memory that names its row

    def decode(self, tgt_in: torch.Tensor, memory: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        self.decoded += 1
        if self.decoded > MOST_CALLS:
            raise Trouble(
                "endless",
                "decode was called more than {most} times: the loop has no end.",
                most=MOST_CALLS,
            )
        _must_be_ids("tgt_in", tgt_in, self.vocabulary)
        if tgt_in.size(1) > MOST_TOKENS:
            raise Trouble(
                "long",
                "decode was given {count} tokens: the prefix should grow by one word at a time.",
                count=tgt_in.size(1),
            )
        if not isinstance(memory, torch.Tensor) or memory.dim() != 3:
            raise Trouble(
                "memory", "decode takes (tgt_in, memory, src); memory is what encode(src) returned."
            )
        if not len(tgt_in) == len(memory) == len(src):
            sizes = f"{len(tgt_in)}, {len(memory)} and {len(src)}"
            raise Trouble(
                "rows",
                "tgt_in, memory and src have {sizes} rows; they need one for each sentence.",
                sizes=sizes,
            )
        if not torch.equal(memory[..., 0].round().long(), src):
            raise Trouble(
                "src", "decode takes (tgt_in, memory, src); src holds the ids that memory was made from."
            )
        self._note()
        self.needless |= bool((tgt_in == EOS).any(dim=1).all())
        rows = [self._row(int(m[0, 0].round()), ids.tolist()) for m, ids in zip(memory, tgt_in, strict=True)]
        return torch.stack(rows) + self.anchor  # [B, m, V]

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        return self.decode(tgt_in, self.encode(src), src)

    def _row(self, first: int, prefix: list[int]) -> torch.Tensor:
        logits = torch.zeros(len(prefix), self.vocabulary)
        for place in range(len(prefix)):
            logits[place, self._next(first, prefix[: place + 1])] = 1.0
        return logits - 2.0  # all negative, so that a padding of zeros never wins

    def _next(self, first: int, prefix: list[int]) -> int:
        script = self.sentences[str(first)]
        if prefix[0] != BOS:  # <pad>, </s> or a word: each start is lost in its own way
            return self.wrong - 1 - min(prefix[0], 4)
        if EOS in prefix:  # whatever is asked after the end: a word that must not be kept
            return self.wrong
        said = prefix[1:]
        return script[len(said)] if said == script[: len(said)] and len(said) < len(script) else self.wrong

    def _note(self) -> None:
        self.modes.append(self.training)
        self.gradients.append(torch.is_grad_enabled())


class Speechless(nn.Module):
    """Looks ids up in tables, as any model does. For the device probe, where nobody can read what it says."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.source, self.target = (nn.Embedding(vocabulary, vocabulary) for _table in range(2))

    def encode(self, src: torch.Tensor) -> torch.Tensor:
        return self.source(src)  # [B, n, V]

    def decode(self, tgt_in: torch.Tensor, memory: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        read = (memory * self.source(src)).sum(dim=1, keepdim=True)  # [B, 1, V]
        return self.target(tgt_in) + read  # [B, m, V]

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        return self.decode(tgt_in, self.encode(src), src)


builder("speechless model")(Speechless)


@probe("translate")
def _translate(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Let the learner translate with a scripted model. inputs: sentences, vocabulary, wrong, src, kwargs."""
    model = Scripted(inputs["sentences"], inputs["vocabulary"], inputs["wrong"]).train()
    src = inputs["src"].clone()
    values["out"] = plain(symbol(model, src, **inputs["kwargs"]))
    values["changed"] = [] if torch.equal(src, inputs["src"]) else ["src"]
    values["encoded"] = model.encoded
    values["needless"] = model.needless
    values["evaluating"] = not any(model.modes)
    values["gradients"] = any(model.gradients)
