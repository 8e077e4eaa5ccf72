"""The seam: work that every worker opens once, tasks that any of them can do, answers in any order.

An engine is an adapter of a page: :mod:`isvi.workers.pool` for whatever has ``submit``, :mod:`isvi.workers.ray` for a
cluster. A task is a function of its content alone, so it does not matter who does it, nor how often.
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Protocol

import numpy as np

from isvi.core.errors import ConfigurationError, WorkerError, require
from isvi.workers.answers import Raised

TIME_LIMIT = 600.0
"""Seconds without the answer that is waited for: long for a record, short for a night. The user can say otherwise."""
TRIES = 10
"""So often a task is given to a worker if those before died of it, or before it: that cannot be told apart."""


class Work(Protocol):
    """What workers are there for: sent to each of them once, as a pickle."""

    def __call__(self) -> Callable[[Any], Any]:
        """Opened by the worker: the function that answers tasks."""
        ...


class Crew(Protocol):
    """Workers that have the work open, or soon will.

    Attributes:
        size: how many there are.
        asynchronous: whether they go on at older parameters while they wait for newer ones.
        parts: whether each has a part of the data, and the tasks of that part.
    """

    time_limit: float
    size: int
    asynchronous: bool
    parts: bool

    def submit(self, task: Any, place: int | None = None) -> "Future[Any]":
        """Have a task done, and :func:`wait_for` its answer: by whoever is free, or, where each worker has a part, by
        the one that all tasks of this place go to, as long as it is there."""
        ...

    def close(self) -> None:
        """Let the workers go, whatever they are doing."""
        ...


class Workers(Protocol):
    """What the user names."""

    def open(self, work: Work) -> Crew:
        """Workers for this work. Returns before they are ready."""
        ...


def wait_for(future: "Future[Any]", time_limit: float) -> Any:
    """The answer, or what the worker raised, as it would have been raised here."""
    wait([future], time_limit)
    if not future.done():
        raise unanswered(time_limit)
    return unpacked(future)


def unpacked(future: "Future[Any]") -> Any:
    """The answer of a worker that is done, or what it raised."""
    answer = future.result()
    if isinstance(answer, Raised):
        raise answer.here()
    return answer


def unanswered(time_limit: float) -> WorkerError:
    return WorkerError(
        f"No worker answered within {time_limit:g} seconds. If the model takes that long, or the workers to start: "
        "a longer time_limit, such as isvi.Ray(..., time_limit=3600). Otherwise look at what they are doing."
    )


def checked_time_limit(time_limit: float) -> None:
    require(
        isinstance(time_limit, (int, float)) and time_limit > 0,
        ConfigurationError,
        f"time_limit is in seconds and must be positive; got {time_limit!r}.",
    )


def checked_size(num_workers: int) -> None:
    require(
        isinstance(num_workers, (int, np.integer)) and not isinstance(num_workers, bool) and num_workers >= 1,
        ConfigurationError,
        f"num_workers must be a whole number, at least 1; got {num_workers!r}.",
    )


def refuse_another_try(tries: int) -> WorkerError | None:
    """The end of a task that took its workers with it."""
    if tries < TRIES:
        return None
    return WorkerError(
        f"A record was begun {tries} times, and every time the worker that made it died. It may need more memory than "
        "a worker has: fewer workers, or a smaller batch_size."
    )
