"""How fast a class is graded in jails, beside nbgrader's own way on the same notebooks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from grader.authoring.build import ROOT
from grader.jail.outside import _descendants, _proportional_bytes
from grader.workshop import invent

CHAPTER = "03_attention"
SIZE = 60
# Hostile, but not by hanging: nbgrader would wait two minutes for each of those, which would flatter us.
HOSTILE = (
    "import os; os._exit(0)",
    "import sys; sys.exit(1)",
    "import torch; torch.allclose = torch.equal = lambda *a, **k: True",
    "print('x' * 60_000_000)",
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)'])",
)


def answers(size: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (student, answers): a third perfect, a sixth blank, a third wrong, a sixth hostile."""
    for number in range(size):
        kind = ("perfect", "wrong", "blank", "perfect", "wrong", "hostile")[number % 6]
        student = f"{number:03}_{kind}"
        if kind == "blank":
            yield student, {}
        elif kind == "wrong":
            yield student, invent.mistaken(CHAPTER, number // 6)
        else:
            right = invent.perfect(CHAPTER)
            if kind == "hostile":
                last = list(right)[-1]
                right[last] += "\n" + HOSTILE[number // 6 % len(HOSTILE)]
            yield student, right


def make_course(root: Path, size: int, jailed: bool) -> None:
    """A course folder with the chapter and the class; `jailed` chooses how nbgrader grades there."""
    for folder in ("course/en", "solutions"):
        (root / folder / CHAPTER).mkdir(parents=True)
        shutil.copy(ROOT / folder / CHAPTER / f"{CHAPTER}.ipynb", root / folder / CHAPTER)
    (root / "nbgrader_config.py").write_text(
        "from pathlib import Path\n"
        "from grader.nbgrader_adapter.settings import configure\n"
        f"configure(get_config(), Path({str(root)!r}), jailed={jailed})\n"
    )
    for student, own in answers(size):
        invent.submit(root, student, CHAPTER, invent.fill(invent.released(CHAPTER), own))
    _timed(root, [sys.executable, "-m", "nbgrader", "generate_assignment", CHAPTER, "--force"])


def _timed(root: Path, command: list[str]) -> tuple[float, int]:
    """Run a command in `root`; return its seconds and the peak bytes of all its processes together."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    start = time.monotonic()
    with open(root / "log.txt", "wb") as log:
        process = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
        peak = [0]
        watcher = threading.Thread(target=_watch, args=(process, peak))
        watcher.start()
        process.wait()
        watcher.join()
    return time.monotonic() - start, peak[0]


def _watch(process: subprocess.Popen, peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], _proportional_bytes([process.pid, *_descendants(process.pid)]))
        time.sleep(0.5)


def measure(say: Callable[[str], None], size: int = SIZE, workers: int | None = None) -> float:
    """Grade the same class both ways, print both and return how many times faster the jails are."""
    workers = workers or len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        ours, stock = Path(scratch, "jailed"), Path(scratch, "stock")
        make_course(ours, size, jailed=True)
        make_course(stock, size, jailed=False)
        grade = [
            sys.executable,
            "-m",
            "grader",
            "autograde",
            CHAPTER,
            "--course",
            str(ours),
            "--workers",
            str(workers),
        ]
        fast, memory = _timed(ours, grade)
        slow, stock_memory = _timed(stock, [sys.executable, "-m", "nbgrader", "autograde", CHAPTER])
    for name, seconds, peak in (("nbgrader alone", slow, stock_memory), (f"{workers} jails", fast, memory)):
        rate = f"{size / seconds:6.2f} submissions/s"
        say(f"  {name:15} {seconds:7.1f} s   {rate}   peak {peak >> 20:5} MB")
    say(f"  ratio {slow / fast:.1f}  (start-up included on both sides; {size} submissions of {CHAPTER})")
    return slow / fast
