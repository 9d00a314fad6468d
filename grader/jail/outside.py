"""The outside end of the jail: starts it, forks submissions in it, watches them and ends them.

A `Jail` is one warm process that has imported torch; `Jail.fork` gives a `Prisoner`, a process forked from it
for one submission. What a prisoner may see and use is in `Limits` and `_visible`. See `inside` too.

Needs Linux with user namespaces; root is not needed and nothing in the jail runs as root. No daemon.
`isolation_problem()` says why this machine has none.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from grader.jail.inside.channel import Channel, ChannelClosed, ChannelError, ChannelTimeout, send_descriptor
from grader.jail.remedy import remedy, this_machine

INSIDE = Path(__file__).resolve().parent / "inside"
START_SECONDS = 120.0
_INSIDE_ID = 1000
_count = itertools.count()
_PYTHON = f"/jail/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/usr/share/fonts",
    "/etc/ld.so.cache", "/etc/fonts", "/etc/localtime",
)  # fmt: skip
_ROOTS_STAND_IN = (
    1_900_000_000  # user ids from here on belong to nobody; root's jails run as them, each as its own
)
_IMPORTS = (
    "numpy", "matplotlib", "matplotlib.pyplot",
    "matplotlib_inline.backend_inline", "ipywidgets", "anywidget", "tqdm.auto",
    "safetensors.torch", "transformer_lab.checking",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Sizes in bytes, times in seconds."""

    memory_bytes: int = 2 << 30  # beyond the warm process's own; all processes of a submission together
    scratch_bytes: int = 64 << 20
    processes: int = 48  # threads count too
    left_running: int = 8  # processes that may go on after their cell has ended
    open_files: int = 256
    cell_output_bytes: int = 1 << 20
    total_output_bytes: int = 8 << 20
    cpu_seconds: int = 600  # of one process
    cell_seconds: float = 60.0
    exercise_seconds: float = 60.0
    submission_seconds: float = 600.0
    restarts: int = 8  # fresh processes after a death
    seccomp: bool = True


class JailError(RuntimeError):
    """The jail itself could not do its work: never a submission's fault."""


class Killed(Exception):
    """A submission's process was ended, or ended itself. The text says why, in words for a report."""


def _package_folders() -> list[str]:
    """The folders that installed packages lie in, in import order."""
    known = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = [p for p in sys.path if p in known or Path(p).name in ("site-packages", "dist-packages")]
    return [p for p in dict.fromkeys(found) if os.path.isdir(p)]


def _course_folder() -> Path:
    import transformer_lab

    return Path(transformer_lab.__file__).resolve().parent


def _visible() -> list[list[str]]:
    """[source, target] of everything that can be read in the jail.

    Python and its packages stand in neutral places: a learner sees no path of this machine, and a course or
    an environment below /tmp is in nobody's way.
    """
    pairs = [[path, path] for path in _SYSTEM]
    pairs.append([os.path.realpath(sys.executable), _PYTHON])
    base, library = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    if (base / "conda-meta").is_dir():  # conda keeps every shared library beside Python's own
        pairs.append([str(base / "lib"), "/jail/python/lib"])
    else:
        pairs.append([str(library), f"/jail/python/lib/{library.name}"])
        platform = Path(sysconfig.get_path("platstdlib"))
        if "lib64" in platform.parts:
            pairs.append([str(platform), f"/jail/python/lib64/{platform.name}"])
        pairs += [[str(p), f"/jail/python/lib/{p.name}"] for p in (base / "lib").glob("libpython*.so*")]
    pairs += [[source, target] for source, target in zip(_package_folders(), _package_targets(), strict=True)]
    pairs += [[str(INSIDE), "/jail/inside"], [str(_course_folder()), "/jail/course/transformer_lab"]]
    return [pair for pair in pairs if os.path.lexists(pair[0])]


def _package_targets() -> list[str]:
    """Where package folders stand in the jail; by the last part, library code is told from a learner's."""
    return [f"/jail/packages/{number}/site-packages" for number in range(len(_package_folders()))]


def _hidden() -> list[str]:
    """Folders that stay empty in the jail: an installed grader lies among the packages and holds answers."""
    pairs = zip(_package_folders(), _package_targets(), strict=True)
    return [f"{target}/grader" for source, target in pairs if (Path(source) / "grader").is_dir()]


def _configuration(limits: Limits, root: str, isolated: bool) -> dict:
    """What launcher.py and worker.py need to know, as JSON-like data."""
    as_root = os.geteuid() == 0
    user = _ROOTS_STAND_IN + os.getpid() * 8 + next(_count) % 8
    scratch = "/scratch" if isolated else root
    course = "/jail/course" if isolated else str(_course_folder().parent)
    return {
        "root": root,
        "visible": _visible() if isolated else [],
        "hidden": _hidden() if isolated else [],
        "as_root": as_root,
        "outside_ids": [user, user] if as_root else [0, 0],
        "python": _PYTHON,
        "environment": _environment(scratch),
        "worker": {
            "isolated": isolated,
            "path": [course, *(_package_targets() if isolated else _package_folders())],
            "imports": list(_IMPORTS),
            "inside_id": _INSIDE_ID,
            "scratch": scratch,
            "scratch_bytes": limits.scratch_bytes,
        },
    }


def _environment(scratch: str) -> dict[str, str]:
    """The whole environment in the jail: nothing of the grader's own is passed on."""
    threads = {
        f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
    }
    machine = {
        name: os.environ[name] for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ
    }
    plain = {
        "HOME": f"{scratch}/home",
        "TMPDIR": f"{scratch}/tmp",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
    }
    pictures = {
        "MPLCONFIGDIR": f"{scratch}/home/.matplotlib",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    return threads | machine | plain | pictures


class Jail:
    """One warm process in a jail. A context manager: at its end everything in it is dead.

    warm=False imports nothing: such a jail can start and end processes, enough to see whether jails work.
    isolated=False starts the same processes WITHOUT a jail: only the resource limits are left. For platforms
    that have no isolation, and only when an instructor has said so.
    """

    def __init__(self, limits: Limits | None = None, isolated: bool = True, warm: bool = True):
        if not hasattr(os, "fork") or (isolated and not sys.platform.startswith("linux")):
            raise JailError(f"{sys.platform} has no isolation that this grader knows")
        self.limits, self.isolated = limits or Limits(), isolated
        self._root = tempfile.mkdtemp(prefix="jail-")
        # sockets that keep messages apart, where there are such: forked workers may write at the same time
        kind = socket.SOCK_SEQPACKET if sys.platform.startswith("linux") else socket.SOCK_STREAM
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        config = _configuration(self.limits, self._root, isolated)
        config["worker"]["warm"] = warm
        script = INSIDE / ("launcher.py" if isolated else "worker.py")
        told = json.dumps(config if isolated else config["worker"])
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the jail)
        self._process = subprocess.Popen(
            [os.path.realpath(sys.executable), "-I", "-S", "-B", str(script), str(theirs.fileno()), told],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env=config["environment"],
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        self._warm = False

    def __enter__(self) -> Jail:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def wait_until_warm(self) -> None:
        """Wait for the imports. Raises JailError with the jail's own words when it does not come up."""
        if self._warm:
            return
        try:
            readable, _, _ = select.select([self._control], [], [], START_SECONDS)
            came_up = bool(readable) and self._control.recv(16) == b"warm"
        except OSError:
            came_up = False
        if not came_up:
            self.close()
            raise JailError(f"the jail did not start: {self.complaints() or 'no answer'}")
        self._warm = True
        if self.isolated:  # the new root has left it; a grader that is killed now leaves nothing behind
            with contextlib.suppress(OSError):
                os.rmdir(self._root)

    def complaints(self) -> str:
        """What the jail's own processes wrote to stderr (no learner's code can write there)."""
        if self._errors.closed:
            return self._last_words
        self._errors.seek(0)
        return self._errors.read(10_000).decode("utf-8", "replace").strip()

    def fork(self, limits: Limits | None = None) -> Prisoner:
        """Return a fresh process for one submission. Raises JailError."""
        self.wait_until_warm()
        limits = limits or self.limits
        ours, theirs = socket.socketpair()
        if hasattr(socket, "SO_PASSCRED"):
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            send_descriptor(self._control, json.dumps(asdict(limits)).encode(), theirs.fileno())
            theirs.close()
            return Prisoner(ours, limits, self.isolated)
        except (OSError, ChannelError, Killed) as error:
            ours.close()
            raise JailError(f"the jail could not start a process: {error}; {self.complaints()}") from error

    def close(self) -> None:
        """Kill everything in the jail and wait until it is dead."""
        self._control.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._last_words = self.complaints()
        self._errors.close()
        shutil.rmtree(self._root, ignore_errors=True)  # empty, unless there was no isolation


class Prisoner:
    """A process forked for one submission; the outside end. `kill` ends all that it ever started."""

    def __init__(self, sock: socket.socket, limits: Limits, isolated: bool):
        self.limits, self._isolated = limits, isolated
        self.peak_bytes = 0
        self.dead: str | None = None
        self._number = 0
        self._closed = False
        self._channel = Channel(sock)
        vouched = _sender_of_first_message(sock)
        ready, _ = self._channel.receive(10.0)  # sent before any code of the learner's runs
        self._pid = vouched or ready["pid"]
        self._pidfd = os.pidfd_open(self._pid) if hasattr(os, "pidfd_open") else None
        self._channel.tick = self._watch
        self._baseline = _resident_bytes([self._pid])

    def request(self, message: dict, blob: bytes = b"", seconds: float = 60.0) -> tuple[dict, bytes]:
        """Ask for something and return the answer. Raises Killed when there is none to be had."""
        if self.dead:
            raise Killed(self.dead)
        self._number += 1
        try:
            self._channel.send(message | {"number": self._number}, blob, seconds)
            answer, data = self._channel.receive(seconds)
            self._watch()
        except ChannelClosed:
            self.kill("its process ended")
        except ChannelTimeout:
            self.kill(f"it ran longer than {seconds:.0f} s")
        except ChannelError as error:
            self.kill(str(error))
        if answer.get("number") != self._number:
            self.kill("it answered something that was not asked")
        return answer, data

    def _watch(self) -> None:
        """Look at the memory that all its processes hold, and end it when that is too much."""
        pids = [self._pid, *_descendants(self._pid)]
        if len(pids) > self.limits.processes + 8:
            self.kill(f"it started more than {self.limits.processes} processes")
        used = _resident_bytes(pids) - self._baseline
        if used > self.limits.memory_bytes:
            used = _proportional_bytes(pids) - self._baseline  # pages that its processes share count once
        self.peak_bytes = max(self.peak_bytes, used)
        if used > self.limits.memory_bytes:
            self.kill(f"it used more than {self.limits.memory_bytes >> 20} MB of memory")

    def sweep(self) -> int:
        """End what a cell left running when it is more than a few processes; return how many there were."""
        left = len(_descendants(self._pid))
        if left <= self.limits.left_running:
            return 0
        self.request({"do": "sweep"}, seconds=10.0)
        return left

    def kill(self, reason: str) -> None:
        """End it and all it started; then raise Killed(reason)."""
        self.close()
        self.dead = reason
        raise Killed(reason)

    def close(self) -> None:
        """End it and all it started, and wait until it is dead."""
        if self._closed:
            return
        self._closed, self.dead = True, self.dead or "it was already ended"
        if not self._isolated:  # nothing better than its process group holds together what it started
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            # readable once it is dead; everything in its process namespace died before
            select.select([self._pidfd], [], [], 10.0)
            os.close(self._pidfd)
        self._channel.close()


def _sender_of_first_message(sock: socket.socket) -> int | None:
    """Return the number of the process that sent the first message, as the kernel vouches for it (Linux)."""
    if not select.select([sock], [], [], 20.0)[0]:
        raise ChannelError("no sign of life")
    if not hasattr(socket, "SCM_CREDENTIALS"):
        return None
    _, extra, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid = struct.unpack("iii", data)[0]
            if pid > 0:
                return pid
    raise ChannelClosed("it ended before its first message")


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < 1000:
        with contextlib.suppress(OSError, ValueError):
            current = waiting.pop()
            for task in os.listdir(f"/proc/{current}/task"):
                children = [int(p) for p in Path(f"/proc/{current}/task/{task}/children").read_text().split()]
                found += children
                waiting += children
    return found


def _resident_bytes(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return total


def _proportional_bytes(pids: list[int]) -> int:
    """Like `_resident_bytes`, but a page that several processes share counts once among them."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, IndexError):
            total += _resident_bytes([pid])
    return total


_shared: Jail | None = None
_shared_by: int | None = None  # the process that started it; processes forked from that one use it too


def shared_jail(isolated: bool = True) -> Jail:
    """Return this process's jail, started when there is none yet. It warms up while the caller goes on.

    Workers forked from this process share it: one set of imports serves them all.
    """
    global _shared, _shared_by
    if _shared is not None and _shared.isolated != isolated:
        close_shared_jail()
    if _shared is None:
        _shared, _shared_by = Jail(isolated=isolated), os.getpid()
        atexit.register(close_shared_jail)
    return _shared


def warm_up_early(isolated: bool) -> None:
    """Start the shared jail, where there can be one, to be warm when the caller's own imports are done."""
    if hasattr(os, "fork") and (sys.platform.startswith("linux") or not isolated):
        shared_jail(isolated)


def close_shared_jail() -> None:
    """End this process's jail; one that was started by a parent process is only let go of."""
    global _shared
    if _shared is not None and _shared_by == os.getpid():
        _shared.close()
    _shared = None


@functools.cache
def isolation_problem() -> str | None:
    """Say why submissions cannot be isolated on this machine, or None when they can."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no isolation that this grader knows; use Linux (a virtual machine, WSL 2)"
    try:
        with Jail(warm=False) as jail:
            jail.fork().close()
    except (JailError, OSError) as error:
        return f"{error} ({remedy(this_machine())})"
    return None
