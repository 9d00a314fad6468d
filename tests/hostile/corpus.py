"""All cases, in groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.hostile import deaths, forgery, honest, notebooks, spying
from tests.hostile.kit import Case

GROUPS = {
    "forgery": forgery,
    "reading and writing": spying,
    "death and load": deaths,
    "notebook": notebooks,
    "honest": honest,
}


# What depends on the rights that the grader itself has.
BY_USER = ("forgery", "reading and writing", "death and load")


def corpus(groups: Iterable[str] = tuple(GROUPS)) -> list[Case]:
    """Return the cases of these groups, all when none is named; students' ids are unique."""
    return [replace(case, group=group) for group in groups for case in GROUPS[group].cases()]
