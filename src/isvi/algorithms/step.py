"""One step, for every algorithm: decide, evaluate the model or not, remember, move."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from isvi.algorithms.base import Algorithm, AlgorithmOptions, Boolean, Doubts, Memory, Promise
from isvi.data.dataset import Batch
from isvi.data.opening import Data
from isvi.estimators.base import Estimator
from isvi.estimators.weights import WeightHealth
from isvi.families.base import Params
from isvi.memory.record import Record


class State(NamedTuple):
    """All that going on needs."""

    # What evolves.
    params: Params
    optimizer: Any
    memory: Memory
    # What is counted.
    steps: Int[Array, ""]
    gradients: Int[Array, ""]
    """Model gradients evaluated (mini-batch gradients; M per record)."""
    failures: Int[Array, ""]
    """Steps that were not taken because something was not a finite number, since the last good record. A step
    that reuses an older record says nothing about the model, so it does not reset this."""


class Info(NamedTuple):
    """What a step reports."""

    fresh: Bool[Array, ""]
    """Whether the model was evaluated."""
    elbo: Float[Array, ""]
    """The newest record's estimate of the ELBO: unbiased if fresh, noisy by its mini-batch and draws."""
    failed: Bool[Array, ""]
    """Whether the step was not taken because the model or the update was not finite."""


class Method(NamedTuple):
    """A way to fit: ``init(params) -> state`` and ``step(key, state, batch) -> (state, info)``.

    Both are pure. A step is made of ``wants_record(key, state)``; then, if so, ``record(key, params, newest,
    batch) -> (record, finite)``, which falls back to the newest record where the model was not finite; then
    ``advance(state, record, fresh, finite)``. ``health(state)`` tells how usable the remembered records are,
    ``ahead(state)`` for how many records from now on the parameters will stay, as far as can be told, and
    ``oldest(state)`` how many records ago one may have been made and still be of use.
    """

    init: Callable[[Params], State]
    step: Callable[[PRNGKeyArray, State, Batch], tuple[State, Info]]
    wants_record: Callable[[PRNGKeyArray, State], Boolean]
    record: Callable[[PRNGKeyArray, Params, Record, Batch], tuple[Record, Array]]
    advance: Callable[[State, Record, Boolean, Boolean], tuple[State, Info]]
    health: Callable[[State], WeightHealth]
    converged: Callable[[State], Boolean]
    promise: Promise
    doubts: Callable[[State], Doubts | None]
    gave_up: Callable[[State], Boolean]
    ahead: Callable[[State], Int[Array, ""] | int]
    oldest: Callable[[State], Int[Array, ""] | int]


def build(
    estimator: Estimator,
    algorithm: AlgorithmOptions,
    optimizer: optax.GradientTransformation,
    dataset: Data,
) -> Method:
    """Put an estimator, an algorithm and an optimizer together."""
    bound = algorithm.bind(estimator, dataset.num_batches)
    parts = _Parts(estimator, bound, optax.with_extra_args_support(optimizer), dataset)
    return Method(
        init=parts.init,
        step=parts.step,
        wants_record=parts.wants_record,
        record=parts.record,
        advance=parts.advance,
        health=lambda state: bound.health(state.params, state.memory),
        converged=lambda state: bound.converged(state.memory),
        promise=bound.promise,
        doubts=lambda state: bound.doubts(state.memory),
        gave_up=lambda state: bound.gave_up(state.memory),
        ahead=lambda state: bound.ahead(state.memory),
        oldest=lambda state: bound.oldest(state.memory),
    )


@dataclass(frozen=True)
class _Parts:
    """What a step is made of, and how: the functions of a :class:`Method`."""

    estimator: Estimator
    algorithm: Algorithm
    optimizer: optax.GradientTransformationExtraArgs
    dataset: Data

    def init(self, params: Params) -> State:
        estimator, zero = self.estimator, jnp.int32(0)
        shapes = jax.eval_shape(estimator.record, jax.random.key(0), params, self.dataset.batch(0))
        empty: Record = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        # Not used, but inside the support, so that no density is infinite there.
        empty = empty._replace(draws=estimator.approximation.draw(jax.random.key(0), params, estimator.num_samples))
        memory = Memory(empty, zero, self.algorithm.init_store(params, empty))
        return State(params, self.optimizer.init(params), memory, zero, zero, zero)

    def step(self, key: PRNGKeyArray, state: State, batch: Batch) -> tuple[State, Info]:
        wanted, newest = self.wants_record(key, state), state.memory.newest

        def make() -> tuple[Record, Array]:
            # Derived here, not above: a reuse step should not pay for a key that it does not use.
            return self.record(jax.random.fold_in(key, 1), state.params, newest, batch)

        def keep() -> tuple[Record, Array]:
            return newest, jnp.array(True)

        # SGD always wants one, and is then compiled without the choice.
        used, finite = make() if wanted is True else jax.lax.cond(wanted, make, keep)
        return self.advance(state, used, wanted, finite)

    def wants_record(self, key: PRNGKeyArray, state: State) -> Boolean:
        return self.algorithm.wants_record(key, state.params, state.memory)

    def record(self, key: PRNGKeyArray, params: Params, newest: Record, batch: Batch) -> tuple[Record, Array]:
        return usable(self.estimator.record(key, params, batch), newest)

    def advance(self, state: State, record: Record, fresh: Boolean, finite: Boolean) -> tuple[State, Info]:
        memory = self._remembered(state, record, jnp.asarray(fresh) & finite)
        params, optimizer_state, stuck = self._moved(state, memory, finite)
        failed = stuck | ~jnp.asarray(finite)
        info = Info(
            fresh=jnp.asarray(fresh),
            elbo=record.log_joint.mean() + self.estimator.approximation.entropy(state.params).sum(),
            failed=failed,
        )
        evaluated = jnp.asarray(fresh, jnp.int32) * self.estimator.num_samples
        failures = jnp.where(failed, state.failures + 1, jnp.where(fresh, 0, state.failures))
        return State(params, optimizer_state, memory, state.steps + 1, state.gradients + evaluated, failures), info

    def _remembered(self, state: State, record: Record, fresh: Bool[Array, ""]) -> Memory:
        """The memory with this record as the newest, which may be the one that it was."""
        memory = state.memory
        memory = memory._replace(newest=record, reuses=jnp.where(fresh, 0, memory.reuses + 1))
        return memory._replace(store=self.algorithm.update_store(state.params, memory, fresh))

    def _moved(self, state: State, memory: Memory, finite: Boolean) -> tuple[Params, Any, Bool[Array, ""]]:
        """Parameters and optimizer after the step; both as they were if it cannot be taken, and whether that is so."""
        descent = jax.tree.map(jnp.negative, self.algorithm.gradient(state.params, memory))
        # Optimizers in the geometry of q (isvi.optim.natural) ask for it; others do not see it.
        updates, optimizer_state = self.optimizer.update(
            descent, state.optimizer, state.params, approximation=self.estimator.approximation
        )
        moved = optax.apply_updates(state.params, updates)
        stuck = ~(jnp.asarray(finite | self.algorithm.recovers) & all_finite(moved))
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(stuck, old, new),
            (moved, optimizer_state),
            (state.params, state.optimizer),
        )
        return params, optimizer_state, stuck


@jax.jit
def usable(made: Record, newest: Record) -> tuple[Record, Array]:
    """The record just made, or the newest before it if the model was not finite; and whether it was.

    Compiled apart, for models that are evaluated on the host: this is then all that is left around them."""
    finite = made.finite
    return jax.tree.map(lambda new, old: jnp.where(finite, new, old), made, newest), finite


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether every number in a pytree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
