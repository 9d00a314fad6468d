"""Reports for learning platforms and the class page, from rows that were made up."""

from __future__ import annotations

import csv
import io
from html import unescape

import pytest

from grader.classroom.class_page import class_page
from grader.classroom.results import Column, Row
from grader.classroom.tables import canvas_csv, moodle_csv, safe
from grader.exercises import get
from grader.grading.session import _verdict_output
from grader.judging.judge import fresh_key
from transformer_lab.checking.judging.key import judge
from transformer_lab.checking.probes.core import Observation
from transformer_lab.checking.probes.describe import DESCRIBE
from transformer_lab.checking.probes.problems import Problem

BROKEN = Problem("raised", "It broke.", "It broke.")

COLUMNS = [Column("test-2-1", "2.1", "PositionalEncoding", 8.0), Column("test-2-5", "2.5", "f", 3.0)]


def row(student: str, mark: float | None = None, **more) -> Row:
    marks = {} if mark is None else {"test-2-1": mark, "test-2-5": 0.0}
    return Row(student, "Ann", "B", "", marks, **more)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def failed(sentence: str) -> dict:
    rows = [{"name": "sum", "status": "failed", "kind": "raised", "sentence": sentence}]
    report = {"exercise": "2.5", "score": 0.0, "diagnosis": None, "rows": rows}
    return {"reports": {"test-2-5": report}, "notes": []}


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("plain; text, = and -", "plain; text, = and -"),
        ("=1+1", "'=1+1"),
        ("＝1+1", "'＝1+1"),
        ("＠x", "'＠x"),
        ("  =1", "  '=1"),
        ("\t=1", " '=1"),
        ("\ufeff=1", "\ufeff'=1"),
        ("a;=cmd", "a;'=cmd"),
        ('a"; =cmd', "a\"; '=cmd"),
        ("a\r\n=cmd", "a\n\n'=cmd"),
        ("\x1b[2J\x1b]0;=x\x07", "[2J]0;'=x"),
        ("\x1b=1", "'=1"),
        ("\u202egnp.exe", "gnp.exe"),
        ("ab\0c\x85", "abc"),
        ("می‌خواهم", "می‌خواهم"),  # joins letters in Persian names
        (3.5, "3.5"),
        (-1.0, "-1"),
    ],
)
def test_no_cell_is_a_formula_or_steers_anything(text, cell):
    assert safe(text) == cell


def test_canvas_gets_totals_and_its_own_number_for_each_student():
    rows = [row("ann", 8.0, lms_user_id="17"), row("ben")]
    head, possible, ann, ben = read(canvas_csv("02_x", COLUMNS, rows))
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "02_x"]
    assert possible[5:] == ["11"]
    assert ann == ["B, Ann", "17", "ann", "ann", "", "8"]
    assert ben[1] == ben[5] == "", "an empty cell leaves Canvas's mark as it is"
    head, possible, ann, _ = read(canvas_csv("02_x", COLUMNS, rows, exercises=True))
    assert head[6:] == ["02_x 2.1 PositionalEncoding", "02_x 2.5 f"]
    assert (possible[6:], ann[6:]) == (["8", "3"], ["8", "0"])


def test_moodle_reads_no_grade_and_the_comments_given_by_hand():
    rows = [row("ann", 8.0, comments=["Well done."], record=failed("It broke.")), row("ben")]
    _, ann, ben = read(moodle_csv("02_x", COLUMNS, rows))
    assert ann[-1] == "Well done. 2.5: It broke."
    assert ben[4:] == ["-", "-", "-", ""]


def test_a_comment_names_no_fault_that_was_forgiven():
    forgiven = row("ann", 8.0, comments=["Well done."], record=failed("It broke."))
    forgiven.marks["test-2-5"] = 3.0
    assert read(moodle_csv("02_x", COLUMNS, [forgiven]))[1][-1] == "Well done."


def test_a_students_own_dash_is_no_missing_grade():
    assert read(moodle_csv("02_x", COLUMNS, [row("-")]))[1][0] == "'-"


def test_what_an_error_says_is_never_typeset():
    text = moodle_csv("02_x", COLUMNS, [row("ann", 0.0, record=failed(r"$$\href{x}$$ \(y\) \[z\]"))])
    assert not [mark for mark in ("$$", r"\(", r"\[") if mark in text]


@pytest.mark.parametrize(
    ("marks", "median"), [((0, 4), "2"), ((0, 1, 8), "1"), ((0, 2, 4, 8), "3"), ((5,), "5")]
)
def test_the_median_is_the_median(marks, median):
    rows = [row(str(n), float(mark)) for n, mark in enumerate(marks)]
    assert f"median {median} of 11 points" in class_page("02_x", COLUMNS, rows)


def test_names_on_the_class_page_can_be_told_apart():
    rows = [
        Row("a", "Ann", "B", "", {"test-2-1": 0.0, "test-2-5": 0.0}, record=failed("x")),
        Row("c", "C\x1b", "D", "", {"test-2-1": 0.0, "test-2-5": 0.0}, record=failed("x")),
    ]
    page = class_page("02_x", COLUMNS, rows)
    assert "<td>B, Ann; D, C<" in page.replace("</tr>", "<")
    assert "\x1b" not in page


def test_the_class_page_says_it_in_the_words_that_a_learner_reads():
    rows = [
        {"name": "value", "status": "failed", "kind": "raised", "sentence": "It broke."},
        {"name": "at zero", "status": "waits", "kind": None, "sentence": ""},
    ]
    name = get("2.5").rows[0].name
    rows[0]["name"] = name
    report = {"exercise": "2.5", "score": 0.0, "diagnosis": get("2.5").mistakes[0].name, "rows": rows}
    notes = [f"Note {number} is a whole sentence of some length, which is not cut." for number in range(12)]
    record = {"reports": {"test-2-5": report}, "notes": notes, "late_seconds": 60}
    page = class_page("02_x", COLUMNS, [row("ann", 8.0, penalty=2.0, record=record)])
    assert f"<td>{get('2.5').rows[0].says}<td>B, Ann<" in unescape(page)
    assert f"<td>{get('2.5').misconceptions[0].says}<td>B, Ann<" in unescape(page), "who made the mistake"
    assert "<td class='number'>−2<td class='number'>6<td>" in page, "the penalty, then what is left"
    assert notes[7] in page and notes[8] not in page and "And 4 more: python -m grader explain." in page


def test_a_late_submission_without_a_penalty_is_seen():
    record = {"reports": {}, "notes": [], "late_seconds": 60}
    assert "late, none" in class_page("02_x", COLUMNS, [row("ann", 8.0, record=record)])


def test_a_mark_in_between_says_what_each_row_is_worth():
    key = fresh_key("2.5", 1)
    first = {id(item.case) for item in key.rows[0].cases}

    def observe(case):
        if case is DESCRIBE:
            return Observation({"kind": key.kind, "name": key.symbol, "parameters": list(key.parameters)})
        item = next(i for r in key.rows for i in r.cases if i.case is case)
        return Observation(dict(item.expected)) if id(case) in first else Observation(problem=BROKEN)

    output = _verdict_output(judge(key, observe))
    says = "2 of 3 points. What each row is worth, from the top: ✓ 2.00, ✗ 1.00"
    assert says in output.data["text/plain"] and says in output.data["text/html"]
