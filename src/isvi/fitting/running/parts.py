"""Who reads which windows of a source, where each worker has its part."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isvi.data.reader import AHEAD
from isvi.data.schedule import order_of_visits
from isvi.data.stream import Stream
from isvi.fitting.running.loop import run_keys
from isvi.fitting.setup import Setup
from isvi.workers import Crew


@dataclass(frozen=True)
class Parts:
    """Windows in the order in which they are visited, dealt out to the workers in turn: while one makes records of a
    window, the others read theirs."""

    setup: Setup
    crew: Crew

    def of(self, index: int) -> tuple[int | None, Sequence[int]]:
        """The place of a mini-batch's tasks, and the windows that will be wanted there next."""
        if not self._windows:
            return None, ()
        dataset = self.setup.dataset
        assert isinstance(dataset, Stream)
        window = dataset.window_of(index)
        if window is None:  # the rest is in all of them
            return None, ()
        place = self._windows.index(window)
        own = self._windows[place % self.crew.size :: self.crew.size]
        turn = own.index(window) + 1
        return place, (own[turn:] + own)[:AHEAD]

    @cached_property
    def _windows(self) -> list[int]:
        dataset = self.setup.dataset
        if not self.crew.parts or not isinstance(dataset, Stream) or dataset.windows is None:
            return []
        _, schedule_key = run_keys(self.setup.run_key)
        return dataset.visits(np.asarray(order_of_visits(schedule_key, dataset.num_batches, dataset.windows)))
