"""Checkpoints that an interruption cannot spoil."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch


def save_checkpoint(path: str | os.PathLike, state: dict) -> None:
    """Write `state` (tensors, numbers, strings, lists and dicts of them) to `path`, or leave `path` alone.

    The file is written beside its place under another name and renamed when it is complete. A rename within
    one folder happens as a whole: at every moment `path` holds one complete checkpoint, old or new.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too: take the unfinished file away, then let it go on
        os.unlink(temporary)
        raise


def load_checkpoint(path: str | os.PathLike, device: torch.device | str = "cpu") -> dict:
    """Read a checkpoint; only data is loaded, never code."""
    return torch.load(path, map_location=device, weights_only=True)
