"""8.6 sampling_probs: temperature, then top-k, then top-p; probabilities in the vocabulary's order.

There is no row for another device: right answers pick tokens by a comparison (`order[before >= p]`), which needs
numbers, and the device that the check uses has none.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from grader.exercises.ch08._common import symbols, telling
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(logits, temperature=1.0, top_k=None, top_p=None):
    """By sets, in numpy: which tokens stay, then one softmax over those that do."""
    scores = logits.double().numpy()
    order = np.argsort(-scores, kind="stable")
    if temperature == 0:
        kept, temperature = order[:1], 1.0
    else:
        kept = order[: top_k if top_k is not None else None]
    weights = np.exp((scores - scores.max()) / temperature)
    if top_p is not None:
        mass = np.cumsum(weights[kept]) / weights[kept].sum()
        kept = kept[: int(np.searchsorted(mass, top_p - 1e-12)) + 1]
    probs = np.zeros_like(weights)
    probs[kept] = weights[kept] / weights[kept].sum()
    return torch.tensor(probs, dtype=logits.dtype)


def sampling_probs(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature == 0:
        return torch.zeros_like(logits).index_fill(0, logits.argmax(), 1.0)
    logits = logits / temperature
    if top_k is not None:
        kth = logits.sort(descending=True).values[:top_k][-1]
        logits = logits.masked_fill(logits < kth, -math.inf)
    probs = torch.softmax(logits, dim=-1)
    if top_p is not None:
        ranked, order = probs.sort(descending=True)
        before = ranked.cumsum(dim=0) - ranked
        probs = probs.index_fill(0, order[before >= top_p], 0.0)
    return probs / probs.sum()


def logits_only(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature == 0:
        return F.one_hot(logits.argmax(), logits.numel()).to(logits.dtype)
    logits = logits / temperature
    if top_k is not None:
        kept = logits.topk(min(top_k, logits.numel())).indices
        logits = torch.full_like(logits, -math.inf).index_copy(0, kept, logits[kept])
    if top_p is not None:
        ranked, order = logits.softmax(-1).sort(descending=True)
        kept = order[ranked.cumsum(0) - ranked < top_p]
        logits = torch.full_like(logits, -math.inf).index_copy(0, kept, logits[kept])
    return logits.softmax(-1)


def thresholds(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature == 0.0:
        probs = torch.zeros_like(logits)
        probs[logits.argmax()] = 1.0
        return probs
    probs = torch.softmax(logits / temperature, dim=0)
    if top_k is not None and top_k < len(probs):
        probs = torch.where(probs < probs.sort().values[-top_k], torch.zeros_like(probs), probs)
        probs = probs / probs.sum()
    if top_p is not None:
        ranked, order = probs.sort(descending=True)
        keep = ranked.cumsum(0).roll(1)
        keep[0] = 0
        probs = torch.zeros_like(probs).scatter(0, order, torch.where(keep < top_p, ranked, 0 * ranked))
    return probs / probs.sum()


def loop_over_ranks(logits, temperature=1.0, top_k=None, top_p=None):
    ranked = sorted(range(len(logits)), key=lambda i: -logits[i].item())
    if temperature == 0:
        return torch.eye(len(logits), dtype=logits.dtype)[ranked[0]]
    kept = ranked[:top_k] if top_k else ranked
    probs = torch.softmax(logits[kept] / temperature, dim=-1)
    if top_p is not None:
        mass, count = 0.0, 0
        while mass < top_p and count < len(kept):
            mass += probs[count].item()
            count += 1
        kept, probs = kept[:count], probs[:count] / probs[:count].sum()
    return torch.zeros_like(logits).index_add(0, torch.tensor(kept), probs)


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, **options) -> Case:
    """Logits [V] without near ties, and p well away from every sum that could be compared with it."""
    while True:
        logits = draw.normal(draw.size(8, 11), scale=1.5)
        top_p = options.get("top_p") or 0.5
        ranked = logits.sort(descending=True).values
        sums = [
            (part / t).softmax(-1).cumsum(0)
            for t in (1.0, options.get("temperature") or 1.0)
            for part in (ranked, ranked[: options.get("top_k") or len(ranked)])
        ]
        if (-ranked.diff()).min() > 0.02 and all(((s[:-1] - top_p).abs() > 0.01).all() for s in sums):
            return Case("function", {"args": [logits], "kwargs": options})


def _plain(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _temperature(draw: Draw) -> list[Case]:
    return [_case(draw, temperature=t) for t in (0.5, 2.0)]


def _cold(draw: Draw) -> list[Case]:
    return [_case(draw, temperature=0), _case(draw, temperature=0.0, top_k=3)]


def _top_k(draw: Draw) -> list[Case]:
    return [_case(draw, top_k=k) for k in (draw.size(3, 4), 2)]


def _edges_of_k(draw: Draw) -> list[Case]:
    exactly = _case(draw, top_k=8)
    exactly.inputs["kwargs"]["top_k"] = len(exactly.inputs["args"][0])
    return [_case(draw, top_k=1), _case(draw, top_k=50), exactly]


SETS = ("one too few", "empty set", "one too many", "p as a threshold", "share of the best")
ORDERS = ("filters first", "p before k")


def _top_p(draw: Draw) -> list[Case]:
    def make(draw: Draw) -> Case:
        return _case(draw, top_p=draw.choice([0.15, 0.5, 0.7, 0.8]))

    return telling(draw, make, symbols(EXERCISE, SETS)) + [_edge_of_p(draw, p) for p in (0.25, 0.5, 0.75)]


def _edge_of_p(draw: Draw, top_p: float) -> Case:
    """Four equally likely tokens, so that some of them have mass p exactly, in any arithmetic.

    Which of the four stay is left open; how many do is not.
    """
    logits = torch.full((draw.size(8, 11),), -1000.0)
    logits[draw.rng.permutation(len(logits))[:4]] = 0.0
    return Case("tokens kept", {"args": [logits], "kwargs": {"top_p": top_p}})


def _all_three(draw: Draw) -> Case:
    return _case(
        draw, temperature=draw.choice([0.6, 1.6]), top_k=draw.size(3, 5), top_p=draw.choice([0.6, 0.75])
    )


def _order(draw: Draw) -> list[Case]:
    return telling(draw, _all_three, symbols(EXERCISE, ORDERS))


ROWS = (
    Row(
        "plain",
        "without options it is the softmax",
        _plain,
        looks=("out",),
    ),
    Row(
        "temperature",
        "a temperature divides the logits",
        _temperature,
        looks=("out",),
    ),
    Row(
        "temperature 0",
        "temperature 0 puts all probability on the likeliest token",
        _cold,
        looks=("out",),
        tolerance=Tolerance(atol=1e-6, rtol=1e-5),  # nothing is computed here: 1 and 0
    ),
    Row(
        "top_k",
        "top_k keeps the k likeliest and renormalises",
        _top_k,
        looks=("out",),
    ),
    Row(
        "k at the edges",
        "top_k = 1 keeps one token, a top_k above V keeps all",
        _edges_of_k,
        looks=("out",),
        needs=("top_k",),
    ),
    Row(
        "top_p",
        "top_p keeps the smallest set of likeliest tokens with mass at least p",
        _top_p,
        looks=("out", "kept"),
    ),
    Row(
        "order",
        "temperature first, then k, then p of what is left",
        _order,
        looks=("out",),
        needs=("temperature", "top_k", "top_p"),
    ),
    Row(
        "input kept",
        "logits are left unchanged",
        lambda draw: [_all_three(draw)],
        looks=("changed",),
        needs=("temperature",),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

HEATED = "logits = logits / temperature"
COLD = "torch.zeros_like(logits).index_fill(0, logits.argmax(), 1.0)"

MISTAKES = (
    edit(
        "times temperature",
        "The logits are multiplied by the temperature. Divide: a low temperature makes differences larger, "
        "so the best token stands out.",
        "logits / temperature",
        "logits * temperature",
    ),
    edit(
        "no temperature",
        "temperature is not used.",
        "    " + HEATED + "\n",
        "",
    ),
    edit(
        "probabilities heated",
        "You divided probabilities by the temperature and took the softmax of that. The temperature "
        "divides the logits.",
        "logits / temperature",
        "torch.softmax(logits, dim=-1) / temperature",
    ),
    edit(
        "division by 0",
        "Temperature 0 divides by zero. Its limit is argmax: return 1 for the likeliest token and 0 for "
        "the others.",
        "    if temperature == 0:\n        return " + COLD + "\n",
        "",
    ),
    edit(
        "0 gives an index",
        "At temperature 0 you return the index of the best token. Return probabilities [V] here too: 1 "
        "there, 0 elsewhere.",
        COLD,
        "logits.argmax()",
    ),
    edit(
        "0 means off",
        "Temperature 0 is treated as 'no temperature'. It means no chance at all: argmax.",
        COLD,
        "torch.softmax(logits, dim=-1)",
    ),
    edit(
        "filters first",
        "The filters ran before the temperature, so p saw the wrong masses. Temperature comes first.",
        "    " + HEATED + "\n",
        "",
        "    return probs / probs.sum()",
        "    logits = torch.log(probs) / temperature\n    return torch.softmax(logits, dim=-1)",
    ),
    edit(
        "p before k",
        "p counts the masses from before k. k comes first; what it leaves is renormalised to 1, and p is a "
        "share of that.",
        "    if top_k is not None:\n"
        "        kth = logits.sort(descending=True).values[:top_k][-1]\n"
        "        logits = logits.masked_fill(logits < kth, -math.inf)\n",
        "",
        "    return probs / probs.sum()",
        "    if top_k is not None:\n"
        "        kth = probs.sort(descending=True).values[:top_k][-1]\n"
        "        probs = probs.masked_fill(probs < kth, 0.0)\n"
        "    return probs / probs.sum()",
    ),
    edit(
        "one too few",
        "Your set stops just before it reaches mass p. The token that reaches p belongs to it: mass at "
        "least p.",
        "before = ranked.cumsum(dim=0) - ranked",
        "mass = ranked.cumsum(dim=0)\n        mass[0] = 0.0",
        "before >= top_p",
        "mass > top_p",
    ),
    edit(
        "empty set",
        "When the first token alone exceeds p, nothing is left, and 0 / 0 is NaN. The token that reaches p "
        "belongs to the set.",
        "before = ranked.cumsum(dim=0) - ranked",
        "mass = ranked.cumsum(dim=0)",
        "before >= top_p",
        "mass > top_p",
    ),
    edit(
        "one too many",
        "Your set holds one token more than it needs. Keep a token only if the mass before it is still "
        "below p.",
        "before = ranked.cumsum(dim=0) - ranked",
        "kept = int((ranked.cumsum(dim=0) < top_p).sum()) + 2",
        "order[before >= top_p]",
        "order[kept:]",
    ),
    edit(
        "beyond p",
        "When the likeliest tokens have mass p exactly, the set is complete; yours takes one more. A token stays while "
        "the mass before it is below p: <, not ≤.",
        "before >= top_p",
        "before > top_p",
    ),
    edit(
        "p as a threshold",
        "You kept tokens whose own probability is at least p. p is about their sum, from the likeliest down.",
        "before = ranked.cumsum(dim=0) - ranked",
        "small = ranked < top_p\n        small[0] = False",
        "before >= top_p",
        "small",
    ),
    edit(
        "share of the best",
        "You kept tokens by comparing them with the likeliest one. p is about the sum of the kept tokens, "
        "from the likeliest down.",
        "before >= top_p",
        "ranked < (1 - top_p) * ranked[0]",
    ),
    edit(
        "smallest k",
        "The k least likely tokens were kept.",
        "logits.sort(descending=True)",
        "logits.sort()",
        "logits < kth",
        "logits > kth",
    ),
    edit(
        "k minus one",
        "One token fewer than k is kept: compare with ≥, not with >.",
        "logits < kth",
        "logits <= kth",
    ),
    edit(
        "k above V",
        "A top_k above V ends in an error inside topk. Then all tokens stay: take min(top_k, V).",
        "logits.sort(descending=True).values[:top_k][-1]",
        "logits.topk(top_k).values[-1]",
    ),
    edit(
        "logit 0 for removed",
        "Removed tokens were given the logit 0, and e^0 is 1: they stay possible. −∞ removes them, or set "
        "their probability to 0 and renormalise.",
        "    return probs / probs.sum()",
        "    logits = logits.masked_fill(probs == 0, 0.0)\n    return torch.softmax(logits, dim=-1)",
    ),
    edit(
        "not renormalised",
        "The kept probabilities no longer sum to 1. Divide by their sum.",
        HEATED,
        HEATED + "\n    all_probs = torch.softmax(logits, dim=-1)",
        "probs / probs.sum()",
        "all_probs * (probs > 0)",
    ),
    edit(
        "sorted",
        "The probabilities come back sorted. They belong in the vocabulary's order: probs[i] is token i's.",
        "return probs / probs.sum()",
        "return (probs / probs.sum()).sort(descending=True).values",
    ),
    edit(
        "in place",
        "logits itself was changed. logits /= t writes into the caller's tensor: make a new one.",
        HEATED,
        "logits /= temperature",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

ONE_AXIS = "the contract has one axis, [V], which is the first and the last"
NOTHING_CUT = (
    "without a top_k the slice is the whole: the k-th largest logit is the smallest, and none is below it"
)
CUT = "probs.index_fill(0, order[before >= top_p], 0.0)"

EXERCISE = Exercise(
    id="8.6",
    symbol="sampling_probs",
    kind="function",
    parameters=("logits", "temperature", "top_k", "top_p"),
    points=5,
    todos=("8.6",),
    rows=ROWS,
    reference=reference,
    answer=sampling_probs,
    mistakes=MISTAKES,
    alternatives=(logits_only, thresholds, loop_over_ranks),
    spoken={
        "out": _("the probabilities"),
        "kept": _("the number of tokens that stay, of four equally likely ones,"),
    },
    equivalent={
        "temperature == 0 → temperature <= 0": "the contract knows no temperature below 0",
        "top_k is not None → True": NOTHING_CUT,
        "top_k is not None → logits is not None": NOTHING_CUT,
        "top_k is not None → temperature is not None": NOTHING_CUT,
        f"{COLD} → {COLD.replace('(0,', '(-1,')}": ONE_AXIS,
        "ranked.cumsum(dim=0) → ranked.cumsum(dim=-1)": ONE_AXIS,
        f"{CUT} → {CUT.replace('(0,', '(-1,')}": ONE_AXIS,
    },
    hints={
        "8.6": (
            _(
                "Each filter only decides which tokens may stay. In which order do they decide, and who "
                "sees whose result?"
            ),
            _(
                "logits / temperature [V] → −∞ outside the k best → softmax, sorted: mass before each "
                "token [V] → 0 where that mass is ≥ p → divide by the sum."
            ),
            _(
                "temperature 0: a vector of zeros with 1 at the argmax. Else divide; set logits below the "
                "k-th best to −∞; softmax; sort; before = cumulative sum − the value itself; keep where "
                "before < p; put the kept values back in their places; divide by their sum"
            ),
        )
    },
)
