"""nbgrader's settings for this course; `configure` is all that a nbgrader_config.py calls."""

from __future__ import annotations

import sys
from pathlib import Path

from nbformat.notebooknode import NotebookNode
from nbgrader import preprocessors as stock
from nbgrader.converters.base import NbGraderException
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Application, Config
from traitlets.config.loader import PyFileConfigLoader

from grader.authoring.lesson import HIDDEN_BEGIN, HIDDEN_END
from grader.authoring.release import set_release_steps
from grader.layout import ROOT, set_folders

OWN_SETTINGS = "class_settings.py"


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


class RefuseWithoutJail(NbGraderPreprocessor):
    """Stands where nbgrader's own converter would run learners' code: the jailed one never comes here."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        raise NbGraderException(
            "Learners' code was about to run outside the jail. Grade with `nbgrader autograde`, formgrader "
            "or `python -m grader autograde`."
        )


def configure(c: Config, root: Path = ROOT, jailed: bool = True) -> None:
    """Set up nbgrader for a course whose folders lie in `root`, then read class_settings.py there.

    jailed: `nbgrader autograde` runs learners' code in a jail and judges it outside. False leaves nbgrader's
    own way, which trusts learners' code with everything: it is there to be compared with. Only a Jupyter
    application that is running, nbgrader's own or JupyterLab, is led through the jail: others that merely
    read these settings find nbgrader as it was, but for a step that refuses to run learners' code.
    Raises whatever class_settings.py raises.
    """
    if jailed and Application.initialized():
        from grader.nbgrader_adapter.converter import install

        install()
    set_folders(c, root)
    set_release_steps(c)
    c.OverwriteCells.add_missing_cells = True  # a deleted test cell comes back
    c.Autograde.autograde_preprocessors = [RefuseWithoutJail] if jailed else _own_way()
    c.GenerateFeedback.preprocessors = [
        stock.GetGrades,
        HideTests,
        "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
    ]
    # A page is out of date once a mark is recomputed or a comment is written. nbgrader goes by the time of
    # the submission and does not see that, so all pages are made anew: about a second each.
    c.GenerateFeedback.force = True
    c.ZipCollectApp.collector_plugin = "grader.nbgrader_adapter.collector.RosterCollector"
    c.Execute.timeout = 120
    if str(root) not in sys.path:
        sys.path.append(str(root))  # where a rule for late work lies; last, so that it hides nothing
    if (root / OWN_SETTINGS).is_file():
        c.merge(PyFileConfigLoader(OWN_SETTINGS, path=str(root)).load_config())


def _own_way() -> list[type]:
    return [
        stock.Execute,
        KeepRightAnswers,
        stock.LimitOutput,
        stock.SaveAutoGrades,
        stock.AssignLatePenalties,
        stock.CheckCellMetadata,
    ]
