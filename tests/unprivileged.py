"""Run a command as a user without rights, even where everything is installed below root's own home."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

NOBODY = 65534


def as_nobody(command: list[str], scratch: Path, seconds: float = 300.0) -> subprocess.CompletedProcess:
    """Run `command` as user 65534 with `scratch` as its home and working copy of nothing else.

    A private mount namespace opens the way to the Python installation (it may lie below /root, which others
    may not enter); nothing outside the namespace changes. Needs root.
    """
    os.chown(scratch, NOBODY, NOBODY)
    base, repository = Path(sys.base_prefix), Path(__file__).resolve().parents[1]
    script = ["set -e", *_opened(base, scratch), *_opened(repository, scratch)]
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


def _opened(path: Path, scratch: Path) -> list[str]:
    """Shell lines that make `path` reachable when a folder above it is closed to others."""
    closed = [p for p in path.parents if not p.stat().st_mode & 0o001]
    if not closed:
        return []
    top, aside = closed[-1], scratch / f".aside{len(path.parts)}"
    aside.mkdir(exist_ok=True)
    lines = [
        ["mount", "--bind", str(path), str(aside)],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(top)],
    ]
    lines += [["mkdir", "-p", str(path)], ["mount", "--bind", str(aside), str(path)]]
    return [shlex.join(line) for line in lines]
