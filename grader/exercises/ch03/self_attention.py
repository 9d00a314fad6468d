"""3.1 SelfAttention: one head, in which every token of a sentence collects from all its tokens."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises import rows
from grader.exercises.ch03 import _common as common
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


class Reference(nn.Module):
    """torch's own fused attention between torch's own linear maps."""

    def __init__(self, d_model):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        q, k, v = (F.linear(x, w.weight, w.bias) for w in (self.W_q, self.W_k, self.W_v))
        return F.scaled_dot_product_attention(q, k, v)


class SelfAttention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)

    def forward(self, x):
        Q, K, V = self.W_q(x), self.W_k(x), self.W_v(x)
        scores = Q @ K.transpose(-2, -1) / math.sqrt(K.size(-1))
        weights = torch.softmax(scores, dim=-1)
        return weights @ V


class Einsum(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.scale = d_model**-0.5

    def forward(self, x):
        scores = torch.einsum("bid,bjd->bij", self.W_q(x), self.W_k(x))
        return torch.einsum("bij,bjd->bid", torch.softmax(scores * self.scale, dim=2), self.W_v(x))


class Baddbmm(SelfAttention):
    def forward(self, x):
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        nothing = x.new_zeros(x.size(0), x.size(1), x.size(1))
        scores = torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0, alpha=1 / math.sqrt(x.size(2)))
        return torch.bmm(nn.Softmax(dim=-1)(scores), v)


class ALoopOverQueries(SelfAttention):
    def forward(self, x):
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        rows = []
        for i in range(x.size(1)):
            scores = (k * q[:, i : i + 1]).sum(-1) / k.size(-1) ** 0.5  # [B, n]
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            rows.append((weights[..., None] * v).sum(1))
        return torch.stack(rows, dim=1)


class OneProductScaledQueries(SelfAttention):
    """Queries, keys and values from one wide product; queries scaled beforehand; everything transposed."""

    def forward(self, x):
        weight = torch.cat([self.W_q.weight, self.W_k.weight, self.W_v.weight])
        bias = torch.cat([self.W_q.bias, self.W_k.bias, self.W_v.bias])
        q, k, v = (x @ weight.T + bias).chunk(3, dim=-1)
        q = q / q.size(-1) ** 0.5
        return (v.mT @ (k @ q.mT).softmax(-2)).mT


class Fused(SelfAttention):
    def forward(self, x):
        q, k, v = (w(x)[:, None] for w in (self.W_q, self.W_k, self.W_v))  # one head
        return F.scaled_dot_product_attention(q, k, v)[:, 0]


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, batch: int = 0, n: int = 0, d: int = 0, **more) -> Case:
    """A module case with given weights; `more` goes into the case (mode="train", for example)."""
    sizes = draw.sizes(B=(2, 4), n=(3, 5), d=(6, 8))
    d = d or sizes["d"]
    x = draw.normal(batch or sizes["B"], n or sizes["n"], d)
    weights = draw.weights(Reference(d))
    return Case("module", {"make": {"args": [d]}, "weights": weights, "call": {"args": [x]}, **more})


def _make(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [draw.size(6, 9)]}})]


def _equal_scores(draw: Draw) -> list[Case]:
    """With W_q = 0 all scores are equal, whatever the scale: every output is the mean of the values."""
    case = _case(draw)
    weights = case.inputs["weights"]
    weights |= {name: torch.zeros_like(weights[name]) for name in ("W_q.weight", "W_q.bias")}
    return [case]


def _one(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _twice(draw: Draw) -> list[Case]:
    return [_case(draw), _case(draw)]


def _values(draw: Draw) -> list[Case]:
    """Also with two axes equal: what guesses an axis by its length goes wrong elsewhere."""
    sizes = [(4, 4, 6), (2, 5, 5), (5, 3, 5), (4, 4, 4)]  # B, n, d
    return [*_twice(draw), *(_case(draw, *some) for some in sizes)]


def _smallest(draw: Draw) -> list[Case]:
    return [_case(draw, batch=1), _case(draw, n=1)]


def _gradient(draw: Draw) -> list[Case]:
    case = _case(draw)
    call = case.inputs["call"]
    call |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(*call["args"][0].shape)]}
    return [case]


def _modes(draw: Draw) -> list[Case]:
    return [_case(draw, mode="train"), _case(draw, mode="eval")]


NEEDS = ("value",)

ROWS = (
    Row(
        "layers",
        "W_q, W_k and W_v are nn.Linear(d_model, d_model), and there is nothing else to train",
        _make,
        looks=("parameters",),
    ),
    Row(
        "equal scores",
        "when all scores are equal (W_q is zero), every output is the mean of the values",
        _equal_scores,
        looks=("out",),
    ),
    Row(
        "value",
        "forward(x) is softmax(Q Kᵀ / √d) V, each sentence of the batch by itself",
        _values,
        looks=("out",),
        weight=4,
    ),
    Row(
        "smallest",
        "a batch of 1 works, and so does a sentence of one token",
        _smallest,
        looks=("out",),
        needs=NEEDS,
    ),
    Row(
        "gradient",
        "gradients reach x and all three layers",
        _gradient,
        looks=("grad.*",),
        weight=2,
        needs=NEEDS,
    ),
    rows.input_kept(_twice),
    rows.float64(_one, _("a float64 module and input give a float64 output"), weight=0.5),
    rows.layout(_one),
    Row("no mode", "train() and eval() give the same output", _modes, looks=("out",), needs=NEEDS),
    rows.device(_one, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

LAYERS = """\
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
"""
ROLES = "self.W_q(x), self.W_k(x), self.W_v(x)"
SCALE = " / math.sqrt(K.size(-1))"

MISTAKES = (
    common.OVER_QUERIES,
    common.OVER_EVERYTHING,
    common.OVER_THE_BATCH,
    edit("no scale", common.NO_SCALE, SCALE, ""),
    edit(
        "scale by d",
        "The scores are divided by d. Divide by its root √d: the spread of a sum of d terms grows like √d.",
        SCALE,
        " / K.size(-1)",
    ),
    edit(
        "scale by √n",
        "The scores are divided by √n, the root of the number of tokens (size(1)). "
        "What counts is the width of a key: √d, size(-1).",
        "K.size(-1)",
        "K.size(1)",
    ),
    edit("times √d", common.TIMES_ROOT, "/ math", "* math"),
    edit("scale after softmax", common.SCALE_AFTER_SOFTMAX, SCALE, "", "weights @", f"weights{SCALE} @"),
    edit("K not transposed", common.NOT_TRANSPOSED, "K.transpose(-2, -1)", "K"),
    edit(
        "d_model in forward",
        "forward does not know d_model: that was an argument of __init__. K itself knows its width: K.size(-1).",
        "K.size(-1)",
        "d_model",
    ),
    edit(
        "K.T",
        "K.T turns around all axes, the batch too. Swap only the last two: K.transpose(-2, -1).",
        "K.transpose(-2, -1)",
        "K.T",
    ),
    edit(
        "K reshaped",
        common.RESHAPED,
        "K.transpose(-2, -1)",
        "K.reshape(K.size(0), K.size(2), K.size(1))",
    ),
    edit(
        "features attend",
        "Your scores form a table [d, d]: features attend to features. Tokens should attend to tokens, so the "
        "table is [n, n]: Q @ K.transpose(-2, -1).",
        "Q @ K.transpose(-2, -1)",
        "Q.transpose(-2, -1) @ K",
        "weights @ V",
        "V @ weights.transpose(-2, -1)",
    ),
    edit(
        "keys ask",
        "Queries and keys have changed places (K @ Qᵀ, or W_q and W_k swapped): row i must hold query i "
        "against every key.",
        "Q @ K.",
        "K @ Q.",
    ),
    edit("weights @ K", common.WEIGHTS_AT_K, "weights @ V", "weights @ K"),
    edit(
        "weights @ x",
        "The weights are applied to x itself. What a token gives is its value, V = W_v(x).",
        "weights @ V",
        "weights @ x",
    ),
    edit("weights * V", common.WEIGHTS_TIMES_V, "weights @ V", "weights * V"),
    edit("weights transposed", common.WEIGHTS_TRANSPOSED, "weights @ V", "weights.transpose(-2, -1) @ V"),
    common.NO_SOFTMAX,
    common.SIGMOID,
    edit(
        "keys from W_q",
        "Queries and keys come from the same layer W_q, so W_k is never used.",
        "self.W_k(x)",
        "self.W_q(x)",
    ),
    edit(
        "x as it is",
        "x is used as query, key and value at once; the three layers are made but never used.",
        ROLES,
        "x, x, x",
    ),
    edit(
        "one layer",
        "One layer makes queries, keys and values. Each role needs its own: W_q, W_k and W_v.",
        LAYERS,
        "        self.W = nn.Linear(d_model, d_model)\n",
        ROLES,
        "self.W(x), self.W(x), self.W(x)",
    ),
    edit(
        "other names",
        "The three layers are right but have other names. The contract says W_q, W_k and W_v.",
        LAYERS,
        LAYERS.replace("W_q", "query").replace("W_k", "key").replace("W_v", "value"),
        ROLES,
        "self.query(x), self.key(x), self.value(x)",
    ),
    edit(
        "no bias",
        "The layers have no bias. The contract says nn.Linear(d, d), bias included.",
        LAYERS,
        LAYERS.replace("d_model)", "d_model, bias=False)"),
    ),
    common.UNIFORM,
    common.FIRST_KEY,
    common.PREFIX_MEAN,
    common.IDENTITY,
    common.LARGEST_ONLY,
    edit(
        "residual",
        "x is added to the output. That is the residual connection of chapter 05; here only the attention.",
        "return weights",
        "return x + weights",
    ),
    edit(
        "dropout",
        "In train() mode some weights are dropped. This contract has no dropout.",
        "return weights",
        "return nn.functional.dropout(weights, 0.1, training=self.training)",
    ),
    edit("float32 only", common.FLOAT32_ONLY, "weights @ V", "(weights @ V).float()"),
    edit(
        "detached",
        "The weights are cut off from the graph (detach, .data or no_grad), so W_q and W_k would never learn.",
        "self.W_q(x), self.W_k(x)",
        "self.W_q(x).detach(), self.W_k(x).detach()",
    ),
    edit(
        "on the CPU",
        "The scale is a tensor of one entry on the CPU, whatever device x is on. A plain number will do: math.sqrt.",
        "math.sqrt(K.size(-1))",
        "torch.sqrt(torch.FloatTensor([K.size(-1)]))",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="3.1",
    symbol="SelfAttention",
    kind="module class",
    parameters=("d_model",),
    points=8,
    todos=("3.1", "3.2", "3.3", "3.4"),
    rows=ROWS,
    reference=Reference,
    answer=SelfAttention,
    mistakes=MISTAKES,
    alternatives=(Einsum, Baddbmm, ALoopOverQueries, OneProductScaledQueries, Fused),
    spoken={
        "out": _("forward(x)"),
        "parameters": _("the list of parameters (each with its shape)"),
        "grad.0": _("the gradient of x"),
        "grad.W_q.weight": _("the gradient of W_q.weight"),
        "grad.W_q.bias": _("the gradient of W_q.bias"),
        "grad.W_k.weight": _("the gradient of W_k.weight"),
        "grad.W_k.bias": _("the gradient of W_k.bias"),
        "grad.W_v.weight": _("the gradient of W_v.weight"),
        "grad.W_v.bias": _("the gradient of W_v.bias"),
    },
    hints={
        "3.1": (
            _("Each token plays three roles. How many different linear maps of x does that take?"),
            _(
                "x [B, n, d] → Q, K, V, each [B, n, d]; a layer that does this is nn.Linear(d_model, d_model)."
            ),
            _(
                "in __init__: three layers with the names of the contract; in forward: Q = the first layer applied to x, "
                "and so on. Do not touch the batch axis: nn.Linear works on the last axis and leaves the others alone."
            ),
        ),
        "3.2": (
            _(
                "One score for each pair of tokens: which two vectors meet, and along which axis are they summed?"
            ),
            _("Q [B, n, d] times K with its last two axes swapped [B, d, n] → [B, n, n]."),
            _("scores = (Q matrix-times K transposed in its last two axes) divided by the root of d_model"),
        ),
        "3.3": (
            _(
                "Token i has one unit of weight to give away. To whom does it give, and along which axis do they stand?"
            ),
            _("scores [B, n (who asks), n (who is asked)] → weights of the same shape; every row sums to 1."),
            _("weights = softmax of the scores along the axis of the keys, the last one"),
        ),
        "3.4": (
            _("The weights say how much. Of what? Not of the keys."),
            _("weights [B, n, n] times V [B, n, d] → [B, n, d]."),
            _("return (weights matrix-times the values)"),
        ),
    },
)
