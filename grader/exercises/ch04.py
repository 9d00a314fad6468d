"""Chapter 04, multi-head attention: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case

CHAPTER = "04_multi_head"


def _sizes(draw: Draw) -> dict[str, int]:
    """Return B, h, d_k, d, n_q and n_k, no two of them equal."""
    while True:
        sizes = draw.sizes(B=(2, 3), h=(2, 4), d_k=(2, 5), n_q=(5, 7), n_k=(5, 7))
        sizes["d"] = sizes["h"] * sizes["d_k"]
        if len(set(sizes.values())) == len(sizes) and sizes["d"] <= 12:
            return sizes


def _strided(tensor: torch.Tensor) -> dict:
    return {"$": "strided", "tensor": tensor}


# ---- 4.1 split_heads --------------------------------------------------------------------------------


def reference_split(x, h):
    """Cut the width into h pieces and stack them as a new axis."""
    if x.shape[-1] % h:
        raise ValueError(f"h = {h} does not divide d = {x.shape[-1]}")
    return torch.stack(x.chunk(h, dim=-1), dim=1)


def _refuse(x, h):
    if x.size(-1) % h != 0:
        raise ValueError("h does not divide d")


def split_view(x, h):
    _refuse(x, h)
    B, n, d = x.shape
    return x.reshape(B, h, n, d // h)


def split_forgot_transpose(x, h):
    _refuse(x, h)
    B, n, d = x.shape
    return x.reshape(B, n, h, d // h)


def split_interleaved(x, h):
    _refuse(x, h)
    B, n, d = x.shape
    return x.reshape(B, n, d // h, h).permute(0, 3, 1, 2)


def split_swapped_sizes(x, h):
    _refuse(x, h)
    B, n, d = x.shape
    return x.reshape(B, n, d // h, h).transpose(1, 2)


def split_keys_last(x, h):
    return reference_split(x, h).transpose(2, 3)


def split_heads_first(x, h):
    return reference_split(x, h).transpose(0, 1)


def split_into_batch(x, h):
    return reference_split(x, h).flatten(0, 1)


def split_transpose_first(x, h):
    _refuse(x, h)
    B, n, d = x.shape
    return x.transpose(1, 2).reshape(B, h, n, d // h)


def split_same_head(x, h):
    return reference_split(x, h)[:, :1].expand(-1, h, -1, -1)


def split_whole_width(x, h):
    _refuse(x, h)
    return x[:, None].expand(-1, h, -1, -1)


def split_detached(x, h):
    return reference_split(x, h).detach()


def split_no_error(x, h):
    B, n, d = x.shape
    return x.reshape(B, n, h, d // h).transpose(1, 2)


def split_drops_rest(x, h):
    d_k = x.size(-1) // h
    return reference_split(x[..., : h * d_k], h)


def split_asserts(x, h):
    assert x.size(-1) % h == 0, "h does not divide d"
    return reference_split(x, h)


def split_unflatten(x, h):
    _refuse(x, h)
    return x.unflatten(-1, (h, -1)).permute(0, 2, 1, 3)


def split_narrow(x, h):
    d_k, rest = divmod(x.shape[2], h)
    if rest:
        raise ValueError("h does not divide d")
    heads = [x[:, :, head * d_k : (head + 1) * d_k].unsqueeze(1) for head in range(h)]
    return torch.cat(heads, dim=1)


def split_einsum(x, h):
    _refuse(x, h)
    return torch.einsum("bnhk->bhnk", x.reshape(*x.shape[:2], h, -1)).contiguous()


def split_unfold(x, h):
    _refuse(x, h)
    d_k = x.size(-1) // h
    return x.unfold(-1, d_k, d_k).swapaxes(1, 2)


def _labels(B: int, n: int, d: int) -> torch.Tensor:
    """Return x[b, t, j] = 1000·b + 100·t + j, so that every number says where it came from."""
    b, t, j = torch.meshgrid(torch.arange(B), torch.arange(n), torch.arange(d), indexing="ij")
    return (1000 * b + 100 * t + j).float()


def _split_label_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [Case("function", {"args": [_labels(s["B"], s["n_q"], s["d"]), s["h"]]})]


def _split_other_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    x = draw.normal(s["B"], s["n_q"], s["d"])
    return [Case("function", {"args": [x, h]}) for h in (s["h"], 1, s["d"])]


def _split_short_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    shapes = ((1, s["n_q"]), (s["B"], 1))
    return [Case("function", {"args": [draw.normal(*shape, s["d"]), s["h"]]}) for shape in shapes]


def _split_gradient_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    x, cotangent = draw.normal(s["B"], s["n_q"], s["d"]), draw.normal(s["B"], s["h"], s["n_q"], s["d_k"])
    return [Case("function", {"args": [x, s["h"]], "wrt": ["0"], "cotangents": [cotangent]})]


def _split_layout_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [Case("function", {"args": [_strided(draw.normal(s["B"], s["n_q"], s["d"])), s["h"]]})]


def _split_dtype_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    x = draw.normal(s["B"], s["n_q"], s["d"], dtype=torch.float64)
    return [Case("function", {"args": [x, s["h"]]})]


def _split_error_cases(draw: Draw) -> list[Case]:
    d, h = draw.choice([(10, 3), (10, 4), (14, 4), (9, 2), (8, 3), (11, 2)])
    run = Case("function", {"args": [draw.normal(2, 5, d), h]})
    return [Case("raises", {"run": run.tree(), "error": "ValueError"})]


SPLIT = Exercise(
    id="4.1",
    symbol="split_heads",
    kind="function",
    parameters=("x", "h"),
    points=4,
    todos=("4.1",),
    rows=(
        Row(
            "every number in its head",
            "each number goes to its own token and head (the number is 1000·sequence + 100·token + feature)",
            _split_label_cases,
            looks=("out",),
            weight=3,
        ),
        Row(
            "other widths",
            "it works for any h that divides d, for h = 1 and h = d too",
            _split_other_cases,
            looks=("out",),
            needs=("every number in its head",),
        ),
        Row(
            "one sequence, one token",
            "B = 1 and n = 1 keep their axes",
            _split_short_cases,
            looks=("out",),
            needs=("every number in its head",),
        ),
        Row(
            "error",
            "ValueError when h does not divide d",
            _split_error_cases,
            looks=("raised",),
            needs=("every number in its head",),
        ),
        Row(
            "gradient",
            "the gradient finds its way back to x",
            _split_gradient_cases,
            looks=("grad.0",),
            needs=("every number in its head",),
            spoken={"grad.0": "the gradient of x"},
        ),
        Row(
            "memory layout",
            "an x whose memory is in another order gives the same",
            _split_layout_cases,
            looks=("out",),
            needs=("every number in its head",),
        ),
        Row(
            "float64, x kept",
            "a float64 input gives float64, and x itself is left unchanged",
            _split_dtype_cases,
            looks=("out", "changed"),
            needs=("every number in its head",),
        ),
    ),
    reference=reference_split,
    misconceptions=(
        Wrong(
            "view without transpose",
            "view(B, h, n, d_k) fills the new shape in memory order, so the first head gets the first tokens "
            "whole, and no head sees every token. Cut only the last axis, [B, n, h, d_k]; "
            "then exchange axes 1 and 2.",
            split_view,
        ),
        Wrong(
            "transpose forgotten",
            "The cut is right, but the axes still stand as [B, n, h, d_k]. The head must come before the token: "
            "exchange axes 1 and 2.",
            split_forgot_transpose,
        ),
        Wrong(
            "interleaved",
            "Your heads take turns over the features: feature j went to head j % h. A head is a block of "
            "neighbours: head 0 has features 0 … d_k − 1. Cut the last axis as (h, d_k), not (d_k, h).",
            split_interleaved,
        ),
        Wrong(
            "h and d_k exchanged",
            "You cut the width into d_k heads of width h. It is the other way round: h heads of width d_k.",
            split_swapped_sizes,
        ),
        Wrong(
            "d_k before n",
            "The last two axes are exchanged: [B, h, d_k, n]. That is the shape of K transposed, which the "
            "attention makes by itself. Here the answer is [B, h, n, d_k].",
            split_keys_last,
        ),
        Wrong(
            "head before batch",
            "The head axis stands in front of the batch: [h, B, n, d_k]. The batch stays first.",
            split_heads_first,
        ),
        Wrong(
            "heads in the batch",
            "Batch and head became one axis [B·h, n, d_k]. Keep them apart, so that a mask can tell "
            "a sequence from a head.",
            split_into_batch,
        ),
        Wrong(
            "transposed too early",
            "You exchanged tokens and features before the cut, so each head holds other features of mixed "
            "tokens. First cut the last axis, then exchange axes 1 and 2.",
            split_transpose_first,
        ),
        Wrong(
            "one head, h times",
            "Every head holds the same d_k features, those of head 0. The other features are lost.",
            split_same_head,
        ),
        Wrong(
            "whole width",
            "Every head got all d features. A head gets its own d_k = d / h of them.",
            split_whole_width,
        ),
        Wrong(
            "detached",
            "The result is cut off from x (detach, .data or no_grad), so no gradient would reach W_q.",
            split_detached,
        ),
        Wrong(
            "no ValueError",
            "When h does not divide d, the error of view comes through, and it speaks of sizes a reader has "
            "never heard of. Test x.size(-1) % h first and raise ValueError with both numbers.",
            split_no_error,
        ),
        Wrong(
            "drops the rest",
            "When h does not divide d, the features that are left over vanish silently. Raise ValueError.",
            split_drops_rest,
        ),
        Wrong(
            "assert",
            "assert raises AssertionError, and `python -O` skips it. A wrong argument is a ValueError: "
            "if …: raise ValueError(…).",
            split_asserts,
        ),
    ),
    alternatives={
        "unflatten and permute": split_unflatten,
        "slices and cat": split_narrow,
        "einsum": split_einsum,
        "unfold": split_unfold,
    },
    hints={
        "4.1": (
            "Which axis of x [B, n, d] holds the numbers that must be parted? Which axes must stay as they are?",
            "[B, n, d] → cut the last axis → [B, n, h, d / h] → exchange axes 1 and 2 → [B, h, n, d / h]. "
            "And what is d % h when h divides d?",
            "if the width leaves a rest when divided by h: raise a ValueError. Then view with four sizes, "
            "the last two being h and d_k; then transpose two axes.",
        )
    },
)


# ---- 4.4 merge_heads --------------------------------------------------------------------------------


def reference_merge(x):
    """Put the heads side by side along the width."""
    return torch.cat(x.unbind(dim=1), dim=-1)


def merge_reshape(x):
    B, h, n, d_k = x.shape
    return x.reshape(B, n, h * d_k)


def merge_view(x):
    B, h, n, d_k = x.shape
    return x.transpose(1, 2).view(B, n, h * d_k)


def merge_swaps_all(x):
    B, h, n, d_k = x.shape
    return x.transpose(1, 3).reshape(B, n, h * d_k)


def merge_interleaved(x):
    return x.permute(0, 2, 3, 1).flatten(2)


def merge_mean(x):
    return x.mean(dim=1)


def merge_sum(x):
    return x.sum(dim=1)


def merge_mean_wide(x):
    return x.mean(dim=1).repeat(1, 1, x.size(1))


def merge_first(x):
    return x[:, 0]


def merge_first_repeated(x):
    return x[:, 0].repeat(1, 1, x.size(1))


def merge_along_tokens(x):
    return x.flatten(1, 2)


def merge_only_transposes(x):
    return x.transpose(1, 2)


def merge_tokens_first(x):
    return reference_merge(x).transpose(0, 1)


def merge_detached(x):
    return reference_merge(x).detach()


def merge_squeezes(x):
    return reference_merge(x).squeeze()


def merge_flips(x):
    return reference_merge(x.flip(1))


def merge_contiguous(x):
    B, h, n, d_k = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(B, n, h * d_k)


def merge_einsum(x):
    return torch.einsum("bhnk->bnhk", x).flatten(-2)


def merge_loop(x):
    B, h, n, d_k = x.shape
    out = x.new_empty(B, n, h * d_k)
    for head in range(h):
        out[:, :, head * d_k : (head + 1) * d_k] = x[:, head]
    return out


def merge_stack(x):
    return torch.stack(list(x.unbind(1)), dim=2).reshape(x.size(0), x.size(2), -1)


def _labelled_heads(B: int, h: int, n: int, d_k: int) -> torch.Tensor:
    return reference_split(_labels(B, n, h * d_k), h).contiguous()


def _merge_label_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [Case("function", {"args": [_labelled_heads(s["B"], s["h"], s["n_q"], s["d_k"])]})]


def _merge_other_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    shapes = ((s["h"], s["d_k"]), (1, s["d"]), (s["d"], 1))
    return [
        Case("function", {"args": [draw.normal(s["B"], h, s["n_q"], d_k, scale=1.0)]}) for h, d_k in shapes
    ]


def _merge_short_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    shapes = ((1, s["h"], s["n_q"]), (s["B"], s["h"], 1))
    return [Case("function", {"args": [draw.normal(*shape, s["d_k"])]}) for shape in shapes]


def _merge_gradient_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    x, cotangent = draw.normal(s["B"], s["h"], s["n_q"], s["d_k"]), draw.normal(s["B"], s["n_q"], s["d"])
    return [Case("function", {"args": [x], "wrt": ["0"], "cotangents": [cotangent]})]


def _merge_layout_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [Case("function", {"args": [_strided(draw.normal(s["B"], s["h"], s["n_q"], s["d_k"]))]})]


def _merge_dtype_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [
        Case("function", {"args": [draw.normal(s["B"], s["h"], s["n_q"], s["d_k"], dtype=torch.float64)]})
    ]


MERGE = Exercise(
    id="4.4",
    symbol="merge_heads",
    kind="function",
    parameters=("x",),
    points=4,
    todos=("4.4",),
    rows=(
        Row(
            "every number back",
            "each number is back with its token, heads side by side (1000·sequence + 100·token + feature)",
            _merge_label_cases,
            looks=("out",),
            weight=3,
        ),
        Row(
            "other widths",
            "it works for any h and d_k, for one head and for d_k = 1 too",
            _merge_other_cases,
            looks=("out",),
            needs=("every number back",),
        ),
        Row(
            "one sequence, one token",
            "B = 1 and n = 1 keep their axes",
            _merge_short_cases,
            looks=("out",),
            needs=("every number back",),
        ),
        Row(
            "gradient",
            "the gradient finds its way back to the heads",
            _merge_gradient_cases,
            looks=("grad.0",),
            needs=("every number back",),
            spoken={"grad.0": "the gradient of x"},
        ),
        Row(
            "memory layout",
            "an x whose memory is in another order gives the same",
            _merge_layout_cases,
            looks=("out",),
            needs=("every number back",),
        ),
        Row(
            "float64, x kept",
            "a float64 input gives float64, and x itself is left unchanged",
            _merge_dtype_cases,
            looks=("out", "changed"),
            needs=("every number back",),
        ),
    ),
    reference=reference_merge,
    misconceptions=(
        Wrong(
            "merging without transpose",
            "reshape reads the numbers in memory order, and there all tokens of head 0 come first. So a row of "
            "your result holds several tokens. Bring the token axis in front of the head axis before you reshape.",
            merge_reshape,
        ),
        Wrong(
            "view after transpose",
            "The order is right, but view only relabels memory, and after transpose the memory is in another "
            "order. Use reshape, or contiguous() before view: both copy the numbers into the new order.",
            merge_view,
        ),
        Wrong(
            "wrong axes exchanged",
            "You exchanged axes 1 and 3, heads and features. Exchange 1 and 2, heads and tokens.",
            merge_swaps_all,
        ),
        Wrong(
            "interleaved",
            "The heads' features take turns: all feature-0s first, then all feature-1s. The heads stand side "
            "by side, head 0's d_k features first: [B, n, h, d_k] before the last two axes become one.",
            merge_interleaved,
        ),
        Wrong(
            "mean of the heads",
            "The heads are averaged, so what each one found is blurred. Set them side by side: [B, n, h·d_k].",
            merge_mean,
        ),
        Wrong(
            "sum of the heads",
            "The heads are summed. Set them side by side: [B, n, h·d_k]. W_o mixes them afterwards.",
            merge_sum,
        ),
        Wrong(
            "mean, repeated",
            "The mean of the heads stands there h times. Each block of d_k features belongs to its own head.",
            merge_mean_wide,
        ),
        Wrong("first head", "Only head 0 is left. All h heads stand side by side.", merge_first),
        Wrong(
            "first head, repeated",
            "Head 0 stands there h times; the other heads are lost.",
            merge_first_repeated,
        ),
        Wrong(
            "along the tokens",
            "The heads are laid one after the other along the tokens: [B, h·n, d_k]. "
            "They belong side by side along the width: [B, n, h·d_k].",
            merge_along_tokens,
        ),
        Wrong(
            "only transposed",
            "The axes are in order, [B, n, h, d_k]; now the last two must become one of length d.",
            merge_only_transposes,
        ),
        Wrong("tokens before batch", "The batch must stay the first axis: [B, n, d].", merge_tokens_first),
        Wrong("heads reversed", "The heads stand in reverse order. Head 0 comes first.", merge_flips),
        Wrong(
            "detached",
            "The result is cut off from x (detach, .data or no_grad), so nothing below W_o would be trained.",
            merge_detached,
        ),
        Wrong(
            "squeezed",
            "squeeze() removes every axis of length 1, so a batch of one sequence loses its batch axis.",
            merge_squeezes,
        ),
    ),
    alternatives={
        "contiguous and view": merge_contiguous,
        "einsum": merge_einsum,
        "loop over heads": merge_loop,
        "stack and reshape": merge_stack,
    },
    hints={
        "4.4": (
            "split_heads cut and then exchanged two axes. In which order must the two steps be undone?",
            "[B, h, n, d_k] → exchange axes 1 and 2 → [B, n, h, d_k] → make one axis of the last two → [B, n, h·d_k].",
            "transpose axes 1 and 2; then reshape (view would refuse: the memory is not in order) "
            "to B, n and whatever is left.",
        )
    },
)


# ---- 4.2, 4.3, 4.5 MultiHeadAttention ---------------------------------------------------------------


class Reference(nn.Module):
    """torch's own functional multi-head attention, batch first, with this course's names and mask sign."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q, k, v, mask=None):
        layers = (self.W_q, self.W_k, self.W_v)
        forbidden = None if mask is None else self._forbidden(mask, q.size(0), q.size(1), k.size(1))
        out, weights = F.multi_head_attention_forward(
            *(x.transpose(0, 1) for x in (q, k, v)),  # torch: [n, B, d]
            embed_dim_to_check=q.size(-1),
            num_heads=self.h,
            in_proj_weight=torch.cat([layer.weight for layer in layers]),
            in_proj_bias=torch.cat([layer.bias for layer in layers]),
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=self.W_o.weight,
            out_proj_bias=self.W_o.bias,
            attn_mask=forbidden,
            average_attn_weights=False,
        )
        self.weights = weights.detach()
        return out.transpose(0, 1)

    def _forbidden(self, mask, B, n_q, n_k):
        """torch's mask: True means "must not attend", one [n_q, n_k] for each sequence and head."""
        if mask.dim() == 3:
            mask = mask[:, None]
        return ~mask.expand(B, self.h, n_q, n_k).reshape(B * self.h, n_q, n_k)


class Variant(nn.Module):
    """Multi-head attention with every step in a method of its own, so that a mistake changes one step."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h, self.weights = h, None
        self.layers(d_model)

    def layers(self, d_model):
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def project(self, q, k, v):
        return self.W_q(q), self.W_k(k), self.W_v(v)

    def split(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def scale(self, Q, K):
        return math.sqrt(Q.size(-1))

    def spread(self, mask):
        return mask[:, None] if mask is not None and mask.dim() == 3 else mask

    def hide(self, scores, mask):
        return scores.masked_fill(~mask, -math.inf)

    def normalise(self, scores):
        return scores.softmax(dim=-1)

    def attend(self, Q, K, V, mask):
        scores = Q @ K.transpose(-2, -1) / self.scale(Q, K)  # [B, h, n_q, n_k]
        if mask is not None:
            scores = self.hide(scores, mask)
        weights = self.normalise(scores)
        return weights @ V, weights

    def keep(self, weights):
        self.weights = weights.detach()

    def finish(self, heads):
        return self.W_o(self.merge(heads))

    def forward(self, q, k, v, mask=None):
        Q, K, V = (self.split(x) for x in self.project(q, k, v))
        heads, weights = self.attend(Q, K, V, self.spread(mask))
        self.keep(weights)
        return self.finish(heads)


class SplitByView(Variant):
    def split(self, x):
        B, n, d = x.shape
        return x.reshape(B, self.h, n, d // self.h)


class SplitAndMergeByView(SplitByView):
    def merge(self, x):
        B, h, n, d_k = x.shape
        return x.reshape(B, n, h * d_k)


class SplitInterleaved(Variant):
    def split(self, x):
        return x.unflatten(-1, (-1, self.h)).permute(0, 3, 1, 2)


class MergeByReshape(Variant):
    def merge(self, x):
        B, h, n, d_k = x.shape
        return x.reshape(B, n, h * d_k)


class MergeByView(Variant):
    def merge(self, x):
        B, h, n, d_k = x.shape
        return x.transpose(1, 2).view(B, n, h * d_k)


class NoWo(Variant):
    def finish(self, heads):
        return self.merge(heads)


class SharedHeads(Variant):
    """Every head uses one small projection."""

    def layers(self, d_model):
        d_k = d_model // self.h
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_k) for _ in range(3))
        self.W_o = nn.Linear(d_model, d_model)

    def split(self, x):
        return x[:, None].expand(-1, self.h, -1, -1)


class OneHeadRepeated(Variant):
    def split(self, x):
        return super().split(x)[:, :1].expand(-1, self.h, -1, -1)


class OneHead(Variant):
    """h is ignored: a single head of width d."""

    def split(self, x):
        return x[:, None]

    def keep(self, weights):
        self.weights = weights.expand(-1, self.h, -1, -1).detach()


class OneProjection(Variant):
    def project(self, q, k, v):
        return self.W_q(q), self.W_q(k), self.W_q(v)


class ValuesFromKeys(Variant):
    def project(self, q, k, v):
        return self.W_q(q), self.W_k(k), self.W_v(k)


class ValuesByKeyLayer(Variant):
    def project(self, q, k, v):
        return self.W_q(q), self.W_k(k), self.W_k(v)


class QueriesAndKeysSwapped(Variant):
    def project(self, q, k, v):
        return self.W_q(k), self.W_k(q), self.W_v(v)


class AllFromQ(Variant):
    def project(self, q, k, v):
        return self.W_q(q), self.W_k(q), self.W_v(q)


class MixesKeys(Variant):
    def attend(self, Q, K, V, mask):
        _, weights = super().attend(Q, K, V, mask)
        return weights @ K, weights


class AveragesHeads(Variant):
    def merge(self, x):
        return x.mean(dim=1).repeat(1, 1, self.h)


class AveragesWeights(Variant):
    def attend(self, Q, K, V, mask):
        _, weights = super().attend(Q, K, V, mask)
        weights = weights.mean(dim=1, keepdim=True).expand_as(weights)
        return weights @ V, weights


class KeepsAverage(Variant):
    def keep(self, weights):
        self.weights = weights.mean(dim=1).detach()


class ScaleByModel(Variant):
    def scale(self, Q, K):
        return math.sqrt(Q.size(-1) * self.h)


class NoScale(Variant):
    def scale(self, Q, K):
        return 1.0


class ScaleByWidth(Variant):
    def scale(self, Q, K):
        return Q.size(-1)


class ScaleByLength(Variant):
    def scale(self, Q, K):
        return math.sqrt(K.size(-2))


class ScaleByHeads(Variant):
    def scale(self, Q, K):
        return math.sqrt(self.h)


class OverQueries(Variant):
    def normalise(self, scores):
        return scores.softmax(dim=-2).nan_to_num()


class OverHeads(Variant):
    def normalise(self, scores):
        return scores.softmax(dim=1).nan_to_num()


class OverEverything(Variant):
    def normalise(self, scores):
        return scores.flatten(2).softmax(dim=-1).view_as(scores)


class SignReversed(Variant):
    def hide(self, scores, mask):
        return scores.masked_fill(mask, -math.inf)


class MaskAfter(Variant):
    def attend(self, Q, K, V, mask):
        _, weights = super().attend(Q, K, V, None)
        weights = weights if mask is None else weights * mask
        return weights @ V, weights


class MaskIsZero(Variant):
    def hide(self, scores, mask):
        return scores * mask


class MaskSoft(Variant):
    def hide(self, scores, mask):
        return scores.masked_fill(~mask, -10.0)


class MaskAdded(Variant):
    def hide(self, scores, mask):
        return scores + mask


class MaskIgnored(Variant):
    def hide(self, scores, mask):
        return scores


class NoHeadAxis(Variant):
    def spread(self, mask):
        return mask


class NoHeadAxisFused(NoHeadAxis):
    def attend(self, Q, K, V, mask):
        one_hot = torch.eye(K.size(-2), dtype=K.dtype).expand(*K.shape[:-1], K.size(-2))
        weights = F.scaled_dot_product_attention(Q, K, one_hot, mask)
        return F.scaled_dot_product_attention(Q, K, V, mask), weights


class AlwaysHeadAxis(Variant):
    def spread(self, mask):
        return None if mask is None else mask.unsqueeze(1)


class FirstMask(Variant):
    def spread(self, mask):
        return mask if mask is None else mask.reshape(-1, *mask.shape[-2:])[0]


class MaskInPlace(Variant):
    def spread(self, mask):
        if mask is not None and mask.dim() == 3:
            mask.unsqueeze_(1)
        return mask


class Attached(Variant):
    def keep(self, weights):
        self.weights = weights


class NotKept(Variant):
    def keep(self, weights):
        pass


class AlwaysCausal(Variant):
    def attend(self, Q, K, V, mask):
        causal = torch.ones(Q.size(-2), K.size(-2), dtype=torch.bool).tril()
        return super().attend(Q, K, V, causal if mask is None else causal & mask)

    def normalise(self, scores):
        return super().normalise(scores).nan_to_num()


class Uniform(Variant):
    def normalise(self, scores):
        return super().normalise(torch.where(scores.isinf(), scores, scores * 0))


class FirstKey(Variant):
    def normalise(self, scores):
        return F.one_hot(torch.zeros_like(scores[..., 0]).long(), scores.size(-1)).to(scores)


class PrefixMean(Variant):
    def normalise(self, scores):
        ones = torch.ones_like(scores).tril()
        return ones / ones.sum(-1, keepdim=True)


class Identity(Variant):
    def forward(self, q, k, v, mask=None):
        return q


class AddsInput(Variant):
    def forward(self, q, k, v, mask=None):
        return q + super().forward(q, k, v, mask)


class DropsOut(Variant):
    def attend(self, Q, K, V, mask):
        _, weights = super().attend(Q, K, V, mask)
        return F.dropout(weights, 0.1, self.training) @ V, weights


class SameLength(Variant):
    """Takes the length of q for k and v too."""

    def forward(self, q, k, v, mask=None):
        B, n, d = q.shape
        Q, K, V = (x.view(B, n, self.h, d // self.h).transpose(1, 2) for x in self.project(q, k, v))
        heads, weights = self.attend(Q, K, V, self.spread(mask))
        self.keep(weights)
        return self.finish(heads)


class Casts(Variant):
    def attend(self, Q, K, V, mask):
        return tuple(x.float().to(Q.dtype) for x in super().attend(Q.float(), K.float(), V.float(), mask))


class WithEinsum(nn.Module):
    """einsum for both products, and the mask as a sum with 0 and −∞."""

    def __init__(self, d_model, h):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.W_o = nn.Linear(d_model, d_model)
        self.h, self.d_k = h, d_model // h

    def forward(self, q, k, v, mask=None):
        B = q.shape[0]
        q = self.W_q(q).reshape(B, -1, self.h, self.d_k)
        k = self.W_k(k).reshape(B, -1, self.h, self.d_k)
        v = self.W_v(v).reshape(B, -1, self.h, self.d_k)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.d_k**-0.5
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.ndim < 4 else mask
            scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, -1)
        self.weights = weights.clone().detach()
        return self.W_o(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(-2))


class WithFused(Reference):
    """F.scaled_dot_product_attention for the result, and by itself once more for the weights."""

    def forward(self, q, k, v, mask=None):
        B, d = q.size(0), q.size(-1)
        Q, K, V = (
            w(x).view(B, x.size(1), self.h, d // self.h).transpose(1, 2)
            for w, x in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
        )
        mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
        with torch.no_grad():
            scores = Q @ K.mT / math.sqrt(Q.size(-1))
            self.weights = (scores if mask is None else scores.where(mask, -torch.inf)).softmax(-1)
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        return self.W_o(heads.transpose(1, 2).reshape(B, -1, d))


class WithLoop(Reference):
    """One head after the other, each with its own rows of the big matrices."""

    def forward(self, q, k, v, mask=None):
        d_k = q.size(-1) // self.h
        outs, kept = [], []
        for head in range(self.h):
            rows = slice(head * d_k, (head + 1) * d_k)
            Q, K, V = (
                F.linear(x, w.weight[rows], w.bias[rows])
                for w, x in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
            )
            scores = Q @ K.transpose(1, 2) / d_k**0.5
            if mask is not None:
                own = mask if mask.dim() < 4 else mask[:, head if mask.size(1) > 1 else 0]
                scores = scores.masked_fill(own == 0, float("-inf"))
            kept.append(F.softmax(scores, dim=2))
            outs.append(kept[-1] @ V)
        self.weights = torch.stack(kept, dim=1).detach()
        return self.W_o(torch.cat(outs, dim=-1))


class WithBatchedMatrices(Reference):
    """Heads folded into the batch, baddbmm, queries scaled beforehand, −1e9 for −∞."""

    def forward(self, q, k, v, mask=None):
        B, n_q, d = q.shape
        n_k, d_k = k.shape[1], d // self.h

        def fold(x):
            return x.unflatten(2, (self.h, d_k)).transpose(1, 2).reshape(B * self.h, -1, d_k)

        Q, K, V = fold(self.W_q(q) / math.sqrt(d_k)), fold(self.W_k(k)), fold(self.W_v(v))
        if mask is None:
            mask = torch.ones(1, 1, n_q, n_k, dtype=torch.bool)
        if mask.dim() == 3:
            mask = mask[:, None, :, :]
        extra = torch.where(mask, 0.0, -1e9).to(Q.dtype).expand(B, self.h, n_q, n_k)
        weights = torch.baddbmm(extra.reshape(-1, n_q, n_k), Q, K.mT).softmax(dim=-1)
        self.weights = weights.view(B, self.h, n_q, n_k).detach()
        heads = torch.bmm(weights, V).view(B, self.h, n_q, d_k)
        return self.W_o(heads.permute(0, 2, 1, 3).contiguous().view(B, n_q, d))


def _mask(draw: Draw, *shape: int) -> torch.Tensor:
    """Return a random mask; every row lets something through and hides something."""
    flat = torch.tensor(draw.rng.random((math.prod(shape[:-1]), shape[-1])) < 0.55)
    for row in flat:
        here, there = draw.rng.permutation(shape[-1])[:2]
        row[int(here)], row[int(there)] = True, False
    return flat.reshape(shape)


def _mha_case(draw: Draw, s: dict[str, int], mask: torch.Tensor | None = None, **more) -> Case:
    """Return a case with different q, k and v. more: keep, dtype, mode, grads, layout."""
    dtype = getattr(torch, more.get("dtype", "float32"))
    lengths = (s["n_q"], s["n_k"], s["n_k"])
    args = [draw.normal(s["B"], n, s["d"], dtype=dtype) for n in lengths]
    call = {"args": [_strided(x) for x in args] if more.get("layout") else args}
    if mask is not None:
        call["kwargs"] = {"mask": mask}
    if more.get("grads"):
        call |= {"wrt": ["0", "1", "2", "weights"], "cotangents": [draw.normal(*args[0].shape)]}
    inputs = {"make": {"args": [s["d"], s["h"]]}, "call": call}
    inputs["weights"] = draw.weights(Reference(s["d"], s["h"]), scale=1.1 / math.sqrt(s["d"]))
    inputs |= {key: more[key] for key in ("keep", "dtype", "mode") if key in more}
    return Case("module", inputs)


_NAMES = [f"W_{name}.{kind}" for name in "qkvo" for kind in ("weight", "bias")]


def _layers_cases(draw: Draw) -> list[Case]:
    """Weights are loaded strictly, so a wrong name or shape is said in words."""
    s = _sizes(draw)
    weights = draw.weights(Reference(s["d"], s["h"]))
    return [Case("module", {"make": {"args": [s["d"], s["h"]]}, "weights": weights, "keep": _NAMES})]


def _output_cases(draw: Draw) -> list[Case]:
    return [_mha_case(draw, _sizes(draw)), _mha_case(draw, _sizes(draw))]


def _weights_cases(draw: Draw) -> list[Case]:
    return [_mha_case(draw, _sizes(draw), keep=["weights"])]


def _mask2_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [_mha_case(draw, s, _mask(draw, s["n_q"], s["n_k"]))]


def _mask3_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [_mha_case(draw, s, _mask(draw, s["B"], s["n_q"], s["n_k"]))]


def _mask4_cases(draw: Draw) -> list[Case]:
    cases = []
    for axes in (("B", "h", "n_q", "n_k"), ("B", 1, "n_q", "n_k"), ("B", 1, 1, "n_k"), (1, 1, "n_q", "n_k")):
        s = _sizes(draw)
        cases.append(_mha_case(draw, s, _mask(draw, *(s.get(axis, axis) for axis in axes))))
    return cases


def _zeros_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [_mha_case(draw, s, _mask(draw, s["n_q"], s["n_k"]), keep=["weights"])]


def _future_cases(draw: Draw) -> list[Case]:
    s, start = _sizes(draw), draw.size(2, 3)
    n, d = s["n_q"], s["d"]
    inputs = {
        "make": {"args": [d, s["h"]]},
        "weights": draw.weights(Reference(d, s["h"]), scale=1.1 / math.sqrt(d)),
        "x": draw.normal(s["B"], n, d),
        "others": draw.normal(s["B"], n - start, d),
        "start": start,
        "mask": torch.ones(n, n, dtype=torch.bool).tril(),
    }
    return [Case("future", inputs)]


def _mha_gradient_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [_mha_case(draw, s, _mask(draw, s["B"], s["n_q"], s["n_k"]), grads=True)]


def _mha_float64_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [_mha_case(draw, s, _mask(draw, s["n_q"], s["n_k"]), dtype="float64", keep=["weights"])]


def _mha_layout_cases(draw: Draw) -> list[Case]:
    s = _sizes(draw)
    return [_mha_case(draw, s, _mask(draw, s["n_q"], s["n_k"]), layout=True)]


def _mha_short_cases(draw: Draw) -> list[Case]:
    return [_mha_case(draw, _sizes(draw) | one) for one in ({"B": 1}, {"n_q": 1}, {"n_k": 1})]


def _mha_train_cases(draw: Draw) -> list[Case]:
    return [_mha_case(draw, _sizes(draw), mode="train")]


_MHA = {
    "attr.weights": "weights",
    "attr.weights.requires_grad": "weights.requires_grad",
    "grad.0": "the gradient of q",
    "grad.1": "the gradient of k",
    "grad.2": "the gradient of v",
    "moved": "the change of the earlier tokens' outputs",
}
_DOUBLE = Tolerance(atol=1e-10, rtol=1e-9)
_EXACT = Tolerance(atol=0.0, rtol=1e-3)  # where 0 is expected, nothing else will do

_HEAD_AXIS = (
    "A mask [B, n_q, n_k] met scores [B, h, n_q, n_k] as it was, so its first axis was taken for the heads. "
    "Give it a head axis of length 1: mask.unsqueeze(1). (When B = h there is no error, only a wrong answer.)"
)

MULTI_HEAD = Exercise(
    id="4.2",
    symbol="MultiHeadAttention",
    kind="module class",
    parameters=("d_model", "h"),
    points=14,
    todos=("4.2", "4.3", "4.5"),
    rows=(
        Row(
            "four layers",
            "W_q, W_k, W_v and W_o are linear layers from d_model to d_model, and there is nothing else to train",
            _layers_cases,
            looks=tuple(f"attr.{name}" for name in _NAMES),
        ),
        Row(
            "output",
            "the output [B, n_q, d] is right for different q, k and v, and n_q ≠ n_k",
            _output_cases,
            looks=("out",),
            weight=4,
        ),
        Row(
            "weights",
            "weights [B, h, n_q, n_k] holds the last call's attention weights, detached",
            _weights_cases,
            looks=("attr.weights", "attr.weights.requires_grad"),
            weight=2,
            spoken=_MHA,
        ),
        Row(
            "mask for all",
            "a mask [n_q, n_k] holds for every sequence and head (True: may attend)",
            _mask2_cases,
            looks=("out",),
            needs=("output",),
        ),
        Row(
            "mask for each sequence",
            "a mask [B, n_q, n_k] holds for each sequence and all its heads",
            _mask3_cases,
            looks=("out",),
            needs=("output",),
        ),
        Row(
            "mask with four axes",
            "masks [B, h, n_q, n_k], [B, 1, n_q, n_k], [B, 1, 1, n_k] and [1, 1, n_q, n_k] work",
            _mask4_cases,
            looks=("out",),
            needs=("output",),
        ),
        Row(
            "exact zeros",
            "a masked weight is exactly 0",
            _zeros_cases,
            looks=("attr.weights",),
            needs=("weights",),
            tolerance=_EXACT,
            spoken=_MHA,
        ),
        Row(
            "no future",
            "under a causal mask, other later tokens do not move the outputs of earlier ones",
            _future_cases,
            looks=("moved",),
            needs=("output",),
            spoken=_MHA,
        ),
        Row(
            "gradients",
            "the gradients of q, k, v and of all weights are right",
            _mha_gradient_cases,
            looks=("grad.*",),
            needs=("mask for each sequence",),
            weight=2,
            spoken=_MHA,
        ),
        Row(
            "short inputs",
            "it works for one sequence, for one query and for one key",
            _mha_short_cases,
            looks=("out",),
            needs=("output",),
        ),
        Row(
            "float64",
            "float64 gives float64, with all its digits",
            _mha_float64_cases,
            looks=("out",),
            needs=("mask for all",),
            tolerance=_DOUBLE,
        ),
        Row(
            "memory layout",
            "inputs whose memory is in another order give the same",
            _mha_layout_cases,
            looks=("out",),
            needs=("mask for all",),
        ),
        Row(
            "inputs kept",
            "q, k, v and the mask are left unchanged",
            _mask3_cases,
            looks=("changed",),
            needs=("mask for each sequence",),
        ),
        Row(
            "train and eval",
            "it gives the same in train mode",
            _mha_train_cases,
            looks=("out",),
            needs=("output",),
        ),
    ),
    reference=Reference,
    misconceptions=(
        Wrong(
            "view without transpose",
            "The heads are cut with view(B, h, n, d_k), which mixes tokens: head 0 gets the first tokens whole. "
            "Use your split_heads.",
            SplitByView,
        ),
        Wrong(
            "view both ways",
            "Heads are cut and merged with a bare view, without transpose. The shapes come out right, "
            "but each “token” of a head is a piece of several tokens. Use split_heads and merge_heads.",
            SplitAndMergeByView,
        ),
        Wrong(
            "interleaved",
            "Your heads take turns over the features (j % h). Head 0 has features 0 … d_k − 1: "
            "the last axis is cut as (h, d_k).",
            SplitInterleaved,
        ),
        Wrong(
            "merging without transpose",
            "The heads are merged by reshape alone, so a row of the result holds several tokens. "
            "Bring tokens in front of heads first: your merge_heads does it.",
            MergeByReshape,
        ),
        Wrong(
            "view after transpose",
            "view only relabels memory, and after transpose the memory is in another order. Use your merge_heads, "
            "reshape, or contiguous() before view.",
            MergeByView,
        ),
        Wrong(
            "W_o not used",
            "The merged heads are returned as they are. W_o comes last: without it, no head ever "
            "sees what another has found.",
            NoWo,
        ),
        Wrong(
            "one small projection",
            "One projection to d_k features is shared by all heads, so all heads see the same. Project to d "
            "features and cut them: that is h different projections in one matrix.",
            SharedHeads,
        ),
        Wrong(
            "one head, h times",
            "Head 0 is used h times; the other heads' rows of W_q, W_k and W_v are never read.",
            OneHeadRepeated,
        ),
        Wrong(
            "a single head",
            "h is not used: this is one head of width d. Cut Q, K and V with split_heads before the attention.",
            OneHead,
        ),
        Wrong(
            "one layer for all three",
            "W_q makes queries, keys and values. Each has a layer of its own.",
            OneProjection,
        ),
        Wrong(
            "values from k",
            "The values are made from k. In W_v(…), v is meant; it only goes unnoticed when k and v are the same.",
            ValuesFromKeys,
        ),
        Wrong(
            "W_k for the values",
            "The values go through W_k. W_v is theirs.",
            ValuesByKeyLayer,
        ),
        Wrong(
            "queries and keys exchanged",
            "W_q is applied to k and W_k to q. Queries come from q: it decides how many rows the output has.",
            QueriesAndKeysSwapped,
        ),
        Wrong(
            "all from q",
            "Keys and values are made from q. That is self-attention only; the decoder needs keys and values "
            "from elsewhere, so use k and v.",
            AllFromQ,
        ),
        Wrong(
            "mixes keys",
            "The weights are multiplied with the keys. They weigh the values: weights @ V.",
            MixesKeys,
        ),
        Wrong(
            "averages heads",
            "The heads' results are averaged. Set them side by side (merge_heads), so that W_o can treat each "
            "in its own way.",
            AveragesHeads,
        ),
        Wrong(
            "averages weights",
            "The heads' weights are averaged, so all heads look at the same place. Each head uses its own.",
            AveragesWeights,
        ),
        Wrong(
            "√d for √d_k",
            "The scores are divided by √d. The dot product runs over the d_k features of one head, "
            "so √d_k is right: cut the heads before you scale.",
            ScaleByModel,
        ),
        Wrong("no scale", "The scores are not divided by √d_k.", NoScale),
        Wrong(
            "scale by d_k",
            "The scores are divided by d_k: the root is missing, or √d_k divides twice (attention does it already).",
            ScaleByWidth,
        ),
        Wrong(
            "scale by √n",
            "The scores are divided by the root of the number of keys. √d_k is meant, the width of a head.",
            ScaleByLength,
        ),
        Wrong(
            "scale by √h",
            "The scores are divided by √h, the number of heads. √d_k is meant, the width of one.",
            ScaleByHeads,
        ),
        Wrong(
            "softmax over queries",
            "Your weights sum to 1 over the queries. They must sum to 1 over the keys: the last axis.",
            OverQueries,
        ),
        Wrong(
            "softmax over heads",
            "Your weights sum to 1 over the heads. They must sum to 1 over the keys: the last axis.",
            OverHeads,
        ),
        Wrong(
            "softmax over everything",
            "All weights of a head together sum to 1. Each row, one query, must sum to 1 by itself.",
            OverEverything,
        ),
        Wrong(
            "mask sign",
            "The mask works the wrong way round: here True means “may attend”. "
            "(In torch.nn.MultiheadAttention it means “must not”.)",
            SignReversed,
        ),
        Wrong(
            "mask after softmax",
            "The mask zeroes the weights after the softmax, so the rows no longer sum to 1. "
            "Hide scores with −∞ before it.",
            MaskAfter,
        ),
        Wrong(
            "mask as factor",
            "Masked scores became 0 (or 1e-9, where -1e9 was meant), and e⁰ = 1 is a fine weight. "
            "They must become −∞.",
            MaskIsZero,
        ),
        Wrong(
            "not low enough",
            "Masked scores are low, but not low enough: a small weight is left. With −∞ it is exactly 0.",
            MaskSoft,
        ),
        Wrong(
            "mask added",
            "The mask was added to the scores as 0 and 1. To hide a score it must become −∞.",
            MaskAdded,
        ),
        Wrong("mask ignored", "The mask is not used.", MaskIgnored),
        Wrong("3-D mask as it is", _HEAD_AXIS, NoHeadAxis),
        Wrong("3-D mask as it is, fused", _HEAD_AXIS, NoHeadAxisFused),
        Wrong(
            "always a head axis",
            "Every mask gets one more axis. Only one with three axes needs it.",
            AlwaysHeadAxis,
        ),
        Wrong(
            "first mask for all",
            "The first mask is used for every sequence and head. Let broadcasting do the work.",
            FirstMask,
        ),
        Wrong(
            "mask changed",
            "unsqueeze_ (with the underscore) changes the caller's mask. Use mask.unsqueeze(1).",
            MaskInPlace,
        ),
        Wrong(
            "weights attached",
            "The kept weights still hang on the graph, and with them every tensor of the call stays in memory. "
            "Keep weights.detach().",
            Attached,
        ),
        Wrong("weights not kept", "Nothing is kept: self.weights = weights.detach().", NotKept),
        Wrong(
            "mean weights kept",
            "The mean over the heads is kept, as torch does by default. Keep all heads: [B, h, n_q, n_k].",
            KeepsAverage,
        ),
        Wrong(
            "always causal",
            "The past alone is attended to, though no mask asks for it. The mask is the caller's choice.",
            AlwaysCausal,
        ),
        Wrong(
            "uniform attention",
            "Every key that is not masked has the same weight: queries and keys play no part.",
            Uniform,
        ),
        Wrong("first key", "All the weight lies on the first key, whatever the scores say.", FirstKey),
        Wrong(
            "prefix mean",
            "Every token takes the plain mean of all tokens up to itself: queries and keys play no part.",
            PrefixMean,
        ),
        Wrong("identity", "q is returned as it came.", Identity),
        Wrong(
            "adds q",
            "q is added to the result. That residual path belongs to Add & Norm (chapter 05).",
            AddsInput,
        ),
        Wrong(
            "dropout",
            "In train mode some weights are dropped. The contract has no dropout here.",
            DropsOut,
        ),
        Wrong(
            "one length for all",
            "k and v were cut with the length of q. They may be longer or shorter: take n from each tensor itself.",
            SameLength,
        ),
        Wrong(
            "through float32",
            "A float64 input passes through float32 and loses half its digits. "
            "Make new tensors in the input's dtype.",
            Casts,
        ),
    ),
    alternatives={
        "einsum, additive mask": WithEinsum,
        "fused attention": WithFused,
        "loop over heads": WithLoop,
        "baddbmm, scaled queries": WithBatchedMatrices,
    },
    hints={
        "4.2": (
            "A head needs its own queries, keys and values. How can one matrix hold all h projections?",
            "Four layers, each [B, n, d] → [B, n, d]: three before the attention, one after the heads are merged.",
            "for each of the four names of the contract: self.NAME = a linear layer from d_model to d_model",
        ),
        "4.3": (
            "Which of your functions turns [B, n, d] into heads, and what must have been done to q, k, v before?",
            "q [B, n_q, d] → Q [B, h, n_q, d_k]; k, v → K, V [B, h, n_k, d_k]. "
            "A mask [B, n_q, n_k] needs an axis for the heads: [B, 1, n_q, n_k].",
            "project each of q, k, v with its layer, split into heads; if the mask has 3 axes, insert one at 1; "
            "call attention(Q, K, V, mask): two results; keep the second, detached, as self.weights",
        ),
        "4.5": (
            "The heads have answered separately. Who lets them speak to each other?",
            "heads [B, h, n_q, d_k] → merged [B, n_q, d] → through one more layer → [B, n_q, d].",
            "return the output layer applied to the merged heads",
        ),
    },
    forbidden={
        "MultiheadAttention": "Your code uses nn.MultiheadAttention. That is what you are building: "
        "with split_heads, attention and merge_heads it takes six lines.",
        "multi_head_attention_forward": "Your code calls torch's own multi-head attention. "
        "That is what you are building: with split_heads, attention and merge_heads it takes six lines.",
    },
)


# ---- 4.6 attention_parameters -----------------------------------------------------------------------


def reference_parameters(d_model, bias=True):
    """Count what torch's own module holds."""
    return sum(p.numel() for p in nn.MultiheadAttention(d_model, 1, bias=bias).parameters())


def parameters_no_wo(d_model, bias=True):
    return 3 * d_model**2 + 3 * d_model * bias


def parameters_no_bias(d_model, bias=True):
    return 4 * d_model**2


def parameters_always_bias(d_model, bias=True):
    return 4 * d_model**2 + 4 * d_model


def parameters_one_bias(d_model, bias=True):
    return 4 * d_model**2 + d_model * bias


def parameters_one_number(d_model, bias=True):
    return 4 * d_model**2 + 4 * bias


def parameters_one_matrix(d_model, bias=True):
    return d_model**2 + d_model * bias


def parameters_eight_heads(d_model, bias=True):
    return 8 * (4 * d_model**2 + 4 * d_model * bias)


def parameters_four_times_d(d_model, bias=True):
    return (4 * d_model) ** 2 + 4 * d_model * bias


def parameters_bias_reversed(d_model, bias=True):
    return 4 * d_model**2 + 4 * d_model * (not bias)


def parameters_counted(d_model, bias=True):
    layers = [nn.Linear(d_model, d_model, bias=bias) for _ in range(4)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def parameters_factored(d_model, bias=True):
    return 4 * d_model * (d_model + int(bias))


def parameters_if(d_model, bias=True):
    one = d_model * d_model
    if bias:
        one += d_model
    return one * 4


def _parameter_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.size(5, 40)]}) for _ in range(2)]


def _parameter_bias_cases(draw: Draw) -> list[Case]:
    return [
        Case("function", {"args": [draw.size(5, 40)], "kwargs": {"bias": bias}}) for bias in (False, True)
    ]


PARAMETERS = Exercise(
    id="4.6",
    symbol="attention_parameters",
    kind="function",
    parameters=("d_model", "bias"),
    points=2,
    todos=("4.6",),
    rows=(
        Row("count", "the number of parameters with biases", _parameter_cases, looks=("out",), weight=2),
        Row(
            "without bias",
            "bias=False leaves the biases out",
            _parameter_bias_cases,
            looks=("out",),
        ),
    ),
    reference=reference_parameters,
    misconceptions=(
        Wrong("no W_o", "You counted three layers. There are four: W_o too.", parameters_no_wo),
        Wrong("no biases", "Each layer has a bias of d numbers unless bias=False.", parameters_no_bias),
        Wrong("always biases", "With bias=False there are none.", parameters_always_bias),
        Wrong("one bias", "Each of the four layers has a bias of its own.", parameters_one_bias),
        Wrong(
            "bias of one number",
            "A layer's bias is d numbers, one for each output feature.",
            parameters_one_number,
        ),
        Wrong("one matrix", "That is one layer. There are four.", parameters_one_matrix),
        Wrong(
            "more for more heads",
            "The heads share the four matrices: h does not multiply anything.",
            parameters_eight_heads,
        ),
        Wrong("4d squared", "4d² is four times d², not (4d)².", parameters_four_times_d),
        Wrong(
            "bias reversed", "The biases are counted exactly when there are none.", parameters_bias_reversed
        ),
    ),
    alternatives={
        "counting layers": parameters_counted,
        "factored": parameters_factored,
        "if": parameters_if,
    },
    hints={
        "4.6": (
            "How many numbers are in the weight of nn.Linear(d, d)? And in its bias?",
            "One layer: weight [d, d] and, perhaps, bias [d]. There are four layers.",
            "four times (the weight's numbers, and the bias's if there is one)",
        )
    },
)


# ---- 4.7 from_torch ---------------------------------------------------------------------------------


def reference_from_torch(mha):
    """A module of torch's functional attention that holds the same weights."""
    d = mha.embed_dim
    twin = Reference(d, mha.num_heads).to(mha.in_proj_weight.dtype)
    state = {"W_o.weight": mha.out_proj.weight}
    for index, name in enumerate(("W_q", "W_k", "W_v")):
        state[f"{name}.weight"] = mha.in_proj_weight[index * d : (index + 1) * d]
        if mha.in_proj_bias is not None:
            state[f"{name}.bias"] = mha.in_proj_bias[index * d : (index + 1) * d]
    if mha.in_proj_bias is not None:
        state["W_o.bias"] = mha.out_proj.bias
    zeros = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}
    twin.load_state_dict(zeros | state)
    return twin


def _convert(
    mha, heads=None, weights=None, biases=None, out=True, make=Variant, cast=True, order=("W_q", "W_k", "W_v")
):
    """Convert as the lesson does; each argument replaces one step."""
    module = make(mha.embed_dim, heads or mha.num_heads)
    if cast:
        module.to(mha.in_proj_weight.dtype)
    weights = mha.in_proj_weight.chunk(3) if weights is None else weights
    if biases is None:
        bias = torch.zeros(3 * mha.embed_dim) if mha.in_proj_bias is None else mha.in_proj_bias
        biases = bias.chunk(3)
    with torch.no_grad():
        for name, weight, bias in zip(order, weights, biases, strict=True):
            getattr(module, name).weight.copy_(weight)
            if bias is not False:
                getattr(module, name).bias.copy_(bias)
        if out:
            module.W_o.weight.copy_(mha.out_proj.weight)
            module.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias)
    return module


def convert_transposed(mha):
    module = _convert(mha, weights=[w.T for w in mha.in_proj_weight.chunk(3)])
    module.W_o.weight.data.copy_(mha.out_proj.weight.T)
    return module


def convert_only_in_transposed(mha):
    return _convert(mha, weights=[w.T for w in mha.in_proj_weight.chunk(3)])


def convert_keys_first(mha):
    return _convert(mha, order=("W_k", "W_q", "W_v"))


def convert_values_second(mha):
    return _convert(mha, order=("W_q", "W_v", "W_k"))


def convert_interleaved(mha):
    d = mha.embed_dim
    bias = torch.zeros(3 * d) if mha.in_proj_bias is None else mha.in_proj_bias
    return _convert(
        mha, weights=mha.in_proj_weight.reshape(d, 3, d).unbind(1), biases=bias.reshape(d, 3).unbind(1)
    )


def convert_first_block(mha):
    return _convert(mha, weights=[mha.in_proj_weight.chunk(3)[0]] * 3)


def convert_no_biases(mha):
    module = _convert(mha, biases=[False] * 3, out=False)
    module.W_o.weight.data.copy_(mha.out_proj.weight)
    return module


def convert_zero_biases(mha):
    module = _convert(mha, biases=[torch.zeros(1)] * 3)
    module.W_o.bias.data.zero_()
    return module


def convert_no_in_bias(mha):
    return _convert(mha, biases=[False] * 3)


def convert_no_out(mha):
    return _convert(mha, out=False)


def convert_no_out_bias(mha):
    module = _convert(mha, out=False)
    module.W_o.weight.data.copy_(mha.out_proj.weight)
    return module


def convert_one_head(mha):
    return _convert(mha, heads=1)


def convert_head_width(mha):
    return _convert(mha, heads=mha.embed_dim // mha.num_heads)


def convert_fresh(mha):
    return Variant(mha.embed_dim, mha.num_heads)


def convert_returns_torch(mha):
    return mha


def convert_returns_none(mha):
    _convert(mha)


def convert_mask_sign(mha):
    return _convert(mha, make=SignReversed)


def convert_scaled(mha):
    q, k, v = mha.in_proj_weight.chunk(3)
    return _convert(mha, weights=[q / math.sqrt(mha.head_dim), k, v])


def convert_needs_bias(mha):
    return _convert(mha, biases=mha.in_proj_bias.chunk(3))


def convert_leaves_bias(mha):
    if mha.in_proj_bias is not None:
        return _convert(mha)
    module = _convert(mha, biases=[False] * 3, out=False)
    module.W_o.weight.data.copy_(mha.out_proj.weight)
    return module


def convert_float32(mha):
    return _convert(mha, cast=False)


def convert_moves(mha):
    module = _convert(mha)
    mha.in_proj_weight.data.zero_()
    return module


def convert_state(mha):
    module = WithEinsum(mha.embed_dim, mha.num_heads).to(mha.in_proj_weight)
    bias = (
        mha.in_proj_bias if mha.in_proj_bias is not None else mha.in_proj_weight.new_zeros(3 * mha.embed_dim)
    )
    out_bias = (
        mha.out_proj.bias if mha.out_proj.bias is not None else mha.in_proj_weight.new_zeros(mha.embed_dim)
    )
    state = {"W_o.weight": mha.out_proj.weight, "W_o.bias": out_bias}
    for name, w, b in zip("qkv", mha.in_proj_weight.chunk(3), bias.chunk(3), strict=True):
        state |= {f"W_{name}.weight": w, f"W_{name}.bias": b}
    module.load_state_dict(state)
    return module


def convert_parameters(mha):
    """New nn.Parameters in place of the old ones."""
    d = mha.in_proj_weight.size(1)
    module = WithFused(d, mha.num_heads)
    triples = mha.in_proj_weight.detach().clone().reshape(3, d, d)
    for index, layer in enumerate((module.W_q, module.W_k, module.W_v)):
        layer.weight = nn.Parameter(triples[index])
        bias = torch.zeros_like(triples[0, 0]) if mha.in_proj_bias is None else mha.in_proj_bias.detach()
        layer.bias = nn.Parameter(bias.reshape(-1, d)[index if len(bias) > d else 0].clone())
    module.W_o.weight = nn.Parameter(mha.out_proj.weight.detach().clone())
    out_bias = mha.out_proj.bias
    zeros = torch.zeros_like(triples[0, 0])
    module.W_o.bias = nn.Parameter(zeros if out_bias is None else out_bias.detach().clone())
    return module


@torch.no_grad()
def convert_slices(mha):
    d = mha.embed_dim
    module = WithLoop(d, mha.num_heads).to(mha.out_proj.weight.dtype)
    for name, p in module.named_parameters():
        p.zero_()
        layer, kind = name.split(".")
        if layer == "W_o":
            source = getattr(mha.out_proj, kind)
        else:
            whole = getattr(mha, f"in_proj_{kind}")
            start = ("W_q", "W_k", "W_v").index(layer) * d
            source = None if whole is None else whole[start : start + d]
        if source is not None:
            p += source
    return module


def _torch_weights(draw: Draw, d: int, bias: bool = True, dtype: torch.dtype = torch.float32) -> dict:
    shapes = {"in_proj_weight": (3 * d, d), "out_proj.weight": (d, d)}
    if bias:
        shapes |= {"in_proj_bias": (3 * d,), "out_proj.bias": (d,)}
    return {
        name: draw.normal(*shape, scale=1.1 / math.sqrt(d), dtype=dtype) for name, shape in shapes.items()
    }


def _torch_case(draw: Draw, mask_axes=None, bias: bool = True, dtype: torch.dtype = torch.float32) -> Case:
    s = _sizes(draw)
    while s["d_k"] == s["h"]:
        s = _sizes(draw)
    inputs = {
        "d_model": s["d"],
        "h": s["h"],
        "weights": _torch_weights(draw, s["d"], bias, dtype),
        "args": [draw.normal(s["B"], n, s["d"], dtype=dtype) for n in (s["n_q"], s["n_k"], s["n_k"])],
    }
    if mask_axes:
        inputs["kwargs"] = {"mask": _mask(draw, *(s.get(axis, axis) for axis in mask_axes))}
    return Case("from_torch", inputs)


def _torch_mask_cases(draw: Draw) -> list[Case]:
    shapes = (("n_q", "n_k"), ("B", "n_q", "n_k"), ("B", 1, 1, "n_k"))
    return [_torch_case(draw, axes) for axes in shapes]


_LAYERS = tuple(f"attr.{name}" for name in _NAMES)
_IN, _OUT = _LAYERS[:6], _LAYERS[6:]

FROM_TORCH = Exercise(
    id="4.7",
    symbol="from_torch",
    kind="function",
    parameters=("mha",),
    points=5,
    todos=("4.7",),
    rows=(
        Row(
            "names",
            "the result is a MultiHeadAttention with W_q, W_k, W_v and W_o",
            lambda draw: [_torch_case(draw)],
            looks=("parameters",),
        ),
        Row(
            "three layers from one",
            "W_q, W_k and W_v hold the rows of in_proj_weight and in_proj_bias",
            lambda draw: [_torch_case(draw)],
            looks=_IN,
            needs=("names",),
            weight=2,
        ),
        Row(
            "output layer",
            "W_o holds out_proj",
            lambda draw: [_torch_case(draw)],
            looks=_OUT,
            needs=("names",),
        ),
        Row(
            "same output",
            "the same output and the same weights, head by head, as torch (needs your MultiHeadAttention)",
            lambda draw: [_torch_case(draw)],
            looks=("out", "attr.weights"),
            needs=("names",),
            weight=2,
            spoken=_MHA,
        ),
        Row(
            "same with a mask",
            "with a mask, too; torch's own mask has the opposite sign",
            _torch_mask_cases,
            looks=("out",),
            needs=("same output",),
        ),
        Row(
            "torch without biases",
            "a module made with bias=False gives biases of 0",
            lambda draw: [_torch_case(draw, bias=False)],
            looks=(*_LAYERS, "out"),
            needs=("same output",),
        ),
        Row(
            "float64",
            "a float64 module gives a float64 module",
            lambda draw: [_torch_case(draw, ("n_q", "n_k"), dtype=torch.float64)],
            looks=(*_LAYERS, "out"),
            needs=("same output",),
        ),
        Row(
            "torch kept",
            "torch's module is left unchanged",
            lambda draw: [_torch_case(draw)],
            looks=("changed",),
            needs=("same output",),
        ),
    ),
    reference=reference_from_torch,
    misconceptions=(
        Wrong(
            "transposed",
            "The matrices are transposed. nn.Linear keeps its weight as [out, in], exactly as torch's attention "
            "does: copy them as they are.",
            convert_transposed,
        ),
        Wrong(
            "three transposed",
            "W_q, W_k and W_v are transposed. in_proj_weight [3d, d] holds [out, in] as nn.Linear does: "
            "cut its rows and copy them as they are.",
            convert_only_in_transposed,
        ),
        Wrong(
            "k before q",
            "The first block of in_proj_weight went to W_k. The order is q, k, v.",
            convert_keys_first,
        ),
        Wrong(
            "v before k",
            "The second block of in_proj_weight went to W_v. The order is q, k, v.",
            convert_values_second,
        ),
        Wrong(
            "every third row",
            "You took every third row. The rows stand in three blocks: the first d are W_q's, then W_k's, then W_v's.",
            convert_interleaved,
        ),
        Wrong(
            "first block only",
            "All three layers got the first block, the queries'.",
            convert_first_block,
        ),
        Wrong(
            "biases forgotten",
            "No bias was copied, so yours are still random.",
            convert_no_biases,
        ),
        Wrong("biases zero", "All biases are 0; torch's are not.", convert_zero_biases),
        Wrong(
            "in_proj_bias forgotten",
            "in_proj_bias [3d] was not copied: W_q, W_k and W_v still have random biases.",
            convert_no_in_bias,
        ),
        Wrong(
            "out_proj forgotten",
            "out_proj was not copied: W_o is still random.",
            convert_no_out,
        ),
        Wrong("out_proj.bias forgotten", "out_proj.bias was not copied.", convert_no_out_bias),
        Wrong(
            "one head",
            "The weights are right, but your module has one head. mha.num_heads says how many torch's has.",
            convert_one_head,
        ),
        Wrong(
            "head_dim for num_heads",
            "The number of heads is mha.num_heads; you passed the width of one (head_dim).",
            convert_head_width,
        ),
        Wrong(
            "nothing copied",
            "This is a new module with random weights: nothing was copied.",
            convert_fresh,
        ),
        Wrong(
            "torch's own",
            "You returned torch's module itself. Make a MultiHeadAttention and copy the weights into it.",
            convert_returns_torch,
        ),
        Wrong("nothing returned", "The function returns nothing.", convert_returns_none),
        Wrong(
            "mask sign",
            "Weights and outputs agree until a mask comes: your module takes True for “must not attend”, as torch "
            "does. Keep this course's sign, True for “may attend”.",
            convert_mask_sign,
        ),
        Wrong(
            "scaled twice",
            "W_q is divided by √d_k. The attention divides the scores by itself: copy W_q as it is.",
            convert_scaled,
        ),
        Wrong(
            "needs biases",
            "A module made with bias=False has no in_proj_bias (it is None). Yours has biases: set them to 0.",
            convert_needs_bias,
        ),
        Wrong(
            "random biases left",
            "When torch's module has no biases, yours must be 0; they are still random.",
            convert_leaves_bias,
        ),
        Wrong(
            "always float32",
            "A float64 module came out as float32. Move yours first: .to(mha.in_proj_weight) takes over dtype and device.",
            convert_float32,
        ),
        Wrong("torch changed", "torch's module was changed on the way. Only read from it.", convert_moves),
    ),
    alternatives={
        "state dict": convert_state,
        "new parameters": convert_parameters,
        "slices": convert_slices,
    },
    hints={
        "4.7": (
            "torch keeps W_q, W_k and W_v in one matrix of 3d rows. Which rows are whose?",
            "in_proj_weight [3d, d] → three of [d, d]; in_proj_bias [3d] → three of [d]; "
            "out_proj is a linear layer like yours.",
            "cut the big weight and the big bias into three (chunk); with gradients off, copy_ each piece into "
            "the layer of the same role, and out_proj into W_o; where torch has no bias, fill yours with 0",
        )
    },
)

EXERCISES = (SPLIT, MERGE, MULTI_HEAD, PARAMETERS, FROM_TORCH)
