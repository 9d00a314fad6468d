"""The data files of the learner's package: recorded answer keys, the index of TODOs, review questions."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from grader.authoring.sources import fingerprint
from grader.errors import UserMistake
from grader.exercises import by_id, get, of_chapter
from grader.exercises.model import Exercise
from grader.judging.keys import BadExercise, draw_key
from transformer_lab.checking.stored.questions import FILE as QUESTIONS
from transformer_lab.checking.stored.recorded import INDEX, SENTENCES, record
from transformer_lab.checking.stored.wire import unpack

RECORDED_SEED = 0
DATA = Path("course/transformer_lab/checking/stored/data")
# Recorded numbers may differ in their last bits from one processor to another; more is a real change.
SAME = 1e-4
MADE_FROM = "made_from.json"  # by exercise: hashes of its sources and of its key
FEW = 8  # fewer exercises than this are done sooner than other processes have imported torch


class BadQuestion(UserMistake, ValueError):
    """A questions.toml is not well formed; the text names the file and the question."""


def data_files(root: Path, chapters: Iterable[str] | None = None) -> dict[Path, bytes]:
    """Return {path: content} of every data file; with `chapters`, of these chapters' keys only.

    A key that is there and whose sources have not changed since is not recorded anew.
    """
    exercises = by_id().values() if chapters is None else [e for name in chapters for e in of_chapter(name)]
    known = _made_from(root)
    wanted = [e.id for e in exercises if not _up_to_date(root, e, known)]
    files = {root / DATA / f"{name}.key": data for name, data in _all_recorded(wanted)}
    known |= {name: _mark(by_id()[name], files[root / DATA / f"{name}.key"]) for name in wanted}
    known = {name: known[name] for name in by_id() if name in known}
    todos = {todo: exercise.id for exercise in by_id().values() for todo in exercise.todos}
    files[root / DATA / MADE_FROM] = _json(known)
    files[root / DATA / INDEX] = _json(todos)
    files[root / DATA / SENTENCES] = _json(all_sentences())
    files[root / DATA / QUESTIONS] = _json(all_questions(root))
    return files


def _made_from(root: Path) -> dict[str, dict[str, str]]:
    path = root / DATA / MADE_FROM
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _mark(exercise: Exercise, data: bytes) -> dict[str, str]:
    """Return what an exercise's key was made from, and a hash of the key, which nobody edits by hand."""
    sources = fingerprint([exercise.reference.__module__, exercise.answer.__module__, draw_key.__module__])
    return {"sources": sources, "key": hashlib.sha256(data).hexdigest()[:16]}


def _up_to_date(root: Path, exercise: Exercise, known: dict[str, dict[str, str]]) -> bool:
    path = root / DATA / f"{exercise.id}.key"
    return path.is_file() and known.get(exercise.id) == _mark(exercise, path.read_bytes())


def _all_recorded(ids: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (id, data file) of each exercise, computed on all cores: mistakes by the hundred take a while."""
    if len(ids) < FEW:
        yield from ((name, recorded(get(name))) for name in ids)
        return
    # Started afresh, not forked: a fork of a process that holds torch's threads may hang.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from zip(ids, pool.map(_recorded_by_id, ids), strict=True)


def _recorded_by_id(exercise: str) -> bytes:
    torch.set_num_threads(1)
    return recorded(get(exercise))


def recorded(exercise: Exercise) -> bytes:
    """Return an exercise's data file. Raises BadExercise or BadEdit when the exercise is not whole."""
    return record(draw_key(exercise, RECORDED_SEED))


def all_sentences() -> dict[str, Any]:
    """Return {exercise: what a learner reads of it}. Raises BadExercise when a TODO has no hints."""
    return {exercise.id: sentences_of(exercise) for exercise in by_id().values()}


def sentences_of(exercise: Exercise) -> dict[str, Any]:
    """Return what a learner reads of one exercise. Raises BadExercise when a TODO has no hints."""
    for todo in exercise.todos:
        if todo not in exercise.hints:
            raise BadExercise(f"{exercise.id}: TODO {todo} has no hints")
    return {
        "rows": {row.name: row.says for row in exercise.rows},
        "mistakes": {mistake.name: mistake.says for mistake in exercise.mistakes},
        "spoken": dict(exercise.spoken),
        "forbidden": dict(exercise.forbidden),
        "hints": {todo: list(exercise.hints[todo]) for todo in exercise.todos},
    }


def remove_stale(root: Path) -> None:
    """Delete recorded keys of exercises that are no more."""
    for path in _leftover(root):
        path.unlink()


def _leftover(root: Path) -> list[Path]:
    return [path for path in (root / DATA).glob("*.key") if path.stem not in by_id()]


def stale_files(root: Path) -> list[Path]:
    """Return the data files that differ from what would be built, beyond rounding, and leftovers.

    Keys whose sources and content are those of the last build are believed; the self-test records them anew.
    """
    fresh = data_files(root)
    changed = [path for path, data in fresh.items() if not path.is_file() or not _alike(path, data)]
    return changed + _leftover(root)


def is_recorded(exercise: Exercise, data: bytes, root: Path) -> bool:
    """Say whether `data` is, but for rounding, the key that is stored for an exercise."""
    path = root / DATA / f"{exercise.id}.key"
    return path.is_file() and _alike(path, data)


def _alike(path: Path, data: bytes) -> bool:
    stored = path.read_bytes()
    return stored == data or (path.suffix == ".key" and _same(unpack(stored), unpack(data)))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and _close(a.double(), b.double())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=SAME, abs_tol=SAME) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Sums of large numbers may end in small ones, so the largest number sets the scale."""
    largest = a.nan_to_num(posinf=0, neginf=0).abs().max().item() if a.numel() else 0.0
    return torch.allclose(a, b, rtol=SAME, atol=SAME * max(1.0, largest), equal_nan=True)


def _json(tree: Any) -> bytes:
    return (json.dumps(tree, ensure_ascii=False, indent=1) + "\n").encode()


def all_questions(root: Path) -> dict[str, Any]:
    """Return every chapter's review questions by name. Raises BadQuestion."""
    questions: dict[str, Any] = {}
    for path in sorted((root / "solutions").glob("*/questions.toml")):
        try:
            parsed = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise BadQuestion(f"{path}: {error}") from error
        for name, question in parsed.items():
            _check_question(path, name, question)
            if name in questions:
                raise BadQuestion(f"{path}: question {name!r} has the name of a question in another chapter")
            questions[name] = question
    return questions


def _check_question(path: Path, name: str, question: Any) -> None:
    """Raise BadQuestion unless the question has a text, choices that all say something, and one right."""
    choices = question.get("choices") if isinstance(question, dict) else None
    if not isinstance(choices, dict) or not question.get("text") or len(choices) < 2:
        raise BadQuestion(f"{path}: question {name!r} needs a text and at least two choices")
    for letter, choice in choices.items():
        if not isinstance(choice, dict) or set(choice) != {"text", "right", "says"}:
            raise BadQuestion(f"{path}: choice {letter!r} of {name!r} needs text, right and says")
        if not isinstance(choice["right"], bool):
            raise BadQuestion(
                f"{path}: choice {letter!r} of {name!r}: right is true or false, without quotes"
            )
        if not (len(letter) == 1 and letter.islower()):
            raise BadQuestion(f"{path}: choice {letter!r} of {name!r}: a choice is named by one small letter")
    if sum(choice["right"] for choice in choices.values()) != 1:
        raise BadQuestion(f"{path}: question {name!r} needs exactly one right choice")
