"""Rebuilding the graded notebook, finding submissions, and what of a release has to run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import time
import zipfile
from pathlib import Path

import nbformat
import pytest

from grader.grading import limited
from grader.grading.align import EXTRA, align, role
from grader.grading.finding import PLAIN_LIMIT
from grader.grading.intake import read_submission, students, unusable_names
from grader.grading.liveness import live_cells
from grader.grading.moment import in_utc
from grader.grading.reading import read_cells
from tests.hostile import notebooks
from tests.hostile.kit import CHAPTER, changed, data, notebook, release, release_bytes, right_answers
from tests.patience import HANG

ONE_SECOND = limited.Allowance(cpu_seconds=1)
ours = os.getpid()


def released_part(book) -> list:
    """Everything of a rebuilt notebook that must be the release's, whatever was submitted."""
    rebuilt = [cell for cell in book.cells if not cell.metadata.get(EXTRA)]
    return [
        (c.cell_type, c.get("id"), c.metadata, None if role(c) == "answer" else c.source) for c in rebuilt
    ]


@pytest.mark.parametrize("case", notebooks.cases(), ids=lambda case: case.student)
def test_all_but_the_answers_is_the_release(case):
    for content in case.files.values():
        rebuilt = align(content, release()).notebook
        assert released_part(rebuilt) == released_part(release())
        assert rebuilt.metadata == release().metadata
        nbformat.validate(rebuilt)


def test_right_answers_are_grafted_as_they_are():
    rebuilt = align(data(notebook()), release())
    assert rebuilt.notes == []
    sources = {c.metadata.nbgrader.grade_id: c.source for c in rebuilt.notebook.cells if role(c) == "answer"}
    assert sources == {f"todo-{n.replace('.', '-')}": text for n, text in right_answers().items()}


def test_no_file_is_the_blank_release():
    rebuilt = align(None, release())
    assert rebuilt.notebook == release()
    assert rebuilt.notes == ["There is no notebook to grade."]


def test_own_cells_stay_where_they_stood():
    book = notebook(first="a = 1", before_2_5="b = 2", after_2_5="c = 3", last="d = 4")
    rebuilt = align(data(book), release()).notebook
    sources = [cell.source for cell in rebuilt.cells]
    own = [cell.source for cell in rebuilt.cells if cell.metadata.get(EXTRA)]
    assert own == ["a = 1", "b = 2", "c = 3", "d = 4"]
    answer = sources.index(right_answers()["2.5"])
    assert sources[0] == "a = 1"
    assert sources[-1] == "d = 4"
    assert sources.index("b = 2") < answer < sources.index("c = 3")
    tests = [sources.index(cell.source) for cell in release().cells if role(cell) == "test"]
    assert sources.index("c = 3") < tests[1]


def test_an_edited_cell_of_the_release_runs_after_the_original():
    book = notebook()
    setup = next(cell for cell in book.cells if cell.cell_type == "code")
    original, setup.source = setup.source, setup.source + "\nimport string"
    rebuilt = align(data(book), release()).notebook
    sources = [cell.source for cell in rebuilt.cells]
    assert sources.index(setup.source) == sources.index(original) + 1


def test_a_copied_answer_does_not_hide_the_one_that_was_worked_on():
    book = notebook()
    stub = next(cell for cell in release().cells if role(cell) == "answer")
    book.cells.insert(0, stub)  # the untouched stub, kept on top
    book.cells.append(stub)  # and once more at the end: it must not run after the answer
    rebuilt = align(data(book), release())
    assert stub.source not in [cell.source for cell in rebuilt.notebook.cells]
    assert any("3 times" in note for note in rebuilt.notes)


def test_an_answer_without_any_id_is_found_below_commands():
    book = notebook(changed(_2_5="!pip install x\n%pip install y\nz = !ls\n" + right_answers()["2.5"]))
    for number, cell in enumerate(book.cells):
        cell.metadata, cell.id = nbformat.from_dict({}), f"x{number}"
    rebuilt = align(data(book), release())
    assert not any("todo-2-5 is missing" in note for note in rebuilt.notes)
    assert any("!pip install x" in cell.source for cell in rebuilt.notebook.cells if role(cell) == "answer")


def test_what_stands_below_a_check_changes_nothing_that_was_answered():
    book = notebook(last="def position_similarity(d_model, offsets):\n    return 'broken on purpose'")
    rebuilt = align(data(book), release())
    assert rebuilt.notes == []
    assert right_answers()["2.5"] in [c.source for c in rebuilt.notebook.cells if role(c) == "answer"]


def test_reading_never_raises():
    for junk in (
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"cells": 5}',
        b'{"worksheets": [5]}',
        b"\x00" * 100,
        os.urandom(1000),
    ):
        notes: list[str] = []
        assert read_cells(junk, notes) == []
        assert notes


# ---- finding the file --------------------------------------------------------------------------------


def handed_in(tmp_path, files: dict[str, bytes], student: str = "ann"):
    folder = tmp_path / student / CHAPTER
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_students_are_listed_by_folder(tmp_path):
    for name in ("bob", "=cmd", "名前", ".hidden", "a\nb", os.fsdecode(b"\xff\xfe")):
        handed_in(tmp_path, {}, name)
    (tmp_path / "empty").mkdir()
    assert students(tmp_path, CHAPTER) == ["=cmd", "bob", "名前"]
    assert students(tmp_path / "missing", CHAPTER) == []
    assert unusable_names(tmp_path, CHAPTER) == [r"'\udcff\udcfe'", r"'a\nb'"]


def test_links_are_not_followed_anywhere(tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / f"{CHAPTER}.ipynb").write_bytes(data(notebook()))
    (tmp_path / "file").mkdir()
    folder = handed_in(tmp_path, {}, "file-link")
    (folder / f"{CHAPTER}.ipynb").symlink_to(secret / f"{CHAPTER}.ipynb")
    (tmp_path / "folder-link").mkdir()
    (tmp_path / "folder-link" / CHAPTER).symlink_to(secret)
    (tmp_path / "student-link").symlink_to(secret)
    for student in ("file-link", "folder-link", "student-link"):
        found = read_submission(tmp_path, student, CHAPTER)
        assert found.data is None, student
        assert "not followed" in found.notes[0]


def test_a_named_pipe_does_not_hold_up_the_class(tmp_path):
    folder = handed_in(tmp_path, {})
    os.mkfifo(folder / f"{CHAPTER}.ipynb")
    found = read_submission(tmp_path, "ann", CHAPTER)
    assert found.data is None
    assert "no ordinary file" in found.notes[0]


def test_a_zip_is_read_in_memory_and_writes_nothing(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"../../../{CHAPTER}.ipynb", b"{}")
        archive.writestr(f"ok/{CHAPTER} (1).ipynb", release_bytes())
    folder = handed_in(tmp_path, {"all.zip": buffer.getvalue()})
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    found = read_submission(tmp_path, "ann", CHAPTER)
    assert found.data == release_bytes()
    assert any("leaves its folder" in note for note in found.notes)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert folder.is_dir()


def test_a_timestamp_is_understood_or_reported(tmp_path):
    handed_in(tmp_path, {"timestamp.txt": b"2026-03-01 12:00:00 UTC\n", f"{CHAPTER}.ipynb": b"{}"}, "ann")
    handed_in(tmp_path, {"timestamp.txt": b"soon", f"{CHAPTER}.ipynb": b"{}"}, "bob")
    assert read_submission(tmp_path, "ann", CHAPTER).timestamp == "2026-03-01T12:00:00+00:00"
    assert read_submission(tmp_path, "bob", CHAPTER).timestamp is None


@pytest.mark.parametrize(
    ("text", "utc", "note"),
    [
        ("2026-03-01 12:00:00.5 CET", "2026-03-01T11:00:00.500000+00:00", ""),
        ("2026-03-01 12:00:00 America/Los_Angeles", "2026-03-01T20:00:00+00:00", ""),
        ("2026-03-01 12:00:00 UTC\n", "2026-03-01T12:00:00+00:00", ""),
        ("2026-03-01 12:00:00 +0100", "2026-03-01T11:00:00+00:00", ""),
        ("2026-03-01T12:00:00-07:00", "2026-03-01T19:00:00+00:00", ""),
        ("2026-03-01 12:00:00 NOWHERE", "2026-03-01T12:00:00+00:00", "time zone NOWHERE"),
        ("2026-03-01 12:00:00 etc/../../../etc/passwd", None, "does not hold a time"),
        ("0001-01-01T00:00:00+23:00", None, "does not hold a time"),
        ("2026-03-01 12:00:00 +99:99", None, "does not hold a time"),
    ],
)
def test_a_time_is_read_as_nbgrader_does(text, utc, note):
    notes: list[str] = []
    assert in_utc(text, notes) == utc
    assert note in " ".join(notes)
    assert bool(note) == bool(notes)


def test_what_the_exchange_puts_there_is_not_told(tmp_path):
    content = {f"{CHAPTER}.ipynb": data(notebook()), "submission_secret.txt": b"5", ".DS_Store": b"x"}
    handed_in(tmp_path, content | {"timestamp.txt": b"2026-03-01 12:00:00 UTC"})
    found = read_submission(tmp_path, "ann", CHAPTER, release_bytes())
    assert (found.data, found.notes) == (content[f"{CHAPTER}.ipynb"], [])


def test_the_better_of_two_notebooks_is_named_when_it_is_not_graded(tmp_path):
    some = notebook({"2.5": right_answers()["2.5"]})
    handed_in(tmp_path, {f"{CHAPTER}.ipynb": data(some), "other.ipynb": data(notebook())})
    found = read_submission(tmp_path, "ann", CHAPTER, release_bytes())
    assert found.data == data(some)
    assert "other.ipynb has more answers" in found.notes[-1]


def test_without_a_release_the_name_decides(tmp_path):
    handed_in(tmp_path, {f"{CHAPTER}.ipynb": b"{}", "._other.ipynb": b"{}", "other.ipynb": data(notebook())})
    assert read_submission(tmp_path, "ann", CHAPTER).data == b"{}"


def test_a_large_file_loses_its_outputs_and_keeps_its_hash(tmp_path):
    content = data(notebook()).replace(b'"outputs": []', b'"outputs": ["' + b"x" * PLAIN_LIMIT + b'"]', 1)
    handed_in(tmp_path, {f"{CHAPTER}.ipynb": content})
    found = read_submission(tmp_path, "ann", CHAPTER, release_bytes())
    assert found.data == data(notebook())
    assert found.sha256 == hashlib.sha256(content).hexdigest()


# ---- limits of reading -------------------------------------------------------------------------------


def _endless() -> limited.Plain:
    while True:
        pass


def children() -> set[str]:
    """The numbers of all processes that this one started, where that can be told."""
    return {
        number for path in Path("/proc/self/task").glob("*/children") for number in path.read_text().split()
    }


REFUSED = {
    "took more than 1 s": _endless,
    "needs too much memory": lambda: ({}, bytes(512 << 20)),
    "holds more than 1 MB": lambda: ({}, bytes(2 << 20)),
    "took longer than 2 s": lambda: ({"slept": time.sleep(3600)}, b""),
    "nested too deeply": lambda: (json.loads("[" * 100_000), b""),
    "could not be understood (ZeroDivisionError)": lambda: ({"number": 1 / 0}, b""),
    "process that read it was ended": lambda: ({"signal": os.kill(os.getpid(), signal.SIGKILL)}, b""),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_too_much_is_refused_and_said(why):
    before = children()
    allowance = limited.Allowance(1, 256 << 20, 1 << 20, HANG if "longer" not in why else 2)
    with pytest.raises(limited.Refused, match=re.escape(why)):
        limited.call(REFUSED[why], allowance)
    assert children() == before  # nobody is left behind


def test_what_is_read_comes_back_as_plain_data():
    assert limited.call(lambda: ({"pid": os.getpid() != ours}, b"bytes")) == ({"pid": True}, b"bytes")


def test_where_nothing_can_fork_it_is_read_here(monkeypatch):
    monkeypatch.delattr(os, "fork")
    assert limited.call(lambda: ({"pid": os.getpid() == ours}, b"")) == ({"pid": True}, b"")
    with pytest.raises(limited.Refused, match="ZeroDivisionError"):
        limited.call(lambda: ({"number": 1 / 0}, b""))
    assert align(data(notebook()), release()).notes == []


def test_a_notebook_that_is_too_much_is_the_blank_release(monkeypatch):
    monkeypatch.setattr("grader.grading.align.plan", lambda *_: _endless())
    monkeypatch.setattr(limited, "Allowance", lambda: ONE_SECOND)
    rebuilt = align(data(notebook()), release())
    assert rebuilt.notebook == release()
    assert rebuilt.notes == [
        "The notebook could not be read: it took more than 1 s. Nothing in it was graded."
    ]


# ---- what has to run ---------------------------------------------------------------------------------


def book_of(*cells: tuple[str, str]) -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook()
    for kind, source in cells:
        cell = nbformat.v4.new_code_cell(source)
        if kind == "answer":
            cell.metadata["nbgrader"] = {"solution": True, "grade": False, "grade_id": "a"}
        if kind == "extra":
            cell.metadata[EXTRA] = True
        made.cells.append(cell)
    return made


def test_only_what_something_needs_runs():
    book = book_of(
        ("code", "import torch"),
        ("code", "unused = 1"),
        ("code", "size = 4"),
        ("code", "table = [0] * size"),
        ("code", "table[0] = 1"),
        ("code", "table.append(3)"),
        ("code", "picture(f)"),
        ("answer", "def f(): return torch.tensor(table)"),
        ("code", "f()"),
        ("code", "late = f()"),
        ("extra", "print(late)"),
        ("code", "%matplotlib inline"),
        ("code", "from somewhere import *"),
    )
    wanted = [True, False, True, True, True, True, False, True, False, True, True, True, True]
    assert live_cells(book) == wanted


def test_leaving_out_pictures_changes_no_needed_name():
    book = notebook()
    ran = [cell.source for cell, live in zip(book.cells, live_cells(book), strict=True) if live]
    for source in right_answers().values():
        assert source in ran
