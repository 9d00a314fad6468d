"""Chapter 03, attention: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case

CHAPTER = "03_attention"
INF = float("inf")

# ---- ways to weigh scores wrongly, shared by 3.1 and 3.6 --------------------------------------------


def softmax_over_all(scores: Tensor) -> Tensor:
    """One softmax over queries and keys together."""
    return scores.flatten(-2).softmax(-1).view_as(scores)


def uniform(scores: Tensor) -> Tensor:
    """The same weight for every key."""
    return torch.full_like(scores, 1 / scores.size(-1))


def first_key(scores: Tensor) -> Tensor:
    """All weight on the first key."""
    weights = torch.zeros_like(scores)
    weights[..., 0] = 1
    return weights


def prefix_mean(scores: Tensor) -> Tensor:
    """Query i spreads its weight evenly over the keys 0 … i."""
    lower = torch.ones_like(scores).tril()
    return lower / lower.sum(-1, keepdim=True)


def identity(scores: Tensor) -> Tensor:
    """Query i attends to key i only."""
    return torch.eye(*scores.shape[-2:], dtype=scores.dtype).expand_as(scores)


def largest_only(scores: Tensor) -> Tensor:
    """All weight on the key with the largest score."""
    return F.one_hot(scores.argmax(-1), scores.size(-1)).to(scores.dtype)


def reshaped(k: Tensor) -> Tensor:
    """The shape of a transpose, the numbers in another order."""
    return k.reshape(*k.shape[:-2], k.size(-1), k.size(-2))


_SAYS = {
    "over queries": "Your softmax runs over the queries (dim=-2): every column sums to 1. Each query shares out "
    "one unit of weight among the keys, so every row must sum to 1: dim=-1.",
    "over everything": "One softmax runs over all pairs of a sentence, so the whole table sums to 1. "
    "Every row, that is every query, needs a softmax of its own.",
    "over the batch": "Your softmax runs over the batch (dim=0), so sentences compete with each other. "
    "The keys stand on the last axis: dim=-1.",
    "no scale": "The scores are not divided by the root of the width: they are too large, "
    "and the softmax too sure of itself.",
    "times √d": "The scores are multiplied by the root of the width; divide by it.",
    "scale after softmax": "You divide the weights, after softmax, so a row no longer sums to 1. Divide the scores.",
    "K not transposed": "A product meets shapes that do not fit. The scores are the matrix product Q @ K.transpose(-2, -1): row i "
    "of Q meets row j of K (* would multiply number by number). The weights then stand in front: weights @ V.",
    "K.T": "K.T turns around all axes, the batch too. Swap only the last two: K.transpose(-2, -1).",
    "K reshaped": "view or reshape gives K the right shape but leaves the numbers in their old order, so they no "
    "longer belong to their token. Swap the axes: K.transpose(-2, -1).",
    "weights @ K": "The weights are applied to the keys. Keys only decide where to look; what is collected are "
    "the values: weights @ V.",
    "weights * V": "The star multiplies number by number. The weighted sum is a matrix product: weights @ V.",
    "weights transposed": "The table of weights is transposed: row i must hold what query i gives to each key.",
    "no softmax": "The scores are used as weights directly. Softmax is missing: weights are positive and sum to 1.",
    "sigmoid": "A sigmoid looks at each score alone, so a row does not sum to 1. Softmax makes keys compete.",
    "uniform": "Every key gets the same weight, so your output is the plain mean: the scores have no say.",
    "first key": "Each query takes everything from the first token.",
    "prefix mean": "Each token takes the plain mean of itself and the tokens before it: the scores have no say.",
    "identity": "Each token attends only to itself, so attention does nothing.",
    "largest only": "Each query takes only the key with the largest score. Softmax is a soft choice: every key "
    "counts by its weight, and so the gradient can flow.",
    "dropout": "Dropout is applied to the weights, so the result depends on chance. This contract has none.",
    "float32 only": "The result is cast to float32. Keep the dtype of the input.",
}


def _wrong(name: str, symbol: Callable, says: str = "") -> Wrong:
    return Wrong(name, says or _SAYS[name], symbol)


# ---- 3.1 to 3.4 SelfAttention -----------------------------------------------------------------------


class Reference(nn.Module):
    """torch's own fused attention between torch's own linear maps."""

    def __init__(self, d_model):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        q, k, v = (F.linear(x, w.weight, w.bias) for w in (self.W_q, self.W_k, self.W_v))
        return F.scaled_dot_product_attention(q, k, v)


class Variant(nn.Module):
    """The usual code with every step in a method of its own, so that a mistake changes one step."""

    def __init__(self, d_model):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model) for _ in range(3))

    def project(self, x):
        return self.W_q(x), self.W_k(x), self.W_v(x)

    def scores(self, q, k):
        return q @ k.mT / math.sqrt(k.size(-1))

    def weigh(self, scores):
        return scores.softmax(dim=-1)

    def mix(self, weights, k, v, x):
        return weights @ v

    def forward(self, x):
        q, k, v = self.project(x)
        return self.mix(self.weigh(self.scores(q, k)), k, v, x)


def _self(**steps: Callable) -> type[nn.Module]:
    """Return a Variant with some of its steps replaced."""
    methods = {name: _method(step) for name, step in steps.items()}
    return type("SelfAttention", (Variant,), methods)


def _method(step: Callable) -> Callable:
    return lambda self, *values: step(*values)


def _unknown_width(q: Tensor, k: Tensor) -> Tensor:
    raise NameError("name 'd_model' is not defined")


class NoBias(Variant):
    def __init__(self, d_model):
        nn.Module.__init__(self)
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))


class OneLayer(Variant):
    """One linear map for queries, keys and values."""

    def __init__(self, d_model):
        nn.Module.__init__(self)
        self.W = nn.Linear(d_model, d_model)

    def project(self, x):
        return (self.W(x),) * 3


class OtherNames(Variant):
    def __init__(self, d_model):
        nn.Module.__init__(self)
        self.query, self.key, self.value = (nn.Linear(d_model, d_model) for _ in range(3))

    def project(self, x):
        return self.query(x), self.key(x), self.value(x)


class SharedProjection(Variant):
    def project(self, x):
        return self.W_q(x), self.W_q(x), self.W_v(x)


class Detached(Variant):
    def project(self, x):
        return self.W_q(x).detach(), self.W_k(x).detach(), self.W_v(x)


class TrainDropout(Variant):
    def mix(self, weights, k, v, x):
        return F.dropout(weights, 0.1, training=self.training) @ v


class WithEinsum(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.scale = d_model**-0.5

    def forward(self, x):
        scores = torch.einsum("bid,bjd->bij", self.W_q(x), self.W_k(x))
        return torch.einsum("bij,bjd->bid", torch.softmax(scores * self.scale, dim=2), self.W_v(x))


class WithBaddbmm(Variant):
    def forward(self, x):
        q, k, v = self.project(x)
        nothing = x.new_zeros(x.size(0), x.size(1), x.size(1))
        scores = torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0, alpha=1 / math.sqrt(x.size(2)))
        return torch.bmm(nn.Softmax(dim=-1)(scores), v)


class WithLoop(Variant):
    """One query at a time."""

    def forward(self, x):
        q, k, v = self.project(x)
        rows = []
        for i in range(x.size(1)):
            scores = (k * q[:, i : i + 1]).sum(-1) / k.size(-1) ** 0.5  # [B, n]
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            rows.append((weights[..., None] * v).sum(1))
        return torch.stack(rows, dim=1)


class WithOneProduct(Variant):
    """Queries, keys and values from one wide product; queries scaled beforehand; everything transposed."""

    def forward(self, x):
        weight = torch.cat([self.W_q.weight, self.W_k.weight, self.W_v.weight])
        bias = torch.cat([self.W_q.bias, self.W_k.bias, self.W_v.bias])
        q, k, v = (x @ weight.T + bias).chunk(3, dim=-1)
        q = q / q.size(-1) ** 0.5
        return (v.mT @ (k @ q.mT).softmax(-2)).mT


class WithFused(Variant):
    def forward(self, x):
        q, k, v = (w(x)[:, None] for w in (self.W_q, self.W_k, self.W_v))  # one head
        return F.scaled_dot_product_attention(q, k, v)[:, 0]


def _self_case(draw: Draw, batch: int = 0, n: int = 0, of: torch.dtype = torch.float32, **more) -> Case:
    """A module case with given weights; `more` goes into the case (mode="train", for example)."""
    sizes = draw.sizes(B=(2, 4), n=(3, 5), d=(6, 8))
    d = sizes["d"]
    x = draw.normal(batch or sizes["B"], n or sizes["n"], d, dtype=of)
    weights = draw.weights(Reference(d))
    return Case("module", {"make": {"args": [d]}, "weights": weights, "call": {"args": [x]}, **more})


def _self_make(draw: Draw) -> list[Case]:
    return [Case("module", {"make": {"args": [draw.size(6, 9)]}})]


def _self_equal_scores(draw: Draw) -> list[Case]:
    """With W_q = 0 all scores are equal, whatever the scale: every output is the mean of the values."""
    case = _self_case(draw)
    weights = case.inputs["weights"]
    weights |= {name: torch.zeros_like(weights[name]) for name in ("W_q.weight", "W_q.bias")}
    return [case]


def _self_values(draw: Draw) -> list[Case]:
    return [_self_case(draw), _self_case(draw)]


def _self_smallest(draw: Draw) -> list[Case]:
    return [_self_case(draw, batch=1), _self_case(draw, n=1)]


def _self_gradient(draw: Draw) -> list[Case]:
    case = _self_case(draw)
    call = case.inputs["call"]
    call |= {"wrt": ["0", "weights"], "cotangents": [draw.normal(*call["args"][0].shape)]}
    return [case]


def _self_float64(draw: Draw) -> list[Case]:
    return [_self_case(draw, of=torch.float64, dtype="float64")]


def _self_strided(draw: Draw) -> list[Case]:
    case = _self_case(draw)
    call = case.inputs["call"]
    call["args"] = [{"$": "strided", "tensor": call["args"][0]}]
    return [case]


def _self_modes(draw: Draw) -> list[Case]:
    return [_self_case(draw, mode="train"), _self_case(draw, mode="eval")]


_SELF = {
    "out": "forward(x)",
    "parameters": "the list of parameters (each with its shape)",
    "grad.0": "the gradient of x",
}
_SELF |= {f"grad.W_{a}.{b}": f"the gradient of W_{a}.{b}" for a in "qkv" for b in ("weight", "bias")}

SELF_ATTENTION = Exercise(
    id="3.1",
    symbol="SelfAttention",
    kind="module class",
    parameters=("d_model",),
    points=8,
    todos=("3.1", "3.2", "3.3", "3.4"),
    rows=(
        Row(
            "layers",
            "W_q, W_k and W_v are nn.Linear(d_model, d_model), and there is nothing else to train",
            _self_make,
            looks=("parameters",),
            spoken=_SELF,
        ),
        Row(
            "equal scores",
            "when all scores are equal (W_q is zero), every output is the mean of the values",
            _self_equal_scores,
            looks=("out",),
            spoken=_SELF,
        ),
        Row(
            "value",
            "forward(x) is softmax(Q Kᵀ / √d) V, each sentence of the batch by itself",
            _self_values,
            looks=("out",),
            weight=4,
            spoken=_SELF,
        ),
        Row(
            "smallest",
            "a batch of 1 works, and so does a sentence of one token",
            _self_smallest,
            looks=("out",),
            needs=("value",),
            spoken=_SELF,
        ),
        Row(
            "gradient",
            "gradients reach x and all three layers",
            _self_gradient,
            looks=("grad.*",),
            weight=2,
            needs=("value",),
            spoken=_SELF,
        ),
        Row("input kept", "x itself is left unchanged", _self_values, looks=("changed",), needs=("value",)),
        Row(
            "float64",
            "a float64 module and input give a float64 output",
            _self_float64,
            looks=("out",),
            needs=("value",),
            spoken=_SELF,
        ),
        Row(
            "layout",
            "an x whose memory is not in order (after a transpose) gives the same output",
            _self_strided,
            looks=("out",),
            needs=("value",),
            spoken=_SELF,
        ),
        Row(
            "no mode",
            "train() and eval() give the same output",
            _self_modes,
            looks=("out",),
            needs=("value",),
            spoken=_SELF,
        ),
    ),
    reference=Reference,
    misconceptions=(
        _wrong("over queries", _self(weigh=lambda s: s.softmax(-2))),
        _wrong("over everything", _self(weigh=softmax_over_all)),
        _wrong("over the batch", _self(weigh=lambda s: s.softmax(0))),
        _wrong("no scale", _self(scores=lambda q, k: q @ k.mT)),
        _wrong(
            "scale by d",
            _self(scores=lambda q, k: q @ k.mT / k.size(-1)),
            "The scores are divided by d. Divide by its root √d: the spread of a sum of d terms grows like √d.",
        ),
        _wrong(
            "scale by √n",
            _self(scores=lambda q, k: q @ k.mT / math.sqrt(k.size(-2))),
            "The scores are divided by √n, the root of the number of tokens (size(1)). "
            "What counts is the width of a key: √d, size(-1).",
        ),
        _wrong("times √d", _self(scores=lambda q, k: q @ k.mT * math.sqrt(k.size(-1)))),
        _wrong(
            "scale after softmax",
            _self(
                scores=lambda q, k: q @ k.mT,
                mix=lambda w, k, v, x: w / math.sqrt(k.size(-1)) @ v,
            ),
        ),
        _wrong("K not transposed", _self(scores=lambda q, k: q @ k / math.sqrt(k.size(-1)))),
        _wrong(
            "d_model in forward",
            _self(scores=_unknown_width),
            "forward does not know d_model: that was an argument of __init__. K itself knows its width: K.size(-1).",
        ),
        _wrong("K.T", _self(scores=lambda q, k: q @ k.permute(2, 1, 0) / math.sqrt(k.size(-1)))),
        _wrong("K reshaped", _self(scores=lambda q, k: q @ reshaped(k) / math.sqrt(k.size(-1)))),
        _wrong(
            "features attend",
            _self(
                scores=lambda q, k: q.mT @ k / math.sqrt(k.size(-1)),
                mix=lambda w, k, v, x: v @ w.mT,
            ),
            "Your scores form a table [d, d]: features attend to features. Tokens should attend to tokens, so the "
            "table is [n, n]: Q @ K.transpose(-2, -1).",
        ),
        _wrong(
            "keys ask",
            _self(scores=lambda q, k: k @ q.mT / math.sqrt(k.size(-1))),
            "Queries and keys have changed places (K @ Qᵀ, or W_q and W_k swapped): row i must hold query i "
            "against every key.",
        ),
        _wrong("weights @ K", _self(mix=lambda w, k, v, x: w @ k)),
        _wrong(
            "weights @ x",
            _self(mix=lambda w, k, v, x: w @ x),
            "The weights are applied to x itself. What a token gives is its value, V = W_v(x).",
        ),
        _wrong("weights * V", _self(mix=lambda w, k, v, x: w * v)),
        _wrong("weights transposed", _self(mix=lambda w, k, v, x: w.mT @ v)),
        _wrong("no softmax", _self(weigh=lambda s: s)),
        _wrong("sigmoid", _self(weigh=torch.sigmoid)),
        _wrong(
            "keys from W_q",
            SharedProjection,
            "Queries and keys come from the same layer W_q, so W_k is never used.",
        ),
        _wrong(
            "x as it is",
            _self(project=lambda x: (x, x, x)),
            "x is used as query, key and value at once; the three layers are made but never used.",
        ),
        _wrong(
            "one layer",
            OneLayer,
            "One layer makes queries, keys and values. Each role needs its own: W_q, W_k and W_v.",
        ),
        _wrong(
            "other names",
            OtherNames,
            "The three layers are right but have other names. The contract says W_q, W_k and W_v.",
        ),
        _wrong(
            "no bias", NoBias, "The layers have no bias. The contract says nn.Linear(d, d), bias included."
        ),
        _wrong("uniform", _self(weigh=uniform)),
        _wrong("first key", _self(weigh=first_key)),
        _wrong("prefix mean", _self(weigh=prefix_mean)),
        _wrong("identity", _self(weigh=identity)),
        _wrong("largest only", _self(weigh=largest_only)),
        _wrong(
            "residual",
            _self(mix=lambda w, k, v, x: x + w @ v),
            "x is added to the output. That is the residual connection of chapter 05; here only the attention.",
        ),
        _wrong(
            "dropout", TrainDropout, "In train() mode some weights are dropped. This contract has no dropout."
        ),
        _wrong("float32 only", _self(mix=lambda w, k, v, x: (w @ v).float())),
        _wrong(
            "detached",
            Detached,
            "The weights are cut off from the graph (detach, .data or no_grad), so W_q and W_k would never learn.",
        ),
    ),
    alternatives={
        "einsum": WithEinsum,
        "baddbmm": WithBaddbmm,
        "a loop over queries": WithLoop,
        "one product, scaled queries": WithOneProduct,
        "fused": WithFused,
    },
    hints={
        "3.1": (
            "Each token plays three roles. How many different linear maps of x does that take?",
            "x [B, n, d] → Q, K, V, each [B, n, d]; a layer that does this is nn.Linear(d_model, d_model).",
            "in __init__: three layers with the names of the contract; in forward: Q = the first layer applied to x, "
            "and so on. Do not touch the batch axis: nn.Linear works on the last axis and leaves the others alone.",
        ),
        "3.2": (
            "One score for each pair of tokens: which two vectors meet, and along which axis are they summed?",
            "Q [B, n, d] times K with its last two axes swapped [B, d, n] → [B, n, n].",
            "scores = (Q matrix-times K transposed in its last two axes) divided by the root of d_model",
        ),
        "3.3": (
            "Token i has one unit of weight to give away. To whom does it give, and along which axis do they stand?",
            "scores [B, n (who asks), n (who is asked)] → weights of the same shape; every row sums to 1.",
            "weights = softmax of the scores along the axis of the keys, the last one",
        ),
        "3.4": (
            "The weights say how much. Of what? Not of the keys.",
            "weights [B, n, n] times V [B, n, d] → [B, n, d].",
            "return (weights matrix-times the values)",
        ),
    },
)


# ---- 3.5 stable_softmax -----------------------------------------------------------------------------


def reference_softmax(x, dim=-1):
    return F.softmax(x, dim=dim)


def softmax_naive(x, dim=-1):
    return x.exp() / x.exp().sum(dim, keepdim=True)


def _shifted(shift: Callable[[Tensor, int], Tensor]) -> Callable:
    """Softmax by hand, after `shift(x, dim)` is taken off."""

    def stable_softmax(x, dim=-1):
        return softmax_naive(x - shift(x, dim), dim)

    return stable_softmax


def _largest(x: Tensor, dim: int) -> Tensor:
    return x.amax(dim, keepdim=True)


def softmax_right(x, dim=-1):
    return softmax_naive(x - _largest(x, dim), dim)


def softmax_last_axis(x, dim=-1):
    return softmax_right(x, -1)


def softmax_sum_of_all(x, dim=-1):
    e = (x - _largest(x, dim)).exp()
    return e / e.sum()


def softmax_no_keepdim(x, dim=-1):
    return softmax_naive(x - x.amax(dim), dim)


def softmax_pair(x, dim=-1):
    return softmax_naive(x - x.max(dim, keepdim=True), dim)


def softmax_without_exp(x, dim=-1):
    return x / x.sum(dim, keepdim=True)


def softmax_log(x, dim=-1):
    return softmax_right(x, dim).log()


def softmax_negated(x, dim=-1):
    return softmax_right(-x, dim)


def softmax_in_place(x, dim=-1):
    x -= x.amax(dim, keepdim=True)
    return softmax_naive(x, dim)


def softmax_clamped(x, dim=-1):
    return softmax_naive(x.clamp(-50, 50), dim)


def softmax_zeroed(x, dim=-1):
    return softmax_naive(x, dim).nan_to_num()


def softmax_divided(x, dim=-1):
    return softmax_naive(x / _largest(x.abs(), dim), dim)


def softmax_base_two(x, dim=-1):
    e = 2.0 ** (x - _largest(x, dim))
    return e / e.sum(dim, keepdim=True)


def softmax_float32(x, dim=-1):
    return softmax_right(x.float(), dim)


def softmax_not_normalised(x, dim=-1):
    return (x - _largest(x, dim)).exp()


def softmax_by_logarithms(x, dim=-1):
    largest = torch.max(x, dim=dim, keepdim=True)[0].detach()
    total = (x - largest).exp().sum(dim=dim, keepdim=True)
    return torch.exp(x - largest - total.log())


def softmax_by_slices(x, dim=-1):
    slices = x.unbind(dim)
    largest = slices[0]
    for piece in slices[1:]:
        largest = torch.maximum(largest, piece)
    e = [torch.exp(piece - largest) for piece in slices]
    return torch.stack([piece / sum(e) for piece in e], dim)


def softmax_moved(x, dim=-1):
    moved = x.movedim(dim, 0)
    e = torch.exp(moved - moved.max(0).values)
    return (e / e.sum(0)).movedim(0, dim)


def softmax_cumulative(x, dim=-1):
    last = x.size(dim) - 1
    return torch.exp(x - x.logcumsumexp(dim).narrow(dim, last, 1))


def _softmax_case(draw: Draw, *dim: int, of: torch.dtype = torch.float32, **more) -> Case:
    sizes = draw.sizes(a=(2, 4), b=(3, 5), c=(5, 7))
    x = draw.normal(*sizes.values(), scale=1.5, dtype=of)
    return Case("function", {"args": [x, *dim], **more})


def _softmax_axes(draw: Draw) -> list[Case]:
    by_name = _softmax_case(draw)
    by_name.inputs["kwargs"] = {"dim": -2}
    one_axis = Case("function", {"args": [draw.normal(draw.size(4, 6)), 0]})
    return [*(_softmax_case(draw, dim) for dim in (0, 1, -1, -3)), by_name, one_axis]


def _softmax_large(draw: Draw) -> list[Case]:
    """Rows near 1e4, near -1e4 and both: each has its own largest number."""
    columns = draw.size(4, 6)
    x = draw.normal(3, columns, scale=2.0)
    x[0] += 1e4
    x[1] -= 1e4
    x[2, :2] += torch.tensor([1e4, -1e4])
    return [Case("function", {"args": [x]}), Case("function", {"args": [x.T.contiguous(), 0]})]


def _softmax_minus_infinity(draw: Draw) -> list[Case]:
    x = draw.normal(3, draw.size(4, 6))
    x[0, 1] = x[1, 0] = x[1, -1] = -INF
    return [Case("function", {"args": [x]})]


def _softmax_gradient(draw: Draw) -> list[Case]:
    case = _softmax_case(draw, 1)
    x = case.inputs["args"][0]
    return [Case("function", case.inputs | {"wrt": ["0"], "cotangents": [draw.normal(*x.shape)]})]


def _softmax_strided(draw: Draw) -> list[Case]:
    case = _softmax_case(draw, 1)
    x, dim = case.inputs["args"]
    return [Case("function", {"args": [{"$": "strided", "tensor": x}, dim]})]


_ROUGH = Tolerance(atol=1e-3, rtol=1e-3)  # near 1e4 a float32 itself is only good to 1e-3

_BY_HAND = (
    "This one is by hand: your code uses the library's {}, which does all of it for you. Write it with exp, a sum "
    "and a division, and take care of large numbers first. From 3.6 on the library's is yours to use."
)
_LIBRARY = ("softmax", "log_softmax", "logsumexp", "softmin", "Softmax", "LogSoftmax", "Softmin", "_softmax")
_LIBRARY += ("cross_entropy", "scaled_dot_product_attention", "gumbel_softmax", "Softmax2d")

STABLE_SOFTMAX = Exercise(
    id="3.5",
    symbol="stable_softmax",
    kind="function",
    parameters=("x", "dim"),
    points=4,
    todos=("3.5",),
    forbidden={name: _BY_HAND.format(name) for name in _LIBRARY},
    rows=(
        Row(
            "value",
            "along the last axis: exp(x) / Σ exp(x)",
            lambda draw: [_softmax_case(draw)],
            looks=("out",),
            weight=2,
        ),
        Row(
            "any axis",
            "dim chooses the axis, counted from the front or from the end",
            _softmax_axes,
            looks=("out",),
        ),
        Row(
            "large numbers",
            "numbers near 1e4 and -1e4 give finite weights that are right",
            _softmax_large,
            looks=("out",),
            weight=2,
            tolerance=_ROUGH,
            needs=("value",),
        ),
        Row(
            "minus infinity",
            "an entry of -∞ gets the weight 0 and the others share the rest",
            _softmax_minus_infinity,
            looks=("out",),
            needs=("value",),
        ),
        Row(
            "gradient",
            "the gradient of x is right",
            _softmax_gradient,
            looks=("grad.0",),
            needs=("value", "any axis"),
            spoken={"grad.0": "the gradient of x"},
        ),
        Row(
            "input kept",
            "x itself is left unchanged",
            lambda draw: [_softmax_case(draw)],
            looks=("changed",),
            needs=("value",),
        ),
        Row(
            "float64",
            "a float64 input gives a float64 output",
            lambda draw: [_softmax_case(draw, of=torch.float64)],
            looks=("out",),
            needs=("value",),
        ),
        Row(
            "layout",
            "an x whose memory is not in order (after a transpose) gives the same output",
            _softmax_strided,
            looks=("out",),
            needs=("value", "any axis"),
        ),
    ),
    reference=reference_softmax,
    misconceptions=(
        _wrong(
            "not stable",
            softmax_naive,
            "The formula is right, but exp(1e4) is too large for a float: it gives inf, and inf / inf is NaN; exp(-1e4) "
            "is 0, and 0 / 0 is NaN. Subtract the largest x of each row first: that changes no weight.",
        ),
        _wrong(
            "one maximum for all",
            _shifted(lambda x, dim: x.max()),
            "You subtract the largest number of the whole tensor. A row that lies far below it becomes 0 / 0. "
            "Each row needs its own maximum, along dim.",
        ),
        _wrong(
            "subtracts the mean",
            _shifted(lambda x, dim: x.mean(dim, keepdim=True)),
            "You subtract the mean. The largest exponent can then still be huge; after the maximum it is 0.",
        ),
        _wrong(
            "subtracts the minimum",
            _shifted(lambda x, dim: x.amin(dim, keepdim=True)),
            "You subtract the smallest number, which makes the exponents larger. Subtract the largest.",
        ),
        _wrong(
            "always the last axis", softmax_last_axis, "dim is not used: you always work along the last axis."
        ),
        _wrong(
            "maximum over the last axis",
            _shifted(lambda x, dim: _largest(x, -1)),
            "The sum runs along dim, but the maximum is always taken along the last axis. Numbers that share a sum "
            "must share the number that is subtracted, or their weights change.",
        ),
        _wrong(
            "maximum over the first axis",
            _shifted(lambda x, dim: _largest(x, 0)),
            "The maximum is taken along the first axis. Take it along dim, like the sum: numbers that share a sum must "
            "share the number that is subtracted.",
        ),
        _wrong(
            "sum of everything",
            softmax_sum_of_all,
            "You divide by the sum of the whole tensor. Every row along dim must sum to 1: sum along dim.",
        ),
        _wrong(
            "not divided", softmax_not_normalised, "The exponentials are not divided by their sum along dim."
        ),
        _wrong(
            "no keepdim",
            softmax_no_keepdim,
            "The maximum or the sum lost its axis, so it no longer lines up with x. Keep the axis, with length 1: "
            "keepdim=True.",
        ),
        _wrong(
            "max is a pair",
            softmax_pair,
            "x.max(dim) gives two things, the values and where they stand. Take its .values, or use x.amax(dim).",
        ),
        _wrong(
            "no exponential",
            softmax_without_exp,
            "You divide x by its sum. Without exp a negative x gives a negative weight, and a sum near 0 explodes.",
        ),
        _wrong(
            "logarithm",
            softmax_log,
            "This is the logarithm of the weights (log-softmax). Return the weights.",
        ),
        _wrong(
            "negated",
            softmax_negated,
            "The largest x gets the smallest weight: there is a minus sign too many.",
        ),
        _wrong("base two", softmax_base_two, "The base is 2; softmax uses e: torch.exp."),
        _wrong(
            "divided by the largest",
            softmax_divided,
            "You divide by the largest number. That changes the weights; subtracting it does not.",
        ),
        _wrong(
            "clamped",
            softmax_clamped,
            "You clamp x. Beyond the limit all numbers look alike, so their weights are wrong. Subtract the maximum.",
        ),
        _wrong(
            "NaN painted over",
            softmax_zeroed,
            "The NaN are replaced afterwards, so those rows sum to 0. Subtract the maximum and none arises.",
        ),
        _wrong(
            "in place",
            softmax_in_place,
            "x -= … changes the caller's tensor. Make a new one: x = x - ….",
        ),
        _wrong("float32 only", softmax_float32),
    ),
    alternatives={
        "by logarithms": softmax_by_logarithms,
        "slice by slice": softmax_by_slices,
        "axis moved to the front": softmax_moved,
        "cumulative": softmax_cumulative,
    },
    hints={
        "3.5": (
            "Add 100 to every x of a row. What happens to each exp(x), to their sum, and to the quotient?",
            "x [..., n, ...] → its maximum along dim with the axis kept [..., 1, ...] → x minus it → exp → the sum along "
            "dim, axis kept → the quotient, of x's shape.",
            "largest = maximum of x along dim, axis kept; e = exp of (x minus largest); return e over its sum along dim",
        )
    },
)


# ---- 3.6 attention ----------------------------------------------------------------------------------


def reference_attention(q, k, v, mask=None):
    """torch's fused attention; with rows of the identity for values it gives the weights."""
    one_hot = torch.eye(k.size(-2), dtype=k.dtype).expand(*k.shape[:-1], -1)
    return tuple(F.scaled_dot_product_attention(q, k, x, mask) for x in (v, one_hot))


def _scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.size(-1))


def _hide(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -INF)


def _attend(
    scores: Callable = _scores,
    hide: Callable = _hide,
    weigh: Callable = lambda scores: scores.softmax(-1),
    after: Callable = lambda weights, mask: weights,
    mix: Callable = lambda weights, q, k, v: weights @ v,
    give: Callable = lambda out, weights: (out, weights),
) -> Callable:
    """The usual code with every step exchangeable, so that a mistake changes one step."""

    def attention(q, k, v, mask=None):
        table = scores(q, k, v)
        if mask is not None:
            table = hide(table, mask)
        weights = weigh(table)
        if mask is not None:
            weights = after(weights, mask)
        return give(mix(weights, q, k, v), weights)

    return attention


def _no_mask(scores: Tensor, mask: Tensor) -> Tensor:
    return scores


def _fill(value: float) -> Callable:
    return lambda scores, mask: scores.masked_fill(~mask, value)


def _by_index(scores: Tensor, mask: Tensor) -> Tensor:
    scores = scores.clone()
    scores[~mask] = -INF
    return scores


def _renormalised(weights: Tensor, mask: Tensor) -> Tensor:
    kept = weights * mask
    return kept / kept.sum(-1, keepdim=True)


def _scaled_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q /= math.sqrt(q.size(-1))
    return q @ k.mT


def attention_if_mask(q, k, v, mask=None):
    scores = _scores(q, k, v)
    if mask:
        scores = _hide(scores, mask)
    weights = scores.softmax(-1)
    return weights @ v, weights


def attention_scaled_late(q, k, v, mask=None):
    _, weights = _attend(scores=lambda q, k, v: q @ k.mT)(q, k, v, mask)
    weights = weights / math.sqrt(q.size(-1))
    return weights @ v, weights


def attention_einsum(q, k, v, mask=None):
    scores = torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -1e9)
    weights = F.softmax(scores, dim=-1)
    return torch.einsum("...ij,...jv->...iv", weights, v), weights


def attention_additive(q, k, v, mask=None):
    """An additive mask of 0 and -inf, and queries scaled beforehand."""
    scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -INF)
    weights = torch.softmax(scores, -1)
    return torch.matmul(weights, v), weights


def attention_fused(q, k, v, mask=None):
    one_hot = torch.eye(k.size(-2), dtype=k.dtype, device=k.device).expand(*k.shape[:-1], k.size(-2))
    fused = F.scaled_dot_product_attention
    return fused(q, k, v, attn_mask=mask), fused(q, k, one_hot, attn_mask=mask)


def attention_baddbmm(q, k, v, mask=None):
    """All leading axes folded into one, then baddbmm with the mask as what is added."""
    lead, n_q, n_k = q.shape[:-2], q.size(-2), k.size(-2)
    bias = q.new_zeros(*lead, n_q, n_k)
    if mask is not None:
        bias = bias.masked_fill(mask.logical_not(), torch.finfo(q.dtype).min)
    q3, k3, v3, bias3 = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v, bias))
    scores = torch.baddbmm(bias3, q3, k3.transpose(1, 2), alpha=q.size(-1) ** -0.5)
    weights = scores.softmax(2)
    return torch.bmm(weights, v3).view(*lead, n_q, -1), weights.view(*lead, n_q, n_k)


def attention_by_query(q, k, v, mask=None):
    """One query at a time, softmax by hand over the allowed keys."""
    rows = []
    full = torch.ones(1, dtype=torch.bool) if mask is None else mask
    full = full.expand(*q.shape[:-1], k.size(-2))
    for i in range(q.size(-2)):
        scores = (k * q[..., i : i + 1, :]).sum(-1) / q.size(-1) ** 0.5
        scores = scores.masked_fill(~full[..., i, :], -INF)
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        rows.append(e / e.sum(-1, keepdim=True))
    weights = torch.stack(rows, -2)
    return (weights[..., None] * v[..., None, :, :]).sum(-2), weights


def _qkv(draw: Draw, lead: str = "B", of: torch.dtype = torch.float32, **fixed: int) -> tuple[list, dict]:
    """Draw q, k and v with all axes of different lengths; `lead` names their leading axes ("", "B", "Bh")."""
    sizes = draw.sizes(B=(2, 3), h=(2, 4), n_q=(3, 5), n_k=(4, 6), d_k=(6, 8), d_v=(7, 9)) | fixed
    front = [sizes[axis] for axis in lead]
    shapes = ((sizes["n_q"], sizes["d_k"]), (sizes["n_k"], sizes["d_k"]), (sizes["n_k"], sizes["d_v"]))
    return [draw.normal(*front, *shape, dtype=of) for shape in shapes], sizes


def _mask(draw: Draw, *shape: int) -> Tensor:
    """A random mask in which every row has a key that it may attend to and one that it may not."""
    mask = draw.uniform(*shape) < 0.6
    for row in mask.view(-1, shape[-1]):
        allowed = draw.size(0, shape[-1] - 1)
        row[allowed], row[allowed - 1] = True, False
    return mask


def _padding(draw: Draw, sizes: dict, *shape: int) -> Tensor:
    """A padding mask [B, …, n_k]: sentences of different lengths, each of at least one token."""
    lengths = torch.tensor([draw.size(1, sizes["n_k"] - 1) for _ in range(sizes["B"])])
    return (torch.arange(sizes["n_k"]) < lengths[:, None]).view(sizes["B"], *shape, sizes["n_k"])


def _call(qkv: list, mask: Tensor | None = None, by_name: bool = False, **more) -> Case:
    if mask is None:
        return Case("function", {"args": qkv, **more})
    named = {"kwargs": {"mask": mask}} if by_name else {}
    return Case("function", {"args": qkv if by_name else [*qkv, mask], **named, **more})


def _plain_cases(draw: Draw) -> list[Case]:
    return [_call(_qkv(draw)[0]), Case("function", {"args": [*_qkv(draw)[0], None]})]


def _mask_cases(draw: Draw) -> list[Case]:
    (one, s), (each, t) = _qkv(draw), _qkv(draw)
    return [
        _call(one, _mask(draw, s["n_q"], s["n_k"])),
        _call(each, _mask(draw, t["B"], t["n_q"], t["n_k"]), by_name=True),
    ]


def _padding_cases(draw: Draw) -> list[Case]:
    qkv, sizes = _qkv(draw)
    return [_call(qkv, _padding(draw, sizes, 1))]


def _head_cases(draw: Draw) -> list[Case]:
    cases = [_call(_qkv(draw, "Bh")[0])]
    for kind in ("one", "padding", "sentence", "shared", "full"):
        qkv, s = _qkv(draw, "Bh")
        shape = {
            "one": (s["n_q"], s["n_k"]),
            "sentence": (s["B"], 1, s["n_q"], s["n_k"]),
            "shared": (1, 1, s["n_q"], s["n_k"]),
            "full": (s["B"], s["h"], s["n_q"], s["n_k"]),
        }.get(kind)
        cases.append(_call(qkv, _mask(draw, *shape) if shape else _padding(draw, s, 1, 1)))
    return cases


def _no_batch_cases(draw: Draw) -> list[Case]:
    qkv, sizes = _qkv(draw, "")
    return [_call(qkv), _call(_qkv(draw, "", **sizes)[0], _mask(draw, sizes["n_q"], sizes["n_k"]))]


def _causal(draw: Draw) -> tuple[list, Tensor, int]:
    n = draw.size(4, 6)
    qkv, _ = _qkv(draw, n_q=n, n_k=n)
    return qkv, torch.ones(n, n, dtype=torch.bool).tril(), n


def _causal_cases(draw: Draw) -> list[Case]:
    """The same past with two futures: what the reference gives for the past is the same in both."""
    qkv, mask, n = _causal(draw)
    other = [x.clone() for x in qkv]
    for x in other:
        x[:, n // 2 :] = 3 * draw.normal(*x[:, n // 2 :].shape)
    return [_call(qkv, mask), _call(other, mask)]


def _huge_cases(draw: Draw) -> list[Case]:
    """The last key is hidden from all queries but the last, and would win against every other by far."""
    (q, k, v), mask, _ = _causal(draw)
    q[:, -1] = q[:, 0]
    k[:, -1] = 400 * math.sqrt(q.size(-1)) * q[:, 0] / (q[:, 0] ** 2).sum(-1, keepdim=True)  # its score: 400
    return [_call([q, k, v], mask)]


def _one_cases(draw: Draw) -> list[Case]:
    single, s = _qkv(draw, B=1)
    padded = _call(single, _mask(draw, s["n_q"], s["n_k"]))
    return [padded, _call(_qkv(draw, n_q=1)[0]), _call(_qkv(draw, n_k=1)[0]), _call(_qkv(draw, d_v=1)[0])]


def _attention_gradients(draw: Draw) -> list[Case]:
    cases = []
    for masked in (False, True):
        qkv, s = _qkv(draw)
        mask = _mask(draw, s["B"], s["n_q"], s["n_k"]) if masked else None
        cotangent = draw.normal(s["B"], s["n_q"], s["d_v"])
        cases.append(_call(qkv, mask, wrt=["0", "1", "2"], cotangents=[cotangent, None]))
    return cases


def _attention_float64(draw: Draw) -> list[Case]:
    (plain, _), (qkv, s) = _qkv(draw, of=torch.float64), _qkv(draw, of=torch.float64)
    return [_call(plain), _call(qkv, _mask(draw, s["n_q"], s["n_k"]))]


def _attention_strided(draw: Draw) -> list[Case]:
    qkv, sizes = _qkv(draw)
    return [_call([{"$": "strided", "tensor": x} for x in qkv], _padding(draw, sizes, 1))]


_SAID = {
    "out.0": "out",
    "out.1": "weights",
    "grad.0": "the gradient of q",
    "grad.1": "the gradient of k",
    "grad.2": "the gradient of v",
}
_EXACT = Tolerance(atol=0.0, rtol=1e-4)  # a weight that should be 0 must be 0


def _attention_row(name: str, says: str, cases: Callable, looks: tuple = ("out.*",), **more) -> Row:
    return Row(name, says, cases, looks=looks, spoken=_SAID, **more)


ATTENTION = Exercise(
    id="3.6",
    symbol="attention",
    kind="function",
    parameters=("q", "k", "v", "mask"),
    points=10,
    todos=("3.6",),
    rows=(
        _attention_row(
            "weights",
            "without a mask: weights [B, n_q, n_k] = softmax(q kᵀ / √d_k)",
            _plain_cases,
            ("out.1",),
            weight=3,
        ),
        _attention_row("output", "out [B, n_q, d_v] = weights @ v", _plain_cases, ("out.0",), weight=2),
        _attention_row(
            "mask",
            "a mask [n_q, n_k] or [B, n_q, n_k] hides keys: True means “may attend”",
            _mask_cases,
            weight=3,
            needs=("weights",),
        ),
        _attention_row(
            "padding", "a padding mask [B, 1, n_k] works for every query", _padding_cases, needs=("mask",)
        ),
        _attention_row(
            "exact zeros",
            "a hidden key gets a weight of exactly 0",
            _mask_cases,
            ("out.1",),
            needs=("mask",),
            tolerance=_EXACT,
        ),
        _attention_row(
            "causal",
            "under a causal mask later tokens do not move the outputs of earlier ones",
            _causal_cases,
            ("out.0",),
            needs=("output", "mask"),
        ),
        _attention_row(
            "hidden but huge",
            "a hidden key does no harm, however large its score",
            _huge_cases,
            needs=("output", "mask"),
        ),
        _attention_row(
            "heads",
            "an axis of heads in front works too: q [B, h, n_q, d_k], with every mask that broadcasts",
            _head_cases,
            weight=2,
            needs=("weights",),
        ),
        _attention_row(
            "no batch", "so does a single sentence: q [n_q, d_k]", _no_batch_cases, needs=("weights",)
        ),
        _attention_row(
            "smallest",
            "a batch of 1, one query, one key, values of width 1",
            _one_cases,
            needs=("output", "mask"),
        ),
        _attention_row(
            "gradient",
            "the gradients of q, k and v are right, with and without a mask",
            _attention_gradients,
            ("grad.*",),
            weight=2,
            needs=("output", "mask"),
        ),
        _attention_row(
            "float64", "float64 inputs give float64 results", _attention_float64, needs=("output", "mask")
        ),
        _attention_row(
            "layout",
            "inputs whose memory is not in order (after a transpose) give the same",
            _attention_strided,
            needs=("output", "mask"),
        ),
        _attention_row(
            "inputs kept",
            "q, k, v and the mask are left unchanged",
            _mask_cases,
            ("changed",),
            needs=("output",),
        ),
    ),
    reference=reference_attention,
    misconceptions=(
        _wrong("over queries", _attend(weigh=lambda s: s.softmax(-2))),
        _wrong("over everything", _attend(weigh=softmax_over_all)),
        _wrong("over the batch", _attend(weigh=lambda s: s.softmax(0))),
        _wrong(
            "axis from the front",
            _attend(weigh=lambda s: s.softmax(2)),
            "dim=2 is the last axis only while there are three. With an axis of heads in front it becomes the queries. "
            "Count from the end: dim=-1.",
        ),
        _wrong("no scale", _attend(scores=lambda q, k, v: q @ k.mT)),
        _wrong(
            "scale by d_k",
            _attend(scores=lambda q, k, v: q @ k.mT / q.size(-1)),
            "The scores are divided by d_k. Divide by its root: the spread of a sum of d_k terms grows like √d_k.",
        ),
        _wrong(
            "scale by √d_v",
            _attend(scores=lambda q, k, v: q @ k.mT / math.sqrt(v.size(-1))),
            "The scale uses the width of the values. A score is a sum over the d_k features of q and k: √q.size(-1).",
        ),
        _wrong(
            "scale by √n_k",
            _attend(scores=lambda q, k, v: q @ k.mT / math.sqrt(k.size(-2))),
            "The scale uses the number of keys. A score is a sum over the d_k features: √q.size(-1).",
        ),
        _wrong(
            "scale by √n_q",
            _attend(scores=lambda q, k, v: q @ k.mT / math.sqrt(q.size(-2))),
            "The scale uses the number of queries. A score is a sum over the d_k features: √q.size(-1).",
        ),
        _wrong("times √d", _attend(scores=lambda q, k, v: q @ k.mT * math.sqrt(q.size(-1)))),
        _wrong(
            "scale after softmax",
            attention_scaled_late,
        ),
        _wrong(
            "mask sign",
            _attend(hide=lambda s, m: s.masked_fill(m, -INF)),
            "The mask is used the wrong way round: here True means “may attend”, so hide where it is False (~mask).",
        ),
        _wrong(
            "mask after softmax",
            _attend(hide=_no_mask, after=lambda w, m: w * m),
            "The mask is applied after softmax: hidden keys have already taken their share, so a row sums to less than "
            "1. Put -∞ into the scores before softmax.",
        ),
        _wrong(
            "renormalised after softmax",
            _attend(hide=_no_mask, after=_renormalised),
            "You zero the hidden weights after softmax and divide again. On paper that is the same; in floats a hidden "
            "key with a huge score has pushed all others to 0, and 0 / 0 is NaN. Put -∞ into the scores first.",
        ),
        _wrong("mask ignored", _attend(hide=_no_mask), "The mask is never used."),
        _wrong(
            "hidden scores set to 0",
            _attend(hide=_fill(0.0)),
            "Hidden scores become 0 (or nearly: was 1e-9 typed for 1e9?). exp(0) is 1, so those keys still take part. "
            "They need -∞, since exp(-∞) = 0.",
        ),
        _wrong(
            "not negative enough",
            _attend(hide=_fill(-10.0)),
            "Hidden scores become a number such as -10, and exp(-10) is small but not 0. Use -∞: float('-inf').",
        ),
        _wrong(
            "mask added",
            _attend(hide=lambda s, m: s + m),
            "The mask is added as 0 and 1. A mask that is added must hold 0 where attending is allowed and -∞ elsewhere.",
        ),
        _wrong(
            "mask as an index",
            _attend(hide=_by_index),
            "scores[~mask] = … needs a mask of exactly the scores' shape. masked_fill broadcasts: a mask with fewer axes, "
            "or with axes of length 1, will do.",
        ),
        _wrong(
            "if mask",
            attention_if_mask,
            "`if mask:` asks a whole tensor for one truth value. Ask whether there is a mask: if mask is not None.",
        ),
        _wrong(
            "mask transposed",
            _attend(hide=lambda s, m: s.masked_fill(~m.mT, -INF)),
            "The mask is transposed. Its last axis is already the keys, as in the scores.",
        ),
        _wrong(
            "mask gets an axis",
            _attend(hide=lambda s, m: s.masked_fill(~m.unsqueeze(1), -INF)),
            "The mask gets one more axis. It already broadcasts against the scores: use it as it is.",
        ),
        _wrong("K not transposed", _attend(scores=lambda q, k, v: q @ k / math.sqrt(q.size(-1)))),
        _wrong("K reshaped", _attend(scores=lambda q, k, v: q @ reshaped(k) / math.sqrt(q.size(-1)))),
        _wrong(
            "axes 1 and 2",
            _attend(scores=lambda q, k, v: q @ k.transpose(1, 2) / math.sqrt(q.size(-1))),
            "transpose(1, 2) fits three axes only. With heads in front those are the heads and the tokens. "
            "Count from the end: transpose(-2, -1).",
        ),
        _wrong(
            "bmm",
            _attend(
                scores=lambda q, k, v: torch.bmm(q, k.mT) / math.sqrt(q.size(-1)),
                mix=lambda w, q, k, v: torch.bmm(w, v),
            ),
            "torch.bmm takes exactly three axes. The contract allows any number in front: use @ (torch.matmul).",
        ),
        _wrong("weights @ K", _attend(mix=lambda w, q, k, v: w @ k)),
        _wrong("weights * V", _attend(mix=lambda w, q, k, v: w * v)),
        _wrong("weights transposed", _attend(give=lambda out, w: (out, w.mT))),
        _wrong("no softmax", _attend(weigh=lambda s: s)),
        _wrong("sigmoid", _attend(weigh=torch.sigmoid)),
        _wrong("uniform", _attend(hide=_no_mask, weigh=uniform)),
        _wrong("first key", _attend(hide=_no_mask, weigh=first_key)),
        _wrong("prefix mean", _attend(hide=_no_mask, weigh=prefix_mean)),
        _wrong("identity", _attend(hide=_no_mask, weigh=identity)),
        _wrong("largest only", _attend(weigh=largest_only)),
        _wrong(
            "one result",
            _attend(give=lambda out, w: out),
            "One result comes back (out alone, or a list of both) where a tuple of two is expected: return out, weights.",
        ),
        _wrong(
            "swapped results",
            _attend(give=lambda out, w: (w, out)),
            "The two results stand in the wrong order: return out, weights.",
        ),
        _wrong(
            "out twice",
            _attend(give=lambda out, w: (out, out)),
            "The second result is out again. Return the weights, the table after softmax.",
        ),
        _wrong(
            "in place",
            _attend(scores=_scaled_in_place),
            "q /= … changes the caller's tensor. Make a new one: q = q / ….",
        ),
        _wrong("dropout", _attend(weigh=lambda s: F.dropout(s.softmax(-1), 0.1))),
        _wrong(
            "detached",
            _attend(mix=lambda w, q, k, v: w.detach() @ v),
            "The weights are cut off from the graph (detach, .data or no_grad), so q and k would never learn.",
        ),
        _wrong("float32 only", _attend(give=lambda out, w: (out.float(), w.float()))),
    ),
    alternatives={
        "einsum, -1e9": attention_einsum,
        "additive mask, scaled queries": attention_additive,
        "fused": attention_fused,
        "baddbmm": attention_baddbmm,
        "a loop over queries": attention_by_query,
    },
    hints={
        "3.6": (
            "Which of the four lines of SelfAttention change when queries, keys and values come from outside? "
            "And where, between score and softmax, must a hidden key lose?",
            "q [..., n_q, d_k] and k [..., n_k, d_k] → scores [..., n_q, n_k]; the mask broadcasts against the scores; "
            "weights @ v [..., n_k, d_v] → out [..., n_q, d_v].",
            "scores = q against k (last two axes swapped), over the root of q's last size; if there is a mask: fill the "
            "scores with minus infinity where it is False; weights = softmax over the last axis; give out and weights. "
            "masked_fill(where, value) fills where `where` is True.",
        )
    },
)


# ---- 3.7 score_variance -----------------------------------------------------------------------------


def reference_variance(d_k, samples, generator=None):
    """The exact variances, with a trace of chance so that they behave as measured ones do."""
    trace = 1e-3 * torch.randn(2, generator=generator, dtype=torch.float64) / math.sqrt(samples)
    return float(d_k * (1 + trace[0])), float(1 + trace[1])


def _draws(d_k: int, samples: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    q = torch.randn(samples, d_k, generator=generator)
    return q, torch.randn(samples, d_k, generator=generator)


def _measured(
    draws: Callable = _draws,
    scores: Callable = lambda q, k: (q * k).sum(-1),
    scale: Callable = lambda scores, d_k, samples: scores / math.sqrt(d_k),
    spread: Callable = lambda scores: scores.var(),
    give: Callable = lambda raw, scaled: (raw, scaled),
) -> Callable:
    def score_variance(d_k, samples, generator=None):
        table = scores(*draws(d_k, samples, generator))
        return give(spread(table).item(), spread(scale(table, d_k, samples)).item())

    return score_variance


def _uniform_draws(d_k, samples, generator):
    q = torch.rand(samples, d_k, generator=generator)
    return q, torch.rand(samples, d_k, generator=generator)


def _centred_draws(d_k, samples, generator):
    return tuple(2 * x - 1 for x in _uniform_draws(d_k, samples, generator))


def _one_draw(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    return q, q


def _always_a_thousand(d_k, samples, generator):
    return _draws(d_k, 1000, generator)


def _no_generator(d_k, samples, generator):
    return _draws(d_k, samples, None)


def _needs_generator(d_k, samples, generator):
    return _draws(d_k, samples, torch.Generator().manual_seed(generator.initial_seed()))


def variance_not_measured(d_k, samples, generator=None):
    return float(d_k), 1.0


def variance_tensors(d_k, samples, generator=None):
    q, k = torch.randn(2, samples, d_k, generator=generator, dtype=torch.float64)
    scores = torch.einsum("sd,sd->s", q, k)
    return scores.var(unbiased=False), (scores / d_k**0.5).var(unbiased=False)


def variance_by_squares(d_k, samples, generator=None):
    """Mean of squares minus square of the mean, in blocks of 50 pairs."""
    raw = []
    for start in range(0, samples, 50):
        size = min(50, samples - start)
        q, k = torch.randn(size, d_k, generator=generator), torch.randn(size, d_k, generator=generator)
        raw += (q * k).sum(-1).tolist()
    mean = sum(raw) / samples
    variance = sum(s * s for s in raw) / samples - mean**2
    return variance, variance / d_k


def variance_all_pairs(d_k, samples, generator=None):
    """Every query against every key."""
    q, k = _draws(d_k, samples, generator)
    scores = q @ k.T
    return scores.var(), (scores * d_k**-0.5).var()


def variance_bmm(d_k, samples, generator=None):
    q, k = _draws(d_k, samples, generator)
    scores = torch.bmm(q[:, None], k[:, :, None]).flatten()
    return torch.var(scores).item(), torch.square(torch.std(scores / math.sqrt(d_k))).item()


# 200 calls of 500 samples: 100 000 products, whose variance scatters by √(2.17 / 100 000) = 0.5 %. The
# tolerance of 4 % is more than eight times that: chance fails a right answer less than once in 10^15 runs.
_CALLS, _SAMPLES, _ABOUT = 200, 500, Tolerance(atol=0.0, rtol=0.04)
_FEW_CALLS, _ROUGHLY = 40, Tolerance(atol=0.0, rtol=0.12)  # the same certainty with a fifth of the samples


def _variance_case(draw: Draw, seeded: bool = True) -> list[Case]:
    start = draw.size(0, 10**6)
    seeds = [start + i for i in range(_CALLS)] if seeded else [None] * _FEW_CALLS
    return [Case("variance", {"d_k": draw.choice([36, 42, 49]), "samples": _SAMPLES, "seeds": seeds})]


def _repeat_case(draw: Draw) -> list[Case]:
    return [Case("variance repeats", {"d_k": draw.size(5, 9), "samples": 20, "seed": draw.size(0, 10**6)})]


def _spread_case(draw: Draw) -> list[Case]:
    """128 times the samples: right answers scatter about √128 = 11 times less; 3 times is asked for."""
    start = draw.size(0, 10**6)
    sizes = {"d_k": draw.size(6, 8), "few": 8, "many": 1024, "factor": 3.0}
    return [Case("variance spread", sizes | {"seeds": list(range(start, start + 60))})]


SCORE_VARIANCE = Exercise(
    id="3.7",
    symbol="score_variance",
    kind="function",
    parameters=("d_k", "samples", "generator"),
    points=4,
    todos=("3.7",),
    rows=(
        Row(
            "raw",
            "raw, the variance of q·k, is about d_k (mean of 200 runs, within 4 %)",
            _variance_case,
            looks=("raw",),
            weight=2,
            tolerance=_ABOUT,
        ),
        Row(
            "scaled",
            "scaled, the variance of q·k / √d_k, is about 1 (mean of 200 runs, within 4 %)",
            _variance_case,
            looks=("scaled",),
            weight=2,
            tolerance=_ABOUT,
        ),
        Row(
            "repeats",
            "equal generators give equal numbers, and another seed gives others",
            _repeat_case,
            looks=("repeatable", "follows_generator"),
            needs=("raw",),
            spoken={
                "repeatable": "“equal generators give equal numbers”",
                "follows_generator": "“another seed gives other numbers”",
            },
        ),
        Row(
            "samples",
            "more samples make the numbers steadier",
            _spread_case,
            looks=("steadier",),
            needs=("raw",),
            spoken={"steadier": "“1024 samples scatter less than 8”"},
        ),
        Row(
            "no generator",
            "it works without a generator as well",
            lambda draw: _variance_case(draw, seeded=False),
            looks=("raw", "scaled"),
            needs=("raw", "scaled"),
            tolerance=_ROUGHLY,
        ),
    ),
    reference=reference_variance,
    misconceptions=(
        _wrong(
            "not scaled",
            _measured(scale=lambda s, d_k, samples: s),
            "Both numbers are the variance of q·k. The second is that of q·k / √d_k.",
        ),
        _wrong(
            "scaled by d_k",
            _measured(scale=lambda s, d_k, samples: s / d_k),
            "The scores are divided by d_k, which divides their variance by d_k². Divide the scores by √d_k.",
        ),
        _wrong(
            "multiplied",
            _measured(scale=lambda s, d_k, samples: s * math.sqrt(d_k)),
            "The scores are multiplied by √d_k; divide them by it.",
        ),
        _wrong(
            "scaled by √samples",
            _measured(scale=lambda s, d_k, samples: s / math.sqrt(samples)),
            "The scores are divided by the root of the number of samples. The width d_k is what makes them large.",
        ),
        _wrong(
            "standard deviation",
            _measured(spread=lambda s: s.std()),
            "These are standard deviations, the roots of the variances: use var, not std.",
        ),
        _wrong(
            "both scaled",
            _measured(scores=lambda q, k: (q * k).sum(-1) / math.sqrt(q.size(-1)), scale=lambda s, d, n: s),
            "Both numbers are measured after scaling. The first is the variance of q·k as it is.",
        ),
        _wrong(
            "mean product",
            _measured(scores=lambda q, k: (q * k).mean(-1)),
            "You take the mean of the d_k products. A dot product is their sum.",
        ),
        _wrong(
            "not summed",
            _measured(scores=lambda q, k: q * k),
            "The products q_i k_i are not summed, so this is the variance of single products. Sum over the d_k features "
            "first: one score a sample.",
        ),
        _wrong(
            "q @ k",
            _measured(scores=lambda q, k: q @ k),
            "q @ k is a product of matrices, and these shapes do not fit. One score a pair is wanted: multiply q and k "
            "number by number, then sum over the features.",
        ),
        _wrong(
            "summed over samples",
            _measured(scores=lambda q, k: (q * k).sum(0)),
            "The products are summed over the samples. A score is the sum over the features, the last axis.",
        ),
        _wrong(
            "q with itself",
            _measured(draws=_one_draw),
            "q and k are the same numbers (one draw, or two generators with one seed): q·q has twice the variance. "
            "Draw k after q, from the same generator.",
        ),
        _wrong(
            "uniform 0 to 1",
            _measured(draws=_uniform_draws),
            "torch.rand draws from 0 to 1. The argument needs mean 0 and variance 1: torch.randn.",
        ),
        _wrong(
            "uniform -1 to 1",
            _measured(draws=_centred_draws),
            "Numbers spread evenly from -1 to 1 have variance 1/3. The argument needs variance 1: torch.randn.",
        ),
        _wrong(
            "swapped results",
            _measured(give=lambda raw, scaled: (scaled, raw)),
            "The two numbers stand in the wrong order: return raw, scaled.",
        ),
        _wrong(
            "not measured",
            variance_not_measured,
            "The numbers do not depend on the generator. Are they written down rather than measured, or is a seed set "
            "inside? Draw q and k with generator=generator.",
        ),
        _wrong(
            "generator ignored",
            _measured(draws=_no_generator),
            "Equal generators gave different numbers. Pass it to every draw: torch.randn(…, generator=generator).",
        ),
        _wrong(
            "generator required",
            _measured(draws=_needs_generator),
            "Without a generator it stops. torch.randn accepts generator=None, so hand it on as it is.",
        ),
        _wrong(
            "samples ignored",
            _measured(draws=_always_a_thousand),
            "The number of samples is not used: 8 and 1024 give numbers that scatter alike.",
        ),
    ),
    alternatives={
        "tensors, einsum": variance_tensors,
        "in blocks, by squares": variance_by_squares,
        "all pairs": variance_all_pairs,
        "bmm": variance_bmm,
    },
    hints={
        "3.7": (
            "How would you find out by experiment how far the scores of random vectors scatter?",
            "q and k: [samples, d_k], drawn from a normal distribution → q·k: [samples] → two numbers.",
            "draw q, then k, both with the generator; scores = the sum of their products over the features; give the "
            "variance of the scores, and the variance of the scores over the root of d_k",
        )
    },
)

EXERCISES = (SELF_ATTENTION, STABLE_SOFTMAX, ATTENTION, SCORE_VARIANCE)
