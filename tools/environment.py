"""Makes or updates the virtual environment in .venv. Needs nothing but Python 3.11 and runs everywhere.

``make env`` runs this; without make: ``python tools/environment.py``.

- .venv is missing, or its Python no longer runs, or its first build never finished: it is built from nothing.
- The pins or the dependencies changed since: it is brought up to date in place, which takes seconds.
- Neither: it is left alone.

``--torch`` chooses the build of PyTorch on Linux: ``cpu`` (default), or for example ``cu128`` for an
Nvidia GPU. The choice is remembered.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
TORCH_WHEELS = "https://download.pytorch.org/whl/"


class Trouble(Exception):
    """Something that keeps the environment from being made; the message says what to do."""


def python_in(venv: Path) -> Path:
    """The environment's own interpreter."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint(root: Path, torch: str) -> str:
    """Hash of all that decides what is installed: pins, dependencies and the build of torch.

    Settings of ruff and pytest stand in pyproject.toml, too, and must not cause an update.
    """
    import tomllib  # here, so that an older Python gets this file's message and not an ImportError

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for tool in ("ruff", "pytest"):
        project.get("tool", {}).pop(tool, None)
    decisive = [(root / "constraints.txt").read_text(encoding="utf-8"), project, torch]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def read_stamp(venv: Path) -> dict[str, str]:
    """What the last finished build noted: "fingerprint" and "torch"; empty when there was none."""
    try:
        return json.loads((venv / "stamp.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent or cut short: either way the build is not known to be finished
        return {}


def runs(venv: Path) -> bool:
    """Whether the environment's Python starts and has pip."""
    command = [str(python_in(venv)), "-c", f"import pip, sys; sys.exit(sys.version_info < {OLDEST})"]
    try:
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except OSError:
        return False


def reason_to_build(venv: Path) -> str | None:
    """Why the environment must be built from nothing, or None."""
    if not venv.exists():
        return "there is none yet"
    if (venv / "unfinished").exists():
        return "its first build did not finish"
    if not runs(venv):
        return "its Python no longer runs"
    return None


def torch_command(root: Path, torch: str) -> list[str]:
    """Arguments for pip that install the pinned torch in the wanted build; empty where only one exists.

    Done before the rest, so that the resolution that follows finds torch in place and never
    downloads the registry's default for Linux, which brings several GB of CUDA libraries.
    """
    if platform.system() != "Linux":
        return []
    pins = (root / "constraints.txt").read_text(encoding="utf-8")
    version = re.search(r"^torch==(\S+)$", pins, re.MULTILINE).group(1)
    index = f"--extra-index-url={TORCH_WHEELS}{torch}"
    return ["install", "--no-deps", "--retries=1", index, f"torch=={version}+{torch}"]


def make(root: Path, torch: str | None = None) -> str:
    """Bring `root`/.venv to what is pinned. Returns one line that says what was done. Raises `Trouble`."""
    venv, start = root / ".venv", time.monotonic()
    stamp = read_stamp(venv)
    torch = torch or stamp.get("torch", "cpu")
    wanted = fingerprint(root, torch)
    reason = reason_to_build(venv)
    if reason is None and stamp.get("fingerprint") == wanted:
        return "environment: .venv is up to date"
    if reason:
        say(f"building .venv from nothing, since {reason}. This takes a few minutes.")
        create(venv)
    else:
        say("updating .venv: the pins or the dependencies have changed since it was built")
    (venv / "stamp.json").unlink(missing_ok=True)
    install(root, venv, torch)
    (venv / "stamp.json").write_text(json.dumps({"fingerprint": wanted, "torch": torch}), encoding="utf-8")
    (venv / "unfinished").unlink(missing_ok=True)
    return f"environment: .venv is ready ({time.monotonic() - start:.0f} s)"


def say(line: str) -> None:
    """Print at once, so that the line stands before what pip prints."""
    print(f"environment: {line}", flush=True)


def create(venv: Path) -> None:
    """An empty environment, marked as unfinished."""
    if venv.exists():
        shutil.rmtree(venv)
    venv.mkdir()
    (venv / "unfinished").touch()
    call([sys.executable, "-m", "venv", str(venv)], "on Debian and Ubuntu: apt-get install python3-venv")


def install(root: Path, venv: Path, torch: str) -> None:
    """Everything that is pinned, with pip's own progress; then a check that the versions fit together."""
    pip = [str(python_in(venv)), "-m", "pip", "--disable-pip-version-check"]
    first = torch_command(root, torch)
    if first:
        say(f"PyTorch, the {torch} build (about 200 MB for cpu)")
        call([*pip, *first], "is the network there, and does PyTorch offer this build?")
    say("the course, JupyterLab and the tools")
    rest = ["install", "-c", str(root / "constraints.txt"), "-e", f"{root}[dev]"]
    call([*pip, *rest], "is the network there? Running this again goes on from here")
    call([*pip, "check"], "the installed versions do not fit together; delete .venv and try again")


def call(command: list[str], advice: str) -> None:
    """Run a command whose output the user sees. Raises `Trouble` with `advice` when it fails."""
    code = subprocess.run(command).returncode
    if code:
        raise Trouble(f"`{' '.join(command)}` ended with {code}.\n{advice}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tools/environment.py")
    parser.add_argument(
        "--torch", help="build of PyTorch on Linux: cpu, cu128, ... (default: the last choice)"
    )
    options = parser.parse_args(arguments)
    if sys.version_info < OLDEST:
        print(f"environment: Python 3.11 or newer is needed, this is {platform.python_version()}.")
        return 1
    try:
        print(make(ROOT, options.torch))
    except Trouble as trouble:
        print(f"environment: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nenvironment: stopped; run it again to finish", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
