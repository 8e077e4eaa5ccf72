"""What is known of the ELBO of all rows, from what every mini-batch said last.

Mini-batches differ by thousands of nats where a fit gains ten, so the mean over those that were visited lately says
little. The mean over *all* of them, each by its newest estimate, has no such noise, but comes late by up to a pass. In
hindsight it need not: what a mini-batch differs from the mean by can be taken off whatever it said earlier.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Newest(NamedTuple):
    """The ELBO of every mini-batch: over the row of the history in which it was last visited, and one visit before."""

    elbos: Float[Array, " batches"]
    """NaN where there was no visit."""
    before: Float[Array, " batches"]
    visits: Int[Array, " batches"]
    """In this row of the history; ``elbos`` are means over as many."""

    @classmethod
    def none(cls, num_batches: int) -> "Newest":
        unknown = jnp.full(num_batches, jnp.nan, jnp.result_type(float))
        return cls(unknown, unknown, jnp.zeros(num_batches, jnp.int32))

    def add(self, batch: Int[Array, ""], elbo: Float[Array, ""], counts: Bool[Array, ""]) -> "Newest":
        """Note an estimate, if it counts. Writes to one place of each array, so a loop over many works in place."""
        known, visits = self.elbos[batch], self.visits[batch]
        mean = jnp.where(visits == 0, elbo, known + (elbo - known) / (visits + 1))
        before = jnp.where(visits == 0, known, self.before[batch])
        return Newest(
            self.elbos.at[batch].set(jnp.where(counts, mean, known)),
            self.before.at[batch].set(jnp.where(counts, before, self.before[batch])),
            self.visits.at[batch].set(visits + counts),
        )

    def overall(self) -> tuple[float, float] | None:
        """On the host: the ELBO of all rows and its standard error; None while some mini-batch was visited less than
        twice, or if there is only one.

        From one visit to the next an estimate changes by twice the variance of its noise, and by what the fit gained:
        the spread of these changes bounds the noise.
        """
        elbos, before = np.asarray(self.elbos, np.float64), np.asarray(self.before, np.float64)
        if len(elbos) < 2 or not (np.isfinite(elbos).all() and np.isfinite(before).all()):
            return None
        noise = (elbos - before).std(ddof=1) / np.sqrt(2)
        return float(elbos.mean()), float(noise / np.sqrt(len(elbos)))

    def level(self, elbos: Sequence[float], ends: Sequence[int], order: Int[np.ndarray, " batches"]) -> list[float]:
        """On the host: means over the mini-batches visited in each row of the history, with what these differ from the
        mean of all by taken off; nothing before every one was visited.

        Of the last pass only the mean is known, so it comes out as one number.

        Args:
            elbos: the means.
            ends: mini-batches visited up to the end of each row.
            order: in which they are visited, pass after pass.
        """
        newest, visited = np.asarray(self.elbos, np.float64)[order], np.asarray(ends, int)
        if len(ends) == 0 or visited[-1] < len(newest):
            return []
        known = np.isfinite(newest)  # the model may never have been finite on some
        effects = np.where(known, newest - newest[known].mean(), 0.0) if known.any() else np.zeros_like(newest)
        sums = np.concatenate([[0.0], np.cumsum(effects)])[visited % len(newest)]
        rows = np.diff(visited, prepend=0)
        return (np.asarray(elbos, float) - np.diff(sums, prepend=0.0) / np.maximum(rows, 1)).tolist()
