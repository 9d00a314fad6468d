"""Run a command as a user without rights, even where everything is installed below root's own home."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class User:
    """A Unix user that exists while a test runs. `home`: a folder of its own."""

    name: str
    uid: int
    gid: int
    home: Path


@contextlib.contextmanager
def real_users(scratch: Path, *names: str) -> Iterator[list[User]]:
    """Make users of this machine, with homes in `scratch`; they are removed afterwards. Needs root."""
    made: list[User] = []
    try:
        for name in names:
            full = f"{name}{os.getpid()}"
            home = scratch / full
            subprocess.run(["useradd", "--create-home", "--home-dir", str(home), full], check=True)
            found = pwd.getpwnam(full)
            made.append(User(full, found.pw_uid, found.pw_gid, home))
        yield made
    finally:
        for user in made:
            subprocess.run(["userdel", user.name], check=False, capture_output=True)


def as_nobody(command: list[str], scratch: Path, seconds: float = HANG) -> subprocess.CompletedProcess:
    """Run `command` as user 65534 with `scratch` as its home and working copy of nothing else. Needs root."""
    os.chown(scratch, NOBODY, NOBODY)
    repository = Path(__file__).resolve().parents[1]
    return as_user(command, User("nobody", NOBODY, NOBODY, scratch), repository, {}, seconds)


def as_user(
    command: list[str],
    user: User,
    folder: Path,
    variables: dict[str, str] | None = None,
    seconds: float = HANG,
) -> subprocess.CompletedProcess:
    """Run `command` in `folder` as another user, with a bare environment and these variables. Needs root."""
    return subprocess.run(
        in_its_place(command, user, variables or {}, folder),
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=folder,
    )


def in_its_place(command: list[str], user: User, variables: dict[str, str], folder: Path) -> list[str]:
    """Return the command line that root runs to run `command` in `folder` as another user."""
    repository = Path(__file__).resolve().parents[1]
    plain = {
        "HOME": str(user.home),
        "TMPDIR": str(user.home),
        "USER": user.name,
        "LOGNAME": user.name,
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(repository),
    }
    environment = ["env", "-i", *(f"{name}={value}" for name, value in (plain | variables).items())]
    rights = [
        *("setpriv", f"--reuid={user.uid}", f"--regid={user.gid}"),
        *("--clear-groups", "--inh-caps=-all", "--no-new-privs"),
    ]
    return with_python_for_all([*rights, *environment, *command], user.home, folder)


def with_python_for_all(command: list[str], scratch: Path, folder: Path) -> list[str]:
    """Return the command line that root runs so that all users reach this Python and this repository.

    A private mount namespace opens the way (it may lie below /root, which others may not enter); nothing
    outside the namespace changes. scratch: a folder of the test's own, where what is in the way is put aside.
    """
    repository = Path(__file__).resolve().parents[1]
    script = ["set -e", *_opened([Path(sys.base_prefix), Path(sys.prefix), repository], scratch)]
    script.append(f"cd {shlex.quote(str(folder))}")  # again: it may have been covered
    script.append(shlex.join(["exec", *command]))
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", "\n".join(script)]


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
