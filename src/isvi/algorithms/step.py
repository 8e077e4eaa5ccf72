"""One step, for every algorithm: decide, evaluate the model or not, remember, move."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from isvi.algorithms.base import Algorithm, AlgorithmOptions, Boolean, Memory
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
    ``advance(state, record, fresh, finite)``. ``health(state)`` tells how usable the remembered records are.
    """

    init: Callable[[Params], State]
    step: Callable[[PRNGKeyArray, State, Batch], tuple[State, Info]]
    wants_record: Callable[[PRNGKeyArray, State], Boolean]
    record: Callable[[PRNGKeyArray, Params, Record, Batch], tuple[Record, Array]]
    advance: Callable[[State, Record, Boolean, Boolean], tuple[State, Info]]
    health: Callable[[State], WeightHealth]
    converged: Callable[[State], Boolean]
    gave_up: Callable[[State], Boolean]


def build(
    estimator: Estimator,
    algorithm: AlgorithmOptions,
    optimizer: optax.GradientTransformation,
    dataset: Data,
) -> Method:
    """Put an estimator, an algorithm and an optimizer together."""
    bound: Algorithm = algorithm.bind(estimator, dataset.num_batches)
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params: Params) -> State:
        shapes = jax.eval_shape(estimator.record, jax.random.key(0), params, dataset.batch(0))
        empty: Record = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        # Not used, but inside the support, so that no density is infinite there.
        empty = empty._replace(draws=estimator.approximation.draw(jax.random.key(0), params, estimator.num_samples))
        zero = jnp.int32(0)
        memory = Memory(empty, zero, bound.init_store(params, empty))
        return State(params, optimizer.init(params), memory, zero, zero, zero)

    def wants_record(key: PRNGKeyArray, state: State) -> Boolean:
        return bound.wants_record(key, state.params, state.memory)

    @jax.jit
    def usable(made: Record, newest: Record) -> tuple[Record, Array]:
        finite = made.finite
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), made, newest), finite

    def record(key: PRNGKeyArray, params: Params, newest: Record, batch: Batch) -> tuple[Record, Array]:
        # Compiled apart, for models that are evaluated on the host: this is then all that is left around them.
        return usable(estimator.record(key, params, batch), newest)

    def advance(state: State, record: Record, fresh: Boolean, finite: Boolean) -> tuple[State, Info]:
        params, memory = state.params, state.memory
        usable = jnp.asarray(fresh) & finite
        memory = memory._replace(newest=record, reuses=jnp.where(usable, 0, memory.reuses + 1))
        memory = memory._replace(store=bound.update_store(params, memory, usable))

        ascent = bound.gradient(params, memory)
        descent = jax.tree.map(jnp.negative, ascent)
        # Optimizers in the geometry of q (isvi.optim.natural) ask for it; others do not see it.
        updates, optimizer_state = optimizer.update(
            descent, state.optimizer, params, approximation=estimator.approximation
        )
        moved = optax.apply_updates(params, updates)
        stuck = ~(jnp.asarray(finite | bound.recovers) & all_finite(moved))
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(stuck, old, new),
            (moved, optimizer_state),
            (params, state.optimizer),
        )
        failed = stuck | ~jnp.asarray(finite)
        evaluated = jnp.asarray(fresh, jnp.int32) * estimator.num_samples
        info = Info(
            fresh=jnp.asarray(fresh),
            elbo=record.log_joint.mean() + estimator.approximation.entropy(state.params).sum(),
            failed=failed,
        )
        failures = jnp.where(failed, state.failures + 1, jnp.where(fresh, 0, state.failures))
        state = State(params, optimizer_state, memory, state.steps + 1, state.gradients + evaluated, failures)
        return state, info

    def step(key: PRNGKeyArray, state: State, batch: Batch) -> tuple[State, Info]:
        wanted, newest = wants_record(key, state), state.memory.newest

        def make() -> tuple[Record, Array]:
            # Derived here, not above: a reuse step should not pay for a key that it does not use.
            return record(jax.random.fold_in(key, 1), state.params, newest, batch)

        def keep() -> tuple[Record, Array]:
            return newest, jnp.array(True)

        # SGD always wants one, and is then compiled without the choice.
        used, finite = make() if wanted is True else jax.lax.cond(wanted, make, keep)
        return advance(state, used, wanted, finite)

    def health(state: State) -> WeightHealth:
        return bound.health(state.params, state.memory)

    def converged(state: State) -> Boolean:
        return bound.converged(state.memory)

    def gave_up(state: State) -> Boolean:
        return bound.gave_up(state.memory)

    return Method(init, step, wants_record, record, advance, health, converged, gave_up)


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether every number in a pytree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
