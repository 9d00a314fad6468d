"""Every exercise tests its own tests: one class a chapter, so that two workers share the chapters."""

from pathlib import Path

from grader.authoring.build import ROOT, chapters
from grader.authoring.selftest import FRESH_SEEDS, chapter_results
from grader.exercises import of_chapter
from grader.exercises.ch08._common import writing_case
from grader.exercises.draw import Draw
from grader.judging.judge import new_seed


class _Chapter:
    chapter = ""

    def test_solution_stub_misconceptions_alternatives(self, record_property):
        seeds = [new_seed() for _ in range(FRESH_SEEDS)]
        again = f"again: python -m grader selftest {self.chapter[:2]} --seeds {' '.join(map(str, seeds))}"
        lines = [again]
        results = list(chapter_results(self.chapter, Path(ROOT), lines.append, seeds))
        record_property("table", "\n".join(lines))
        assert [fault for result in results for fault in result.faults] == [], again
        assert [result.exercise.id for result in results] == [e.id for e in of_chapter(self.chapter)]


def _class_of(chapter: str) -> type:
    return type(f"Test{chapter.title().replace('_', '')}", (_Chapter,), {"chapter": chapter})


for _name in chapters():
    if of_chapter(_name):
        _made = _class_of(_name)
        globals()[_made.__name__] = _made


def test_no_sentence_is_left_to_chance():
    """Where two next tokens are equally likely, which is taken no contract says: right answers differ."""
    for seed in range(200):
        scores = writing_case(Draw(seed)).inputs["args"][0]["scores"]
        best = scores.topk(2).values
        assert (best[..., 0] > best[..., 1]).all(), seed
