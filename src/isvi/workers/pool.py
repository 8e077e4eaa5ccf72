"""Workers behind anything that has ``submit``: threads, processes, the executor of a Dask client."""

import os
import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from uuid import uuid4

from isvi.core.errors import ConfigurationError, WorkerError, require
from isvi.workers.answers import answered
from isvi.workers.crew import TIME_LIMIT, Work, checked_size, checked_time_limit, refuse_another_try
from isvi.workers.sending import pickled

DEFAULT_SIZE = 8
"""Workers of an executor that does not say how many it has."""

_opened: dict[str, Any] = {}
"""Work that this process has open, by name."""
_opening = Lock()


@dataclass(frozen=True)
class Pool:
    """Workers of an executor: ``isvi.fit(..., workers=isvi.Pool(ThreadPoolExecutor(16)))``.

    Threads are enough where a gradient is computed elsewhere, or in code that lets other threads run; they share the
    model and the data. Processes get them through a file.

    Args:
        executor: of :mod:`concurrent.futures`, or with the same ``submit``; it stays open. Or a function that returns
            one, which is closed after the fit, and made anew when a worker dies.
        time_limit: seconds to wait for an answer before giving up.
        folder: where work is handed over to processes, if not in the system's folder for temporary files: processes on
            other machines need one that they share.
        asynchronous: workers do not wait for each other, nor for newer parameters. For unequal ones, or more than have
            something to do otherwise; the result then depends on who was how fast.
        num_workers: how many workers the executor has, if it is not one of :mod:`concurrent.futures`: in asynchronous
            mode, as many records are on their way.
    """

    executor: Executor | Callable[[], Executor]
    time_limit: float = TIME_LIMIT
    folder: str | Path | None = None
    asynchronous: bool = False
    num_workers: int | None = None

    def __post_init__(self) -> None:
        require(
            hasattr(self.executor, "submit") or callable(self.executor),
            ConfigurationError,
            "isvi.Pool takes an executor such as concurrent.futures.ThreadPoolExecutor(8), or a function that returns "
            f"one; got {self.executor!r}.",
        )
        checked_time_limit(self.time_limit)
        if self.num_workers is not None:
            checked_size(self.num_workers)

    def open(self, work: Work) -> "PoolCrew":
        return PoolCrew(self, work)


class PoolCrew:
    """An executor with the work at hand, a :class:`isvi.workers.crew.Crew`."""

    parts = False
    """An executor does not say who does a task."""

    def __init__(self, pool: Pool, work: Work) -> None:
        self.time_limit, self.asynchronous = pool.time_limit, pool.asynchronous
        self._make = None if hasattr(pool.executor, "submit") else pool.executor
        self._executor: Any = pool.executor if self._make is None else self._make()
        _refuse_fork(self._executor)
        _leaves_with_the_driver(self._executor)
        self.size: int = getattr(self._executor, "_max_workers", DEFAULT_SIZE)
        if pool.num_workers is not None:
            self.size = pool.num_workers
        self._lock, self._waiting, self._sent = Lock(), set[Future[Any]](), set[Future[Any]]()
        self._name = uuid4().hex
        self._file: Path | None = None
        if isinstance(self._executor, ThreadPoolExecutor):
            self._do = partial(_do_here, self._name, work)
        else:
            handle, path = tempfile.mkstemp(prefix="isvi-work-", dir=pool.folder)
            self._file = Path(path)
            with open(handle, "wb") as file:
                file.write(pickled(work))
            self._do = partial(_do_there, self._name, path)

    def submit(self, task: Any, place: int | None = None) -> "Future[Any]":
        outer: Future[Any] = Future()
        self._waiting.add(outer)
        outer.add_done_callback(self._waiting.discard)
        self._send(outer, task, 0)
        return outer

    def close(self) -> None:
        for outer in tuple(self._waiting):
            outer.cancel()
        if self._make is not None:
            _let_go(self._executor, busy=bool(self._sent))
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        _opened.pop(self._name, None)

    def _send(self, outer: "Future[Any]", task: Any, tries: int) -> None:
        executor = self._executor
        try:
            inner = executor.submit(self._do, task)
        except BrokenExecutor as error:
            self._again(outer, task, tries, executor, error)
            return
        # When one of its processes dies, Python's executor stumbles over tasks that were cancelled, and the others are
        # never answered: there they are done for nobody.
        if not isinstance(executor, ProcessPoolExecutor):
            outer.add_done_callback(lambda outer: outer.cancelled() and inner.cancel())
        self._sent.add(inner)
        inner.add_done_callback(self._sent.discard)
        inner.add_done_callback(lambda inner: self._settle(outer, task, tries, executor, inner))

    def _settle(self, outer: "Future[Any]", task: Any, tries: int, executor: Any, inner: "Future[Any]") -> None:
        if outer.cancelled() or inner.cancelled():
            outer.cancel()
            return
        error = inner.exception()
        if isinstance(error, BrokenExecutor):
            self._again(outer, task, tries + 1, executor, error)
        elif not outer.set_running_or_notify_cancel():  # from here on it cannot be cancelled
            return
        elif error is not None:
            outer.set_exception(error)
        else:
            outer.set_result(inner.result())

    def _again(self, outer: "Future[Any]", task: Any, tries: int, executor: Any, error: BrokenExecutor) -> None:
        """A worker died, and with it the executor: to a new one, if there can be one."""
        if self._make is None:
            outer.set_exception(
                WorkerError(
                    "A worker died, and its executor cannot be used any more. Pass a function that makes one, "
                    "isvi.Pool(lambda: ProcessPoolExecutor(...)), or use isvi.Ray, which replaces workers that died."
                )
            )
        elif refusal := refuse_another_try(tries):
            outer.set_exception(refusal)
        else:
            with self._lock:
                if self._executor is executor:
                    executor.shutdown(wait=False)
                    self._executor = self._make()
                    _leaves_with_the_driver(self._executor)
            self._send(outer, task, tries)


def _do_here(name: str, work: Work, task: Any) -> Any:
    return answered(lambda: _function(name, lambda: work)(task))


def _do_there(name: str, path: str, task: Any) -> Any:
    return answered(lambda: _function(name, lambda: pickle.loads(Path(path).read_bytes()))(task))


def _function(name: str, work: Callable[[], Work]) -> Callable[[Any], Any]:
    """The function that answers tasks, opened by the first of them in this process."""
    with _opening:
        if name not in _opened:
            _opened[name] = work()()
        return _opened[name]


def _let_go(executor: Any, busy: bool) -> None:
    """End an executor. Processes that are busy are killed: one that hangs would keep Python from ending."""
    processes = tuple((getattr(executor, "_processes", None) or {}).values()) if busy else ()
    executor.shutdown(wait=False, cancel_futures=not processes)
    for process in processes:
        process.kill()


def _leaves_with_the_driver(executor: Any) -> None:
    """Have the processes that an executor is going to start end when the driver is killed: they would wait for their
    next task for ever. From their beginning, when they have no task yet; there is no public way to say so later than
    where the executor is made."""
    if isinstance(executor, ProcessPoolExecutor) and getattr(executor, "_initializer", True) is None:
        executor._initializer = _leave_with_the_driver


def _leave_with_the_driver() -> None:
    driver = parent_process()
    if driver is not None:

        def leave() -> None:
            driver.join()
            os._exit(1)

        Thread(target=leave, daemon=True).start()


def _refuse_fork(executor: Any) -> None:
    context = getattr(executor, "_mp_context", None)
    require(
        context is None or context.get_start_method() != "fork",
        ConfigurationError,
        "A process that was forked from one that uses JAX can wait for ever: ProcessPoolExecutor(..., "
        'mp_context=multiprocessing.get_context("spawn")).',
    )
