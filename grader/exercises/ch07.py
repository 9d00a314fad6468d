"""Chapter 07, the decoder: cases, references, known mistakes and right answers written otherwise."""

from __future__ import annotations

import math
import re

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from grader.exercises.draw import Draw
from grader.exercises.model import Exercise, Row, Wrong
from transformer_lab.checking.probes.composite import plain_name
from transformer_lab.checking.probes.core import Case
from transformer_lab.parts import DecoderLayer as FinishedLayer
from transformer_lab.parts import FeedForward, LayerNorm, MultiHeadAttention, PostNorm, PreNorm

CHAPTER = "07_decoder"


# ---- 7.1 shift_right --------------------------------------------------------------------------------


def reference_shift(target, bos_id):
    ids = target.numpy()
    return torch.from_numpy(np.insert(ids, 0, bos_id, axis=1)[:, :-1])


def _bos(target, bos_id):
    return torch.full_like(target[:, :1], bos_id)


def shift_keeps_all(target, bos_id):
    return torch.cat([_bos(target, bos_id), target], dim=1)


def shift_no_bos(target, bos_id):
    return target[:, :-1]


def shift_left(target, bos_id):
    return torch.cat([target[:, 1:], _bos(target, bos_id)], dim=1)


def shift_wraps(target, bos_id):
    return target.roll(1, dims=1)


def shift_overwrites(target, bos_id):
    return torch.cat([_bos(target, bos_id), target[:, 1:]], dim=1)


def shift_twice(target, bos_id):
    return reference_shift(reference_shift(target, bos_id), bos_id)


def shift_always_one(target, bos_id):
    return reference_shift(target, 1)


def shift_batch(target, bos_id):
    return torch.cat([torch.full_like(target[:1], bos_id), target[:-1]], dim=0)


def shift_flat(target, bos_id):
    out = target.flatten().roll(1)
    out[0] = bos_id
    return out.view_as(target)


def shift_float(target, bos_id):
    return torch.cat([torch.ones(target.size(0), 1) * bos_id, target[:, :-1]], dim=1)


def shift_flat_bos(target, bos_id):
    return torch.cat([torch.tensor([bos_id]), target[:, :-1]], dim=1)


def shift_in_place(target, bos_id):
    target[:, 1:] = target[:, :-1].clone()
    target[:, 0] = bos_id
    return target


def shift_by_new(target, bos_id):
    out = target.new_empty(target.shape)
    out[:, 0], out[:, 1:] = bos_id, target[:, :-1]
    return out


def shift_by_roll(target, bos_id):
    return target.roll(1, dims=1).index_fill(1, torch.tensor([0]), bos_id)


def shift_by_lists(target, bos_id):
    return torch.tensor([[bos_id, *row[:-1]] for row in target.tolist()])


def shift_by_pad(target, bos_id):
    return F.pad(target, (1, 0), value=bos_id)[:, : target.size(1)]


def _targets(draw: Draw, bos_id: int, m: int | None = None) -> list:
    sizes = draw.sizes(B=(2, 4), m=(5, 7))
    return [draw.integers(4, 30, sizes["B"], m or sizes["m"]), bos_id]


def _shift_cases(draw: Draw) -> list[Case]:
    other = _targets(draw, draw.size(31, 40))
    other[0] = {"$": "strided", "tensor": other[0]}
    return [Case("function", {"args": _targets(draw, 1)}), Case("function", {"args": other})]


def _shift_one_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": _targets(draw, 1, m=1)})]


SHIFT = Exercise(
    id="7.1",
    symbol="shift_right",
    kind="function",
    parameters=("target", "bos_id"),
    points=2,
    todos=("7.1",),
    rows=(
        Row(
            "shifted",
            "each row begins with bos_id, goes on with target, and lacks its last token",
            _shift_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "one token",
            "a target of one token gives [[bos_id], …]",
            _shift_one_cases,
            looks=("out",),
            needs=("shifted",),
        ),
        Row("input kept", "target is left unchanged", _shift_cases, looks=("changed",), needs=("shifted",)),
    ),
    reference=reference_shift,
    misconceptions=(
        Wrong(
            "one too long",
            "Your rows have m + 1 tokens. The last token of target is only ever an answer, never an input: "
            "leave it out.",
            shift_keeps_all,
        ),
        Wrong(
            "no bos",
            "The last token is gone, but bos_id does not stand in front, so there is nothing to predict the first token from.",
            shift_no_bos,
        ),
        Wrong(
            "shifted left",
            "You moved the tokens to the left. Then position i would be given token i + 1, an answer it has not reached. "
            "Move them to the right.",
            shift_left,
        ),
        Wrong(
            "wraps around",
            "roll brings the last token round to the front. Put bos_id there instead.",
            shift_wraps,
        ),
        Wrong(
            "overwrites",
            "You overwrote the first token and moved none. Position 1 is then given token 1, the very token it must predict.",
            shift_overwrites,
        ),
        Wrong(
            "shifted twice",
            "The tokens moved by two places. Position i must be given token i − 1, so shift once.",
            shift_twice,
        ),
        Wrong("bos is always 1", "bos_id is not used: the rows always begin with 1.", shift_always_one),
        Wrong(
            "along the batch",
            "You shifted along the batch: each sentence became its neighbour. target is [B, m]; tokens lie along dim 1.",
            shift_batch,
        ),
        Wrong(
            "as one row",
            "The last token of each sentence runs into the front of the next one. Every row needs bos_id of its own.",
            shift_flat,
        ),
        Wrong(
            "float ids",
            "Ids must stay int64, or nn.Embedding refuses them. torch.ones and torch.zeros make floats: "
            "take target.new_full or torch.full_like.",
            shift_float,
        ),
        Wrong(
            "bos without rows",
            "The part in front has one axis, target has two. Every sentence needs its bos_id: a column [B, 1].",
            shift_flat_bos,
        ),
        Wrong(
            "in place",
            "The result is right, but you wrote it into target itself, and the loss still needs target. Make a new tensor.",
            shift_in_place,
        ),
    ),
    alternatives={
        "new_empty": shift_by_new,
        "roll and fill": shift_by_roll,
        "lists": shift_by_lists,
        "pad": shift_by_pad,
    },
    hints={
        "7.1": (
            "The decoder must predict 'the cat sat'. What does it know before it says 'the'? And before 'cat'?",
            "A column of bos_id [B, 1] beside target without its last column [B, m − 1] gives [B, m].",
            "first = a [B, 1] tensor filled with bos_id, of target's dtype; join first and target[:, all but the last] along dim 1",
        )
    },
)


# ---- 7.2 causal_mask --------------------------------------------------------------------------------


def reference_causal(m):
    place = np.arange(m)
    return torch.from_numpy(place[None, None, :, None] >= place[None, None, None, :])


def _square(m):
    return torch.ones(1, 1, m, m, dtype=torch.bool)


def causal_upper(m):
    return _square(m).triu()


def causal_torch_sign(m):
    return _square(m).triu(1)


def causal_no_self(m):
    return _square(m).tril(-1)


def causal_one_ahead(m):
    return _square(m).tril(1)


def causal_only_self(m):
    return torch.eye(m, dtype=torch.bool)[None, None]


def causal_all(m):
    return _square(m)


def causal_float(m):
    return torch.ones(1, 1, m, m).tril()


def causal_additive(m):
    return torch.full((1, 1, m, m), -math.inf).triu(1)


def causal_two_axes(m):
    return _square(m)[0, 0].tril()


def causal_two_axes_float(m):
    return torch.ones(m, m).tril()


def causal_antidiagonal(m):
    return _square(m).tril().flip(-1)


def causal_loops(m):
    return torch.tensor([[[[j <= i for j in range(m)] for i in range(m)]]])


def causal_cumsum(m):
    return torch.eye(m).flip(-1).cumsum(-1).flip(-1).bool().view(1, 1, m, m)


def causal_compare(m):
    i = torch.arange(m)
    return (i[:, None] >= i)[None, None]


def causal_torch(m):
    return (nn.Transformer.generate_square_subsequent_mask(m) == 0)[None, None]


def _causal_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [draw.size(4, 7)]})]


def _causal_one_cases(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [1]})]


CAUSAL = Exercise(
    id="7.2",
    symbol="causal_mask",
    kind="function",
    parameters=("m",),
    points=2,
    todos=("7.2",),
    rows=(
        Row(
            "lower triangle",
            "bool [1, 1, m, m], True on and below the diagonal",
            _causal_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "one token",
            "a single token may attend to itself",
            _causal_one_cases,
            looks=("out",),
            needs=("lower triangle",),
        ),
    ),
    reference=reference_causal,
    misconceptions=(
        Wrong(
            "upper triangle",
            "This is the upper triangle: every token sees itself and the future. Row i is the query, column j the key: "
            "keep j ≤ i.",
            causal_upper,
        ),
        Wrong(
            "torch's sign",
            "This mask is True where attention is blocked, as torch.nn counts in places. In this course True means 'may attend'.",
            causal_torch_sign,
        ),
        Wrong(
            "excludes self",
            "The diagonal is False, so a token may not look at itself, and the first token has nothing at all to look at: "
            "its row of weights would be NaN.",
            causal_no_self,
        ),
        Wrong(
            "one ahead",
            "Every token also sees the next one, which is the answer it has to predict. Stop at the diagonal.",
            causal_one_ahead,
        ),
        Wrong(
            "only self",
            "Every token sees only itself. The tokens before it are allowed too.",
            causal_only_self,
        ),
        Wrong("nothing blocked", "Everything is True: nothing is masked.", causal_all),
        Wrong(
            "float mask",
            "The pattern is right, but the mask is made of floats. Make it bool: dtype=torch.bool.",
            causal_float,
        ),
        Wrong(
            "additive",
            "This is an additive mask, 0 and −∞, to be added to scores. Here a mask is bool.",
            causal_additive,
        ),
        Wrong(
            "two axes",
            "The pattern is right, but the shape is [m, m]. Two axes of length 1 in front, [1, 1, m, m], let it stand for "
            "every sentence and every head.",
            causal_two_axes,
        ),
        Wrong(
            "two axes of floats",
            "The pattern is right. Two things are missing: dtype=torch.bool, and two axes of length 1 in front.",
            causal_two_axes_float,
        ),
        Wrong(
            "other diagonal",
            "The triangle is mirrored: your boundary runs from the top right to the bottom left.",
            causal_antidiagonal,
        ),
    ),
    alternatives={
        "loops": causal_loops,
        "comparison": causal_compare,
        "torch's mask": causal_torch,
        "running sum": causal_cumsum,
    },
    hints={
        "7.2": (
            "Token 2 asks. Which of the keys 0, 1, 2, 3 have been written by then?",
            "Rows are queries, columns are keys: [m, m]. Two more axes in front: [1, 1, m, m].",
            "start from an all-True bool matrix [1, 1, m, m] and keep its lower triangle",
        )
    },
)


# ---- 7.3 padding_mask -------------------------------------------------------------------------------


def reference_padding(ids, pad_id=0):
    return torch.from_numpy(np.expand_dims(ids.numpy() != pad_id, (1, 2)))


def padding_reversed(ids, pad_id=0):
    return (ids == pad_id)[:, None, None, :]


def padding_two_axes(ids, pad_id=0):
    return ids != pad_id


def padding_three_axes(ids, pad_id=0):
    return (ids != pad_id)[:, None, :]


def padding_queries(ids, pad_id=0):
    return (ids != pad_id)[:, None, :, None]


def padding_always_zero(ids, pad_id=0):
    return (ids != 0)[:, None, None, :]


def padding_greater(ids, pad_id=0):
    return (ids > pad_id)[:, None, None, :]


def padding_float(ids, pad_id=0):
    return (ids != pad_id).float()[:, None, None, :]


def padding_square(ids, pad_id=0):
    real = ids != pad_id
    return (real[:, :, None] & real[:, None, :])[:, None]


def padding_batch_last(ids, pad_id=0):
    return (ids != pad_id)[None, None]


def padding_not_equal(ids, pad_id=0):
    return torch.ne(ids, pad_id).unsqueeze(1).unsqueeze(1)


def padding_minus(ids, pad_id=0):
    return (ids - pad_id).bool().view(ids.size(0), 1, 1, ids.size(1))


def padding_lists(ids, pad_id=0):
    return torch.tensor([[[[token != pad_id for token in row]]] for row in ids.tolist()])


def padded_ids(draw: Draw, rows: int, length: int, low: int = 3, high: int = 30, pad_id: int = 0):
    """Random ids [rows, length] padded on the right: the first row by one, the next by two, …, the last by none.

    The number of pads differs from row to row, so that a mask of the wrong row shows.
    """
    ids = draw.integers(low, high, rows, length)
    ids[ids == pad_id] = high + 1
    for row in range(rows - 1):
        ids[row, length - 1 - row % (length - 1) :] = pad_id
    return ids


def _padding_cases(draw: Draw) -> list[Case]:
    sizes = draw.sizes(B=(2, 4), n=(5, 8))
    return [Case("function", {"args": [padded_ids(draw, sizes["B"], sizes["n"])]})]


def _other_pad_cases(draw: Draw) -> list[Case]:
    sizes, pad_id = draw.sizes(B=(2, 4), n=(5, 8)), draw.size(5, 9)
    ids = padded_ids(draw, sizes["B"], sizes["n"], low=0, high=20, pad_id=pad_id)
    ids[0, 0], ids[1, 1], ids[1, 0] = 0, 1, 30  # 0 is a word here, and words stand on both sides of pad_id
    return [
        Case("function", {"args": [ids, pad_id]}),
        Case("function", {"args": [ids.flip(1)], "kwargs": {"pad_id": pad_id}}),
    ]


PADDING = Exercise(
    id="7.3",
    symbol="padding_mask",
    kind="function",
    parameters=("ids", "pad_id"),
    points=2,
    todos=("7.3",),
    rows=(
        Row(
            "real tokens",
            "bool [B, 1, 1, n], True where a real token stands",
            _padding_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "other pad_id",
            "any pad_id, wherever it stands, and id 0 is a word then",
            _other_pad_cases,
            looks=("out",),
            needs=("real tokens",),
        ),
        Row(
            "input kept", "ids are left unchanged", _padding_cases, looks=("changed",), needs=("real tokens",)
        ),
    ),
    reference=reference_padding,
    misconceptions=(
        Wrong(
            "reversed",
            "This mask is True at the padding. True means 'may attend', so it belongs to real tokens.",
            padding_reversed,
        ),
        Wrong(
            "two axes",
            "The values are right, but [B, n] would be taken for [n_q, n_k]. Add the axes of heads and queries: [B, 1, 1, n].",
            padding_two_axes,
        ),
        Wrong(
            "three axes",
            "The values are right, but the axis of heads is missing: [B, 1, n]. Here it is [B, 1, 1, n].",
            padding_three_axes,
        ),
        Wrong(
            "on the queries",
            "[B, 1, n, 1] blocks whole rows: a padded query then sees nothing, while every real query still sees the padding. "
            "Keys lie along the last axis.",
            padding_queries,
        ),
        Wrong(
            "pad is always 0",
            "pad_id is not used: your mask always takes 0 for padding.",
            padding_always_zero,
        ),
        Wrong(
            "greater than",
            "ids > pad_id also blocks the words whose id is smaller than pad_id. Only equality says 'this is padding'.",
            padding_greater,
        ),
        Wrong(
            "float mask",
            "The pattern is right, but the mask is made of floats. A comparison is already bool: leave it so.",
            padding_float,
        ),
        Wrong(
            "square",
            "You blocked padded queries as well, so their rows are empty, and softmax over an empty row gives NaN. "
            "Blocking the keys is enough: what a padded query gathers, nobody reads.",
            padding_square,
        ),
        Wrong(
            "batch misplaced",
            "[1, 1, B, n] puts the batch where the queries belong. The batch comes first: [B, 1, 1, n].",
            padding_batch_last,
        ),
    ),
    alternatives={
        "ne and unsqueeze": padding_not_equal,
        "difference": padding_minus,
        "lists": padding_lists,
    },
    hints={
        "7.3": (
            "Nobody may look at padding. Is padding then a row of the score matrix, or a column?",
            "ids [B, n] → bool [B, n] → [B, 1, 1, n]: one axis for heads and one for queries, both of length 1.",
            "real = where ids differ from pad_id; put two axes of length 1 between the batch and the tokens",
        )
    },
)


# ---- 7.4 target_mask --------------------------------------------------------------------------------


def reference_target(ids, pad_id=0):
    real = ids.numpy() != pad_id
    lower = np.tri(ids.shape[1], dtype=bool)
    return torch.from_numpy(np.einsum("bk,qk->bqk", real, lower)[:, None])


def target_only_causal(ids, pad_id=0):
    return reference_causal(ids.size(1)).expand(ids.size(0), 1, -1, -1)


def target_only_padding(ids, pad_id=0):
    return reference_padding(ids, pad_id).expand(-1, 1, ids.size(1), -1)


def target_or(ids, pad_id=0):
    return reference_padding(ids, pad_id) | reference_causal(ids.size(1))


def target_on_queries(ids, pad_id=0):
    return padding_queries(ids, pad_id) & reference_causal(ids.size(1))


def target_both_axes(ids, pad_id=0):
    return padding_square(ids, pad_id) & reference_causal(ids.size(1))


def target_no_self(ids, pad_id=0):
    return reference_padding(ids, pad_id) & causal_no_self(ids.size(1))


def target_future(ids, pad_id=0):
    return reference_padding(ids, pad_id) & causal_upper(ids.size(1))


def target_pad_zero(ids, pad_id=0):
    return reference_target(ids)


def target_reversed(ids, pad_id=0):
    return ~reference_target(ids, pad_id)


def target_no_heads(ids, pad_id=0):
    return reference_target(ids, pad_id)[:, 0]


def target_float(ids, pad_id=0):
    return reference_padding(ids, pad_id).float() * reference_causal(ids.size(1))


def target_by_and(ids, pad_id=0):
    return reference_padding(ids, pad_id) and reference_causal(ids.size(1))


def target_by_product(ids, pad_id=0):
    return (ids != pad_id)[:, None, None, :] * torch.ones(ids.size(1), ids.size(1)).tril().bool()


def target_by_fill(ids, pad_id=0):
    mask = torch.ones(ids.size(0), 1, ids.size(1), ids.size(1), dtype=torch.bool).tril()
    return mask.masked_fill((ids == pad_id)[:, None, None, :], False)


def target_by_loops(ids, pad_id=0):
    m = ids.size(1)
    return torch.tensor(
        [[[[j <= i and row[j] != pad_id for j in range(m)] for i in range(m)]] for row in ids.tolist()]
    )


def _target_cases(draw: Draw) -> list[Case]:
    """Padding on the right, and in the middle: on the right alone, blocking queries too would look right."""
    sizes = draw.sizes(B=(2, 4), m=(5, 8))
    ids = padded_ids(draw, sizes["B"], sizes["m"])
    return [Case("function", {"args": [ids]}), Case("function", {"args": [ids.roll(-2, dims=1)]})]


TARGET = Exercise(
    id="7.4",
    symbol="target_mask",
    kind="function",
    parameters=("ids", "pad_id"),
    points=2,
    todos=("7.4",),
    rows=(
        Row(
            "both",
            "bool [B, 1, m, m], True for real keys that are not in the future",
            _target_cases,
            looks=("out",),
            weight=2,
        ),
        Row(
            "other pad_id",
            "any pad_id, and id 0 is a word then",
            _other_pad_cases,
            looks=("out",),
            needs=("both",),
        ),
    ),
    reference=reference_target,
    misconceptions=(
        Wrong("only causal", "The future is hidden, but the padding is not.", target_only_causal),
        Wrong("only padding", "The padding is hidden, but the future is not.", target_only_padding),
        Wrong(
            "either",
            "Your mask allows a key that passes one of the two tests. A key must pass both: use &, not |.",
            target_or,
        ),
        Wrong(
            "on the queries",
            "The padding is blocked along the queries (rows). Padding must not be looked at, so block its columns, the keys.",
            target_on_queries,
        ),
        Wrong(
            "both axes",
            "You blocked padded queries as well. Their rows become empty, and softmax over an empty row gives NaN. Block keys only.",
            target_both_axes,
        ),
        Wrong(
            "excludes self",
            "A token may not look at itself here, so the first row is empty. Keep the diagonal.",
            target_no_self,
        ),
        Wrong(
            "future instead",
            "The triangle is the upper one: tokens see the future and not the past.",
            target_future,
        ),
        Wrong("pad is always 0", "pad_id is not passed on to padding_mask.", target_pad_zero),
        Wrong(
            "reversed",
            "This mask is True where attention is blocked. True means 'may attend'.",
            target_reversed,
        ),
        Wrong(
            "the word and",
            "`and` asks Python for one yes or no for a whole tensor. To combine two tensors place by place use &.",
            target_by_and,
        ),
        Wrong("no axis of heads", "The values are right; the axis of heads is missing.", target_no_heads),
        Wrong(
            "float mask",
            "The pattern is right, but the mask is made of floats. Combine two bool masks with &.",
            target_float,
        ),
    ),
    alternatives={
        "product": target_by_product,
        "masked_fill": target_by_fill,
        "loops": target_by_loops,
    },
    hints={
        "7.4": (
            "A key is allowed when two things hold. You have a mask for each; which operator says 'both'?",
            "[B, 1, 1, m] with [1, 1, m, m] broadcasts to [B, 1, m, m].",
            "combine padding_mask of ids (with this pad_id) and causal_mask of their length by a logical 'and'",
        )
    },
)


# ---- torch.nn behind the contract's names -----------------------------------------------------------

_TORCH_NAMES = (
    (r"(^|\.)attn\.", r"\1self_attn."),
    (r"cross_attn", "multihead_attn"),
    (r"ffn\.", ""),
    (r"W_o\.", "out_proj."),
)


def torch_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters of a stack built to the contract under the names that torch.nn gives them."""
    state = {}
    for name, parameter in module.named_parameters():
        plain = plain_name(name)
        for pattern, theirs in _TORCH_NAMES:
            plain = re.sub(pattern, theirs, plain)
        state[plain] = parameter
    for name in [name for name in state if re.search(r"\.?W_q\.(weight|bias)$", name)]:
        stem, kind = name.split("W_q.")
        parts = [state.pop(f"{stem}{which}.{kind}") for which in ("W_q", "W_k", "W_v")]
        state[f"{stem}in_proj_{kind}"] = torch.cat(parts)
    return state


def torch_mask(mask: torch.Tensor | None, batch: int, h: int, n_q: int) -> torch.Tensor | None:
    """Return a mask of this course as torch.nn takes it: True blocks, [B·h, n_q, n_k]."""
    if mask is None:
        return None
    return (~mask).expand(batch, h, n_q, mask.size(-1)).reshape(batch * h, n_q, -1)


def projections(d_model: int) -> nn.ModuleDict:
    """Return the four projections of an attention by the contract's names."""
    return nn.ModuleDict({name: nn.Linear(d_model, d_model) for name in ("W_q", "W_k", "W_v", "W_o")})


def two_linears(d_model: int, d_ff: int) -> nn.ModuleDict:
    """Return the feed-forward network's two layers by the contract's names."""
    return nn.ModuleDict({"linear1": nn.Linear(d_model, d_ff), "linear2": nn.Linear(d_ff, d_model)})


class Skeleton(nn.Module):
    """Parameters by the contract's names, and a torch.nn module (unregistered) that computes with them."""

    def __init__(self, h: int, norm: str, oracle: nn.Module):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"norm is 'post' or 'pre', not {norm!r}")
        self.h, self._oracle = h, [oracle]

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        size = (x.size(0), self.h, x.size(1))
        masks = {"tgt_mask": torch_mask(tgt_mask, *size), "memory_mask": torch_mask(memory_mask, *size)}
        return functional_call(self._oracle[0], torch_state(self), (x, memory), masks)


def torch_layer(d_model: int, h: int, d_ff: int, norm: str) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(
        d_model, h, d_ff, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    ).eval()


# ---- 7.5 DecoderLayer -------------------------------------------------------------------------------


class ReferenceLayer(Skeleton):
    """torch.nn.TransformerDecoderLayer."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__(h, norm, torch_layer(d_model, h, d_ff, norm))
        self.self_attn, self.cross_attn = projections(d_model), projections(d_model)
        self.ffn = two_linears(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))


class LayerVariant(nn.Module):
    """The usual code with every step in a method of its own, so that a mistake changes one step."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, h)
        self.cross_attn = MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (self.wrapper(norm)(d_model) for _ in range(3))

    def wrapper(self, norm):
        if norm not in ("post", "pre"):
            raise ValueError(norm)
        return PostNorm if norm == "post" else PreNorm

    def look(self, y, mask):
        return self.self_attn(y, y, y, mask)

    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory, memory, mask)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, lambda y: self.look(y, tgt_mask))
        x = self.norm2(x, lambda y: self.cross(y, memory, memory_mask))
        return self.norm3(x, self.ffn)


class CausalAcross(LayerVariant):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, tgt_mask, tgt_mask)


class CausalBoth(LayerVariant):
    """Builds a causal mask of its own for the cross-attention, m × n, whatever is passed."""

    def cross(self, y, memory, mask):
        own = torch.ones(y.size(1), memory.size(1), dtype=torch.bool).tril()[None, None]
        return super().cross(y, memory, own if mask is None else own & mask)


class MemoryAsQuery(LayerVariant):
    def cross(self, y, memory, mask):
        return self.cross_attn(memory, y, y, mask)


class NoMemory(LayerVariant):
    def cross(self, y, memory, mask):
        return self.cross_attn(y, y, y)


class ValuesFromTarget(LayerVariant):
    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory, y, mask)


class NoMemoryMask(LayerVariant):
    def cross(self, y, memory, mask):
        return super().cross(y, memory, None)


class NoTargetMask(LayerVariant):
    def look(self, y, mask):
        return super().look(y, None)


class MasksSwapped(LayerVariant):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, memory_mask, tgt_mask)


class MaskReversed(LayerVariant):
    def look(self, y, mask):
        return super().look(y, None if mask is None else mask.transpose(-1, -2))


class CrossFirst(LayerVariant):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, lambda y: self.cross(y, memory, memory_mask))
        x = self.norm2(x, lambda y: self.look(y, tgt_mask))
        return self.norm3(x, self.ffn)


class NoResidualAcross(LayerVariant):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, lambda y: self.look(y, tgt_mask))
        x = self.norm2(x, lambda y: self.cross(y, memory, memory_mask) - x)
        return self.norm3(x, self.ffn)


class OneNorm(LayerVariant):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, lambda y: self.look(y, tgt_mask))
        x = self.norm1(x, lambda y: self.cross(y, memory, memory_mask))
        return self.norm1(x, self.ffn)


class NoFeedForward(LayerVariant):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, lambda y: self.look(y, tgt_mask))
        return self.norm2(x, lambda y: self.cross(y, memory, memory_mask))


class NoCross(LayerVariant):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return self.norm3(self.norm1(x, lambda y: self.look(y, tgt_mask)), self.ffn)


class OneAttention(LayerVariant):
    """Uses the self-attention's weights for the cross-attention too."""

    def cross(self, y, memory, mask):
        return self.self_attn(y, memory, memory, mask)


class CrossAsksInput(LayerVariant):
    """The cross-attention asks with the layer's input, not with what the self-attention gave."""

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        y = self.norm1(x, lambda y: self.look(y, tgt_mask))
        y = self.norm2(y, lambda _: self.cross(x, memory, memory_mask))
        return self.norm3(y, self.ffn)


class IgnoresY(LayerVariant):
    """The small functions compute with x, so that Pre-LN's norm is lost."""

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        a = self.norm1(x, lambda _: self.look(x, tgt_mask))
        b = self.norm2(a, lambda _: self.cross(a, memory, memory_mask))
        return self.norm3(b, self.ffn)


class CallsSublayer(LayerVariant):
    """Gives the norm a result where it wants a function."""

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.norm1(x, self.look(x, tgt_mask))
        x = self.norm2(x, self.cross(x, memory, memory_mask))
        return self.norm3(x, self.ffn(x))


class Detached(LayerVariant):
    def cross(self, y, memory, mask):
        return super().cross(y, memory.detach(), mask)


class AlwaysPost(LayerVariant):
    def wrapper(self, norm):
        super().wrapper(norm)
        return PostNorm


class OrdersSwapped(LayerVariant):
    def wrapper(self, norm):
        return {PostNorm: PreNorm, PreNorm: PostNorm}[super().wrapper(norm)]


class AnyNorm(LayerVariant):
    def wrapper(self, norm):
        return PreNorm if norm == "pre" else PostNorm


class MemoryNormed(LayerVariant):
    """With Pre-LN, normalises the memory by norm2 as well."""

    def cross(self, y, memory, mask):
        return super().cross(y, self.norm2.norm(memory) if type(self.norm2) is PreNorm else memory, mask)


class NormOfSublayer(LayerVariant):
    """x + norm(sublayer(x)), a published variant that is neither order."""

    def wrapper(self, norm):
        super().wrapper(norm)
        return _AddNormed


class _AddNormed(PostNorm):
    def forward(self, x, sublayer):
        return x + self.norm(sublayer(x))


class PlainNorms(nn.Module):
    """norm1 … norm3 are bare LayerNorms, and `if` chooses the order."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        if norm != "post" and norm != "pre":
            raise ValueError(f"unknown norm {norm}")
        self.pre = norm == "pre"
        self.self_attn, self.cross_attn = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = LayerNorm(d_model), LayerNorm(d_model), LayerNorm(d_model)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        if self.pre:
            y = self.norm1(x)
            x = x + self.self_attn(y, y, y, tgt_mask)
            x = x + self.cross_attn(self.norm2(x), memory, memory, memory_mask)
            return x + self.ffn(self.norm3(x))
        x = self.norm1(x + self.self_attn(x, x, x, tgt_mask))
        x = self.norm2(x + self.cross_attn(x, memory, memory, mask=memory_mask))
        return self.norm3(x + self.ffn(x))


class OverSublayers(PlainNorms):
    """A loop over (norm, sublayer) pairs."""

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        steps = [
            (self.norm1, lambda y: self.self_attn(y, y, y, tgt_mask)),
            (self.norm2, lambda y: self.cross_attn(y, memory, memory, memory_mask)),
            (self.norm3, self.ffn),
        ]
        for norm, sublayer in steps:
            x = x + sublayer(norm(x)) if self.pre else norm(x + sublayer(x))
        return x


class ByEinsum(PlainNorms):
    """Attention written out with einsum and an additive mask."""

    def attend(self, part, q, kv, mask):
        b, n, d = q.shape
        heads = [
            w(t).reshape(b, t.size(1), part.h, d // part.h)
            for w, t in ((part.W_q, q), (part.W_k, kv), (part.W_v, kv))
        ]
        scores = torch.einsum("bqhd,bkhd->bhqk", heads[0], heads[1]) / math.sqrt(d // part.h)
        if mask is not None:
            scores = scores + torch.zeros_like(scores).masked_fill(~mask, -math.inf)
        return part.W_o(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), heads[2]).reshape(b, n, d))

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        def step(x, norm, sublayer):
            return x + sublayer(norm(x)) if self.pre else norm(x + sublayer(x))

        x = step(x, self.norm1, lambda y: self.attend(self.self_attn, y, y, tgt_mask))
        x = step(x, self.norm2, lambda y: self.attend(self.cross_attn, y, memory, memory_mask))
        return step(x, self.norm3, self.ffn)


def decoder_case(draw: Draw, skeleton, norm="post", masks=(), n_layers=None, **extra) -> Case:
    """Draw a case of a decoder layer (or stack, with n_layers): `masks` names those that are passed."""
    s = draw.sizes(h=[2, 4], B=(2, 3), m=(5, 6), n=(7, 9), d=[8, 12], d_ff=(10, 15))
    ids, src = padded_ids(draw, s["B"], s["m"]), padded_ids(draw, s["B"], s["n"])
    given = {"tgt_mask": reference_target(ids), "memory_mask": reference_padding(src)}
    args = [s["d"], s["h"], s["d_ff"], *([n_layers] if n_layers else [])]
    make = {"args": args, "kwargs": {} if norm == "post" else {"norm": norm}}
    x, memory = draw.normal(s["B"], s["m"], s["d"]), draw.normal(s["B"], s["n"], s["d"])
    call = {"args": [x, memory], "kwargs": {name: given[name] for name in masks}} | extra
    if "wrt" in call:
        call["cotangents"] = [draw.normal(*x.shape)]
    weights = draw.weights(skeleton(*args, norm=norm))
    return Case("composite", {"make": make, "weights": weights, "call": call})


BOTH = ("tgt_mask", "memory_mask")


def _layer_rows(skeleton, n_layers=None) -> dict:
    """The row functions that a layer and a stack share, by name."""

    def one(**options):
        return lambda draw: [decoder_case(draw, skeleton, n_layers=n_layers, **options)]

    return {
        "plain": one(),
        "target mask": one(masks=("tgt_mask",)),
        "memory mask": one(masks=("memory_mask",)),
        "both masks": one(masks=BOTH),
        "pre": one(norm="pre", masks=BOTH),
        "gradient": one(masks=BOTH, wrt=["0", "1"]),
    }


def _bad_norm(draw: Draw) -> list[Case]:
    case = Case(
        "module", {"make": {"args": [8, 2, 12], "kwargs": {"norm": draw.choice(["rms", "Post", ""])}}}
    )
    return [Case("raises", {"run": case.tree(), "error": "ValueError"})]


_LAYER = _layer_rows(ReferenceLayer)
_SAID = {"grad.0": "the gradient of x", "grad.1": "the gradient of memory"}

LAYER = Exercise(
    id="7.5",
    symbol="DecoderLayer",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "norm"),
    points=8,
    todos=("7.5",),
    rows=(
        Row(
            "three sublayers",
            "without masks: self-attention, cross-attention, feed-forward, each with Add & Norm",
            _LAYER["plain"],
            looks=("out",),
            weight=3,
        ),
        Row(
            "target mask",
            "tgt_mask limits the self-attention and nothing else",
            _LAYER["target mask"],
            looks=("out",),
            weight=2,
        ),
        Row(
            "memory mask",
            "memory_mask limits the cross-attention and nothing else",
            _LAYER["memory mask"],
            looks=("out",),
            weight=2,
        ),
        Row(
            "pre-norm",
            'norm="pre" normalises what goes into each sublayer',
            _LAYER["pre"],
            looks=("out",),
            weight=2,
        ),
        Row(
            "other norm",
            "any other norm is a ValueError",
            _bad_norm,
            looks=("raised",),
            needs=("three sublayers",),
        ),
        Row(
            "inputs kept",
            "x and memory are left unchanged",
            _LAYER["both masks"],
            looks=("changed",),
            needs=("three sublayers",),
        ),
        Row(
            "gradient",
            "the gradient reaches x and memory",
            _LAYER["gradient"],
            looks=("grad.*",),
            needs=("three sublayers", "target mask", "memory mask"),
            spoken=_SAID,
        ),
    ),
    reference=ReferenceLayer,
    misconceptions=(
        Wrong(
            "target mask across",
            "The cross-attention was given tgt_mask. That mask belongs to the m target tokens among themselves; "
            "across, keys are the n source tokens, and memory_mask is theirs.",
            CausalAcross,
        ),
        Wrong(
            "causal across",
            "Your cross-attention hides source tokens that stand later than the target token. "
            "The source is given whole: nothing in it is the future. Across, only padding is masked.",
            CausalBoth,
        ),
        Wrong(
            "memory asks",
            "In your cross-attention the memory asks and the decoder answers. It is the decoder that asks: "
            "queries from the decoder, keys and values from the memory.",
            MemoryAsQuery,
        ),
        Wrong(
            "memory unused",
            "The second attention looks at the decoder itself again, so the source is never read. "
            "Keys and values come from memory.",
            NoMemory,
        ),
        Wrong(
            "values from the decoder",
            "Keys come from memory but values from the decoder. A weight says how much of source token j to take, "
            "so the values are the memory's too.",
            ValuesFromTarget,
        ),
        Wrong(
            "memory mask unused",
            "memory_mask is not passed on, so the cross-attention also reads the source's padding.",
            NoMemoryMask,
        ),
        Wrong(
            "target mask unused",
            "tgt_mask is not passed on, so every target token sees the tokens it should predict.",
            NoTargetMask,
        ),
        Wrong(
            "masks swapped",
            "The two masks are swapped: tgt_mask is for the self-attention, memory_mask for the cross-attention.",
            MasksSwapped,
        ),
        Wrong(
            "mask transposed",
            "The target mask is transposed somewhere: your queries see later keys where earlier ones were meant.",
            MaskReversed,
        ),
        Wrong(
            "across first",
            "The cross-attention comes before the self-attention. First the target looks at itself, then at the source.",
            CrossFirst,
        ),
        Wrong(
            "no residual across",
            "Around the cross-attention the residual is missing: what the self-attention found is thrown away.",
            NoResidualAcross,
        ),
        Wrong(
            "one norm for all",
            "norm1 is used three times. Each sublayer has its own: norm1, norm2, norm3.",
            OneNorm,
        ),
        Wrong("no feed-forward", "The feed-forward network is left out.", NoFeedForward),
        Wrong("no cross-attention", "The cross-attention is left out: the source is never read.", NoCross),
        Wrong(
            "one attention for both",
            "The cross-attention uses self_attn. The two attentions have weights of their own.",
            OneAttention,
        ),
        Wrong(
            "asks with the input",
            "The cross-attention asks with the layer's input x. It should ask with what the self-attention gave.",
            CrossAsksInput,
        ),
        Wrong(
            "small function ignores its input",
            "Your small functions compute with x, not with their own input y. For Post-LN both are the same; for Pre-LN y is the "
            "normalised x, and you lose it.",
            IgnoresY,
        ),
        Wrong(
            "sublayer called too early",
            "norm1 wants the sublayer as a function and calls it itself; you gave it the result. Write lambda y: in front.",
            CallsSublayer,
        ),
        Wrong(
            "memory detached",
            "memory is cut from the graph, so no gradient reaches the encoder and it would never learn.",
            Detached,
        ),
        Wrong("always post", 'norm is not used: the layer computes Post-LN for "pre" as well.', AlwaysPost),
        Wrong(
            "orders swapped",
            "Post-LN and Pre-LN are swapped. Post: norm(x + sublayer(x)). Pre: x + sublayer(norm(x)).",
            OrdersSwapped,
        ),
        Wrong("any norm", 'A norm other than "post" and "pre" should be a ValueError.', AnyNorm),
        Wrong(
            "memory normalised",
            "With Pre-LN you normalised the memory too. It comes out of the encoder's final norm already; "
            "norm2 is for the decoder's side only.",
            MemoryNormed,
        ),
        Wrong(
            "norm of the sublayer",
            "You compute x + norm(sublayer(x)). Post-LN is norm(x + sublayer(x)), Pre-LN x + sublayer(norm(x)).",
            NormOfSublayer,
        ),
    ),
    alternatives={
        "wrappers": LayerVariant,
        "bare LayerNorms": PlainNorms,
        "loop over sublayers": OverSublayers,
        "einsum": ByEinsum,
    },
    hints={
        "7.5": (
            "Three questions, in this order: what have I said so far, what does the source say, what do I make of it? "
            "Which sublayer answers which?",
            "self_attn: q, k, v all [B, m, d]. cross_attn: q [B, m, d], k and v = memory [B, n, d]. ffn: [B, m, d] → [B, m, d].",
            "x = norm1 of x around (self-attention of y with itself, tgt_mask); x = norm2 of x around "
            "(cross-attention: y asks, memory is key and value, memory_mask); return norm3 of x around ffn",
        )
    },
)


# ---- 7.6 Decoder ------------------------------------------------------------------------------------


class ReferenceDecoder(Skeleton):
    """torch.nn.TransformerDecoder, with a final norm in Pre-LN only."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        final = nn.LayerNorm(d_model) if norm == "pre" else None
        super().__init__(h, norm, nn.TransformerDecoder(torch_layer(d_model, h, d_ff, norm), N, final).eval())
        self.layers = nn.ModuleList(ReferenceLayer(d_model, h, d_ff, norm) for _ in range(N))
        if norm == "pre":
            self.norm = nn.LayerNorm(d_model)


class DecoderVariant(nn.Module):
    """The usual stack with every step in a method of its own."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = self.stack(N, lambda: self.layer(d_model, h, d_ff, norm))
        self.norm = self.final(norm, d_model)

    def layer(self, d_model, h, d_ff, norm):
        return FinishedLayer(d_model, h, d_ff, norm)

    def stack(self, n_layers, make):
        return nn.ModuleList(make() for _ in range(n_layers))

    def final(self, norm, d_model):
        return LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def step(self, layer, x, memory, tgt_mask, memory_mask):
        return layer(x, memory, tgt_mask, memory_mask)

    def run(self, x, *others):
        for layer in self.layers:
            x = self.step(layer, x, *others)
        return x

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return self.norm(self.run(x, memory, tgt_mask, memory_mask))


class SameLayer(DecoderVariant):
    def stack(self, n_layers, make):
        return nn.ModuleList([make()] * n_layers)


class NoneCalled(DecoderVariant):
    def final(self, norm, d_model):
        return super().final(norm, d_model) if norm == "pre" else None


class PlainList(DecoderVariant):
    def stack(self, n_layers, make):
        return [make() for _ in range(n_layers)]


class OneLayer(DecoderVariant):
    def stack(self, n_layers, make):
        return nn.ModuleList([make()])


class NoFinalNorm(DecoderVariant):
    def final(self, norm, d_model):
        return nn.Identity()


class FinalNormAlways(DecoderVariant):
    def final(self, norm, d_model):
        return LayerNorm(d_model)


class FinalNormUnused(DecoderVariant):
    def forward(self, *args, **kwargs):
        self_norm, self.norm = self.norm, nn.Identity()
        out = super().forward(*args, **kwargs)
        self.norm = self_norm
        return out


class LayersPost(DecoderVariant):
    def layer(self, d_model, h, d_ff, norm):
        return FinishedLayer(d_model, h, d_ff)


class NormEachLayer(DecoderVariant):
    def step(self, layer, *args):
        return self.norm(super().step(layer, *args))


class NoMasks(DecoderVariant):
    def step(self, layer, x, memory, tgt_mask, memory_mask):
        return layer(x, memory)


class StackNoTargetMask(DecoderVariant):
    def step(self, layer, x, memory, tgt_mask, memory_mask):
        return layer(x, memory, None, memory_mask)


class StackNoMemoryMask(DecoderVariant):
    def step(self, layer, x, memory, tgt_mask, memory_mask):
        return layer(x, memory, tgt_mask)


class StackMasksSwapped(DecoderVariant):
    def step(self, layer, x, memory, tgt_mask, memory_mask):
        return layer(x, memory, memory_mask, tgt_mask)


class MemoryReplaced(DecoderVariant):
    """Each layer reads the output of the layer before as its memory."""

    def run(self, x, memory, tgt_mask, memory_mask):
        for layer in self.layers:
            x = memory = self.step(layer, x, memory, tgt_mask, memory_mask)
        return x


class XNotPassedOn(DecoderVariant):
    def run(self, x, *others):
        for layer in self.layers:
            out = self.step(layer, x, *others)
        return out


class ResidualAround(DecoderVariant):
    def step(self, layer, x, *others):
        return x + super().step(layer, x, *others)


class FromTheTop(DecoderVariant):
    def run(self, x, *others):
        for layer in reversed(self.layers):
            x = self.step(layer, x, *others)
        return x


class MasksOnlyFirst(DecoderVariant):
    def run(self, x, memory, tgt_mask, memory_mask):
        for index, layer in enumerate(self.layers):
            x = layer(x, memory, *((tgt_mask, memory_mask) if index == 0 else ()))
        return x


class NormOrNone(nn.Module):
    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(N):
            self.layers.append(PlainNorms(d_model, h, d_ff, norm=norm))
        self.norm = LayerNorm(d_model) if norm == "pre" else None

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask)
        return self.norm(x) if self.norm is not None else x


class Recursive(NormOrNone):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        def after(k):
            return self.layers[k - 1](after(k - 1), memory, tgt_mask, memory_mask) if k else x

        out = after(len(self.layers))
        return (
            out if self.norm is None else F.layer_norm(out, out.shape[-1:], self.norm.weight, self.norm.bias)
        )


_STACK = _layer_rows(ReferenceDecoder, n_layers=2)

DECODER = Exercise(
    id="7.6",
    symbol="Decoder",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "N", "norm"),
    points=4,
    todos=("7.6",),
    rows=(
        Row(
            "stack",
            "N layers of their own, one after the other, all reading the same memory",
            _STACK["plain"],
            looks=("out",),
            weight=3,
        ),
        Row(
            "target mask",
            "every layer gets tgt_mask",
            _STACK["target mask"],
            looks=("out",),
            needs=("stack",),
        ),
        Row(
            "memory mask",
            "every layer gets memory_mask",
            _STACK["memory mask"],
            looks=("out",),
            needs=("stack",),
        ),
        Row(
            "pre-norm", 'norm="pre": Pre-LN layers and a final norm', _STACK["pre"], looks=("out",), weight=2
        ),
        Row(
            "gradient",
            "the gradient reaches x and memory",
            _STACK["gradient"],
            looks=("grad.*",),
            needs=("stack", "target mask", "memory mask"),
            spoken=_SAID,
        ),
    ),
    reference=ReferenceDecoder,
    misconceptions=(
        Wrong(
            "one layer N times",
            "All your layers are one and the same object, so they share their weights. Make a new DecoderLayer N times.",
            SameLayer,
        ),
        Wrong(
            "plain list",
            "A Python list hides its modules from PyTorch: no parameters, no training, no device. Use nn.ModuleList.",
            PlainList,
        ),
        Wrong("N unused", "There is only one layer, whatever N is.", OneLayer),
        Wrong(
            "no final norm",
            "Pre-LN needs one more norm after the last layer, as the attribute norm: "
            "the residual stream itself was never normalised.",
            NoFinalNorm,
        ),
        Wrong(
            "final norm always",
            "Post-LN ends in a norm already. The final norm is for Pre-LN only.",
            FinalNormAlways,
        ),
        Wrong("final norm unused", "The final norm exists, but forward does not use it.", FinalNormUnused),
        Wrong("norm not passed on", "norm is not passed to the layers, so they all do Post-LN.", LayersPost),
        Wrong(
            "None called",
            "For Post-LN self.norm is None, and None cannot be called. Use the final norm only where there is one.",
            NoneCalled,
        ),
        Wrong(
            "norm after each layer",
            "The final norm runs after every layer. It stands once, after the last.",
            NormEachLayer,
        ),
        Wrong("masks unused", "The masks are not passed to the layers.", NoMasks),
        Wrong("target mask unused", "tgt_mask is not passed to the layers.", StackNoTargetMask),
        Wrong("memory mask unused", "memory_mask is not passed to the layers.", StackNoMemoryMask),
        Wrong(
            "masks swapped",
            "The masks arrive in the wrong order: forward(x, memory, tgt_mask, memory_mask).",
            StackMasksSwapped,
        ),
        Wrong(
            "memory replaced",
            "From the second layer on, memory is the decoder's own output. Every layer reads the encoder's memory.",
            MemoryReplaced,
        ),
        Wrong(
            "x not passed on",
            "Every layer starts from the first x again, so only the last layer counts. Pass each layer's output to the next.",
            XNotPassedOn,
        ),
        Wrong(
            "residual around layers",
            "You add x once more around each layer. The residuals are inside the layer already.",
            ResidualAround,
        ),
        Wrong("from the top", "The layers run in reverse order.", FromTheTop),
        Wrong("masks in the first layer only", "Only the first layer gets the masks.", MasksOnlyFirst),
    ),
    alternatives={"identity for no norm": DecoderVariant, "norm or None": NormOrNone, "recursion": Recursive},
    hints={
        "7.6": (
            "Each layer takes x and gives a new x of the same shape. What stays the same from layer to layer?",
            "layers: nn.ModuleList of N DecoderLayer; x [B, m, d] stays [B, m, d]; memory [B, n, d] and the masks go to each.",
            "in __init__: a ModuleList of N new layers, and norm = a LayerNorm for Pre-LN, else nothing; "
            "in forward: x = layer(x, memory, both masks) for each layer; then the final norm, if there is one",
        )
    },
)

EXERCISES = (SHIFT, CAUSAL, PADDING, TARGET, LAYER, DECODER)
