"""Grade the whole corpus as one class, beside two ordinary students, and say for each case what came out.

    python -m tests.hostile.run FOLDER [GROUP…]     writes FOLDER/results.json

The two ordinary students are graded once alone and once in the company of the corpus: their marks, files and
feedback must be the same.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nbgrader.converters import GenerateFeedback

from grader.classroom import run as classroom
from grader.jail import Limits
from tests.hostile.corpus import GROUPS, corpus
from tests.hostile.kit import CHAPTER, ROOT, Case, case, notebook

SEED = 20_260_101
# tight, so that hanging costs little time and taking much costs little memory
LIMITS = Limits(memory_bytes=512 << 20, cell_seconds=5, exercise_seconds=5, submission_seconds=60)
RECORD_LIMIT = 200_000  # bytes of one submission's record
CONTROLS = (
    case("control-right", notebook()),
    case(
        "control-wrong",
        notebook({"2.5": "def position_similarity(d_model, offsets):\n    return offsets * 1.0"}),
    ),
)
WITH_FEEDBACK = ("control-right", "control-wrong", "forge-printed-verdict", "<b>bold", "die-os-exit")


def make_course(root: Path, cases: list[Case]) -> classroom.Course:
    """A course folder with the released chapter and these submissions."""
    shutil.copytree(ROOT / "course" / "en" / CHAPTER, root / "course" / "en" / CHAPTER)
    for one in cases:
        one.write(root / "submitted")
    return classroom.Course.at(root)


def grade(root: Path, cases: list[Case]) -> tuple[classroom.Course, dict[str, dict]]:
    """Grade these submissions in a fresh course; return it and the records by student."""
    course = make_course(root, cases)
    summary = classroom.run(course, CHAPTER, workers=2, seed=SEED, limits=LIMITS, quiet=True)
    return course, {record["student"]: record for record in summary.graded}


def feedback(course: classroom.Course, student: str) -> str:
    """Return the page that nbgrader makes for a student."""
    directory = course.directory
    directory.assignment_id, directory.student_id = CHAPTER, student
    app = GenerateFeedback(coursedir=directory, config=course.config, force=True)
    app.log.setLevel("ERROR")
    app.start()
    return (course.folder("feedback", student, CHAPTER) / f"{CHAPTER}.html").read_text()


def graded_notebook(course: classroom.Course, student: str) -> str:
    return (course.folder("autograded", student, CHAPTER) / f"{CHAPTER}.ipynb").read_text()


def run_corpus(folder: Path, groups: Iterable[str] = tuple(GROUPS)) -> dict[str, Any]:
    """Return {"cases": [...], "controls": [...], "seconds", "peak_bytes"}."""
    cases = corpus(groups)
    start = time.monotonic()
    alone, alone_records = grade(folder / "alone", list(CONTROLS))
    together, records = grade(folder / "together", [*CONTROLS, *cases])
    pages = {student: feedback(together, student) for student in WITH_FEEDBACK if student in records}
    return {
        "user": os.getuid(),
        "cases": [
            _outcome(one, records[one.student], graded_notebook(together, one.student)) for one in cases
        ],
        "controls": [
            {
                "student": student,
                "same_marks": alone_records[student]["marks"] == records[student]["marks"],
                "same_notebook": graded_notebook(alone, student) == graded_notebook(together, student),
                "same_feedback": feedback(alone, student) == pages[student],
            }
            for student in (one.student for one in CONTROLS)
        ],
        "pages": pages,
        "seconds": time.monotonic() - start,
        "peak_bytes": max(record["peak_bytes"] for record in records.values()),
    }


def _outcome(one: Case, record: dict, graded: str) -> dict[str, Any]:
    """Compare what a case got with what it must get; `wrong` is empty when all is right."""
    got = {name.split("-", 1)[1].replace("-", "."): mark for name, mark in record["marks"].items()}
    notes = " ".join(record["notes"])
    printed = "".join(_printed(graded))
    wrong = []
    if got != one.expected:
        wrong.append(f"marks {got}, not {one.expected}")
    if one.note not in notes:
        wrong.append(f"no note with {one.note!r} in {notes!r}")
    if "LEAK" in printed:
        wrong.append(printed[:500])
    if one.student.startswith("spy-") and one.student != "spy-while-judged" and "looked" not in printed:
        wrong.append("it did not get to the end")
    if len(graded) > LIMITS.total_output_bytes * 2:
        wrong.append(f"a graded notebook of {len(graded)} bytes")
    if len(json.dumps(record)) > RECORD_LIMIT:
        wrong.append(f"a record of {len(json.dumps(record))} bytes")
    return {
        "group": one.group,
        "student": one.student,
        "expected": sum(one.expected.values()),
        "got": sum(got.values()),
        "seconds": record["seconds"],
        "wrong": wrong,
    }


def _printed(graded: str) -> list[str]:
    outputs = [output for cell in json.loads(graded)["cells"] for output in cell.get("outputs", [])]
    return ["".join(output.get("text", "")) for output in outputs]


def main() -> None:
    folder = Path(sys.argv[1])
    (folder / "results.json").write_text(json.dumps(run_corpus(folder, sys.argv[2:] or tuple(GROUPS))))


if __name__ == "__main__":
    main()
