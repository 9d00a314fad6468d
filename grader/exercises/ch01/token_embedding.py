"""1.1 and 1.2 TokenEmbedding: each id's row of a learned table, times √d_model."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: F401 (mistakes use it)

from grader.exercises import rows
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


class Reference(nn.Module):
    """The rows by an einsum with one-hot vectors, so no lookup is involved."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        table = self.emb.weight
        hot = torch.eye(table.shape[0], dtype=table.dtype, device=table.device)[ids]  # [B, n, V]
        return torch.einsum("bnv,vd->bnd", hot, table) * table.shape[1] ** 0.5


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.d_model = d_model
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        rows = self.emb(ids)
        return rows * math.sqrt(self.d_model)


class PaddingIdx(nn.Module):
    """The width asked of the table itself, and the product written as an operation of torch."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(num_embeddings=vocab_size, embedding_dim=d_model, padding_idx=0)

    def forward(self, ids):
        return torch.mul(self.emb(ids), self.emb.embedding_dim**0.5)


class InPlace(nn.Module):
    """Scales the fresh rows in place; the table is left alone, so this is right."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)
        self.scale = d_model**0.5

    def forward(self, ids):
        out = self.emb(ids)
        out *= self.scale
        return out


class ScaledTable(nn.Module):
    """Scales a copy of the table and indexes that; the gradient passes through both."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        return (self.emb.weight * torch.tensor(float(self.emb.embedding_dim)).sqrt())[ids]


# ---- rows -------------------------------------------------------------------------------------------


def _sizes(draw: Draw) -> dict[str, int]:
    return draw.sizes(V=(11, 15), d=[5, 6, 7, 10], B=(2, 4), n=(3, 8))


def _ids(draw: Draw, sizes: dict[str, int], lowest: int = 0) -> torch.Tensor:
    """Return ids [B, n] that repeat one id and hold the smallest and the largest there is."""
    ids = draw.integers(lowest, sizes["V"] - 1, sizes["B"], sizes["n"])
    ids[0, 0], ids[0, 1], ids[-1, -1], ids[-1, 0] = sizes["V"] - 1, lowest, lowest + 2, lowest + 2
    return ids


def _make(sizes: dict[str, int]) -> dict:
    return {"args": [sizes["V"], sizes["d"]]}


def _case(draw: Draw, lowest: int = 0, sizes: dict[str, int] | None = None, **more) -> Case:
    sizes = sizes or _sizes(draw)
    weights = {"emb.weight": draw.normal(sizes["V"], sizes["d"])}
    call = {"args": [_ids(draw, sizes, lowest)]}
    return Case("module", {"make": _make(sizes), "weights": weights, "call": call, **more})


def _table(draw: Draw) -> list[Case]:
    return [Case("module", {"make": _make(_sizes(draw)), "keep": ["emb", "emb.weight"]})]


def _rows(draw: Draw) -> list[Case]:
    single = _case(draw)
    single.inputs["call"]["args"] = [single.inputs["call"]["args"][0][:1]]
    return [_case(draw), single, *_equal_sizes(draw)]


def _equal_sizes(draw: Draw) -> list[Case]:
    """Cases in which an axis cannot be told by its length: B = n = d, and V = d with a single token.

    The first is in train mode: nothing in this block is left to chance.
    """
    cube, square = draw.size(3, 5), draw.size(6, 9)
    token = _case(draw, sizes={"V": square, "d": square, "B": 2, "n": 2})
    token.inputs["call"]["args"] = [token.inputs["call"]["args"][0][:1, :1]]
    return [_case(draw, sizes={"V": 11, "d": cube, "B": cube, "n": cube}, mode="train"), token]


def _kept(draw: Draw) -> list[Case]:
    return [_case(draw, keep=["emb.weight"])]


def _gradient(draw: Draw) -> list[Case]:
    # No id 0 here: an nn.Embedding with padding_idx=0 is a right answer, too, and keeps row 0 from learning.
    some, every = _case(draw, lowest=1), _case(draw, lowest=1)
    every.inputs["call"]["args"] = [torch.arange(1, every.inputs["make"]["args"][0])[None]]
    for case in (some, every):
        ids, width = case.inputs["call"]["args"][0], case.inputs["make"]["args"][1]
        case.inputs["call"] |= {"wrt": ["weights"], "cotangents": [draw.normal(*ids.shape, width)]}
    return [some, every]


def _one(draw: Draw) -> list[Case]:
    return [_case(draw)]


ROWS = (
    Row(
        "table",
        "emb is a trainable nn.Embedding with vocab_size rows of d_model numbers, and nothing else is trained",
        _table,
        looks=("attr.emb", "parameters", "attr.emb.weight.requires_grad"),
        weight=2,
    ),
    Row(
        "rows",
        "forward(ids [B, n]) gives each id its row of emb, times √d_model: [B, n, d]",
        _rows,
        looks=("out",),
        weight=3,
    ),
    Row(
        "inputs kept",
        "neither ids nor the table is changed by a call",
        _kept,
        looks=("changed", "attr.emb.weight"),
        needs=("rows",),
    ),
    Row(
        "gradient",
        "the table learns: the gradient reaches the rows that were looked up",
        _gradient,
        looks=("grad.emb.weight",),
        needs=("rows",),
    ),
    rows.float64(_one, _("a float64 table gives a float64 output"), ("rows",), weight=0.5),
    rows.device(
        _one,
        _("new tensors are made where the table is, so that it also runs on a GPU"),
        ("rows",),
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "no √d",
        "The rows come back as they stand in the table: the factor √d_model is missing. "
        "Multiply in forward. (Scaling the table once in __init__ is not the same: training and loading change it later.)",
        "rows * math.sqrt(self.d_model)",
        "rows",
    ),
    edit(
        "divided",
        "The rows are divided by √d_model; they should be multiplied by it.",
        "rows * ",
        "rows / ",
    ),
    edit(
        "times d",
        "The factor is d_model; its square root is meant.",
        "math.sqrt(self.d_model)",
        "self.d_model",
    ),
    edit(
        "root of V",
        "The factor is √vocab_size. It should be √d_model, the root of the width of a row.",
        "math.sqrt(self.d_model)",
        "math.sqrt(self.emb.num_embeddings)",
    ),
    edit(
        "root of n",
        "The factor is √n, so it changes with the length of the sentence. It should be √d_model.",
        "math.sqrt(self.d_model)",
        "math.sqrt(ids.size(-1))",
    ),
    edit(
        "sizes swapped",
        "The two sizes are swapped: nn.Embedding takes the number of rows (vocab_size) first, then their width (d_model).",
        "nn.Embedding(vocab_size, d_model)",
        "nn.Embedding(d_model, vocab_size)",
    ),
    edit(
        "extra rows",
        "The table has four rows too many. vocab_size already counts the four special tokens.",
        "nn.Embedding(vocab_size, d_model)",
        "nn.Embedding(vocab_size + 4, d_model)",
    ),
    edit(
        "linear layer",
        "emb is an nn.Linear. Its product with one-hot vectors gives the same rows, but its weight is [d, V] "
        "and it multiplies V numbers to fetch one row. nn.Embedding does the lookup.",
        "nn.Embedding(vocab_size, d_model)",
        "nn.Linear(vocab_size, d_model, bias=False)",
        "self.emb(ids)",
        "self.emb(F.one_hot(ids, self.emb.in_features).to(self.emb.weight.dtype))",
    ),
    edit(
        "bare parameter",
        "emb is an nn.Parameter. Later chapters look for an nn.Embedding, whose table is emb.weight.",
        "nn.Embedding(vocab_size, d_model)",
        "nn.Parameter(torch.randn(vocab_size, d_model))",
        "self.emb(ids)",
        "self.emb[ids]",
    ),
    edit(
        "frozen",
        "The table is frozen (requires_grad is False), so training would never move it. "
        "nn.Embedding.from_pretrained freezes unless told otherwise; nn.Embedding(…, …) does not.",
        "nn.Embedding(vocab_size, d_model)",
        "nn.Embedding.from_pretrained(torch.randn(vocab_size, d_model))",
    ),
    edit(
        "past the gradient",
        "The numbers are right, but they were taken past autograd (.data, .detach() or no_grad), "
        "so no gradient reaches the table. Call self.emb(ids).",
        "self.emb(ids)",
        "self.emb.weight.data[ids]",
    ),
    edit(
        "scales the table",
        "Every call multiplies the table itself by √d_model, so it grows from call to call. "
        "Multiply the rows that come out, not the table.",
        "rows * math.sqrt(self.d_model)",
        "rows",
        "        rows =",
        "        self.emb.weight.data *= math.sqrt(self.d_model)\n        rows =",
    ),
    edit("adds √d", "√d_model is added to every number; multiply by it.", "rows * ", "rows + "),
    edit(
        "unit rows",
        "Every row is brought to one length first. The length of a row is learned, too: take the row as it is.",
        "self.emb(ids)",
        "F.normalize(self.emb(ids), dim=-1)",
    ),
    edit(
        "sum of tokens",
        "The rows of a sentence are summed into one. Each of the n tokens keeps a row of its own: [B, n, d].",
        "rows * math.sqrt(self.d_model)",
        "(rows * math.sqrt(self.d_model)).sum(dim=1)",
    ),
    edit(
        "mean of tokens",
        "The rows of a sentence are averaged into one. Each of the n tokens keeps a row of its own: [B, n, d].",
        "rows * math.sqrt(self.d_model)",
        "(rows * math.sqrt(self.d_model)).mean(dim=1)",
    ),
    edit(
        "one token",
        "Only the last token of each sentence comes back. All n tokens go on into the encoder: [B, n, d].",
        "rows * math.sqrt(self.d_model)",
        "rows[:, -1] * math.sqrt(self.d_model)",
    ),
    edit(
        "sequence first",
        "The output is [n, B, d]. In this course the batch comes first: [B, n, d].",
        "self.emb(ids)",
        "self.emb(ids).transpose(0, 1)",
    ),
    edit(
        "from one",
        "1 is taken off the ids. They already count from 0, and id 0 (<pad>) has row 0.",
        "self.emb(ids)",
        "self.emb(ids - 1)",
    ),
    edit(
        "square brackets",
        "A module is called with round brackets: self.emb(ids). (The bare tensor inside it is self.emb.weight.)",
        "self.emb(ids)",
        "self.emb[ids]",
    ),
    edit(
        "width forgotten",
        "forward does not know the names of __init__. Keep the width there (self.d_model = d_model), or ask the table: "
        "it has an attribute embedding_dim.",
        "math.sqrt(self.d_model)",
        "math.sqrt(d_model)",
    ),
    edit(
        "torch.sqrt",
        "torch.sqrt wants a tensor, and d_model is a plain number: math.sqrt takes it.",
        "math.sqrt(self.d_model)",
        "torch.sqrt(self.d_model)",
    ),
    edit(
        "on the CPU",
        "The factor is a tensor that your code makes on the CPU, whatever device the table is on. A plain number "
        "works everywhere: math.sqrt.",
        "math.sqrt(self.d_model)",
        "torch.sqrt(torch.tensor([self.d_model]))",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="1.1",
    symbol="TokenEmbedding",
    kind="module class",
    parameters=("vocab_size", "d_model"),
    points=5,
    todos=("1.1", "1.2"),
    rows=ROWS,
    reference=Reference,
    answer=TokenEmbedding,
    mistakes=MISTAKES,
    alternatives=(PaddingIdx, InPlace, ScaledTable),
    spoken={
        "parameters": _("the list of parameters"),
        "attr.emb": _("the attribute emb"),
        "attr.emb.weight.requires_grad": _("emb.weight.requires_grad"),
        "attr.emb.weight": _("emb.weight after the call"),
        "out": _("forward(ids)"),
        "grad.emb.weight": _("the gradient of emb.weight"),
    },
    hints={
        "1.1": (
            _(
                "You need a table with one row of numbers for each word of the vocabulary. Which class of torch.nn "
                "is one?"
            ),
            _("The table has the shape [V, d]: vocab_size rows, each d_model numbers wide."),
            _(
                "self.emb = the lookup table of torch.nn, made with the number of rows, then the width of a row"
            ),
        ),
        "1.2": (
            _("A module is called like a function. What does your table give when you call it with ids?"),
            _("ids [B, n] → rows [B, n, d]. The factor is one number, the same for every token."),
            _(
                "return (the table, called with ids) times the square root of d; a table of torch knows its own "
                "width"
            ),
        ),
    },
)
