"""The memory for more than a thousand latents: a quasi-Newton step from every mini-batch's newest records.

A slot per mini-batch keeps its newest record. Their mean point and mean gradient (Z, G) stand for the gradient of all
data, and the next mean of q is a quasi-Newton step from there, ``Z + H^{-1} G``. H is learned from the records'
mirrored pairs (:mod:`isvi.auto.curvature`), and from how G changed as Z moved (:mod:`isvi.auto.secants`). H is also
what the precision of q has to be. The fit ends when what is left to gain, as H and G predict it, is negligible.

Older pairs are used for as long as they predict new ones: when the newest records' pairs agree better with the
stored records reweighted to today's q (importance sampling) than with everything gathered so far, what was gathered
is given up for the reweighted records. Mini-batches come in the same order in every pass: the oldest record is always
the next to be renewed.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isvi.algorithms.base import Promise
from isvi.auto.curvature import Curvature, Evidence, Pairs, fit_diagonal, tempered
from isvi.auto.phases import Progress, Store
from isvi.auto.store import Knowledge, Sizes, remember
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore

PERFECT_DAMPING = 0.9
"""A diagonal whose steps need no damping is all there is to know."""
EFFECTIVE_RECORDS = 25
"""Importance weights are tempered so that at least this many records count."""
LARGEST_CHANGE = 2.0
"""A step changes no precision by more than this factor."""
CLEARLY_WORSE = 1.05
"""Gathered pairs are outdated if they predict new ones this much worse than reweighted records do; less is chance."""


@dataclass(frozen=True)
class MiniBatches:
    """The memory of mini-batches, a :class:`isvi.auto.phases.Kind`.

    Attributes:
        tolerance: nats per entry that may be left.
        sizes: how much is kept, and how often a step is taken.
    """

    tolerance: float
    sizes: Sizes

    promise: ClassVar[Promise] = "settled"

    def doubts(self, own: Knowledge) -> None:
        """Only averages are known."""

    def start(self, params: Params, record: Record) -> Store:
        return Store(
            Progress.start(params, self.sizes.num_batches, record),
            RecordStore.empty(record, self.sizes.slots),
            Knowledge.none(self.sizes, record),
        )

    def remember(self, store: Store, record: Record, keep: Bool[Array, ""]) -> Store:
        return remember(self.sizes, store, record, keep)

    def due(self, progress: Progress) -> Bool[Array, ""]:
        enough = progress.remembered >= max(5, min(self.sizes.num_batches, 10))
        return enough & (progress.remembered % self.sizes.update_every == 0)

    def pass_ended(self, progress: Progress) -> Bool[Array, ""]:
        return progress.remembered % self.sizes.level_records == 0

    def learn(self, own: Knowledge, precision: Float[Array, " dim"]) -> Knowledge:
        return own._replace(curvature=own.curvature._replace(precision=precision))

    def forget(self, estimator: Estimator, own: Knowledge, params: Params) -> Knowledge:
        return own.anew(estimator.approximation.scale(params) ** -2.0)

    def converged(self, progress: Progress, own: Knowledge) -> Bool[Array, ""]:
        """For a whole pass nothing was predicted to be left. The prediction can miss a slow direction that the
        curvature does not show; but then the ELBO is still rising."""
        dim = own.curvature.precision.shape[0]
        return (progress.settled >= self.sizes.level_records) & (progress.trust.rising < self.tolerance * dim)

    def step(
        self, estimator: Estimator, params: Params, records: RecordStore, progress: Progress, own: Knowledge
    ) -> tuple[Progress, Knowledge]:
        """A quasi-Newton step."""
        sizes, approximation = self.sizes, estimator.approximation
        location = approximation.location(params)
        weights = _importance_weights(estimator, params, records.records, own)
        evidence = _evidence(sizes, records.records, weights, progress, own)
        curvature = fit_diagonal(evidence, own.curvature, LARGEST_CHANGE)
        point, gradient = _level(sizes, records.records, weights, own)

        own = _take_secant(sizes, progress, own, curvature, point, gradient)
        step = own.secants.solve(gradient, curvature.solve) - (location - point)
        length = jnp.sqrt(curvature.squared_length(step) / location.shape[0])
        left = 0.5 * length**2 + curvature.uncertainty
        step = progress.trust.shorten(step, length)
        progress = progress._replace(
            target=approximation.match(location + step, curvature.precision),
            left=left,
            settled=jnp.where(left < self.tolerance, progress.settled + sizes.update_every, 0),
        )
        return progress, own._replace(evidence=evidence, curvature=curvature)


def _importance_weights(estimator: Estimator, params: Params, records: Record, own: Knowledge) -> Array:
    """Importance weights of the records, the geometric mean over factors, tempered so that enough of them count."""
    log_weights = estimator.log_weights(params, records).mean(axis=(1, 2))
    filled = own.made_at >= 0
    return tempered(
        jnp.where(filled, log_weights, -jnp.inf),
        enough=jnp.minimum(filled.sum(), jnp.maximum(EFFECTIVE_RECORDS, filled.sum() / 2)),
    )


def _evidence(sizes: Sizes, records: Record, weights: Array, progress: Progress, own: Knowledge) -> Evidence:
    """Add the newest pairs to what all pairs say, or begin again from the reweighted records."""
    pairs = Pairs.of(records)
    per_record = pairs.draws.shape[0] // weights.shape[0]
    newest = jnp.repeat(own.made_at >= progress.remembered - sizes.update_every, per_record)
    weights = jnp.repeat(weights, per_record)
    # Only these few are added: sums over all records would cost more than the model does.
    _, newest_slots = jax.lax.top_k(own.made_at, sizes.update_every)
    new = Pairs.of(jax.tree.map(lambda leaf: leaf[newest_slots], records))
    scale = own.curvature.precision**-0.5
    reweighted = Evidence.of(pairs, jnp.where(newest, 0, weights))
    worse = CLEARLY_WORSE * reweighted.misses(new, scale) < own.evidence.misses(new, scale)
    outdated = (own.evidence.weight == 0) | worse
    return jax.lax.cond(
        outdated,
        lambda: Evidence.of(pairs, weights),
        lambda: own.evidence + Evidence.of(new, jnp.ones_like(weights, shape=len(new.draws))),
    )


def _level(sizes: Sizes, records: Record, weights: Array, own: Knowledge) -> tuple[Array, Array]:
    """(Z, G): mean point and mean gradient over every mini-batch's newest records."""
    made_at = own.made_at.reshape(sizes.generations, sizes.num_batches)
    newest = jnp.argmax(made_at, axis=0)
    behind = (newest[None, :] - jnp.arange(sizes.generations)[:, None]) % sizes.generations
    counted = (made_at >= 0) & (behind < sizes.level_generations)
    if sizes.num_batches == 1:
        # No mini-batch can be left out of balance, so that all records count, each by its weight.
        counted = weights.reshape(counted.shape)
    shares = counted.reshape(-1).astype(records.draws.dtype)
    shares = shares / shares.sum()
    point = jnp.tensordot(shares, records.draws.mean(axis=1), axes=1)
    return point, jnp.tensordot(shares, records.gradient.mean(axis=1), axes=1)


def _take_secant(
    sizes: Sizes, progress: Progress, own: Knowledge, curvature: Curvature, point: Array, gradient: Array
) -> Knowledge:
    """Every half pass, compare (Z, G) with what they were a pass ago, when all of it came from older records."""
    half = max(sizes.update_every, sizes.level_records // 2)
    crossed = (progress.remembered // half) > ((progress.remembered - sizes.update_every) // half)
    step, change = point - own.anchors[0, 0], own.anchors[0, 1] - gradient
    well_known = curvature.damping > PERFECT_DAMPING
    usable = crossed & (progress.remembered >= 2 * sizes.level_records) & ~well_known
    added = own.secants.add(step, change)
    secants = jax.tree.map(lambda new, old: jnp.where(usable, new, old), added, own.secants)
    now = jnp.stack([point, gradient])
    anchors = jnp.where(crossed, jnp.stack([own.anchors[1], now]), own.anchors)
    return own._replace(secants=secants, anchors=anchors)
