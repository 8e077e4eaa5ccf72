"""Workers on Ray: processes on this machine, or on a cluster."""

import logging
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, WorkerError
from isvi.core.extras import import_extra
from isvi.workers.answers import Raised, answered
from isvi.workers.crew import TIME_LIMIT, Work, checked_size, checked_time_limit, refuse_another_try
from isvi.workers.sending import CANNOT_BE_SENT

log = logging.getLogger("isvi")

NOTHING_OPEN = "isvi: nothing is open"


@dataclass(frozen=True)
class Ray:
    """Workers of Ray: ``isvi.fit(..., workers=isvi.Ray(num_workers=8))``. Needs the extra ``isvi[ray]``.

    If Ray is not running in this process, it is started for the fit, and stopped after it; with an ``address``, or the
    environment variable ``RAY_ADDRESS``, on that cluster. After your own ``ray.init(...)`` nothing is started.

    Args:
        num_workers: processes that make records.
        address: of a running cluster, such as ``"auto"``.
        cpus: of the cluster's, that a worker takes up.
        gpus: likewise.
        time_limit: seconds to wait for an answer before giving up.
        asynchronous: workers do not wait for each other, nor for newer parameters. For unequal ones, or more than have
            something to do otherwise; the result then depends on who was how fast.
        parts: each worker reads a part of a source only, and makes the records of that part, instead of all of them
            reading everything. For sources that take longer to decode than the model takes.
    """

    num_workers: int
    address: str | None = None
    cpus: float = 1
    gpus: float = 0
    time_limit: float = TIME_LIMIT
    asynchronous: bool = False
    parts: bool = False

    def __post_init__(self) -> None:
        checked_size(self.num_workers)
        checked_time_limit(self.time_limit)

    def open(self, work: Work) -> "RayCrew":
        return RayCrew(self, work)


@dataclass(eq=False)
class _Job:
    """A task on its way."""

    task: Any
    place: int | None
    future: "Future[Any]" = field(default_factory=Future)
    tries: int = 0


class RayCrew:
    """Actors, each of which has at most one task at a time, a :class:`isvi.workers.crew.Crew`.

    An actor that dies is restarted by Ray, and takes part again once it has opened the work anew; its task goes to the
    next that is free.
    """

    def __init__(self, options: Ray, work: Work) -> None:
        self._ray = import_extra("ray", "ray", "isvi.Ray")
        self.time_limit, self.size = options.time_limit, int(options.num_workers)
        self.asynchronous, self.parts = options.asynchronous, options.parts
        self._lock = threading.RLock()
        self._jobs: deque[_Job] = deque()
        self._idle: list[Any] = []
        self._lost: set[int] = set()
        self._error: Exception | None = None
        self._started = not self._ray.is_initialized()
        if self._started:
            _start(self._ray, options)
        try:
            self._work = self._ray.put(work)
        except Exception as error:
            self.close()
            raise ConfigurationError(CANNOT_BE_SENT.format(error=f"{type(error).__name__}: {error}")) from error
        actor = self._ray.remote(num_cpus=options.cpus, num_gpus=options.gpus, max_restarts=-1)(_Worker)
        self._actors = [actor.remote(sys.path) for _ in range(options.num_workers)]
        for one in self._actors:
            self._prepare(one)

    def submit(self, task: Any, place: int | None = None) -> "Future[Any]":
        job = _Job(task, None if place is None else place % self.size)
        with self._lock:
            self._jobs.append(job)
            self._assign()
        return job.future

    def close(self) -> None:
        with self._lock:
            self._error = WorkerError("The workers were let go.")
            actors, self._actors, self._idle = getattr(self, "_actors", []), [], []
            self._assign()
        for one in actors:
            self._ray.kill(one)
        if self._started:
            self._ray.shutdown()

    def _prepare(self, actor: Any) -> None:
        """Have an actor open the work, now or as soon as it is there again."""
        opened = actor.open.options(max_task_retries=-1).remote(self._work)
        opened.future().add_done_callback(lambda future: self._opened(actor, future))

    def _opened(self, actor: Any, future: "Future[Any]") -> None:
        with self._lock:
            error = future.exception()
            if error is not None:
                self._lost.add(self._number(actor))
                if len(self._lost) == self.size and self._error is None:
                    self._error = WorkerError(f"No worker is left, and none can be started: {error}")
            elif isinstance(answer := future.result(), Raised):
                self._error = answer.here()
            else:
                self._idle.append(actor)
            self._assign()

    def _assign(self) -> None:
        """Tasks to those who have none. With the lock."""
        for job in tuple(self._jobs):
            actor = next((one for one in reversed(self._idle) if self._may(one, job)), None)
            if actor is None and self._error is None:
                continue
            self._jobs.remove(job)
            if job.future.cancelled() or not (job.future.running() or job.future.set_running_or_notify_cancel()):
                continue
            if self._error is not None:
                job.future.set_exception(self._error)
                continue
            self._idle.remove(actor)
            self._give(actor, job)

    def _may(self, actor: Any, job: _Job) -> bool:
        return job.place is None or job.place in self._lost or self._number(actor) == job.place

    def _number(self, actor: Any) -> int:
        return next(number for number, one in enumerate(self._actors) if one is actor)

    def _give(self, actor: Any, job: _Job) -> None:
        actor.do.remote(job.task).future().add_done_callback(lambda future: self._done(actor, job, future))

    def _done(self, actor: Any, job: _Job, future: "Future[Any]") -> None:
        error = future.exception()
        with self._lock:
            nothing_open = error is None and _is_nothing(future.result())
            if self._error is None and (nothing_open or self._died(error)):
                self._again(actor, job, not nothing_open)
            else:
                if error is not None:
                    job.future.set_exception(error)
                else:
                    job.future.set_result(future.result())
                self._idle.append(actor)
            self._assign()

    def _died(self, error: BaseException | None) -> bool:
        ours, theirs = self._ray.exceptions.RayError, self._ray.exceptions.RayTaskError
        return isinstance(error, ours) and not isinstance(error, theirs)

    def _again(self, actor: Any, job: _Job, begun: bool) -> None:
        log.info("a worker died; what it was doing is done by another")
        job.tries, job.place = job.tries + begun, None
        if refusal := refuse_another_try(job.tries):
            job.future.set_exception(refusal)
        else:
            self._jobs.appendleft(job)
        self._prepare(actor)


class _Worker:
    """An actor: the function that the work is opened to.

    Args:
        paths: where the driver finds its modules, as the model may be in one of them.
    """

    def __init__(self, paths: list[str]) -> None:
        sys.path.extend(path for path in paths if path not in sys.path)
        self._function: Callable[[Any], Any] | None = None

    def open(self, work: Work) -> Raised | None:
        def opened() -> None:
            self._function = work()

        return answered(opened)

    def do(self, task: Any) -> Any:
        """An actor that was restarted, which nobody noticed as it had nothing to do, has nothing open."""
        return NOTHING_OPEN if self._function is None else answered(self._function, task)


def _is_nothing(answer: Any) -> bool:
    return isinstance(answer, str) and answer == NOTHING_OPEN


def _start(ray: Any, options: Ray) -> None:
    """Start Ray, or join a cluster. Local workers may be more than there are cores: many of them wait for others."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked for it
    elsewhere = options.address or os.environ.get("RAY_ADDRESS")
    room = {} if elsewhere else {"num_cpus": max(1, int(np.ceil(options.num_workers * options.cpus)))}
    with _signals_kept(), warnings.catch_warnings():
        # JAX warns of every fork; this one only starts another program.
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        ray.init(options.address, include_dashboard=False if room else None, logging_level="ERROR", **room)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray handles SIGTERM itself, so that a fit with a checkpoint would not hear of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
