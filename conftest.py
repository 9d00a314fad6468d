"""The notebooks are tests, too: every code cell is run in a real kernel, in order.

pytest's --nbval and --nbval-lax exclude each other for one run, so the notebooks are collected here instead,
by nbval's own classes:

- ``solutions/NN_topic/NN_topic.ipynb`` strictly: each cell gives the output that is stored in the notebook;
- ``course/en/NN_topic/NN_topic.ipynb`` leniently: a blank learner's notebook runs without an exception.
"""

import os
from pathlib import Path

import pytest

# Before numpy and torch are imported, here and in the kernels: with one thread, sums are the same everywhere.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# Chapter 09 trains a small model, as it did when its stored outputs were made (grader/build.py).
os.environ.setdefault("TRANSFORMER_LAB_BUDGET", "small")

ROOT = Path(__file__).parent
STRICT = {"solutions": True, "course/en": False}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the course's notebooks: FOLDER/NN_topic/NN_topic.ipynb and no others."""
    if file_path.suffix != ".ipynb" or file_path.stem != file_path.parent.name:
        return None
    strict = STRICT.get(file_path.parent.parent.relative_to(ROOT).as_posix())
    if strict is None:
        return None
    from nbval.plugin import IPyNbFile  # here, since most runs of pytest collect no notebook

    notebook = IPyNbFile.from_parent(parent, path=file_path)
    notebook.compare_outputs = strict
    return notebook


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables that tests recorded with record_property("table", text), also by other workers."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    tables = [
        (report.nodeid, text)
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == "table"
    ]
    for nodeid, text in sorted(tables):
        terminalreporter.section(nodeid, sep="-")
        terminalreporter.write_line(text)
