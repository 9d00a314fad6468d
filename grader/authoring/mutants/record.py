"""Which exercises' mutants were judged, and by what: a file beside each chapter's exercises.

    grader/exercises/ch03/mutants.json    {"3.5": {"decided by": "0f3a…", "mutants": 47, "equivalent": 0}, …}

An exercise is listed when all its mutants were explained, with a hash of everything that decided it.
`make test` compares hashes and judges nothing: it takes seconds, gives the same verdict everywhere, and needs
no git history, which a shallow clone has not. `make mutants` judges and records, as `make build` builds what
`build --check` compares. The record is one file a chapter, so that work on two chapters does not collide.
Comments and docstrings do not count: editing prose makes no record stale.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

import transformer_lab
from grader.authoring.lesson import BEGIN, END, Cell, read_lesson
from grader.authoring.mutants.judged import Judged
from grader.errors import UserMistake
from grader.exercises.model import Exercise

FILE = "mutants.json"
_GRADER = Path(__file__).resolve().parents[2]
_LAB = Path(transformer_lab.__file__).resolve().parent
_NAMED = re.compile(r"\btransformer_lab\.(\w+)")  # parts of the course that a lesson or an exercise imports
DECIDED_BY = "decided by"


def record_file(chapter: str, root: Path) -> Path:
    return root / "grader" / "exercises" / f"ch{chapter.split('_')[0]}" / FILE


def recorded(chapter: str, root: Path, revision: str | None = None) -> dict[str, dict]:
    """Return {exercise: what is recorded of it}, as of a git revision when one is given.

    Raises UserMistake when git does not know the revision.
    """
    path = record_file(chapter, root)
    if revision is None:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if _git(root, "cat-file", "-e", f"{revision}^{{commit}}") is None:
        raise UserMistake(f"git knows no revision {revision!r}.")
    return json.loads(_git(root, "show", f"{revision}:{path.relative_to(root).as_posix()}") or "{}")


def _git(root: Path, *words: str) -> str | None:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def write(chapter: str, root: Path, results: list[Judged], known: set[str]) -> None:
    """Record what was judged: an exercise that is explained, and no other; `known` are those there are."""
    path = record_file(chapter, root)
    entries = {name: entry for name, entry in recorded(chapter, root).items() if name in known}
    cells = read_lesson(lesson_of(chapter, root))
    for result in results:
        entries.pop(result.exercise.id, None)
        if result.explained:
            entries[result.exercise.id] = {
                DECIDED_BY: deciding(result.exercise, cells),
                "mutants": len(result.outcomes),
                "equivalent": len(result.equivalent),
            }
    lines = [f"  {json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries, key=_number)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _number(exercise: str) -> tuple[int, ...]:
    return tuple(map(int, exercise.split(".")))


def lesson_of(chapter: str, root: Path) -> Path:
    return root / "solutions" / chapter / f"{chapter}.py"


def is_recorded(exercise: Exercise, cells: list[Cell], entries: dict[str, dict]) -> bool:
    """Say whether nothing that decides this exercise's mutants has changed since they were judged."""
    return entries.get(exercise.id, {}).get(DECIDED_BY) == deciding(exercise, cells)


# ---- what decides -----------------------------------------------------------------------------------


def deciding(exercise: Exercise, cells: list[Cell]) -> str:
    """Return a hash of the code that decides which mutants of an exercise there are and survive.

    That is its cell and the cells before it, its own file and what its chapter shares, the parts of the
    course that these name, the checks, the drawing of keys, and the mutants themselves.
    """
    texts = [*_until(exercise, cells), *(code_only(path) for path in _own_files(exercise))]
    named = {name for text in texts for name in _NAMED.findall(text)} | {"checking"}
    digest = hashlib.sha256()
    for text in [*texts, *(_course_part(name) for name in sorted(named)), _judging()]:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _until(exercise: Exercise, cells: list[Cell]) -> list[str]:
    found = []
    for cell in cells:
        if cell.todo or cell.metadata.get("setup"):
            found.append(_code(cell.source))
        if cell.todo == exercise.id:
            return found
    return found


def _own_files(exercise: Exercise) -> list[Path]:
    modules = [
        m for m in list(sys.modules.values()) if getattr(m, "__dict__", {}).get("EXERCISE") is exercise
    ]
    own = [Path(module.__file__) for module in modules]
    return sorted({*own, *(path for file in own for path in file.parent.glob("_*.py"))})


@cache
def _course_part(name: str) -> str:
    folder = _LAB / name
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [_LAB / f"{name}.py"]
    return "\n".join(code_only(path) for path in files if path.exists())


@cache
def _judging() -> str:
    folders = (_GRADER / "judging", _GRADER / "exercises", Path(__file__).parent)
    return "\n".join(code_only(path) for folder in folders for path in sorted(folder.glob("*.py")))


def code_only(path: Path) -> str:
    return _code(path.read_text(encoding="utf-8"))


@cache
def _code(text: str) -> str:
    """Return code without comments (but for solution markers), docstrings and empty lines.

    By positions in the text, not by ast.unparse, which writes f-strings differently from Python to Python.
    """
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.string not in (BEGIN, END):
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())
