"""Read the cells out of a notebook file, whatever state it is in.

Everything here works on hostile bytes, so it runs in a limited process (`limited.call`). What nobody looks
at (outputs, attachments, the state of widgets) is dropped before anything is parsed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

FILE_LIMIT = 256 << 20  # bytes of a submitted file that are read
PARSE_LIMIT = 32 << 20  # bytes that are left of it without outputs, and are parsed
SOURCE_LIMIT = 1 << 20  # characters of one cell
CELLS_LIMIT = 5000  # cells of one notebook

# A quote that ends in no backslash begins a string of its own, so this is never found inside a cell's text.
_BULK = re.compile(rb'(?<!\\)"(?:outputs|attachments|widgets)"\s*+:\s*+([\[{])')
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


@dataclass
class Cell:
    """One cell of a submission, reduced to what is looked at."""

    kind: str
    source: str
    grade_id: str | None = None
    cell_id: str | None = None
    nbgrader: dict[str, Any] = field(default_factory=dict)


def read_cells(data: bytes, notes: list[str]) -> list[Cell]:
    """Return the cells of a notebook file of any format version, as far as it can be read."""
    if len(data) > FILE_LIMIT:
        notes.append(f"The file is larger than {FILE_LIMIT >> 20} MB; only its beginning was read.")
        data = data[:FILE_LIMIT]
    text = _decoded(without_bulk(_in_utf_8(data, notes)), notes)
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
    if len(raw) > CELLS_LIMIT:
        notes.append(f"There are more than {CELLS_LIMIT} cells; the rest was not read.")
    return [cell for cell in map(_cell, raw[:CELLS_LIMIT]) if cell is not None]


def _in_utf_8(data: bytes, notes: list[str]) -> bytes:
    if data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return data
    notes.append("The file is in UTF-16, not UTF-8.")
    return data.decode("utf-16", "replace").encode("utf-8", "replace")


def without_bulk(data: bytes) -> bytes:
    """Empty the outputs, attachments and widget state of a notebook file; the rest stays as it is."""
    kept, at = [], 0
    while found := _BULK.search(data, at):
        kept += [data[at : found.start(1)], b"[]" if found[1] == b"[" else b"{}"]
        at = _end_of_value(data, found.start(1))
    return b"".join([*kept, data[at:]])


def _end_of_value(data: bytes, start: int) -> int:
    """Return where the list or object that begins at `start` ends; the end of the data when it does not."""
    depth = 0
    for token in _TOKEN.finditer(data, start):
        first = data[token.start()]
        depth += first in b"[{"
        depth -= first in b"]}"
        if not depth:
            return token.end()
    return len(data)


def _decoded(data: bytes, notes: list[str]) -> str:
    if len(data) > PARSE_LIMIT:
        notes.append(f"Without outputs there are more than {PARSE_LIMIT >> 20} MB; the rest was not read.")
        data = data[:PARSE_LIMIT]
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        notes.append("The file is not valid UTF-8; what could not be read was replaced.")
        return data.decode("utf-8-sig", "replace")


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
    while start >= 0 and len(found) <= CELLS_LIMIT:
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
        source = "".join(line for line in islice(source, SOURCE_LIMIT) if isinstance(line, str))
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
