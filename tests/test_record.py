"""The data files of the learner's package: equal when nothing changed, stale when something did."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grader import exercises
from grader.authoring import data_files
from grader.judging.keys import BadExercise
from tests.small import DOUBLE, Wrong, double, exercise, on_tensors
from transformer_lab.checking.judging.key import judge
from transformer_lab.checking.probes.core import observe
from transformer_lab.checking.stored.recorded import key_from_tree
from transformer_lab.checking.stored.wire import unpack

ROOT = Path(__file__).resolve().parent.parent

GOOD = """
["97-a"]
text = "Why?"
["97-a".choices.a]
text = "Because."
right = true
says = "Yes."
["97-a".choices.b]
text = "Therefore."
right = false
says = "No."
"""


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """A course folder with the small exercise and one question."""
    monkeypatch.setattr(data_files, "by_id", lambda: {"97.1": DOUBLE})
    monkeypatch.setattr(
        data_files, "_all_recorded", lambda ids: [(name, data_files.recorded(DOUBLE)) for name in ids]
    )
    write_questions(tmp_path, GOOD)
    return tmp_path


def write_questions(root: Path, text: str, chapter: str = "97_small") -> Path:
    path = root / "solutions" / chapter / "questions.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_all(root: Path) -> None:
    for path, data in data_files.data_files(root).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def test_data_files_are_the_keys_the_index_and_the_questions(course):
    files = {path.name: data for path, data in data_files.data_files(course).items()}
    assert set(files) == {"97.1.key", "index.json", "made_from.json", "questions.json", "sentences.json"}
    assert json.loads(files["index.json"]) == {"97.1": "97.1", "97.2": "97.1"}
    assert json.loads(files["questions.json"])["97-a"]["choices"]["a"]["says"] == "Yes."


def test_a_data_file_judges_and_hints(course):
    said = data_files.all_sentences()["97.1"]
    key = key_from_tree(unpack(data_files.recorded(DOUBLE)), said)
    report = judge(key, lambda case: observe(double, case))
    assert report.passed and [row.says for row in report.rows] == [row.says for row in DOUBLE.rows]
    assert said["hints"] == {"97.1": ["a", "b", "c"], "97.2": ["a", "b", "c"]}


def test_a_recorded_key_holds_no_sentence_so_prose_records_nothing_anew():
    words = (*(row.says for row in DOUBLE.rows), *(mistake.says for mistake in DOUBLE.mistakes))
    data = data_files.recorded(DOUBLE)
    assert not any(sentence.encode() in data for sentence in words)
    reworded = exercise(rows=tuple(replace(row, says="other words") for row in DOUBLE.rows))
    assert data_files.recorded(reworded) == data


def test_recording_twice_gives_equal_bytes():
    assert data_files.recorded(DOUBLE) == data_files.recorded(DOUBLE)


def breaks(x):
    the_line_of_the_author = x.unknown
    return the_line_of_the_author


def test_a_data_file_quotes_no_line_of_the_authors_code():
    wrong = exercise(mistakes=(Wrong("breaks", "It breaks.", breaks),))
    data = data_files.recorded(wrong)
    assert b"unknown" in data and b"the_line_of_the_author" not in data
    key = key_from_tree(unpack(data), data_files.sentences_of(wrong))
    learners = on_tensors(lambda x: x.unknown + 1)
    assert judge(key, lambda case: observe(learners, case)).diagnosis == ("breaks", "It breaks.")


@pytest.mark.parametrize("path", sorted((ROOT / data_files.DATA).glob("*.key")), ids=lambda path: path.stem)
def test_no_recorded_key_quotes_a_line_of_code(path):
    assert b"of its cell" not in path.read_bytes()


def test_fresh_files_are_not_stale_and_changed_ones_are(course):
    write_all(course)
    assert data_files.stale_files(course) == []
    data = course / data_files.DATA
    (data / "97.1.key").write_bytes(data_files.recorded(exercise(points=5)))
    (data / "index.json").write_text("{}")
    assert {path.name for path in data_files.stale_files(course)} == {"97.1.key", "index.json"}


def test_rounding_of_another_processor_is_not_stale_and_a_real_change_is(course):
    write_all(course)
    path = course / data_files.DATA / "97.1.key"
    for scale, stale in ((1 + 1e-7, []), (1.001, [path])):
        slightly = exercise(reference=lambda x, scale=scale: 2 * x * scale)
        path.write_bytes(data_files.recorded(slightly))
        assert data_files.stale_files(course) == stale


def test_missing_and_left_over_files_are_stale_and_left_overs_are_removed(course):
    write_all(course)
    (course / data_files.DATA / "97.1.key").unlink()
    old = course / data_files.DATA / "98.1.key"
    old.write_bytes(b"")
    assert {path.name for path in data_files.stale_files(course)} == {"97.1.key", "98.1.key"}
    data_files.remove_stale(course)
    assert not old.exists()


def test_an_exercise_without_hints_is_named():
    with pytest.raises(BadExercise, match=r"97\.1: TODO 97\.2 has no hints"):
        data_files.sentences_of(exercise(hints={"97.1": ("a", "b", "c")}))


BAD = {
    "no TOML": ('["97-a"\ntext = 3', "97_small/questions.toml: "),
    "a question that is a number": ('"97-a" = 3', "question '97-a' needs a text and at least two choices"),
    "no text": (GOOD.replace('text = "Why?"', ""), "question '97-a' needs a text"),
    "one choice": (GOOD[: GOOD.index('["97-a".choices.b]')], "at least two choices"),
    "choices that are no tables": ('["97-a"]\ntext = "Why?"\nchoices = ["a", "b"]', "at least two choices"),
    "a choice that is a sentence": (
        '["97-a"]\ntext = "Why?"\n["97-a".choices]\na = "So."\nb = "Not so."',
        "choice 'a' of '97-a' needs text, right and says",
    ),
    "a choice that says nothing": (GOOD.replace('says = "No."', ""), "choice 'b' of '97-a' needs"),
    "a misspelt field": (GOOD.replace('says = "No."', 'say = "No."'), "choice 'b' of '97-a' needs"),
    "right in quotes": (GOOD.replace("right = true", 'right = "true"'), "true or false, without quotes"),
    "two right choices": (GOOD.replace("right = false", "right = true"), "exactly one right choice"),
    "no right choice": (GOOD.replace("right = true", "right = false"), "exactly one right choice"),
    "a large letter": (GOOD.replace("choices.b", "choices.B"), "one small letter"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_question_names_its_file_and_what_is_wrong(course, name):
    text, words = BAD[name]
    path = write_questions(course, text)
    with pytest.raises(data_files.BadQuestion) as caught:
        data_files.data_files(course)
    assert str(caught.value).startswith(str(path)) and words in str(caught.value)


def test_two_questions_of_one_name_in_two_chapters_are_refused(course):
    path = write_questions(course, GOOD, "98_other")
    with pytest.raises(data_files.BadQuestion, match="question '97-a' has the name of a question in another"):
        data_files.data_files(course)
    assert path.exists()


def test_malformed_question_is_one_line_on_the_command_line(course, monkeypatch, capsys):
    from grader import cli as command
    from grader.authoring import build

    write_questions(course, GOOD.replace("right = false", "right = true"))
    monkeypatch.setattr(build, "build", lambda *a, **k: data_files.data_files(course))
    assert command.main(["build"]) == 2
    assert capsys.readouterr().err.endswith("needs exactly one right choice\n")


def test_the_whole_course_has_one_index_without_doubles():
    known = exercises.by_id()
    todos = [todo for item in known.values() for todo in item.todos]
    assert len(todos) == len(set(todos)) and set(known) <= set(todos)
    for item in known.values():
        assert item.todos[0] == item.id and set(item.hints) >= set(item.todos)


def test_unknown_exercise_lists_what_there_is():
    with pytest.raises(LookupError, match=r"There is no exercise '2\.99'. The exercises are: 1\.1"):
        exercises.get("2.99")
    with pytest.raises(LookupError, match="There is no exercise 'nonsense'"):
        exercises.get("nonsense")
