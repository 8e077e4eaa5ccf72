"""The order in which mini-batches are visited: every epoch a new random permutation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray


class Schedule(NamedTuple):
    """A pass over the mini-batches, and how far it has come."""

    order: Int[Array, " batches"]
    visited: Int[Array, ""]
    """Number of mini-batches visited since the beginning, over all epochs."""

    @classmethod
    def start(cls, key: PRNGKeyArray, num_batches: int) -> "Schedule":
        return cls(_epoch_order(key, jnp.int32(0), num_batches), jnp.int32(0))

    @property
    def next_index(self) -> Int[Array, ""]:
        return self.order[self.visited % self.order.shape[0]]

    def advance(self, key: PRNGKeyArray, used: Bool[Array, ""]) -> "Schedule":
        """Move on if the mini-batch was used; draw a new order when an epoch ends."""
        num_batches = self.order.shape[0]
        visited = self.visited + used.astype(jnp.int32)
        epoch_ended = used & (visited % num_batches == 0)
        order = jax.lax.cond(
            epoch_ended,
            lambda: _epoch_order(key, visited // num_batches, num_batches),
            lambda: self.order,
        )
        return Schedule(order, visited)


def _epoch_order(key: PRNGKeyArray, epoch: Array, num_batches: int) -> Int[Array, " batches"]:
    # A function of (key, epoch) only: a resumed run sees the same orders.
    return jax.random.permutation(jax.random.fold_in(key, epoch), num_batches)
