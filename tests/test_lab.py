"""The learner's copy: chapters are added, newer releases offered beside it, and nothing is overwritten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG
from transformer_lab import lab

ONE = Path("01_embedding/01_embedding.ipynb")
TWO = Path("02_positional_encoding/02_positional_encoding.ipynb")
OFFERED = TWO.with_name("02_positional_encoding (new release).ipynb")


@pytest.fixture
def course(tmp_path) -> Path:
    """A folder with a released course of one data file and two chapters."""
    release(tmp_path, ONE, "one")
    release(tmp_path, TWO, "two")
    release(tmp_path, Path("01_embedding/words.txt"), "words")
    return tmp_path


def release(root: Path, chapter: Path, text: str) -> None:
    path = root / "course" / "en" / chapter
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def start(root: Path) -> list[str]:
    return lab.update_copy(root / "course" / "en", root / "work" / "en")


def mine(root: Path, chapter: Path) -> Path:
    return root / "work" / "en" / chapter


def content(root: Path) -> dict[str, bytes]:
    work = root / "work"
    return {str(path.relative_to(work)): path.read_bytes() for path in work.rglob("*") if path.is_file()}


def test_first_start_copies_every_chapter_with_its_files(course):
    lines = start(course)
    assert mine(course, ONE).read_text() == "one"
    assert mine(course, ONE.with_name("words.txt")).read_text() == "words"
    assert lines == [
        "added: 01_embedding/01_embedding.ipynb",
        "added: 01_embedding/words.txt",
        "added: 02_positional_encoding/02_positional_encoding.ipynb",
    ]


def test_second_start_changes_nothing(course):
    start(course)
    mine(course, TWO).write_text("my work")
    before = content(course)
    assert start(course) == []
    assert content(course) == before


def test_newer_release_is_offered_beside_and_only_once(course):
    start(course)
    mine(course, TWO).write_text("my work")
    release(course, TWO, "two, improved")
    lines = start(course)
    assert len(lines) == 1
    assert "newer release of 02_positional_encoding/02_positional_encoding.ipynb" in lines[0]
    assert OFFERED.name in lines[0]
    assert "yours is as you left it" in lines[0]
    assert mine(course, TWO).read_text() == "my work"
    assert mine(course, OFFERED).read_text() == "two, improved"
    mine(course, OFFERED).unlink()
    assert start(course) == []
    assert not mine(course, OFFERED).exists()


def test_unchanged_copy_is_kept_too_and_named_as_unchanged(course):
    start(course)
    release(course, TWO, "two, improved")
    (line,) = start(course)
    assert "yours is unchanged, so you can delete it and start again" in line
    assert mine(course, TWO).read_text() == "two"
    assert mine(course, OFFERED).read_text() == "two, improved"


def test_work_in_an_offered_release_is_not_overwritten_by_the_next(course):
    start(course)
    release(course, TWO, "second")
    start(course)
    mine(course, OFFERED).write_text("my work in the second")
    release(course, TWO, "third")
    start(course)
    assert mine(course, OFFERED).read_text() == "my work in the second"
    third = mine(course, TWO.with_name("02_positional_encoding (new release 2).ipynb"))
    assert third.read_text() == "third"


def test_release_taken_back_is_not_offered_again(course):
    start(course)
    release(course, TWO, "mistaken")
    start(course)
    release(course, TWO, "two")
    assert start(course) == []


def test_deleted_copy_comes_back_as_the_newest_release(course):
    start(course)
    release(course, TWO, "two, improved")
    mine(course, TWO).unlink()
    assert start(course) == ["added again: 02_positional_encoding/02_positional_encoding.ipynb"]
    assert mine(course, TWO).read_text() == "two, improved"
    assert start(course) == []


def test_new_chapter_is_added(course):
    start(course)
    release(course, Path("03_attention/03_attention.ipynb"), "three")
    assert start(course) == ["added: 03_attention/03_attention.ipynb"]


def test_chapter_dropped_from_the_course_stays(course):
    start(course)
    (course / "course" / "en" / TWO).unlink()
    assert start(course) == []
    assert mine(course, TWO).exists()


def test_hidden_files_and_other_folders_are_not_copied(course):
    release(course, Path("01_embedding/.ipynb_checkpoints/01_embedding-checkpoint.ipynb"), "old")
    release(course, Path("notes/todo.ipynb"), "not a chapter")
    start(course)
    assert not any("checkpoint" in name or "notes" in name for name in content(course))


def test_interrupted_write_leaves_no_half_file(course, monkeypatch):
    def dies(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", dies)
        start(course)
    assert content(course) == {}
    assert len(start(course)) == 3


def test_start_that_ends_before_its_record_is_written_goes_on(course, monkeypatch):
    start(course)
    mine(course, TWO).write_text("my work")
    release(course, TWO, "two, improved")

    def dies(work, record):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lab, "_write_record", dies)
        start(course)
    start(course)
    offered = [name for name in content(course) if "new release" in name]
    assert offered == [str(Path("en") / OFFERED)]
    assert start(course) == []


@pytest.mark.parametrize("record", ["{ half", "[]", '{"a": 1}'])
def test_damaged_record_is_reported_and_no_work_is_lost(course, record):
    start(course)
    mine(course, TWO).write_text("my work")
    (course / "work" / "en" / lab.RECORD).write_text(record)
    lines = start(course)
    assert "could not be read" in lines[0]
    assert mine(course, TWO).read_text() == "my work"
    assert set(json.loads((course / "work" / "en" / lab.RECORD).read_text())) == {
        str(ONE),
        "01_embedding/words.txt",
        str(TWO),
    }


def test_missing_course_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "PACKAGE", tmp_path / "course" / "transformer_lab")
    assert lab.main(["--no-browser"]) == 1
    message = capsys.readouterr().err
    assert "No chapters found" in message
    assert "folder you cloned the course into" in message
    assert "python -m grader build" in message
    assert not (tmp_path / "work").exists()


def test_copy_only_prints_what_was_done(course):
    command = [sys.executable, "-m", "transformer_lab.lab", "--copy-only"]
    first, second = (
        subprocess.run(command, cwd=course, capture_output=True, text=True, timeout=HANG, check=True).stdout
        for _ in range(2)
    )
    assert f"Your copy of the course: {course / 'work' / 'en'}" in first
    assert "added: 01_embedding/01_embedding.ipynb" in first
    assert "nothing new" in second


def test_lab_opens_the_first_chapter_if_it_is_there(course):
    work = course / "work" / "en"
    start(course)
    assert not any("default_url" in part for part in lab.lab_command(work))
    release(course, Path("00_start/00_start.ipynb"), "start")
    start(course)
    command = lab.lab_command(work, browser=False, port=9000)
    assert "--LabApp.default_url=/lab/tree/00_start/00_start.ipynb" in command
    assert {"--no-browser", "--port=9000", f"--ServerApp.root_dir={work}"} <= set(command)


def test_learners_own_jupyter_settings_are_kept(monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/theirs")
    ours, theirs = lab.lab_environment()["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert theirs == "/theirs"
    settings = Path(ours) / "labconfig" / "default_setting_overrides.json"
    assert (
        json.loads(settings.read_text())["@jupyterlab/apputils-extension:notification"]["fetchNews"]
        == "false"
    )
