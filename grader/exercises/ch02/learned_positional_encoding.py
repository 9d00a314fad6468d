"""2.7 LearnedPositionalEncoding: a table of trained codes, which knows max_len positions and no more."""

from __future__ import annotations

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
    def __init__(self, d_model, max_len):
        super().__init__()
        self.pos = nn.Embedding(max_len, d_model)

    def forward(self, x):
        n = x.shape[1]
        if n > self.pos.num_embeddings:
            raise ValueError(f"{n} tokens, but only {self.pos.num_embeddings} positions")
        return x + nn.functional.embedding(torch.arange(n, device=x.device), self.pos.weight)


class LearnedPositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.pos = nn.Embedding(max_len, d_model)

    def forward(self, x):
        n = x.size(1)
        if n > self.pos.num_embeddings:
            raise ValueError(f"{n} tokens, but this module learned only {self.pos.num_embeddings} positions")
        ids = torch.arange(n, device=x.device)
        return x + self.pos(ids)


class SliceTheTable(LearnedPositionalEncoding):
    def forward(self, x):
        if x.shape[1] > len(self.pos.weight):
            raise ValueError("too long")
        return x + self.pos.weight[: x.shape[1]]


class OneHotProduct(LearnedPositionalEncoding):
    def forward(self, x):
        if x.size(-2) > self.pos.num_embeddings:
            raise ValueError("too long")
        ids = torch.arange(x.size(-2), device=x.device)
        one_hot = nn.functional.one_hot(ids, self.pos.num_embeddings)
        return one_hot.to(x.dtype) @ self.pos.weight + x


class IdsForEachRow(LearnedPositionalEncoding):
    def forward(self, x):
        batch, n, _ = x.shape
        if self.pos.num_embeddings < n:
            raise ValueError("too long")
        return x + self.pos(torch.arange(n, device=x.device).expand(batch, -1))


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, length: str = "short", gradient: bool = False) -> Case:
    sizes = draw.sizes(d=[4, 6, 8], max_len=(9, 11), n=(3, 5), B=[2, 7])
    n = {"short": sizes["n"], "full": sizes["max_len"], "long": sizes["max_len"] + 1}[length]
    x = draw.normal(sizes["B"], n, sizes["d"])
    call: dict = {"args": [x]}
    if gradient:
        call |= {"wrt": ["weights"], "cotangents": [draw.normal(*x.shape)]}
    weights = {"pos.weight": draw.normal(sizes["max_len"], sizes["d"])}
    make = {"args": [sizes["d"], sizes["max_len"]]}
    return Case("module", {"make": make, "weights": weights, "call": call})


def _one(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _equal(draw: Draw, d: int, max_len: int, *front: int) -> Case:
    """A case in which two axes are equal: what guesses an axis by its length goes wrong elsewhere."""
    weights = {"pos.weight": draw.normal(max_len, d)}
    call = {"args": [draw.normal(*front, d)]}
    return Case("module", {"make": {"args": [d, max_len]}, "weights": weights, "call": call})


def _sum(draw: Draw) -> list[Case]:
    sizes = [(6, 9, 4, 4), (4, 9, 2, 4), (4, 9, 4, 3), (5, 5, 3, 2), (4, 9, 4, 4)]  # d, max_len, B, n
    return [_case(draw), *(_equal(draw, *some) for some in sizes)]


def _full_length(draw: Draw) -> list[Case]:
    return [_case(draw, "full"), _equal(draw, 4, 4, 4, 4)]


def _too_long(draw: Draw) -> list[Case]:
    return [Case("raises", {"run": _case(draw, "long").tree(), "error": "ValueError"})]


def _learns(draw: Draw) -> list[Case]:
    return [_case(draw, gradient=True)]


SUM = ("sum",)

ROWS = (
    Row("sum", "forward(x) adds the learned codes of positions 0 … n − 1", _sum, looks=("out",), weight=2),
    Row("full length", "n = max_len still works", _full_length, looks=("out",), needs=SUM),
    Row("too long", "n > max_len raises ValueError", _too_long, looks=("raised",), needs=SUM),
    Row(
        "learns",
        "the codes receive a gradient",
        _learns,
        looks=("grad.pos.weight",),
        needs=SUM,
        weight=0.5,
    ),
    rows.device(_one, needs=SUM, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

REFUSE = (
    "        if n > self.pos.num_embeddings:\n"
    '            raise ValueError(f"{n} tokens, but this module learned only {self.pos.num_embeddings} positions")\n'
)

MISTAKES = (
    edit(
        "no error",
        "n > max_len ends in an IndexError deep inside nn.Embedding. Test the length first and raise a "
        "ValueError that says what is wrong.",
        REFUSE,
        "",
    ),
    edit(
        "not refused",
        "No ValueError is raised for n > max_len, so tokens beyond it would get another token's position. "
        "(Returning an error is not enough: write raise.)",
        REFUSE,
        "",
        "torch.arange(n, device=x.device)",
        "torch.arange(n, device=x.device).clamp(max=self.pos.num_embeddings - 1)",
    ),
    edit(
        "by batch",
        "The positions are counted along the batch axis. x is [B, n, d]: n is x.size(1).",
        "x.size(1)",
        "x.size(0)",
    ),
    edit(
        "one too few",
        "n = max_len is refused, but there are exactly max_len codes: test n > max_len.",
        "n > self",
        "n >= self",
    ),
    edit(
        "from one",
        "Your positions start at 1; the first token has position 0.",
        "torch.arange(n,",
        "torch.arange(1, n + 1,",
    ),
    edit(
        "replaces",
        "The output is the code alone. Add it to x.",
        "x + self.pos(ids)",
        "self.pos(ids).expand(x.shape)",
    ),
    edit(
        "frozen",
        "The codes are detached from the graph, so they would never learn.",
        "self.pos(ids)",
        "self.pos(ids).detach()",
    ),
    edit(
        "sizes swapped",
        "nn.Embedding takes the number of rows first: nn.Embedding(max_len, d_model).",
        "(max_len, d_model)",
        "(d_model, max_len)",
    ),
    edit(
        "on the CPU",
        "The ids are made on the CPU, whatever device x is on. Make them with device=x.device.",
        ", device=x.device",
        "",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="2.7",
    symbol="LearnedPositionalEncoding",
    kind="module class",
    parameters=("d_model", "max_len"),
    points=4,
    todos=("2.7",),
    rows=ROWS,
    reference=Reference,
    answer=LearnedPositionalEncoding,
    mistakes=MISTAKES,
    alternatives=(SliceTheTable, OneHotProduct, IdsForEachRow),
    hints={
        "2.7": (
            _("A learned code is an embedding. What are its ids, when the words are not asked?"),
            _("ids [n] → pos(ids) [n, d]; x [B, n, d] + [n, d] → [B, n, d]."),
            _(
                "in __init__: an nn.Embedding of max_len rows; in forward: refuse n > max_len, then add pos(0 … n−1)"
            ),
        )
    },
)
