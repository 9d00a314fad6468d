"""What is taken away from a graded chapter: marks for Canvas and Moodle, a page about the class."""

from __future__ import annotations

from pathlib import Path

from grader.classroom.class_page import class_page
from grader.classroom.course import Course
from grader.classroom.results import columns_of, rows_of
from grader.classroom.tables import canvas_csv, moodle_csv


def write_reports(
    course: Course, chapter: str, folder: Path | None = None, exercises: bool = False
) -> list[Path]:
    """Write CHAPTER-canvas.csv, CHAPTER-moodle.csv and CHAPTER.html, and return their paths.

    exercises: Canvas gets a column for each exercise, too, and makes an assignment of each.
    Raises UnknownName when the gradebook does not know the chapter.
    """
    folder = folder or course.root / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    columns = columns_of(course.release(chapter))
    rows = rows_of(course, chapter)
    pages = {
        f"{chapter}-canvas.csv": canvas_csv(chapter, columns, rows, exercises),
        f"{chapter}-moodle.csv": moodle_csv(chapter, columns, rows),
        f"{chapter}.html": class_page(chapter, columns, rows),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in pages]
