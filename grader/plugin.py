"""This project's steps in nbgrader's pipelines; `configure` puts them in."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from nbformat.notebooknode import NotebookNode
from nbgrader import preprocessors as stock
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Config

from grader.lesson import HIDDEN_BEGIN, HIDDEN_END, without_solutions
from transformer_lab.checking.grading import ROOT_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
COURSE = "transformer-lab"  # nbgrader's name for it, in gradebooks


class NameTheTodo(stock.ClearSolutions):
    """Replace each solution by a stub that says which TODO it is; nbgrader's own names none."""

    def _replace_solution_region(self, cell: NotebookNode, language: str) -> bool:
        before, cell.source = cell.source, without_solutions(cell.source)
        return cell.source != before


class ReleaseMetadata(NbGraderPreprocessor):
    """Drop what says something about the author's copy only, and say that the file is built."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict]:
        lab = nb.metadata.get("transformer_lab", {})
        nb.metadata["transformer_lab"] = {"built_from": lab.get("built_from", ""), "edit": "never by hand"}
        return nb, resources


class HideTests(NbGraderPreprocessor):
    """Take hidden tests out of a feedback page: a learner reads the rows, not the test's source."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if HIDDEN_BEGIN in cell.source:
            head, rest = cell.source.split(HIDDEN_BEGIN, 1)
            tail = rest.split(HIDDEN_END, 1)[1] if HIDDEN_END in rest else ""
            cell.source = (head.rstrip() + tail.rstrip()).strip()
        return cell, resources


class KeepRightAnswers(NbGraderPreprocessor):
    """Drop stderr from test cells: a warning is no mistake, but nbgrader gives 0 points for it."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade"):
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        return cell, resources


def _put_tools_on_path() -> None:
    """nbgrader starts `alembic` by its bare name; an environment that is not activated hides it."""
    tools = str(Path(sys.executable).parent)
    if tools not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([tools, os.environ.get("PATH", "")])


def configure(c: Config, root: Path = ROOT, jailed: bool = True) -> None:
    """Set up nbgrader for a course whose folders lie in `root`.

    jailed: `nbgrader autograde` runs learners' code in a jail and judges it outside. False leaves nbgrader's
    own way, which trusts learners' code with everything: it is there to be compared with.
    """
    if jailed:
        from grader.front_door import install

        install()
    os.environ[ROOT_VARIABLE] = str(ROOT)  # kernels started by nbgrader find the judge by it
    _put_tools_on_path()
    c.CourseDirectory.root = str(root)
    c.CourseDirectory.course_id = COURSE
    c.CourseDirectory.source_directory = "solutions"
    c.CourseDirectory.release_directory = "course/en"
    # Lessons and questions stand beside the built notebooks: they must never reach a learner.
    c.CourseDirectory.ignore = [
        ".ipynb_checkpoints",
        "__pycache__",
        "*.py",
        "*.pyc",
        "*.toml",
        "*.safetensors",
    ]
    c.GenerateAssignment.preprocessors = [
        stock.LockCells,
        NameTheTodo,
        stock.ClearOutput,
        stock.CheckCellMetadata,
        stock.ComputeChecksums,
        stock.SaveCells,  # the gradebook keeps the hidden tests, so this stands before the next
        stock.ClearHiddenTests,
        stock.ComputeChecksums,  # again: the released cells differ from the saved ones
        stock.CheckCellMetadata,
        ReleaseMetadata,
    ]
    c.OverwriteCells.add_missing_cells = True  # a deleted test cell comes back
    c.Autograde.autograde_preprocessors = [
        stock.Execute,
        KeepRightAnswers,
        stock.LimitOutput,
        stock.SaveAutoGrades,
        stock.AssignLatePenalties,
        stock.CheckCellMetadata,
    ]
    c.GenerateFeedback.preprocessors = [
        stock.GetGrades,
        HideTests,
        "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
    ]
    c.Execute.timeout = 120
