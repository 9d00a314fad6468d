"""Opens the course in JupyterLab: ``python -m transformer_lab.lab``.

The learner works on a copy, ``work/en/NN_topic/NN_topic.ipynb``, made from ``course/en`` on the first start.
What is there is never written to again: a file is only ever *added* to ``work/``.

- A chapter that is missing from the copy is added. So a chapter is begun anew by deleting or renaming
  one's own.
- A chapter whose release has changed since is put beside the learner's, once per release, as
  ``NN_topic (new release).ipynb``, and the start says so.
- This holds for a copy that was never changed, too. It may be open in a browser at this moment, and a rule
  without exceptions ("nothing of yours is touched") is one that can be relied on without reading it twice.
  The start says which copies are unchanged, so taking the newer one is a matter of deleting the older.

``work/en/.releases.json`` remembers, for every file, the release it was made from and the last one offered.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from transformer_lab.language import _

PACKAGE = Path(__file__).resolve().parent
RECORD = ".releases.json"
FIRST_CHAPTER = "00_start"


class CourseMissing(Exception):
    """The released notebooks are not where they should be; the message says what to do."""


# ---------------------------------------------------------------- the learner's copy


def find_root(lang: str, start: Path | None = None) -> Path:
    """The folder that holds ``course/LANG``: `start` (default: the current one) or this package's checkout.

    Raises `CourseMissing` when neither has it.
    """
    start = Path.cwd() if start is None else start
    places = [start, PACKAGE.parent.parent]
    for place in places:
        if any(released_files(place / "course" / lang)):
            return place.resolve()
    raise CourseMissing(
        _(
            "No chapters found in {folder}.\nStart this from the folder you cloned the course "
            "into (the one with README.md and course/).\nIf that is where you are, the "
            "notebooks have not been built: run `python -m grader build`."
        ).format(folder=start / "course" / lang)
    )


def released_files(release: Path) -> Iterator[Path]:
    """Files of every chapter in `release`, as paths relative to it, in order. Hidden files are left out."""
    for path in sorted(release.glob("[0-9][0-9]_*/**/*")):
        relative = path.relative_to(release)
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in relative.parts):
            yield relative


def update_copy(release: Path, work: Path) -> list[str]:
    """Add to `work` what `release` has and it lacks; see the module's text for the rules.

    Returns one line of plain English for each thing that was done. Safe to interrupt and to repeat.
    """
    work.mkdir(parents=True, exist_ok=True)
    record, lines = _read_record(work)
    for relative in released_files(release):
        line = _update_file(release / relative, work / relative, record.setdefault(relative.as_posix(), {}))
        if line:
            lines.append(line)
            _write_record(work, record)
    _write_record(work, record)
    return lines


def _update_file(source: Path, mine: Path, entry: dict[str, str]) -> str | None:
    """Bring one file up to date. `entry`: its part of the record, changed in place. Returns what was done."""
    content = source.read_bytes()
    released = _digest(content)
    if not mine.exists():
        again = "made_from" in entry
        write_atomically(mine, content)
        entry.update(made_from=released, offered=released)
        done = _("added again: {file}") if again else _("added: {file}")
        return done.format(file=_label(mine))
    if released in (entry.get("made_from"), entry.get("offered")):
        return None
    own = _digest(mine.read_bytes())
    if own == released:  # the copy was finished, but the start was interrupted before it was recorded
        entry.update(made_from=released, offered=released)
        return None
    beside = _free_name(mine, content)
    write_atomically(beside, content)
    entry["offered"] = released
    unchanged = own == entry.get("made_from")
    advice = (
        _("yours is unchanged, so you can delete it and start again")
        if unchanged
        else _("yours is as you left it")
    )
    return _("newer release of {label}: open '{name}' beside it ({advice})").format(
        label=_label(mine), name=beside.name, advice=advice
    )


def _label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _free_name(mine: Path, content: bytes) -> Path:
    """`NAME (new release).ipynb`, or the first numbered one that is free or already holds `content`."""
    number = 1
    while True:
        suffix = "(new release)" if number == 1 else f"(new release {number})"
        path = mine.with_name(f"{mine.stem} {suffix}{mine.suffix}")
        if not path.exists() or path.read_bytes() == content:
            return path
        number += 1


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` whole or not at all, also when the machine stops half-way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp gives 0600, which would keep a shared course folder from being read
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read_record(work: Path) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The record and, if it could not be read, a line that says so."""
    path = work / RECORD
    if not path.exists():
        return {}, []
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and all(isinstance(entry, dict) for entry in record.values()):
            return record, []
        problem = _("it does not hold a record")
    except ValueError as error:
        problem = str(error)
    return {}, [
        _("{path} could not be read ({problem}) and was made anew; chapters may be offered once more").format(
            path=path, problem=problem
        )
    ]


def _write_record(work: Path, record: dict[str, dict[str, str]]) -> None:
    content = json.dumps(record, indent=1, sort_keys=True).encode() + b"\n"
    path = work / RECORD
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


# ---------------------------------------------------------------- JupyterLab


def lab_command(work: Path, browser: bool = True, port: int | None = None) -> list[str]:
    """The command that serves `work` in JupyterLab, opened at the first chapter if it is there.

    It prints the address and warnings, and none of the hundred lines of routine that would hide them.
    """
    # -P: a learner's own json.py in the folder served must not be taken for the library's
    command = [sys.executable, "-P", "-m", "jupyterlab", f"--ServerApp.root_dir={work}", "--log-level=WARN"]
    first = f"{FIRST_CHAPTER}/{FIRST_CHAPTER}.ipynb"
    if (work / first).exists():
        command.append(f"--LabApp.default_url=/lab/tree/{first}")
    if not browser:
        command.append("--no-browser")
    if port is not None:
        command.append(f"--port={port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # in a container everyone is root, and Jupyter would refuse
    return command


def lab_environment() -> dict[str, str]:
    """The environment for JupyterLab: with this course's defaults, which a learner's own settings overrule.

    The defaults keep JupyterLab from asking a newcomer about news and updates, and from the network.
    """
    paths = [str(PACKAGE / "settings"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    return os.environ | {"JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


def main(arguments: list[str] | None = None) -> int:
    """Make or complete the learner's copy of the course, then serve it in JupyterLab."""
    parser = argparse.ArgumentParser(prog="python -m transformer_lab.lab", description=main.__doc__)
    parser.add_argument("--lang", default="en", help=_("edition of the course (default: en)"))
    parser.add_argument("--no-browser", action="store_true", help=_("print the address, open no browser"))
    parser.add_argument("--port", type=int, help=_("port to serve on (default: 8888 or the next free one)"))
    parser.add_argument("--copy-only", action="store_true", help=_("make or complete the copy, then stop"))
    options = parser.parse_args(arguments)
    try:
        root = find_root(options.lang)
        work = root / "work" / options.lang
        lines = update_copy(root / "course" / options.lang, work)
    except (CourseMissing, OSError) as problem:
        print(f"transformer_lab.lab: {problem}", file=sys.stderr)
        return 1
    print(_("Your copy of the course: {work}").format(work=work))
    print("".join(f"  {line}\n" for line in lines) or _("  nothing new\n"), end="", flush=True)
    if options.copy_only:
        return 0
    print(_("Starting JupyterLab. Save your notebooks, then stop it with Ctrl-C here."), flush=True)
    return _serve(work, lab_command(work, not options.no_browser, options.port))


def _serve(work: Path, command: list[str]) -> int:
    os.chdir(work)  # away from the instructor's nbgrader_config.py, which does not fit what is served here
    if os.name == "nt":  # execve there returns to the prompt at once and leaves the server behind
        return subprocess.call(command, env=lab_environment())
    os.execve(command[0], command, lab_environment())


if __name__ == "__main__":
    sys.exit(main())
