"""Records begun before their turn, as long as the parameters stay where they are.

Between two steps of ``Auto``'s memory the parameters do not move, so all records up to the next one can be made at the
same time. Each has the key and the mini-batch of its step, and is taken in when its turn comes: what is computed does
not depend on who makes records, nor on how many do. How many to begin is the method's guess. If the parameters moved
all the same, because it had to go back, the rest is dropped and begun again.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from isvi.algorithms.step import Method, State
from isvi.data.schedule import Schedule
from isvi.families.base import Params
from isvi.memory.record import Record

MOST_BEGUN = 64
"""Records under way at the same time, at most."""


class Pending(Protocol):
    """A record that is being made."""

    def result(self) -> Record: ...

    def cancel(self) -> None: ...


Begin = Callable[[PRNGKeyArray, Params, int], Pending]
"""``begin(key, params, index)``: have a record of this mini-batch made."""


class _Begun(NamedTuple):
    step: int
    pending: Pending


class Ahead:
    """Records under way, in the order of their steps."""

    def __init__(self, method: Method, step_key: PRNGKeyArray, begin: Begin) -> None:
        self._begin = begin
        self._begun: deque[_Begun] = deque()
        self._params: Params = None

        @jax.jit
        def plan(
            step_key: PRNGKeyArray, state: State, schedule: Schedule
        ) -> tuple[Array, Array, Int[Array, " records"]]:
            """How many records to begin, and their keys and mini-batches, if every step makes one."""
            following = jnp.arange(MOST_BEGUN)
            keys = jax.vmap(lambda step: jax.random.fold_in(jax.random.fold_in(step_key, step), 1))
            indices = schedule.order[(schedule.visited + following) % schedule.order.shape[0]]
            return jnp.asarray(method.ahead(state)), keys(state.steps + following), indices

        self._plan = partial(plan, step_key)

    def take(self, state: State, schedule: Schedule) -> Record:
        """The record for the next step."""
        step = int(state.steps)
        if not (self._begun and self._begun[0].step == step and bool(_same(self._params, state.params))):
            self.drop()
            count, keys, indices = self._plan(state, schedule)
            self._params = state.params
            numbers = np.asarray(indices).tolist()
            for later in range(min(int(count), MOST_BEGUN)):
                self._begun.append(_Begun(step + later, self._begin(keys[later], state.params, numbers[later])))
        return self._begun.popleft().pending.result()

    def drop(self) -> None:
        """Forget what is under way."""
        while self._begun:
            self._begun.popleft().pending.cancel()


@jax.jit
def _same(one: Params, other: Params) -> Array:
    return jnp.all(jnp.stack(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.all(a == b), one, other))))
