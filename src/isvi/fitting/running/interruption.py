"""Ctrl-C: once to stop in good order, twice to stop at once."""

import logging
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import jax

log = logging.getLogger("isvi")


class Interruption:
    """While it is entered, the first SIGINT (Ctrl-C) is only noted, and SIGTERM too where there is something to save;
    the next acts as it always does.

    Signals reach the main thread only: elsewhere this does nothing, and whoever runs the thread stops it.

    Attributes:
        reason: why to stop, in words.
        number: the signal that was noted.
    """

    def __init__(self, sigterm: bool = True) -> None:
        self.reason: str | None = None
        self.number: int | None = None
        self._numbers = (signal.SIGINT, signal.SIGTERM) if sigterm else (signal.SIGINT,)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                before = signal.getsignal(number)
                # Not where a signal is ignored, or handled by someone who installed it for a reason.
                if before in (signal.default_int_handler, signal.SIG_DFL):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        by_hand = number == signal.SIGINT
        self.number = number
        self.reason = "stopped by hand" if by_hand else "stopped by SIGTERM"
        log.warning("%s", "Stopping after this chunk of steps; Ctrl-C again stops at once." if by_hand else self.reason)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()


@contextmanager
def ctrl_c_stays_itself() -> Iterator[None]:
    """Inside a callback of a compiled program JAX makes an error of its own of KeyboardInterrupt, which a script would
    take for the model's, and go on."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if re.search(r"^KeyboardInterrupt:?\s*$", str(error), re.MULTILINE):
            raise KeyboardInterrupt from error
        raise
