"""The order in which mini-batches are visited: a random permutation, the same in every epoch.

So the mini-batch that is visited next is always the one whose stored gradient is the oldest. Where the data do not fit
in memory, mini-batches come in windows that are in memory together, and the order is a permutation of the windows,
and of the mini-batches within each.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray


class Windows(NamedTuple):
    """How the mini-batches of a data set larger than memory are cut into windows."""

    length: int
    """Mini-batches in a window; mini-batch b is in window b // length."""
    has_rest: bool
    """Whether the last mini-batch is a shorter one, which belongs to no window: it is always in memory."""
    in_order: bool
    """Whether windows can only be read from the first to the last, as from a loader."""


class Schedule(NamedTuple):
    """A pass over the mini-batches, and how far it has come."""

    order: Int[Array, " batches"]
    visited: Int[Array, ""]
    """Number of mini-batches visited since the beginning, over all epochs."""

    @classmethod
    def start(cls, key: PRNGKeyArray, num_batches: int, windows: Windows | None = None) -> "Schedule":
        return cls(order_of_visits(key, num_batches, windows), jnp.int32(0))

    @property
    def next_index(self) -> Int[Array, ""]:
        return self.order[self.visited % self.order.shape[0]]

    def advance(self, used: Bool[Array, ""]) -> "Schedule":
        """Move on if the mini-batch was used."""
        return self._replace(visited=self.visited + used.astype(jnp.int32))


def order_of_visits(key: PRNGKeyArray, num_batches: int, windows: Windows | None = None) -> Int[Array, " batches"]:
    """A function of the key only, so that a resumed run sees the same order."""
    if windows is None:
        return jax.random.permutation(key, num_batches)
    batch_key, window_key, rest_key = jax.random.split(key, 3)
    num_full = num_batches - windows.has_rest
    num_windows = -(-num_full // windows.length)
    # The shorter mini-batch is visited along with a window drawn at random.
    rest_window = jax.random.randint(rest_key, (), 0, num_windows)
    batches = jnp.arange(num_batches)
    window = jnp.where(batches < num_full, batches // windows.length, rest_window)
    turn = jnp.arange(num_windows) if windows.in_order else jax.random.permutation(window_key, num_windows)
    return jnp.lexsort((jax.random.permutation(batch_key, num_batches), turn[window]))
