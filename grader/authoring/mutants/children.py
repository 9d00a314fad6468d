"""Run one piece of work after another, each in a child process that may loop or swell without harm.

A child is a fork: it has everything that was loaded and computed before, and what it breaks is gone with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from grader.errors import UserMistake

GIB = 2**30
LOOK = 0.5  # seconds after which children are looked at that say nothing


@dataclass(frozen=True)
class Limits:
    """What one child may use. Processor time decides; the clock only ends what waits for nothing."""

    cpu: int = 20  # seconds
    memory: int = 2 * GIB  # on top of what the process has when it starts
    clock: float = 600.0  # seconds: a busy machine must not decide

    @staticmethod
    def beside(own: float) -> Limits:
        """Limits for work that takes `own` seconds when it is right."""
        return Limits(cpu=max(Limits.cpu, round(10 * own)))


class TimedOut(Exception):
    """The child used up its time."""


class Died(Exception):
    """The child ended without an answer: it was killed, or it could not get memory."""


def can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


def in_children(
    work: Callable[[Any], Any], items: Iterable[Any], workers: int, limits: Limits
) -> Iterator[Any]:
    """Yield what `work` returns for each item, in their order; TimedOut or Died where it returned nothing.

    Raises UserMistake where the system cannot fork (Windows).
    """
    if not can_fork():
        raise UserMistake("Mutants run in forked processes, which this system does not have. Use Linux.")
    waiting, running, done, given = deque(enumerate(items)), {}, {}, 0
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                number, item = waiting.popleft()
                running[number] = _Child(work, item, limits)
            for number in _finished(running):
                done[number] = running.pop(number).outcome()
            while given in done:
                yield done.pop(given)
                given += 1
    finally:
        for child in running.values():
            child.kill()


def _finished(running: dict[int, _Child]) -> list[int]:
    wait([child.answer for child in running.values()], LOOK)
    return [number for number, child in running.items() if child.is_done()]


class _Child:
    """One forked process at work."""

    def __init__(self, work: Callable, item: Any, limits: Limits):
        self.answer, theirs = multiprocessing.Pipe(duplex=False)
        self._ends = time.monotonic() + limits.clock
        context = multiprocessing.get_context("fork")
        self._process: BaseProcess = context.Process(target=_serve, args=(work, item, theirs, limits))
        self._process.start()
        theirs.close()

    def is_done(self) -> bool:
        """Say whether there is an outcome: an answer, an end without one, or no time left."""
        return self.answer.poll() or time.monotonic() > self._ends

    def outcome(self) -> Any:
        """Return the answer, TimedOut or Died."""
        try:
            found = self.answer.recv() if self.answer.poll() else TimedOut()
        except EOFError:
            self._process.join()
            found = TimedOut() if self._process.exitcode == -signal.SIGXCPU else Died()
        self.kill()
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self.answer.close()


def _serve(work: Callable, item: Any, answer: Connection, limits: Limits) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # what a library writes past Python, too
        os.dup2(nowhere, number)
    _set(limits)
    try:
        answer.send(work(item))
    finally:
        os._exit(0)  # nothing of the parent's is flushed or torn down here


def _set(limits: Limits) -> None:
    import resource  # not on Windows, where no child is started

    most = {resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: limits.cpu}
    with (
        contextlib.suppress(OSError),
        open("/proc/self/statm") as file,
    ):  # elsewhere nothing says how much it has
        most[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + limits.memory
    for what, value in most.items():
        with contextlib.suppress(ValueError, OSError):  # a lower limit may be set already
            resource.setrlimit(what, (value, resource.getrlimit(what)[1]))
