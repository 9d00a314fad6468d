"""Grade many submissions at once: on this machine's cores, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from grader.submission import grade_bytes, warm_jail

Task = Callable[[], tuple]  # reads a submission and returns grade_bytes's arguments
TRIES = 3


def _start_worker() -> None:
    """Leave Ctrl-C to the main process, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform.startswith("linux"):
        from grader.inside.namespaces import die_with_parent

        die_with_parent()
    import torch

    torch.set_num_threads(1)


def on_this_machine(tasks: dict[str, Task], workers: int, isolated: bool = True) -> Iterator[tuple[str, str]]:
    """Yield (student, result as JSON) as submissions finish. A worker process that dies is replaced.

    The workers start at this call, not at the first result. They are forked where that is safe, so that torch
    is imported once and one jail serves them all.
    Raises what grade_bytes raises, and BrokenProcessPool when workers keep dying.
    """
    if workers == 1 or len(tasks) < 2:
        return _in_this_process(tasks)
    warm_jail(isolated)
    return _in_a_pool(_new_pool(workers), dict(tasks), workers)


def _new_pool(workers: int) -> ProcessPoolExecutor:
    alone = threading.active_count() == 1  # a fork while another thread holds a lock would never get it
    method = "fork" if alone and sys.platform.startswith("linux") else "spawn"
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), _start_worker)
    pool.submit(os.getpid)  # starts the workers
    return pool


def _in_this_process(tasks: dict[str, Task]) -> Iterator[tuple[str, str]]:
    """The jail stays warm afterwards: formgrader's next single submission is graded at once."""
    for student, task in tasks.items():
        yield student, grade_bytes(*task())


def _in_a_pool(
    pool: ProcessPoolExecutor, waiting: dict[str, Task], workers: int
) -> Iterator[tuple[str, str]]:
    for attempt in range(1, TRIES + 1):
        try:
            for student, outcome in _drain(pool, waiting, workers):
                del waiting[student]
                yield student, outcome
            pool.shutdown()
            return
        except BrokenProcessPool:
            if attempt == TRIES:
                raise
            pool = _new_pool(workers)
        except BaseException:
            _end_now(pool)
            raise


def _drain(pool: ProcessPoolExecutor, tasks: dict[str, Task], workers: int) -> Iterator[tuple[str, str]]:
    """Keep every worker busy while holding only a few submissions in memory."""
    students = iter(list(tasks))
    running: dict[Future, str] = {}
    while True:
        while len(running) < 2 * workers and (student := next(students, None)) is not None:
            running[pool.submit(grade_bytes, *tasks[student]())] = student
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()


def _end_now(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        with contextlib.suppress(OSError):
            process.kill()


def on_dask(tasks: dict[str, Task], address: str) -> Iterator[tuple[str, str]]:
    """The same on the workers of a Dask scheduler. A submission whose worker is lost is tried on another.

    Workers need this package installed and may share nothing else with this machine.
    Start them with one thread each: a process grades one submission at a time.
    """
    from distributed import Client, as_completed

    with Client(address) as client:
        students = iter(list(tasks))
        window = 4 * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        names: dict[str, str] = {}

        def submit_next():
            student = next(students, None)
            if student is None:
                return None
            future = client.submit(grade_bytes, *tasks[student](), pure=False, retries=TRIES)
            names[future.key] = student
            return future

        pending = as_completed([f for f in (submit_next() for _ in range(window)) if f is not None])
        for future in pending:
            yield names.pop(future.key), future.result()
            future.release()
            if (more := submit_next()) is not None:
                pending.add(more)
