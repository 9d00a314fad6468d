"""Damaged and invented submissions by the hundred: reading one never raises and always gives bytes or a note.

The examples are the same at every run. `FUZZ_EXAMPLES=5000 pytest tests/test_intake_fuzz.py` draws so many
new ones for each test.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.grading.align import EXTRA_LIMIT, align, role
from grader.grading.finding import PLAIN_LIMIT
from grader.grading.intake import read_submission
from grader.grading.moment import in_utc
from grader.grading.reading import CELLS_LIMIT, PARSE_LIMIT, SOURCE_LIMIT, read_cells, without_bulk
from tests.hostile.kit import CHAPTER, data, notebook, release, release_bytes
from tests.patience import HANG

EXAMPLES = os.environ.get("FUZZ_EXAMPLES")
pytestmark = pytest.mark.timeout(HANG)
fuzz = settings(
    max_examples=int(EXAMPLES or 50),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

# ---- what is invented --------------------------------------------------------------------------------

KEYS = ["cells", "worksheets", "source", "input", "metadata", "nbgrader", "grade_id", "id", "cell_type"]
KEYS += ["outputs", "attachments", "widgets", "points", "grade", "solution"]
WORDS = ["todo-2-1", "test-2-1", "code", "markdown", "def position_similarity(): pass", '"outputs": [', "\\"]
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=9)
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=40,
)
encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])


@st.composite
def damaged(draw, sound: st.SearchStrategy[bytes]) -> bytes:
    """Some bytes with pieces cut out, overwritten or put in."""
    content = bytearray(draw(sound))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 60))] = draw(st.binary(max_size=20))
    return bytes(content[: draw(st.none() | st.integers(0, len(content)))])


@st.composite
def books(draw) -> bytes:
    """A notebook as JSON, not always a sound one."""
    book = {"cells": draw(st.lists(trees, max_size=6))} if draw(st.booleans()) else draw(trees)
    return json.dumps(book, ensure_ascii=draw(st.booleans())).encode(draw(encodings), "replace")


whole = {"right": data(notebook()), "blank": data(notebook({}))}
notebooks = damaged(st.sampled_from(sorted(whole)).map(whole.get)) | damaged(books()) | books()
names = st.sampled_from(
    [
        f"{CHAPTER}.ipynb",
        "hw.ipynb",
        "._hw.ipynb",
        "hw-checkpoint.ipynb",
        "a.zip",
        "timestamp.txt",
        "x.ipynb.txt",
    ]
) | st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=30).map(lambda t: t + ".ipynb")
members = st.lists(st.sampled_from(["..", "a", "__MACOSX", ""]) | names, min_size=1, max_size=3).map("/".join)


@st.composite
def zips(draw) -> bytes:
    kinds = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", draw(st.sampled_from(kinds))) as archive:
        warnings.simplefilter("ignore")  # two members of one name are what is wanted here
        for name, content in draw(st.lists(st.tuples(members, notebooks), max_size=4)):
            archive.writestr(name.encode("utf-8", "replace").decode() or "empty", content)
    return buffer.getvalue()


stamps = st.one_of(
    st.text(max_size=60),
    st.datetimes(timezones=st.timezones()).map(str),
    st.builds(
        "{} {}".format,
        st.datetimes().map(str),
        st.sampled_from(
            ["CET", "UTC", "America/Los_Angeles", "+99:99", "-0700", "/etc/passwd", "../../x", "EST5"]
        )
        | st.text(max_size=10),
    ),
    st.builds(
        "{}{}".format, st.datetimes().map(lambda d: d.isoformat()), st.sampled_from(["Z", "+23:59", "-23:59"])
    ),
)
contents = notebooks | damaged(zips()) | stamps.map(lambda t: t.encode("utf-8", "replace"))


def write(folder: Path, files: list[tuple[str, bytes | None]]) -> None:
    """Write files, and folders where there is no content; names that no file can have are left out."""
    for name, content in files:
        path = folder / os.fsdecode(name.encode("utf-8", "surrogatepass")[:200])
        try:
            if content is None:
                path.mkdir()
            else:
                path.write_bytes(content)
        except OSError:
            continue


# ---- what holds for all of it ------------------------------------------------------------------------


@fuzz
@given(st.lists(st.tuples(names, st.none() | contents), max_size=5), stamps)
def test_reading_a_submission_gives_bytes_or_a_note(files, stamp):
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "ann" / CHAPTER
        folder.mkdir(parents=True)
        write(folder, [("timestamp.txt", stamp.encode("utf-8", "replace")), *files])
        found = read_submission(Path(root), "ann", CHAPTER, release_bytes())
        again = read_submission(Path(root), "ann", CHAPTER, release_bytes())
    assert (found.data, found.notes, found.sha256) == (again.data, again.notes, again.sha256)
    assert found.data is not None or found.notes or not [name for name, _ in files if "ipynb" in name]
    assert len(found.data or b"") <= max(PLAIN_LIMIT, PARSE_LIMIT + 1)
    assert sum(map(len, found.notes)) < 20_000
    assert all(note.isprintable() for note in found.notes)
    if found.timestamp is not None:
        assert datetime.datetime.fromisoformat(found.timestamp).utcoffset() == datetime.timedelta(0)


@fuzz
@given(damaged(zips()), members)
def test_a_damaged_zip_gives_bytes_or_a_note(content, name):
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "ann" / CHAPTER
        folder.mkdir(parents=True)
        write(folder, [("handin.zip", content)])
        found = read_submission(Path(root), "ann", CHAPTER, release_bytes())
        assert sorted(path.name for path in Path(root).rglob("*")) == sorted(["ann", CHAPTER, "handin.zip"])
    assert found.data is not None or found.notes


@fuzz
@given(notebooks)
def test_cells_are_read_or_it_is_said_why_not(content):
    notes: list[str] = []
    cells = read_cells(content, notes)
    assert len(cells) <= CELLS_LIMIT
    assert all(len(cell.source) <= SOURCE_LIMIT for cell in cells)
    for cell in cells:
        cell.source.encode()
    assert len(without_bulk(content)) <= len(content)


@fuzz
@given(notebooks)
def test_what_is_graded_is_the_release_and_at_most_so_much_more(content):
    graded = align(content, release()).notebook
    kept = [cell for cell in graded.cells if not cell.metadata.get("learner_cell")]
    assert [cell.id for cell in kept] == [cell.id for cell in release().cells]
    assert [c.source for c in kept if role(c) != "answer"] == [
        c.source for c in release().cells if role(c) != "answer"
    ]
    assert len(graded.cells) <= len(kept) + EXTRA_LIMIT


@fuzz
@given(st.lists(trees, max_size=6))
def test_dropping_outputs_changes_nothing_that_is_looked_at(cells):
    """On sound JSON the quick way, by brackets, is the same as parsing all of it and dropping them then."""

    def without(tree):
        if isinstance(tree, list):
            return [without(item) for item in tree]
        if isinstance(tree, dict):
            bulk = ("outputs", "attachments", "widgets")
            return {
                key: type(value)() if key in bulk and isinstance(value, (list, dict)) else without(value)
                for key, value in tree.items()
            }
        return tree

    text = json.dumps({"cells": cells})
    assert repr(json.loads(without_bulk(text.encode()))) == repr(without(json.loads(text)))


@fuzz
@given(stamps)
def test_a_timestamp_is_a_time_in_utc_or_a_note(text):
    notes: list[str] = []
    found = in_utc(text, notes)
    if found is None:
        assert notes
    else:
        assert datetime.datetime.fromisoformat(found).utcoffset() == datetime.timedelta(0)
