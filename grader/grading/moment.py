"""Read the time at which a submission was handed in, as nbgrader writes it."""

from __future__ import annotations

import datetime
import re

from dateutil.parser import parse
from dateutil.tz import gettz

_NAMED_ZONE = re.compile(r"(\S+ \S+) ([A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*)")


def in_utc(text: str, notes: list[str]) -> str | None:
    """Return the time in timestamp.txt as ISO text in UTC, or None; `notes` tell what was odd."""
    try:
        time = _parsed(text.strip(), notes)
        utc = datetime.UTC
        return (time.replace(tzinfo=utc) if time.tzinfo is None else time.astimezone(utc)).isoformat()
    except Exception:  # dateutil raises nearly anything for odd text
        notes.append("timestamp.txt does not hold a time; the submission counts as in time.")
        return None


def _parsed(text: str, notes: list[str]) -> datetime.datetime:
    """Read a named zone as nbgrader does; it takes +0100 for a hundred seconds, so the rest is dateutil's.

    A zone's name is looked up among files, so only what looks like one is.
    """
    named = _NAMED_ZONE.fullmatch(text)
    if named is None:
        return parse(text)
    from nbgrader.utils import parse_utc  # imported here: it takes a second, and few need it

    if gettz(named[2]) is None:
        notes.append(
            f"timestamp.txt names the time zone {named[2][:40]}, which is not known here; UTC was assumed."
        )
    time = parse_utc(text)
    assert isinstance(time, datetime.datetime)
    return time
