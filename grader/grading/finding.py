"""Find the notebook among what a student handed in, by what it holds and not by its name alone.

Names are hostile here and so are zip files: no link is followed, nothing is unpacked to disk, and what opens
files runs in a limited process (`limited.call`).
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from nbformat import NotebookNode

from grader.grading.align import Plan, plan
from grader.grading.reading import FILE_LIMIT, PARSE_LIMIT, without_bulk

PLAIN_LIMIT = 8 << 20  # bytes of a file that is kept as it was handed in; a larger one loses its outputs
_ENTRIES = 5000  # of one folder
_DEPTH = 4  # folders within folders
_ZIP_MEMBERS = 1000
_LOOKED_INTO = 20  # notebooks
_SHOWN = 5
_ENDINGS = (".ipynb", ".ipynb.txt", ".ipynb.json")
_COPY_SUFFIX = re.compile(r"[ _-]*(\(\d+\)|copy\s*\d*|copy\(\d+\)|final|v\d+)$", re.IGNORECASE)
_OURS = {"timestamp.txt", "submission_secret.txt", ".DS_Store"}  # files that a platform puts there
_ASIDE = {"__MACOSX", ".ipynb_checkpoints", "__pycache__", "feedback", ".git"}  # folders nobody hands in

Path = tuple[str, ...]


class Unreadable(Exception):
    """A file or a member of a zip file cannot be read; the text says why, in words for a note."""


@dataclass
class Candidate:
    """A file that may be the notebook.

    where: its path; archive: the zip file it lies in; digest: the hash of the file, of which `data` may be a
    part; plan: which answers it holds, where that is known.
    """

    where: Path
    read: Callable[[], bytes]
    archive: str = ""
    digest: str = ""
    data: bytes | None = None
    plan: Plan | None = None

    @property
    def shown(self) -> str:
        return shown("/".join(self.where))

    @property
    def aside(self) -> bool:
        """Say whether it is a leftover that programs make beside the real file."""
        name = self.where[-1]
        return bool(_ASIDE & set(self.where[:-1])) or name.startswith("._") or "-checkpoint." in name

    def rank(self, chapter: str) -> tuple:
        """What is highest is graded: first what holds answers and is no leftover, then by name."""
        exact = self.where[-1] == f"{chapter}.ipynb"
        near = _plain(self.where[-1]) == chapter.lower()
        found, worked = (len(self.plan.answers), self.plan.worked_on) if self.plan else (0, 0)
        use = (found > 0 and not self.aside, found > 0, not self.aside, exact and worked > 0, worked, found)
        return (*use, exact, near, not self.archive, -len(self.where))


def is_notebook(name: str) -> bool:
    return name.lower().endswith(_ENDINGS)


def shown(name: str) -> str:
    """A file name as it may stand in a report."""
    return repr(name)[1:-1][:80]


def listed(names: list[str]) -> str:
    return f"{', '.join(map(shown, names[:_SHOWN]))}{', …' if names[_SHOWN:] else ''}"


def _plain(name: str) -> str:
    stem = name.lower()
    for ending in (*_ENDINGS[1:], _ENDINGS[0]):
        stem = stem.removesuffix(ending)
    while _COPY_SUFFIX.search(stem):
        stem = _COPY_SUFFIX.sub("", stem)
    return stem.strip()


# ---- what lies in the folder -------------------------------------------------------------------------------


def files_in(folder: int, notes: list[str]) -> list[Path]:
    """Return the paths of all files below an open folder, sorted; links and such are files here."""
    found: list[Path] = []
    _list(folder, (), found, notes)
    return sorted(found, key=lambda path: (len(path), path))


def _list(folder: int, above: Path, found: list[Path], notes: list[str]) -> None:
    with os.scandir(folder) as entries:
        some = list(islice(entries, _ENTRIES + 1))
    if len(some) > _ENTRIES:
        notes.append(f"There are more than {_ENTRIES} files; the rest was not looked at.")
    for entry in some[:_ENTRIES]:
        path = (*above, entry.name)
        if not entry.is_dir(follow_symlinks=False):
            found.append(path)
            continue
        if is_notebook(entry.name) or entry.name.endswith((".zip", "timestamp.txt")):
            notes.append(f"{shown(entry.name)} is a folder and no file.")
        if len(path) > _DEPTH or len(found) > _ENTRIES:
            notes.append(f"The folder {shown('/'.join(path))} was not looked into.")
            continue
        try:
            inner = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            notes.append(f"The folder {shown('/'.join(path))} cannot be read ({error.strerror}).")
            continue
        try:
            _list(inner, path, found, notes)
        finally:
            os.close(inner)


def others(files: list[Path]) -> list[str]:
    """Return the files that are neither notebooks nor a platform's own."""
    kept = [p for p in files if not is_notebook(p[-1]) and p[-1] not in _OURS and not _ASIDE & set(p[:-1])]
    return ["/".join(path) for path in kept]


def read_file(folder: int, path: Path) -> bytes:
    """Return at most FILE_LIMIT + 1 bytes of a file below an open folder. Raises Unreadable."""
    try:
        descriptor = _open(folder, path)
    except OSError as error:
        raise Unreadable(f"is a link or cannot be read; it was not followed ({error.strerror})") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable("is no ordinary file; it was not read")
        try:
            return file.read(FILE_LIMIT + 1)
        except OSError as error:
            raise Unreadable(f"cannot be read ({error.strerror})") from error


def size_of(folder: int, path: Path) -> int:
    """Return a file's size in bytes; 0 when that cannot be told."""
    try:
        return os.stat(path[-1], dir_fd=folder, follow_symlinks=False).st_size if len(path) == 1 else 0
    except OSError:
        return 0


def _open(folder: int, path: Path) -> int:
    """Open a file step by step, so that no part of its path is followed when it is a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    opened: list[int] = []
    try:
        for name in path[:-1]:
            opened.append(os.open(name, flags | os.O_DIRECTORY, dir_fd=opened[-1] if opened else folder))
        # NONBLOCK: opening a named pipe must not wait for its other end
        return os.open(path[-1], flags | os.O_NONBLOCK, dir_fd=opened[-1] if opened else folder)
    finally:
        for descriptor in opened:
            os.close(descriptor)


# ---- which of them is graded -------------------------------------------------------------------------------


def choose(
    folder: int, files: list[Path], chapter: str, release: NotebookNode | None, notes: list[str]
) -> Candidate | None:
    """Return the notebook to grade, with its data; None when there is none.

    release: tells by content whose notebook it is; by names alone when None.
    """
    loose = [Candidate(p, lambda p=p: read_file(folder, p)) for p in files if is_notebook(p[-1])]
    best = _best(loose, None, chapter, release, notes)
    packed: list[Candidate] = []
    if best is None or (best.plan and not best.plan.answers):
        archives = [path for path in files if path[-1].lower().endswith(".zip")]
        packed = [one for path in archives for one in _members(folder, path, notes)]
        best = _best(packed, best, chapter, release, notes)
    if best is not None:
        _tell(best, loose + packed, chapter, notes)
    return best


def _best(
    candidates: list[Candidate],
    best: Candidate | None,
    chapter: str,
    release: NotebookNode | None,
    notes: list[str],
) -> Candidate | None:
    """Look into the likeliest candidates, and keep the data of the best one only."""
    candidates.sort(key=lambda one: one.rank(chapter), reverse=True)
    for one in candidates[:_LOOKED_INTO]:
        try:
            data = one.read()
        except Unreadable as error:
            notes.append(f"{one.shown} {error}.")
            continue
        one.digest = hashlib.sha256(data).hexdigest()
        one.data = data if len(data) <= PLAIN_LIMIT else without_bulk(data)[: PARSE_LIMIT + 1]
        one.plan = plan(one.data, release) if release is not None else None
        if best is None or one.rank(chapter) > best.rank(chapter):
            one, best = best, one
        if one is not None:
            one.data = None
    return best


def _tell(chosen: Candidate, candidates: list[Candidate], chapter: str, notes: list[str]) -> None:
    """Say what is odd about the choice."""
    if chosen.where[-1] != f"{chapter}.ipynb":
        notes.append(f"The notebook is named {chosen.shown}, not {chapter}.ipynb.")
    rest = [one for one in candidates if one is not chosen and not one.aside]
    if rest:
        names = listed(["/".join(one.where) for one in rest])
        notes.append(f"There are {len(rest) + 1} notebooks; {chosen.shown} was graded, not {names}.")
    if chosen.aside:
        notes.append(f"{chosen.shown} is a copy that a program made; no other notebook has an answer.")
    more = [one for one in rest if chosen.plan and one.plan and one.plan.worked_on > chosen.plan.worked_on]
    if more:
        notes.append(f"{more[0].shown} has more answers filled in than {chosen.shown}.")
    if chosen.archive:
        notes.append(f"The notebook was taken out of {shown(chosen.archive)}.")


def _members(folder: int, path: Path, notes: list[str]) -> Iterator[Candidate]:
    """Yield the notebooks in a zip file. A member's path is looked at, never written to."""
    name = "/".join(path)
    try:
        archive = zipfile.ZipFile(io.BytesIO(read_file(folder, path)))
        members = archive.infolist()
    except Unreadable as error:
        notes.append(f"{shown(name)} {error}.")
        return
    except Exception as error:  # zipfile raises whatever comes to it for bytes that are none
        notes.append(f"{shown(name)} could not be read as a zip file ({type(error).__name__}).")
        return
    if len(members) > _ZIP_MEMBERS:
        notes.append(f"{shown(name)} holds {len(members)} files; only the first {_ZIP_MEMBERS} count.")
    notebooks = [member for member in members[:_ZIP_MEMBERS] if is_notebook(member.filename)]
    odd = [member.filename for member in notebooks if _leaves(member.filename)]
    if odd:
        notes.append(f"{shown(name)} holds a path that leaves its folder ({shown(odd[0])}); it was not used.")
    for member in notebooks:
        if not _leaves(member.filename):
            where = tuple(re.split(r"[/\\]", member.filename))
            yield Candidate(where, lambda m=member: _unpacked(archive, m), name)


def _leaves(member: str) -> bool:
    return member.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", member)


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        with archive.open(member) as file:
            return file.read(FILE_LIMIT + 1)
    except MemoryError:
        raise
    except Exception as error:  # damaged data: whatever the decoder raises (zlib.error, LZMAError, ...)
        raise Unreadable(f"could not be read out of the zip file ({type(error).__name__})") from error
