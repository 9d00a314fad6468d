"""The jail's walls, its limits and its end, as whoever runs the tests and as a user without rights."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from grader.classroom import run as classroom
from grader.exercises import get
from grader.grading import job as submission
from grader.jail import Jail, JailError, Killed, Limits, isolation_problem
from grader.jail.inside import seccomp
from grader.jail.inside.channel import Channel, ChannelClosed, ChannelError, ChannelTimeout
from grader.judging.keys import draw_key
from tests.hostile.kit import ROOT
from tests.unprivileged import as_nobody, open_scratch
from transformer_lab.checking.stored import wire

SMALL = Limits(memory_bytes=256 << 20, scratch_bytes=8 << 20, processes=24, cell_output_bytes=50_000)


@pytest.fixture(scope="module")
def jail():
    problem = isolation_problem()
    if problem and not os.environ.get("CI"):
        pytest.skip(f"no isolation on this machine: {problem}")
    assert problem is None
    with Jail(SMALL) as warm:
        yield warm


@pytest.fixture
def prisoner(jail):
    with contextlib.closing(jail.fork()) as one:
        yield one


def run(prisoner, source: str, seconds: float = 20.0) -> dict:
    answer, _ = prisoner.request({"do": "cell", "source": source}, seconds=seconds)
    return answer


def text(answer: dict) -> str:
    return "".join(output.get("text", "") for output in answer["outputs"])


# ---- what can be seen and reached ----------------------------------------------------------------


def test_a_cell_runs_as_in_a_notebook(prisoner):
    answer = run(prisoner, "import torch\nprint('hello')\ntorch.ones(2).sum()")
    kinds = [output["output_type"] for output in answer["outputs"]]
    assert (answer["ok"], kinds) == (True, ["stream", "execute_result"])
    assert run(prisoner, "_, In[0], len(Out)")["ok"]
    assert run(prisoner, "undefined")["outputs"][0]["ename"] == "NameError"
    assert "nobody is there to answer" in run(prisoner, "input()")["error"]


def test_no_right_and_no_foreign_process(prisoner):
    answer = run(
        prisoner, "import os; print(os.getpid(), os.getppid(), os.getuid(), min(os.listdir('/proc')))"
    )
    assert text(answer).split() == ["1", "0", "1000", "1"]
    status = text(run(prisoner, "print(open('/proc/self/status').read())"))
    rights = {line.split(":")[0]: line.split(":")[1].strip() for line in status.splitlines() if ":" in line}
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(rights[name], 16) == 0, name
    assert (rights["NoNewPrivs"], rights["Seccomp"]) == ("1", "2")


def test_only_the_socket_is_open(prisoner):
    found = text(
        run(
            prisoner,
            "import os\nfor n in os.listdir('/proc/self/fd'):"
            " print(n, os.path.realpath(f'/proc/self/fd/{n}'))",
        )
    )
    links = [line.split(" ", 1)[1] for line in found.splitlines()]
    kinds = [link.split(":")[0].split(" (deleted)")[0] for link in links]
    assert sum(kind.endswith("socket") for kind in kinds) == 1, found
    assert all(k.startswith(("/dev/null", "/scratch/tmp", "/proc")) or k.endswith("socket") for k in kinds), (
        found
    )


def test_nothing_is_shared_between_two_at_once(jail):
    with contextlib.closing(jail.fork()) as one, contextlib.closing(jail.fork()) as other:
        run(one, "open('/tmp/secret', 'w').write('x'); open('secret', 'w').write('x')")
        run(one, "import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0secret'); s.listen()")
        run(
            one,
            "import multiprocessing.shared_memory as m\nm.SharedMemory('secret', True, 64); print('made')",
        )
        found = run(
            other, "import os; print(os.path.exists('/tmp/secret'), os.listdir('.'), os.listdir('/dev/shm'))"
        )
        assert text(found) == "False [] []\n"
        reached = run(other, "import socket; socket.socket(socket.AF_UNIX).connect('\\0secret')")
        assert "ConnectionRefusedError" in reached["error"]


def test_the_file_system_is_read_only_but_for_scratch(prisoner):
    for place in ("/x", "/jail/inside/worker.py", "/jail/python/lib/x", "/etc/passwd", "/dev/x"):
        error = run(prisoner, f"open({place!r}, 'a')")["error"]
        assert "Read-only" in error or "Permission" in error, error
    assert run(prisoner, "open('mine.txt', 'w').write('x')")["ok"]


def test_no_expected_value_can_be_found(prisoner):
    """Send whole exercises through; then search memory and files, from inside, for what was expected."""
    run(prisoner, "import torch\ndef shift_matrix(k, d_model): return torch.zeros(d_model, d_model)")
    sent, expected = set(), set()
    for seed in range(16):
        for item in (item for row in draw_key(get("2.6"), seed).rows for item in row.cases):
            request = {"do": "probe", "symbol": "shift_matrix"}
            prisoner.request(request, wire.pack(item.case.tree()), seconds=200)
            sent |= _words(item.case.inputs)
            expected |= _words(item.expected)
    secret = sorted(expected - sent - _public_words())
    assert len(secret) > 50
    known = 0x0123_4567_89AB_CDEF  # a word that is there, to see that the search would find one
    masked = [word * MASK % 2**64 for word in [*(w % 2**64 for w in secret), known]]
    answer = run(
        prisoner,
        f"import torch\nplanted = torch.full((64,), {known})\n" + SEARCH.format(masked=masked, mask=MASK),
        120,
    )
    assert answer["ok"], answer["error"]
    found = json.loads(text(answer))
    assert found["searched"] > 50 << 20
    assert found["files"] > 10
    assert set(found["hits"]) == {masked[-1]}, "an expected value lies within the learner's reach"


MASK = 0x9E37_79B9_7F4A_7C15  # odd, so that word * MASK hides the word and loses nothing

SEARCH = """
import json, os, re, numpy as np
masked, mask = np.array(sorted({masked}), dtype=np.uint64), np.uint64({mask})
filter_ = np.zeros(65536, bool); filter_[(masked >> np.uint64(48)).astype(int)] = True
hits, searched, files = set(), 0, 0
def search(data):
    words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64) * mask
    words = words[filter_[(words >> np.uint64(48)).astype(int)]]
    hits.update(int(w) for w in words[np.isin(words, masked)])
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps.read().splitlines():
        start, end, rights = re.match(r"(\\w+)-(\\w+) (\\S+)", line).groups()
        start, end = int(start, 16), int(end, 16)
        if not rights.startswith("rw"): continue
        for at in range(start, end, 1 << 22):
            try:
                memory.seek(at); data = memory.read(min(1 << 22, end - at))
            except (OSError, ValueError, OverflowError): continue
            searched += len(data); search(data)
for folder, folders, names in os.walk("/"):
    folders[:] = [n for n in folders if n not in ("lib", "lib64", "packages", "proc", "dev", "fonts")]
    for name in names:
        path = os.path.join(folder, name)
        try: data = open(path, "rb").read(1 << 26)
        except OSError: continue
        files += 1
        for shift in range(8): search(data[shift:])
print(json.dumps(dict(hits=sorted(hits), searched=searched, files=files)))
"""


def _public_words() -> set[int]:
    """The 8-byte words of every file that a learner is given anyway."""
    found: set[int] = set()
    for path in (ROOT / "course" / "transformer_lab").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for shift in range(8):
                size = (len(content) - shift) // 8
                found.update(struct.unpack_from(f"<{size}q", content, shift) if size > 0 else ())
    return found


def _words(tree) -> set[int]:
    """The 8-byte words that a tree's tensors consist of, but for those that many tensors share."""
    if isinstance(tree, torch.Tensor):
        raw = tree.contiguous().numpy().tobytes()
        words = struct.unpack(f"<{len(raw) // 8}q", raw[: len(raw) // 8 * 8])
        return {w for w in words if bin(w % 2**64).count("1") > 10}  # not 0, 1.0, -1.0
    if isinstance(tree, dict):
        return set().union(*(_words(value) for value in tree.values()), set())
    return (
        set().union(*(_words(value) for value in tree), set()) if isinstance(tree, (list, tuple)) else set()
    )


# ---- limits --------------------------------------------------------------------------------------


def test_memory_of_one_process_is_limited(prisoner):
    assert "MemoryError" in run(prisoner, "x = bytearray(600 << 20)")["error"]
    assert "allocate" in run(prisoner, "import torch; torch.ones(300 << 20)")["error"]
    assert run(prisoner, "x = bytearray(50 << 20)")["ok"]


def test_memory_of_all_its_processes_together_is_limited(prisoner):
    source = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        block = bytearray(80 << 20)
        for i in range(0, len(block), 4096): block[i] = 1
        time.sleep(100)
time.sleep(100)
"""
    with pytest.raises(Killed, match="more than 256 MB of memory"):
        run(prisoner, source)


def test_memory_that_no_process_maps_is_limited(prisoner):
    """Scratch files, shared memory and pipes count too."""
    assert (
        "No space left"
        in run(prisoner, "for i in range(100): open(f'f{i}', 'wb').write(bytes(1 << 20))")["error"]
    )
    assert not run(prisoner, "import os; os.memfd_create('x')")["ok"]


def test_time_is_limited_and_the_kill_is_hard(prisoner):
    start = time.monotonic()
    with pytest.raises(Killed, match="longer than 1 s"):
        run(
            prisoner,
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            seconds=1.0,
        )
    assert time.monotonic() - start < 5
    with pytest.raises(Killed):
        run(prisoner, "1")


FORKS = """
import os
n = 0
try:
    while True:
        if os.fork() == 0: os.kill(os.getpid(), 19)
        n += 1
except OSError: print(n)
"""


def test_processes_files_and_output_are_limited(prisoner):
    count = run(
        prisoner,
        FORKS,
    )
    assert 1 <= int(text(count)) <= 24
    assert (
        "Too many open files" in run(prisoner, "kept = [open('/dev/null') for _ in range(10_000)]")["error"]
    )
    answer = run(prisoner, "kept = None\nprint('x' * 60_000_000)")
    assert len(json.dumps(answer)) < 60_000
    assert "left out" in text(answer)


def test_everything_is_dead_at_the_end(jail):
    source = """
import ctypes, os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(15, b"tl-test-orphan", 0, 0, 0)
        if os.fork() == 0: time.sleep(1000)
        time.sleep(1000)
time.sleep(0.2)
"""
    with contextlib.closing(jail.fork()) as one:
        run(one, source)
        assert len(_named("tl-test-orphan")) == 6
    assert not _named("tl-test-orphan")


def test_everything_dies_with_the_grader(tmp_path):
    script = """
import sys, time
from grader.jail import Jail
with Jail() as jail:
    one = jail.fork()
    name = "import ctypes, os, time; ctypes.CDLL(None).prctl(15, b'tl-test-widow', 0, 0, 0)"
    one.request({"do": "cell", "source": name + "\\nif os.fork() == 0: time.sleep(1000)"})
    print("ready", flush=True)
    time.sleep(1000)
"""
    grader = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert grader.stdout.readline() == b"ready\n"
    assert _named("tl-test-widow")
    grader.kill()
    grader.wait()
    grader.stdout.close()
    deadline = time.monotonic() + 20
    while _named("tl-test-widow") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _named("tl-test-widow")


def _named(name: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if (
                path.read_text().strip() == name
                and "Z" not in (path.parent / "stat").read_text().split(")")[1][:3]
            ):
                found.append(path.parent.name)
    return found


def test_a_death_leaves_the_warm_process_alone(jail):
    for source in ("import os; os._exit(0)", "import ctypes; ctypes.string_at(0)"):
        with contextlib.closing(jail.fork()) as one, pytest.raises(Killed):
            run(one, source)
    with contextlib.closing(jail.fork()) as next_one:
        assert run(next_one, "1 + 1")["ok"]


# ---- the wire ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent, error",
    [
        (struct.pack(">II", 1 << 30, 0), ChannelError),
        (struct.pack(">II", 2, 1 << 31), ChannelError),
        (struct.pack(">II", 3, 0) + b"{{{", ChannelError),
        (struct.pack(">II", 2, 0) + b"[]", ChannelError),
        (struct.pack(">II", 200_000, 0) + b"[" * 200_000, ChannelError),
        (struct.pack(">II", 10, 0) + b"{", ChannelClosed),
        (b"", ChannelClosed),
    ],
)
def test_a_malformed_message_is_an_error_and_nothing_else(sent, error):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=lambda: (theirs.sendall(sent), theirs.shutdown(socket.SHUT_WR)))
        writer.start()
        with pytest.raises(error):
            Channel(ours).receive(5.0)
        writer.join()


def test_dripping_bytes_gains_no_time():
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def drip():
        while not stop.wait(0.05):
            with contextlib.suppress(OSError):
                theirs.send(b"\0")

    theirs.send(struct.pack(">II", 1000, 0))
    thread = threading.Thread(target=drip)
    thread.start()
    start = time.monotonic()
    with pytest.raises(ChannelTimeout):
        Channel(ours).receive(0.5)
    assert time.monotonic() - start < 2
    stop.set(), thread.join(), ours.close(), theirs.close()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_what_it_names(machine):
    column, architecture = seccomp._MACHINES[machine]
    steps = list(struct.iter_unpack("HBBI", seccomp.program(machine)))

    def decide(number: int, argument: int = 0, arch: int = architecture) -> int:
        """A small interpreter of the filter's instructions."""
        at, value = 0, 0
        while True:
            code, if_true, if_false, k = steps[at]
            at += 1
            if code == 0x20:
                value = {0: number, 4: arch, 16: argument}[k]
            elif code == 0x06:
                return k
            else:
                holds = {0x15: value == k, 0x45: bool(value & k), 0x35: value >= k}[code]
                at += if_true if holds else if_false

    for name, numbers in seccomp._REFUSED.items():
        if numbers[column] is not None:
            assert decide(numbers[column]) == 0x50001, name
    assert decide(seccomp._CLONE[column], 0x10000000) == 0x50001
    assert decide(seccomp._CLONE[column], 0x11) == 0x7FFF0000
    assert decide(seccomp._SOCKET[column], 2) == 0x5000D
    assert decide(seccomp._SOCKET[column], 1) == 0x7FFF0000
    assert decide(9999) == 0x7FFF0000
    assert decide(9999, arch=0) == 0x80000000


# ---- where there is no isolation -----------------------------------------------------------------


def test_grading_refuses_where_nothing_isolates(monkeypatch, tmp_path):
    monkeypatch.setattr(classroom, "isolation_problem", lambda: "this is a test")
    course = classroom.Course.at(tmp_path)
    monkeypatch.setattr(classroom.Course, "release", lambda *_: b"")
    with pytest.raises(submission.NotIsolated, match="this is a test"):
        classroom.run(course, "02_positional_encoding", quiet=True)


def test_without_isolation_is_possible_and_limits_stay():
    with Jail(SMALL, isolated=False) as bare, contextlib.closing(bare.fork()) as one:
        assert run(one, "1 + 1")["ok"]
        assert "MemoryError" in run(one, "x = bytearray(600 << 20)")["error"]
        with pytest.raises(Killed, match="longer than 1 s"):
            run(one, "while True: pass", seconds=1.0)


def test_a_jail_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr("grader.jail.outside._visible", lambda: [["/nowhere", "/nowhere"]])
    with pytest.raises(JailError, match="nowhere"), Jail(SMALL) as broken:
        broken.fork()


# ---- without rights ------------------------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="not root: all tests above ran as a user without rights already")
def test_all_of_this_as_a_user_without_rights():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-x", __file__]
    with open_scratch() as folder:
        done = as_nobody([*command, f"--basetemp={folder}/base"], folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
