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
from typing import Any

from grader.grading.job import Job, Outcome, grade, grade_elsewhere, warm_jail

Read = Callable[[], Job]  # reads a submission and says how to grade it
Result = tuple[str, Outcome | BaseException]  # a student, and the outcome or why the grader has none
TRIES = 3


def _start_worker() -> None:
    """Leave Ctrl-C to the main process, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform.startswith("linux"):
        from grader.jail.inside.namespaces import die_with_parent

        die_with_parent()
    import torch

    torch.set_num_threads(1)


def on_this_machine(jobs: dict[str, Read], workers: int, isolated: bool = True) -> Iterator[Result]:
    """Grade on this machine's cores.

    The workers start at this call, not at the first result. They are forked where that is safe, so that torch
    is imported once and one jail serves them all. A submission whose worker dies is tried once more, alone.
    Whatever is raised while one submission is read or graded is that student's result.
    """
    if workers == 1 or len(jobs) < 2:
        return _in_this_process(jobs)
    warm_jail(isolated)
    return _in_a_pool(_new_pool(workers), dict(jobs), workers)


def _new_pool(workers: int) -> ProcessPoolExecutor:
    pool = ProcessPoolExecutor(workers, _context(), _start_worker)
    pool.submit(os.getpid)  # starts the workers
    return pool


def _context() -> Any:
    """Return how workers are started: forked from here where that is safe, else from a process kept for it.

    A fork while another thread holds a lock would never get it. The process that is kept has one thread and
    has imported torch once for all workers to come.
    """
    if not sys.platform.startswith("linux"):
        return multiprocessing.get_context("spawn")
    if threading.active_count() == 1:
        return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["grader.classroom.forkserver"])
    return context


def _in_this_process(jobs: dict[str, Read]) -> Iterator[Result]:
    """The jail stays warm afterwards: formgrader's next single submission is graded at once."""
    for student, read in jobs.items():
        yield student, _attempt(lambda read=read: grade(read()))


def _attempt(step: Callable[[], Any]) -> Any:
    """Return what one student's step gives, or what it raises: the next submission is graded all the same.

    A pool that broke is no student's: BrokenProcessPool passes through, as Ctrl-C does.
    """
    try:
        return step()
    except BrokenProcessPool:
        raise
    except Exception as error:
        return error


def _outcome_of(future: Any) -> Outcome | BaseException:
    """Return what a finished future holds, in whatever state it came back."""
    return _attempt(lambda: future.exception() or Outcome.from_json(future.result()))


def _in_a_pool(pool: ProcessPoolExecutor, waiting: dict[str, Read], workers: int) -> Iterator[Result]:
    while waiting:
        running: dict[Future, str] = {}
        try:
            for student, outcome in _drain(pool, waiting, running, workers):
                del waiting[student]
                yield student, outcome
            pool.shutdown()
        except BrokenProcessPool:
            for student in list(running.values()):  # one of these took the pool down
                yield student, _alone(waiting.pop(student))
            pool = _new_pool(workers)
        except BaseException:
            _end_now(pool)
            raise


def _drain(
    pool: ProcessPoolExecutor, waiting: dict[str, Read], running: dict[Future, str], workers: int
) -> Iterator[Result]:
    """Keep every worker busy while holding only a few submissions in memory. Raises BrokenProcessPool."""
    students = iter(list(waiting))
    while True:
        while len(running) < 2 * workers and (student := next(students, None)) is not None:
            job = _attempt(waiting[student])
            if isinstance(job, BaseException):
                yield student, job
                continue
            running[pool.submit(grade_elsewhere, job)] = student
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            if isinstance(error := future.exception(), BrokenProcessPool):
                raise error
            yield running.pop(future), _outcome_of(future)


def _alone(read: Read) -> Outcome | BaseException:
    job = _attempt(read)
    if isinstance(job, BaseException):
        return job
    try:
        with _new_pool(1) as pool:
            return _outcome_of(pool.submit(grade_elsewhere, job))
    except BrokenProcessPool as error:
        return error


def _end_now(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        with contextlib.suppress(OSError):
            process.kill()


def on_dask(jobs: dict[str, Read], address: str) -> Iterator[Result]:
    """Grade on the workers of a Dask scheduler. A submission whose worker is lost is tried on another.

    Workers need a copy of this repository and its environment, and share nothing else with this machine.
    Start them with one thread each: a process grades one submission at a time.
    """
    from distributed import Client, as_completed

    with Client(address) as client:
        window = 4 * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        waiting, names, pending = iter(list(jobs)), {}, as_completed()
        while True:
            while len(names) < window and (student := next(waiting, None)) is not None:
                future = _attempt(lambda name=student: _on_cluster(client, jobs[name]))
                if isinstance(future, BaseException):
                    yield student, future
                    continue
                names[future.key] = student
                pending.add(future)
            if not names:
                return
            done = next(pending)
            yield names.pop(done.key), _outcome_of(done)
            done.release()


def _on_cluster(client: Any, read: Read) -> Any:
    """Read a submission here and hand it to a worker; return the future."""
    return client.submit(grade_elsewhere, read(), pure=False, retries=TRIES)
