"""Errors on their way from a worker to the driver: the same error, with the traceback that it had there."""

import pickle
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple


class WorkerTraceback(Exception):
    """Where on a worker an error was raised; shown as its cause."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\non a worker:\n{self.text}"


class Raised(NamedTuple):
    """An answer that is an error."""

    error: Exception
    traceback: str

    def here(self) -> Exception:
        """The error, to be raised by the driver."""
        self.error.__cause__ = WorkerTraceback(self.traceback)
        return self.error


def answered(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or what it raised, as a value that can be sent."""
    try:
        return function(*arguments)
    except Exception as error:
        return Raised(_sendable(error), traceback.format_exc())


def _sendable(error: Exception) -> Exception:
    """The error itself, if it survives being sent; else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
