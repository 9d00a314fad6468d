"""Chapter 02, positional encoding: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.probes.core import Case

CHAPTER = "02_positional_encoding"


# ---- 2.1 to 2.4 PositionalEncoding ------------------------------------------------------------------


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


class Variant(nn.Module):
    """The usual code with every step in a method of its own, so that a mistake changes one step."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.keep(self.table(d_model, max_len))

    def keep(self, table):
        self.register_buffer("pe", table)

    def exponent(self, d_model):
        return torch.arange(0, d_model, 2).float() / d_model

    def angles(self, d_model, max_len):
        positions = torch.arange(max_len).float()[:, None]
        return positions / 10000 ** self.exponent(d_model)  # [max_len, d / 2]

    def table(self, d_model, max_len):
        angles = self.angles(d_model, max_len)
        table = torch.zeros(max_len, d_model)
        table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
        return table

    def rows(self, x):
        return self.pe[: x.size(1)]

    def forward(self, x):
        return x + self.rows(x)


class IForTwoI(Variant):
    def exponent(self, d_model):
        return torch.arange(0, d_model // 2).float() / d_model


class TwiceTwoI(Variant):
    def exponent(self, d_model):
        return 2 * torch.arange(0, d_model, 2).float() / d_model


class Base10(Variant):
    def angles(self, d_model, max_len):
        return torch.arange(max_len).float()[:, None] / 10 ** self.exponent(d_model)


class OddIndices(Variant):
    def exponent(self, d_model):
        return torch.arange(1, d_model, 2).float() / d_model


class NoCosine(Variant):
    def table(self, d_model, max_len):
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = self.angles(d_model, max_len).sin()
        return table


class CosineOverSine(Variant):
    def table(self, d_model, max_len):
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = self.angles(d_model, max_len).cos()
        return table


class Base1000(Variant):
    def angles(self, d_model, max_len):
        return torch.arange(max_len).float()[:, None] / 1000 ** self.exponent(d_model)


class NoDivisor(Variant):
    def angles(self, d_model, max_len):
        return torch.arange(max_len).float()[:, None].expand(max_len, d_model // 2)


class TimesDivisor(Variant):
    def angles(self, d_model, max_len):
        return torch.arange(max_len).float()[:, None] * 10000 ** self.exponent(d_model)


class Halves(Variant):
    def table(self, d_model, max_len):
        angles = self.angles(d_model, max_len)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class SinCosSwapped(Variant):
    def table(self, d_model, max_len):
        angles = self.angles(d_model, max_len)
        table = torch.zeros(max_len, d_model)
        table[:, 0::2], table[:, 1::2] = angles.cos(), angles.sin()
        return table


class OnlySin(Variant):
    def table(self, d_model, max_len):
        angles = self.angles(d_model, max_len)
        return angles.sin().repeat_interleave(2, dim=-1)


class FromOne(Variant):
    def angles(self, d_model, max_len):
        return torch.arange(1, max_len + 1).float()[:, None] / 10000 ** self.exponent(d_model)


class Trainable(Variant):
    def keep(self, table):
        self.pe = nn.Parameter(table)


class PlainAttribute(Variant):
    def keep(self, table):
        self.pe = table


class SliceByBatch(Variant):
    def rows(self, x):
        return self.pe[: x.size(0)]


class SliceByWidth(Variant):
    def rows(self, x):
        return self.pe[: x.size(-1)]


class AddsAll(Variant):
    def rows(self, x):
        return self.pe


class Replaces(Variant):
    def forward(self, x):
        return self.rows(x).expand(x.shape).clone()


class OneRow(Variant):
    """Adds the code of position n to every token."""

    def rows(self, x):
        return self.pe[x.size(1)]


class Multiplies(Variant):
    def forward(self, x):
        return x * self.rows(x)


class ScalesToo(Variant):
    def forward(self, x):
        return x * math.sqrt(x.size(-1)) + self.rows(x)


class InPlace(Variant):
    def forward(self, x):
        x += self.rows(x)
        return x


class LastRows(Variant):
    def rows(self, x):
        return self.pe[-x.size(1) :]


class WithExp(nn.Module):
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


class WithStack(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        angles = torch.outer(
            torch.arange(max_len).float(), 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        )
        self.register_buffer(
            "pe", torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1), persistent=False
        )

    def forward(self, x):
        return torch.add(x, self.pe.narrow(0, 0, x.shape[1]).to(x))


class WithLoops(nn.Module):
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


def _make(draw: Draw) -> dict:
    sizes = draw.sizes(d=[8, 10, 12, 14], length=(21, 29))
    return {"args": [sizes["d"], sizes["length"]]}


def _table_cases(draw: Draw) -> list[Case]:
    return [Case("module", {"make": _make(draw), "keep": ["pe"]})]


def _default_length_cases(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [4]}})]


def _forward_case(draw: Draw, dtype: torch.dtype = torch.float32, batch: int | None = None) -> Case:
    make = _make(draw)
    sizes = draw.sizes(B=(2, 4), n=(5, 7))
    x = draw.normal(batch or sizes["B"], sizes["n"], make["args"][0], dtype=dtype)
    return Case("module", {"make": make, "call": {"args": [x]}})


def _forward_cases(draw: Draw) -> list[Case]:
    return [_forward_case(draw), _forward_case(draw, batch=1)]


def _gradient_cases(draw: Draw) -> list[Case]:
    case = _forward_case(draw)
    x = case.inputs["call"]["args"][0]
    case.inputs["call"] |= {"wrt": ["0"], "cotangents": [draw.normal(*x.shape)]}
    return [case]


def _float64_cases(draw: Draw) -> list[Case]:
    case = _forward_case(draw, dtype=torch.float64)
    return [Case("module", case.inputs | {"dtype": "float64"})]


_PE = {"attr.pe": "pe", "attr.pe.requires_grad": "pe.requires_grad", "out": "forward(x)"}

POSITIONAL = Exercise(
    id="2.1",
    symbol="PositionalEncoding",
    kind="module class",
    parameters=("d_model", "max_len"),
    points=8,
    todos=("2.1", "2.2", "2.3", "2.4"),
    rows=(
        Row(
            "codes",
            "pe [max_len, d_model] holds sin(pos·θ_i) in even columns and cos(pos·θ_i) in odd ones",
            _table_cases,
            looks=("attr.pe",),
            weight=3,
            spoken=_PE,
        ),
        Row(
            "nothing to train",
            "pe is a buffer and the module has no parameters",
            _table_cases,
            looks=("parameters", "buffers"),
            needs=("codes",),
            spoken=_PE,
        ),
        Row(
            "default length",
            "max_len is 5000 when it is not given",
            _default_length_cases,
            looks=("buffers",),
            needs=("codes",),
        ),
        Row("sum", "forward(x) is x + pe[:n]", _forward_cases, looks=("out",), weight=3, spoken=_PE),
        Row("input kept", "x itself is left unchanged", _forward_cases, looks=("changed",), needs=("sum",)),
        Row(
            "gradient",
            "the gradient reaches x unchanged",
            _gradient_cases,
            looks=("grad.0",),
            needs=("sum",),
            spoken={"grad.0": "the gradient of x"},
        ),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            _float64_cases,
            looks=("out",),
            needs=("sum",),
            spoken=_PE,
        ),
    ),
    reference=Reference,
    misconceptions=(
        Wrong(
            "i for 2i",
            "The exponent grows by i/d where 2i/d is meant: your slowest wave turns too fast. "
            "For d = 8 the four exponents are 0/8, 2/8, 4/8, 6/8, not 0/8, 1/8, 2/8, 3/8.",
            IForTwoI,
        ),
        Wrong(
            "2i doubled",
            "The even indices are already 2i. You doubled them once more, so the exponents run to almost 2.",
            TwiceTwoI,
        ),
        Wrong("base 1000", "The base is 10000; yours is 1000.", Base1000),
        Wrong(
            "base 10",
            "The base is 10, not 10000: even the slowest wave turns so fast that far positions look alike again.",
            Base10,
        ),
        Wrong(
            "odd indices",
            "You count the odd columns 1, 3, 5, …; 2i are the even ones: 0, 2, 4, ….",
            OddIndices,
        ),
        Wrong("no cosine", "The odd columns are still 0. They need the cosine of the same angles.", NoCosine),
        Wrong(
            "cosine over sine",
            "The cosine stands in the even columns, on top of the sine, and the odd columns are still 0. "
            "Odd columns are pe[:, 1::2].",
            CosineOverSine,
        ),
        Wrong(
            "no divisor",
            "The position is divided by nothing, or by 1, so every column pair turns at the same speed. "
            "(two_i // d_model rounds every exponent down to 0; use /.)",
            NoDivisor,
        ),
        Wrong(
            "multiplied",
            "The position is multiplied by 10000^(2i/d); it should be divided by it. "
            "High dimensions must turn slowly, and yours turn fastest.",
            TimesDivisor,
        ),
        Wrong(
            "halves",
            "All sines stand in the first half and all cosines in the second. "
            "Here they take turns: sin in columns 0, 2, 4, …, cos in columns 1, 3, 5, ….",
            Halves,
        ),
        Wrong("swapped", "Sine and cosine are swapped: even columns hold the sine.", SinCosSwapped),
        Wrong(
            "only sine",
            "The odd columns hold the sine again. They need the cosine of the same angle.",
            OnlySin,
        ),
        Wrong("from one", "Your positions start at 1. The first token has position 0.", FromOne),
        Wrong(
            "trainable",
            "pe is an nn.Parameter, so training would change it. It is a fixed code: "
            'self.register_buffer("pe", …) keeps it with the module and out of training.',
            Trainable,
        ),
        Wrong(
            "plain attribute",
            "pe is a plain attribute: model.to(device) would leave it behind and state_dict would forget it. "
            'Use self.register_buffer("pe", …).',
            PlainAttribute,
        ),
        Wrong(
            "slice by batch",
            "The codes are cut by x.size(0), which is the batch size B. "
            "x is [B, n, d], so the number of tokens n is x.size(1).",
            SliceByBatch,
        ),
        Wrong(
            "slice by width",
            "The codes are cut by the width d (x.size(-1)). The number of tokens n is x.size(1).",
            SliceByWidth,
        ),
        Wrong("all rows", "All max_len codes are added; only the first n belong to the n tokens.", AddsAll),
        Wrong(
            "one row",
            "One row of pe (that of position n) is added to every token. Each token needs the row of its own "
            "position: pe[:n], not pe[n].",
            OneRow,
        ),
        Wrong("last rows", "The last n codes are added; the first token has position 0.", LastRows),
        Wrong(
            "replaces",
            "The output is the code alone: x is gone, and with it every word. Add the code to x.",
            Replaces,
        ),
        Wrong("multiplies", "The code is multiplied with x. The paper adds it.", Multiplies),
        Wrong(
            "scales too",
            "x is multiplied by √d here. TokenEmbedding has done that already (chapter 01).",
            ScalesToo,
        ),
        Wrong(
            "in place",
            "x += … changes the caller's tensor. Make a new one: return x + ….",
            InPlace,
        ),
    ),
    alternatives={"exp of log": WithExp, "stack and flatten": WithStack, "plain loops": WithLoops},
    hints={
        "2.1": (
            "Columns 0 and 1 share one frequency, columns 2 and 3 the next. Which column numbers start a pair?",
            "For d = 8 you need the tensor [0, 2, 4, 6]: shape [d / 2].",
            "torch.arange(start, stop, step) with the step that skips every other number.",
        ),
        "2.2": (
            "Which column pair must turn slowest, and what must the position be divided by for that?",
            "The exponents 2i/d have shape [d / 2]; 10000 to their power has shape [d / 2] too.",
            "divisor = base raised to (the even indices, divided by d_model)",
        ),
        "2.3": (
            "How do you get an angle for every position and every frequency at once?",
            "positions [max_len, 1] / divisor [d / 2] → angles [max_len, d / 2]; pe is [max_len, d].",
            "Fill every second column of pe, from 0, with the sine of the angles; from 1 with the cosine.",
        ),
        "2.4": (
            "x has n tokens and pe has max_len rows. Which rows belong to these tokens?",
            "x [B, n, d] + something of shape [n, d] → [B, n, d], by broadcasting over the batch.",
            "n = the size of x along its token axis; return x plus the first n rows of pe",
        ),
    },
)


# ---- 2.5 position_similarity ------------------------------------------------------------------------


def reference_similarity(d_model, offsets):
    theta = np.exp(-np.log(10000.0) * np.arange(d_model // 2) * 2 / d_model)
    dots = np.cos(np.multiply.outer(offsets.numpy().astype(np.float64), theta)).sum(axis=-1)
    return torch.tensor(
        dots, dtype=torch.get_default_dtype() if not offsets.is_floating_point() else offsets.dtype
    )


def _similarity(d_model, offsets, exponent=2.0, wave=torch.cos, reduce=torch.sum):
    theta = 10000.0 ** (-exponent * torch.arange(d_model // 2) / d_model)
    return reduce(wave(offsets[:, None].to(torch.get_default_dtype()) * theta), dim=-1)


def similarity_i(d_model, offsets):
    return _similarity(d_model, offsets, exponent=1.0)


def similarity_sin(d_model, offsets):
    return _similarity(d_model, offsets, wave=torch.sin)


def similarity_mean(d_model, offsets):
    return _similarity(d_model, offsets, reduce=torch.mean)


def similarity_all_columns(d_model, offsets):
    theta = 10000.0 ** (-torch.arange(d_model) / d_model)
    return torch.cos(offsets[:, None].float() * theta).sum(-1)


def similarity_squared(d_model, offsets):
    theta = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.cos(offsets[:, None].float() * theta).square().sum(-1)


def similarity_over_offsets(d_model, offsets):
    theta = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.cos(offsets[:, None].float() * theta).sum(0)


def similarity_no_theta(d_model, offsets):
    return d_model / 2 * torch.cos(offsets.float())


def similarity_normed(d_model, offsets):
    return _similarity(d_model, offsets) / math.sqrt(d_model)


def similarity_by_codes(d_model, offsets):
    codes = Reference(d_model, int(offsets.max()) + 1).pe
    return (codes[offsets] * codes[0]).sum(-1)


def similarity_einsum(d_model, offsets):
    theta = torch.exp(-math.log(10000.0) / d_model * torch.arange(0, d_model, 2))
    return torch.einsum("kj->k", torch.cos(torch.outer(offsets.float(), theta)))


def similarity_loop(d_model, offsets):
    sums = [sum(math.cos(int(k) / 10000 ** (2 * i / d_model)) for i in range(d_model // 2)) for k in offsets]
    return torch.tensor(sums)


def _similarity_cases(draw: Draw) -> list[Case]:
    sizes = draw.sizes(d=[8, 10, 14, 20], K=(5, 7))
    return [Case("function", {"args": [sizes["d"], draw.integers(1, 40, sizes["K"])]})]


def _zero_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.choice([6, 12, 18]), torch.tensor([0])]})]


SIMILARITY = Exercise(
    id="2.5",
    symbol="position_similarity",
    kind="function",
    parameters=("d_model", "offsets"),
    points=3,
    todos=("2.5",),
    rows=(
        Row(
            "sum of cosines",
            "the result [K] is Σ_i cos(offset·θ_i)",
            _similarity_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "distance 0",
            "at offset 0 it is d/2, its largest value",
            _zero_cases,
            looks=("out",),
            needs=("sum of cosines",),
        ),
    ),
    reference=reference_similarity,
    misconceptions=(
        Wrong("i for 2i", "θ_i uses i/d where 2i/d is meant.", similarity_i),
        Wrong("sine", "You summed sines. sin a·sin b + cos a·cos b is the cosine of a − b.", similarity_sin),
        Wrong("mean", "This is the mean over the frequencies; a dot product is their sum.", similarity_mean),
        Wrong(
            "d frequencies",
            "You summed over d frequencies. Two columns share one, so there are d/2 of them.",
            similarity_all_columns,
        ),
        Wrong(
            "squared",
            "The cosines are squared before they are summed; the formula has no square.",
            similarity_squared,
        ),
        Wrong(
            "over offsets",
            "You summed over the offsets and kept the frequencies. Sum over the last axis, the frequencies.",
            similarity_over_offsets,
        ),
        Wrong(
            "one frequency",
            "Every term uses the same frequency 1. Each i has its own θ_i.",
            similarity_no_theta,
        ),
        Wrong("divided by √d", "A plain dot product is not divided by √d.", similarity_normed),
    ),
    alternatives={
        "from the codes": similarity_by_codes,
        "einsum": similarity_einsum,
        "plain loops": similarity_loop,
    },
    hints={
        "2.5": (
            "A code's dot product with another is Σ (sin a sin b + cos a cos b). What single function is that?",
            "offsets [K] and θ [d / 2] → angles [K, d / 2] → sum over the last axis → [K].",
            "theta = as in 2.2; return the sum, over the last axis, of the cosine of (offsets as a column × theta)",
        )
    },
)


# ---- 2.6 shift_matrix -------------------------------------------------------------------------------


def reference_shift(k, d_model):
    """Block-diagonal rotations from complex multiplication by e^(i·k·θ)."""
    turn = np.exp(1j * k * np.power(10000.0, -np.arange(0, d_model, 2) / d_model))
    blocks = [
        torch.tensor([[z.real, z.imag], [-z.imag, z.real]], dtype=torch.get_default_dtype()) for z in turn
    ]
    return torch.block_diag(*blocks)


def _shift(k, d_model, exponent=2.0, block=None):
    angles = k * 10000.0 ** (-exponent * torch.arange(d_model // 2) / d_model)
    block = block or (lambda c, s: [[c, s], [-s, c]])
    return torch.block_diag(*[torch.tensor(block(math.cos(a), math.sin(a))) for a in angles])


def shift_transposed(k, d_model):
    return _shift(k, d_model, block=lambda c, s: [[c, -s], [s, c]])


def shift_i(k, d_model):
    return _shift(k, d_model, exponent=1.0)


def shift_halves(k, d_model):
    angles = k * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    c, s = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([c, s], 1), torch.cat([-s, c], 1)])


def shift_cos_first(k, d_model):
    return _shift(k, d_model, block=lambda c, s: [[s, c], [c, -s]])


def shift_one(k, d_model):
    return _shift(1, d_model)


def shift_no_minus(k, d_model):
    return _shift(k, d_model, block=lambda c, s: [[c, s], [s, c]])


def shift_same_angle(k, d_model):
    c, s = math.cos(k), math.sin(k)
    return torch.block_diag(*[torch.tensor([[c, s], [-s, c]])] * (d_model // 2))


def shift_permutes(k, d_model):
    return torch.eye(d_model).roll(k, dims=0)


def shift_diagonal(k, d_model):
    return _shift(k, d_model, block=lambda c, s: [[c, 0.0], [0.0, c]])


def shift_indexed(k, d_model):
    angles = k / 10000.0 ** (torch.arange(0, d_model, 2) / d_model)
    matrix = torch.zeros(d_model, d_model)
    even = torch.arange(0, d_model, 2)
    matrix[even, even] = matrix[even + 1, even + 1] = angles.cos()
    matrix[even, even + 1] = angles.sin()
    matrix[even + 1, even] = -angles.sin()
    return matrix


def shift_exponential(k, d_model):
    generator = torch.zeros(d_model, d_model)
    for j in range(0, d_model, 2):
        generator[j, j + 1] = k / 10000.0 ** (j / d_model)
        generator[j + 1, j] = -generator[j, j + 1]
    return torch.linalg.matrix_exp(generator)


def shift_kron(k, d_model):
    angles = k * torch.exp(-math.log(10000.0) / d_model * torch.arange(0, d_model, 2))
    cos = torch.kron(torch.diag(angles.cos()), torch.eye(2))
    return cos + torch.kron(torch.diag(angles.sin()), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))


def _shift_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.size(2, 6), draw.choice([8, 10, 12])]})]


def _shift_zero_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [0, draw.choice([4, 6])]})]


def _shift_back_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [-draw.size(2, 6), draw.choice([6, 8])]})]


SHIFT = Exercise(
    id="2.6",
    symbol="shift_matrix",
    kind="function",
    parameters=("k", "d_model"),
    points=4,
    todos=("2.6",),
    rows=(
        Row(
            "moves by k",
            "R [d, d] turns pe[p] into pe[p + k] for every p",
            _shift_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "k = 0", "for k = 0 it is the identity", _shift_zero_cases, looks=("out",), needs=("moves by k",)
        ),
        Row("backwards", "a negative k moves back", _shift_back_cases, looks=("out",), needs=("moves by k",)),
    ),
    reference=reference_shift,
    misconceptions=(
        Wrong(
            "turns back",
            "This matrix moves by −k: the signs of the two sines are swapped. "
            "sin(a + b) = cos b · sin a + sin b · cos a, so the first row of a block is [cos, sin].",
            shift_transposed,
        ),
        Wrong("i for 2i", "θ_i uses i/d where 2i/d is meant.", shift_i),
        Wrong(
            "halves",
            "This fits codes with all sines in front. Here sine and cosine take turns, "
            "so each 2×2 block stands on the diagonal, over columns 2i and 2i + 1.",
            shift_halves,
        ),
        Wrong(
            "cosine first",
            "The blocks expect the cosine in the even column; the sine stands there.",
            shift_cos_first,
        ),
        Wrong("always by 1", "k is not used: this matrix always moves by 1.", shift_one),
        Wrong(
            "no minus",
            "One sine needs a minus sign: cos(a + b) = cos a · cos b − sin a · sin b.",
            shift_no_minus,
        ),
        Wrong(
            "one angle", "Every block turns by the same angle k. Block i turns by k·θ_i.", shift_same_angle
        ),
        Wrong(
            "permutation",
            "Shifting rows of the identity moves features, not positions. A position moves by rotating each pair.",
            shift_permutes,
        ),
        Wrong(
            "only cosines",
            "The sines beside the diagonal are missing, so a pair shrinks and does not turn.",
            shift_diagonal,
        ),
    ),
    alternatives={
        "index assignment": shift_indexed,
        "matrix exponential": shift_exponential,
        "kron": shift_kron,
    },
    hints={
        "2.6": (
            "Write sin((p + k)θ) with the addition theorem. Which two numbers of pe[p] does it need?",
            "Block i is 2×2, over rows and columns 2i and 2i + 1; all blocks together are [d, d].",
            "for each i: put [[cos kθ_i, sin kθ_i], [−sin kθ_i, cos kθ_i]] on the diagonal, starting at 2i",
        )
    },
)


# ---- 2.7 LearnedPositionalEncoding ------------------------------------------------------------------


class ReferenceLearned(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.pos = nn.Embedding(max_len, d_model)

    def forward(self, x):
        n = x.shape[1]
        if n > self.pos.num_embeddings:
            raise ValueError(f"{n} tokens, but only {self.pos.num_embeddings} positions")
        return x + nn.functional.embedding(torch.arange(n), self.pos.weight)


class LearnedVariant(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.pos = nn.Embedding(max_len, d_model)

    def ids(self, x):
        n = x.size(1)
        if n > self.pos.num_embeddings:
            raise ValueError("too long")
        return torch.arange(n, device=x.device)

    def forward(self, x):
        return x + self.pos(self.ids(x))


class LearnedNoError(LearnedVariant):
    def ids(self, x):
        return torch.arange(x.size(1))


class LearnedClamps(LearnedVariant):
    def ids(self, x):
        return torch.arange(x.size(1)).clamp(max=self.pos.num_embeddings - 1)


class LearnedByBatch(LearnedVariant):
    def ids(self, x):
        return torch.arange(x.size(0), device=x.device)


class LearnedOffByOne(LearnedVariant):
    def ids(self, x):
        if x.size(1) >= self.pos.num_embeddings:
            raise ValueError("too long")
        return torch.arange(x.size(1))


class LearnedFromOne(LearnedVariant):
    def ids(self, x):
        return super().ids(x) + 1


class LearnedReplaces(LearnedVariant):
    def forward(self, x):
        return self.pos(self.ids(x)).expand(x.shape)


class LearnedFrozen(LearnedVariant):
    def forward(self, x):
        return x + self.pos(self.ids(x)).detach()


class LearnedSwapped(LearnedVariant):
    def __init__(self, d_model, max_len):
        super().__init__(max_len, d_model)


class LearnedSlices(LearnedVariant):
    def forward(self, x):
        self.ids(x)
        return x + self.pos.weight[: x.shape[1]]


class LearnedByOneHot(LearnedVariant):
    def forward(self, x):
        one_hot = nn.functional.one_hot(self.ids(x), self.pos.num_embeddings)
        return one_hot.to(x.dtype) @ self.pos.weight + x


class LearnedExpands(LearnedVariant):
    def forward(self, x):
        return x + self.pos(self.ids(x).expand(x.size(0), -1))


def _learned_case(draw: Draw, length: str = "short", wrt: bool = False) -> Case:
    sizes = draw.sizes(d=[4, 6, 8], max_len=(9, 11), n=(3, 5), B=[2, 7])
    n = {"short": sizes["n"], "full": sizes["max_len"], "long": sizes["max_len"] + 1}[length]
    x = draw.normal(sizes["B"], n, sizes["d"])
    call: dict = {"args": [x]}
    if wrt:
        call |= {"wrt": ["weights"], "cotangents": [draw.normal(*x.shape)]}
    weights = {"pos.weight": draw.normal(sizes["max_len"], sizes["d"])}
    return Case(
        "module", {"make": {"args": [sizes["d"], sizes["max_len"]]}, "weights": weights, "call": call}
    )


def _too_long_cases(draw: Draw) -> list[Case]:
    return [Case("raises", {"run": _learned_case(draw, "long").tree(), "error": "ValueError"})]


LEARNED = Exercise(
    id="2.7",
    symbol="LearnedPositionalEncoding",
    kind="module class",
    parameters=("d_model", "max_len"),
    points=4,
    todos=("2.7",),
    rows=(
        Row(
            "sum",
            "forward(x) adds the learned codes of positions 0 … n − 1",
            lambda draw: [_learned_case(draw)],
            looks=("out",),
            weight=2,
        ),
        Row(
            "full length",
            "n = max_len still works",
            lambda draw: [_learned_case(draw, "full")],
            looks=("out",),
            needs=("sum",),
        ),
        Row("too long", "n > max_len raises ValueError", _too_long_cases, looks=("raised",), needs=("sum",)),
        Row(
            "learns",
            "the codes receive a gradient",
            lambda draw: [_learned_case(draw, wrt=True)],
            looks=("grad.pos.weight",),
            needs=("sum",),
        ),
    ),
    reference=ReferenceLearned,
    misconceptions=(
        Wrong(
            "no error",
            "n > max_len ends in an IndexError deep inside nn.Embedding. Test the length first and raise a "
            "ValueError that says what is wrong.",
            LearnedNoError,
        ),
        Wrong(
            "not refused",
            "No ValueError is raised for n > max_len, so tokens beyond it would get another token's position. "
            "(Returning an error is not enough: write raise.)",
            LearnedClamps,
        ),
        Wrong(
            "by batch",
            "The positions are counted along the batch axis. x is [B, n, d]: n is x.size(1).",
            LearnedByBatch,
        ),
        Wrong(
            "one too few",
            "n = max_len is refused, but there are exactly max_len codes: test n > max_len.",
            LearnedOffByOne,
        ),
        Wrong("from one", "Your positions start at 1; the first token has position 0.", LearnedFromOne),
        Wrong("replaces", "The output is the code alone. Add it to x.", LearnedReplaces),
        Wrong("frozen", "The codes are detached from the graph, so they would never learn.", LearnedFrozen),
        Wrong(
            "sizes swapped",
            "nn.Embedding takes the number of rows first: nn.Embedding(max_len, d_model).",
            LearnedSwapped,
        ),
    ),
    alternatives={
        "slice the table": LearnedSlices,
        "one-hot product": LearnedByOneHot,
        "ids for each row": LearnedExpands,
    },
    hints={
        "2.7": (
            "A learned code is an embedding. What are its ids, when the words are not asked?",
            "ids [n] → pos(ids) [n, d]; x [B, n, d] + [n, d] → [B, n, d].",
            "in __init__: an nn.Embedding of max_len rows; in forward: refuse n > max_len, then add pos(0 … n−1)",
        )
    },
)

EXERCISES = (POSITIONAL, SIMILARITY, SHIFT, LEARNED)
