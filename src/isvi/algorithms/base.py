"""What an algorithm is: answers to *when do I make a record* and *which records do I sum*."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from isvi.estimators.base import Estimator
from isvi.estimators.weights import WeightHealth
from isvi.families.base import Params
from isvi.memory.record import Record

Boolean = Bool[Array, ""] | bool
"""A truth value that may be traced; a Python ``True`` lets a choice be compiled away."""


Promise = Literal["converged", "settled"]
"""What the end of a fit means: every entry is as it should be, or only their average is known to be."""


ANY_AGE = 2**30
"""Older than any record."""


class Memory(NamedTuple):
    """What is remembered between steps."""

    newest: Record
    reuses: Int[Array, ""]
    """Steps taken with the newest record since the one that made it."""
    store: Any
    """Whatever else the algorithm keeps; nothing for SGD and I-SGD."""


class Doubts(NamedTuple):
    """What an algorithm knows of how wrong the approximation may still be, entry by entry."""

    means: Float[Array, " dim"]
    """Predicted errors of the means, in standard deviations."""
    sds: Float[Array, " dim"]
    """Standard errors of the logarithms of the standard deviations; infinite while they are not known."""


class Algorithm(NamedTuple):
    """An algorithm bound to an estimator: pure functions of parameters and memory.

    Attributes:
        init_store: ``init_store(params, record) -> store``, empty; ``record`` gives the shapes.
        wants_record: ``wants_record(key, params, memory) -> bool``: evaluate the model now?
        update_store: ``update_store(params, memory, fresh) -> store``, after ``memory.newest`` was set;
            ``fresh`` tells whether it was made in this step.
        gradient: ``gradient(params, memory) -> gradient of the ELBO``.
        health: ``health(params, memory) -> WeightHealth`` of the records in the sum.
        converged: ``converged(memory) -> bool``: is there nothing left to gain? Most algorithms cannot tell.
        promise: what ``converged`` means.
        doubts: ``doubts(memory) -> Doubts``, or None where nothing is known.
        gave_up: ``gave_up(memory) -> bool``: is this algorithm the wrong one here?
        ahead: ``ahead(memory) -> int``: for how many records from now on the parameters stay where they are, as far as
            can be told. So many can be made at once, by workers; none is used if they moved after all.
        oldest: ``oldest(memory) -> int``: a record that was made so many records ago, at the parameters of then, is
            still of use. Weights, or the curvature, carry it to today's; but not over a beginning anew.
        recovers: whether ``update_store`` answers a record that is not finite with a step to safety. Otherwise no
            step is taken.
    """

    init_store: Callable[[Params, Record], Any]
    wants_record: Callable[[PRNGKeyArray, Params, Memory], Boolean]
    update_store: Callable[[Params, Memory, Boolean], Any]
    gradient: Callable[[Params, Memory], Params]
    health: Callable[[Params, Memory], WeightHealth]
    converged: Callable[[Memory], Boolean] = lambda memory: False
    promise: Promise = "converged"
    doubts: Callable[[Memory], Doubts | None] = lambda memory: None
    gave_up: Callable[[Memory], Boolean] = lambda memory: False
    ahead: Callable[[Memory], Int[Array, ""] | int] = lambda memory: 1
    oldest: Callable[[Memory], Int[Array, ""] | int] = lambda memory: ANY_AGE
    recovers: bool = False


class AlgorithmOptions(Protocol):
    """What the user names: ``SGD()``, ``ISGD(t=0.9)``..."""

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        """The algorithm for this estimator and this number of mini-batches."""
        ...


def on_newest(estimator: Estimator, wants_record: Callable[[PRNGKeyArray, Params, Memory], Boolean]) -> Algorithm:
    """An algorithm whose gradient is that of the newest record alone, reweighted to today's parameters."""
    return Algorithm(
        init_store=lambda params, record: (),
        wants_record=wants_record,
        update_store=lambda params, memory, fresh: memory.store,
        gradient=lambda params, memory: estimator.gradient(params, memory.newest.alone()),
        health=lambda params, memory: estimator.health(params, memory.newest.alone()),
    )
