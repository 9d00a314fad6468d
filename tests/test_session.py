"""One submission at a time: every chapter in the jail, and what comes out of it, cleaned."""

from __future__ import annotations

import base64
import json
import os

import nbformat
import pytest
import torch

from grader.authoring.build import ROOT
from grader.exercises import of_chapter
from grader.grading.align import EXTRA, align
from grader.grading.session import clean_observation, clean_outputs, grade_notebook
from grader.jail import Jail, isolation_problem
from grader.workshop import invent
from transformer_lab.checking.stored import wire

CHAPTERS = sorted(
    path.parent.name for path in (ROOT / "course" / "en").glob("*/*.ipynb") if of_chapter(path.stem)
)


@pytest.fixture(scope="module")
def jail():
    problem = isolation_problem()
    if problem and not os.environ.get("CI"):
        pytest.skip(f"no isolation on this machine: {problem}")
    with Jail() as warm:
        yield warm


def graded(jail, chapter: str, answers: dict[str, str]):
    release = invent.released(chapter)
    submitted = nbformat.writes(invent.fill(invent.released(chapter), answers)).encode()
    aligned = align(submitted, release)
    return grade_notebook(jail, aligned.notebook, aligned.notes, seed=11)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_right_answers_get_full_marks_in_every_chapter(jail, chapter):
    perfect = graded(jail, chapter, invent.perfect(chapter))
    assert perfect.notes == []
    assert {v.report.id: v.score for v in perfect.verdicts} == {
        e.id: e.points for e in of_chapter(chapter)
    }, "\n".join(str(verdict.report) for verdict in perfect.verdicts)
    nbformat.validate(perfect.notebook)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_blank_notebook_gets_nothing_in_every_chapter(jail, chapter):
    blank = graded(jail, chapter, {})
    assert blank.notes == []
    assert [v.score for v in blank.verdicts] == [0.0] * len(of_chapter(chapter))
    assert all(row.status in ("todo", "waits") for v in blank.verdicts for row in v.report.rows)


# ---- what comes out ----------------------------------------------------------------------------------

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()


def test_only_text_and_pictures_come_out():
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "kept"},
        {"output_type": "stream", "name": "<script>", "text": 5},
        {"output_type": "display_data", "data": {"text/html": "<script>x</script>", "text/plain": "plain"}},
        {"output_type": "display_data", "data": {"image/png": PNG, "image/svg+xml": "<svg onload=x>"}},
        {"output_type": "display_data", "data": {"image/png": '"><script>x</script>'}},
        {"output_type": "display_data", "data": {"image/png": base64.b64encode(b"<svg onload=x>").decode()}},
        {"output_type": "execute_result", "data": {"application/javascript": "x", "text/latex": "$x$"}},
        {"output_type": "update_display_data", "data": {"text/plain": "x"}},
        {"output_type": "error", "ename": "E", "evalue": None, "traceback": [1, "line"]},
        {"output_type": ["list"]},
        "text",
    ]
    kept, left = clean_outputs(outputs, 100_000)
    assert [dict(output.get("data", {})) for output in kept] == [
        {},
        {},
        {"text/plain": "plain"},
        {"image/png": PNG},
        {},
    ]
    assert "script" not in json.dumps(kept)
    assert 0 < left < 100_000
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=kept)])
    nbformat.validate(notebook)


def test_outputs_are_cut_where_the_budget_ends():
    kept, left = clean_outputs([{"output_type": "stream", "text": "x" * 600}] * 5, 1000)
    assert (len(kept), left) == (2, 0)
    assert "left out" in kept[-1].text
    assert clean_outputs(None, 5) == ([], 5)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {"values": [], "problem": None, "printed": ""},
        {"values": {}, "problem": {"kind": "a"}, "printed": ""},
        {"values": {}, "problem": {"kind": "a", "text": "b", "error": "", "score": 9}, "printed": ""},
        {"values": {}, "problem": "passed"},
    ],
)
def test_what_is_no_observation_says_so(tree):
    assert clean_observation(wire.pack(tree)).problem.kind == "unreadable"


def test_bytes_that_are_nothing_say_so():
    deep = b'{"__metadata__":{"tree":"' + b"[" * 100_000 + b'"}}'
    for junk in (b"", b"\xff" * 50, len(deep).to_bytes(8, "little") + deep, b"\0" * 100):
        assert clean_observation(junk).problem.kind == "unreadable"


def test_an_observation_is_plain_data_again():
    tree = {
        "values": {"out": torch.ones(2)},
        "problem": {"kind": ["x"], "text": 5, "error": None},
        "printed": "p",
    }
    seen = clean_observation(wire.pack(tree))
    assert seen.problem.text == "5"
    assert torch.equal(seen.values["out"], torch.ones(2))


def test_what_nobody_asked_for_is_dropped_and_texts_have_an_end():
    long = "T" * (9 << 20)
    tree = {
        "values": {"name": long, "out": {"$type": long, long: [long]}, "score": 1e9, long: 1},
        "problem": {"kind": long, "text": long, "error": long, "todo": long},
        "printed": long,
    }
    seen = clean_observation(wire.pack(tree), {"name", "out"})
    assert set(seen.values) == {"name", "out"}
    assert len(repr(seen)) < 10_000


@pytest.mark.parametrize(
    "value", [[0] * 200_000, [[]] * 200_000, {str(n): n for n in range(200_000)}, torch.ones([1] * 20)]
)
def test_what_is_larger_than_any_answer_says_so(value):
    tree = {"values": {"out": value}, "problem": None, "printed": ""}
    assert clean_observation(wire.pack(tree), {"out"}).problem.kind == "unreadable"
    assert clean_observation(wire.pack(tree), {"other"}).values == {}


def test_an_error_with_a_long_name_is_cut():
    error = {
        "output_type": "error",
        "ename": "E" * 10_000,
        "evalue": "v" * 10_000,
        "traceback": ["t" * 10_000],
    }
    kept, _ = clean_outputs([error | {"traceback": error["traceback"] * 1000}], 8 << 20)
    assert len(kept[0].ename) == 400
    assert len(kept[0].evalue) == 2000
    assert (len(kept[0].traceback), len(kept[0].traceback[0])) == (500, 1000)


def test_a_type_with_a_long_name_makes_no_large_record(jail):
    source = "long = type('T' * (9 << 20), (), {})\nposition_similarity = shift_matrix = long()\n"
    source += "class PositionalEncoding(long): pass\ndef angle(*a, **k): return long()"
    answers = dict.fromkeys(invent.perfect("02_positional_encoding"), source)
    odd = graded(jail, "02_positional_encoding", answers)
    assert sum(verdict.score for verdict in odd.verdicts) == 0
    assert len(json.dumps([verdict.report.tree() for verdict in odd.verdicts])) < 100_000
    assert len(nbformat.writes(odd.notebook)) < 1 << 20


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("\u201c", "left double quotation mark"),
        ("\u00a0", "no-break space"),
        ("\ufeff", "zero width no-break space"),
    ],
)
def test_a_cell_that_does_not_compile_is_told_with_its_own_error(jail, character, name):
    source = f"def position_similarity(d_model, offsets):\n    return{character} offsets"
    odd = graded(jail, "02_positional_encoding", {"2.5": source})
    said = str(next(verdict.report for verdict in odd.verdicts if verdict.grade_id == "test-2-5"))
    assert f"U+{ord(character):04X}" in said
    assert f"The character is: {name}." in said


def test_a_command_is_not_run_and_the_lines_below_it_are(jail):
    source = "x = !ls /\n!pip install torch\n%pip install torch\nprint(len(x), _exit_code, 'went on')"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, metadata={EXTRA: True})])
    text = grade_notebook(jail, book, [], seed=1).notebook.cells[0].outputs[0].text
    assert text.count("There is no shell here; this was not run: ") == 3
    assert text.endswith("0 127 went on\n")
