"""What :class:`isvi.Auto` does where all data is one mini-batch and there are few latents.

Without mini-batches there is no noise but that of the draws, and a record costs little. So the memory is long: it holds
the last thousand records, drawn at different parameters, and every update goes over all of them, weighted to today's q
by importance sampling, in the coordinates in which q is standard (:mod:`isvi.optim.whitened`).

Draws come from a full-rank Gaussian first, whatever the family: only draws that reach along the posterior's long, thin
directions show how flat it is there, and a factorised q has none. Once it has settled, what it knows of the curvature
is kept for the steps of the mean, and q is confined to its family. The fit ends when the nats that are left to gain,
and those that the records' finite number costs, are together negligible.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from isvi.algorithms.approach import Approach, approach, retreat
from isvi.algorithms.base import Algorithm, Boolean, Memory
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore
from isvi.optim.curvature import tempered
from isvi.optim.trust import Trust
from isvi.optim.whitened import Root, Whitened, newton, regress

LARGEST_DIM = 100
"""Up to this many entries the memory is gone through at every update."""
STORED_RECORDS = 1000
LEAST_RECORDS = 5
"""Records made before the first update."""
UPDATES_PER_DOUBLING = 16
"""An update comes whenever the memory has grown by one part in this many."""
PASS = 20
"""After so many records it is asked whether the ELBO rose or fell."""
PRECISION = 0.1
"""Gradients of little data cost little: the final tolerance is this part of what it is for much data."""
SETTLED_UPDATES = 2
PAIRS_PER_DIMENSION = 10
"""There must be this many effective pairs per dimension before anything counts as settled."""
MOST_REVERSALS = 3
"""A posterior on which steps had to be taken back this often is not for this method."""


class WholeStore(NamedTuple):
    """What is remembered."""

    records: RecordStore
    approach: Approach
    remembered: Int[Array, ""]
    """Records made since the approach ended, or since the parameters had to go back."""
    confined: Bool[Array, ""]
    """Whether q is in its family yet."""
    known: Float[Array, "dim dim"]
    """The L of the full-rank q at the end of its phase."""
    trust: Trust
    target: Params
    """Where the next step goes."""
    left: Float[Array, ""]
    """Predicted nats per entry still to be gained, or lost to finitely many records."""
    settled: Int[Array, ""]
    """Updates since ``left`` was last above the tolerance."""
    reversals: Int[Array, ""]
    """How often the parameters had to go back."""


@dataclass(frozen=True)
class Whole:
    """For full-rank estimators on a single mini-batch.

    Attributes:
        tolerance: nats per entry at which the full-rank phase ends; the final one is a tenth of it.
        family: the approximation that is wanted. Parameters stay those of the full-rank one; at the end their L has
            entries only where the family's has.
    """

    tolerance: float
    family: Approximation

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        def init_store(params: Params, record: Record) -> WholeStore:
            dim, dtype, zero = record.draws.shape[-1], record.draws.dtype, jnp.int32(0)
            return WholeStore(
                records=RecordStore.empty(record, slots=STORED_RECORDS),
                approach=Approach.start(dim, dtype),
                remembered=zero,
                confined=jnp.array(self.family.num_factors == 1),
                known=jnp.eye(dim, dtype=dtype),
                trust=Trust.start(params, 1, dtype),
                target=params,
                left=jnp.full((), jnp.inf, dtype),
                settled=zero,
                reversals=zero,
            )

        def update_store(params: Params, memory: Memory, fresh: Boolean) -> WholeStore:
            return _update(self, estimator, params, memory, jnp.asarray(fresh))

        return Algorithm(
            init_store=init_store,
            wants_record=lambda key, params, memory: True,
            update_store=update_store,
            gradient=lambda params, memory: jax.tree.map(jnp.subtract, memory.store.target, params),
            health=lambda params, memory: estimator.health(params, memory.newest.alone()),
            converged=lambda memory: memory.store.confined & (memory.store.settled >= SETTLED_UPDATES),
            gave_up=lambda memory: memory.store.reversals >= MOST_REVERSALS,
            recovers=True,
        )


def _update(options: Whole, estimator: Estimator, params: Params, memory: Memory, fresh: Bool[Array, ""]) -> WholeStore:
    """After every record: a step of the approach, or, now and then, an update from the memory."""
    store: WholeStore = memory.store
    approaching = ~store.approach.over
    keep = fresh & ~approaching
    store = _remember(store, memory.newest, keep)
    trust = _watch(estimator, params, memory.newest, store, keep, fresh)
    every = jnp.clip(store.remembered // UPDATES_PER_DOUBLING, 1, STORED_RECORDS // UPDATES_PER_DOUBLING)
    updating = keep & (store.remembered % every == 0) & (store.remembered >= LEAST_RECORDS)
    # The stored records are large and do not change here: they stay outside of the choice.
    records, small = store.records, store._replace(records=None, trust=trust)  # type: ignore[arg-type]
    in_memory = jnp.where(trust.broken | ~fresh, 3, jnp.where(updating, 2, 0))
    # A record that was not finite is not fresh: retreat, in either phase.
    choice = jnp.where(approaching, jnp.where(fresh, 1, 4), in_memory)
    small = jax.lax.switch(
        choice,
        [
            lambda: small._replace(target=params),
            lambda: _approach_step(estimator, params, memory.newest, small),
            lambda: _memory_step(options, estimator, params, records.records, small),
            lambda: _go_back(small),
            lambda: _retreat(estimator, params, small),
        ],
    )
    return small._replace(records=records)


def _remember(store: WholeStore, record: Record, keep: Bool[Array, ""]) -> WholeStore:
    """Put the record into the oldest slot."""
    slot = jnp.where(keep, store.remembered % STORED_RECORDS, store.records.newest_slot)
    kept = jax.tree.map(lambda new, old: jnp.where(keep, new, old), record, store.records.newest)
    return store._replace(records=store.records.put(kept, slot), remembered=store.remembered + keep.astype(jnp.int32))


def _watch(
    estimator: Estimator,
    params: Params,
    record: Record,
    store: WholeStore,
    keep: Bool[Array, ""],
    fresh: Bool[Array, ""],
) -> Trust:
    """Tell the trust region what the newest record says about the ELBO."""
    entropy = estimator.approximation.entropy(params).sum()
    observed = store.trust.observe(record.batch, record.log_joint.mean() + entropy)
    observed = observed.judge(params, estimator.approximation.dim, store.remembered % PASS == 0)
    calm = store.trust._replace(broken=jnp.array(False))
    watched = jax.tree.map(lambda new, old: jnp.where(keep, new, old), observed, calm)
    return watched._replace(radius=jnp.where(fresh, watched.radius, watched.radius / 4))


def _approach_step(estimator: Estimator, params: Params, record: Record, store: WholeStore) -> WholeStore:
    approximation = estimator.approximation
    location, scale = approximation.location(params), approximation.scale(params)
    state, location = approach(store.approach, location, scale, record)
    target = approximation.match(location, state.precision)
    return store._replace(approach=state, target=target, trust=store.trust._replace(best=target))


def _retreat(estimator: Estimator, params: Params, store: WholeStore) -> WholeStore:
    approximation = estimator.approximation
    state, location = retreat(store.approach, approximation.location(params))
    return store._replace(approach=state, target=approximation.match(location, state.precision))


def _go_back(store: WholeStore) -> WholeStore:
    """Return to the best parameters, and begin to remember anew."""
    return _begin_anew(store)._replace(target=store.trust.best, reversals=store.reversals + 1)


def _memory_step(
    options: Whole, estimator: Estimator, params: Params, records: Record, store: WholeStore
) -> WholeStore:
    """To the maximum of the quadratic that all records describe, inside the trust region."""
    approximation, family = estimator.approximation, options.family
    location, factor = approximation.location(params), approximation.factor(params)
    weights = _importance_weights(estimator, params, records, store.remembered)
    whitened = Whitened.of(records, weights, location, factor)
    curvature = regress(whitened)
    root, free = curvature.root(), jnp.ones_like(factor, bool)
    if family.num_factors > 1:
        known = Root.known(store.known, factor)
        root = jax.tree.map(lambda one, other: jnp.where(store.confined, one, other), known, root)
        free = family.blocks | ~store.confined
    step = newton(whitened, root)
    length = jnp.sqrt(step.squared_length / approximation.dim)
    left = step.gain + step.uncertainty + curvature.change(free) + curvature.uncertainty(free)
    location = location + factor @ store.trust.shorten(step.step, length)
    factor = factor @ jnp.linalg.cholesky(jnp.linalg.inv(curvature.precision(free)))
    done = left < options.tolerance * jnp.where(store.confined, PRECISION, 1)
    # With fewer pairs a direction may be missing that nothing points to.
    done &= whitened.pairs >= PAIRS_PER_DIMENSION * approximation.dim
    moved = store._replace(
        target=approximation.with_factor(location, factor), left=left, settled=jnp.where(done, store.settled + 1, 0)
    )
    if family.num_factors == 1:
        return moved
    ready = ~store.confined & (moved.settled >= SETTLED_UPDATES)
    confined = _confine(family, approximation, moved, location, factor)
    return jax.tree.map(lambda one, other: jnp.where(ready, one, other), confined, moved)


def _confine(
    family: Approximation, approximation: Approximation, store: WholeStore, location: Array, factor: Array
) -> WholeStore:
    """End the full-rank phase: what it knows is kept, and q becomes the closest member of the family."""
    target = approximation.with_factor(location, closest(family, factor))
    trust = store.trust._replace(best=target, elbos=jnp.full_like(store.trust.elbos, jnp.nan))
    return _begin_anew(store)._replace(confined=jnp.array(True), known=factor, trust=trust, target=target)


def closest(family: Approximation, factor: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """L of the member of the family that is closest, in KL(q || p), to a Gaussian p with the given L: their precisions
    agree in the entries that the family has."""
    if family.num_factors == 1:
        return factor
    inverse = solve_triangular(factor, jnp.eye(factor.shape[0], dtype=factor.dtype), lower=True)
    precision = jnp.where(family.blocks, inverse.T @ inverse, 0)
    scale = jnp.diagonal(precision) ** -0.5
    correlation = precision * scale[:, None] * scale[None, :]
    return scale[:, None] * jnp.linalg.cholesky(jnp.linalg.inv(correlation))


def _begin_anew(store: WholeStore) -> WholeStore:
    """Forget all records."""
    return store._replace(
        remembered=jnp.zeros_like(store.remembered),
        left=jnp.full_like(store.left, jnp.inf),
        settled=jnp.zeros_like(store.settled),
    )


def _importance_weights(
    estimator: Estimator, params: Params, records: Record, remembered: Int[Array, ""]
) -> Float[Array, " records"]:
    """Importance weights of the records, the geometric mean over factors, tempered so that enough of them count."""
    log_weights = estimator.log_weights(params, records).mean(axis=(1, 2))
    filled = jnp.arange(STORED_RECORDS) < remembered
    enough = max(25, 2 * estimator.approximation.dim)
    return tempered(jnp.where(filled, log_weights, -jnp.inf), jnp.minimum(filled.sum(), enough))
