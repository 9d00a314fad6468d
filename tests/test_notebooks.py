"""The root conftest.py runs notebooks as tests: solutions strictly, learners' notebooks leniently."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.patience import HANG

ROOT = Path(__file__).resolve().parent.parent


def write_notebook(path: Path, source: str, stored: str) -> None:
    """A notebook of one cell whose stored output is `stored`."""
    path.parent.mkdir(parents=True)
    output = nbformat.v4.new_output("stream", name="stdout", text=stored)
    cell = nbformat.v4.new_code_cell(source, outputs=[output], execution_count=1)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> dict[str, str]:
    """How each notebook of a small checkout fared: {"solutions/01_right": "PASSED", ...}."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("conftest.py", "pyproject.toml"):
        (root / name).write_bytes((ROOT / name).read_bytes())
    notebooks = {
        "solutions/01_right": ("print(1)", "1\n"),
        "solutions/02_other": ("print(1)", "2\n"),
        "course/en/01_other": ("print(1)", "2\n"),
        "course/en/02_raises": ("1 / 0", ""),
    }
    for folder, content in notebooks.items():
        write_notebook(root / folder / f"{Path(folder).name}.ipynb", *content)
    write_notebook(root / "course/en/01_other/extra/unrelated.ipynb", "1 / 0", "")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "solutions", "course/en"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=HANG)
    found = re.findall(r"(PASSED|FAILED) (\S+?)/[^/\s]+::ipynb::Cell", done.stdout)
    assert found, done.stdout + done.stderr
    return {folder: result for result, folder in found}


def test_solution_must_give_its_stored_output(outcome):
    assert outcome["solutions/01_right"] == "PASSED"
    assert outcome["solutions/02_other"] == "FAILED"


def test_learners_notebook_must_only_run(outcome):
    assert outcome["course/en/01_other"] == "PASSED"
    assert outcome["course/en/02_raises"] == "FAILED"


def test_other_notebooks_are_left_alone(outcome):
    assert len(outcome) == 4
