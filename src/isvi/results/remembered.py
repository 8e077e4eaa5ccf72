"""What is dear to compute and asked for more than once: the latest few, remembered."""

from collections.abc import Callable
from typing import Generic, TypeVar

MOST = 2
"""Each may be as large as the draws of a diagnosis."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """By key; the oldest is forgotten for a new one."""

    def __init__(self) -> None:
        self._values: dict[Key, Value] = {}

    def get(self, key: Key, compute: Callable[[], Value]) -> Value:
        """The value of a key: remembered, or computed now."""
        if key not in self._values:
            while len(self._values) >= MOST:
                self._values.pop(next(iter(self._values)))
            self._values[key] = compute()
        return self._values[key]
