"""A real JupyterLab in a real Chromium, for tests and for authors who want to look at their chapter.

As a program it opens one notebook, runs it and takes pictures of it from top to bottom::

    .venv/bin/python -m tests.browser NOTEBOOK.ipynb OUT_DIR

The notebook is copied first, so the original stays as it is. Every wait has a limit.
"""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, sync_playwright

from tests.patience import HANG

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = LOAD_SECONDS = RUN_SECONDS = HANG
STARTED_SECONDS, CLICK_SECONDS, TRIES = 200, 60, 6  # what did not work in that time is tried again

# Chromium runs as root in CI, where its sandbox cannot start; the rest keeps it quiet and offline.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]

CELL_STATE = """() => {
  const book = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)');
  if (!book) return null;
  const prompts = [...book.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')]
    .map(p => p.textContent.trim());
  const light = book.querySelector('.jp-Notebook-ExecutionIndicator');
  return {
    kernel: light ? light.dataset.status : 'unknown',
    waiting: prompts.filter(p => p === '[*]:').length,
    done: prompts.filter(p => /^\\[\\d+\\]:$/.test(p)).length,
  };
}"""

# How far the notebook is scrolled, how much of it is in view, and how much lies below the view.
SCROLL_STATE = """box => {
  const last = [...box.querySelectorAll('.jp-Cell')].at(-1).getBoundingClientRect();
  return [box.scrollTop, box.clientHeight, last.bottom - box.getBoundingClientRect().bottom];
}"""


def find_chromium() -> str | None:
    """Path of an installed Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for path in map(shutil.which, names) if path), None)


def free_port() -> int:
    """A TCP port on the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Lab:
    """A running JupyterLab: its address, its token and its process."""

    address: str
    token: str
    process: subprocess.Popen
    log: Path

    def link(self, notebook: str) -> str:
        """Address that opens `notebook`, a path below the server's root, in a fresh workspace."""
        workspace = secrets.token_hex(4)
        return f"{self.address}/lab/workspaces/{workspace}/tree/{notebook}?token={self.token}"


@contextlib.contextmanager
def running_lab(directory: Path, state: Path) -> Iterator[Lab]:
    """Start this project's lab in `directory`, which holds course/en; yield it; stop it with its kernels.

    `state` receives Jupyter's settings, so that neither this user's own settings nor their
    earlier sessions can change what a test sees.
    """
    port, token = free_port(), secrets.token_hex(16)
    _render_every_cell(state)
    log = state / "lab.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "transformer_lab.lab", "--no-browser", "--port", str(port)],
            cwd=directory,
            env=_clean_environment(state, token),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    lab = Lab(f"http://127.0.0.1:{port}", token, process, log)
    try:
        _wait_until_served(lab)
        yield lab
    finally:
        _stop(process)


def _render_every_cell(state: Path) -> None:
    """Turn off JupyterLab's windowing: cells out of view would not be in the page, nor their errors."""
    settings = state / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"windowingMode": "none"}', encoding="utf-8")


def _clean_environment(state: Path, token: str) -> dict[str, str]:
    return os.environ | {
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": str(state / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(state / "settings"),
        "JUPYTER_DATA_DIR": str(state / "data"),
        "JUPYTER_RUNTIME_DIR": str(state / "runtime"),
        "IPYTHONDIR": str(state / "ipython"),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _wait_until_served(lab: Lab) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if lab.process.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{lab.address}/api?token={lab.token}", timeout=2).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start within {START_SECONDS} s. Its output:\n{_tail(lab.log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def _stop(process: subprocess.Popen) -> None:
    """End the server, politely first so that it ends its kernels, then its whole process group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)  # then it is killed
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=HANG)


@contextlib.contextmanager
def running_chromium() -> Iterator[Browser]:
    """A headless Chromium with an empty profile."""
    path = find_chromium()
    if path is None:
        raise RuntimeError("no Chromium found: install the Debian package 'chromium', or Google Chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class NotebookPage:
    """One notebook open in JupyterLab, with what the page complained about in `errors`."""

    def __init__(self, browser: Browser, lab: Lab, notebook: str, width: int = 1280, height: int = 900):
        self.page: Page = browser.new_page(viewport={"width": width, "height": height})
        self.page.set_default_timeout(HANG * 1000)
        self.errors: list[str] = []
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        self.page.goto(lab.link(notebook), timeout=LOAD_SECONDS * 1000)
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=LOAD_SECONDS * 1000)
        self._wait(lambda s: s["kernel"] == "idle", LOAD_SECONDS, "the kernel to start")
        self.page.keyboard.press("Control+b")  # fold the file browser away: more room for the notebook

    def _note_message(self, message) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _wait(self, ready, seconds: float, what: str) -> dict:
        """Poll the notebook until `ready(state)` holds twice in a row: a light may flicker between cells."""
        deadline, held, state = time.monotonic() + seconds, 0, None
        while time.monotonic() < deadline:
            state = self._state()
            held = held + 1 if state and ready(state) else 0
            if held >= 3:
                return state
            self.page.wait_for_timeout(150)
        raise TimeoutError(f"waited {seconds:.0f} s for {what}; last seen: {state}")

    def run_all(self, seconds: float = RUN_SECONDS) -> int:
        """Run every cell by the Run menu and wait for the kernel to rest. Returns how many code cells ran."""
        self._start_all()
        state = self._wait(
            lambda s: s["kernel"] == "idle" and s["waiting"] == 0 and s["done"] > 0,
            seconds,
            "all cells to run",
        )
        return state["done"]

    def _start_all(self) -> None:
        """Click until a cell starts: on a busy machine the menu may close again, or answer in vain."""
        for _ in range(TRIES):
            with contextlib.suppress(Error, TimeoutError):
                self.page.keyboard.press("Escape")
                self.page.get_by_role("menuitem", name="Run", exact=True).click(timeout=CLICK_SECONDS * 1000)
                self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click(
                    timeout=CLICK_SECONDS * 1000
                )
                self._wait(lambda s: s["waiting"] + s["done"] > 0, STARTED_SECONDS, "a cell to start")
                return
        raise TimeoutError(
            f"no cell started after {TRIES} clicks on Run All Cells; last seen: {self._state()}"
        )

    def _state(self) -> dict | None:
        return self.page.evaluate(CELL_STATE)

    def tracebacks(self) -> list[str]:
        """Text of every traceback that a cell shows. JupyterLab marks it as it marks output to stderr."""
        shown = self.page.locator("[data-mime-type='application/vnd.jupyter.stderr']").all_inner_texts()
        return [text for text in shown if "Traceback (most recent call last)" in text]

    def screenshots(self, folder: Path, stem: str = "page") -> list[Path]:
        """Scroll from top to bottom and save what can be seen, one PNG a screenful. Returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        scroller = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer").first
        paths, top = [], 0
        while True:
            scroller.evaluate("(box, top) => { box.scrollTop = top; }", top)
            self.page.wait_for_timeout(400)  # cells outside the view are rendered only when scrolled to
            paths.append(folder / f"{stem}-{len(paths) + 1:02d}.png")
            scroller.screenshot(path=paths[-1])
            seen, view, left = scroller.evaluate(SCROLL_STATE)
            if left <= 0 or len(paths) >= 60:
                return paths
            top = seen + view - 60  # a small overlap, so that no line is cut in both pictures


def main(arguments: list[str] | None = None) -> int:
    """Open, run and photograph one notebook. Returns 1 when the page or a cell reported an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser", description=main.__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("out", type=Path, help="folder for the pictures")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--no-run", action="store_true", help="only look, do not run the cells")
    options = parser.parse_args(arguments)
    try:
        errors = _photograph(options)
    except (Error, RuntimeError, TimeoutError) as problem:
        print(f"{options.notebook}: {problem}", file=sys.stderr)
        return 1
    print("\n".join(f"error: {line}" for line in errors) or "no errors")
    return 1 if errors else 0


def _photograph(options: argparse.Namespace) -> list[str]:
    with tempfile.TemporaryDirectory() as name, running_chromium() as browser:
        directory = Path(name)
        chapter = directory / "course" / "en" / "00_look"  # a course of one chapter
        chapter.mkdir(parents=True)
        shutil.copy(options.notebook, chapter)
        with running_lab(directory, directory) as lab:
            path = f"00_look/{options.notebook.name}"
            book = NotebookPage(browser, lab, path, options.width, options.height)
            if not options.no_run:
                print(f"{book.run_all()} code cells ran")
            for picture in book.screenshots(options.out, options.notebook.stem):
                print(picture)
            return book.errors + book.tracebacks()


if __name__ == "__main__":
    sys.exit(main())
