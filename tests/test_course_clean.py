"""What learners receive holds no answer, no hidden test and no mistake's code; nothing names one machine."""

import re
import struct
import subprocess
from functools import cache
from pathlib import Path

import nbformat
import pytest

from grader.authoring.lesson import read_lesson, solution_lines
from grader.exercises import by_chapter
from grader.exercises.edits import source_of
from tests.patience import HANG

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "course" / "en").glob("*/*.ipynb"))
PACKAGE = sorted((ROOT / "course" / "transformer_lab").rglob("*.py"))
DATA = sorted((ROOT / "course" / "transformer_lab" / "checking" / "stored" / "data").iterdir())
LONG = 30  # characters from which on a line is taken to be of one origin
ORDINARY = re.compile(r"^(def|class|import|from|super\(\)|#|\"\"\"|raise NotImplementedError)")


def code_of(notebook: Path) -> str:
    cells = nbformat.read(notebook, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


def lines_of(source: str) -> set[str]:
    """The lines of some code that are long enough to know again."""
    lines = (line.strip() for line in source.splitlines())
    return {line for line in lines if len(line) >= LONG and not ORDINARY.match(line)}


def right_lines(chapter: str) -> set[str]:
    """Lines that are right and may stand anywhere: the lesson's, the parts', a reference's, ..."""
    lessons = (ROOT / "solutions").glob("*/*.py")  # another chapter may build on what is a mistake here
    parts = ROOT / "course" / "transformer_lab" / "parts" / "finished.py"
    lines = {x.strip() for path in (*lessons, parts) for x in path.read_text(encoding="utf-8").splitlines()}
    for exercise in by_chapter()[chapter]:
        for symbol in (exercise.reference, exercise.answer, *exercise.alternatives):
            lines |= lines_of(source_of(symbol))
    return lines


@cache
def shown_to_learners() -> dict[Path, str]:
    """All code that a learner receives, and the text in the data files."""
    texts = {path: code_of(path) for path in NOTEBOOKS}
    texts |= {path: path.read_text(encoding="utf-8") for path in PACKAGE}
    return texts | {path: text_of(path) for path in DATA}


def text_of(path: Path) -> str:
    """A data file's text; a key's tensors, behind the header that holds its tree, are left out."""
    data = path.read_bytes()
    if path.suffix == ".key":
        (length,) = struct.unpack("<Q", data[:8])
        data = data[8 : 8 + length]
    return data.decode("utf-8")


TAUGHT = [chapter for chapter in by_chapter() if (ROOT / "solutions" / chapter / f"{chapter}.py").is_file()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_holds_no_marker_no_hidden_test_and_no_output(path):
    text = path.read_text(encoding="utf-8")
    for word in ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN", "grade(", "import grade"):
        assert word not in text, f"{word} in {path.name}"
    cells = nbformat.read(path, as_version=4).cells
    assert all(not cell.get("outputs") for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_holds_no_line_of_its_solutions(path):
    cells = read_lesson(ROOT / "solutions" / path.stem / f"{path.stem}.py")
    shown = {line.strip() for line in code_of(path).splitlines()}
    answers = {text for _, text in solution_lines(cells) if len(text) >= LONG and not text.startswith("#")}
    assert not answers & shown


def test_there_is_something_to_look_at():
    assert NOTEBOOKS and PACKAGE and any(path.suffix == ".key" for path in DATA) and "02" in str(TAUGHT)
    assert len(wrong_lines("02_positional_encoding")) > 10


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT / "course")))
def test_package_imports_no_grader(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"^\s*(from|import) grader\b", text, re.MULTILINE)
    assert not re.search(r"""["']grader\.""", text)


@cache
def wrong_lines(chapter: str) -> frozenset[str]:
    """Lines that stand in a known mistake of the chapter and in nothing that is right."""
    found = {
        line
        for exercise in by_chapter()[chapter]
        for wrong in exercise.misconceptions
        for line in lines_of(wrong.source)
    }
    return frozenset(found - right_lines(chapter))


@pytest.mark.parametrize("chapter", TAUGHT)
def test_no_mistakes_code_reaches_a_learner(chapter):
    wrong = wrong_lines(chapter)
    number = chapter.split("_")[0].lstrip("0") or "0"
    for path, text in shown_to_learners().items():
        assert not wrong & {line.strip() for line in text.splitlines()}, path
        if path.name.startswith(f"{number}.") and path.suffix == ".key":
            assert not [line for line in wrong if line in text], path


# ---- one machine's paths ----------------------------------------------------------------------------


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=HANG
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


# One letter stands in brackets, so that this file does not name them either.
PLACES = [r"/wor[k]/(main|share[d]|\.librar[y])\b", r"/tmp/pla[n]\b", r"\bshare[d]/[\w-]+\.md\b"]


def test_nothing_names_the_machine_that_it_was_written_on():
    here = [re.escape(f"{ROOT}/")] if len(ROOT.parts) > 2 else []  # a checkout in /app would match anything
    pattern = re.compile("|".join(PLACES + here))
    for path in tracked():
        found = pattern.search(path.read_bytes().decode("utf-8", "replace"))
        assert not found, f"{path.relative_to(ROOT)} names {found[0]}"


def test_nothing_that_a_learner_or_a_run_makes_is_tracked():
    for path in tracked():
        parts = path.relative_to(ROOT).parts
        assert parts[0] not in ("work", "submitted", "autograded", "feedback", ".venv"), path
        assert path.suffix not in (".pyc", ".db", ".part") and ".ipynb_checkpoints" not in parts, path
