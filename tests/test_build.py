"""The build: equal inputs give equal bytes, and nothing of an answer reaches a learner."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest

from grader import cli as command
from grader.authoring import build, data_files
from grader.authoring.lesson import BEGIN, END, LessonError, read_lesson
from grader.errors import UnknownName
from tests.patience import HANG
from tests.small import CHAPTER, DOUBLE, LESSON, changed, line_of, write_lesson

ROOT = Path(__file__).resolve().parent.parent
CHAPTER_02 = "02_positional_encoding"
TODO_LINE = line_of(LESSON, "def double")


def release(path: Path) -> nbformat.NotebookNode:
    """The learner's notebook of the small lesson at `path`."""
    released = build.release(path, build.lesson_notebook(path, (DOUBLE,)), CHAPTER)
    return nbformat.reads(released.decode(), as_version=4)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> nbformat.NotebookNode:
    return release(write_lesson(tmp_path_factory.mktemp("small")))


# ---- what a learner receives ------------------------------------------------------------------------


def test_learner_gets_stubs_that_compile_and_name_their_todos(small):
    cell = small.cells[2]
    assert cell.source.count("raise NotImplementedError") == 2
    for number in ("97.1", "97.2"):
        assert f'raise NotImplementedError("TODO {number}")' in cell.source
    names: dict = {}
    exec(cell.source, names)
    with pytest.raises(NotImplementedError, match=r"TODO 97\.1"):
        names["double"](3)


def test_learner_gets_no_answer_no_hidden_test_and_no_marker(small):
    text = nbformat.writes(small)
    for word in ("the_number_to_multiply_by = 2", "HIDDEN", "SOLUTION", "grade(", "import grade"):
        assert word not in text
    assert small.cells[3].source == 'check("97.1", double)'


def test_cells_carry_what_nbgrader_needs_to_grade_them(small):
    todo, test = small.cells[2].metadata.nbgrader, small.cells[3].metadata.nbgrader
    assert (todo.grade_id, todo.solution, todo.grade, todo.locked) == ("todo-97-1", True, False, False)
    assert (test.grade_id, test.solution, test.grade, test.locked) == ("test-97-1", False, True, True)
    assert test.points == 4 and todo.checksum and test.checksum


def test_notebook_says_that_it_is_built_and_nothing_about_the_authors_run(small):
    lab = small.metadata.transformer_lab
    assert lab == {"built_from": f"solutions/{CHAPTER}/{CHAPTER}.py", "edit": "never by hand"}
    assert all(not cell.outputs and cell.execution_count is None for cell in small.cells[1:])


def test_chapter_02_twice_gives_equal_bytes():
    lesson = ROOT / "solutions" / CHAPTER_02 / f"{CHAPTER_02}.py"
    exercises = build.of_chapter(CHAPTER_02)
    one, two = (build.release(lesson, build.lesson_notebook(lesson, exercises), CHAPTER_02) for _ in range(2))
    assert one == two
    assert one == (ROOT / "course" / "en" / CHAPTER_02 / f"{CHAPTER_02}.ipynb").read_bytes()


# ---- refused releases -------------------------------------------------------------------------------

OUTSIDE = changed(
    "    # TODO 97.2: the product\n",
    "    return 1\n\n# TODO 97.2: the product\n",
    changed(
        f"    {BEGIN}\n    return the_number_to_multiply_by * x\n    {END}",
        f"{BEGIN}\nproduct = double(3)\n{END}",
    ),
)

REFUSED = {
    "a solution outside any function": (OUTSIDE, TODO_LINE, "stands outside any function"),
    "an answer in another cell": (
        changed("import torch\n", "import torch\nthe_number_to_multiply_by = 2\n"),
        line_of(LESSON, "the_number_to_multiply_by = 2") + 1,
        "this line of a solution also stands in the learner's notebook",
    ),
    "an answer left outside its markers": (
        changed(
            f"    {END}\n    # TODO 97.2", f"    {END}\n    the_number_to_multiply_by = 2\n    # TODO 97.2"
        ),
        line_of(LESSON, "the_number_to_multiply_by = 2"),
        "this line of a solution also stands in the learner's notebook",
    ),
    "a stub that does not compile": (
        changed(f"    {BEGIN}\n    the_number", f"  {BEGIN}\n    the_number"),
        TODO_LINE,
        "without its solution the cell does not compile",
    ),
    "a stub that names no TODO": (
        changed("def double(x):\n", "def double(x):\n    if x is None:\n        raise NotImplementedError\n"),
        TODO_LINE,
        "a stub must raise NotImplementedError naming its TODO",
    ),
    "a call of grade in prose code": (
        changed("import torch\n", "import torch\n# never call grade() yourself\n"),
        1,
        "'grade(' survives",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_release_that_would_give_something_away_is_refused(tmp_path, name):
    text, line, words = REFUSED[name]
    path = write_lesson(tmp_path, text)
    with pytest.raises(LessonError) as caught:
        release(path)
    assert f"{path}:{line}: " in str(caught.value) and words in str(caught.value)


def released_by_a_broken_step(small, source: str, cell: int) -> bytes:
    """What would be released if a step of nbgrader's had left `source` in a cell."""
    notebook = nbformat.from_dict(json.loads(nbformat.writes(small)))
    notebook.cells[cell].source = source
    return nbformat.writes(notebook).encode()


@pytest.mark.parametrize(
    ("cell", "source", "words"),
    [
        (2, f"def double(x):\n    {BEGIN}\n    return 2 * x", "'BEGIN SOLUTION' survives"),
        (2, "def double(x):\n    return the_number_to_multiply_by * x", "this line of a solution"),
        (3, "check('97.1', double)\n### BEGIN HIDDEN TESTS", "'HIDDEN TESTS' survives"),
        (3, 'check("97.1", double)\ngrade("97.1", double)', "'grade(' survives"),
        (2, "def double(x:\n    pass", "does not compile"),
    ],
)
def test_what_survives_a_broken_step_is_noticed(tmp_path, small, cell, source, words):
    path = write_lesson(tmp_path)
    with pytest.raises(LessonError, match=re.escape(words)):
        build.check_release(path, read_lesson(path), released_by_a_broken_step(small, source, cell))


# ---- a whole course folder, with a chapter of its own -----------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """A course of the small chapter alone. Executing is replaced: each code cell "prints" its number."""
    monkeypatch.setattr(build, "of_chapter", lambda chapter: (DOUBLE,))
    monkeypatch.setattr(data_files, "of_chapter", lambda chapter: (DOUBLE,))
    monkeypatch.setattr(data_files, "by_id", lambda: {"97.1": DOUBLE})
    monkeypatch.setattr(
        data_files, "_all_recorded", lambda ids: [(name, data_files.recorded(DOUBLE)) for name in ids]
    )
    monkeypatch.setattr(build, "execute", fake_execute)
    fake_execute.runs = 0
    write_lesson(tmp_path)
    return tmp_path


def fake_execute(notebook, folder, root=None):
    fake_execute.runs += 1
    for number, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"run {fake_execute.runs}\n")]
        cell.execution_count = number + 1
    return notebook


def built(course: Path, **options) -> dict[str, bytes]:
    build.build(root=course, say=lambda line: None, **options)
    return {str(path.relative_to(course)): path.read_bytes() for path in course.rglob("*") if path.is_file()}


def test_build_writes_every_file_and_check_finds_nothing_stale(course):
    files = built(course)
    assert {Path(name).suffix for name in files} == {".py", ".ipynb", ".key", ".json"}
    assert f"course/en/{CHAPTER}/{CHAPTER}.ipynb" in files and f"solutions/{CHAPTER}/{CHAPTER}.ipynb" in files
    assert "course/transformer_lab/checking/stored/data/97.1.key" in files
    assert build.stale_files(course) == []


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_after_a_word_is_edited_both_notebooks_are_stale_and_the_lesson_is_named(course):
    built(course)
    edit(course / "solutions" / CHAPTER / f"{CHAPTER}.py", "A small lesson", "A tiny lesson")
    stale = build.stale_files(course)
    assert [line.split()[0] for line in stale] == [
        f"solutions/{CHAPTER}/{CHAPTER}.ipynb",
        f"course/en/{CHAPTER}/{CHAPTER}.ipynb",
    ]
    assert all(f"its lesson is solutions/{CHAPTER}/{CHAPTER}.py" in line for line in stale)


def test_what_was_edited_by_hand_is_stale(course):
    built(course)
    edit(course / "course" / "en" / CHAPTER / f"{CHAPTER}.ipynb", "A small lesson", "My lesson")
    assert [line.split()[0] for line in build.stale_files(course)] == [f"course/en/{CHAPTER}/{CHAPTER}.ipynb"]


def test_what_is_missing_or_left_over_is_stale(course):
    built(course)
    (course / "course" / "en" / CHAPTER / f"{CHAPTER}.ipynb").unlink()
    (course / "course/transformer_lab/checking/stored/data/97.1.key").unlink()
    (course / "course/transformer_lab/checking/stored/data/98.1.key").write_bytes(b"old")
    leftover = course / "course" / "en" / "98_gone" / "98_gone.ipynb"
    leftover.parent.mkdir()
    leftover.write_text("{}")
    shown = "\n".join(build.stale_files(course))
    for word in (f"course/en/{CHAPTER}/", "97.1.key", "98.1.key", "course/en/98_gone (no lesson"):
        assert word in shown


def test_building_removes_keys_of_exercises_that_are_no_more(course):
    old = course / "course/transformer_lab/checking/stored/data/98.1.key"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    built(course)
    assert not old.exists()


def test_prose_alone_keeps_outputs_and_changed_code_runs_again(course):
    built(course)
    lesson = course / "solutions" / CHAPTER / f"{CHAPTER}.py"
    edit(lesson, "A small lesson", "A tiny lesson")
    files = built(course, prose_only=True)
    assert fake_execute.runs == 1 and b"A tiny lesson" in files[f"solutions/{CHAPTER}/{CHAPTER}.ipynb"]
    edit(lesson, "import torch\n", "import torch\n\nprint(1)\n")
    built(course, prose_only=True)
    assert fake_execute.runs == 2 and build.stale_files(course) == []


def test_files_that_do_not_change_are_not_written_again(course):
    built(course, prose_only=True)
    path = course / "course" / "en" / CHAPTER / f"{CHAPTER}.ipynb"
    os.utime(path, (1, 1))
    built(course, prose_only=True)
    assert path.stat().st_mtime == 1


def test_a_lesson_that_cannot_be_built_leaves_both_notebooks_alone(course):
    before = built(course)
    edit(course / "solutions" / CHAPTER / f"{CHAPTER}.py", "points=4", "points=5")
    with pytest.raises(LessonError, match="points=5"):
        built(course)
    for name, data in before.items():
        if name.endswith(".ipynb"):
            assert (course / name).read_bytes() == data


def test_chapters_are_named_by_number_or_in_full(course):
    assert (
        build.select(["97"], course)
        == build.select([CHAPTER], course)
        == build.select([], course)
        == [CHAPTER]
    )
    with pytest.raises(UnknownName, match=f"There is no chapter '9'. The chapters are: {CHAPTER}"):
        build.select(["9"], course)


# ---- executing --------------------------------------------------------------------------------------


def test_a_cell_that_fails_names_the_lesson_and_shows_the_error(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1\nunknown_name")])
    notebook.metadata["transformer_lab"] = {"built_from": "solutions/97_small/97_small.py"}
    with pytest.raises(LessonError) as caught:
        build.execute(notebook, tmp_path)
    assert str(caught.value).startswith("solutions/97_small/97_small.py: a cell failed")
    assert "unknown_name" in str(caught.value) and "NameError" in str(caught.value)


def test_executed_notebook_holds_nothing_that_differs_from_run_to_run(tmp_path):
    source = "import ipywidgets\nprint(1)\nipywidgets.IntSlider()"
    runs = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        cell = nbformat.v4.new_code_cell(source, id="one")
        notebook = nbformat.v4.new_notebook(cells=[cell])
        notebook.metadata["transformer_lab"] = {"built_from": "here"}
        runs.append(nbformat.writes(build.execute(notebook, tmp_path / folder)))
    assert runs[0] == runs[1] and "model_id" not in runs[0]


# ---- the command line -------------------------------------------------------------------------------


def test_unknown_chapter_is_one_clear_line_and_exit_code_2(capsys):
    assert command.main(["build", "nosuch"]) == 2
    shown, said = capsys.readouterr()
    assert said.startswith("There is no chapter 'nosuch'. The chapters are: 0") and said.count("\n") == 1
    assert "Traceback" not in shown + said


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout of this repository with chapter 02 alone."""
    ignored = shutil.ignore_patterns("__pycache__", "ch[0-9]*")
    shutil.copytree(ROOT / "grader", tmp_path / "grader", ignore=ignored)
    for folder in ("grader/exercises/ch02", f"solutions/{CHAPTER_02}", f"course/en/{CHAPTER_02}"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    data = tmp_path / data_files.DATA
    data.mkdir(parents=True)
    for path in (ROOT / data_files.DATA).iterdir():
        if path.name.startswith("2."):
            shutil.copy(path, data)
        elif path.suffix == ".json":
            kept = {k: v for k, v in json.loads(path.read_text("utf-8")).items() if k[:2] in ("2.", "2-")}
            (data / path.name).write_bytes(data_files._json(kept))
    return tmp_path


STEPS = """
import sys
import textwrap
from pathlib import Path
from grader.cli import main

lesson = Path(sys.argv[1])
print("code", main(["build", "--check"]), flush=True)
edits = {"Plan for about 60": "Plan for at least 60", 'test="2.1" points=8': 'test="2.1" points=9'}
for old, new in edits.items():
    text = lesson.read_text(encoding="utf-8")
    assert old in text
    lesson.write_text(text.replace(old, new), encoding="utf-8")
    print("code", main(["build", "--check"]), flush=True)
"""


def test_check_of_a_checkout_before_and_after_its_lesson_is_edited(checkout):
    lesson = f"solutions/{CHAPTER_02}/{CHAPTER_02}.py"
    script = checkout / "steps.py"
    script.write_text(f"if __name__ == '__main__':\n{textwrap.indent(STEPS, '    ')}")
    done = subprocess.run(
        [sys.executable, script, lesson], cwd=checkout, capture_output=True, text=True, timeout=HANG
    )
    clean, stale, broken, _ = re.split(r"(?<=code \d)\n", done.stdout)
    assert clean == "Everything built is up to date.\ncode 0", done.stdout + done.stderr
    assert f"its lesson is {lesson}" in stale and "Run `make build`" in stale and stale.endswith("code 1")
    assert "2.1.key" not in stale, "the cases have not changed"
    assert broken == "code 2", "a lesson that cannot be built at all is said on stderr"
    assert re.fullmatch(
        rf"{re.escape(str(checkout))}/{lesson}:\d+: points=9, but exercise 2.1 is worth 8\n", done.stderr
    )
