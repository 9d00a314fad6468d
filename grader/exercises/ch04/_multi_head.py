"""4.2: the answer, the same without chapter 03's attention, and the known mistakes, which are edits of the two."""

from __future__ import annotations

import math

import torch  # noqa: F401 - the mistakes use it
from torch import nn

from grader.exercises.ch04.merge_heads import merge_heads
from grader.exercises.ch04.split_heads import split_heads
from grader.exercises.edits import edit
from transformer_lab.language import _
from transformer_lab.parts import attention

# ---- what is right ----------------------------------------------------------------------------------


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.weights = None
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask=None):
        Q, K, V = self.W_q(q), self.W_k(k), self.W_v(v)
        Q, K, V = (split_heads(x, self.h) for x in (Q, K, V))
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        heads, weights = attention(Q, K, V, mask)
        self.weights = weights.detach()
        merged = merge_heads(heads)
        return self.W_o(merged)


class ByHand(nn.Module):
    """Without the attention of chapter 03: most mistakes about scores and masks are edits of this."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.weights = None
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask=None):
        Q, K, V = self.W_q(q), self.W_k(k), self.W_v(v)
        Q, K, V = (split_heads(x, self.h) for x in (Q, K, V))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        weights = scores.softmax(dim=-1)
        self.weights = weights.detach()
        merged = merge_heads(weights @ V)
        return self.W_o(merged)


# ---- known mistakes ---------------------------------------------------------------------------------

SPLIT = "split_heads(x, self.h)"
PROJECTED = "self.W_q(q), self.W_k(k), self.W_v(v)"
ATTEND = "attention(Q, K, V, mask)"
MERGE = "merge_heads(heads)"
ROOT = "math.sqrt(Q.size(-1))"
HIDE = "scores.masked_fill(~mask, -math.inf)"
SOFTMAX = "scores.softmax(dim=-1)"
HIDDEN = """\
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        weights = scores.softmax(dim=-1)
"""
HIDDEN_LATE = """\
        weights = scores.softmax(dim=-1)
        if mask is not None:
            weights = weights * mask
"""
CAUSAL = """\
        causal = torch.ones_like(scores, dtype=torch.bool).tril()
        mask = causal if mask is None else causal & mask
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1).nan_to_num()
"""
HEAD_AXIS = """\
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
"""
NO_HEAD_AXIS = _(
    "A mask [B, n_q, n_k] met scores [B, h, n_q, n_k] as it was, so its first axis was taken for the heads. "
    "Give it a head axis of length 1: mask.unsqueeze(1). (When B = h there is no error, only a wrong answer.)"
)

MISTAKES = (
    edit(
        "view without transpose",
        "The heads are cut with view(B, h, n, d_k), which mixes tokens: head 0 gets the first tokens whole. "
        "Use your split_heads.",
        SPLIT,
        "x.reshape(x.size(0), self.h, x.size(1), -1)",
    ),
    edit(
        "view both ways",
        "Heads are cut and merged with a bare view, without transpose. The shapes come out right, but each "
        "“token” of a head is a piece of several tokens. Use split_heads and merge_heads.",
        SPLIT,
        "x.reshape(x.size(0), self.h, x.size(1), -1)",
        MERGE,
        "heads.reshape(q.shape)",
    ),
    edit(
        "interleaved",
        "Your heads take turns over the features (j % h). Head 0 has features 0 … d_k − 1: the last axis is "
        "cut as (h, d_k).",
        SPLIT,
        "x.unflatten(-1, (-1, self.h)).permute(0, 3, 1, 2)",
    ),
    edit(
        "merging without transpose",
        "The heads are merged by reshape alone, so a row of the result holds several tokens. Bring tokens "
        "in front of heads first: your merge_heads does it.",
        MERGE,
        "heads.reshape(q.shape)",
    ),
    edit(
        "view after transpose",
        "view only relabels memory, and after transpose the memory is in another order. Use your "
        "merge_heads, reshape, or contiguous() before view.",
        "merge_heads(weights @ V)",
        "(weights @ V).transpose(1, 2).view(q.shape)",
        of=ByHand,
    ),
    edit(
        "W_o not used",
        "The merged heads are returned as they are. W_o comes last: without it, no head ever sees what "
        "another has found.",
        "self.W_o(merged)",
        "merged",
    ),
    edit(
        "one small projection",
        "One projection to d_k features is shared by all heads, so all heads see the same. Project to d "
        "features and cut them: that is h different projections in one matrix.",
        "W_q = nn.Linear(d_model, d_model)",
        "W_q = nn.Linear(d_model, d_model // h)",
        "W_k = nn.Linear(d_model, d_model)",
        "W_k = nn.Linear(d_model, d_model // h)",
        "W_v = nn.Linear(d_model, d_model)",
        "W_v = nn.Linear(d_model, d_model // h)",
        SPLIT,
        "x[:, None].expand(-1, self.h, -1, -1)",
    ),
    edit(
        "one head, h times",
        "Head 0 is used h times; the other heads' rows of W_q, W_k and W_v are never read.",
        SPLIT,
        "split_heads(x, self.h)[:, :1].expand(-1, self.h, -1, -1)",
    ),
    edit(
        "a single head",
        "h is not used: this is one head of width d. Cut Q, K and V with split_heads before the attention.",
        SPLIT,
        "x[:, None]",
        "weights.detach()",
        "weights.expand(-1, self.h, -1, -1).detach()",
        of=ByHand,
    ),
    edit(
        "one layer for all three",
        "W_q makes queries, keys and values. Each has a layer of its own.",
        PROJECTED,
        "self.W_q(q), self.W_q(k), self.W_q(v)",
    ),
    edit(
        "values from k",
        "The values are made from k. In W_v(…), v is meant; it only goes unnoticed when k and v are the "
        "same.",
        "self.W_v(v)",
        "self.W_v(k)",
    ),
    edit("W_k for the values", "The values go through W_k. W_v is theirs.", "self.W_v(v)", "self.W_k(v)"),
    edit(
        "queries and keys exchanged",
        "W_q is applied to k and W_k to q. Queries come from q: it decides how many rows the output has.",
        "self.W_q(q), self.W_k(k)",
        "self.W_q(k), self.W_k(q)",
        of=ByHand,
    ),
    edit(
        "all from q",
        "Keys and values are made from q. That is self-attention only; the decoder needs keys and values "
        "from elsewhere, so use k and v.",
        PROJECTED,
        "self.W_q(q), self.W_k(q), self.W_v(q)",
    ),
    edit(
        "mixes keys",
        "The weights are multiplied with the keys. They weigh the values: weights @ V.",
        ATTEND,
        "attention(Q, K, K, mask)",
    ),
    edit(
        "averages heads",
        "The heads' results are averaged. Set them side by side (merge_heads), so that W_o can treat each "
        "in its own way.",
        MERGE,
        "heads.mean(dim=1).repeat(1, 1, self.h)",
    ),
    edit(
        "averages weights",
        "The heads' weights are averaged, so all heads look at the same place. Each head uses its own.",
        SOFTMAX,
        "scores.softmax(dim=-1)\n        weights = weights.mean(dim=1, keepdim=True).expand_as(weights)",
        of=ByHand,
    ),
    edit(
        "√d for √d_k",
        "The scores are divided by √d. The dot product runs over the d_k features of one head, so √d_k is "
        "right: cut the heads before you scale.",
        ROOT,
        "math.sqrt(q.size(-1))",
        of=ByHand,
    ),
    edit("no scale", "The scores are not divided by √d_k.", " / math.sqrt(Q.size(-1))", "", of=ByHand),
    edit(
        "scale by d_k",
        "The scores are divided by d_k: the root is missing, or √d_k divides twice (attention does it "
        "already).",
        ROOT,
        "Q.size(-1)",
        of=ByHand,
    ),
    edit(
        "scale by √n",
        "The scores are divided by the root of the number of keys. √d_k is meant, the width of a head.",
        ROOT,
        "math.sqrt(K.size(-2))",
        of=ByHand,
    ),
    edit(
        "scale by √h",
        "The scores are divided by √h, the number of heads. √d_k is meant, the width of one.",
        ROOT,
        "math.sqrt(self.h)",
        of=ByHand,
    ),
    edit(
        "softmax over queries",
        "Your weights sum to 1 over the queries. They must sum to 1 over the keys: the last axis.",
        SOFTMAX,
        "scores.softmax(dim=-2).nan_to_num()",
        of=ByHand,
    ),
    edit(
        "softmax over heads",
        "Your weights sum to 1 over the heads. They must sum to 1 over the keys: the last axis.",
        SOFTMAX,
        "scores.softmax(dim=1).nan_to_num()",
        of=ByHand,
    ),
    edit(
        "softmax over everything",
        "All weights of a head together sum to 1. Each row, one query, must sum to 1 by itself.",
        SOFTMAX,
        "scores.flatten(2).softmax(dim=-1).view_as(scores)",
        of=ByHand,
    ),
    edit(
        "mask sign",
        "The mask works the wrong way round: here True means “may attend”. (In torch.nn.MultiheadAttention "
        "it means “must not”.)",
        "~mask",
        "mask",
        of=ByHand,
    ),
    edit(
        "mask after softmax",
        "The mask zeroes the weights after the softmax, so the rows no longer sum to 1. Hide scores with −∞ "
        "before it.",
        HIDDEN,
        HIDDEN_LATE,
        of=ByHand,
    ),
    edit(
        "mask as factor",
        "Masked scores became 0 (or 1e-9, where -1e9 was meant), and e⁰ = 1 is a fine weight. They must "
        "become −∞.",
        HIDE,
        "scores * mask",
        of=ByHand,
    ),
    edit(
        "not low enough",
        "Masked scores are low, but not low enough: a small weight is left. With −∞ it is exactly 0.",
        "-math.inf",
        "-10.0",
        of=ByHand,
    ),
    edit(
        "mask added",
        "The mask was added to the scores as 0 and 1. To hide a score it must become −∞.",
        HIDE,
        "scores + mask",
        of=ByHand,
    ),
    edit("mask ignored", "The mask is not used.", ATTEND, "attention(Q, K, V)"),
    edit("3-D mask as it is", NO_HEAD_AXIS, HEAD_AXIS, "", of=ByHand),
    edit("3-D mask as it is, fused", NO_HEAD_AXIS, HEAD_AXIS, ""),
    edit(
        "always a head axis",
        "Every mask gets one more axis. Only one with three axes needs it.",
        " and mask.dim() == 3",
        "",
        of=ByHand,
    ),
    edit(
        "first mask for all",
        "The first mask is used for every sequence and head. Let broadcasting do the work.",
        " and mask.dim() == 3",
        "",
        "mask.unsqueeze(1)",
        "mask.reshape(-1, *mask.shape[-2:])[0]",
    ),
    edit(
        "mask changed",
        "unsqueeze_ (with the underscore) changes the caller's mask. Use mask.unsqueeze(1).",
        "mask = mask.unsqueeze(1)",
        "mask.unsqueeze_(1)",
    ),
    edit(
        "weights attached",
        "The kept weights still hang on the graph, and with them every tensor of the call stays in memory. "
        "Keep weights.detach().",
        "weights.detach()",
        "weights",
    ),
    edit(
        "weights not kept",
        "Nothing is kept: self.weights = weights.detach().",
        "        self.weights = weights.detach()\n",
        "",
    ),
    edit(
        "mean weights kept",
        "The mean over the heads is kept, as torch does by default. Keep all heads: [B, h, n_q, n_k].",
        "weights.detach()",
        "weights.mean(dim=1).detach()",
    ),
    edit(
        "always causal",
        "The past alone is attended to, though no mask asks for it. The mask is the caller's choice.",
        HIDDEN,
        CAUSAL,
        of=ByHand,
    ),
    edit(
        "uniform attention",
        "Every key that is not masked has the same weight: queries and keys play no part.",
        SOFTMAX,
        "torch.where(scores.isinf(), scores, scores * 0).softmax(dim=-1)",
        of=ByHand,
    ),
    edit(
        "first key",
        "All the weight lies on the first key, whatever the scores say.",
        SOFTMAX,
        "torch.zeros_like(scores)\n        weights[..., 0] = 1",
        of=ByHand,
    ),
    edit(
        "prefix mean",
        "Every token takes the plain mean of all tokens up to itself: queries and keys play no part.",
        SOFTMAX,
        "torch.ones_like(scores).tril()\n        weights = weights / weights.sum(dim=-1, keepdim=True)",
        of=ByHand,
    ),
    edit(
        "identity",
        "q is returned as it came.",
        "        Q, K, V = self",
        "        return q\n        Q, K, V = self",
    ),
    edit(
        "adds q",
        "q is added to the result. That residual path belongs to Add & Norm (chapter 05).",
        "self.W_o(merged)",
        "q + self.W_o(merged)",
    ),
    edit(
        "dropout",
        "In train mode some weights are dropped. The contract has no dropout here.",
        "weights @ V",
        "nn.functional.dropout(weights, 0.1, self.training) @ V",
        of=ByHand,
    ),
    edit(
        "one length for all",
        "k and v were cut with the length of q. They may be longer or shorter: take n from each tensor "
        "itself.",
        "        Q, K, V = self",
        "        B, n, d = q.shape\n        Q, K, V = self",
        SPLIT,
        "x.view(B, n, self.h, d // self.h).transpose(1, 2)",
    ),
    edit(
        "through float32",
        "A float64 input passes through float32 and loses half its digits. Make new tensors in the input's "
        "dtype.",
        "heads, weights = attention(Q, K, V, mask)",
        "heads, weights = attention(Q.float(), K.float(), V.float(), mask)\n        heads, weights = heads.to(Q.dtype), weights.to(Q.dtype)",
    ),
    edit(
        "on the CPU",
        "The zeros that carry the mask are made on the CPU, whatever device q is on. Make them with "
        "device=q.device.",
        HIDE,
        "scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)",
        of=ByHand,
    ),
)
