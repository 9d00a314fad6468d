"""9.3 overfit: call step() until its loss is below goal, at most `most` times; return all losses."""

from __future__ import annotations

import itertools

import numpy as np

from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(step, goal=0.05, most=300):
    """All losses at hand, cut after the first one below the goal."""
    losses = []
    for loss in itertools.islice(iter(step, None), most):
        losses += [loss]
        if loss < goal:
            return losses
    return losses


def overfit(step, goal=0.05, most=300):
    losses = []
    for _round in range(most):
        loss = step()
        losses.append(loss)
        if loss < goal:
            break
    return losses


def by_while(step, goal=0.05, most=300):
    losses = []
    while len(losses) < most and not (losses and losses[-1] < goal):
        losses.append(step())
    return losses


def recursion(step, goal=0.05, most=300):
    if most == 0:
        return []
    loss = step()
    return [loss, *([] if loss < goal else recursion(step, goal, most - 1))]


def generator(step, goal=0.05, most=300):
    def losses():
        for _round in range(most):
            loss = step()
            yield loss
            if loss < goal:
                return

    return list(losses())


# ---- rows -------------------------------------------------------------------------------------------
# No row about devices: there are no tensors here.


def _falling(draw: Draw, steps: int, low: float = 0.3, high: float = 3.0) -> list[float]:
    """Losses as training gives them: falling, with a rise here and there."""
    falling = np.sort(np.round(draw.rng.uniform(low, high, steps), 3))[::-1].copy()
    at = draw.size(1, steps - 3)
    falling[[at, at + 1]] = falling[[at + 1, at]]
    return falling.tolist()


def _reaches(draw: Draw) -> list[Case]:
    """The goal is met at a known step; the loss before it equals the goal, which is not yet below."""
    goal = 0.2
    losses = [*_falling(draw, draw.size(6, 9)), goal, 0.15, 0.1, 0.09]
    return [
        Case("losses of steps", {"losses": losses, "kwargs": {"goal": goal, "most": 40}}),
        Case("losses of steps", {"losses": [0.05, *losses], "kwargs": {"goal": goal, "most": 40}}),
    ]


def _gives_up(draw: Draw) -> list[Case]:
    losses = _falling(draw, draw.size(15, 18))
    return [Case("losses of steps", {"losses": losses, "kwargs": {"goal": 0.1, "most": draw.size(8, 12)}})]


def _defaults(draw: Draw) -> list[Case]:
    learned = [*_falling(draw, draw.size(5, 8)), 0.07, 0.04, 0.03]
    return [
        Case("losses of steps", {"losses": learned, "kwargs": {}}),
        Case("losses of steps", {"losses": _falling(draw, 9), "kwargs": {}}),
    ]


ROWS = (
    Row(
        "reaches",
        "it stops right after the first loss below the goal and returns all losses, that one included",
        _reaches,
        looks=("out", "calls"),
        weight=2,
    ),
    Row(
        "gives up",
        "it stops after `most` steps when the goal is not reached",
        _gives_up,
        looks=("out", "calls"),
    ),
    Row(
        "defaults",
        "goal is 0.05 and most is 300 when they are not given",
        _defaults,
        looks=("out", "calls"),
        needs=("reaches", "gives up"),
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "last loss dropped",
        "The loss that reached the goal is missing from the list. Append it before you leave the loop.",
        "        losses.append(loss)\n        if loss < goal:\n            break\n",
        "        if loss < goal:\n            break\n        losses.append(loss)\n",
    ),
    edit(
        "one step more",
        "One step more is made after the goal is reached. Look at the loss right after each step.",
        "            break",
        "            losses.append(step())\n            break",
    ),
    edit(
        "equal is enough",
        "A loss equal to the goal already ends your loop; it should end when a loss is below it.",
        "loss < goal",
        "loss <= goal",
    ),
    edit(
        "never satisfied",
        "The goal is never looked at: all `most` steps are made.",
        "        if loss < goal:\n            break\n",
        "",
    ),
    edit(
        "wrong way round",
        "Your loop ends while the loss is still above the goal: the comparison is turned round.",
        "loss < goal",
        "loss > goal",
    ),
    edit(
        "mean",
        "The mean of all losses is compared with the goal. The latest loss alone decides.",
        "loss < goal",
        "sum(losses) / len(losses) < goal",
    ),
    edit(
        "stops at a rise",
        "Your loop ends as soon as a loss is larger than the one before. Single rises are normal; go on until the goal.",
        "loss < goal",
        "loss < goal or loss > min(losses)",
    ),
    edit(
        "no limit",
        "When the goal is never reached, your loop never ends. Stop after `most` steps.",
        "for _round in range(most):",
        "while True:",
    ),
    edit(
        "one too many",
        "`most` + 1 steps are made when the goal is not reached.",
        "range(most)",
        "range(most + 1)",
    ),
    edit(
        "one too few",
        "`most` - 1 steps are made when the goal is not reached.",
        "range(most)",
        "range(most - 1)",
    ),
    edit(
        "last only",
        "Only the last loss is returned. The list of all losses was asked for: it can be drawn.",
        "return losses",
        "return losses[-1]",
    ),
    edit(
        "count",
        "The number of steps is returned; the list of losses was asked for.",
        "return losses",
        "return len(losses)",
    ),
    edit(
        "same loss again",
        "step() is called only once, and its loss is repeated. Each call makes one step.",
        "    losses = []\n",
        "    losses = []\n    loss = step()\n",
        "        loss = step()\n",
        "",
    ),
    edit(
        "not called",
        "You use step itself, the function. step() calls it and gives the loss.",
        "loss = step()",
        "loss = step",
    ),
    edit(
        "two steps a round",
        "step() is called twice in each round, once to look and once to keep. Each call is a step: keep its loss in a "
        "variable, or look at losses[-1]. And `most` is not looked at.",
        "    for _round in range(most):\n        loss = step()\n        losses.append(loss)\n"
        "        if loss < goal:\n            break\n",
        "    while step() > goal:\n        losses.append(step())\n",
    ),
    edit(
        "called again to look",
        "step() is called a second time to compare it with the goal. Each call is a step: look at losses[-1].",
        "if loss < goal",
        "if step() < goal",
    ),
    edit("another goal", "The default of goal is 0.05.", "goal=0.05", "goal=0.5"),
    edit("another limit", "The default of most is 300.", "most=300", "most=100"),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="9.3",
    symbol="overfit",
    kind="function",
    parameters=("step", "goal", "most"),
    points=4,
    todos=("9.3",),
    rows=ROWS,
    reference=reference,
    answer=overfit,
    mistakes=MISTAKES,
    alternatives=(by_while, recursion, generator),
    spoken={"out": _("the list of losses"), "calls": _("the number of calls of step()")},
    hints={
        "9.3": (
            _("Which two events end the loop?"),
            _(
                "step() takes nothing and returns one float. You return a list of floats, as long as the number of calls."
            ),
            _("for at most `most` rounds: append what step() returns; leave when the latest is below goal"),
        ),
    },
)
