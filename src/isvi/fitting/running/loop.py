"""The compiled loop: many steps in one call, the host spoken to once in between."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from isvi.algorithms.step import Info, Method, State
from isvi.core.compiling import compiled_once
from isvi.data.dataset import Dataset
from isvi.data.opening import Data
from isvi.data.schedule import Schedule
from isvi.families.base import Params
from isvi.fitting.running.newest import Newest

TOLERATED_FAILURES = 10
"""A model that is not finite this many steps in a row has diverged; fewer are skipped and counted."""


class Tally(NamedTuple):
    """Running mean and spread of the fresh records' ELBO estimates, since the last row of the history; and what every
    mini-batch said last."""

    records: Int[Array, ""]
    mean: Float[Array, ""]
    squares: Float[Array, ""]
    skipped: Int[Array, ""]
    """Steps not taken because something was not finite."""
    newest: Newest

    @classmethod
    def empty(cls, num_batches: int) -> "Tally":
        zero = jnp.zeros(())
        return cls(jnp.int32(0), zero, zero, jnp.int32(0), Newest.none(num_batches))

    def next_row(self) -> "Tally":
        """Empty, but for what the mini-batches said. By NumPy, so that nothing is compiled for it."""
        empty: Tally = jax.tree.map(np.zeros_like, self)
        return jax.device_put(empty._replace(newest=self.newest._replace(visits=empty.newest.visits)))

    def add(self, info: Info, batch: Int[Array, ""]) -> "Tally":
        """Welford's update: a plain sum of squares of numbers like -1e7 would lose all digits."""
        counts = info.fresh & ~info.failed
        records = self.records + counts.astype(jnp.int32)
        difference = jnp.where(counts, info.elbo - self.mean, 0)
        mean = self.mean + difference / jnp.maximum(records, 1)
        squares = self.squares + difference * jnp.where(counts, info.elbo - mean, 0)
        newest = self.newest.add(batch, info.elbo.astype(mean.dtype), counts)
        return Tally(records, mean, squares, self.skipped + info.failed.astype(jnp.int32), newest)

    @property
    def standard_error(self) -> float:
        """On the host."""
        records = int(self.records)
        return float(np.sqrt(self.squares / max(records - 1, 1) / max(records, 1)))


class LoopState(NamedTuple):
    """The state of a whole run, as one pytree."""

    state: State
    schedule: Schedule
    tally: Tally


class Ending(NamedTuple):
    """Reasons for a run to be over, whatever is left of the budget."""

    diverged: Bool[Array, ""]
    converged: Bool[Array, ""]
    gave_up: Bool[Array, ""]


def ending(method: Method, loop: LoopState) -> Ending:
    diverged = loop.state.failures >= TOLERATED_FAILURES
    return Ending(*map(jnp.asarray, (diverged, method.converged(loop.state), method.gave_up(loop.state))))


def ended(method: Method, loop: LoopState) -> Bool[Array, ""]:
    """Whether there is a reason for the run to be over."""
    return jnp.any(jnp.stack(ending(method, loop)))


class Run:
    """A program with a key. The key is an argument of the program, so that the program is the same for every seed, and
    JAX finds it among those that it has kept."""

    def __init__(self, program: Any, step_key: PRNGKeyArray) -> None:
        self.program = program
        self._step_key = step_key

    def __call__(self, loop: LoopState, dataset: Dataset, until: Array) -> LoopState:
        return self.program(self._step_key, loop, dataset, until)

    def lower(self, loop: LoopState, dataset: Dataset, until: Array) -> "Run":
        return Run(self.program.lower(self._step_key, loop, dataset, until), self._step_key)

    def compile(self, compiler_options: dict[str, Any] | None = None) -> "Run":
        return Run(self.program.compile(compiler_options), self._step_key)


def make_run(method: Method, key: PRNGKeyArray) -> Run:
    """``run(loop, dataset, until)``: take steps until that many model gradients were evaluated in all, or the next
    mini-batch is not in memory.

    Every random number is a function of (key, step): how often the host interrupts the loop
    does not change what is computed. The state is given away: what ``run`` returns lives in its memory, and a call
    copies nothing. Use :func:`own_copy` for what has to be kept.
    """

    def going_on(until: Array, dataset: Dataset, loop: LoopState) -> Array:
        held = dataset.holds(loop.schedule.next_index)
        return (loop.state.gradients < until) & jnp.logical_not(ended(method, loop)) & held

    def one_step(step_key: PRNGKeyArray, dataset: Dataset, loop: LoopState) -> LoopState:
        key = jax.random.fold_in(step_key, loop.state.steps)
        state, info = method.step(key, loop.state, dataset.batch(loop.schedule.next_index))
        tally = loop.tally.add(info, loop.schedule.next_index)
        return LoopState(state, loop.schedule.advance(info.fresh), tally)

    @partial(jax.jit, donate_argnums=1)
    def run(step_key: PRNGKeyArray, loop: LoopState, dataset: Dataset, until: Array) -> LoopState:
        return jax.lax.while_loop(
            lambda loop: going_on(until, dataset, loop), lambda loop: one_step(step_key, dataset, loop), loop
        )

    step_key, _ = run_keys(key)
    return Run(run, step_key)


def make_start(method: Method, dataset: Data, key: PRNGKeyArray) -> Callable[[Params], LoopState]:
    """``start(params)``: the state before the first step. Compiled as one program: dozens of small ones would take
    seconds."""

    @compiled_once
    def start(key: PRNGKeyArray, params: Params) -> LoopState:
        _, schedule_key = run_keys(key)
        schedule = Schedule.start(schedule_key, dataset.num_batches, dataset.windows)
        return LoopState(method.init(params), schedule, Tally.empty(dataset.num_batches))

    return partial(start, key)


def own_copy(loop: LoopState) -> LoopState:
    """The same in memory of its own, which can be given away: no two leaves share any, nor with anything else."""
    return _copying()(loop)


@cache
def _copying() -> Callable[[LoopState], LoopState]:
    """One program: a copy of every leaf alone would be one for each shape."""
    return compiled_once(partial(jax.tree.map, jnp.copy))


def run_keys(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Separate keys for the steps and for the order of the mini-batches."""
    step_key, schedule_key = jax.random.split(key)
    return step_key, schedule_key
