"""The phases that every kind of memory goes through: approach, remember, step, and going back.

The *approach* (:mod:`isvi.auto.approach`) comes near the posterior from anywhere. Then records are kept, and every few
of them the kind of memory takes a step of its own, inside a trust region (:mod:`isvi.auto.trust`) that watches the
ELBO. If it fell, or the model was not finite, the parameters go back to where they were best. A kind of memory is one
file that says what it keeps, when it takes a step, and what that step is: see :class:`Kind`.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.algorithms.base import Algorithm, Boolean, Doubts, Memory, Promise
from isvi.auto.approach import Approach, approach, retreat
from isvi.auto.trust import Trust
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.memory.record import Record

MOST_AHEAD = 64
"""No kind of memory waits for more records than this between two steps."""
MOST_REVERSALS = 3
"""A posterior on which steps had to be taken back this often is not for this method."""


class Progress(NamedTuple):
    """Where a run is, whatever its memory."""

    approach: Approach
    trust: Trust
    target: Params
    """Where the next step goes."""
    remembered: Int[Array, ""]
    """Records made since the approach ended, or since the parameters had to go back."""
    left: Float[Array, ""]
    """Predicted nats per entry still to be gained, or lost to finitely many records."""
    settled: Int[Array, ""]
    """For how long ``left`` has been below the tolerance, in records or in steps as the kind counts."""
    reversals: Int[Array, ""]
    """How often the parameters had to go back."""

    @classmethod
    def start(cls, params: Params, num_batches: int, record: Record) -> "Progress":
        dim, dtype, zero = record.draws.shape[-1], record.draws.dtype, jnp.int32(0)
        trust, unknown = Trust.start(params, num_batches, dtype), jnp.full((), jnp.inf, dtype)
        return cls(Approach.start(dim, dtype), trust, params, zero, unknown, zero, zero)

    def anew(self) -> "Progress":
        """Begin to remember anew."""
        return self._replace(
            remembered=jnp.zeros_like(self.remembered),
            left=jnp.full_like(self.left, jnp.inf),
            settled=jnp.zeros_like(self.settled),
        )


class Store(NamedTuple):
    """All that is remembered."""

    progress: Progress
    records: Any
    """What is left of records, as the kind keeps it; nothing but ``remember`` changes it."""
    own: Any
    """What the kind of memory knows beside its records."""


class Kind(Protocol):
    """A kind of memory."""

    promise: ClassVar[Promise]
    """What ``converged`` means here."""

    def start(self, params: Params, record: Record) -> Store:
        """Nothing remembered yet; ``record`` gives the shapes."""
        ...

    def remember(self, store: Store, record: Record, keep: Bool[Array, ""]) -> Store:
        """Put a record where it belongs, and count it; without ``keep``, change nothing."""
        ...

    def due(self, progress: Progress) -> Bool[Array, ""]:
        """Whether it is time for a step."""
        ...

    def pass_ended(self, progress: Progress) -> Bool[Array, ""]:
        """Whether it is time to ask if the ELBO rose or fell."""
        ...

    def step(
        self, estimator: Estimator, params: Params, records: Any, progress: Progress, own: Any
    ) -> tuple[Progress, Any]:
        """Take a step from the memory: its target, and what was learned."""
        ...

    def learn(self, own: Any, precision: Float[Array, " dim"]) -> Any:
        """Take over what the approach knows of the precisions."""
        ...

    def forget(self, estimator: Estimator, own: Any, params: Params) -> Any:
        """Begin anew at these parameters."""
        ...

    def converged(self, progress: Progress, own: Any) -> Bool[Array, ""]:
        """Whether nothing is left to gain."""
        ...

    def doubts(self, own: Any) -> Doubts | None:
        """How wrong single entries may still be, where that is known."""
        ...


def algorithm(kind: Kind, estimator: Estimator) -> Algorithm:
    """The phases with this kind of memory."""

    def update_store(params: Params, memory: Memory, fresh: Boolean) -> Store:
        return _update(kind, estimator, params, memory, jnp.asarray(fresh))

    return Algorithm(
        init_store=kind.start,
        wants_record=lambda key, params, memory: True,
        update_store=update_store,
        gradient=lambda params, memory: jax.tree.map(jnp.subtract, memory.store.progress.target, params),
        health=lambda params, memory: estimator.health(params, memory.newest.alone()),
        converged=lambda memory: kind.converged(memory.store.progress, memory.store.own),
        promise=kind.promise,
        doubts=lambda memory: kind.doubts(memory.store.own),
        gave_up=lambda memory: memory.store.progress.reversals >= MOST_REVERSALS,
        ahead=lambda memory: _ahead(kind, memory.store.progress),
        oldest=lambda memory: memory.store.progress.remembered,
        recovers=True,
    )


def _ahead(kind: Kind, progress: Progress) -> Int[Array, ""]:
    """Records up to the next step, that one's included; in the approach every record is one."""
    remembered = progress.remembered + 1 + jnp.arange(MOST_AHEAD)
    due = jax.vmap(lambda later: kind.due(progress._replace(remembered=later)))(remembered)
    until = jnp.where(due.any(), jnp.argmax(due) + 1, MOST_AHEAD)
    return jnp.where(progress.approach.over, until, 1)


def _update(kind: Kind, estimator: Estimator, params: Params, memory: Memory, fresh: Bool[Array, ""]) -> Store:
    """After every record: a step of the approach, or, now and then, one from the memory."""
    record = memory.newest
    approaching = ~memory.store.progress.approach.over
    keep = fresh & ~approaching
    store: Store = kind.remember(memory.store, record, keep)
    progress = _watch(kind, estimator, params, record, store.progress, keep, fresh)._replace(target=params)
    # A record that was not finite is not fresh: retreat, in either phase.
    in_memory = jnp.where(progress.trust.broken | ~fresh, 3, jnp.where(keep & kind.due(progress), 2, 0))
    # The stored records are large and do not change here: they stay outside of the choice.
    progress, own = _where_needed(
        jnp.where(approaching, jnp.where(fresh, 1, 4), in_memory),
        [
            lambda progress, own: _approach_step(kind, estimator, params, record, progress, own),
            lambda progress, own: kind.step(estimator, params, store.records, progress, own),
            lambda progress, own: _go_back(kind, estimator, progress, own),
            lambda progress, own: (_retreat(estimator, params, progress), own),
        ],
        (progress, store.own),
    )
    return Store(progress, store.records, own)


def _where_needed(
    choice: Int[Array, ""], steps: Sequence[Callable[..., tuple[Progress, Any]]], carried: tuple[Progress, Any]
) -> tuple[Progress, Any]:
    """What is carried, after step number ``choice``, counted from 1; 0 is none. A loop of at most one turn, as a loop
    works in place: after most records nothing is to be done, and a conditional would copy all matrices to say so."""
    _, carried = jax.lax.while_loop(
        lambda carry: carry[0] > 0,
        lambda carry: (jnp.zeros_like(choice), jax.lax.switch(carry[0] - 1, steps, *carry[1])),
        (choice, carried),
    )
    return carried


def _watch(
    kind: Kind,
    estimator: Estimator,
    params: Params,
    record: Record,
    progress: Progress,
    keep: Bool[Array, ""],
    fresh: Bool[Array, ""],
) -> Progress:
    """Tell the trust region what the newest record says about the ELBO."""
    observed = progress.trust.observe(record.batch, _elbo(estimator, params, record), estimator.approximation.dim)
    observed = observed.judge(params, estimator.approximation.dim, kind.pass_ended(progress))
    calm = progress.trust._replace(broken=jnp.array(False))
    watched = jax.tree.map(lambda new, old: jnp.where(keep, new, old), observed, calm)
    return progress._replace(trust=watched._replace(radius=jnp.where(fresh, watched.radius, watched.radius / 4)))


def _elbo(estimator: Estimator, params: Params, record: Record) -> Float[Array, ""]:
    return record.log_joint.mean() + estimator.approximation.entropy(params).sum()


def _approach_step(
    kind: Kind, estimator: Estimator, params: Params, record: Record, progress: Progress, own: Any
) -> tuple[Progress, Any]:
    approximation = estimator.approximation
    location, scale = approximation.location(params), approximation.scale(params)
    state, location = approach(progress.approach, location, scale, record)
    target = approximation.match(location, state.precision)
    trust = progress.trust.approached(target, _elbo(estimator, params, record))
    moved = progress._replace(approach=state, target=target, trust=trust)
    return moved, kind.learn(own, state.precision)


def _retreat(estimator: Estimator, params: Params, progress: Progress) -> Progress:
    approximation = estimator.approximation
    state, location = retreat(progress.approach, approximation.location(params))
    return progress._replace(approach=state, target=approximation.match(location, state.precision))


def _go_back(kind: Kind, estimator: Estimator, progress: Progress, own: Any) -> tuple[Progress, Any]:
    """Return to the best parameters, and begin to remember anew."""
    best = progress.trust.best
    back = progress.anew()._replace(target=best, reversals=progress.reversals + 1)
    return back, kind.forget(estimator, own, best)
