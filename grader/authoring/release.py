"""The steps by which nbgrader makes a learner's notebook of a solution notebook."""

from __future__ import annotations

from typing import Any

from nbformat.notebooknode import NotebookNode
from nbgrader import preprocessors as stock
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Config

from grader.authoring.lesson import without_solutions


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


def set_release_steps(c: Config) -> None:
    """Set the steps of nbgrader's generate_assignment."""
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
