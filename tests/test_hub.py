"""A real JupyterHub: three Unix users, a learner's list of assignments, formgrader in a real Chromium.

`make hub` installs what it needs (jupyterhub, and its proxy from npm) and runs it.
"""

from __future__ import annotations

import contextlib
import html
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from grader.classroom.folder import make_class_folder
from grader.jail import isolation_problem
from grader.layout import COURSE
from tests.browser import find_chromium, free_port, running_chromium
from tests.hostile.kit import CHAPTER, changed, notebook, right_answers
from tests.patience import HANG
from tests.unprivileged import User, open_scratch, real_users, with_python_for_all

BESIDE = Path(sys.prefix) / "hub" / "node_modules" / ".bin"  # where `make hub` puts the proxy
PROXY = shutil.which("configurable-http-proxy", path=os.pathsep.join([str(BESIDE), os.environ["PATH"]]))
MISSING = [
    name
    for name, there in (
        ("jupyterhub", importlib.util.find_spec("jupyterhub")),
        ("configurable-http-proxy", PROXY),
        ("Chromium", find_chromium()),
        ("root's rights, to make users", os.geteuid() == 0 and shutil.which("useradd")),
        ("isolation", isolation_problem() is None),
    )
    if not there
]
pytestmark = [
    pytest.mark.timeout(HANG),
    pytest.mark.skipif(
        bool(MISSING), reason=f"not here: {', '.join(MISSING)}. `make hub`, as root, installs a hub"
    ),
]
WRONG = "def position_similarity(d_model, offsets):\n    return offsets * 1.0"
SETTINGS = """
import os, pwd
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allowed_users = {names!r}
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 600
c.Spawner.env_keep = ["PATH", "PYTHONPATH", "LANG", "OMP_NUM_THREADS"]
c.Spawner.environment = {{"JUPYTER_CONFIG_PATH": {settings!r}}}
c.JupyterHub.services = [{{"name": "test", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "scopes": ["admin:users", "admin:servers", "access:servers"], "services": ["test"]}}
]
"""


@dataclass
class Hub:
    """A running hub: its address, a token for its interface, the password of all its users."""

    address: str
    token: str
    password: str

    def ask(self, path: str, data: dict | None = None, method: str | None = None) -> bytes:
        """Ask the hub or a user's server, as a script with a token."""
        request = urllib.request.Request(
            self.address + urllib.parse.quote(path, safe="/?=&"),
            data=None if data is None else json.dumps(data).encode(),
            method=method or ("GET" if data is None else "POST"),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=HANG) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error} {error.read()[:2000]!r}") from error

    def start_server(self, user: User) -> None:
        self.ask(f"/hub/api/users/{user.name}/server", {})
        deadline = time.monotonic() + HANG
        while not json.loads(self.ask(f"/hub/api/users/{user.name}"))["servers"].get("", {}).get("ready"):
            assert time.monotonic() < deadline
            time.sleep(0.3)


class Learner:
    """A learner, by the interface that JupyterLab's list of assignments uses."""

    def __init__(self, hub: Hub, user: User):
        self.hub, self.user = hub, user
        hub.start_server(user)

    def ask(self, path: str, data: dict | None = None, method: str | None = None):
        return json.loads(self.hub.ask(f"/user/{self.user.name}/{path}", data, method))

    def assignments(self) -> dict[str, dict]:
        """{status: the assignment}."""
        found = self.ask(f"assignments?course_id={COURSE}")
        assert found["success"], found
        return {one["status"]: one for one in found["value"]}

    def does(self, action: str) -> dict[str, dict]:
        found = self.ask(f"assignments/{action}", {"course_id": COURSE, "assignment_id": CHAPTER})
        assert found["success"], found
        return {one["status"]: one for one in found["value"]}

    def writes(self, book: nbformat.NotebookNode) -> None:
        content = {"type": "notebook", "format": "json", "content": book}
        self.ask(f"api/contents/{CHAPTER}/{CHAPTER}.ipynb", content, "PUT")

    def validates(self) -> dict:
        found = self.ask("assignments/validate", {"path": f"{CHAPTER}/{CHAPTER}.ipynb"})
        assert found["success"], found
        return found["value"]


@contextlib.contextmanager
def running_hub(scratch: Path, users: list[User], settings: Path) -> Iterator[Hub]:
    """Start a hub as root, in a folder that only root may read; yield it; stop it with all it started."""
    state = scratch / "hub"
    state.mkdir(mode=0o700)
    hub = Hub(f"http://127.0.0.1:{free_port()}", secrets.token_hex(16), secrets.token_hex(8))
    (state / "config.py").write_text(
        SETTINGS.format(
            port=hub.address.rsplit(":", 1)[1],
            hub_port=free_port(),
            proxy_port=free_port(),
            proxy=PROXY,
            password=hub.password,
            names={user.name for user in users},
            python=sys.executable,
            settings=str(settings),
            token=hub.token,
        )
    )
    command = [sys.executable, "-m", "jupyterhub", "-f", str(state / "config.py")]
    log = state / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            with_python_for_all(command, state, state),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"},
        )
    try:
        deadline = time.monotonic() + HANG
        while True:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{hub.address}/hub/api", timeout=5).close()
                break
            time.sleep(0.3)
        yield hub
    except BaseException:
        print(log.read_text(errors="replace")[-6000:])
        raise
    finally:
        process.send_signal(signal.SIGTERM)  # it stops its proxy and its users' servers
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=HANG)


@dataclass
class School:
    hub: Hub
    teacher: User
    ann: Learner
    ben: Learner
    folder: Path


@pytest.fixture(scope="module")
def school() -> Iterator[School]:
    with open_scratch() as scratch, real_users(scratch, "teacher", "ann", "ben") as users:
        scratch.chmod(0o755)
        exchange, settings = scratch / "exchange", scratch / "etc"
        exchange.mkdir()
        exchange.chmod(0o777)
        settings.mkdir()
        (settings / "nbgrader_config.py").write_text(
            "c = get_config()\n"
            f"c.CourseDirectory.course_id = {COURSE!r}\n"
            f"c.Exchange.root = {str(exchange)!r}\n"
        )
        teacher = users[0]
        folder = teacher.home / "spring"
        make_class_folder(folder)
        own = teacher.home / ".jupyter"
        own.mkdir(exist_ok=True)
        (own / "nbgrader_config.py").write_text(
            f"c = get_config()\nc.CourseDirectory.root = {str(folder)!r}\n"
        )
        for path in (folder, *folder.rglob("*"), own, *own.iterdir()):
            os.chown(path, teacher.uid, teacher.gid)
        with running_hub(scratch, users, settings) as hub:
            hub.start_server(teacher)
            yield School(hub, teacher, Learner(hub, users[1]), Learner(hub, users[2]), folder)


class Formgrader:
    """The instructor's page, worked in a browser."""

    def __init__(self, page, hub: Hub, user: User):
        self.page, self.base = page, f"{hub.address}/user/{user.name}/formgrader"
        page.set_default_timeout(HANG * 1000)
        page.goto(f"{hub.address}/hub/login?next=/user/{user.name}/formgrader")
        page.fill("#username_input", user.name)
        page.fill("#password_input", hub.password)
        page.click("#login_submit")
        page.wait_for_selector("#main-assignments, table")

    def clicks(self, column: str, path: str = "manage_assignments", row: str = CHAPTER) -> None:
        """Click a row's icon, and the button that closes the page's word on how it went."""
        self.page.goto(f"{self.base}/{path}")
        self.page.locator("tbody tr", has_text=row).locator(f"td.{column} a").click()
        window = self.page.locator(".modal.in, .modal.show")
        window.wait_for()
        words = window.inner_text()
        assert "success" in words.lower(), words
        window.get_by_role("button").last.click()


def test_a_chapter_goes_from_the_instructor_to_learners_and_back(school):
    with running_chromium() as chromium:
        page = chromium.new_page()
        teacher = Formgrader(page, school.hub, school.teacher)
        teacher.clicks("assign")
        teacher.clicks("release")

        _hands_in(school.ann, changed(_2_5=WRONG))
        _hands_in(school.ben, right_answers())

        teacher.clicks("collect")
        for learner in (school.ann, school.ben):
            teacher.clicks("autograde", f"manage_submissions/{CHAPTER}", learner.user.name)
        _comments(page, teacher, school)
        teacher.clicks("generate-feedback")
        teacher.clicks("release-feedback")

    ann, ben = _reads(school.ann), _reads(school.ben)
    assert "Score: 16.0 / 19.0" in ann and "Well begun." in ann
    assert "Score: 19.0 / 19.0" in ben and "Well begun." not in ben
    lines = (school.folder / "records" / f"{CHAPTER}.jsonl").read_text().splitlines()
    marks = [line for line in map(json.loads, lines) if line["kind"] == "mark"]
    assert [line["isolated"] for line in marks] == [True, True] and not any(line["notes"] for line in marks)


def _hands_in(learner: Learner, answers: dict[str, str]) -> None:
    """See the list, fetch, work, validate, hand in."""
    assert learner.assignments()["released"]["assignment_id"] == CHAPTER
    assert "fetched" in learner.does("fetch")
    learner.writes(notebook(answers))
    failed = learner.validates().get("failed", [])
    assert len(failed) == (answers != right_answers()), failed
    assert "submitted" in learner.does("submit")


def _comments(page, teacher: Formgrader, school: School) -> None:
    page.goto(f"{teacher.base}/gradebook/{CHAPTER}/{CHAPTER}")
    page.locator("tbody tr", has_text="16 / 19").locator("a").first.click()
    box = page.locator("#todo-2-5-comment")
    box.wait_for()
    page.wait_for_function("formgrader.loaded || (formgrader.comments && formgrader.comments.loaded)")
    with page.expect_response(lambda answer: "/formgrader/api/comment/" in answer.url and answer.ok):
        box.fill("Well begun.")
        box.blur()


def _reads(learner: Learner) -> str:
    """Fetch the feedback and open it as JupyterLab does; return its words."""
    done = learner.does("fetch_feedback")["submitted"]["submissions"]
    path = f"{done[-1]['local_feedback_path']}/{CHAPTER}.html"
    text = learner.hub.ask(f"/user/{learner.user.name}/files/{path}").decode()
    text = re.sub(r"<(style|script).*?</\1>", " ", text, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
