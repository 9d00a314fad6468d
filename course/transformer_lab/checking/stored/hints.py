"""Hints: a ladder for each TODO. Every call climbs one rung."""

from __future__ import annotations

from collections import Counter

from transformer_lab.checking.stored.recorded import UnknownExercise, recorded_hints

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
    print(f"Hint {rung + 1} of {len(ladder)} for TODO {todo}:\n{ladder[rung]}")
    if rung + 1 < len(ladder):
        print(f'\nStill stuck? Run hint("{todo}") again for the next one.')
    else:
        print("\nThis was the last hint. Try it on paper with the smallest numbers you can.")
