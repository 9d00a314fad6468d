"""Rebuild the notebook that is graded: the release, with the bodies of the learner's answer cells grafted in.

Tests, points, metadata, order, ids, kernel and format are the release's, whatever the submission says.
A learner's other code cells are kept too, since an honest answer may need a helper defined in one: each
stands right after the release's cell that it followed in the submission. They run, but they can change no
test: tests run elsewhere.
"""

from __future__ import annotations

import ast
import copy
import json
from dataclasses import dataclass, field
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

FILE_LIMIT = 64 << 20  # bytes of a submitted file that are read
SOURCE_LIMIT = 1 << 20  # characters of one cell
EXTRA_LIMIT = 200  # cells of the learner's own
EXTRA = "learner_cell"  # the key in a cell's metadata that marks them


@dataclass
class Cell:
    """One cell of a submission, reduced to what is looked at."""

    kind: str
    source: str
    grade_id: str | None = None
    cell_id: str | None = None
    nbgrader: dict[str, Any] = field(default_factory=dict)


@dataclass
class Aligned:
    """The notebook to grade, and what an instructor should know about the submission."""

    notebook: NotebookNode
    notes: list[str]


def role(cell: NotebookNode) -> str:
    """Return what a cell of a release is: "answer", "test", "code" or "text"."""
    about = cell.metadata.get("nbgrader", {})
    if about.get("solution"):
        return "answer"
    if about.get("grade"):
        return "test"
    return "code" if cell.cell_type == "code" else "text"


def align(data: bytes | None, release: NotebookNode) -> Aligned:
    """Graft the answers found in a submitted file into a copy of `release`.

    data: the file's bytes, whatever they are; None when there is no file. Never raises for what is in them.
    """
    notes: list[str] = []
    cells = [] if data is None else read_cells(data, notes)
    if data is None:
        notes.append("There is no notebook to grade.")
    notebook = copy.deepcopy(release)
    taken = _graft_answers(notebook, cells, notes)
    _note_changed_tests(notebook, cells, notes)
    anchors = _anchors(notebook, cells, taken)
    _insert_extras(notebook, cells, anchors)
    return Aligned(notebook, notes)


# ---- reading -----------------------------------------------------------------------------------------------


def read_cells(data: bytes, notes: list[str]) -> list[Cell]:
    """Return the cells of a notebook file of any format version, as far as it can be read."""
    if len(data) > FILE_LIMIT:
        notes.append(f"The file has {len(data) >> 20} MB; only the first {FILE_LIMIT >> 20} MB were read.")
        data = data[:FILE_LIMIT]
    text = _decoded(data, notes)
    if not text.strip():
        notes.append("The file is empty.")
        return []
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        raw = _salvaged(text)
        notes.append(f"The file is not valid JSON; {len(raw)} complete cells could be saved from it.")
    else:
        raw = _raw_cells(tree, notes)
    return [cell for cell in map(_cell, raw) if cell is not None]


def _decoded(data: bytes, notes: list[str]) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        notes.append("The file is in UTF-16, not UTF-8.")
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        notes.append("The file is not valid UTF-8; what could not be read was replaced.")
        return data.decode("utf-8", "replace")


def _raw_cells(tree: Any, notes: list[str]) -> list[Any]:
    if not isinstance(tree, dict):
        notes.append("The file is JSON but no notebook.")
        return []
    if isinstance(tree.get("cells"), list):
        return tree["cells"]
    sheets = tree.get("worksheets")  # nbformat 3 and older
    if isinstance(sheets, list):
        notes.append("The file is in the notebook format of before 2015 (nbformat 3).")
        return [cell for sheet in sheets if isinstance(sheet, dict) for cell in _list(sheet.get("cells"))]
    notes.append("The file is JSON but holds no cells.")
    return []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _salvaged(text: str) -> list[Any]:
    """Read cells one after another until the damage."""
    start = text.find('"cells"')
    start = text.find("[", start) if start >= 0 else -1
    decoder, found = json.JSONDecoder(), []
    while start >= 0:
        start = text.find("{", start)
        if start < 0:
            break
        try:
            cell, start = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        found.append(cell)
    return found


def _cell(raw: Any) -> Cell | None:
    if not isinstance(raw, dict):
        return None
    source = raw.get("source", raw.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str):
        source = ""
    metadata = raw.get("metadata")
    about = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    about = about if isinstance(about, dict) else {}
    kind = "code" if raw.get("cell_type") == "code" else "text"
    return Cell(kind, _clean(source), _string(about.get("grade_id")), _string(raw.get("id")), about)


def _clean(source: str) -> str:
    """Drop what no notebook file can hold (lone surrogates) and what is too long to be meant."""
    return source[:SOURCE_LIMIT].encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# ---- answers -----------------------------------------------------------------------------------------------


def _graft_answers(notebook: NotebookNode, cells: list[Cell], notes: list[str]) -> dict[int, int]:
    """Fill the answer cells. Returns {submission cell that was used: the release cell it belongs to}."""
    taken: dict[int, int] = {}
    answers = [(at, cell) for at, cell in enumerate(notebook.cells) if role(cell) == "answer"]
    for find in (_by_grade_id, _by_cell_id, _by_definition):  # the surest way first, for all answers
        for at, cell in list(answers):
            found = [i for i in find(cell, cells) if i not in taken]
            if not found:
                continue
            answers.remove((at, cell))
            chosen = _choose(found, cell, cells, notes)
            _note_how(find, cell, cells[chosen], notes)
            taken[chosen] = at
            taken.update({i: at for i in found if _same(cells[i].source, cell.source)})
            cell.source = cells[chosen].source
    for _, cell in answers if cells else ():
        notes.append(f"The answer cell {_name(cell)} is missing; its exercise counts as not attempted.")
    return taken


def _name(cell: NotebookNode) -> str:
    return cell.metadata.nbgrader.grade_id


def _by_grade_id(cell: NotebookNode, cells: list[Cell]) -> list[int]:
    return [i for i, own in enumerate(cells) if own.grade_id == _name(cell)]


def _by_cell_id(cell: NotebookNode, cells: list[Cell]) -> list[int]:
    wanted = cell.get("id")
    return [i for i, own in enumerate(cells) if wanted and own.cell_id == wanted and own.grade_id is None]


def _by_definition(cell: NotebookNode, cells: list[Cell]) -> list[int]:
    """Code cells without any id that define everything that the stub defines."""
    names = _defined(cell.source)
    own = [(i, c) for i, c in enumerate(cells) if c.kind == "code" and c.grade_id is None]
    return [i for i, c in own if names and names <= _defined(c.source)]


def _defined(source: str) -> set[str]:
    """Return the functions, classes and variables that a cell defines at its top level."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def _choose(found: list[int], cell: NotebookNode, cells: list[Cell], notes: list[str]) -> int:
    """Among copies of one answer cell take the first that was worked on; the others stay as extra cells."""
    worked_on = [i for i in found if not _same(cells[i].source, cell.source)]
    if len(found) > 1:
        notes.append(
            f"The answer cell {_name(cell)} is there {len(found)} times; later copies run after the first."
        )
    return (worked_on or found)[0]


def _note_how(find: Any, cell: NotebookNode, own: Cell, notes: list[str]) -> None:
    if find is not _by_grade_id:
        notes.append(
            f"The answer cell {_name(cell)} had lost its metadata; it was recognised by what it holds."
        )
    if own.kind != cell.cell_type and own.kind == "text" and cell.cell_type == "code":
        notes.append(f"The answer cell {_name(cell)} had been made a text cell; it was run as code.")
    _note_changed_metadata(cell, own, notes)


def _note_changed_metadata(cell: NotebookNode, own: Cell, notes: list[str]) -> None:
    about = cell.metadata.nbgrader
    changed = [
        key
        for key in ("grade", "solution", "points", "locked")
        if key in own.nbgrader and own.nbgrader[key] != about.get(key)
    ]
    if changed:
        notes.append(
            f"The cell {_name(cell)} had other values for {', '.join(changed)}; the release's were used."
        )


def _same(a: str, b: str) -> bool:
    return a.strip() == b.strip()


# ---- tests and the learner's own cells ---------------------------------------------------------------------


def _note_changed_tests(notebook: NotebookNode, cells: list[Cell], notes: list[str]) -> None:
    if not cells:
        return
    order: list[int] = []
    for cell in (c for c in notebook.cells if role(c) == "test"):
        own = _by_grade_id(cell, cells)
        order += own[:1]
        if not own:
            notes.append(f"The test cell {_name(cell)} was missing; the release's was used.")
        elif len(own) > 1:
            notes.append(f"The test cell {_name(cell)} was there {len(own)} times; it counts once.")
        elif not _same(cells[own[0]].source, cell.source):
            notes.append(f"The test cell {_name(cell)} had been edited; the release's was used.")
        for i in own[:1]:
            _note_changed_metadata(cell, cells[i], notes)
    if order != sorted(order):
        notes.append("The cells stood in another order; the release's order was used.")


def _anchors(notebook: NotebookNode, cells: list[Cell], taken: dict[int, int]) -> list[tuple[int, int]]:
    """Return (release cell it follows or -1, submission cell) for each code cell of the learner's own."""
    by_id: dict[str | None, int] = {c.get("id"): at for at, c in enumerate(notebook.cells) if c.get("id")}
    by_grade_id: dict[str | None, int] = {
        _name(c): at for at, c in enumerate(notebook.cells) if role(c) in ("answer", "test")
    }
    by_source = {c.source.strip(): at for at, c in enumerate(notebook.cells)}
    anchors, last = [], -1
    for i, own in enumerate(cells):
        known = taken.get(i, by_source.get(own.source.strip(), by_id.get(own.cell_id)))
        grade_at = by_grade_id.get(own.grade_id)
        last = known if known is not None else grade_at if grade_at is not None else last
        if i in taken or own.kind != "code" or own.source.strip() in by_source or not own.source.strip():
            continue
        if grade_at is not None and role(notebook.cells[grade_at]) == "test":
            continue  # an edited test
        anchors.append((last, i))
    return anchors[:EXTRA_LIMIT]


def _insert_extras(notebook: NotebookNode, cells: list[Cell], anchors: list[tuple[int, int]]) -> None:
    after: dict[int, list[NotebookNode]] = {}
    for number, (anchor, i) in enumerate(anchors):
        extra = new_code_cell(cells[i].source, id=f"learner-{number}", metadata={EXTRA: True})
        after.setdefault(anchor, []).append(extra)
    rebuilt = after.get(-1, [])
    for at, cell in enumerate(notebook.cells):
        rebuilt += [cell, *after.get(at, [])]
    notebook.cells = rebuilt
