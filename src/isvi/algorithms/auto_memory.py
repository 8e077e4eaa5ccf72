"""The memory phase of the default method: a quasi-Newton step from every mini-batch's newest records."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from isvi.algorithms.auto_store import AutoStore, Sizes
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore
from isvi.optim.curvature import Curvature, Evidence, Pairs, fit_dense, fit_diagonal, tempered

ALWAYS_DENSE = 200
"""Up to this dimension the full curvature matrix is estimated as soon as there are enough pairs; above it, where it may
be estimated at all, only if a diagonal is not good enough."""
GOOD_DAMPING = 0.4
"""A diagonal is good enough if its steps need no more damping than this."""
PERFECT_DAMPING = 0.9
"""A diagonal whose steps need no damping is all there is to know."""
PAIRS_PER_DIMENSION = 0.7
"""How many effective pairs per dimension a dense estimate needs."""
EFFECTIVE_RECORDS = 25
"""Importance weights are tempered so that at least this many records count."""
LARGEST_CHANGE = 2.0
"""A step changes no precision by more than this factor."""
CLEARLY_WORSE = 1.05
"""Gathered pairs are outdated if they predict new ones this much worse than reweighted records do; less is chance."""


def memory_step(
    tolerance: float, sizes: Sizes, estimator: Estimator, params: Params, records: RecordStore, store: AutoStore
) -> AutoStore:
    """A quasi-Newton step from the memory."""
    approximation = estimator.approximation
    location = approximation.location(params)
    weights = _importance_weights(estimator, params, records.records, store)
    evidence = _evidence(sizes, records.records, weights, store)
    curvature, dense_at = _curvature(sizes, evidence, store)
    point, gradient = _level(sizes, records.records, weights, store)

    way = location - point
    if _needs_secants(sizes):
        store = _take_secant(sizes, store, curvature, point, gradient)
        step = store.secants.solve(gradient, curvature.solve) - way
    else:
        # Along directions that look flat, go on from where q is, not from where the records were half a pass ago.
        onward = jnp.where(store.remembered >= sizes.level_records, curvature.undetermined(way), 0)
        step = curvature.solve(gradient) - way + onward
    length = jnp.sqrt(curvature.squared_length(step) / location.shape[0])
    left = 0.5 * length**2 + curvature.uncertainty
    step = store.trust.shorten(step, length)
    precision = curvature.precision if sizes.dense_dim == 0 or approximation.diagonal else curvature.matrix()
    return store._replace(
        evidence=evidence,
        curvature=curvature,
        dense_at=dense_at,
        target=approximation.match(location + step, precision),
        left=left,
        settled=jnp.where(left < tolerance, store.settled + sizes.update_every, 0),
    )


def _importance_weights(estimator: Estimator, params: Params, records: Record, store: AutoStore) -> Array:
    """Importance weights of the records, the geometric mean over factors, tempered so that enough of them count."""
    log_weights = estimator.log_weights(params, records).mean(axis=(1, 2))
    filled = store.made_at >= 0
    return tempered(
        jnp.where(filled, log_weights, -jnp.inf),
        enough=jnp.minimum(filled.sum(), jnp.maximum(EFFECTIVE_RECORDS, filled.sum() / 2)),
    )


def _evidence(sizes: Sizes, records: Record, weights: Array, store: AutoStore) -> Evidence:
    """Add the newest pairs to what all pairs say, or begin again from the reweighted records."""
    pairs = Pairs.of(records)
    per_record = pairs.draws.shape[0] // weights.shape[0]
    newest = jnp.repeat(store.made_at >= store.remembered - sizes.update_every, per_record)
    weights = jnp.repeat(weights, per_record)
    # Only these few are added: sums over all records would cost more than the model does.
    _, newest_slots = jax.lax.top_k(store.made_at, sizes.update_every)
    new = Pairs.of(jax.tree.map(lambda leaf: leaf[newest_slots], records))
    scale = store.curvature.precision**-0.5
    reweighted = Evidence.of(pairs, jnp.where(newest, 0, weights), dense_dim=0)
    worse = CLEARLY_WORSE * reweighted.misses(new, scale) < store.evidence.misses(new, scale)
    outdated = (store.evidence.weight == 0) | worse
    return jax.lax.cond(
        outdated,
        lambda: Evidence.of(pairs, weights, sizes.dense_dim),
        lambda: store.evidence + Evidence.of(new, jnp.ones_like(weights, shape=len(new.draws)), sizes.dense_dim),
    )


def _curvature(sizes: Sizes, evidence: Evidence, store: AutoStore) -> tuple[Curvature, Array]:
    """H by its diagonal; or, where that helps and there are pairs enough, as a matrix, estimated now and then."""
    old = store.curvature
    diagonal = fit_diagonal(evidence, old, LARGEST_CHANGE)
    if sizes.dense_dim == 0:
        return diagonal, store.dense_at
    wanted = evidence.pairs >= PAIRS_PER_DIMENSION * sizes.dense_dim
    if sizes.dense_dim > ALWAYS_DENSE:
        wanted &= old.dense | (diagonal.damping < GOOD_DAMPING)
    due = store.remembered - store.dense_at >= sizes.refit_every
    return jax.lax.switch(
        jnp.where(wanted, jnp.where(due | ~old.dense, 2, 1), 0),
        [
            lambda: (diagonal, store.dense_at),
            lambda: (old, store.dense_at),
            lambda: (fit_dense(evidence, diagonal), store.remembered),
        ],
    )


def _level(sizes: Sizes, records: Record, weights: Array, store: AutoStore) -> tuple[Array, Array]:
    """(Z, G): mean point and mean gradient over every mini-batch's newest records."""
    made_at = store.made_at.reshape(sizes.generations, sizes.num_batches)
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


def _needs_secants(sizes: Sizes) -> bool:
    """Whether there are more dimensions than pairs will tell about. Otherwise secants, which are long and know nothing
    of how H changed on the way, do more harm than good."""
    return not 0 < sizes.dense_dim <= ALWAYS_DENSE


def _take_secant(sizes: Sizes, store: AutoStore, curvature: Curvature, point: Array, gradient: Array) -> AutoStore:
    """Every half pass, compare (Z, G) with what they were a pass ago, when all of it came from older records."""
    half = max(sizes.update_every, sizes.level_records // 2)
    crossed = (store.remembered // half) > ((store.remembered - sizes.update_every) // half)
    step, change = point - store.anchors[0, 0], store.anchors[0, 1] - gradient
    well_known = ~curvature.dense & (curvature.damping > PERFECT_DAMPING)
    usable = crossed & (store.remembered >= 2 * sizes.level_records) & ~well_known
    added = store.secants.add(step, change)
    secants = jax.tree.map(lambda new, old: jnp.where(usable, new, old), added, store.secants)
    now = jnp.stack([point, gradient])
    anchors = jnp.where(crossed, jnp.stack([store.anchors[1], now]), store.anchors)
    return store._replace(secants=secants, anchors=anchors)
