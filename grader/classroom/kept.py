"""What was graded is kept, so that a mark can be recomputed after a learner has handed in something else.

One file for each notebook, named by the hash that its record holds: `records/graded/HASH.gz`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from typing import Any

from grader.errors import UserMistake

_FAST = 6  # of gzip's levels: a notebook takes a few milliseconds and shrinks to a fifth


class NotKept(UserMistake):
    """What a mark was given for is not there any more."""


def keep(root: Path, digest: str, data: bytes | None) -> str | None:
    """Keep the notebook that is graded under the submission's hash; return the hash of what was kept.

    Returns None when there is no notebook. The two hashes differ where outputs were cut before it was read.
    Raises UserMistake when it cannot be written.
    """
    if data is None:
        return None
    path = _path(root, digest)
    if not path.is_file():
        try:
            _write(path, gzip.compress(data, _FAST, mtime=0))
        except OSError as error:
            raise UserMistake(f"What is graded cannot be kept in {path.parent} ({error.strerror}).") from None
    return hashlib.sha256(data).hexdigest()


def kept(root: Path, record: dict[str, Any]) -> bytes | None:
    """Return the notebook that a record's mark was given for; None when there was none to grade.

    Raises NotKept when it is gone, damaged, or from before notebooks were kept.
    """
    student = record["student"]
    if "kept" not in record:
        raise NotKept(f"What {student!r} was graded for was not kept: an older version gave that mark.")
    if record["kept"] is None:
        return None
    path = _path(root, record["submission"])
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as problem:
        raise NotKept(f"What {student!r} was graded for cannot be read from {path} ({problem}).") from None
    if hashlib.sha256(data).hexdigest() != record["kept"]:
        raise NotKept(f"{path} is not what {student!r} was graded for: its hash is another one.")
    return data


def _path(root: Path, digest: str) -> Path:
    return root / "records" / "graded" / f"{digest}.gz"


def _write(path: Path, data: bytes) -> None:
    """Write beside and move, so that a crash leaves no half of a file under a whole one's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(data)
    os.replace(beside, path)
