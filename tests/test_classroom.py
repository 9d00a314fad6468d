"""Grading a class: resuming, the front door, verification, a cluster, reports."""

from __future__ import annotations

import csv
import json
import os
import pickle
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from grader.classroom import pool, regrade
from grader.classroom import run as classroom
from grader.classroom.gradebook import GradebookWriter
from grader.classroom.lock import Busy, only_writer
from grader.classroom.records import Records
from grader.classroom.reports import write_reports
from grader.cli import main
from grader.grading import job as submission
from grader.grading import session
from grader.jail import isolation_problem
from tests.hostile.kit import CHAPTER, ROOT, case, changed, notebook, points, release_bytes, right_answers
from tests.patience import HANG
from tests.stand_in import grade_or_die
from tests.unprivileged import as_nobody, open_scratch

SEED = 4321
NAMES = [f"s{number:02}" for number in range(12)]

pytestmark = [
    pytest.mark.timeout(HANG),
    pytest.mark.skipif(
        isolation_problem() is not None and not os.environ.get("CI"),
        reason=f"no isolation: {isolation_problem()}",
    ),
]


def submissions() -> list:
    """Twelve students: right, blank, wrong, half done, one that dies."""
    kinds = [
        notebook(),
        notebook({}),
        notebook(changed(_2_5="def position_similarity(d_model, offsets):\n    return offsets * 1.0")),
        notebook({"2.1": right_answers()["2.1"], "2.6": right_answers()["2.6"]}),
        notebook(changed(_2_6="import os; os._exit(1)")),
        notebook(changed(_2_5="import time\ntime.sleep(0.3)\n" + right_answers()["2.5"])),
    ]
    return [case(name, kinds[number % len(kinds)]) for number, name in enumerate(NAMES)]


@pytest.fixture
def course(tmp_path, fresh_class):
    return new_course(tmp_path / "course", fresh_class)


@pytest.fixture(scope="module")
def fresh_class(tmp_path_factory) -> Path:
    """A class of which nothing is graded, with the gradebook that nbgrader takes seconds to make."""
    root = tmp_path_factory.mktemp("fresh") / "course"
    shutil.copytree(ROOT / "course" / "en" / CHAPTER, root / "course" / "en" / CHAPTER)
    (root / "nbgrader_config.py").write_text(
        f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from grader.nbgrader_adapter.settings import configure\n"
        "configure(get_config(), Path(__file__).resolve().parent)\n"
    )
    for one in submissions():
        one.write(root / "submitted")
    Gradebook(classroom.Course.at(root).directory.db_url).close()
    return root


def new_course(root: Path, fresh_class: Path) -> classroom.Course:
    shutil.copytree(fresh_class, root)
    return classroom.Course.at(root)


def marks(course: classroom.Course) -> dict[str, dict[str, float]]:
    """{student: {test cell: mark}} as nbgrader's gradebook has them."""
    with Gradebook(course.directory.db_url) as book:
        submitted = book.assignment_submissions(CHAPTER)
        return {
            s.student.id: {g.name: g.auto_score for n in s.notebooks for g in n.grades} for s in submitted
        }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, fresh_class) -> dict[str, dict[str, float]]:
    """The marks of a run that nothing interrupted."""
    course = new_course(tmp_path_factory.mktemp("class") / "course", fresh_class)
    summary = classroom.run(course, CHAPTER, workers=1, seed=SEED, quiet=True)
    assert [record["student"] for record in summary.graded] == NAMES
    found = marks(course)
    assert set(found) == set(NAMES)
    assert sum(found["s00"].values()) == sum(points().values())
    assert sum(found["s01"].values()) == 0
    assert found["s04"]["test-2-6"] == 0 < found["s04"]["test-2-7"]
    return found


def command(course: classroom.Course, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "grader", *arguments, "--course", str(course.root)]


@pytest.mark.parametrize("attempt", range(3))
def test_a_run_that_was_killed_goes_on_where_it_stopped(attempt, course, undisturbed):
    """Kill the grader, with all it started, at a random moment; then resume."""
    dice = random.Random(attempt * 1000 + os.getpid())
    workers = str(1 + (attempt == 0))
    start = command(course, "autograde", "02", "--workers", workers, "--seed", str(SEED))
    process = subprocess.Popen(start, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    records, wanted = Records(course.root, CHAPTER), dice.randrange(0, 9)
    deadline = time.monotonic() + 200
    while len(records.latest()) < wanted and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(dice.uniform(0, 0.3))
    process.send_signal(random.choice([signal.SIGKILL, signal.SIGINT]) if attempt else signal.SIGKILL)
    process.communicate(timeout=HANG)
    done_before = records.latest()
    assert len(done_before) < len(NAMES), "it was over before it could be killed"
    again = command(course, "autograde", "02", "--workers", workers, "--resume")
    if not records.last_run():  # killed before it had begun
        again = start
    finished = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert marks(course) == undisturbed
    lines = [line for line in records.lines() if line["kind"] == "mark"]
    assert sorted(line["student"] for line in lines) == NAMES, "a submission was recorded twice or not at all"
    assert {line["student"] for line in lines[: len(done_before)]} == set(done_before)


def test_resuming_a_finished_run_does_nothing(course):
    first = classroom.run(course, CHAPTER, students=["s00", "s01"], workers=1, seed=SEED, quiet=True)
    again = classroom.run(course, CHAPTER, students=["s00", "s01"], workers=1, resume=True, quiet=True)
    assert (len(first.graded), len(again.graded), again.skipped) == (2, 0, 2)


def test_nbgraders_own_command_gives_the_same_mark_and_verification_agrees(course, undisturbed):
    classroom.run(course, CHAPTER, students=["s03", "s02"], workers=1, seed=SEED, quiet=True)
    assert marks(course) == {name: undisturbed[name] for name in ("s02", "s03")}
    nbgrader = [sys.executable, "-m", "nbgrader", "autograde", CHAPTER, "--student", "s03", "--force"]
    done = subprocess.run(nbgrader, cwd=course.root, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr[-2000:]
    assert marks(course)["s03"] == undisturbed["s03"]
    latest = Records(course.root, CHAPTER).latest()
    assert latest["s03"]["seed"] != SEED  # drawn anew, and the mark is the same
    assert regrade.verify(course, CHAPTER, quiet=True) == []


def test_verification_finds_what_was_changed(course):
    classroom.run(course, CHAPTER, students=["s00", "s01", "s02"], workers=1, seed=SEED, quiet=True)
    with Gradebook(course.directory.db_url) as book:
        book.find_grade("test-2-1", CHAPTER, CHAPTER, "s01").auto_score = 8
        book.db.commit()
    case("s02", notebook({})).write(course.root / "other")
    source = course.root / "other" / "s02" / CHAPTER / f"{CHAPTER}.ipynb"
    shutil.copy(source, course.root / "submitted" / "s02" / CHAPTER / f"{CHAPTER}.ipynb")
    found = regrade.verify(course, CHAPTER, quiet=True)
    assert "'s01', test-2-1: recorded 0, the gradebook has 8.0" in found
    assert f"'s02': {regrade.OTHER_NOW}" in found
    assert not [line for line in found if "s00" in line or "s02', test" in line], "what was graded is kept"


def test_a_resubmission_never_keeps_an_older_mark(course):
    classroom.run(course, CHAPTER, students=["s00"], workers=1, quiet=True)
    assert sum(marks(course)["s00"].values()) == sum(points().values())
    stale = course.root / "autograded" / "s00" / CHAPTER / "left.txt"
    stale.write_text("x")
    (course.root / "submitted" / "s00" / CHAPTER / f"{CHAPTER}.ipynb").write_bytes(b"")
    summary = classroom.run(course, CHAPTER, students=["s00"], workers=1, quiet=True)
    assert marks(course)["s00"] == dict.fromkeys(marks(course)["s00"], 0.0)
    assert any("empty" in note for note in summary.graded[0]["notes"])
    assert not stale.exists()


def test_a_mark_set_by_hand_stays_and_is_flagged(course):
    classroom.run(course, CHAPTER, students=["s01"], workers=1, quiet=True)
    with Gradebook(course.directory.db_url) as book:
        book.find_grade("test-2-1", CHAPTER, CHAPTER, "s01").manual_score = 5
        book.db.commit()
    classroom.run(course, CHAPTER, students=["s01"], workers=1, quiet=True)
    with Gradebook(course.directory.db_url) as book:
        grade = book.find_grade("test-2-1", CHAPTER, CHAPTER, "s01")
        assert (grade.manual_score, grade.auto_score, grade.needs_manual_grade) == (5, 0, True)


def hand_in(course: classroom.Course, student: str, book) -> None:
    """Replace what a student handed in."""
    folder = course.root / "submitted" / student
    if folder.exists():
        shutil.rmtree(folder)
    case(student, book).write(course.root / "submitted")


def seeds(course: classroom.Course) -> dict[str, int]:
    return {name: line["seed"] for name, line in Records(course.root, CHAPTER).latest().items()}


def test_a_resubmission_is_never_graded_by_a_seed_that_was_used_for_it(course):
    both = {"students": ["s00", "s01"], "workers": 1, "quiet": True}
    classroom.run(course, CHAPTER, seed=SEED, **both)
    assert seeds(course) == {"s00": SEED, "s01": SEED}
    hand_in(course, "s01", notebook(changed(_2_5="x = 1")))
    again = classroom.run(course, CHAPTER, resume=True, **both)
    assert [record["student"] for record in again.graded] == ["s01"]
    fresh = seeds(course)
    assert fresh["s00"] == SEED != fresh["s01"]
    hand_in(course, "s01", notebook(changed(_2_5="x = 2")))
    classroom.run(course, CHAPTER, seed=SEED, **both)
    assert seeds(course)["s01"] not in (SEED, fresh["s01"])
    assert seeds(course)["s00"] == SEED, "the same bytes by the same seed give nothing away"
    assert regrade.verify(course, CHAPTER, quiet=True) == []


def test_who_hands_in_after_a_run_began_is_not_graded_by_its_seed(course):
    """Others' feedback may be out by then, with numbers of their cases in it."""
    classroom.run(course, CHAPTER, students=["s00"], workers=1, seed=SEED, quiet=True)
    hand_in(course, "late", notebook())
    classroom.run(course, CHAPTER, students=["s00", "late"], workers=1, resume=True, quiet=True)
    found = seeds(course)
    assert found["s00"] == SEED != found["late"]
    assert sum(marks(course)["late"].values()) == sum(points().values())


def test_resuming_by_another_protection_is_refused(course, capsys):
    one = ["autograde", "02", "--students", "s00", "--workers", "1", "--course", str(course.root)]
    assert main([*one, "--without-isolation"]) == 0
    lines = len(Records(course.root, CHAPTER).lines())
    assert main([*one, "--resume"]) == 2
    said = capsys.readouterr().err
    assert "WITHOUT isolation" in said and "Run without --resume" in said
    assert main(one) == 0
    assert Records(course.root, CHAPTER).latest()["s00"]["isolated"] is True
    assert main([*one, "--resume", "--without-isolation"]) == 2
    assert main([*one, "--resume", "--seed", "1"]) == 2
    assert main([*one, "--resume"]) == 0
    assert len(Records(course.root, CHAPTER).lines()) == lines + 2, "what is refused leaves no line"


def test_a_mark_is_recomputed_by_its_own_seed_and_protection(course, capsys, monkeypatch):
    monkeypatch.setattr(regrade, "cores", lambda: 1)  # a pool of its own for two would cost more than they do
    here = ["--course", str(course.root)]
    classroom.run(course, CHAPTER, students=["s00"], workers=1, seed=1, isolated=False, quiet=True)
    classroom.run(course, CHAPTER, students=["s01", "s03"], workers=1, seed=2, quiet=True)
    before = Records(course.root, CHAPTER).latest()
    for arguments in (["regrade", "02"], ["regrade", "02", "--verify"]):
        assert main([*arguments, *here]) == 2
        assert "'s00' is one" in capsys.readouterr().err
    assert main(["regrade", "02", "--verify", "--students", "s0[13]", *here]) == 0
    assert main(["regrade", "02", "--verify", "--without-isolation", *here]) == 0
    assert "WITHOUT isolation" in capsys.readouterr().out
    assert main(["regrade", "02", "--without-isolation", "--write", *here]) == 0
    after = Records(course.root, CHAPTER).latest()
    for key in ("seed", "isolated", "marks", "submission"):
        assert {s: line[key] for s, line in after.items()} == {s: line[key] for s, line in before.items()}
    assert {s: line["run"] for s, line in after.items()} != {s: line["run"] for s, line in before.items()}


def test_records_of_older_versions_say_by_their_run_how_they_were_isolated(tmp_path):
    records = Records(tmp_path, CHAPTER)
    records.append({"kind": "run", "run": "a", "isolated": False})
    records.append({"kind": "mark", "run": "a", "student": "s"})
    assert records.latest()["s"]["isolated"] is False


def test_two_never_write_at_once(course, capsys):
    one = ["autograde", "02", "--students", "s00", "--workers", "1", "--course", str(course.root)]
    with only_writer(course.root):
        for arguments in (one, ["regrade", "02", "--verify", "--course", str(course.root)]):
            assert main(arguments) == 2
            said = capsys.readouterr().err.strip()
            assert "Another program is grading" in said and len(said.splitlines()) == 1
        assert not Records(course.root, CHAPTER).lines()
        assert not (course.root / "autograded").exists()
    assert main(one) == 0


def test_a_lock_is_let_go_of_when_its_holder_is_killed(tmp_path):
    hold = (
        "import sys, time\nfrom pathlib import Path\nfrom grader.classroom.lock import only_writer\n"
        "with only_writer(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(1000)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(Busy), only_writer(tmp_path):
        pass
    holder.kill()
    holder.communicate(timeout=HANG)
    with only_writer(tmp_path):
        pass


def test_a_gradebook_that_is_held_by_another_program_loses_nothing(course, capsys):
    one = ["autograde", "02", "--workers", "1", "--course", str(course.root), "--students"]
    assert main([*one, "s00"]) == 0
    other = sqlite3.connect(course.root / "gradebook.db")
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert main([*one, "s01"]) == 2
    finally:
        other.rollback()
        other.close()
    said = capsys.readouterr().err
    assert "gradebook cannot be used" in said and "Traceback" not in said
    assert set(marks(course)) == {"s00"}
    assert main([*one, "s01", "--resume"]) == 0
    assert set(marks(course)) == {"s00", "s01"}


def test_a_students_id_may_look_like_a_pattern(course):
    for name in ("*", "[s]0", "s0"):
        hand_in(course, name, notebook({}))
    here = ["--workers", "1", "--course", str(course.root)]
    assert main(["autograde", "02", "--students", "[s]0", *here]) == 0
    assert set(marks(course)) == {"[s]0"}, "an id before a pattern"
    for name in NAMES[1:]:
        shutil.rmtree(course.root / "submitted" / name)
    assert main(["autograde", "02", "--students", "*", *here]) == 0
    assert set(marks(course)) == {"*", "[s]0", "s0", "s00"}, "* is everyone"


def test_lateness_is_counted(course):
    (course.root / "submitted" / "s00" / CHAPTER / "timestamp.txt").write_text("2026-03-02 00:00:30 UTC")
    with Gradebook(course.directory.db_url) as book:
        book.add_assignment(CHAPTER, duedate="2026-03-02 00:00:00 UTC")
    summary = classroom.run(course, CHAPTER, students=["s00"], workers=1, quiet=True)
    assert summary.graded[0]["late_seconds"] == 30
    assert "1 late" in str(summary)


def test_a_cluster_that_loses_a_worker_gives_the_same_gradebook(course, undisturbed):
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        records = Records(course.root, CHAPTER)
        victim = next(iter(cluster.workers.values())).process.process.pid
        killed = threading.Event()

        def kill_midway():
            deadline = time.monotonic() + 200
            while len(records.latest()) < 3 and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)
            killed.set()

        killer = threading.Thread(target=kill_midway)
        killer.start()
        address = cluster.scheduler_address
        summary = classroom.run(course, CHAPTER, scheduler=address, seed=SEED, quiet=True)
        killer.join()
    assert killed.is_set()
    assert len(summary.graded) == len(NAMES)
    assert marks(course) == undisturbed
    lines = [line["student"] for line in records.lines() if line["kind"] == "mark"]
    assert sorted(lines) == NAMES


def test_reports(course):
    odd = ["=1+1", "a,b", '"q"', "<script>alert(1)</script>".replace("/", "-"), "名前"]
    for name in odd:
        case(
            name, notebook(changed(_2_5="def position_similarity(d_model, offsets):\n    return None"))
        ).write(course.root / "submitted")
    classroom.run(course, CHAPTER, students=["s00", "s01", "s02", *odd], workers=1, seed=SEED, quiet=True)
    with Gradebook(course.directory.db_url) as book:
        book.update_or_create_student("=1+1", first_name="=HYPERLINK(1)", last_name="@x", email="+a@b.c")
        book.add_student("absent")
    canvas, moodle, page = write_reports(course, CHAPTER, exercises=True)
    with open(canvas, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0][:5] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    assert rows[0][6] == f"{CHAPTER} 2.1 PositionalEncoding"
    assert rows[1][5:] == ["19", "8", "3", "4", "4"]
    by_id = {row[2]: row for row in rows[2:]}
    assert by_id["s00"][5:] == ["19", "8", "3", "4", "4"]
    assert by_id["absent"][5:] == [""] * 5
    assert by_id["a,b"][5:] == ["16", "8", "0", "4", "4"]
    for path in (canvas, moodle):
        with open(path, newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        cells = [cell for cell in cells if cell != "-"]  # Moodle's word for no grade
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "8 of 9 students handed in" in text
    assert "2.5 position_similarity" in text


def test_how_a_mark_came_about_is_explained(course, capsys):
    hand_in(course, "s02", notebook(changed(_2_5="def position_similarity(d_model, offsets):\n    return 1")))
    (course.root / "submitted" / "s02" / CHAPTER / "x.txt").write_text("x")
    classroom.run(course, CHAPTER, students=["s02"], workers=1, seed=SEED, quiet=True)
    with Gradebook(course.directory.db_url) as book:
        book.find_grade("test-2-1", CHAPTER, CHAPTER, "s02").manual_score = 5
        book.find_submission_notebook(CHAPTER, CHAPTER, "s02").late_submission_penalty = 2
        book.db.commit()
    arguments = ["explain", "s02", "02", "--course", str(course.root)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    record = Records(course.root, CHAPTER).latest()["s02"]
    for part in (
        "16 of 19 by the grader",
        record["submission"] + "\n",
        record["exercises"],
        f"seed {SEED}, in a jail",
        f"torch {record['versions']['torch']}",
        "test-2-1: 5 instead of 8",
        "penalty     2",
        "gradebook   11 of 19",
        "2.5 position_similarity: 0 of 3",
        "failed",
        "Other files were not used: x.txt.",
    ):
        assert part in said, part
    hand_in(course, "s02", notebook({}))
    assert main(arguments) == 0
    assert "another one lies in the folder now" in capsys.readouterr().out
    assert main(["explain", "nobody", "02", "--course", str(course.root)]) == 2
    assert "no recorded mark of 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [("autograde", "77"), ("autograde", "02", "--students", "nobody"), ("report", "02"), ("regrade", "02")],
)
def test_mistakes_of_the_instructor_are_one_clear_line(arguments, course, capsys):
    assert main([*arguments, "--course", str(course.root)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_what_breaks_a_worker_costs_no_other_submission(monkeypatch):
    monkeypatch.setattr(pool, "grade_elsewhere", grade_or_die)
    monkeypatch.setattr(pool, "warm_jail", lambda _isolated: None)
    contents = {f"s{n}": b"die" if n in (2, 7) else b"raise" if n == 5 else b"%d" % n for n in range(12)}
    jobs = {
        student: (lambda content=content: submission.Job(content, (), b"", SEED))
        for student, content in contents.items()
    }
    outcomes = dict(pool.on_this_machine(jobs, workers=2))
    assert set(outcomes) == set(contents)
    failed = {student for student, outcome in outcomes.items() if isinstance(outcome, BaseException)}
    assert failed == {"s2", "s5", "s7"}
    assert all(
        outcomes[student].notebook == content.decode()
        for student, content in contents.items()
        if student not in failed
    )


GRADES_BESIDE_A_THREAD = """
import sys, threading
from grader.classroom import pool
from grader.grading.job import Job
from tests.stand_in import say_and_wait

if __name__ == "__main__":
    pool.grade_elsewhere, pool.warm_jail = say_and_wait, lambda isolated: None
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    read = lambda: Job(sys.argv[1].encode(), (), b"", 1)
    list(pool.on_this_machine({"a": read, "b": read}, workers=2))
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere a worker is no child that can be bound"
)
def test_workers_of_a_grader_with_threads_die_with_it(tmp_path):
    """They are forked from a process kept for it, which has to end as well."""
    script, pids = tmp_path / "grades.py", tmp_path / "pids"
    script.write_text(GRADES_BESIDE_A_THREAD)
    pids.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "course")])}
    grader = subprocess.Popen([sys.executable, script, pids], cwd=ROOT, env=environment)
    deadline = time.monotonic() + HANG
    while len(workers := [int(path.name) for path in pids.iterdir()]) < 2 and time.monotonic() < deadline:
        assert grader.poll() is None
        time.sleep(0.05)
    kept = {parent_of(pid) for pid in workers}
    assert len(workers) == 2 and len(kept) == 1 and grader.pid not in kept
    grader.kill()
    grader.wait(HANG)
    while (left := [pid for pid in (*workers, *kept) if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def is_running(pid: int) -> bool:
    """A process that has ended and that nobody has asked about yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def jobs_of_which_two_cannot_be_read() -> dict[str, pool.Read]:
    """Eight students; reading the first and the fifth raises."""

    def read(number: int) -> submission.Job:
        if number in (0, 4):
            raise ValueError("cannot be read")
        return submission.Job(b"%d" % number, (), b"", SEED)

    return {f"s{number}": (lambda number=number: read(number)) for number in range(8)}


def only_two_failed(outcomes: dict) -> bool:
    right = {f"s{number}" for number in range(8)}
    failed = {student for student, outcome in outcomes.items() if isinstance(outcome, ValueError)}
    return (
        set(outcomes) == right
        and failed == {"s0", "s4"}
        and all(outcomes[student].notebook == student[1:] for student in right - failed)
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_submission_that_cannot_be_read_costs_no_other(workers, monkeypatch):
    monkeypatch.setattr(pool, "grade", lambda job: submission.Outcome.from_json(grade_or_die(job)))
    monkeypatch.setattr(pool, "grade_elsewhere", grade_or_die)
    monkeypatch.setattr(pool, "warm_jail", lambda _isolated: None)
    assert only_two_failed(dict(pool.on_this_machine(jobs_of_which_two_cannot_be_read(), workers)))


def test_a_submission_that_cannot_be_read_costs_no_other_on_a_cluster(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(pool, "grade_elsewhere", grade_or_die)
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        found = dict(pool.on_dask(jobs_of_which_two_cannot_be_read(), cluster.scheduler_address))
    assert only_two_failed(found)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_tells_whose_submission_cannot_be_read_and_marks_the_others(
    workers, course, monkeypatch, capsys
):
    real = classroom.intake.read_submission

    def read(submitted, student, *more):
        if student == "s01":
            raise OSError("the disk is broken here")
        return real(submitted, student, *more)

    arguments = ["02", "--course", str(course.root), "--students", "s00", "s01", "s02"]
    many = ["--workers", str(workers)]
    assert main(["autograde", *arguments, *many]) == 0
    assert main(["autograde", *arguments, *many, "--resume"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(classroom.intake, "read_submission", read)
    assert main(["autograde", *arguments, *many, "--resume"]) == 1
    said = capsys.readouterr().out
    assert "0 graded" in said
    assert "THE GRADER FAILED on 's01', who has no mark: OSError: the disk is broken here" in said
    assert main(["autograde", *arguments, *many]) == 1
    said = capsys.readouterr().out
    assert "2 graded" in said
    assert "THE GRADER FAILED on 's01'" in said
    differences = regrade.verify(course, CHAPTER, quiet=True)
    assert differences == ["'s01': could not be graded again: the disk is broken here"]


def test_marks_that_cannot_be_written_cost_no_other(course, monkeypatch):
    real = GradebookWriter._write

    def write(self, student, *more):
        if student == "s01":
            self._book.update_or_create_student("half", no_such_column=1)
        return real(self, student, *more)

    monkeypatch.setattr(GradebookWriter, "_write", write)
    summary = classroom.run(course, CHAPTER, students=["s00", "s01", "s02"], workers=1, quiet=True)
    assert list(summary.failed) == ["s01"]
    assert [record["student"] for record in summary.graded] == ["s00", "s02"]
    assert set(marks(course)) == {"s00", "s02"}


def test_a_failure_of_the_grader_is_told_and_leaves_others_alone(course, monkeypatch, capsys):
    real = pool.grade

    def fails_on_blank(job):
        if rb"NotImplementedError(\"TODO 2.5" in job.submission:
            raise RuntimeError("the grader broke")
        return real(job)

    monkeypatch.setattr(pool, "grade", fails_on_blank)
    arguments = [
        "autograde",
        "02",
        "--students",
        "s00",
        "s01",
        "--workers",
        "1",
        "--course",
        str(course.root),
    ]
    assert main(arguments) == 1
    assert "THE GRADER FAILED on 's01'" in capsys.readouterr().out
    assert set(marks(course)) == {"s00"}


def test_a_judge_that_breaks_costs_nobody_a_mark(course, monkeypatch, capsys):
    def broken(_key, _observe):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(session, "judge", broken)
    one = ["autograde", "02", "--students", "s00", "--workers", "1", "--course", str(course.root)]
    assert main(one) == 1
    assert "THE GRADER FAILED on 's00'" in (said := capsys.readouterr().out)
    assert "a bug of ours" in said
    assert marks(course) == {} and Records(course.root, CHAPTER).latest() == {}


def test_a_worker_with_other_exercises_is_refused():
    with pytest.raises(submission.OtherExercises):
        submission.grade(submission.Job(None, (), release_bytes(), SEED, CHAPTER, "another hash"))
    for mistake in (
        submission.OtherExercises(),
        submission.NotIsolated("why"),
    ):  # they come back from workers
        assert str(pickle.loads(pickle.dumps(mistake))) == str(mistake)


def test_a_record_says_how_to_recompute_a_mark(course):
    classroom.run(course, CHAPTER, students=["s02"], workers=1, seed=SEED, quiet=True)
    record = Records(course.root, CHAPTER).latest()["s02"]
    assert record["seed"] == SEED
    assert len(record["submission"]) == len(record["exercises"]) == 64
    assert {"python", "torch", "numpy", "nbgrader"} <= set(record["versions"])
    assert json.loads(json.dumps(record)) == record


@pytest.mark.timeout(HANG)
@pytest.mark.skipif(os.geteuid() != 0, reason="already run as a user without rights")
def test_what_depends_on_rights_as_a_user_without_any():
    """Those in which processes are started, killed and gone on without: where rights could matter."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-x", __file__]
    command += ["-k", "stopped and 1 or breaks_a_worker or own_command"]
    with open_scratch() as folder:
        done = as_nobody([*command, f"--basetemp={folder}/base"], folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
