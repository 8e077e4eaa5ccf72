"""What a fit asks of those who make its records elsewhere."""

from collections.abc import Callable
from threading import Event
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Array

from isvi.families.base import Params
from isvi.memory.record import Record


class Awaited(Protocol):
    """Something that others are at."""

    @property
    def done(self) -> bool: ...

    def listen(self, listener: Callable[[], None]) -> None:
        """Have it called whenever something of it is there, perhaps in another thread."""
        ...

    def hurry(self) -> float:
        """While it is waited for: do what can be done about that, or raise an error if it has taken too long. Returns
        the seconds until there is something to do again."""
        ...

    def cancel(self) -> None: ...


class Pending(Awaited, Protocol):
    """A record that is being made."""

    def result(self) -> Record:
        """The record, once it is done."""
        ...


Begin = Callable[[np.ndarray, Params, int], Pending]
"""``begin(key_data, params, index)``: have a record of this mini-batch made."""


class Elsewhere(NamedTuple):
    """Those who make records."""

    begin: Begin
    under_way: int | None
    """How many records they work on at a time, at whatever parameters there are; None if they wait for the newest."""
    entropy: Callable[[Params], Array]
    """Of the approximation."""


def wait_for_turn(pending: Awaited, came: Event, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Until it is done. ``came`` is set whenever something has come, and ``meanwhile`` is called then."""
    while not pending.done:
        came.wait(pending.hurry())
        came.clear()
        meanwhile()
