"""Look into hostile bytes in a child process with limits: what is too much for it ends that child only.

The child is forked, so it has everything imported and costs about as much as a fork (a hundredth of a
second). It may use so much time and memory, writes no file, and hands back plain data of bounded size.
Where a process cannot fork, the same is done in this one; the size limits of `reading` are left then.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Plain = tuple[dict[str, Any], bytes]  # JSON-like data, and a block of bytes
_HEADER = struct.Struct(">?QQ")  # whether it was done, and two lengths


@dataclass(frozen=True)
class Allowance:
    """What one look may use. An ordinary submission needs a hundredth of it."""

    cpu_seconds: int = 10
    memory_bytes: int = 1 << 30  # beyond what this process has mapped already
    answer_bytes: int = 96 << 20
    patience: float = 300.0  # seconds of the clock, for a machine that is busy with other things


class Refused(Exception):
    """The look was ended by a limit, or failed; the text says why, in words for a note."""


def call(work: Callable[[], Plain], allowance: Allowance | None = None) -> Plain:
    """Return what `work` returns, done in a child. It must not rely on changing anything here.

    Raises Refused, and OSError when this machine cannot start a process.
    """
    allowance = allowance or Allowance()
    if not hasattr(os, "fork"):
        return _here(work)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_the_child(work, write, allowance)
    os.close(write)
    try:
        answer, ended_by_us = _receive(read, allowance)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    return _understood(answer, ended_by_us or _end_in_words(status, used.ru_utime + used.ru_stime, allowance))


def _here(work: Callable[[], Plain]) -> Plain:
    try:
        return work()
    except Exception as error:
        raise Refused(_failure(error)) from error


# ---- in the child ------------------------------------------------------------------------------------------


def _be_the_child(work: Callable[[], Plain], write: int, allowance: Allowance) -> None:
    """Do the work and write the answer. Never returns: nothing of the parent's must run twice."""
    try:
        gc.disable()  # it would run the end of objects that are the parent's
        warnings.simplefilter("ignore")
        _limit(allowance)
        try:
            tree, block = work()
            done, text = True, json.dumps(tree).encode()
        except BaseException as error:
            done, text, block = False, _failure(error).encode(), b""
        _write(write, _HEADER.pack(done, len(text), len(block)) + text, block)
    finally:
        os._exit(0)


def _limit(allowance: Allowance) -> None:
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, and ends this process
    if sys.platform.startswith("linux"):
        from grader.jail.inside.namespaces import die_with_parent

        die_with_parent()
    limits = {"RLIMIT_CPU": allowance.cpu_seconds, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    with contextlib.suppress(OSError):  # without /proc memory is left to the limits on size
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        limits["RLIMIT_AS"] = mapped + allowance.memory_bytes
    for name, value in limits.items():
        with contextlib.suppress(OSError, ValueError):  # a stricter limit than ours stands already
            resource.setrlimit(getattr(resource, name), (value, value))


def _failure(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"it could not be understood ({type(error).__name__})"


def _write(descriptor: int, *parts: bytes) -> None:
    for part in parts:
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


# ---- in the parent -----------------------------------------------------------------------------------------


def _receive(read: int, allowance: Allowance) -> tuple[bytearray, str]:
    """Return all that the child wrote, and why it was not waited for any longer ("" when it was)."""
    data, deadline = bytearray(), time.monotonic() + allowance.patience
    poll = select.poll()
    poll.register(read, select.POLLIN)
    while True:
        if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            return data, f"it took longer than {allowance.patience:.0f} s"
        piece = os.read(read, 1 << 20)
        if not piece:
            return data, ""
        data += piece
        if len(data) > allowance.answer_bytes:
            return data, f"it holds more than {allowance.answer_bytes >> 20} MB"


def _end_in_words(status: int, seconds: float, allowance: Allowance) -> str:
    if seconds > 0.9 * allowance.cpu_seconds:
        return f"it took more than {allowance.cpu_seconds} s"
    return f"the process that read it was ended (status {status})"


def _understood(answer: bytearray, otherwise: str) -> Plain:
    """Take the child's answer apart. Raises Refused, with `otherwise` when there is no whole one."""
    try:
        done, size, block = _HEADER.unpack_from(answer)
    except struct.error:
        raise Refused(otherwise) from None
    text = bytes(answer[_HEADER.size : _HEADER.size + size])
    if len(answer) != _HEADER.size + size + block:
        raise Refused(otherwise)
    if not done:
        raise Refused(text.decode("utf-8", "replace")[:200])
    return json.loads(text), bytes(memoryview(answer)[_HEADER.size + size :])
