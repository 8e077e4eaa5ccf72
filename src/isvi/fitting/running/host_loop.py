"""The loop for models that are evaluated on the host: compiled between records, never while one is made."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from isvi.algorithms.step import Method, usable
from isvi.core.errors import DataError, WorkerError
from isvi.data.dataset import Dataset
from isvi.fitting.running.ahead import Ahead
from isvi.fitting.running.elsewhere import Elsewhere
from isvi.fitting.running.loop import LoopState, ended, run_keys
from isvi.fitting.running.rolling import Rolling
from isvi.memory.record import Record

YES, NO = np.array(True), np.array(False)

Request = tuple[Bool[Array, ""], PRNGKeyArray, Int[Array, ""]]
"""Whether a record is wanted now, the key to make it with, and the mini-batch."""


class HostRun:
    """``run(loop, dataset, until)``, with the contract and the random numbers of ``loop.make_run``.

    The model is called once per record. The step that takes a record in and all steps that reuse it, up to the
    next record, are one compiled loop.

    Args:
        elsewhere: who makes records (see ``ahead`` and ``rolling``), whatever the model. The driver then needs no
            rows, and ``run`` no data.

    Attributes:
        last: the state at the latest call of the model: what is left if it raises.
    """

    def __init__(self, method: Method, key: PRNGKeyArray, elsewhere: Elsewhere | None = None) -> None:
        self.last: LoopState | None = None
        self._outline: LoopState | None = None
        self._method = method
        self._step_key, _ = run_keys(key)
        self._records = None if elsewhere is None else _records(method, self._step_key, elsewhere)
        self._proceed = jax.jit(self._steps)

    def __call__(self, loop: LoopState, dataset: Dataset | None, until: Int[Array, ""]) -> LoopState:
        loop = _strongly_typed(loop)
        record: Record = loop.state.memory.newest
        finite: Array | np.ndarray = YES
        fresh = NO
        while True:
            loop, (wanted, key, index) = self._proceed(self._step_key, loop, record, finite, fresh, until)
            self.last = loop
            if not wanted or (dataset is not None and not dataset.holds(index)):
                return loop
            try:
                record, finite = self._made(loop, key, index, dataset)
            except (DataError, WorkerError):
                raise
            except Exception as error:
                error.add_note(
                    f"(raised by the model, which isvi called for step {int(loop.state.steps):,} of a fit, after "
                    f"{int(loop.state.gradients):,} model gradients; the state before this call was kept)"
                )
                raise
            fresh = YES

    def _made(
        self, loop: LoopState, key: PRNGKeyArray, index: Int[Array, ""], dataset: Dataset | None
    ) -> tuple[Record, Array]:
        state = loop.state
        if self._records is not None:
            return usable(self._records.take(state, loop.schedule), state.memory.newest)
        assert dataset is not None
        return self._method.record(key, state.params, state.memory.newest, dataset.batch(index))

    def lower(self, loop: LoopState, dataset: Dataset | None, until: Int[Array, ""]) -> "HostRun":
        """Note the shapes and types to compile for: those of the loop's state."""
        self._outline = loop
        return self

    def compile(self, compiler_options: dict[str, Any] | None = None) -> "HostRun":
        """Compile the loop, as ``make_run(...).lower(...).compile()`` does, without calling the model."""
        self._proceed = jax.jit(self._steps, compiler_options=compiler_options)
        if self._outline is not None:
            loop, self._outline = _strongly_typed(self._outline), None
            jax.block_until_ready(self._proceed(self._step_key, loop, loop.state.memory.newest, YES, NO, jnp.int32(0)))
        return self

    def _steps(
        self, key: PRNGKeyArray, loop: LoopState, record: Record, finite: Array, fresh: Array, until: Array
    ) -> tuple[LoopState, Request]:
        """A step with the record, if it is fresh; then steps that reuse it, until another is wanted or the budget
        is used. One loop for both, since a record once taken in is the newest."""

        def going_on(loop: LoopState) -> Array:
            return (loop.state.gradients < until) & jnp.logical_not(ended(self._method, loop))

        def step_key(loop: LoopState) -> PRNGKeyArray:
            return jax.random.fold_in(key, loop.state.steps)

        def wanted(loop: LoopState) -> Array:
            return jnp.asarray(self._method.wants_record(step_key(loop), loop.state))

        def takes_step(carry: tuple[LoopState, Array]) -> Array:
            loop, fresh = carry
            return fresh | (going_on(loop) & ~wanted(loop))

        def step(carry: tuple[LoopState, Array]) -> tuple[LoopState, Array]:
            loop, fresh = carry
            state, info = self._method.advance(loop.state, record, fresh, finite | ~fresh)
            tally = loop.tally.add(info, loop.schedule.next_index)
            return LoopState(state, loop.schedule.advance(info.fresh), tally), jnp.array(NO)

        loop, _ = jax.lax.while_loop(takes_step, step, (loop, fresh))
        return loop, (going_on(loop) & wanted(loop), jax.random.fold_in(step_key(loop), 1), loop.schedule.next_index)


def _records(method: Method, step_key: PRNGKeyArray, elsewhere: Elsewhere) -> Ahead | Rolling:
    if elsewhere.under_way is None:
        return Ahead(method, step_key, elsewhere.begin)
    return Rolling(method, step_key, elsewhere)


def _strongly_typed(loop: LoopState) -> LoopState:
    """Numbers that began as Python ones have a weak type, and lose it after a step: that would compile again."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if leaf.weak_type else leaf, loop)


def make_host_run(method: Method, key: PRNGKeyArray, elsewhere: Elsewhere | None = None) -> HostRun:
    """The counterpart of ``loop.make_run`` for a method whose target is evaluated on the host, or
    whose records are made elsewhere."""
    return HostRun(method, key, elsewhere)
