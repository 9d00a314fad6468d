"""Hints climb a ladder and end; questions answer every choice with what it means."""

import json
import re
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from transformer_lab import hint, question
from transformer_lab.checking.stored import hints
from transformer_lab.checking.stored.questions import reply
from transformer_lab.checking.stored.recorded import DATA, index, recorded_hints

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def at_the_bottom():
    hints._climbed.clear()


def printed(capsys, function, *arguments) -> str:
    function(*arguments)
    return capsys.readouterr().out


def test_each_call_climbs_one_rung_and_the_last_stays(capsys):
    ladder = recorded_hints("2.1")
    shown = [printed(capsys, hint, "2.1") for _ in range(5)]
    for number, text in enumerate(ladder, 1):
        assert shown[number - 1].startswith(f"Hint {number} of 3 for TODO 2.1:\n{text}\n")
    assert 'hint("2.1") again' in shown[0] and "last hint" in shown[2]
    assert shown[2] == shown[3] == shown[4]


def test_every_todo_has_a_ladder_of_its_own(capsys):
    printed(capsys, hint, "2.1")
    assert printed(capsys, hint, "2.2").startswith("Hint 1 of 3 for TODO 2.2:")
    assert printed(capsys, hint, 2.1).startswith("Hint 2 of 3 for TODO 2.1:"), (
        "a number without quotes will do"
    )


def test_unknown_todo_is_one_clear_line(capsys):
    shown = printed(capsys, hint, "2.99")
    assert shown.startswith("There is no TODO '2.99'. The numbers are:") and shown.count("\n") == 1


@pytest.mark.parametrize("todo", sorted(index()))
def test_ladders_have_three_different_rungs(todo):
    ladder = recorded_hints(todo)
    assert len(ladder) >= 3 and len(set(ladder)) == len(ladder) and all(ladder)


# ---- questions --------------------------------------------------------------------------------------


def test_terminal_gets_the_question_with_its_choices(capsys):
    shown = printed(capsys, question, "2-a")
    asked = QUESTIONS["2-a"]
    assert shown.startswith(f"Question 2-a: {asked['text']}\n")
    for letter, choice in asked["choices"].items():
        assert f"  {letter}) {choice['text']}\n" in shown
    assert 'question("2-a", "a")' in shown


def test_answer_in_code_is_answered_at_once(capsys):
    right = next(letter for letter, c in QUESTIONS["2-a"]["choices"].items() if c["right"])
    wrong = next(letter for letter, c in QUESTIONS["2-a"]["choices"].items() if not c["right"])
    assert printed(capsys, question, "2-a", right).startswith("✓ Right. ")
    assert printed(capsys, question, "2-a", wrong).startswith("✗ Not quite. ")
    assert printed(capsys, question, "2-a", "z") == "Answer with one of: a, b, c.\n"
    assert printed(capsys, question, "2-a", "") == "Answer with one of: a, b, c.\n"
    assert reply("2-a", right.upper() + ")") == reply("2-a", right)


def test_unknown_question_lists_what_there_is(capsys):
    shown = printed(capsys, question, "2-z")
    assert shown.startswith("There is no question '2-z'. The questions are:") and "2-a" in shown


@pytest.fixture
def notebook():
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


def widgets_in(widget) -> list:
    return [widget, *(w for child in getattr(widget, "children", ()) for w in widgets_in(child))]


def test_notebook_gets_a_button_a_choice_that_says_what_it_means(notebook, monkeypatch):
    import ipywidgets
    from IPython import display

    shown = []
    monkeypatch.setattr(display, "display", lambda *objects, **options: shown.extend(objects))
    question("2-b")
    text = json.dumps([item for item in shown if isinstance(item, dict)], ensure_ascii=False)
    assert QUESTIONS["2-b"]["text"] in text
    found = [w for item in shown if isinstance(item, ipywidgets.Widget) for w in widgets_in(item)]
    buttons = [w for w in found if isinstance(w, ipywidgets.Button)]
    assert [button.description for button in buttons] == list(QUESTIONS["2-b"]["choices"])
    (said,) = [w for w in found if isinstance(w, ipywidgets.HTML)]
    for button, choice in zip(buttons, QUESTIONS["2-b"]["choices"].values(), strict=True):
        button.click()
        assert ("Right" if choice["right"] else "Not quite") in said.value
        assert choice["says"].split(":")[0].split("'")[0] in said.value


def test_question_in_a_notebook_raises_nothing_and_prints_no_address(notebook):
    with capture_output() as captured:
        question("2-a")
    texts = [output.data.get("text/plain", "") for output in captured.outputs] + [captured.stdout]
    assert texts and not any(re.search(r"0x[0-9a-f]{6}", text) for text in texts)


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_every_choice_says_something_of_its_own(name):
    asked = QUESTIONS[name]
    says = [choice["says"] for choice in asked["choices"].values()]
    assert len(set(says)) == len(says) and all(len(sentence) > 10 for sentence in says)
    assert re.fullmatch(r"\d+-[a-z]", name)


def test_every_question_is_asked_in_a_lesson_and_every_asked_one_exists():
    asked = set()
    for lesson in (ROOT / "solutions").glob("*/*.py"):
        asked |= set(re.findall(r'^question\("([^"]+)"\)', lesson.read_text(encoding="utf-8"), re.MULTILINE))
    assert asked == set(QUESTIONS)
