"""The exercise that CONTRIBUTING walks through is a good one: what a new author types works."""

import importlib.util
import re
import sys
from pathlib import Path

from grader.authoring.selftest import test_exercise as judge_exercise
from grader.authoring.sentences import KEYWORDS

ROOT = Path(__file__).resolve().parent.parent


def stub(p, q):
    raise NotImplementedError("TODO 2.8")


def test_the_walked_through_exercise_holds(tmp_path, monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = re.search(r"   ```python\n(.*?)   ```", text, re.DOTALL)[1]
    path = tmp_path / "distance.py"
    path.write_text("\n".join(line[3:] for line in block.splitlines()))
    spec = importlib.util.spec_from_file_location("distance", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "distance", module)
    spec.loader.exec_module(module)
    assert judge_exercise(module.EXERCISE, module.distance, stub, (1, 2)).faults == []


def test_its_words_about_sentences_are_those_of_the_tool():
    assert {"Row", "edit", "whole", "_"} <= KEYWORDS.keys()
