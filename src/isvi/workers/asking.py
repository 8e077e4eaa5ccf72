"""Questions to a crew, and whoever answers first.

A task is a function of its content alone. So one that takes far longer than others do, on a worker that is slow, that
hangs or that nobody can reach any more, is given to another worker too: the first answer counts, and it is the same.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from isvi.workers.crew import Crew, unanswered, unpacked

REMEMBERED = 16
"""Answers whose times are known, if nothing else is said. ..."""
SLOW_SHARE = 0.25
"""... This share of them may be of workers that are slow, ..."""
PATIENCE = 2.0
"""... and a task that takes as many times as long as the slowest of the others is given to another worker too, ..."""
LEAST_PATIENCE = 0.1
"""... but not within so many seconds: there a worker is not slow, but was not given a processor."""


class Asking:
    """What a crew is asked, and how long answers take: by so many of the latest, but for the slowest share."""

    def __init__(self, crew: Crew, remembered: int = REMEMBERED, slow_share: float = SLOW_SHARE) -> None:
        self.crew, self._remembered = crew, remembered
        self._usual = int((1 - slow_share) * remembered) - 1
        self._lasted: deque[float] = deque(maxlen=remembered)

    def ask(self, task: Any, place: int | None = None) -> "Asked":
        """``place`` as of :meth:`Crew.submit`; for the first worker only."""
        return Asked(self, task, place)

    @property
    def patience(self) -> float:
        """Seconds after which a task is given to another worker too."""
        lasted = tuple(self._lasted)  # other threads add to them
        if len(lasted) < self._remembered:
            return float("inf")
        return max(LEAST_PATIENCE, PATIENCE * sorted(lasted)[self._usual])

    def noted(self, seconds: float) -> None:
        self._lasted.append(seconds)


class Asked:
    """A task that a worker has, or two."""

    def __init__(self, asking: Asking, task: Any, place: int | None) -> None:
        self._asking, self._task = asking, task
        self._listeners: list[Callable[[], None]] = []
        self._begun = time.monotonic()
        self._waited_from: float | None = None
        self._futures: list[Future[Any]] = []
        self._submit(place)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have it called when there is an answer, perhaps in another thread."""
        self._listeners.append(listener)
        if self.done:
            listener()

    @property
    def done(self) -> bool:
        return any(future.done() for future in self._futures)

    def hurry(self) -> float:
        """While the answer is waited for: give the task to another worker too, if it is time for that. Returns the
        seconds until something is to be done again."""
        now = time.monotonic()
        self._waited_from = self._waited_from or now
        left = self._waited_from + self._asking.crew.time_limit - now
        if left <= 0:
            raise unanswered(self._asking.crew.time_limit)
        if len(self._futures) > 1:
            return left
        patience = self._begun + self._asking.patience - now
        if patience > 0:
            return min(left, patience)
        self._submit()
        return left

    def answer(self) -> Any:
        """What the first to answer said, or raised. It must be done."""
        first = next(future for future in self._futures if future.done())
        for other in self._futures:
            if other is not first:
                other.cancel()
        return unpacked(first)

    def cancel(self) -> None:
        for future in self._futures:
            future.cancel()

    def _submit(self, place: int | None = None) -> None:
        begun = time.monotonic()

        def came(future: "Future[Any]") -> None:
            if not future.cancelled():
                self._asking.noted(time.monotonic() - begun)
            for listener in self._listeners:
                listener()

        future = self._asking.crew.submit(self._task, place)
        self._futures.append(future)
        future.add_done_callback(came)
