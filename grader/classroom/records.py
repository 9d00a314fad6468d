"""The record of every mark: what was graded, by which tests and versions, with which seed, and what came out.

One file a chapter, `records/CHAPTER.jsonl` below the course root: a line for each run, then a line for each
submission. Lines are only appended, and only after the marks are in the gradebook, so the file also says
where a run stopped.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from grader.judging.fingerprint import exercises_hash


def versions() -> dict[str, str]:
    """Return the versions that a mark may depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "nbgrader", "ipython", "transformer-lab")}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


class Records:
    """The record file of one chapter."""

    def __init__(self, root: Path, chapter: str):
        self.path = root / "records" / f"{chapter}.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        """Return all complete lines; a last line cut short by a crash is left out."""
        if not self.path.is_file():
            return []
        found = []
        for line in self.path.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def last_run(self) -> dict[str, Any] | None:
        """Return the line that the latest run began with."""
        runs = [line for line in self.lines() if line.get("kind") == "run"]
        return runs[-1] if runs else None

    def latest(self, run: str | None = None) -> dict[str, dict[str, Any]]:
        """Return {student: the latest record}, of one run when it is named.

        A record of an older version does not say how the submission was isolated; its run does.
        """
        lines = self.lines()
        jailed = {line["run"]: line.get("isolated", True) for line in lines if line.get("kind") == "run"}
        marks = [line for line in lines if line.get("kind") == "mark" and run in (None, line["run"])]
        return {line["student"]: {"isolated": jailed.get(line["run"], True)} | line for line in marks}

    def append(self, line: dict[str, Any]) -> None:
        """Add a line and wait until it is on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+") as file:
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a crash cut the last line short
                    file.write(b"\n")
            file.write(json.dumps(line, sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def new_run(chapter: str, seed: int, release: bytes, isolated: bool) -> dict[str, Any]:
    """Return the line that a run begins with."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "kind": "run",
        "run": f"{now:%Y%m%dT%H%M%S%f}-{os.getpid()}",
        "chapter": chapter,
        "seed": seed,
        "exercises": exercises_hash(chapter, release),
        "versions": versions(),
        "isolated": isolated,
        "started": now.isoformat(timespec="seconds"),
    }
