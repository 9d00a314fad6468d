"""The whole corpus of hostile, broken and honest submissions, as root and as a user without rights."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.hostile.corpus import BY_USER, corpus
from tests.hostile.deaths import DAEMON_NAME
from tests.hostile.kit import ROOT
from tests.patience import HANG
from tests.unprivileged import as_nobody, open_scratch


def _table(results: dict) -> str:
    """One line for each case: what it must get, what it got, how long it took."""
    lines = [f"{'submission':34} {'expected':>9} {'got':>6} {'seconds':>8}"]
    group = None
    for case in results["cases"]:
        if case["group"] != group:
            group = case["group"]
            lines.append(f"-- {group}")
        flag = "" if not case["wrong"] else "   WRONG: " + "; ".join(case["wrong"])
        lines.append(
            f"{case['student']:34} {case['expected']:9g} {case['got']:6g} {case['seconds']:8.2f}{flag}"
        )
    peak = results["peak_bytes"] >> 20
    lines.append(f"{len(results['cases'])} submissions in {results['seconds']:.0f} s, at most {peak} MB each")
    return "\n".join(lines)


class _LiveParts(HTMLParser):
    """Finds what could run in a page: scripts' text, and attributes that hold code or lead elsewhere."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag, attributes):
        self._in_script = tag == "script"
        self.found += [f"{tag} {name}={value}" for name, value in attributes if "forged" in f"{name}{value}"]

    def handle_data(self, data):
        if self._in_script and "forged" in data:
            self.found.append(data)

    def handle_endtag(self, tag):
        self._in_script = False


def live_parts(page: str) -> list[str]:
    """Return what of a forged cell would run in a browser."""
    parser = _LiveParts()
    parser.feed(page)
    return parser.found


def test_the_search_for_live_parts_finds_some():
    assert live_parts("<p>forged</p><pre>&lt;script&gt;forged&lt;/script&gt;</pre>") == []
    assert live_parts("<script>alert('forged')</script>") == ["alert('forged')"]
    assert live_parts("<img src=x onerror=\"alert('forged')\">") == ["img onerror=alert('forged')"]


def _running(name: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                found.append(str(path))
        except OSError:  # it ended while we looked
            continue
    return found


BREAKS_OR_MAGIC = {"book-syntax-error", "honest-magics", "honest-await", "honest-shell-lines"}


def test_the_fixtures_hold_code_that_runs():
    broken = []
    for case in corpus():
        for name, content in case.files.items():
            if not name.endswith(".ipynb") or case.group == "notebook" or case.student in BREAKS_OR_MAGIC:
                continue
            for cell in json.loads(content)["cells"]:
                if cell["cell_type"] == "code":
                    try:
                        ast.parse(cell["source"])
                    except SyntaxError as error:
                        broken.append(f"{case.student}: {error}: {cell['source'][:200]}")
    assert not broken
    students = [case.student for case in corpus()]
    assert len(students) == len(set(students))


def _run_as(user: str, folder: Path) -> dict:
    command = [sys.executable, "-m", "tests.hostile.run", str(folder)]
    if user == "nobody" and os.getuid() == 0:  # the others, read before any right matters, are alike for all
        done = as_nobody([*command, *BY_USER], folder, HANG)
    else:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "results.json").read_text())


@pytest.mark.timeout(HANG + 60)
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_every_submission_gets_its_marks_and_touches_no_other(user, record_property):
    if user == "root" and os.getuid() != 0:
        pytest.skip("not root: the corpus runs as this user only")
    with open_scratch() as folder:
        results = _run_as(user, folder)
    table = _table(results)
    record_property("table", f"as {user}\n{table}")
    print(table)
    assert not [case for case in results["cases"] if case["wrong"]], table
    for control in results["controls"]:
        assert control["same_marks"], control["student"]
        assert control["same_notebook"], control["student"]
        assert control["same_feedback"], control["student"]
    for student, page in results["pages"].items():
        assert not live_parts(page), student
        assert "grade(" not in page and "HIDDEN TESTS" not in page, student
    assert not _running(DAEMON_NAME), "a process outlived its submission"
