"""The default: nothing to choose.

Three ideas, all on stored records. The *approach* (:mod:`isvi.algorithms.approach`) comes near the posterior from
anywhere. Then a *memory* keeps every mini-batch's newest records: their mean point and mean gradient (Z, G) stand
for the gradient of all data, and the next mean of q is a quasi-Newton step from there, ``Z + H^{-1} G``. H is
learned from the records' mirrored pairs (:mod:`isvi.optim.curvature`), and from how G changed as Z moved
(:mod:`isvi.optim.secants`). H is also what the precision of q has to be. A step is bounded in the metric of H, by a
radius that follows what the ELBO did (:mod:`isvi.optim.trust`), and the fit ends when the ELBO that is left to gain,
as H and G predict it, is negligible.

Older pairs are used for as long as they predict new ones: when the newest records' pairs agree better with the
stored records reweighted to today's q (importance sampling) than with everything gathered so far, what was gathered
is given up for the reweighted records.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.algorithms.approach import Approach, approach, retreat
from isvi.algorithms.base import Algorithm, Boolean, Memory
from isvi.algorithms.whole import LARGEST_DIM, Whole
from isvi.core.errors import ConfigurationError, require
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore
from isvi.optim.curvature import Curvature, Evidence, Pairs, fit_dense, fit_diagonal, tempered
from isvi.optim.secants import Secants
from isvi.optim.trust import Trust

ALWAYS_DENSE = 200
"""Up to this dimension the full curvature matrix is estimated as soon as there are enough pairs ..."""
LARGEST_DENSE = 600
"""... and up to this one if a diagonal is not good enough."""
GOOD_DAMPING = 0.4
"""A diagonal is good enough if its steps need no more damping than this."""
PAIRS_PER_DIMENSION = 0.7
"""How many effective pairs per dimension a dense estimate needs."""
LEVEL_RECORDS = 20
"""The level of the gradient is averaged over at least this many records."""
STORED_RECORDS = 60
"""At least this many records are kept."""
EFFECTIVE_RECORDS = 25
"""Importance weights are tempered so that at least this many records count."""
MOST_REVERSALS = 3
"""A posterior on which steps had to be taken back this often is not for this method."""
LARGEST_CHANGE = 2.0
"""A step changes no precision by more than this factor."""


class AutoStore(NamedTuple):
    """What the default method remembers."""

    records: RecordStore
    """A slot per mini-batch and generation."""
    made_at: Int[Array, " slots"]
    """When the slot was filled, counted in records; -1 while empty."""
    approach: Approach
    remembered: Int[Array, ""]
    """Records made since the approach ended."""
    evidence: Evidence
    """What all pairs so far say about the curvature; starts anew when they no longer predict new ones."""
    curvature: Curvature
    dense_at: Int[Array, ""]
    """When the dense curvature was last estimated."""
    secants: Secants
    anchors: Float[Array, "2 2 dim"]
    """(Z, G) one and one half pass ago."""
    trust: Trust
    target: Params
    """Where the next step goes."""
    left: Float[Array, ""]
    """Predicted nats per entry still to be gained."""
    settled: Int[Array, ""]
    """Records made since ``left`` was last above the tolerance."""
    reversals: Int[Array, ""]
    """How often the parameters had to go back."""


@dataclass(frozen=True)
class Auto:
    """Chooses everything itself: start, scale, step sizes, when to stop. For Gaussian families.

    Attributes:
        tolerance: end when the ELBO that is left to gain is predicted to be below this, in nats per
            unconstrained entry of the latents.
    """

    tolerance: float = 0.003

    def __post_init__(self) -> None:
        require(
            self.tolerance > 0,
            ConfigurationError,
            f"tolerance is in nats per entry of the latents and must be positive; got {self.tolerance!r}.",
        )

    def on_whole_data(self, approximation: Approximation, num_batches: int) -> Whole | None:
        """What to do instead, with ``approximation.full_rank``, where all data is one mini-batch and the latents are
        few."""
        small = approximation.gaussian and num_batches == 1 and approximation.dim <= LARGEST_DIM
        return Whole(self.tolerance, approximation) if small else None

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        require(
            estimator.approximation.gaussian and estimator.antithetic,
            ConfigurationError,
            "Auto needs Gaussian families (MeanField, Block, FullRank) and records of antithetic pairs "
            "(Reparameterization(num_samples=2, antithetic=True)). For other families use ISGD().",
        )
        sizes = _Sizes.of(estimator.approximation, num_batches)

        def init_store(params: Params, record: Record) -> AutoStore:
            dim, dtype = record.draws.shape[-1], record.draws.dtype
            zero = jnp.int32(0)
            return AutoStore(
                records=RecordStore.empty(record, slots=sizes.generations * num_batches),
                made_at=jnp.full(sizes.generations * num_batches, -1, jnp.int32),
                approach=Approach.start(dim, dtype),
                remembered=zero,
                evidence=Evidence.none(dim, sizes.dense_dim, dtype),
                curvature=Curvature.diagonal(jnp.ones(dim, dtype), sizes.dense_dim),
                dense_at=zero,
                secants=Secants.none(dim, dtype),
                anchors=jnp.zeros((2, 2, dim), dtype),
                trust=Trust.start(params, num_batches, dtype),
                target=params,
                left=jnp.full((), jnp.inf, dtype),
                settled=zero,
                reversals=zero,
            )

        def update_store(params: Params, memory: Memory, fresh: Boolean) -> AutoStore:
            return _update(self, sizes, estimator, params, memory, jnp.asarray(fresh))

        return Algorithm(
            init_store=init_store,
            wants_record=lambda key, params, memory: True,
            update_store=update_store,
            gradient=lambda params, memory: jax.tree.map(jnp.subtract, memory.store.target, params),
            health=lambda params, memory: estimator.health(params, memory.newest.alone()),
            converged=lambda memory: memory.store.settled >= sizes.level_records,
            gave_up=lambda memory: memory.store.reversals >= MOST_REVERSALS,
            recovers=True,
        )


@dataclass(frozen=True)
class _Sizes:
    """What follows from the dimension and the number of mini-batches."""

    num_batches: int
    generations: int
    level_generations: int
    update_every: int
    dense_dim: int

    @classmethod
    def of(cls, approximation: Approximation, num_batches: int) -> "_Sizes":
        dim = approximation.dim
        return cls(
            num_batches=num_batches,
            generations=-(-STORED_RECORDS // num_batches),
            level_generations=-(-LEVEL_RECORDS // num_batches),
            update_every=max(1, min(num_batches // 10, 8)),
            dense_dim=dim if dim <= LARGEST_DENSE else 0,
        )

    @property
    def level_records(self) -> int:
        """Records in the average that stands for the gradient of all data: a whole number of passes."""
        return self.level_generations * self.num_batches


def _update(
    options: Auto, sizes: _Sizes, estimator: Estimator, params: Params, memory: Memory, fresh: Bool[Array, ""]
) -> AutoStore:
    """After every record: one step of the approach, or, every few records, one of the memory phase."""
    store: AutoStore = memory.store
    approaching = ~store.approach.over
    keep = fresh & ~approaching
    store = _remember(sizes, store, memory.newest, keep)
    trust = _watch(sizes, estimator, params, memory.newest, store, keep, fresh)
    updating = keep & (store.remembered % sizes.update_every == 0)
    updating &= store.remembered >= max(5, min(sizes.num_batches, 10))
    # The stored records are large and do not change here: they stay outside of the choice.
    records, small = store.records, store._replace(records=None, trust=trust)  # type: ignore[arg-type]
    # A record that was not finite is not fresh: retreat, in either phase.
    in_memory = jnp.where(trust.broken | ~fresh, 3, jnp.where(updating, 2, 0))
    choice = jnp.where(approaching, jnp.where(fresh, 1, 4), in_memory)
    small = jax.lax.switch(
        choice,
        [
            lambda: small._replace(target=params),
            lambda: _approach_step(estimator, params, memory.newest, small),
            lambda: _memory_step(options, sizes, estimator, params, records, small),
            lambda: _go_back(sizes, estimator, small),
            lambda: _retreat(estimator, params, small),
        ],
    )
    return small._replace(records=records)


def _watch(
    sizes: _Sizes,
    estimator: Estimator,
    params: Params,
    record: Record,
    store: AutoStore,
    keep: Bool[Array, ""],
    fresh: Bool[Array, ""],
) -> Trust:
    """Tell the trust region what the newest record says about the ELBO."""
    entropy = estimator.approximation.entropy(params).sum()
    observed = store.trust.observe(record.batch, record.log_joint.mean() + entropy)
    pass_ended = store.remembered % sizes.level_records == 0
    observed = observed.judge(params, estimator.approximation.dim, pass_ended)
    calm = store.trust._replace(broken=jnp.array(False))
    watched = jax.tree.map(lambda new, old: jnp.where(keep, new, old), observed, calm)
    return watched._replace(radius=jnp.where(fresh, watched.radius, watched.radius / 4))


def _retreat(estimator: Estimator, params: Params, store: AutoStore) -> AutoStore:
    approximation = estimator.approximation
    state, location = retreat(store.approach, approximation.location(params))
    return store._replace(approach=state, target=approximation.match(location, state.precision))


def _go_back(sizes: _Sizes, estimator: Estimator, store: AutoStore) -> AutoStore:
    """Return to the best parameters, and begin to remember anew."""
    fresh_evidence = jax.tree.map(jnp.zeros_like, store.evidence)
    return store._replace(
        target=store.trust.best,
        made_at=jnp.full_like(store.made_at, -1),
        remembered=jnp.zeros_like(store.remembered),
        evidence=fresh_evidence,
        curvature=Curvature.diagonal(estimator.approximation.scale(store.trust.best) ** -2.0, sizes.dense_dim),
        dense_at=jnp.zeros_like(store.dense_at),
        secants=jax.tree.map(jnp.zeros_like, store.secants),
        anchors=jnp.zeros_like(store.anchors),
        left=jnp.full_like(store.left, jnp.inf),
        settled=jnp.zeros_like(store.settled),
        reversals=store.reversals + 1,
    )


def _remember(sizes: _Sizes, store: AutoStore, record: Record, keep: Bool[Array, ""]) -> AutoStore:
    """Put the record into its mini-batch's oldest generation."""
    generation = (store.remembered // sizes.num_batches) % sizes.generations
    slot = jnp.where(keep, generation * sizes.num_batches + record.batch, store.records.newest_slot)
    empty_yet = store.remembered == 0
    kept = jax.tree.map(lambda new, old: jnp.where(keep | empty_yet, new, old), record, store.records.newest)
    made_at = store.made_at.at[slot].set(jnp.where(keep, store.remembered, store.made_at[slot]))
    return store._replace(
        records=store.records.put(kept, slot), made_at=made_at, remembered=store.remembered + keep.astype(jnp.int32)
    )


def _approach_step(estimator: Estimator, params: Params, record: Record, store: AutoStore) -> AutoStore:
    approximation = estimator.approximation
    location, scale = approximation.location(params), approximation.scale(params)
    state, location = approach(store.approach, location, scale, record)
    return store._replace(
        approach=state,
        target=approximation.match(location, state.precision),
        curvature=store.curvature._replace(precision=state.precision),
        trust=store.trust._replace(best=approximation.match(location, state.precision)),
    )


def _memory_step(
    options: Auto, sizes: _Sizes, estimator: Estimator, params: Params, records: RecordStore, store: AutoStore
) -> AutoStore:
    """A quasi-Newton step from the memory."""
    approximation = estimator.approximation
    location = approximation.location(params)
    weights = _importance_weights(estimator, params, records.records, store)
    evidence = _evidence(sizes, records.records, weights, store)
    curvature, dense_at = _curvature(sizes, evidence, store)
    point, gradient = _level(sizes, records.records, weights, store)

    store = _take_secant(sizes, store, point, gradient)
    step = store.secants.solve(gradient, curvature.solve) + point - location
    length = jnp.sqrt(curvature.squared_length(step) / location.shape[0])
    left = 0.5 * length**2 + curvature.uncertainty
    # The prediction can miss a slow direction that the curvature does not show; then the ELBO is still rising.
    done = (left < options.tolerance) & (store.trust.rising < options.tolerance)
    step = store.trust.shorten(step, length)
    precision = curvature.precision if sizes.dense_dim == 0 or approximation.diagonal else curvature.matrix()
    return store._replace(
        evidence=evidence,
        curvature=curvature,
        dense_at=dense_at,
        target=approximation.match(location + step, precision),
        left=left,
        settled=jnp.where(done, store.settled + sizes.update_every, 0),
    )


def _importance_weights(estimator: Estimator, params: Params, records: Record, store: AutoStore) -> Array:
    """Importance weights of the records, the geometric mean over factors, tempered so that enough of them count."""
    log_weights = estimator.log_weights(params, records).mean(axis=(1, 2))
    filled = store.made_at >= 0
    return tempered(
        jnp.where(filled, log_weights, -jnp.inf),
        enough=jnp.minimum(filled.sum(), jnp.maximum(EFFECTIVE_RECORDS, filled.sum() / 2)),
    )


def _evidence(sizes: _Sizes, records: Record, weights: Array, store: AutoStore) -> Evidence:
    """Add the newest pairs to what all pairs say, or begin again from the reweighted records."""
    pairs = Pairs.of(records)
    per_record = pairs.draws.shape[0] // weights.shape[0]
    newest = jnp.repeat(store.made_at >= store.remembered - sizes.update_every, per_record)
    weights = jnp.repeat(weights, per_record)
    new = Pairs(*jax.tree.map(lambda leaf: jnp.where(newest[:, None], leaf, 0), pairs))
    scale = store.curvature.precision**-0.5
    reweighted = Evidence.of(pairs, jnp.where(newest, 0, weights), dense_dim=0)
    outdated = (store.evidence.weight == 0) | (reweighted.misses(new, scale) < store.evidence.misses(new, scale))
    return jax.lax.cond(
        outdated,
        lambda: Evidence.of(pairs, weights, sizes.dense_dim),
        lambda: store.evidence + Evidence.of(pairs, newest.astype(weights.dtype), sizes.dense_dim),
    )


def _curvature(sizes: _Sizes, evidence: Evidence, store: AutoStore) -> tuple[Curvature, Array]:
    """H by its diagonal; or, where that helps and there are pairs enough, as a matrix, estimated now and then."""
    old = store.curvature
    diagonal = fit_diagonal(evidence, old, LARGEST_CHANGE)
    if sizes.dense_dim == 0:
        return diagonal, store.dense_at
    wanted = evidence.pairs >= PAIRS_PER_DIMENSION * sizes.dense_dim
    if sizes.dense_dim > ALWAYS_DENSE:
        wanted &= old.dense | (diagonal.damping < GOOD_DAMPING)
    due = store.remembered - store.dense_at >= max(sizes.update_every, sizes.dense_dim // 8)
    return jax.lax.switch(
        jnp.where(wanted, jnp.where(due | ~old.dense, 2, 1), 0),
        [
            lambda: (diagonal, store.dense_at),
            lambda: (old, store.dense_at),
            lambda: (fit_dense(evidence, diagonal), store.remembered),
        ],
    )


def _level(sizes: _Sizes, records: Record, weights: Array, store: AutoStore) -> tuple[Array, Array]:
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


def _take_secant(sizes: _Sizes, store: AutoStore, point: Array, gradient: Array) -> AutoStore:
    """Every half pass, compare (Z, G) with what they were a pass ago, when all of it came from older records."""
    half = max(sizes.update_every, sizes.level_records // 2)
    crossed = (store.remembered // half) > ((store.remembered - sizes.update_every) // half)
    step, change = point - store.anchors[0, 0], store.anchors[0, 1] - gradient
    usable = crossed & (store.remembered >= 2 * sizes.level_records)
    added = store.secants.add(step, change)
    secants = jax.tree.map(lambda new, old: jnp.where(usable, new, old), added, store.secants)
    now = jnp.stack([point, gradient])
    anchors = jnp.where(crossed, jnp.stack([store.anchors[1], now]), store.anchors)
    return store._replace(secants=secants, anchors=anchors)
