"""Build everything that learners and instructors open from the lessons and the exercises.

    solutions/NN/NN.py ──► solutions/NN/NN.ipynb (executed) ──► course/en/NN/NN.ipynb (nbgrader)
    solutions/NN/questions.toml ──► transformer_lab/checking/stored/data/questions.json
    grader/exercises/chNN.py    ──► transformer_lab/checking/stored/data/*.key

Equal inputs give equal bytes. Nothing is written unless the whole chapter could be built.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.notebooknode import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from grader.authoring import data_files
from grader.authoring.lesson import Cell, LessonError, check_lesson, read_lesson, solution_lines
from grader.authoring.release import set_release_steps
from grader.errors import UnknownName
from grader.exercises import of_chapter
from grader.exercises.model import Exercise
from grader.layout import COURSE, ROOT, set_folders

CELL_TIMEOUT = 600  # seconds a single cell of a lesson may take
SMALL_BUDGET = {"TRANSFORMER_LAB_BUDGET": "small"}  # for chapter 09, which says which one ran
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
ANSWER_LENGTH = 20  # characters from which on a solution's line is taken for an answer when it turns up


def chapters(root: Path = ROOT) -> list[str]:
    """Return the names of the chapters that have a lesson, in course order."""
    return sorted(path.parent.name for path in (root / "solutions").glob("*/*.py") if _is_lesson(path))


def _is_lesson(path: Path) -> bool:
    return path.stem == path.parent.name


def select(names: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the chapters that `names` mean ("02" and "02_positional_encoding" alike), all when empty.

    Raises UnknownName that lists the chapters there are.
    """
    known = chapters(root)
    chosen = []
    for name in names:
        found = [chapter for chapter in known if chapter == name or chapter.split("_")[0] == name]
        if not found:
            raise UnknownName(f"There is no chapter {name!r}. The chapters are: {', '.join(known)}.")
        chosen += found
    return chosen or known


# ---- one chapter ------------------------------------------------------------------------------------


def lesson_notebook(path: Path, exercises: tuple[Exercise, ...]) -> NotebookNode:
    """Return the instructor's notebook of a lesson, not yet executed.

    Raises LessonError with file and line of every fault.
    """
    cells = read_lesson(path)
    check_lesson(path, cells, exercises)
    notebook = nbformat.v4.new_notebook()
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": KERNEL,
            "language_info": {"name": "python"},
            "transformer_lab": {
                "built_from": f"solutions/{path.parent.name}/{path.name}",
                "edit": "never by hand",
                "executed_from": code_hash(cells),
            },
        }
    )
    notebook.cells = [_notebook_cell(cell, index) for index, cell in enumerate(cells)]
    return notebook


def code_hash(cells: Iterable[Cell]) -> str:
    """Return a hash of the code, by which stored outputs are known to belong to it."""
    sources = [cell.source for cell in cells if cell.kind == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]


def _notebook_cell(cell: Cell, index: int) -> NotebookNode:
    if cell.kind == "markdown":
        node = nbformat.v4.new_markdown_cell(cell.source)
    else:
        node = nbformat.v4.new_code_cell(cell.source)
    node.id, node.metadata = f"cell-{index:03d}", nbformat.from_dict({})
    if cell.todo or cell.test:
        node.id = ("todo-" if cell.todo else "test-") + str(cell.todo or cell.test).replace(".", "-")
        node.metadata["nbgrader"] = nbformat.from_dict(_nbgrader_metadata(cell, node.id))
    return node


def _nbgrader_metadata(cell: Cell, grade_id: str) -> dict:
    plain = {"grade_id": grade_id, "schema_version": 3, "task": False}
    if cell.todo:
        return plain | {"grade": False, "locked": False, "solution": True}
    return plain | {"grade": True, "locked": True, "solution": False, "points": cell.metadata["points"]}


def execute(notebook: NotebookNode, folder: Path, root: Path = ROOT) -> NotebookNode:
    """Run a notebook in `folder` and keep its outputs, without what differs from run to run.

    Raises LessonError that names the cell which failed.
    """
    env = dict(os.environ) | {"PYTHONHASHSEED": "0"} | SMALL_BUDGET
    env.pop("NBGRADER_EXECUTION", None)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=40"],  # errors only: no warning that TCP on this machine is unencrypted
    )
    try:
        client.execute(env=env, cwd=str(folder))
    except Exception as error:
        built_from = notebook.metadata["transformer_lab"]["built_from"]
        raise LessonError(f"{built_from}: a cell failed when the lesson was run:\n{error}") from error
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            _settle(output)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = nbformat.from_dict({"name": "python"})
    return notebook


def _settle(output: NotebookNode) -> None:
    """Remove what is new at every run: a widget's model id."""
    output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)


@cache
def _empty_gradebook() -> bytes:
    """Return the file of a new gradebook: nbgrader starts a second Python for each, so it is made once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gradebook.db"
        Gradebook(f"sqlite:///{path}", COURSE).close()
        return path.read_bytes()


def learner_notebook(solution: NotebookNode, chapter: str, folder: Path) -> bytes:
    """Run nbgrader's generate_assignment on `solution`, below `folder`, and return the released bytes."""
    source = folder / "solutions" / chapter
    source.mkdir(parents=True)
    _write_notebook(solution, source / f"{chapter}.ipynb")
    config = Config()
    set_folders(config, folder)
    set_release_steps(config)
    (folder / "gradebook.db").write_bytes(_empty_gradebook())
    config.CourseDirectory.db_url = f"sqlite:///{folder / 'gradebook.db'}"
    config.CourseDirectory.assignment_id = chapter
    course = CourseDirectory(config=config)
    app = GenerateAssignment(coursedir=course, config=config)
    app.log.setLevel("ERROR")
    app.start()
    return (folder / "course" / "en" / chapter / f"{chapter}.ipynb").read_bytes()


def check_release(path: Path, cells: list[Cell], released: bytes) -> None:
    """Raise LessonError when an answer or a hidden test survived, or a stub does not name its TODO."""
    notebook = nbformat.reads(released.decode(), as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    text = "\n".join(code)
    faults = []
    for marker in ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS", "grade("):
        if any(marker in source for source in code):
            faults.append(f"{path}:1: {marker!r} survives into the learner's notebook")
    shown = {line.strip() for line in text.splitlines()}
    for line, answer in solution_lines(cells):
        if len(answer) >= ANSWER_LENGTH and not answer.startswith("#") and answer in shown:
            faults.append(f"{path}:{line}: this line of a solution also stands in the learner's notebook")
    for cell in (cell for cell in cells if cell.todo):
        faults += _stub_faults(path, cell, notebook)
    if faults:
        raise LessonError("\n".join(faults))


def _stub_faults(path: Path, cell: Cell, notebook: NotebookNode) -> list[str]:
    """A released TODO cell compiles, and each of its stubs raises NotImplementedError naming its TODO."""
    grade_id = "todo-" + str(cell.todo).replace(".", "-")
    released = next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)
    try:
        tree = ast.parse(released.source)
    except SyntaxError as error:
        return [f"{path}:{cell.line}: without its solution the cell does not compile: {error.msg}"]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    faults = []
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Raise)):
        text = ast.unparse(node)
        if "NotImplementedError" not in text:
            continue
        if not re.fullmatch(r"raise NotImplementedError\('TODO \d+\.\d+'\)", text):
            faults.append(
                f"{path}:{cell.line}: a stub must raise NotImplementedError naming its TODO: {text}"
            )
        if id(node) not in inside:
            faults.append(
                f"{path}:{cell.line}: the solution of {text[27:-2]} stands outside any function, so its stub "
                "would stop the notebook; put the markers inside the function"
            )
    return faults


# ---- the whole course -------------------------------------------------------------------------------


def build(
    names: Iterable[str] = (), prose_only: bool = False, say: Callable[[str], None] = print, root: Path = ROOT
) -> None:
    """Rebuild chapters (all when none is named) and the recorded data.

    prose_only: keep the stored outputs of lessons whose code did not change.
    Raises LessonError when a lesson cannot be built.
    """
    say("recorded cases and questions")
    for path, data in data_files.data_files(root, select(names, root)).items():
        _write(path, data)
    data_files.remove_stale(root)
    for chapter in select(names, root):
        for path, data in chapter_files(chapter, root, prose_only, say).items():
            _write(path, data)


def chapter_files(
    chapter: str, root: Path, prose_only: bool = False, say: Callable[[str], None] = print
) -> dict[Path, bytes]:
    """Return {path: bytes} of the two notebooks of a chapter.

    prose_only: take outputs from the stored notebook when its code is the same, else execute.
    """
    folder = root / "solutions" / chapter
    lesson, built = folder / f"{chapter}.py", folder / f"{chapter}.ipynb"
    exercises = of_chapter(chapter)
    notebook = lesson_notebook(lesson, exercises)
    released = release(lesson, notebook, chapter)
    if prose_only and _take_outputs(notebook, built):
        say(f"{chapter}: the code is the same, so its stored outputs stay")
    else:
        say(f"{chapter}: running the lesson's code")
        # Run in a folder of its own: what a lesson writes must not land among the sources.
        with tempfile.TemporaryDirectory() as scratch:
            notebook = execute(notebook, Path(scratch))
    return {
        built: _notebook_bytes(notebook),
        root / "course" / "en" / chapter / f"{chapter}.ipynb": released,
    }


def release(lesson: Path, notebook: NotebookNode, chapter: str) -> bytes:
    """Return the learner's notebook of a lesson, checked for surviving answers."""
    with tempfile.TemporaryDirectory() as scratch:
        released = learner_notebook(notebook, chapter, Path(scratch))
    check_release(lesson, read_lesson(lesson), released)
    return released


def _take_outputs(notebook: NotebookNode, built: Path) -> bool:
    """Copy outputs from the stored notebook; False when it is missing or its code differs."""
    if not built.is_file():
        return False
    stored = nbformat.read(built, as_version=4)
    if stored.metadata.get("transformer_lab", {}) != notebook.metadata["transformer_lab"]:
        return False
    old, new = ([c for c in nb.cells if c.cell_type == "code"] for nb in (stored, notebook))
    for before, after in zip(old, new, strict=True):
        after.outputs, after.execution_count = before.outputs, before.execution_count
    return True


def stale_files(root: Path = ROOT) -> list[str]:
    """Return a line for each built file that differs from what its lesson would give."""
    stale = [str(path.relative_to(root)) for path in data_files.stale_files(root)]
    for chapter in chapters(root):
        folder = root / "solutions" / chapter
        lesson, built = folder / f"{chapter}.py", folder / f"{chapter}.ipynb"
        notebook = lesson_notebook(lesson, of_chapter(chapter))
        if not _take_outputs(notebook, built) or _notebook_bytes(notebook) != built.read_bytes():
            stale.append(f"{built.relative_to(root)} (its lesson is {lesson.relative_to(root)})")
        target = root / "course" / "en" / chapter / f"{chapter}.ipynb"
        if not target.is_file() or target.read_bytes() != release(lesson, notebook, chapter):
            stale.append(f"{target.relative_to(root)} (its lesson is {lesson.relative_to(root)})")
    extra = {path.parent.name for path in (root / "course" / "en").glob("*/*.ipynb")} - set(chapters(root))
    return stale + [f"course/en/{name} (no lesson of that name)" for name in sorted(extra)]


def _notebook_bytes(notebook: NotebookNode) -> bytes:
    return (nbformat.writes(notebook, version=4) + "\n").encode()


def _write_notebook(notebook: NotebookNode, path: Path) -> None:
    _write(path, _notebook_bytes(notebook))


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; leave it alone when nothing changed."""
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(data)
    shutil.move(temporary, path)
