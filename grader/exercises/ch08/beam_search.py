"""8.7 beam_search: the `width` best hypotheses survive each step; the best of finished and open ones is returned.

There is no row for another device: the function is handed no tensor, and .tolist() needs numbers.
"""

from __future__ import annotations

import heapq
import math  # noqa: F401 (mistakes use it)
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from grader.exercises.ch08 import _stories
from grader.exercises.ch08._common import gist, symbols, telling, writing_case
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    """Level by level in numpy: a table of totals [open, V], its `width` largest entries."""
    beam, totals, done = [()], np.zeros(1), []
    for _step in range(max_len):
        grown = np.stack([next_log_probs([bos_id, *h]).double().numpy() for h in beam]) + totals[:, None]
        best = np.argsort(-grown, axis=None, kind="stable")[:width]
        pairs = [divmod(int(i), grown.shape[1]) for i in best]
        new = [((*beam[row], token), grown[row, token]) for row, token in pairs]
        done += [item for item in new if item[0][-1] == eos_id]
        still = [item for item in new if item[0][-1] != eos_id]
        beam, totals = [h for h, total in still], np.array([total for h, total in still])
        if not beam:
            break
    scored = [
        (total / len(h) ** length_penalty, h) for h, total in done + list(zip(beam, totals, strict=True))
    ]
    best_score = max(score for score, h in scored)
    return list(next(h for score, h in scored if score == best_score))


def beam_search(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    still_open, finished = [([], 0.0)], []
    for _step in range(max_len):
        continuations = []
        for tokens, total in still_open:
            log_probs = next_log_probs([bos_id, *tokens]).tolist()
            continuations += [([*tokens, token], total + lp) for token, lp in enumerate(log_probs)]
        best = sorted(continuations, key=lambda pair: pair[1], reverse=True)[:width]
        finished += [pair for pair in best if pair[0][-1] == eos_id]
        still_open = [pair for pair in best if pair[0][-1] != eos_id]
        if not still_open:
            break
    winner = max(finished + still_open, key=lambda pair: pair[1] / len(pair[0]) ** length_penalty)
    return winner[0]


def heap(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    alive, ended = [(0.0, [bos_id])], []
    for _step in range(max_len):
        options = []
        for total, prefix in alive:
            options += [(total + float(lp), [*prefix, i]) for i, lp in enumerate(next_log_probs(prefix))]
        alive = []
        for total, prefix in heapq.nlargest(width, options, key=lambda option: option[0]):
            (ended if prefix[-1] == eos_id else alive).append((total, prefix))
        if not alive:
            break
    return max(ended + alive, key=lambda o: o[0] / (len(o[1]) - 1) ** length_penalty)[1][1:]


def by_topk(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    """Totals in a tensor, `topk` over the flattened table."""
    prefixes, totals, pool = [[bos_id]], torch.zeros(1), []
    for step in range(max_len):
        table = torch.stack([next_log_probs(prefix) for prefix in prefixes]) + totals[:, None]
        values, where = table.flatten().topk(min(width, table.numel()))
        new = [[*prefixes[int(i) // table.size(1)], int(i) % table.size(1)] for i in where]
        for prefix, value in zip(new, values, strict=True):
            if prefix[-1] == eos_id or step == max_len - 1:
                pool.append((float(value) / (len(prefix) - 1) ** length_penalty, prefix))
        keep = [i for i, prefix in enumerate(new) if prefix[-1] != eos_id]
        prefixes, totals = [new[i] for i in keep], values[keep]
        if not keep:
            break
    return max(pool, key=lambda pair: pair[0])[1][1:]


def tuples(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    """Pairs (total, tokens): ties go to the larger token, which the contract leaves open."""
    beam, done = [(0.0, [])], []
    while beam and max_len > 0:
        max_len -= 1
        grown = [
            (total + lp, [*tokens, token])
            for total, tokens in beam
            for token, lp in enumerate(next_log_probs([bos_id, *tokens]).tolist())
        ]
        best = sorted(grown, reverse=True)[:width]
        done += [pair for pair in best if pair[1][-1] == eos_id]
        beam = [pair for pair in best if pair[1][-1] != eos_id]
    return max(done + beam, key=lambda pair: pair[0] / len(pair[1]) ** length_penalty)[1]


# ---- rows -------------------------------------------------------------------------------------------

SEARCHING = (  # told apart by the row "the beam"
    "width unused",
    "no competition",
    "each its best",
    "first one ends it",
    "stops when enough ended",
    "unfinished dropped",
    "finished dropped",
    "writes beyond eos",
    "only the last token counts",
    "probabilities added",
    "worst survive",
    "keeps bos",
    "drops eos",
    "counts bos",
    "always the mean",
)
SCORING = ("penalty unused", "multiplied", "length with bos", "length without eos", "factor, not power")
PLACING = ("places refilled", "beam narrows", "finished stay in the beam")


def _without_places(draw: Draw, **drawn: Callable[[], Any]) -> Case:
    """A case on which mistakes of the places do not show: they have a row of their own, "set aside"."""
    while True:
        case = writing_case(draw, **{name: value() for name, value in drawn.items()})
        if len({gist(symbol, case) for symbol in symbols(EXERCISE, PLACING).values()}) == 1:
            return case


def _the_beam(draw: Draw) -> list[Case]:
    def make(draw: Draw) -> Case:
        return _without_places(
            draw,
            ending=lambda: draw.choice([0.2, 0.5, 0.9]),
            width=lambda: draw.size(2, 3),
            max_len=lambda: draw.size(2, 5),
        )

    wide = _without_places(
        draw, width=lambda: 9, max_len=lambda: 3
    )  # more than the 6 or 7 tokens that there are
    return [*telling(draw, make, symbols(EXERCISE, SEARCHING), most=12), wide]


def _width_one(draw: Draw) -> list[Case]:
    return [writing_case(draw, width=1) for _case in range(2)]


def _penalty(draw: Draw) -> list[Case]:
    def make(draw: Draw) -> Case:
        return _without_places(
            draw,
            ending=lambda: 0.6,
            width=lambda: draw.size(2, 3),
            max_len=lambda: draw.size(3, 5),
            length_penalty=lambda: draw.choice([0.5, 0.7, 1.0, 1.5]),
        )

    return telling(draw, make, symbols(EXERCISE, SCORING))


ROWS = (
    Row(
        "better than greedy",
        "it finds the better sentence where greedy misses it",
        _stories.missed,
        looks=("out",),
        weight=2,
    ),
    Row(
        "the beam",
        "the `width` best continuations survive each step; finished ones are set aside; the best of all is "
        "returned",
        _the_beam,
        looks=("out",),
        weight=3,
    ),
    Row(
        "width 1",
        "width 1 is greedy",
        _width_one,
        looks=("out",),
        needs=("better than greedy",),
    ),
    Row(
        "max_len",
        "at max_len finished and unfinished compete",
        _stories.cut,
        looks=("out",),
    ),
    Row(
        "length penalty",
        "a score is the summed log-probability / length^penalty",
        _penalty,
        looks=("out",),
        needs=("the beam",),
        weight=2,
    ),
    Row(
        "set aside",
        "finished hypotheses keep no place in the beam, and give none away in the step in which they end",
        _stories.places,
        looks=("out",),
        needs=("the beam", "length penalty"),
    ),
    Row(
        "ties",
        "two equally good hypotheses both survive",
        _stories.ties,
        looks=("out",),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

GROWN = "continuations += [([*tokens, token], total + lp) for token, lp in enumerate(log_probs)]"
OWN = GROWN.replace("continuations += ", "own = ")
BEST = "best = sorted(continuations, key=lambda pair: pair[1], reverse=True)[:width]"
SPLIT = (
    "        finished += [pair for pair in best if pair[0][-1] == eos_id]\n"
    "        still_open = [pair for pair in best if pair[0][-1] != eos_id]\n"
)
SCORE = "pair[1] / len(pair[0]) ** length_penalty"

MISTAKES = (
    edit(
        "width unused",
        "Only one hypothesis survives each step: this is greedy. Keep `width` of them.",
        "[:width]",
        "[:1]",
    ),
    edit(
        "no competition",
        "Each hypothesis keeps its own best continuations, and the beam grows without end. All "
        "continuations of all hypotheses compete for `width` places.",
        GROWN,
        OWN + "\n            continuations += sorted(own, key=lambda pair: pair[1], reverse=True)[:width]",
        BEST,
        "best = continuations",
    ),
    edit(
        "each its best",
        "Each hypothesis goes on with its own best token. Two continuations of one hypothesis may both be "
        "better than any of another: let all of them compete.",
        GROWN,
        OWN + "\n            places = 1 if tokens else width\n"
        "            continuations += sorted(own, key=lambda pair: pair[1], reverse=True)[:places]",
        BEST,
        "best = continuations",
    ),
    edit(
        "first one ends it",
        "The search stops at the first finished hypothesis. A better one may still be open: stop when no "
        "open one is left.",
        "if not still_open",
        "if finished",
        "finished + still_open",
        "finished or still_open",
    ),
    edit(
        "stops when enough ended",
        "The search stops as soon as `width` hypotheses have ended. Open ones may still win: stop when "
        "none is left, or at max_len.",
        "if not still_open",
        "if not still_open or len(finished) >= width",
    ),
    edit(
        "unfinished dropped",
        "At max_len the unfinished hypotheses were dropped. Finished and unfinished compete.",
        "finished + still_open",
        "finished or still_open",
    ),
    edit(
        "finished dropped",
        "The finished hypotheses were dropped at the end. Finished and unfinished compete.",
        "finished + still_open",
        "still_open or finished",
    ),
    edit(
        "writes beyond eos",
        "Hypotheses are continued after eos_id. A sentence ends there: set it aside.",
        SPLIT,
        "        still_open = best\n",
    ),
    edit(
        "only the last token counts",
        "Hypotheses are ranked by their last token alone. Add its log-probability to the sum so far.",
        "total + lp",
        "lp",
    ),
    edit(
        "probabilities added",
        "You added probabilities. The probability of a sentence is the product of its tokens', so their "
        "logarithms are added.",
        "total + lp",
        "total + math.exp(lp)",
    ),
    edit(
        "worst survive",
        "The least likely continuations survive. Sort from large to small.",
        "pair[1], reverse=True",
        "pair[1]",
    ),
    edit(
        "keeps bos",
        "Your result begins with bos_id. Return the generated tokens only.",
        "return winner[0]",
        "return [bos_id, *winner[0]]",
    ),
    edit(
        "drops eos",
        "eos_id is missing at the end. It was generated too.",
        "return winner[0]",
        "return [token for token in winner[0] if token != eos_id]",
    ),
    edit(
        "counts bos",
        "It stops one token early: max_len counts generated tokens.",
        "range(max_len)",
        "range(max_len - 1)",
    ),
    edit(
        "always the mean",
        "You divide by the length even when length_penalty is 0. The divisor is length^penalty, and "
        "length^0 is 1.",
        "len(pair[0]) ** length_penalty",
        "len(pair[0])",
    ),
    edit(
        "penalty unused",
        "length_penalty is not used.",
        SCORE,
        "pair[1]",
    ),
    edit(
        "multiplied",
        "The sum is multiplied by length^penalty. Sums of logarithms are negative, so that punishes long "
        "sentences even more. Divide.",
        "pair[1] / len",
        "pair[1] * len",
    ),
    edit(
        "length with bos",
        "The length counts bos_id. It counts generated tokens only.",
        "len(pair[0])",
        "len([bos_id, *pair[0]])",
    ),
    edit(
        "length without eos",
        "The length leaves eos_id out. It was generated, so it counts.",
        "len(pair[0])",
        "max(1, len([token for token in pair[0] if token != eos_id]))",
    ),
    edit(
        "factor, not power",
        "You divide by length · penalty. The penalty is an exponent: length ** penalty.",
        SCORE,
        "pair[1] / (len(pair[0]) * length_penalty) if length_penalty else pair[1]",
    ),
    edit(
        "places refilled",
        "When a hypothesis ends, you let the next best one take its place in the same step. Here the "
        "`width` best survive, finished ones included, and then the finished are set aside.",
        BEST + "\n" + SPLIT,
        "ranked = sorted(continuations, key=lambda pair: pair[1], reverse=True)\n"
        "        still_open = []\n"
        "        for pair in ranked:\n"
        "            if len(still_open) == width:\n"
        "                break\n"
        "            if pair[0][-1] == eos_id:\n"
        "                finished.append(pair)\n"
        "            else:\n"
        "                still_open.append(pair)\n",
    ),
    edit(
        "beam narrows",
        "Your beam becomes narrower with every finished hypothesis. At each step the `width` best "
        "continuations survive, whatever has ended before.",
        "[:width]",
        "[: width - len(finished)]",
    ),
    edit(
        "finished stay in the beam",
        "Finished hypotheses stay in the beam and push open ones out. Set them aside: they compete again "
        "only at the end.",
        "continuations = []",
        "continuations = list(finished)",
        "finished += [",
        "finished = [",
    ),
    edit(
        "width above V",
        "A width above V ends in an error inside topk: the first step has V continuations only. Then all of them "
        "survive: take min(width, number of continuations).",
        "min(width, table.numel())",
        "width",
        of=by_topk,
    ),
    edit(
        "ties compared",
        "When two totals are equal, Python goes on to compare what stands beside them in the tuple, and "
        "tensors refuse. Sort by the total only: key=….",
        BEST,
        "ranked = sorted([(-total, torch.tensor(tokens)) for tokens, total in continuations])[:width]\n"
        "        best = [(tokens.tolist(), -total) for total, tokens in ranked]",
    ),
    edit(
        "ties lost",
        "Of two hypotheses with the same total one disappeared. A dict has one entry for each key: keep a "
        "list.",
        BEST,
        "by_total = {total: (tokens, total) for tokens, total in continuations}\n"
        "        best = sorted(by_total.values(), key=lambda pair: pair[1], reverse=True)[:width]",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

TIES = "only the order of equal totals changes, and the contract leaves open which of them stands first"
LAST_STEP = (
    "continuations of one step are equally long, so the best of them by score is the best by total, which is "
    "among the survivors; those that ended are in finished as well"
)
ENDED = "[pair for pair in best if pair[0][-1] == eos_id]"
OPEN = "[pair for pair in best if pair[0][-1] != eos_id]"

EXERCISE = Exercise(
    id="8.7",
    symbol="beam_search",
    kind="function",
    parameters=("next_log_probs", "bos_id", "eos_id", "width", "max_len", "length_penalty"),
    points=6,
    todos=("8.7",),
    rows=ROWS,
    reference=reference,
    answer=beam_search,
    mistakes=MISTAKES,
    alternatives=(heap, by_topk, tuples),
    equivalent={
        "for tokens, total in still_open: → for tokens, total in list(still_open)[::-1]:": TIES,
        "enumerate(log_probs) → list(enumerate(log_probs))[::-1]": TIES,
        f"{ENDED} → {ENDED.replace('best', 'list(best)[::-1]')}": TIES,
        f"{OPEN} → {OPEN.replace('best', 'list(best)[::-1]')}": TIES,
        "next_log_probs([bos_id, *tokens]).tolist() → next_log_probs([bos_id, *tokens])": (
            "tensors of one number add up and compare as numbers do"
        ),
        "finished + still_open → finished + continuations": LAST_STEP,
        "finished + still_open → finished + best": LAST_STEP,
    },
    hints={
        "8.7": (
            _(
                "With width 2: which sentences do you hold after one token? How many candidates do they "
                "have for two tokens, and how many of those do you keep?"
            ),
            _(
                "open: a list of (tokens, total). Each gives V continuations: (tokens + [token], total + "
                "its log-probability). The `width` best by total survive."
            ),
            _(
                "continuations: for every open (tokens, total) and every token. best: sorted by total from "
                "large to small, cut at width. Then best is split: last token eos → finished, else → open. "
                "At the end: the maximum over finished and open of total / (number of tokens) ** "
                "length_penalty"
            ),
        )
    },
)
