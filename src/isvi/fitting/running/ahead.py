"""Records begun before their turn, as long as the parameters stay where they are.

Between two steps of ``Auto``'s memory the parameters do not move, so all records up to the next one can be made at the
same time. Each has the key and the mini-batch of its step, and is taken in when its turn comes: what is computed does
not depend on who makes records, nor on how many do. How many to begin is the method's guess. If the parameters moved
all the same, because it had to go back, the rest is dropped and begun again.
"""

from collections import deque
from functools import partial
from threading import Event
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from isvi.algorithms.step import Method, State
from isvi.data.schedule import Schedule
from isvi.families.base import Params
from isvi.fitting.running.elsewhere import Begin, Pending, wait_for_turn
from isvi.memory.record import Record

MOST_BEGUN = 64
"""Records under way at the same time, at most."""


class _Begun(NamedTuple):
    step: int
    pending: Pending


class Ahead:
    """Records under way, in the order of their steps."""

    def __init__(self, method: Method, step_key: PRNGKeyArray, begin: Begin) -> None:
        self._begin = begin
        self._begun: deque[_Begun] = deque()
        self._params: Params = None
        self._came = Event()

        @jax.jit
        def plan(
            step_key: PRNGKeyArray, state: State, schedule: Schedule
        ) -> tuple[Array, Array, Int[Array, " records"]]:
            """How many records to begin, and their keys and mini-batches, if every step makes one."""
            following = jnp.arange(MOST_BEGUN)
            keys = jax.vmap(lambda step: jax.random.fold_in(jax.random.fold_in(step_key, step), 1))
            indices = schedule.order[(schedule.visited + following) % schedule.order.shape[0]]
            return jnp.asarray(method.ahead(state)), jax.random.key_data(keys(state.steps + following)), indices

        self._plan = partial(plan, step_key)

    def take(self, state: State, schedule: Schedule) -> Record:
        """The record for the next step."""
        step = int(state.steps)
        if not (self._begun and self._begun[0].step == step and bool(_same(self._params, state.params))):
            self.drop()
            count, keys, indices = jax.device_get(self._plan(state, schedule))
            self._params = state.params
            for later in range(min(int(count), MOST_BEGUN)):
                pending = self._begin(keys[later], state.params, int(indices[later]))
                pending.listen(self._came.set)
                self._begun.append(_Begun(step + later, pending))
        pending = self._begun.popleft().pending
        wait_for_turn(pending, self._came)
        return pending.result()

    def drop(self) -> None:
        """Forget what is under way."""
        while self._begun:
            self._begun.popleft().pending.cancel()


@jax.jit
def _same(one: Params, other: Params) -> Array:
    return jnp.all(jnp.stack(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.all(a == b), one, other))))
