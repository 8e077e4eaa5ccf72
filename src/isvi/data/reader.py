"""Reading windows in the background, a little ahead of where they are used."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from isvi.data.dataset import Dataset

AHEAD = 2
"""Windows read beyond the current one. The second is being read while the first waits."""
THREAD_NAME = "isvi-reader"


class Stopped(Exception):
    """Reading was given up because nobody waits for it."""


class Reader:
    """One thread that reads windows; at most the current one and ``AHEAD`` more are alive.

    Args:
        read: ``read(number, stop)`` gives a window, or raises :class:`Stopped` soon after ``stop`` is set.
    """

    def __init__(self, read: Callable[[int, Event], Dataset]) -> None:
        self._read = read
        self._executor: ThreadPoolExecutor | None = None
        self._coming: dict[int, Future[Dataset]] = {}
        self._current: tuple[int, Dataset] | None = None
        self._stop = Event()

    def get(self, number: int, ahead: Sequence[int] = ()) -> Dataset:
        """A window, after which those in ``ahead`` will be wanted. What went wrong while reading is raised here."""
        following = [other for other in ahead if other != number][:AHEAD]
        for other in set(self._coming) - {number, *following}:
            self._coming.pop(other).cancel()
        if self._current is None or self._current[0] != number:
            self._current = None  # before waiting for the next, so that its memory is free
            if self._executor is None and not following:
                self._current = number, self._read(number, self._stop)  # one window needs no thread
            else:
                future = self._coming.pop(number, None) or self._submit(number)
                self._current = number, future.result()
        for other in following:
            if other not in self._coming:
                self._coming[other] = self._submit(other)
        return self._current[1]

    @property
    def current(self) -> int | None:
        """The window that was given out last, if it is in memory."""
        return None if self._current is None else self._current[0]

    def stop(self) -> None:
        """End the thread and forget all windows."""
        self._stop.set()
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor, self._current = None, None
        self._coming.clear()
        self._stop.clear()

    def _submit(self, number: int) -> "Future[Dataset]":
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=THREAD_NAME)
        return self._executor.submit(self._read, number, self._stop)
