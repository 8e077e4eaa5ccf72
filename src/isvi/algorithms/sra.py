"""Stochastic running average: past gradients, decayed by alpha at every step."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isvi.algorithms.base import Algorithm, Boolean, Memory, on_newest
from isvi.algorithms.isgd import ISGD
from isvi.algorithms.start import after_one_pass
from isvi.core.errors import ConfigurationError, require
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.memory.record import Record


class RunningSum(NamedTuple):
    gradient: Any
    weight: Float[Array, ""]


@dataclass(frozen=True)
class SRA:
    """An exponentially decaying average of the variational gradients, as they were: a baseline.

    Attributes:
        alpha: decay per step; gradient number i back in time counts alpha^i.
        start: what the first pass over the data is made with.
    """

    alpha: float = 0.9
    start: ISGD = ISGD()

    def __post_init__(self) -> None:
        require(
            isinstance(self.alpha, (int, float)) and 0 <= self.alpha < 1,
            ConfigurationError,
            f"alpha is a decay per step and must be in [0, 1); got {self.alpha!r}.",
        )

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        def init_store(params: Params, record: Record) -> RunningSum:
            return RunningSum(jax.tree.map(jnp.zeros_like, params), jnp.zeros((), record.share.dtype))

        def update_store(params: Params, memory: Memory, fresh: Boolean) -> RunningSum:
            store = memory.store
            new = RunningSum(estimator.gradient(params, memory.newest.alone()), jnp.ones_like(store.weight))
            return jax.tree.map(lambda old, one: jnp.where(fresh, self.alpha * old + one, old), store, new)

        def gradient(params: Params, memory: Memory) -> Params:
            return jax.tree.map(lambda total: total / memory.store.weight, memory.store.gradient)

        sgd = on_newest(estimator, wants_record=lambda key, params, memory: True)
        sra = sgd._replace(init_store=init_store, update_store=update_store, gradient=gradient)
        return after_one_pass(self.start.bind(estimator, num_batches), then=sra, num_batches=num_batches)
