"""Run a command as a user without rights, even where everything is installed below root's own home."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.patience import HANG

NOBODY = 65534


@contextlib.contextmanager
def open_scratch() -> Iterator[Path]:
    """A folder that others can reach; pytest's own lie in one that is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="nobody-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_nobody(command: list[str], scratch: Path, seconds: float = HANG) -> subprocess.CompletedProcess:
    """Run `command` as user 65534 with `scratch` as its home and working copy of nothing else.

    A private mount namespace opens the way to the Python installation (it may lie below /root, which others
    may not enter); nothing outside the namespace changes. Needs root.
    """
    os.chown(scratch, NOBODY, NOBODY)
    repository = Path(__file__).resolve().parents[1]
    script = ["set -e", *_opened([Path(sys.base_prefix), Path(sys.prefix), repository], scratch)]
    environment = ["env", "-i", f"HOME={scratch}", f"TMPDIR={scratch}", "PATH=/usr/bin:/bin", "LANG=C.UTF-8",
                   "OMP_NUM_THREADS=1", f"PYTHONPATH={repository}"]  # fmt: skip
    user = [
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
    ]
    script.append(shlex.join(["exec", *user, *environment, *command]))
    return subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", "\n".join(script)],
        capture_output=True, text=True, timeout=seconds, cwd=repository,
    )  # fmt: skip


def _opened(paths: list[Path], scratch: Path) -> list[str]:
    """Shell lines that make `paths` reachable where a folder above one is closed to others.

    Each path is bound aside, then the closed folders are covered by empty open ones, then all comes back.
    """
    behind = {path: [p for p in path.parents if not p.stat().st_mode & 0o001] for path in paths}
    hidden = {path: closed[-1] for path, closed in behind.items() if closed}
    aside, cover, back = [], [], []
    for number, path in enumerate(hidden):
        place = scratch / f".aside{number}"
        place.mkdir(exist_ok=True)
        aside.append(["mount", "--bind", str(path), str(place)])
        back += [["mkdir", "-p", str(path)], ["mount", "--bind", str(place), str(path)]]
    for top in dict.fromkeys(hidden.values()):
        cover.append(["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(top)])
    return [shlex.join(line) for line in [*aside, *cover, *back]]
