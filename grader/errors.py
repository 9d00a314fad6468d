"""Mistakes that a person can mend. The command line prints their text alone, without a traceback."""

from __future__ import annotations


class UserMistake(Exception):
    """Something an author or instructor wrote or asked for is wrong; the text says what to do."""


class UnknownName(UserMistake, LookupError):
    """There is no chapter or exercise of that name; the text lists the names there are."""
