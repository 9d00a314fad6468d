"""`make demo`: an invented class, graded by nbgrader's own commands, and its gradebook as a table."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from grader.authoring.build import ROOT, select
from grader.errors import UserMistake
from grader.exercises import of_chapter
from grader.workshop import invent

DEMO = ROOT / "work" / "demo"
TIMEOUT = 1800  # seconds for one nbgrader command

Answers = Callable[[str], dict[str, str]]
STUDENTS: dict[str, Answers] = {
    "perfect": invent.perfect,
    "blank": lambda chapter: {},
    "half_done": invent.half,
    "mistaken_1": lambda chapter: invent.mistaken(chapter, 0),
    "mistaken_2": lambda chapter: invent.mistaken(chapter, 1),
}


def demo(names: Iterable[str] = (), root: Path = DEMO) -> int:
    """Grade the invented class on the named chapters (all when none is named) and print the marks."""
    chapters = [chapter for chapter in select(names) if of_chapter(chapter)]
    make_class(root, chapters)
    started = time.monotonic()
    for chapter in chapters:
        print(f"{chapter}: grading {len(STUDENTS)} submissions", flush=True)
        nbgrader(root, "autograde", chapter)
        nbgrader(root, "generate_feedback", chapter)
    nbgrader(root, "export", "--to", str(root / "grades.csv"))
    print_table(root / "grades.csv")
    print(f"\n{len(chapters) * len(STUDENTS)} submissions in {time.monotonic() - started:.0f} s")
    print(f"gradebook:  {root / 'grades.csv'}")
    print(f"feedback:   {root / 'feedback'}  (open half_done/*/*.html in a browser)")
    return 0


def make_class(root: Path, chapters: Iterable[str]) -> None:
    """Make a course folder with the released chapters and everyone's submissions."""
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    shutil.copy(ROOT / "nbgrader_config.py", root / "nbgrader_config.py")
    for chapter in chapters:
        folder = root / "solutions" / chapter
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "solutions" / chapter / f"{chapter}.ipynb", folder)
        nbgrader(root, "generate_assignment", chapter)
        for student, answers in STUDENTS.items():
            notebook = invent.fill(invent.released(chapter), answers(chapter))
            invent.submit(root, student, chapter, notebook)


def nbgrader(root: Path, *arguments: str) -> str:
    """Run one nbgrader command in a course folder and return what it wrote.

    Raises UserMistake with nbgrader's own last lines when it fails.
    """
    command = [sys.executable, "-m", "nbgrader", *arguments]
    env = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise UserMistake(f"`nbgrader {' '.join(arguments)}` failed in {root}:\n{last}")
    return done.stdout + done.stderr


def read_grades(path: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Return {student: {chapter: (score, max_score)}} from nbgrader's exported gradebook."""
    grades: dict[str, dict[str, tuple[float, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            marks = float(row["score"] or 0), float(row["max_score"])
            grades.setdefault(row["student_id"], {})[row["assignment"]] = marks
    return grades


def print_table(path: Path) -> None:
    """Print an exported gradebook: a row for each student, a column for each chapter."""
    grades = read_grades(path)
    chapters = sorted({chapter for marks in grades.values() for chapter in marks})
    print("\n" + f"{'student':<14}" + "".join(f"{chapter.split('_')[0]:>14}" for chapter in chapters))
    for student in STUDENTS:
        marks = (grades.get(student, {}).get(chapter, (0.0, 0.0)) for chapter in chapters)
        print(f"{student:<14}" + "".join(f"{f'{score:g} / {full:g}':>14}" for score, full in marks))
