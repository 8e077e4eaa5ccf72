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
is given up for the reweighted records. Mini-batches come in the same order in every pass: the oldest record is always
the next to be renewed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from isvi.algorithms.approach import approach, retreat
from isvi.algorithms.auto_memory import memory_step
from isvi.algorithms.auto_store import AutoStore, Sizes, remember
from isvi.algorithms.base import Algorithm, Boolean, Memory
from isvi.algorithms.whole import LARGEST_DIM, Whole
from isvi.core.errors import ConfigurationError, require
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.optim.curvature import Curvature
from isvi.optim.trust import Trust

MOST_REVERSALS = 3
"""A posterior on which steps had to be taken back this often is not for this method."""


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
        sizes = Sizes.of(estimator.approximation, num_batches, estimator.operations)

        def update_store(params: Params, memory: Memory, fresh: Boolean) -> AutoStore:
            return _update(self, sizes, estimator, params, memory, jnp.asarray(fresh))

        return Algorithm(
            init_store=lambda params, record: AutoStore.start(sizes, params, record),
            wants_record=lambda key, params, memory: True,
            update_store=update_store,
            gradient=lambda params, memory: jax.tree.map(jnp.subtract, memory.store.target, params),
            health=lambda params, memory: estimator.health(params, memory.newest.alone()),
            converged=lambda memory: _converged(self, sizes, estimator.approximation.dim, memory.store),
            gave_up=lambda memory: memory.store.reversals >= MOST_REVERSALS,
            recovers=True,
        )


def _update(
    options: Auto, sizes: Sizes, estimator: Estimator, params: Params, memory: Memory, fresh: Bool[Array, ""]
) -> AutoStore:
    """After every record: one step of the approach, or, every few records, one of the memory phase."""
    store: AutoStore = memory.store
    approaching = ~store.approach.over
    keep = fresh & ~approaching
    store = remember(sizes, store, memory.newest, keep)
    trust = _watch(sizes, estimator, params, memory.newest, store, keep, fresh)
    updating = keep & (store.remembered % sizes.update_every == 0)
    updating &= store.remembered >= max(5, min(sizes.num_batches, 10))
    # The stored records are large and do not change here: they stay outside of the choice.
    records, small = store.records, store._replace(records=None, trust=trust, target=params)  # type: ignore[arg-type]
    # A record that was not finite is not fresh: retreat, in either phase.
    in_memory = jnp.where(trust.broken | ~fresh, 3, jnp.where(updating, 2, 0))
    choice = jnp.where(approaching, jnp.where(fresh, 1, 4), in_memory)
    small = _where_needed(
        choice,
        [
            lambda small: _approach_step(estimator, params, memory.newest, small),
            lambda small: memory_step(options.tolerance, sizes, estimator, params, records, small),
            lambda small: _go_back(sizes, estimator, small),
            lambda small: _retreat(estimator, params, small),
        ],
        small,
    )
    return small._replace(records=records)


def _where_needed(
    choice: Int[Array, ""], steps: Sequence[Callable[[AutoStore], AutoStore]], store: AutoStore
) -> AutoStore:
    """The store after step number ``choice``, counted from 1; 0 is none. A loop of at most one turn, as a loop works in
    place: after most records nothing is to be done, and a conditional would copy the store's matrices to say so."""
    _, store = jax.lax.while_loop(
        lambda carry: carry[0] > 0,
        lambda carry: (jnp.zeros_like(choice), jax.lax.switch(carry[0] - 1, steps, carry[1])),
        (choice, store),
    )
    return store


def _converged(options: Auto, sizes: Sizes, dim: int, store: AutoStore) -> Bool[Array, ""]:
    """For a whole pass nothing was predicted to be left. The prediction can miss a slow direction that the curvature
    does not show; but then the ELBO is still rising."""
    return (store.settled >= sizes.level_records) & (store.trust.rising < options.tolerance * dim)


def _watch(
    sizes: Sizes,
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


def _go_back(sizes: Sizes, estimator: Estimator, store: AutoStore) -> AutoStore:
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
