"""Downloads of Canvas and Moodle, taken as they are; and nbgrader's own `zip_collect` with our settings."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from grader.classroom.collect import collect
from grader.classroom.course import Course
from grader.classroom.lms import Named, Roster, parse
from grader.classroom.lock import only_writer
from grader.cli import main
from grader.errors import UserMistake
from grader.layout import COURSE
from tests.hostile.kit import CHAPTER, ROOT
from tests.patience import HANG

pytestmark = pytest.mark.timeout(HANG)
STUDENTS = {
    "ann": ("Ann", "von Bülow", "ann@uni.edu", "4711"),
    "ben": ("Ben Li", "O'Neil", "ben@uni.edu", "4712"),
    "c1": ("Chris", "Smith", "", ""),
    "c2": ("Chris", "Smith", "", ""),
    "名前": ("前", "名", "", "4715"),
}
MOODLE = "_assignsubmission_file"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A class folder with a roster; tests work on copies, since a gradebook takes a second to make."""
    root = tmp_path_factory.mktemp("made") / "class"
    shutil.copytree(ROOT / "course" / "en" / CHAPTER, root / "course" / "en" / CHAPTER)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    directory = Course.at(root).directory
    with Gradebook(directory.db_url, COURSE) as book:
        for name, (first, last, mail, number) in STUDENTS.items():
            book.add_student(name, first_name=first, last_name=last, email=mail, lms_user_id=number)
    return root


@pytest.fixture
def course(made, tmp_path) -> Course:
    shutil.copytree(made, tmp_path / "class")
    return Course.at(tmp_path / "class")


def download(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "submissions.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def lying(course: Course) -> dict[str, bytes]:
    """{path below submitted/: bytes}."""
    base = course.submitted()
    return {p.relative_to(base).as_posix(): p.read_bytes() for p in base.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("vonblowann_4711_88_02_x.ipynb", Named("vonblowann", "02_x.ipynb", "4711")),
        ("oneilben_LATE_4712_89_hw-1.ipynb", Named("oneilben", "hw-1.ipynb", "4712", late=True)),
        ("a_b_1_2_x_3_4_y.ipynb", Named("a_b", "x_3_4_y.ipynb", "1")),
        (f"Ben Li O'Neil_123{MOODLE}/02.ipynb", Named("Ben Li O'Neil", "02.ipynb")),
        (f"Ben Li O'Neil_123{MOODLE}_/02.ipynb", Named("Ben Li O'Neil", "02.ipynb")),
        (f"Ben Li O'Neil_123{MOODLE}_02_x.ipynb", Named("Ben Li O'Neil", "02_x.ipynb")),
        (f"Group A/Ann B_1{MOODLE}/sub/x.ipynb", Named("Ann B", "sub/x.ipynb")),
        (
            "Ann B_1_assignsubmission_onlinetext_onlinetext.html",
            Named("Ann B", "onlinetext.html", kind="onlinetext"),
        ),
        ("02_positional_encoding.ipynb", None),
        ("readme.txt", None),
    ],
)  # fmt: skip
def test_names_are_read_as_they_are_documented(path, named):
    assert parse(path) == named


@pytest.mark.parametrize(
    ("named", "student"),
    [
        (Named("whoever", "x", user="4711"), "ann"),
        (Named("whoever", "x", user="c1"), "c1"),
        (Named("vonbulowann", "x", user="9"), "ann"),
        (Named("Ben Li O'Neil", "x"), "ben"),
        (Named("O'Neil Ben Li", "x"), "ben"),
        (Named("BEN", "x"), "ben"),
        (Named("前 名", "x"), "名前"),
        (Named("Chris Smith", "x"), None),
        (Named("nobody", "x"), None),
        (Named("", "x"), None),
    ],
)
def test_students_are_found_by_what_platforms_call_them(named, student, course):
    with Gradebook(course.directory.db_url, COURSE) as book:
        assert Roster(list(book.students)).whose(named) == student


def test_a_download_of_canvas(course, tmp_path, capsys):
    files = {
        "vonblowann_4711_88_02_positional_encoding-2.ipynb": b"ann",
        "oneilbenli_LATE_4712_89_hw.ipynb": b"ben",
        "oneilbenli_LATE_4712_90_helper.py": b"x = 1",
        "ghostwriter_99_91_x.ipynb": b"who",
        "smithchris_98_92_x.ipynb": b"which",
        "__MACOSX/._vonblowann_4711_88_x.ipynb": b"no",
    }
    path = str(download(tmp_path, files))
    here = ["--course", str(course.root)]
    assert main(["collect", path, "02", *here]) == 1, "somebody could not be placed"
    said = capsys.readouterr().out
    assert lying(course) == {
        f"ann/{CHAPTER}/{CHAPTER}.ipynb": b"ann",
        f"ben/{CHAPTER}/{CHAPTER}.ipynb": b"ben",
        f"ben/{CHAPTER}/helper.py": b"x = 1",
    }
    for part in (
        "2 submissions; 2 are new, 0 unchanged",
        "LATE, but not how late, so no penalty follows from it: 'ben'",
        "not in the file: 'c1', 'c2', '名前'",
        "'ghostwriter_99_91_x.ipynb': nobody in the roster is called 'ghostwriter' or has the lms_user_id 99",
        "'smithchris_98_92_x.ipynb': 'smithchris' may be any of 'c1', 'c2'",
    ):
        assert part in said, part


def test_a_download_of_moodle_and_then_another(course, tmp_path):
    first = {f"Ann von Bülow_17{MOODLE}/02.ipynb": b"one", f"Ben Li O'Neil_18{MOODLE}/02.ipynb": b"ben"}
    done = collect(course, download(tmp_path, first), CHAPTER)
    assert (done.new, done.again, done.unmatched) == (["ann", "ben"], [], {})
    stamp = course.submitted() / "ben" / CHAPTER / "timestamp.txt"
    stamp.write_text("2026-03-01 00:00:00 UTC")
    done = collect(
        course, download(tmp_path, first | {f"Ann von Bülow_17{MOODLE}/02.ipynb": b"two"}), CHAPTER
    )
    assert (done.new, done.again, done.same) == ([], ["ann"], ["ben"])
    assert stamp.exists(), "what is unchanged stays as it is"
    assert lying(course)[f"ann/{CHAPTER}/{CHAPTER}.ipynb"] == b"two"
    assert (
        course.root / "submitted_before" / "ann" / CHAPTER / "1" / f"{CHAPTER}.ipynb"
    ).read_bytes() == b"one"
    assert {p.name for p in course.submitted().iterdir()} == {"ann", "ben"}, "nothing is left beside them"


def test_no_name_in_a_download_leads_out_of_its_students_folder(course, tmp_path):
    names = (
        "../../x.ipynb",
        "/etc/x.ipynb",
        "..\\..\\y.ipynb",
        ".hidden.ipynb",
        "timestamp.txt",
        "..",
        "a/.ipynb",
    )
    files = {f"Ann von Bülow_17{MOODLE}/{name}": name.encode() for name in names}
    files[f"Ben Li O'Neil_18{MOODLE}/{'n' * 300}.ipynb"] = b"long"
    before = {p for p in tmp_path.rglob("*")}
    done = collect(course, download(tmp_path, files), CHAPTER)
    assert done.new == ["ann", "ben"] and not done.failed
    new = {p for p in tmp_path.rglob("*") if p.is_file()} - before
    allowed = {course.submitted() / who / CHAPTER for who in ("ann", "ben")} | {tmp_path}
    assert {p.parent for p in new} - {course.root / "records"} <= allowed
    assert sorted(p.name for p in (course.submitted() / "ann" / CHAPTER).iterdir()) == [
        "_timestamp.txt", "_x.ipynb", "hidden.ipynb", "ipynb", "unnamed", "x.ipynb", "y.ipynb",
    ]  # fmt: skip


def test_damaged_data_costs_its_own_student_only(course, tmp_path):
    files = {"x_4711_1_a.ipynb": os.urandom(500), "x_4712_2_a.ipynb": b"ben"}
    path = download(tmp_path, files)
    data = bytearray(path.read_bytes())
    start = data.index(b"x_4711_1_a.ipynb") + len("x_4711_1_a.ipynb")
    data[start + 50 : start + 60] = b"0123456789"
    path.write_bytes(data)
    done = collect(course, path, CHAPTER)
    assert done.new == ["ben"] and list(done.failed) == ["ann"]
    assert set(lying(course)) == {f"ben/{CHAPTER}/{CHAPTER}.ipynb"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"no zip", "is no zip file"),
        (b"PK\x03\x04" + struct.pack("<20x"), "is no zip file"),
        ({}, "named as Canvas or Moodle name them"),
        ({"readme.txt": b""}, "named as Canvas or Moodle name them"),
    ],
)
def test_what_is_no_download_is_one_clear_line(content, says, course, tmp_path, capsys):
    path = tmp_path / "submissions.zip"
    if isinstance(content, dict):
        download(tmp_path, content)
    elif content is not None:
        path.write_bytes(content)
    assert main(["collect", str(path), "02", "--course", str(course.root)]) == 2
    said = capsys.readouterr().err.strip()
    assert says in said and len(said.splitlines()) == 1


def test_nothing_is_collected_while_somebody_grades_or_without_a_roster(course, tmp_path):
    path = download(tmp_path, {"x_4711_1_a.ipynb": b"ann"})
    with only_writer(course.root), pytest.raises(UserMistake, match="Another program"):
        collect(course, path, CHAPTER)
    (course.root / "gradebook.db").unlink()
    with pytest.raises(UserMistake, match="no roster"):
        collect(course, path, CHAPTER)
    assert not course.submitted().exists()


def test_nbgraders_own_zip_collect_needs_no_expression(course, tmp_path):
    archive = course.root / "downloaded" / CHAPTER / "archive"
    archive.mkdir(parents=True)
    files = {
        "vonblowann_4711_88_02_positional_encoding.ipynb": b"ann",
        "vonblowann_4711_89_again.ipynb": b"ann too",
        f"Ben Li O'Neil_18{MOODLE}/02.ipynb": b"ben",
        "ghostwriter_99_91_x.ipynb": b"who",
    }
    shutil.move(download(tmp_path, files), archive)
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "zip_collect", CHAPTER],
        cwd=course.root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "course")])},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert lying(course) == {
        f"ann/{CHAPTER}/{CHAPTER}.ipynb": b"ann",
        f"ann/{CHAPTER}/{CHAPTER}-2.ipynb": b"ann too",
        f"ben/{CHAPTER}/{CHAPTER}.ipynb": b"ben",
    }
    assert "nobody in the roster is called 'ghostwriter'" in done.stderr
