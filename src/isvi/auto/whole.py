"""What :class:`isvi.Auto` does where all data is one mini-batch and there are few latents.

Without mini-batches there is no noise but that of the draws, and a record costs little. So the memory is long: it holds
the last thousand records, drawn at different parameters, and every update goes over all of them, weighted to today's q
by importance sampling, in the coordinates in which q is standard (:mod:`isvi.auto.curvature.whitened`).

Draws come from a full-rank Gaussian first, whatever the family: only draws that reach along the posterior's long, thin
directions show how flat it is there, and a factorised q has none. Once it has settled, what it knows of the curvature
is kept for the steps of the mean, and q is confined to its family. The fit ends when the nats that are left to gain,
and those that the records' finite number costs, are together negligible.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.algorithms.base import Algorithm, Doubts, Promise
from isvi.auto.curvature.outdated import tempered
from isvi.auto.curvature.whitened import LARGEST_CHANGE, Root, Whitened, newton, regress
from isvi.auto.dense import MEAN_TOLERANCE, SD_TOLERANCE, closest
from isvi.auto.phases import Progress, Store, algorithm
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore

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


class Knowledge(NamedTuple):
    """What is known beside the records."""

    confined: Bool[Array, ""]
    """Whether q is in its family yet."""
    known: Float[Array, "dim dim"]
    """The L of the full-rank q at the end of its phase."""
    off: Float[Array, " dim"]
    """Predicted errors of q's means, in standard deviations."""
    doubt: Float[Array, " dim"]
    """Standard errors of the logarithms of q's standard deviations."""


@dataclass(frozen=True)
class Whole:
    """The memory of a single mini-batch, a :class:`isvi.auto.phases.Kind`. For full-rank estimators.

    Attributes:
        tolerance: nats per entry at which the full-rank phase ends; the final one is a tenth of it.
        family: the approximation that is wanted. Parameters stay those of the full-rank one; at the end their L has
            entries only where the family's has.
    """

    tolerance: float
    family: Approximation

    promise: ClassVar[Promise] = "converged"

    def doubts(self, own: Knowledge) -> Doubts:
        return Doubts(own.off, own.doubt)

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        return algorithm(self, estimator)

    def start(self, params: Params, record: Record) -> Store:
        dim, dtype = record.draws.shape[-1], record.draws.dtype
        unknown = jnp.full(dim, jnp.inf, dtype)
        own = Knowledge(jnp.array(self.family.full), jnp.eye(dim, dtype=dtype), unknown, unknown)
        return Store(Progress.start(params, 1, record), RecordStore.empty(record, STORED_RECORDS), own)

    def remember(self, store: Store, record: Record, keep: Bool[Array, ""]) -> Store:
        """Put the record into the oldest slot."""
        progress, records = store.progress, store.records
        slot = jnp.where(keep, progress.remembered % STORED_RECORDS, records.newest_slot)
        kept = jax.tree.map(lambda new, old: jnp.where(keep, new, old), record, records.newest)
        counted = progress._replace(remembered=progress.remembered + keep.astype(jnp.int32))
        return Store(counted, records.put(kept, slot), store.own)

    def due(self, progress: Progress) -> Bool[Array, ""]:
        every = jnp.clip(progress.remembered // UPDATES_PER_DOUBLING, 1, STORED_RECORDS // UPDATES_PER_DOUBLING)
        return (progress.remembered % every == 0) & (progress.remembered >= LEAST_RECORDS)

    def pass_ended(self, progress: Progress) -> Bool[Array, ""]:
        return progress.remembered % PASS == 0

    def learn(self, own: Knowledge, precision: Float[Array, " dim"]) -> Knowledge:
        return own

    def forget(self, estimator: Estimator, own: Knowledge, params: Params) -> Knowledge:
        return own

    def converged(self, progress: Progress, own: Knowledge) -> Bool[Array, ""]:
        return own.confined & (progress.settled >= SETTLED_UPDATES)

    def step(
        self, estimator: Estimator, params: Params, records: RecordStore, progress: Progress, own: Knowledge
    ) -> tuple[Progress, Knowledge]:
        """To the maximum of the quadratic that all records describe, inside the trust region."""
        approximation, family = estimator.approximation, self.family
        location, factor = approximation.location(params), approximation.factor(params)
        weights = _importance_weights(estimator, params, records.records, progress.remembered)
        whitened = Whitened.of(records.records, weights, location, factor)
        curvature = regress(whitened)
        root, free = curvature.root(), jnp.ones_like(factor, bool)
        if not family.full:
            known = Root.known(own.known, factor)
            root = jax.tree.map(lambda one, other: jnp.where(own.confined, one, other), known, root)
            free = family.blocks | ~own.confined
        step = newton(whitened, root)
        length = jnp.sqrt(step.squared_length / approximation.dim)
        left = step.gain + step.uncertainty + curvature.change(free) + curvature.uncertainty(free)
        sds = jnp.sqrt(jnp.sum(factor**2, axis=1))
        own = own._replace(off=jnp.abs(factor @ step.step) / sds, doubt=curvature.sd_errors(factor))
        location = location + factor @ progress.trust.shorten(step.step, length)
        most = progress.trust.limit(LARGEST_CHANGE, whitened.pairs / approximation.dim)
        factor = factor @ jnp.linalg.cholesky(jnp.linalg.inv(curvature.precision(free, most)))
        done = left < self.tolerance * jnp.where(own.confined, PRECISION, 1)
        # With fewer pairs a direction may be missing that nothing points to.
        done &= whitened.pairs >= PAIRS_PER_DIMENSION * approximation.dim
        # An average can hide an entry that is wrong.
        done &= (own.off.max() < MEAN_TOLERANCE) & (own.doubt.max() < SD_TOLERANCE / 2)
        target = approximation.with_factor(location, factor)
        moved = progress._replace(target=target, left=left, settled=jnp.where(done, progress.settled + 1, 0)), own
        if family.full:
            return moved
        ready = ~own.confined & (moved[0].settled >= SETTLED_UPDATES)
        confined = _confine(family, approximation, moved[0], own, location, factor)
        return jax.tree.map(lambda one, other: jnp.where(ready, one, other), confined, moved)


def _confine(
    family: Approximation,
    approximation: Approximation,
    progress: Progress,
    own: Knowledge,
    location: Array,
    factor: Array,
) -> tuple[Progress, Knowledge]:
    """End the full-rank phase: what it knows is kept, and q becomes the closest member of the family."""
    target = approximation.with_factor(location, closest(family, factor))
    trust = progress.trust._replace(best=target, elbos=jnp.full_like(progress.trust.elbos, jnp.nan))
    return progress.anew()._replace(trust=trust, target=target), own._replace(confined=jnp.array(True), known=factor)


def _importance_weights(
    estimator: Estimator, params: Params, records: Record, remembered: Int[Array, ""]
) -> Float[Array, " records"]:
    """Importance weights of the records, the geometric mean over factors, tempered so that enough of them count."""
    log_weights = estimator.log_weights(params, records).mean(axis=(1, 2))
    filled = jnp.arange(STORED_RECORDS) < remembered
    enough = max(25, 2 * estimator.approximation.dim)
    return tempered(jnp.where(filled, log_weights, -jnp.inf), jnp.minimum(filled.sum(), enough))
