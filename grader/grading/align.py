"""Rebuild the notebook that is graded: the release, with the bodies of the learner's answer cells grafted in.

Tests, points, metadata, order, ids, kernel and format are the release's, whatever the submission says.
A learner's other code cells are kept too, since an honest answer may need a helper defined in one: each
stands right after the release's cell that it followed in the submission. They run, but they can change no
test: tests run elsewhere.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from grader.grading import limited
from grader.grading.reading import Cell, read_cells

EXTRA_LIMIT = 200  # cells of the learner's own
EXTRA_TEXT_LIMIT = 8 << 20  # characters in all of them
_SHELL_LINE = re.compile(r"^([ \t]*)(?:\w+ *= *)?[!%].*", re.MULTILINE)  # IPython's: !ls, %pip, x = !ls
EXTRA = "learner_cell"  # the key in a cell's metadata that marks them


@dataclass
class Plan:
    """What of a submission goes where.

    answers: {place of the release's answer cell: its source}; worked_on: how many of them are not as they
    were handed out. extras: (place of the release's cell that it follows or -1, source).
    """

    answers: dict[int, str] = field(default_factory=dict)
    worked_on: int = 0
    extras: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tree(self) -> dict[str, Any]:
        return {**vars(self), "answers": list(self.answers.items())}

    @staticmethod
    def from_tree(tree: dict[str, Any]) -> Plan:
        extras = [(at, source) for at, source in tree["extras"]]
        return Plan(dict(tree["answers"]), tree["worked_on"], extras, tree["notes"])


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

    data: the file's bytes, whatever they are; None when there is no file. Never raises for what is in them:
    OSError when this machine cannot start the process that reads them.
    """
    found = Plan(notes=["There is no notebook to grade."]) if data is None else _limited_plan(data, release)
    notebook = copy.deepcopy(release)
    for at, source in found.answers.items():
        notebook.cells[at].source = source
    _insert_extras(notebook, found.extras)
    return Aligned(notebook, found.notes)


# ---- the plan ----------------------------------------------------------------------------------------------


def plan(data: bytes, release: NotebookNode) -> Plan:
    """Say which answers and cells of a file go where in `release`. Works on hostile bytes: see `limited`."""
    found = Plan()
    cells = read_cells(data, found.notes)
    taken = _choose_answers(release, cells, found)
    moved = _choose_late_answers(release, cells, taken, found)
    _note_missing_answers(release, cells, found)
    _note_changed_tests(release, cells, found.notes)
    _choose_extras(release, cells, taken, moved, found)
    return found


def _limited_plan(data: bytes, release: NotebookNode) -> Plan:
    """Make the plan in a limited process; one that is ended there is a plan without any answer."""
    try:
        tree, _ = limited.call(lambda: (plan(data, release).tree(), b""))
    except limited.Refused as refused:
        return Plan(notes=[f"The notebook could not be read: {refused}. Nothing in it was graded."])
    return Plan.from_tree(tree)


# ---- answers -----------------------------------------------------------------------------------------------


def _choose_answers(release: NotebookNode, cells: list[Cell], plan: Plan) -> dict[int, int]:
    """Find the answer cells. Returns {submission cell that was used: the release cell it belongs to}."""
    taken: dict[int, int] = {}
    answers = [(at, cell) for at, cell in enumerate(release.cells) if role(cell) == "answer"]
    for find in (_by_grade_id, _by_cell_id, _by_definition):  # the surest way first, for all answers
        for at, cell in list(answers):
            found = [i for i in find(cell, cells) if i not in taken]
            if not found:
                continue
            answers.remove((at, cell))
            chosen = _choose(found, cell, cells, plan.notes)
            _note_how(find, cell, cells[chosen], plan.notes)
            taken[chosen] = at
            taken.update({i: at for i in found if _same(cells[i].source, cell.source)})
            plan.answers[at] = cells[chosen].source
            plan.worked_on += not _same(cells[chosen].source, cell.source)
    return taken


def _choose_late_answers(
    release: NotebookNode, cells: list[Cell], taken: dict[int, int], plan: Plan
) -> set[int]:
    """Find what was typed in or below a check whose answer cell was left as it was; return what was used.

    A learner may have run the check again from above; here every cell runs once, from top to bottom.
    """
    moved: set[int] = set()
    released = {cell.source.strip() for cell in release.cells}
    for at, cell in enumerate(release.cells):
        if role(cell) != "answer" or not _same(plan.answers.get(at) or cell.source, cell.source):
            continue
        names = _defined(cell.source)
        found = [
            i
            for i in range(_place_of_check(release, at, cells), len(cells))
            if i not in taken and cells[i].kind == "code" and cells[i].source.strip() not in released
            if names and names <= _defined(cells[i].source)
        ]
        if found:
            taken[found[-1]], plan.answers[at] = at, cells[found[-1]].source
            moved.add(found[-1])
            plan.worked_on += 1
            plan.notes.append(f"The answer of {_name(cell)} stood in or below its check; it was used.")
    return moved


def _place_of_check(release: NotebookNode, at: int, cells: list[Cell]) -> int:
    """Return where the submission has the check that follows a released cell; its end when it has none."""
    check = next((cell for cell in release.cells[at:] if role(cell) == "test"), None)
    return next(iter(_by_grade_id(check, cells) if check else ()), len(cells))


def _note_missing_answers(release: NotebookNode, cells: list[Cell], plan: Plan) -> None:
    for at, cell in enumerate(release.cells):
        if cells and role(cell) == "answer" and at not in plan.answers:
            plan.notes.append(
                f"The answer cell {_name(cell)} is missing; its exercise counts as not attempted."
            )


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


def _parsed(source: str) -> list[ast.stmt]:
    """Return a cell's statements: as Python, else without IPython's own lines; none when it is neither."""
    for text in (source, _SHELL_LINE.sub(r"\1pass", source)):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.parse(text).body
    return []


@lru_cache(maxsize=1024)
def _defined(source: str) -> frozenset[str]:
    """Return the functions, classes and variables that a cell defines at its top level."""
    names: set[str] = set()
    for node in _parsed(source):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(names)


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


def _note_changed_tests(release: NotebookNode, cells: list[Cell], notes: list[str]) -> None:
    if not cells:
        return
    order: list[int] = []
    for cell in (c for c in release.cells if role(c) == "test"):
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


def _choose_extras(
    release: NotebookNode, cells: list[Cell], taken: dict[int, int], moved: set[int], plan: Plan
) -> None:
    """Keep the learner's own code cells, as many as anybody writes."""
    left = EXTRA_TEXT_LIMIT
    stayed = {i: at for i, at in taken.items() if i not in moved}
    for at, i in _anchors(release, cells, stayed, plan.answers):
        if i in moved:
            continue
        left -= len(cells[i].source)
        if len(plan.extras) == EXTRA_LIMIT or left < 0:
            plan.notes.append(f"Of the learner's own cells only the first {len(plan.extras)} were run.")
            return
        plan.extras.append((at, cells[i].source))


def _anchors(
    release: NotebookNode, cells: list[Cell], taken: dict[int, int], answers: dict[int, str]
) -> list[tuple[int, int]]:
    """Return (release cell it follows or -1, submission cell) for each code cell of the learner's own.

    A copy of a released cell (an untouched stub, say) or of an answer is none.
    """
    by_id: dict[str | None, int] = {c.get("id"): at for at, c in enumerate(release.cells) if c.get("id")}
    by_grade_id: dict[str | None, int] = {
        _name(c): at for at, c in enumerate(release.cells) if role(c) in ("answer", "test")
    }
    by_source = {c.source.strip(): at for at, c in enumerate(release.cells)}
    by_source |= {source.strip(): at for at, source in answers.items()}
    anchors, last = [], -1
    for i, own in enumerate(cells):
        known = taken.get(i, by_source.get(own.source.strip(), by_id.get(own.cell_id)))
        grade_at = by_grade_id.get(own.grade_id)
        last = known if known is not None else grade_at if grade_at is not None else last
        if i in taken or own.kind != "code" or own.source.strip() in by_source or not own.source.strip():
            continue
        if grade_at is not None and role(release.cells[grade_at]) == "test":
            continue  # an edited test
        anchors.append((last, i))
    return anchors


def _insert_extras(notebook: NotebookNode, extras: list[tuple[int, str]]) -> None:
    after: dict[int, list[NotebookNode]] = {}
    for number, (anchor, source) in enumerate(extras):
        extra = new_code_cell(source, id=f"learner-{number}", metadata={EXTRA: True})
        after.setdefault(anchor, []).append(extra)
    rebuilt = after.get(-1, [])
    for at, cell in enumerate(notebook.cells):
        rebuilt += [cell, *after.get(at, [])]
    notebook.cells = rebuilt
