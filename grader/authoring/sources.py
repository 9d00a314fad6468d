"""What a module is made of: the files of this repository that it imports, however far away.

A recorded key stays as it is until one of the files behind it changes. To check that nothing is out of date
takes a second then, where to record everything again takes minutes.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import transformer_lab
from grader.layout import ROOT

_HOMES = {"grader": ROOT / "grader", "transformer_lab": Path(transformer_lab.__file__).resolve().parent}


def fingerprint(modules: Iterable[str]) -> str:
    """Return a hash of the named modules' files and of all that they import from this repository."""
    found: set[Path] = set()
    waiting = [path for module in modules for path in _files(module)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    # by name and content: where the repository lies is nothing to it
    named = sorted(
        (path.relative_to(home.parent).as_posix(), path) for path in found for home in _around(path)
    )
    digest = hashlib.sha256()
    for name, path in named:
        digest.update(name.encode() + _content(path))
    return digest.hexdigest()[:16]


def _around(path: Path) -> list[Path]:
    return [home for home in _HOMES.values() if path.is_relative_to(home)]


@cache
def _content(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@cache
def _imported(path: Path) -> list[Path]:
    """Return the files of this repository that a file imports when it is imported itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [file for statement in tree.body for name in _names(statement) for file in _files(name)]


def _names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom) and statement.module:
        yield statement.module
        yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def _files(module: str) -> Iterator[Path]:
    """Yield the files of a module and of the packages around it; none for what is not of this repository."""
    top, *rest = module.split(".")
    place = _HOMES.get(top)
    if place is None:
        return
    for step in [*rest, ""]:
        if (place / "__init__.py").is_file():
            yield place / "__init__.py"
        if not step:
            return
        if (place / f"{step}.py").is_file():
            yield place / f"{step}.py"
        place = place / step
