"""Records begun at whatever parameters there are: workers wait for nobody.

So many are always under way, and every one is taken in when its turn comes: mini-batches keep their order, and each
its one place in the memory, however fast its worker was. A record of older parameters says where it was drawn, so that
weights, or the curvature, carry it to today's; what is begun depends on who was how fast, and so does the result.
"""

from collections import deque
from functools import partial
from threading import Event
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from isvi.algorithms.step import Method, State
from isvi.data.schedule import Schedule
from isvi.fitting.running.elsewhere import Elsewhere, Pending, wait_for_turn
from isvi.memory.record import Record

MOST_WAITING = 8
"""Records that are made but whose turn has not come, because an earlier one is not there: at most so many times those
that are under way. More would be made at parameters that are older still."""


class _Begun(NamedTuple):
    turn: int
    """How many mini-batches are visited before it, since the beginning."""
    visited: int
    """How many were when it was begun."""
    entropy: Array
    """Of q then."""
    pending: Pending


class Rolling:
    """Records under way, in the order of their turns."""

    def __init__(self, method: Method, step_key: PRNGKeyArray, elsewhere: Elsewhere) -> None:
        assert elsewhere.under_way is not None
        self._elsewhere, self._under_way = elsewhere, elsewhere.under_way
        self._begun: deque[_Begun] = deque()
        self._came = Event()
        self._newest = np.empty(0)
        self._entropy = jax.jit(elsewhere.entropy)
        self._oldest = jax.jit(method.oldest)
        self._key = jax.jit(partial(_key, step_key))

    def take(self, state: State, schedule: Schedule) -> Record:
        """The record for the next step."""
        visited, oldest = int(schedule.visited), int(self._oldest(state))
        if not self._goes_on(state, visited, oldest):
            self.drop()
        entropy = self._entropy(state.params)
        order = np.asarray(schedule.order)

        def begin_more() -> None:
            under_way = sum(not begun.pending.done for begun in self._begun)
            most = MOST_WAITING * self._under_way if oldest > 0 else 1
            while under_way < self._under_way and len(self._begun) < most:
                turn = visited + len(self._begun)
                pending = self._elsewhere.begin(
                    np.asarray(self._key(turn)), state.params, int(order[turn % len(order)])
                )
                pending.listen(self._came.set)
                self._begun.append(_Begun(turn, visited, entropy, pending))
                under_way += 1

        begin_more()
        wait_for_turn(self._begun[0].pending, self._came, begin_more)
        first = self._begun.popleft()
        record = first.pending.result()
        self._newest = np.asarray(record.draws)
        return _told_today(record, first.entropy, entropy)

    def drop(self) -> None:
        """Forget what is under way."""
        while self._begun:
            self._begun.popleft().pending.cancel()

    def _goes_on(self, state: State, visited: int, oldest: int) -> bool:
        """Whether what is under way is of use: the state is the one after the record that was taken last, and the
        method has not begun anew since the next was begun."""
        if not self._begun:
            return True
        first = self._begun[0]
        taken_last = np.array_equal(np.asarray(state.memory.newest.draws), self._newest)
        return first.turn == visited and taken_last and visited - first.visited <= oldest


def _key(step_key: PRNGKeyArray, turn: Array) -> Array:
    return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(step_key, turn), 1))


@jax.jit
def _told_today(record: Record, before: Array, today: Array) -> Record:
    """With the log joint that gives, with today's entropy, the ELBO of the q that it was drawn from: with its own it
    would look like a rise or a fall whenever q has become wider or narrower."""
    return record._replace(log_joint=record.log_joint + (before - today).astype(record.log_joint.dtype))
