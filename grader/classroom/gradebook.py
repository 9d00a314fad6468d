"""The one writer of nbgrader's gradebook. A submission's marks go in together or not at all."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from typing import Any

from nbformat import NotebookNode
from nbgrader.api import Comment, Grade, Gradebook, MissingEntry
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import compute_checksum
from sqlalchemy.exc import OperationalError, SAWarning
from traitlets.config import Config

from grader.errors import UserMistake
from grader.grading.align import role


def _busy(error: OperationalError) -> UserMistake:
    return UserMistake(
        f"The gradebook cannot be used ({error.orig}). Is it open in another program? The marks written so "
        "far are kept; go on with --resume."
    )


@dataclass
class InBook:
    """{test cell: points} as the gradebook has them: by the automatic grader, and by hand instead."""

    auto: dict[str, float] = field(default_factory=dict)
    by_hand: dict[str, float] = field(default_factory=dict)


class GradebookWriter:
    """Writes the marks of one chapter. A context manager.

    Raises UserMistake when the gradebook cannot be used.
    """

    def __init__(
        self, url: str, course_id: str, chapter: str, release: NotebookNode, config: Config | None = None
    ):
        self._chapter = chapter
        self._penalties = AssignLatePenalties(config=config or Config())
        self._penalties.init_plugin()
        try:
            self._book = Gradebook(url, course_id)
            self._register(release)
        except OperationalError as error:
            raise _busy(error) from error

    def __enter__(self) -> GradebookWriter:
        return self

    def __exit__(self, *_error: object) -> None:
        self._book.close()

    def _register(self, release: NotebookNode) -> None:
        """Make sure that the gradebook knows the chapter's cells as the release has them."""
        book, name = self._book, self._chapter
        book.update_or_create_assignment(name)
        try:
            book.find_notebook(name, name)
        except MissingEntry:
            book.add_notebook(name, name, kernelspec=json.dumps(release.metadata.get("kernelspec", {})))
        known = {cell.name: cell.max_score for cell in book.find_notebook(name, name).grade_cells}
        answers = {cell.name for cell in book.find_notebook(name, name).solution_cells}
        for cell in release.cells:
            about = cell.metadata.get("nbgrader", {})
            if role(cell) == "test" and known.get(about["grade_id"]) != float(about["points"]):
                points, kind = float(about["points"]), cell.cell_type
                book.update_or_create_grade_cell(
                    about["grade_id"], name, name, max_score=points, cell_type=kind
                )
            if role(cell) == "answer" and about["grade_id"] not in answers:
                book.update_or_create_solution_cell(about["grade_id"], name, name)

    def write(
        self,
        student: str,
        timestamp: str | None,
        marks: dict[str, float],
        notebook: NotebookNode,
        create: bool = True,
    ) -> float:
        """Write one submission's marks, every one of them, and return by how many seconds it was late.

        A mark that an instructor set by hand stays and is flagged for another look.
        Raises MissingEntry when the student is unknown and `create` is False, UserMistake when the gradebook
        cannot be written to, and what else the database raises; nothing of this submission is written then,
        and the next one finds the gradebook usable.
        """
        try:
            return self._write(student, timestamp, marks, notebook, create)
        except BaseException as error:
            self._book.db.rollback()
            if isinstance(error, OperationalError):
                raise _busy(error) from error
            raise

    def _write(
        self,
        student: str,
        timestamp: str | None,
        marks: dict[str, float],
        notebook: NotebookNode,
        create: bool,
    ) -> float:
        if create:
            self._book.update_or_create_student(student)
        when = {"timestamp": timestamp} if timestamp else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # nbgrader builds a submission before it adds it
            submission = self._book.update_or_create_submission(self._chapter, student, **when)
        mine = next(n for n in submission.notebooks if n.name == self._chapter)
        self._write_marks(mine, marks)
        self._write_comments(mine, notebook)
        self._book.db.flush()
        self._book.db.refresh(mine)
        late = submission.total_seconds_late
        mine.late_submission_penalty = self._penalty(student, mine, late)
        self._book.db.commit()
        return float(late)

    def _write_marks(self, mine: Any, marks: dict[str, float]) -> None:
        grades = {grade.name: grade for grade in mine.grades}
        for cell in mine.notebook.grade_cells:
            grade = grades.get(cell.name) or Grade(cell_id=cell.id, notebook=mine)
            grade.auto_score = marks.get(
                cell.name, 0.0
            )  # a cell without a verdict must not keep an older mark
            grade.needs_manual_grade = grade.manual_score is not None

    def _write_comments(self, mine: Any, notebook: NotebookNode) -> None:
        comments = {comment.name: comment for comment in mine.comments}
        cells = {c.metadata.nbgrader.grade_id: c for c in notebook.cells if role(c) == "answer"}
        for cell in mine.notebook.solution_cells:
            comment = comments.get(cell.name) or Comment(cell_id=cell.id, notebook=mine)
            own = cells.get(cell.name)
            blank = own is not None and own.metadata.nbgrader.get("checksum") == compute_checksum(own)
            comment.auto_comment = "No response." if blank else None

    def _penalty(self, student: str, mine: Any, late: float) -> float | None:
        if late <= 0:
            return None
        penalty = self._penalties.plugin_inst.late_submission_penalty(student, mine.score, late)
        return None if penalty is None else self._penalties._check_late_penalty(mine, penalty)

    def in_book(self, student: str) -> InBook | None:
        """Return what the gradebook has of one student; None when nothing."""
        try:
            mine = self._book.find_submission_notebook(self._chapter, self._chapter, student)
        except MissingEntry:
            return None
        return InBook(
            {grade.name: grade.auto_score for grade in mine.grades},
            {grade.name: grade.manual_score for grade in mine.grades if grade.manual_score is not None},
        )
