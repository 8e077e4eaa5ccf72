"""A trust region that watches the ELBO.

Every record tells, for free, what the ELBO of its mini-batch is. Compared with the same mini-batch one pass earlier,
mini-batch noise cancels, so that a pass over the data shows whether the ELBO rose or fell, and with what standard
error. If it fell, the parameters go back to where they were best and steps become shorter; while it rises, they may
become longer again. A q that ran away gives ELBOs that are wild as well as low, so that no mean of them is surely low.
Where all data is one mini-batch, a few records in a row that are far below what was usual at the best parameters are
enough. Several differ from each other, and have to be below by a million times what it was: in a first pass nothing
else can be compared, and the squares of what an exponential then gives are infinite.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.families.base import Params

LONGEST_STEP = 3.0
"""Root mean square of a step, per dimension, in posterior standard deviations."""
SHORTEST_STEP = 0.01
SUDDEN_FALL = 10.0
"""A loss of this many nats per dimension calls the steps off before the pass ends ..."""
SLOW_FALL = 0.1
"""... and one of this many when it ends, ..."""
STANDARD_ERRORS = 3.0
"""... if it is this many standard errors from nothing."""
WILD = 1e6
"""With several mini-batches, a sudden fall is one by so many times the size that the ELBO has."""
CRASH = 3
"""Records in a row that have lost as much as in a sudden fall are a crash."""
MOSTLY, ENOUGH_RECORDS = 0.75, 10
"""So is a pass in which this share of at least so many records is below, by as much as in a slow fall. Where all stays
as it is, fewer than half of them are: draws are noisy."""
SMOOTHING = 0.3
"""The share of the newest record in what is usual: draws are noisy."""
ENOUGH_PAIRS = 2.0
"""Pairs per dimension from which on a precision may change by as much as it likes."""
LATELY = 25
"""Mini-batches whose gains show whether the ELBO still rises: a fifth of a pass, but no more than these."""


class RecentGains(NamedTuple):
    """Mean and variance of the mini-batches' gains lately."""

    number: Int[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    def add(self, gain: Float[Array, ""], known: Bool[Array, ""], num_batches: int) -> "RecentGains":
        number = self.number + 1
        rate = 1 / jnp.minimum(number, _horizon(num_batches)).astype(gain.dtype)
        difference = gain - self.mean
        variance = (1 - rate) * (self.variance + rate * difference**2)
        added = RecentGains(number, self.mean + rate * difference, variance)
        return jax.tree.map(lambda new, old: jnp.where(known, new, old), added, self)

    def surely(self, num_batches: int) -> Float[Array, ""]:
        """The mean less two standard errors."""
        # An average that forgets at a rate of 1 / n is as uncertain as one over 2 n.
        counted = jnp.minimum(self.number, 2 * _horizon(num_batches))
        error = jnp.sqrt(self.variance / jnp.maximum(counted - 1, 1))
        return jnp.where(self.number > 2, self.mean - 2 * error, jnp.inf)


def _horizon(num_batches: int) -> int:
    return max(5, min(num_batches // 5, LATELY))


class Trust(NamedTuple):
    """What is known about the last steps."""

    radius: Float[Array, ""]
    best: Params
    """The parameters at the end of the last pass that did not make things worse."""
    elbos: Float[Array, " batches"]
    """The ELBO of every mini-batch at its last visit; NaN if there was none."""
    usual: Float[Array, ""]
    """The ELBO of records lately: for where there is one mini-batch."""
    reference: Float[Array, ""]
    """What was usual at ``best``."""
    fallen: Int[Array, ""]
    """Records in a row that are far below it."""
    lower: Int[Array, ""]
    """Records since ``best`` that are below it."""
    compared: Int[Array, ""]
    """Records since ``best``, if there is a reference."""
    visits: Int[Array, ""]
    mean: Float[Array, ""]
    squares: Float[Array, ""]
    gains: "RecentGains"
    broken: Bool[Array, ""]
    """Whether the steps since ``best`` are to be called off."""

    @classmethod
    def start(cls, params: Params, num_batches: int, dtype: jnp.dtype) -> "Trust":
        zero = jnp.zeros((), dtype)
        unvisited = jnp.full(num_batches, jnp.nan, dtype)
        gains = RecentGains(jnp.int32(0), zero, zero)
        none = jnp.int32(0)
        return cls(
            radius=zero + LONGEST_STEP,
            best=params,
            elbos=unvisited,
            usual=zero + jnp.nan,
            reference=zero + jnp.nan,
            fallen=none,
            lower=none,
            compared=none,
            visits=none,
            mean=zero,
            squares=zero,
            gains=gains,
            broken=jnp.array(False),
        )

    @property
    def rising(self) -> Float[Array, ""]:
        """What the ELBO surely gained lately, from one visit of a mini-batch to the next, in nats."""
        return self.gains.surely(self.elbos.shape[0])

    def approached(self, params: Params, elbo: Float[Array, ""]) -> "Trust":
        """On the way to where memory begins, the newest parameters are the best."""
        usual = self._usually(elbo)
        return self._replace(best=params, usual=usual, reference=usual)

    def _usually(self, elbo: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.where(jnp.isfinite(self.usual), self.usual + SMOOTHING * (elbo - self.usual), elbo)

    def observe(self, batch: Int[Array, ""], elbo: Float[Array, ""], dim: int) -> "Trust":
        """Note the ELBO of a mini-batch under the present parameters."""
        gain = elbo - self.elbos[batch]
        known = jnp.isfinite(gain)
        visits = self.visits + known.astype(jnp.int32)
        difference = jnp.where(known, gain - self.mean, 0)
        mean = self.mean + difference / jnp.maximum(visits, 1)
        fall = (self.reference - elbo) / dim  # NaN, and so no fall, where nothing is known
        several = self.elbos.shape[0] > 1
        sudden = SUDDEN_FALL + (WILD * jnp.abs(self.reference) / dim if several else 0.0)
        return self._replace(
            elbos=self.elbos.at[batch].set(elbo),
            usual=self._usually(elbo),
            fallen=jnp.where(fall > sudden, self.fallen + 1, 0),
            lower=self.lower + (fall > SLOW_FALL),
            compared=self.compared + jnp.isfinite(fall),
            visits=visits,
            mean=mean,
            squares=self.squares + difference * jnp.where(known, gain - mean, 0),
            gains=self.gains.add(gain, known, self.elbos.shape[0]),
        )

    def judge(self, params: Params, dim: int, pass_ended: Bool[Array, ""]) -> "Trust":
        """At the end of a pass, or after a sudden fall: shorten or lengthen the steps."""
        error = jnp.sqrt(self.squares / jnp.maximum(self.visits - 1, 1) / jnp.maximum(self.visits, 1))
        fall = -self.mean / dim
        too_much = (fall > SUDDEN_FALL) | (pass_ended & (fall > SLOW_FALL))
        worse = too_much & (self.visits > 2) & (self.mean < -STANDARD_ERRORS * error)
        worse |= self.fallen >= CRASH
        if self.elbos.shape[0] == 1:
            mostly = (self.compared >= ENOUGH_RECORDS) & (self.lower > MOSTLY * self.compared)
            worse |= pass_ended & mostly
        better = pass_ended & ~worse
        radius = jnp.where(worse, self.radius / 4, jnp.where(better, self.radius * 2, self.radius))
        ended = worse | better
        return Trust(
            radius=jnp.clip(radius, SHORTEST_STEP, LONGEST_STEP),
            best=jax.tree.map(lambda new, old: jnp.where(better, new, old), params, self.best),
            # After going back, mini-batches are compared with what they are there.
            elbos=jnp.where(worse, jnp.nan, self.elbos),
            usual=jnp.where(worse, self.reference, self.usual),
            reference=jnp.where(better, self.usual, self.reference),
            fallen=jnp.where(ended, 0, self.fallen),
            lower=jnp.where(ended, 0, self.lower),
            compared=jnp.where(ended, 0, self.compared),
            visits=jnp.where(ended, 0, self.visits),
            mean=jnp.where(ended, 0, self.mean),
            squares=jnp.where(ended, 0, self.squares),
            gains=jax.tree.map(lambda old: jnp.where(worse, 0, old), self.gains),
            broken=worse,
        )

    def limit(self, largest_change: float, pairs_per_dimension: Float[Array, ""]) -> Float[Array, ""]:
        """By what factor a precision may change in a step: less than is usual while the region is small, or the pairs
        are too few to tell a direction that is flat from one that they missed."""
        return largest_change ** jnp.minimum(jnp.minimum(1, self.radius), pairs_per_dimension / ENOUGH_PAIRS)

    def shorten(self, step: Float[Array, " dim"], length: Float[Array, ""]) -> Float[Array, " dim"]:
        """The step, inside the region; ``length`` is its root mean square in standard deviations."""
        return step * jnp.minimum(1, self.radius / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
