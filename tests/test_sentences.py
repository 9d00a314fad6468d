"""Every sentence a learner reads is found in the sources by a tool, and passes through the translation."""

from __future__ import annotations

import importlib
import re

import matplotlib
import pytest
from babel.messages.mofile import write_mo

from grader.authoring.sentences import catalogue, write_catalogue
from grader.exercises import by_id
from transformer_lab import hint, language, parts, question
from transformer_lab.checking import run_check
from transformer_lab.checking.stored.questions import _questions
from transformer_lab.checking.stored.recorded import sentences
from transformer_lab.parts import mine
from transformer_lab.translation.capstone import USED, choose_parts

matplotlib.use("agg")
CATALOGUE = catalogue()
FOUND = {message.id for message in CATALOGUE if message.id}


def spoken_by_exercises() -> list[tuple[str, str]]:
    """(where, sentence) of all that the recorded data holds for learners."""
    said = []
    for exercise, kinds in sentences().items():
        for part in ("rows", "mistakes", "spoken", "forbidden"):
            said += [(f"{exercise} {part} {name}", text) for name, text in kinds[part].items()]
        said += [
            (f"{exercise} hint {todo}", text) for todo, ladder in kinds["hints"].items() for text in ladder
        ]
    return said


def test_the_catalogue_holds_all_that_is_recorded_for_learners():
    missing = [f"{where}: {text}" for where, text in spoken_by_exercises() if text not in FOUND]
    assert not missing, "\n".join(missing)


def test_what_is_recorded_for_learners_is_what_the_exercises_say():
    for exercise in by_id().values():
        said = sentences()[exercise.id]
        assert said["rows"] == {row.name: row.says for row in exercise.rows}
        assert said["mistakes"] == {mistake.name: mistake.says for mistake in exercise.mistakes}


def test_the_catalogue_is_written_in_gettexts_format(tmp_path):
    count = write_catalogue(tmp_path / "new" / "lab.pot")
    text = (tmp_path / "new" / "lab.pot").read_text(encoding="utf-8")
    assert count > 1000 and text.count("\nmsgid ") == count + 1  # and the header's
    assert "#: grader/exercises/ch03/stable_softmax.py" in text


# ---- in a language that is not there: every sentence in brackets, so that others show ---------------

MARKED = "xx"
# What is no sentence: code, numbers, shapes, symbols. Two ordinary words in a row are one.
SENTENCE = re.compile(r"(?<![\w.`'\"{(\[<])[A-Za-z]?[a-z]{2,},? [a-z]{2,}(?![\w(.=`])")


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """A translation that puts ⟦ ⟧ around every sentence."""
    for message in CATALOGUE:
        if message.id:
            message.string = f"⟦{message.id}⟧"
    folder = tmp_path / MARKED / "LC_MESSAGES"
    folder.mkdir(parents=True)
    with open(folder / "transformer_lab.mo", "wb") as file:
        write_mo(file, CATALOGUE)
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    monkeypatch.setenv(language.VARIABLE, MARKED)
    language._catalogue.cache_clear()
    yield
    language._catalogue.cache_clear()


def untranslated(text: str) -> str:
    """Return what of a text stands in no bracket and reads like a sentence, or ""."""
    while (shorter := re.sub(r"⟦[^⟦⟧]*⟧", "", text)) != text:
        text = shorter
    text = re.sub(r"`[^`]*`|\b[A-Za-z]+Error:.*", "", text)  # quoted code, Python's own words
    found = SENTENCE.search(text)
    return text.strip() if found else ""


def test_the_search_for_untranslated_words_finds_some():
    assert untranslated("⟦all ⟦three⟧ rows⟧ pass the check") and untranslated("Every row must sum to 1")
    assert not untranslated("⟦a b⟧ 2.1 PositionalEncoding: x.size(1) [2, 3] ✓")


def crash(*_arguments, **_more):
    raise ValueError("something of Python's own")


def wrong_symbols(exercise):
    """Objects that bring out the sentences of the check itself."""
    return [None, "a string", crash, exercise.misconceptions[0].symbol, exercise.misconceptions[-1].symbol]


@pytest.mark.parametrize("number", by_id())
def test_reports_are_translated(number, marked):
    reports = [run_check(number, symbol) for symbol in wrong_symbols(by_id()[number])]
    assert any("⟦" in str(report) for report in reports)
    for report in reports:
        for text in (str(report), re.sub(r"<[^>]*>", " ", report._repr_html_())):
            lines = [line for line in text.splitlines() if untranslated(line)]
            assert not lines, lines


def test_hints_and_questions_are_translated(marked, capsys):
    hint("2.2")
    hint("nothing")
    name = next(iter(_questions()))
    question(name)
    question(name, "a")
    question("nothing")
    printed = capsys.readouterr().out
    assert printed.count("⟦") > 5 and not untranslated(printed)


def test_what_mine_says_is_translated(marked, tmp_path, capsys):
    mine.load("PositionalEncoding", tmp_path)
    (tmp_path / "02_x").mkdir()
    (tmp_path / "02_x" / "02_x.ipynb").write_text("no notebook")
    mine.load("PositionalEncoding", tmp_path)
    assert not untranslated(capsys.readouterr().out)


EXERCISES = {number: exercise.answer for number, exercise in by_id().items()}
PICTURES = {
    "architecture": ("architecture", "architecture", ("attention",)),
    "reach": ("ch00", "reach", ()),
    "cosine map": ("ch01", "cosine_map", (EXERCISES["1.6"],)),
    "waves": ("ch02", "waves", (parts.PositionalEncoding,)),
    "steps": ("ch03", "steps", (parts.attention,)),
    "mask editor": ("ch03", "mask_editor", (parts.attention,)),
    "head split": ("ch04", "head_split", (EXERCISES["4.1"],)),
    "bends": ("ch06", "bends", (parts.FeedForward,)),
    "sampling": ("ch08", "sampling_bars", (parts.sampling_probs,)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_say_it_in_the_learners_language(name, marked):
    module, function, arguments = PICTURES[name]
    picture = getattr(importlib.import_module(f"transformer_lab.widgets.{module}"), function)(*arguments)
    assert not untranslated(picture.summary()), picture.summary()
    for control in getattr(picture, "inputs", {}).values():
        assert not untranslated(control.description) and not untranslated(control.tooltip or "")


def test_which_parts_are_whose_is_known_in_every_language(marked, tmp_path):
    """By a reason code: it once was read out of the English sentence."""
    said: list[str] = []
    chosen = choose_parts(tmp_path, said.append)
    assert set(chosen) == set(USED)
    assert len(said) == 1 and said[0].startswith("⟦Finished parts") and not untranslated(said[0])
