"""A class folder made by `python -m grader init`, and what happens where its settings do not load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from grader.classroom import folder as class_folder
from grader.classroom.course import Course
from grader.classroom.roster import read_roster
from grader.cli import main
from grader.errors import UserMistake
from grader.jail import isolation_problem
from grader.nbgrader_adapter.settings import RefuseWithoutJail
from tests.hostile.kit import CHAPTER, ROOT, case, changed, notebook, points, right_answers
from tests.patience import HANG

pytestmark = pytest.mark.timeout(HANG)
jailed = pytest.mark.skipif(
    isolation_problem() is not None and not os.environ.get("CI"),
    reason=f"no isolation: {isolation_problem()}",
)


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """A class folder, made from another directory; nbgrader takes seconds for its gradebook."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main(["init", "class"]) == 0
    return root / "class"


@pytest.fixture
def made(tmp_path, first) -> Path:
    """The same folder for each test, moved: it may lie anywhere."""
    return shutil.copytree(first, tmp_path / "class")


def command(root: Path, *arguments: str, before: Path | None = None) -> subprocess.CompletedProcess:
    """Run python with these arguments in `root`; packages in the folder `before` come before all others."""
    paths = [str(p) for p in (before, ROOT, ROOT / "course") if p]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, timeout=HANG
    )


def test_it_holds_all_that_a_class_needs(first):
    made = first
    assert {p.name for p in made.iterdir()} == {
        "nbgrader_config.py",
        "solutions",
        "course",
        "submitted",
        "gradebook.db",
    }
    for kept in ("solutions", "course/en"):
        assert (made / kept / CHAPTER / f"{CHAPTER}.ipynb").read_bytes() == (
            ROOT / kept / CHAPTER / f"{CHAPTER}.ipynb"
        ).read_bytes()
    assert Course.at(made).directory.root == str(made)
    assert not [p for p in made.parent.iterdir() if p != made], "something was left beside it"


def test_a_roster_becomes_students(tmp_path):
    roster = tmp_path / "roster.csv"
    roster.write_text(
        'id,First Name,Last name,email,lms_user_id,group\nann,Ann,"von, B",a@b.c,17,x\n\n名前,,,,\n',
        encoding="utf-8-sig",
    )
    assert main(["init", str(tmp_path / "class"), "--roster", str(roster)]) == 0
    with Gradebook(f"sqlite:///{tmp_path / 'class' / 'gradebook.db'}", "transformer-lab") as book:
        ann = book.find_student("ann")
        assert (ann.first_name, ann.last_name, ann.email, ann.lms_user_id) == ("Ann", "von, B", "a@b.c", "17")
        assert {student.id for student in book.students} == {"ann", "名前"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"name\nann\n", "`id`"),
        (b"", "`id`"),
        (b"id\nann\nann\n", "line 3: 'ann' is there twice"),
        (b"id,email\n,a@b.c\n", "line 2: the id is missing"),
        (b"id\na/b\n", "line 2: 'a/b' can be no id"),
        (b"id\n.a\n", "line 2: '.a' can be no id"),
        (b"id\nann,b\n", "line 2: 2 values"),
        (b"id\n\xff\n", "UTF-8"),
        (b"id\n" + b"a" * 200, "longer than"),
        (b'id\n"' + b"a" * 200_000, "line 2"),
        (None, "cannot be read"),
    ],
)
def test_a_roster_that_is_none_is_refused_and_nothing_is_made(content, says, tmp_path, capsys):
    roster = tmp_path / "roster.csv"
    if content is not None:
        roster.write_bytes(content)
    assert main(["init", str(tmp_path / "class"), "--roster", str(roster)]) == 2
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) == 1
    assert not (tmp_path / "class").exists()


def test_a_roster_may_be_headed_in_other_words(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("Surname,Student ID\nB,ann\n")
    assert read_roster(path) == [{"id": "ann", "last_name": "B"}]


def test_nothing_is_ever_overwritten(tmp_path, capsys):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "mine.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("class", "file", "link"):
        assert main(["init", str(tmp_path / name)]) == 2
        assert "nothing was changed" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["class", "file", "link", "mine.txt"]
    (tmp_path / "empty").mkdir()
    assert main(["init", str(tmp_path / "empty")]) == 0


def test_a_folder_that_could_not_be_finished_is_not_there(tmp_path, monkeypatch):
    def breaks(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(class_folder, "Gradebook", breaks)
    with pytest.raises(UserMistake, match="No space left"):
        class_folder.make_class_folder(tmp_path / "class")
    assert list(tmp_path.iterdir()) == []


def test_without_the_courses_notebooks_it_says_where_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setattr(class_folder, "ROOT", tmp_path)
    with pytest.raises(UserMistake, match="repository"):
        class_folder.make_class_folder(tmp_path / "class")


# ---- settings that do not load -----------------------------------------------------------------------


def spy(root: Path) -> Path:
    """Hand in a right answer that leaves a trace where it runs outside a jail; return where."""
    trace = root / "trace.txt"
    case("spy", notebook(first=f"open({str(trace)!r}, 'w')")).write(root / "submitted")
    return trace


@pytest.mark.parametrize("broken", ["no grader", "own settings", "own settings exit"])
def test_nbgrader_never_runs_learners_code_by_settings_that_do_not_load(broken, made, tmp_path):
    trace, before = spy(made), None
    if broken == "no grader":  # as in an environment without it
        before = tmp_path / "before"
        (before / "grader").mkdir(parents=True)
        (before / "grader" / "__init__.py").write_text("raise ImportError('there is no grader here')")
    else:
        text = "c = (" if broken == "own settings" else "raise SystemExit('no such settings')"
        (made / "class_settings.py").write_text(text)
    done = command(made, "-m", "nbgrader", "autograde", CHAPTER, before=before)
    assert done.returncode != 0
    assert not trace.exists()
    assert not (made / "autograded").exists()
    wanted = "no such settings" if "exit" in broken else "Nothing was done: "
    assert wanted in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("autograde", "02"), ("report", "02"), ("regrade", "02"), ("explain", "a", "02")]
)
@pytest.mark.parametrize("broken", ["c = (", "import no_such_module", "raise SystemExit('not today')", None])
def test_the_graders_own_commands_refuse_them_too(arguments, broken, made, capsys):
    if broken is None:
        (made / "nbgrader_config.py").unlink()
        (made / "nbgrader_config.py").symlink_to(made / "nowhere")
    else:
        (made / "nbgrader_config.py").write_text(broken)
    assert main([*arguments, "--course", str(made)]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("Nothing was done: the settings in ") and len(said.splitlines()) == 1
    assert sorted(p.name for p in made.iterdir() if p.name != "__pycache__") == [
        "course",
        "gradebook.db",
        "nbgrader_config.py",
        "solutions",
        "submitted",
    ]


def test_own_settings_are_read(made):
    (made / "class_settings.py").write_text("c = get_config()\nc.JailedAutograde.isolated = False\n")
    assert Course.at(made).config.JailedAutograde.isolated is False


def test_what_only_reads_the_settings_cannot_run_learners_code(made):
    """A script that uses nbgrader's own classes with these settings never came by the jail."""
    trace = spy(made)
    script = (
        "from nbgrader.apps import NbGraderAPI\n"
        "from grader.classroom.course import Course\nfrom pathlib import Path\n"
        "course = Course.at(Path('.'))\n"
        "api = NbGraderAPI(course.directory, config=course.config)\n"
        f"print(api.autograde({CHAPTER!r}, 'spy'))"
    )
    assert Course.at(made).config.Autograde.autograde_preprocessors == [RefuseWithoutJail]
    command(made, "-m", "nbgrader", "generate_assignment", CHAPTER, "--force")
    done = command(made, "-c", script)
    assert "'success': False" in done.stdout and "outside the jail" in done.stdout, done.stdout + done.stderr
    assert not trace.exists()


# ---- points of one's own -----------------------------------------------------------------------------


@jailed
def test_points_changed_in_the_source_and_released_count(made, capsys):
    source = made / "solutions" / CHAPTER / f"{CHAPTER}.ipynb"
    book = nbformat.read(source, as_version=4)
    (cell,) = [c for c in book.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "test-2-6"]
    assert cell.metadata.nbgrader.points == points()["2.6"] == 4
    cell.metadata.nbgrader.points = 6
    nbformat.write(book, source)
    released = command(made, "-m", "nbgrader", "generate_assignment", CHAPTER, "--force")
    assert released.returncode == 0, released.stderr[-2000:]
    case("perfect", notebook()).write(made / "submitted")
    case("blank", notebook({})).write(made / "submitted")
    case("wrong", notebook({"2.6": right_answers()["2.6"]})).write(made / "submitted")
    assert main(["autograde", "02", "--course", str(made), "--workers", "1"]) == 0
    assert "2.6 has 6 points in the release and 4 by its author" in capsys.readouterr().out
    with Gradebook(f"sqlite:///{made / 'gradebook.db'}", "transformer-lab") as kept:
        found = {s.student.id: (s.score, s.max_score) for s in kept.assignment_submissions(CHAPTER)}
    assert found == {"perfect": (21, 21), "blank": (0, 21), "wrong": (6, 21)}
    assert main(["regrade", "02", "--verify", "--course", str(made)]) == 0


@jailed
def test_a_release_with_a_test_that_nobody_can_judge_is_refused(made, capsys):
    path = made / "course" / "en" / CHAPTER / f"{CHAPTER}.ipynb"
    text = path.read_text(encoding="utf-8")
    case("one", notebook(changed())).write(made / "submitted")
    for old, new in (('check(\\"2.6\\"', 'check(\\"2.99\\"'), ('check(\\"2.6\\"', 'chick(\\"2.6\\"')):
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        assert main(["autograde", "02", "--course", str(made)]) == 2
        said = capsys.readouterr().err.strip()
        assert "test-2-6" in said and said.startswith("Nothing was graded")
    assert not (made / "autograded").exists()
