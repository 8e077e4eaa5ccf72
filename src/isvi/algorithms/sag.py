"""Stochastic average gradients: the stored variational gradients of all mini-batches, as they were."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isvi.algorithms.base import Algorithm, Boolean, Memory, on_newest
from isvi.algorithms.isgd import ISGD
from isvi.algorithms.start import after_one_pass
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import put_slot


class GradientStore(NamedTuple):
    gradients: Any
    """The gradient in the variational parameters, as it was, one slot per mini-batch."""
    share: Float[Array, " batches"]


@dataclass(frozen=True)
class SAG:
    """Sums gradients computed at old parameters without correcting them: a baseline (Schmidt et al. 2017).

    Attributes:
        start: what the first pass over the data is made with.
    """

    start: ISGD = ISGD()

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        def init_store(params: Params, record: Record) -> GradientStore:
            slots = jax.tree.map(lambda leaf: jnp.zeros((num_batches, *leaf.shape), leaf.dtype), params)
            return GradientStore(slots, jnp.zeros(num_batches, record.share.dtype))

        def update_store(params: Params, memory: Memory, fresh: Boolean) -> GradientStore:
            store, slot = memory.store, memory.newest.batch
            new = estimator.gradient(params, memory.newest.alone())
            # A reuse step leaves the slot as it was.
            kept = jax.tree.map(lambda slots, leaf: jnp.where(fresh, leaf, slots[slot]), store.gradients, new)
            return GradientStore(put_slot(store.gradients, kept, slot), store.share.at[slot].set(memory.newest.share))

        def gradient(params: Params, memory: Memory) -> Params:
            share = memory.store.share / memory.store.share.sum()
            return jax.tree.map(lambda slots: jnp.tensordot(share, slots, axes=1), memory.store.gradients)

        sgd = on_newest(estimator, wants_record=lambda key, params, memory: True)
        sag = sgd._replace(init_store=init_store, update_store=update_store, gradient=gradient)
        return after_one_pass(self.start.bind(estimator, num_batches), then=sag, num_batches=num_batches)
