"""The guides: every command in them is one that there is, and the way through a class works word by word."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from nbgrader.apps.nbgraderapp import NbGraderApp

from grader.cli import parser
from grader.jail import isolation_problem, remedy
from tests.hostile.kit import CHAPTER, ROOT, changed, data, notebook
from tests.patience import HANG

pytestmark = pytest.mark.timeout(HANG)
NBGRADERS = ("Unwritable", "claims to be", "Could not find", "No notebooks were", "database is locked")
GUIDE = ROOT / "grader" / "docs" / "instructors.md"
PAGES = [ROOT / name for name in ("README.md", "grader/README.md", "SECURITY.md")]
PAGES += sorted((ROOT / "grader" / "docs").glob("*.md"))


def commands(text: str) -> list[str]:
    """Return the lines that a reader types, `$ …` in a console block, without their comments."""
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    typed = [found[1] for line in lines if (found := re.match(r"[a-z]*[$] (.*)", line))]
    return [re.sub(r"\s+#.*", "", line) for line in typed]


ALL = sorted({line for page in PAGES for line in commands(page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("line", [c for c in ALL if c.startswith("python -m grader ")])
def test_every_command_of_the_grader_is_one(line):
    parser().parse_args(shlex.split(line)[3:])


@pytest.mark.parametrize("line", [c for c in ALL if c.startswith("nbgrader ")])
def test_every_command_of_nbgrader_is_one(line):
    words = shlex.split(line)[1:]
    app = NbGraderApp().subcommands[words[0]][0]
    while (inner := getattr(app(), "subcommands", {})) and words[1] in inner:
        app = inner[words[1]][0]
        words = words[1:]
    rest = words[1:]
    made = app()
    for option in (word.removeprefix("--").split("=")[0] for word in rest if word.startswith("--")):
        assert option in made.flags or option in made.aliases, f"{line}: there is no --{option}"


def test_other_commands_are_few_and_known():
    others = {shlex.split(line)[0] for line in ALL} - {"python", "nbgrader"}
    assert others <= {"make", "git", "cd", "source", "conda", "dask"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.M)
            assert anchor in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_messages_in_troubleshooting_are_ones_that_are_said():
    """A message that is reworded in the sources must not stay in the guide as it was."""
    sources = [p for room in ("grader", "course/transformer_lab") for p in (ROOT / room).rglob("*.py")]
    said = "".join("".join(p.read_text(encoding="utf-8").split()) for p in sources)
    said = re.sub(r'"f?"|\{[^{}]*\}', "", said)
    page = (ROOT / "grader" / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)`", page, flags=re.M)
    assert len(rows) > 25
    for row in rows:
        if any(words in row for words in NBGRADERS):
            continue
        for piece in re.split(r"…|'a', 'b'|2\.1|\b2 |There are|onlinetext", row):
            plain = "".join(piece.split()).strip("'.:,;\"()")
            assert plain in said, f"{row!r}: {piece!r}"


def test_what_the_guide_says_of_containers_is_what_the_grader_says():
    text = GUIDE.read_text(encoding="utf-8")
    assert remedy.DOCKER in text and remedy.KUBERNETES in text


# ---- word by word ----------------------------------------------------------------------------------------

LINES = commands(GUIDE.read_text(encoding="utf-8"))
# the exchange and regrading have tests of their own; a cluster is not here
ELSEWHERE = ("nbgrader release_", "nbgrader collect", "python -m grader regrade", "--scheduler")
OWN_SETTINGS = "c = get_config()\nc.AssignLatePenalties.plugin_class = 'late.TenPercentADay'\n"
OWN_RULE = re.search(r"(from nbgrader.plugins.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.S)


def download(path: Path) -> None:
    """What Canvas would give for the three of the guide's roster."""
    path.parent.mkdir()
    late = changed(_2_5="def position_similarity(d_model, offsets):\n    return offsets * 1.0")
    with zipfile.ZipFile(path, "w") as archive:
        for name, number, book in (
            ("bergann", 4711, notebook()),
            ("colebenjamin", 4712, notebook(late)),
            ("dahlcho", 4713, notebook({})),
        ):
            archive.writestr(f"{name}_{number}_{number + 9}_{CHAPTER}.ipynb", data(book))


@pytest.mark.skipif(
    isolation_problem() is not None and not os.environ.get("CI"),
    reason=f"no isolation: {isolation_problem()}",
)
def test_from_nothing_to_feedback_word_by_word(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    text = GUIDE.read_text(encoding="utf-8")
    (home / "class.csv").write_text(re.search(r"```text\n(id,.*?)```", text, flags=re.S)[1])
    download(home / "Downloads" / "submissions.zip")
    mine = [line for line in LINES if not any(word in line for word in ELSEWHERE)]
    assert len(mine) >= 8 and mine[0].startswith("python -m grader init")
    late = mine.index("python -m grader autograde 02")
    # ben was late by a day and an hour, and the class has the guide's own rule
    between = [
        f"cat > late.py <<'END'\n{OWN_RULE[1]}END",
        f"cat > class_settings.py <<'END'\n{OWN_SETTINGS}END",
        f"echo 2030-03-02 13:00:00 UTC > submitted/ben/{CHAPTER}/timestamp.txt",
    ]
    script = "\n".join(["set -eu", *mine[:late], *between, *mine[late:]])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=home,
        env=os.environ
        | {
            "HOME": str(home),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "course")]),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "3 submissions; 3 are new" in done.stdout
    assert "3 graded" in done.stdout and "1 late; 0 to look at" in done.stdout
    for student in ("ann", "ben", "cho"):
        assert (home / "spring" / "feedback" / student / CHAPTER / f"{CHAPTER}.html").is_file()
    canvas = (home / "spring" / "reports" / f"{CHAPTER}-canvas.csv").read_text()
    for line in ('"Berg, Ann","4711","ann","ann","","19"', '"Cole, Ben","4712","ben","ben","","12.8"'):
        assert line in canvas
    assert "−3.2" in (home / "spring" / "reports" / f"{CHAPTER}.html").read_text(encoding="utf-8")
