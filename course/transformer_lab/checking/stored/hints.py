"""Hints: a ladder for each TODO. Every call climbs one rung."""

from __future__ import annotations

from collections import Counter

from transformer_lab.checking.stored.recorded import UnknownExercise, recorded_hints
from transformer_lab.language import _

_climbed: Counter[str] = Counter()


def hint(todo: str) -> None:
    """Print the next hint for a TODO: first a question, then shapes, then pseudocode."""
    todo = str(todo)
    try:
        ladder = recorded_hints(todo)
    except UnknownExercise as unknown:
        print(unknown)
        return
    rung = min(_climbed[todo], len(ladder) - 1)
    _climbed[todo] += 1
    print(
        _("Hint {rung} of {ladder_count} for TODO {todo}:\n{ladder}").format(
            rung=rung + 1, ladder_count=len(ladder), todo=todo, ladder=ladder[rung]
        )
    )
    if rung + 1 < len(ladder):
        print(_('\nStill stuck? Run hint("{todo}") again for the next one.').format(todo=todo))
    else:
        print(_("\nThis was the last hint. Try it on paper with the smallest numbers you can."))
