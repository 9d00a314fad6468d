"""2.1 PositionalEncoding: a table of sines and cosines, a code for each position, added to the tokens."""

from __future__ import annotations

import math

import numpy as np
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
    """The codes computed by numpy from complex exponentials: e^(i·pos·θ) = cos + i·sin."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        theta = np.power(10000.0, -np.arange(0, d_model, 2) / d_model)
        wave = np.exp(1j * np.outer(np.arange(max_len), theta))  # [max_len, d / 2]
        table = np.stack([wave.imag, wave.real], axis=-1).reshape(max_len, d_model)
        self.register_buffer("pe", torch.tensor(table, dtype=torch.float32))

    def forward(self, x):
        return x + self.pe[: x.shape[-2]].to(x.dtype)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        even = torch.arange(0, d_model, 2)
        divisor = 10000.0 ** (even / d_model)
        angles = torch.arange(max_len)[:, None] / divisor  # [max_len, d / 2]
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(angles)
        pe[:, 1::2] = torch.cos(angles)
        self.register_buffer("pe", pe)

    def forward(self, x):
        n = x.size(1)
        return x + self.pe[:n].to(x.dtype)


class ExpOfLog(nn.Module):
    """θ through exp and log, as many published versions write it; the table keeps a batch axis inside."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        divisor = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * divisor)
        pe[:, 1::2] = torch.cos(position * divisor)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1), :].unsqueeze(0).to(x.dtype)


class StackAndFlatten(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        theta = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        angles = torch.outer(torch.arange(max_len).float(), theta)
        table = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
        self.register_buffer("pe", table, persistent=False)

    def forward(self, x):
        return torch.add(x, self.pe.narrow(0, 0, x.shape[1]).to(x))


class PlainLoops(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        rows = [
            [math.sin(p / 10000 ** (j / d_model)) if j % 2 == 0 else math.cos(p / 10000 ** ((j - 1) / d_model))
             for j in range(d_model)]
            for p in range(max_len)
        ]  # fmt: skip
        self.register_buffer("pe", torch.tensor(rows))

    def forward(self, x):
        return x + self.pe.type_as(x)[torch.arange(x.size(1), device=x.device)]


# ---- rows -------------------------------------------------------------------------------------------


def _make(draw: Draw) -> dict:
    sizes = draw.sizes(d=[8, 10, 12, 14], length=(21, 29))
    return {"args": [sizes["d"], sizes["length"]]}


def _table(draw: Draw) -> list[Case]:
    square = {"args": [8, 8]}  # max_len = d
    return [Case("module", {"make": make, "keep": ["pe"]}) for make in (_make(draw), square)]


def _default_length(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [4]}})]


def _case(draw: Draw, batch: int = 0) -> Case:
    make = _make(draw)
    sizes = draw.sizes(B=(2, 4), n=(5, 7))
    x = draw.normal(batch or sizes["B"], sizes["n"], make["args"][0])
    return Case("module", {"make": make, "call": {"args": [x]}})


def _one(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _twice(draw: Draw) -> list[Case]:
    return [_case(draw), _case(draw, batch=1)]


def _equal(draw: Draw, d: int, max_len: int, *front: int) -> Case:
    """A case in which two axes are equal: what guesses an axis by its length goes wrong elsewhere."""
    return Case("module", {"make": {"args": [d, max_len]}, "call": {"args": [draw.normal(*front, d)]}})


def _sum(draw: Draw) -> list[Case]:
    sizes = [(8, 20, 5, 5), (6, 20, 3, 6), (6, 20, 6, 3), (6, 6, 2, 6), (6, 6, 6, 6)]  # d, max_len, B, n
    return [*_twice(draw), *(_equal(draw, *some) for some in sizes)]


def _gradient(draw: Draw) -> list[Case]:
    case = _case(draw)
    x = case.inputs["call"]["args"][0]
    case.inputs["call"] |= {"wrt": ["0"], "cotangents": [draw.normal(*x.shape)]}
    return [case]


ROWS = (
    Row(
        "codes",
        "pe [max_len, d_model] holds sin(pos·θ_i) in even columns and cos(pos·θ_i) in odd ones",
        _table,
        looks=("attr.pe",),
        weight=3,
    ),
    Row(
        "nothing to train",
        "pe is a buffer and the module has no parameters",
        _table,
        looks=("parameters", "buffers"),
        needs=("codes",),
    ),
    Row(
        "default length",
        "max_len is 5000 when it is not given",
        _default_length,
        looks=("buffers",),
        needs=("codes",),
    ),
    Row("sum", "forward(x) is x + pe[:n]", _sum, looks=("out",), weight=3),
    rows.input_kept(_twice, needs=("sum",)),
    Row("gradient", "the gradient reaches x unchanged", _gradient, looks=("grad.0",), needs=("sum",)),
    rows.float64(_one, needs=("sum",), weight=0.5),
    rows.device(_one, needs=("sum",), weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "i for 2i",
        "The exponent grows by i/d where 2i/d is meant: your slowest wave turns too fast. "
        "For d = 8 the four exponents are 0/8, 2/8, 4/8, 6/8, not 0/8, 1/8, 2/8, 3/8.",
        "torch.arange(0, d_model, 2)",
        "torch.arange(d_model // 2)",
    ),
    edit(
        "2i doubled",
        "The even indices are already 2i. You doubled them once more, so the exponents run to almost 2.",
        "(even / d_model)",
        "(2 * even / d_model)",
    ),
    edit("base 1000", "The base is 10000; yours is 1000.", "10000.0", "1000.0"),
    edit(
        "base 10",
        "The base is 10, not 10000: even the slowest wave turns so fast that far positions look alike again.",
        "10000.0",
        "10.0",
    ),
    edit(
        "odd indices",
        "You count the odd columns 1, 3, 5, …; 2i are the even ones: 0, 2, 4, ….",
        "torch.arange(0, d_model, 2)",
        "torch.arange(1, d_model, 2)",
    ),
    edit(
        "no cosine",
        "The odd columns are still 0. They need the cosine of the same angles.",
        "        pe[:, 1::2] = torch.cos(angles)\n",
        "",
    ),
    edit(
        "cosine over sine",
        "The cosine stands in the even columns, on top of the sine, and the odd columns are still 0. "
        "Odd columns are pe[:, 1::2].",
        "1::2",
        "0::2",
    ),
    edit(
        "no divisor",
        "The position is divided by nothing, or by 1, so every column pair turns at the same speed. "
        "(two_i // d_model rounds every exponent down to 0; use /.)",
        "even / d_model",
        "even // d_model",
    ),
    edit(
        "multiplied",
        "The position is multiplied by 10000^(2i/d); it should be divided by it. "
        "High dimensions must turn slowly, and yours turn fastest.",
        "[:, None] / divisor",
        "[:, None] * divisor",
    ),
    edit(
        "halves",
        "All sines stand in the first half and all cosines in the second. "
        "Here they take turns: sin in columns 0, 2, 4, …, cos in columns 1, 3, 5, ….",
        "0::2",
        ": d_model // 2",
        "1::2",
        "d_model // 2 :",
    ),
    edit(
        "swapped",
        "Sine and cosine are swapped: even columns hold the sine.",
        "0::2] = torch.sin",
        "0::2] = torch.cos",
        "1::2] = torch.cos",
        "1::2] = torch.sin",
    ),
    edit(
        "only sine",
        "The odd columns hold the sine again. They need the cosine of the same angle.",
        "torch.cos",
        "torch.sin",
    ),
    edit(
        "from one",
        "Your positions start at 1. The first token has position 0.",
        "torch.arange(max_len)",
        "torch.arange(1, max_len + 1)",
    ),
    edit(
        "trainable",
        "pe is an nn.Parameter, so training would change it. It is a fixed code: "
        'self.register_buffer("pe", …) keeps it with the module and out of training.',
        'self.register_buffer("pe", pe)',
        "self.pe = nn.Parameter(pe)",
    ),
    edit(
        "plain attribute",
        "pe is a plain attribute: model.to(device) would leave it behind and state_dict would forget it. "
        'Use self.register_buffer("pe", …).',
        'self.register_buffer("pe", pe)',
        "self.pe = pe",
    ),
    edit(
        "slice by batch",
        "The codes are cut by x.size(0), which is the batch size B. "
        "x is [B, n, d], so the number of tokens n is x.size(1).",
        "x.size(1)",
        "x.size(0)",
    ),
    edit(
        "slice by width",
        "The codes are cut by the width d (x.size(-1)). The number of tokens n is x.size(1).",
        "x.size(1)",
        "x.size(-1)",
    ),
    edit("all rows", "All max_len codes are added; only the first n belong to the n tokens.", "[:n]", ""),
    edit(
        "one row",
        "One row of pe (that of position n) is added to every token. Each token needs the row of its own "
        "position: pe[:n], not pe[n].",
        "[:n]",
        "[n]",
    ),
    edit("last rows", "The last n codes are added; the first token has position 0.", "[:n]", "[-n:]"),
    edit(
        "replaces",
        "The output is the code alone: x is gone, and with it every word. Add the code to x.",
        "x + self.pe[:n].to(x.dtype)",
        "self.pe[:n].expand(x.shape)",
    ),
    edit("multiplies", "The code is multiplied with x. The paper adds it.", "x +", "x *"),
    edit(
        "scales too",
        "x is multiplied by √d here. TokenEmbedding has done that already (chapter 01).",
        "x +",
        "x * math.sqrt(x.size(-1)) +",
    ),
    edit(
        "in place",
        "x += … changes the caller's tensor. Make a new one: return x + ….",
        "return x + self.pe[:n].to(x.dtype)",
        "x += self.pe[:n].to(x.dtype)\n        return x",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="2.1",
    symbol="PositionalEncoding",
    kind="module class",
    parameters=("d_model", "max_len"),
    points=8,
    todos=("2.1", "2.2", "2.3", "2.4"),
    rows=ROWS,
    reference=Reference,
    answer=PositionalEncoding,
    mistakes=MISTAKES,
    alternatives=(ExpOfLog, StackAndFlatten, PlainLoops),
    spoken={
        "attr.pe": _("pe"),
        "attr.pe.requires_grad": _("pe.requires_grad"),
        "out": _("forward(x)"),
        "grad.0": _("the gradient of x"),
    },
    hints={
        "2.1": (
            _(
                "Columns 0 and 1 share one frequency, columns 2 and 3 the next. Which column numbers start a pair?"
            ),
            _("For d = 8 you need the tensor [0, 2, 4, 6]: shape [d / 2]."),
            _("torch.arange(start, stop, step) with the step that skips every other number."),
        ),
        "2.2": (
            _("Which column pair must turn slowest, and what must the position be divided by for that?"),
            _("The exponents 2i/d have shape [d / 2]; 10000 to their power has shape [d / 2] too."),
            _("divisor = base raised to (the even indices, divided by d_model)"),
        ),
        "2.3": (
            _("How do you get an angle for every position and every frequency at once?"),
            _("positions [max_len, 1] / divisor [d / 2] → angles [max_len, d / 2]; pe is [max_len, d]."),
            _("Fill every second column of pe, from 0, with the sine of the angles; from 1 with the cosine."),
        ),
        "2.4": (
            _("x has n tokens and pe has max_len rows. Which rows belong to these tokens?"),
            _("x [B, n, d] + something of shape [n, d] → [B, n, d], by broadcasting over the batch."),
            _("n = the size of x along its token axis; return x plus the first n rows of pe"),
        ),
    },
)
