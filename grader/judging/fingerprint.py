"""One hash over everything that decides a mark, so that a record says what it was reached by."""

from __future__ import annotations

import hashlib
from pathlib import Path

import transformer_lab

_GRADER = Path(__file__).resolve().parent.parent
_LAB = Path(transformer_lab.__file__).resolve().parent
# What runs, judges and isolates a submission. Another chapter's exercises decide nothing here.
_DECIDING = ("judging", "grading", "jail")
_DECIDING_LAB = ("checking", "parts")


def exercises_hash(chapter: str, release: bytes) -> str:
    """Return a hash of everything that decides a mark: release, exercises, judge, probes, parts, jail."""
    number = chapter.split("_")[0]
    exercises = _GRADER / "exercises"
    files = [*exercises.glob("*.py"), *exercises.glob(f"ch{number}/*.py"), *exercises.glob(f"ch{number}.py")]
    files = [path for path in files if not (path.name.startswith("ch") and path.stem != f"ch{number}")]
    files += [path for name in _DECIDING for path in (_GRADER / name).rglob("*.py")]
    files += [path for name in _DECIDING_LAB for path in (_LAB / name).rglob("*.py")]
    digest = hashlib.sha256(release)
    for path in sorted(files):
        base = _LAB if path.is_relative_to(_LAB) else _GRADER
        digest.update(path.relative_to(base).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
