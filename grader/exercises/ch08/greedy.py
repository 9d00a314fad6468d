"""8.5 greedy: the likeliest next token, again and again, until eos_id or max_len tokens.

There is no row for another device: the function is handed no tensor, and .item() needs numbers.
"""

from __future__ import annotations

import numpy as np
import torch

from grader.exercises.ch08._common import symbols, telling, writing_case
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case, observe
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(next_log_probs, bos_id, eos_id, max_len):
    def go_on(prefix):
        token = int(np.argmax(next_log_probs(prefix).numpy()))
        done = token == eos_id or len(prefix) == max_len
        return [token] if done else [token, *go_on([*prefix, token])]

    return go_on([bos_id]) if max_len > 0 else []


def greedy(next_log_probs, bos_id, eos_id, max_len):
    prefix = [bos_id]
    for _step in range(max_len):
        scores = next_log_probs(prefix)
        token = scores.argmax().item()
        prefix.append(token)
        if token == eos_id:
            break
    return prefix[1:]


def for_loop(next_log_probs, bos_id, eos_id, max_len):
    prefix = [bos_id]
    for _step in range(max_len):
        prefix.append(int(next_log_probs(prefix).topk(1).indices))
        if prefix[-1] == eos_id:
            return prefix[1:]
    return prefix[1:]


def lists(next_log_probs, bos_id, eos_id, max_len):
    written = []
    while len(written) < max_len and eos_id not in written:
        scores = next_log_probs([bos_id] + written).tolist()  # noqa: RUF005
        written = written + [scores.index(max(scores))]  # noqa: RUF005
    return written


def while_loop(next_log_probs, bos_id, eos_id, max_len):
    tokens = []
    while len(tokens) < max_len:
        prefix = [bos_id, *tokens]
        token = torch.argmax(next_log_probs(prefix)).item()
        tokens.append(token)
        if token == eos_id:
            break
    return tokens


# ---- rows -------------------------------------------------------------------------------------------


def _likeliest(draw: Draw) -> list[Case]:
    """Cases that tell every mistake apart: a random one may hide some."""
    return [*telling(draw, writing_case, symbols(EXERCISE)), _ends_midway(draw)]


def _ends_midway(draw: Draw) -> Case:
    """eos_id comes after some words and before max_len."""
    while True:
        case = writing_case(draw, max_len=6)
        if 2 < len(observe(reference, case).values["out"]) < 6:
            return case


def _cut(draw: Draw) -> list[Case]:
    return [writing_case(draw, ending=-3.0, max_len=length) for length in (1, 3)]


ROWS = (
    Row(
        "likeliest",
        "the likeliest next token each time, until eos_id, which is included",
        _likeliest,
        looks=("out",),
        weight=3,
    ),
    Row(
        "max_len",
        "at most max_len tokens when eos_id does not come",
        _cut,
        looks=("out",),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "keeps bos",
        "Your result begins with bos_id. Return the generated tokens only.",
        "return prefix[1:]",
        "return prefix",
    ),
    edit(
        "drops eos",
        "eos_id is missing at the end. It was generated too: whoever reads the result can then tell a "
        "finished sentence from one that was cut off.",
        "return prefix[1:]",
        "return [token for token in prefix[1:] if token != eos_id]",
    ),
    edit(
        "never stops",
        "It goes on after eos_id. The sentence ends there.",
        "        if token == eos_id:\n            break\n",
        "",
    ),
    edit(
        "counts bos",
        "It stops one token early. max_len counts generated tokens; bos_id is not one of them.",
        "range(max_len)",
        "range(max_len - 1)",
    ),
    edit(
        "one too many",
        "It writes one token more than max_len.",
        "range(max_len)",
        "range(max_len + 1)",
    ),
    edit(
        "only the last token",
        "next_log_probs was given the last token alone. A decoder is not an RNN: it keeps no state, so "
        "hand it the whole prefix every time.",
        "next_log_probs(prefix)",
        "next_log_probs(prefix[-1:])",
    ),
    edit(
        "forgets the middle",
        "The prefix is rebuilt from bos_id and the last token only; what stood between is lost. Append to "
        "one list.",
        "prefix = [bos_id]",
        "prefix, written = [bos_id], []",
        "prefix.append(token)",
        "written.append(token)\n        prefix = [bos_id, token]",
        "return prefix[1:]",
        "return written",
    ),
    edit(
        "prefix without bos",
        "next_log_probs was given the generated tokens only. The prefix begins with bos_id.",
        "next_log_probs(prefix)",
        "next_log_probs(prefix[1:])",
    ),
    edit(
        "least likely",
        "You took the least likely token: argmax, or the first when sorted from large to small.",
        "argmax",
        "argmin",
    ),
    edit(
        "samples",
        "You drew a token at random. Greedy takes the likeliest, always the same.",
        "scores.argmax()",
        "torch.multinomial(scores.exp(), 1)",
    ),
    edit(
        "eos is always 2",
        "eos_id is not used: the loop stops at 2.",
        "token == eos_id",
        "token == 2",
    ),
    edit(
        "bos is always 1",
        "bos_id is not used: the prefix begins with 1.",
        "prefix = [bos_id]",
        "prefix = [1]",
    ),
    edit(
        "tensors in the list",
        "The list holds tensors. Make whole numbers of them, with .item() or int(...).",
        "scores.argmax().item()",
        "scores.argmax()",
    ),
    edit(
        "returns a tensor",
        "The result is a tensor; a list of whole numbers was meant.",
        "return prefix[1:]",
        "return torch.tensor(prefix[1:])",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="8.5",
    symbol="greedy",
    kind="function",
    parameters=("next_log_probs", "bos_id", "eos_id", "max_len"),
    points=4,
    todos=("8.5",),
    rows=ROWS,
    reference=reference,
    answer=greedy,
    mistakes=MISTAKES,
    alternatives=(for_loop, lists, while_loop),
    hints={
        "8.5": (
            _(
                "You hold the tokens written so far. What do you ask the model, and what do you do with "
                "the answer?"
            ),
            _(
                "prefix: a list that begins with bos_id. next_log_probs(prefix) is [V]; its argmax is one "
                "token."
            ),
            _(
                "repeat at most max_len times: token = the argmax for the prefix, as a whole number; "
                "append it to the prefix; stop if it is eos_id. Return the prefix without its first element"
            ),
        )
    },
)
