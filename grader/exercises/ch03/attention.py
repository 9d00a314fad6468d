"""3.6 attention: scores, mask, softmax and weighted sum for queries, keys and values of any leading axes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn  # noqa: F401 (mistakes name it)

from grader.exercises import rows
from grader.exercises.ch03 import _attention_cases as cases
from grader.exercises.ch03 import _common as common
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.language import _

INF = float("inf")

# ---- what is right ----------------------------------------------------------------------------------


def reference(q, k, v, mask=None):
    """torch's fused attention; with rows of the identity for values it gives the weights."""
    one_hot = torch.eye(k.size(-2), dtype=k.dtype, device=k.device).expand(*k.shape[:-1], -1)
    return tuple(F.scaled_dot_product_attention(q, k, x, mask) for x in (v, one_hot))


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights


def einsum_1e9(q, k, v, mask=None):
    scores = torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -1e9)
    weights = F.softmax(scores, dim=-1)
    return torch.einsum("...ij,...jv->...iv", weights, v), weights


def additive_mask_scaled_queries(q, k, v, mask=None):
    """An additive mask of 0 and -inf, and queries scaled beforehand."""
    scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)
    if mask is not None:
        nothing = torch.zeros(mask.shape, dtype=q.dtype, device=q.device)
        scores = scores + nothing.masked_fill_(~mask, -INF)
    weights = torch.softmax(scores, -1)
    return torch.matmul(weights, v), weights


def fused(q, k, v, mask=None):
    one_hot = torch.eye(k.size(-2), dtype=k.dtype, device=k.device).expand(*k.shape[:-1], k.size(-2))
    sdpa = F.scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=mask), sdpa(q, k, one_hot, attn_mask=mask)


def baddbmm(q, k, v, mask=None):
    """All leading axes folded into one, then baddbmm with the mask as what is added."""
    lead, n_q, n_k = q.shape[:-2], q.size(-2), k.size(-2)
    bias = q.new_zeros(*lead, n_q, n_k)
    if mask is not None:
        bias = bias.masked_fill(mask.logical_not(), torch.finfo(q.dtype).min)
    q3, k3, v3, bias3 = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v, bias))
    scores = torch.baddbmm(bias3, q3, k3.transpose(1, 2), alpha=q.size(-1) ** -0.5)
    weights = scores.softmax(2)
    return torch.bmm(weights, v3).view(*lead, n_q, -1), weights.view(*lead, n_q, n_k)


def a_loop_over_queries(q, k, v, mask=None):
    """One query at a time, softmax by hand over the allowed keys."""
    rows = []
    full = torch.ones(1, dtype=torch.bool, device=q.device) if mask is None else mask
    full = full.expand(*q.shape[:-1], k.size(-2))
    for i in range(q.size(-2)):
        scores = (k * q[..., i : i + 1, :]).sum(-1) / q.size(-1) ** 0.5
        scores = scores.masked_fill(~full[..., i, :], -INF)
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        rows.append(e / e.sum(-1, keepdim=True))
    weights = torch.stack(rows, -2)
    return (weights[..., None] * v[..., None, :, :]).sum(-2), weights


# ---- rows -------------------------------------------------------------------------------------------

BOTH = ("out.*",)
WEIGHTS, AFTER = ("weights",), ("output", "mask")
EXACT = Tolerance(atol=0.0, rtol=1e-4)  # a weight that should be 0 must be 0

ROWS = (
    Row(
        "weights",
        "without a mask: weights [B, n_q, n_k] = softmax(q kᵀ / √d_k)",
        cases.plain,
        looks=("out.1",),
        weight=3,
    ),
    Row("output", "out [B, n_q, d_v] = weights @ v", cases.plain, looks=("out.0",), weight=2),
    Row(
        "mask",
        "a mask [n_q, n_k] or [B, n_q, n_k] hides keys: True means “may attend”",
        cases.masked_equal,
        BOTH,
        WEIGHTS,
        weight=3,
    ),
    Row("padding", "a padding mask [B, 1, n_k] works for every query", cases.padding, BOTH, ("mask",)),
    Row(
        "exact zeros",
        "a hidden key gets a weight of exactly 0",
        cases.masked,
        looks=("out.1",),
        needs=("mask",),
        tolerance=EXACT,
    ),
    Row(
        "causal",
        "under a causal mask later tokens do not move the outputs of earlier ones",
        cases.causal,
        looks=("out.0",),
        needs=AFTER,
    ),
    Row("hidden but huge", "a hidden key does no harm, however large its score", cases.huge, BOTH, AFTER),
    Row(
        "heads",
        "an axis of heads in front works too: q [B, h, n_q, d_k], with every mask that broadcasts",
        cases.heads,
        BOTH,
        WEIGHTS,
        weight=2,
    ),
    Row("no batch", "so does a single sentence: q [n_q, d_k]", cases.no_batch, BOTH, WEIGHTS),
    Row("smallest", "a batch of 1, one query, one key, values of width 1", cases.smallest, BOTH, AFTER),
    Row(
        "gradient",
        "the gradients of q, k and v are right, with and without a mask",
        cases.gradient,
        looks=("grad.*",),
        weight=2,
        needs=AFTER,
    ),
    rows.float64(cases.with_and_without, _("float64 inputs give float64 results"), AFTER, BOTH, weight=0.5),
    Row(
        "layout",
        "inputs whose memory is not in order (after a transpose) give the same",
        cases.strided,
        BOTH,
        AFTER,
    ),
    Row(
        "inputs kept",
        "q, k, v and the mask are left unchanged",
        cases.masked,
        looks=("changed",),
        needs=("output",),
    ),
    rows.device(
        cases.with_and_without,
        _("new tensors are made where q is, so that it also runs on a GPU"),
        AFTER,
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

SCALE = " / math.sqrt(q.size(-1))"
HIDE = """\
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
"""
WEIGHTS_LINE = "    weights = torch.softmax(scores, dim=-1)\n"
RESULTS = "weights @ v, weights"

MISTAKES = (
    common.OVER_QUERIES,
    common.OVER_EVERYTHING,
    common.OVER_THE_BATCH,
    edit(
        "axis from the front",
        "dim=2 is the last axis only while there are three. With an axis of heads in front it becomes the queries. "
        "Count from the end: dim=-1.",
        "dim=-1",
        "dim=2",
    ),
    edit("no scale", common.NO_SCALE, SCALE, ""),
    edit(
        "scale by d_k",
        "The scores are divided by d_k. Divide by its root: the spread of a sum of d_k terms grows like √d_k.",
        SCALE,
        " / q.size(-1)",
    ),
    edit(
        "scale by √d_v",
        "The scale uses the width of the values. A score is a sum over the d_k features of q and k: √q.size(-1).",
        "q.size(-1)",
        "v.size(-1)",
    ),
    edit(
        "scale by √n_k",
        "The scale uses the number of keys. A score is a sum over the d_k features: √q.size(-1).",
        "q.size(-1)",
        "k.size(-2)",
    ),
    edit(
        "scale by √n_q",
        "The scale uses the number of queries. A score is a sum over the d_k features: √q.size(-1).",
        "q.size(-1)",
        "q.size(-2)",
    ),
    edit("times √d", common.TIMES_ROOT, "/ math", "* math"),
    edit(
        "scale after softmax",
        common.SCALE_AFTER_SOFTMAX,
        SCALE,
        "",
        WEIGHTS_LINE,
        f"{WEIGHTS_LINE}    weights = weights{SCALE}\n",
    ),
    edit(
        "mask sign",
        "The mask is used the wrong way round: here True means “may attend”, so hide where it is False (~mask).",
        "~mask",
        "mask",
    ),
    edit(
        "mask after softmax",
        "The mask is applied after softmax: hidden keys have already taken their share, so a row sums to less than "
        "1. Put -∞ into the scores before softmax.",
        HIDE,
        "",
        WEIGHTS_LINE,
        f"{WEIGHTS_LINE}    if mask is not None:\n        weights = weights * mask\n",
    ),
    edit(
        "renormalised after softmax",
        "You zero the hidden weights after softmax and divide again. On paper that is the same; in floats a hidden "
        "key with a huge score has pushed all others to 0, and 0 / 0 is NaN. Put -∞ into the scores first.",
        HIDE,
        "",
        WEIGHTS_LINE,
        f"{WEIGHTS_LINE}    if mask is not None:\n        weights = weights * mask\n"
        "        weights = weights / weights.sum(-1, keepdim=True)\n",
    ),
    edit("mask ignored", "The mask is never used.", HIDE, ""),
    edit(
        "hidden scores set to 0",
        "Hidden scores become 0 (or nearly: was 1e-9 typed for 1e9?). exp(0) is 1, so those keys still take part. "
        "They need -∞, since exp(-∞) = 0.",
        'float("-inf")',
        "0.0",
    ),
    edit(
        "not negative enough",
        "Hidden scores become a number such as -10, and exp(-10) is small but not 0. Use -∞: float('-inf').",
        'float("-inf")',
        "-10.0",
    ),
    edit(
        "mask added",
        "The mask is added as 0 and 1. A mask that is added must hold 0 where attending is allowed and -∞ elsewhere.",
        'scores.masked_fill(~mask, float("-inf"))',
        "scores + mask",
    ),
    edit(
        "mask as an index",
        "scores[~mask] = … needs a mask of exactly the scores' shape. masked_fill broadcasts: a mask with fewer axes, "
        "or with axes of length 1, will do.",
        'scores = scores.masked_fill(~mask, float("-inf"))',
        'scores[~mask] = float("-inf")',
    ),
    edit(
        "if mask",
        "`if mask:` asks a whole tensor for one truth value. Ask whether there is a mask: if mask is not None.",
        "if mask is not None",
        "if mask",
    ),
    edit(
        "mask transposed",
        "The mask is transposed. Its last axis is already the keys, as in the scores.",
        "~mask",
        "~mask.transpose(-2, -1)",
    ),
    edit(
        "mask gets an axis",
        "The mask gets one more axis. It already broadcasts against the scores: use it as it is.",
        "~mask",
        "~mask.unsqueeze(1)",
    ),
    edit("K not transposed", common.NOT_TRANSPOSED, "k.transpose(-2, -1)", "k"),
    edit(
        "K reshaped",
        common.RESHAPED,
        "k.transpose(-2, -1)",
        "k.reshape(*k.shape[:-2], k.size(-1), k.size(-2))",
    ),
    edit(
        "axes 1 and 2",
        "transpose(1, 2) fits three axes only. With heads in front those are the heads and the tokens. "
        "Count from the end: transpose(-2, -1).",
        "transpose(-2, -1)",
        "transpose(1, 2)",
    ),
    edit(
        "bmm",
        "torch.bmm takes exactly three axes. The contract allows any number in front: use @ (torch.matmul).",
        "q @ k.transpose(-2, -1)",
        "torch.bmm(q, k.transpose(-2, -1))",
        "weights @ v",
        "torch.bmm(weights, v)",
    ),
    edit("weights @ K", common.WEIGHTS_AT_K, "weights @ v", "weights @ k"),
    edit("weights * V", common.WEIGHTS_TIMES_V, "weights @ v", "weights * v"),
    edit(
        "weights transposed",
        common.WEIGHTS_TRANSPOSED,
        RESULTS,
        "weights @ v, weights.transpose(-2, -1)",
    ),
    common.NO_SOFTMAX,
    common.SIGMOID,
    common.UNIFORM,
    common.FIRST_KEY,
    common.PREFIX_MEAN,
    common.IDENTITY,
    common.LARGEST_ONLY,
    edit(
        "one result",
        "One result comes back (out alone, or a list of both) where a tuple of two is expected: return out, weights.",
        RESULTS,
        "weights @ v",
    ),
    edit(
        "swapped results",
        "The two results stand in the wrong order: return out, weights.",
        RESULTS,
        "weights, weights @ v",
    ),
    edit(
        "out twice",
        "The second result is out again. Return the weights, the table after softmax.",
        RESULTS,
        "weights @ v, weights @ v",
    ),
    edit(
        "in place",
        "q /= … changes the caller's tensor. Make a new one: q = q / ….",
        SCALE,
        "",
        "    scores = q",
        "    q /= math.sqrt(q.size(-1))\n    scores = q",
    ),
    edit(
        "dropout",
        "Dropout is applied to the weights, so the result depends on chance. This contract has none.",
        common.SOFTMAX,
        f"nn.functional.dropout({common.SOFTMAX}, 0.1)",
    ),
    edit(
        "detached",
        "The weights are cut off from the graph (detach, .data or no_grad), so q and k would never learn.",
        "weights @ v",
        "weights.detach() @ v",
    ),
    edit("float32 only", common.FLOAT32_ONLY, RESULTS, "(weights @ v).float(), weights.float()"),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device q is on. Make it with device=q.device.",
        'scores.masked_fill(~mask, float("-inf"))',
        'scores + torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))',
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="3.6",
    symbol="attention",
    kind="function",
    parameters=("q", "k", "v", "mask"),
    points=10,
    todos=("3.6",),
    rows=ROWS,
    reference=reference,
    answer=attention,
    mistakes=MISTAKES,
    alternatives=(einsum_1e9, additive_mask_scaled_queries, fused, baddbmm, a_loop_over_queries),
    spoken={
        "out.0": _("out"),
        "out.1": _("weights"),
        "grad.0": _("the gradient of q"),
        "grad.1": _("the gradient of k"),
        "grad.2": _("the gradient of v"),
    },
    hints={
        "3.6": (
            _(
                "Which of the four lines of SelfAttention change when queries, keys and values come from outside? "
                "And where, between score and softmax, must a hidden key lose?"
            ),
            _(
                "q [..., n_q, d_k] and k [..., n_k, d_k] → scores [..., n_q, n_k]; the mask broadcasts against the scores; "
                "weights @ v [..., n_k, d_v] → out [..., n_q, d_v]."
            ),
            _(
                "scores = q against k (last two axes swapped), over the root of q's last size; if there is a mask: fill the "
                "scores with minus infinity where it is False; weights = softmax over the last axis; give out and weights. "
                "masked_fill(where, value) fills where `where` is True."
            ),
        )
    },
)
