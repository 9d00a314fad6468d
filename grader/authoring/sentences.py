"""The catalogue of everything a learner reads, for a translator.

Babel finds the sentences in the sources: what passes through `_`, and the arguments of the few functions in
KEYWORDS, which pass theirs through it. `python -m grader sentences FILE.pot` writes them in gettext's format;
`pybabel init` and `pybabel update` make a translation of it, `pybabel compile` what a learner's Python reads.
The text of the lessons is not in it: a lesson is translated as a whole.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import write_po

from grader.authoring.data_files import all_questions
from grader.layout import ROOT

# Which argument of a function is a sentence (None: the first). `_` and `N_` are gettext's usual two.
KEYWORDS: dict[str, tuple[int, ...] | None] = {
    "_": None,
    "N_": None,
    "Trouble": (2,),
    "Row": (2,),
    "edit": (2,),
    "whole": (2,),
    "int_slider": (1,),
    "float_slider": (1,),
    "choice": (1,),
    "switch": (1,),
    "Part": (1,),
    "_heads": (1,),
    "_inputs": (2,),
    "_mask": (1,),
}
SOURCES = ("course/transformer_lab", "grader/exercises")


def catalogue(root: Path = ROOT) -> Catalog:
    """Return every sentence with the places it stands in."""
    found = Catalog(project="Transformer Lab", charset="utf-8")
    for folder in SOURCES:
        mapping = [("**.py", "python")]
        with contextlib.redirect_stderr(io.StringIO()):  # it tells of f-strings that are no sentences at all
            extracted = list(extract_from_dir(root / folder, mapping, keywords=KEYWORDS, comment_tags=()))
        for name, line, message, comments, _context in extracted:
            found.add(message, locations=[(f"{folder}/{name}", line)], auto_comments=comments)
    for name, question in all_questions(root).items():
        place = [(f"question {name}", 1)]
        found.add(question["text"], locations=place)
        for choice in question["choices"].values():
            found.add(choice["text"], locations=place)
            found.add(choice["says"], locations=place)
    return found


def write_catalogue(path: Path, root: Path = ROOT) -> int:
    """Write the catalogue to `path` in gettext's format and return how many sentences it has."""
    found = catalogue(root)
    text = io.BytesIO()
    write_po(text, found, width=100, sort_output=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.getvalue())
    return len(found)
