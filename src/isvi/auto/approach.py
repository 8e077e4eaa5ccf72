"""Coming near the posterior from anywhere, whatever its scale: the first phase of :class:`isvi.Auto`.

Nothing is known at the start, not even the order of magnitude of each entry's posterior standard deviation. It
is guessed from the spread of a few mini-batches' gradients (the empirical Fisher information), which scales as it
should; from then on it follows the curvature along each record's mirrored pair. The mean moves by diagonal Newton
steps inside a radius, in standard deviations, that grows while an entry's gradients keep their sign and shrinks
when they flip. When the signs of successive mini-batches no longer agree, the mean is where mini-batch noise takes
over, and the memory of all mini-batches can.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.memory.record import Record

RECORDS_TO_LOOK = 4
"""Records made before the first step, to learn the scale."""
WIDENING = 10.0
"""While looking, no standard deviation grows by more than this factor from one record to the next."""
FIRST_REACH = 0.1
"""With one mini-batch, how far the first step may go in an entry, in its own unit, where that is more than an sd."""
LEAST_STEPS = 20
MOST_STEPS = 1000
AGREEMENT_OF_NOISE = 0.05
"""Mean agreement of successive gradients' signs (1: all keep, -1: all flip) at which the approach ends."""
STEPS_OF_ROUNDING = 8.0
"""No standard deviation is less than so many steps of a mean's floating-point numbers: both draws of a pair would be
one number."""
STILL_ON_THE_WAY = 10.0
"""Nor does it end while an entry goes so many standard deviations a record in one direction, on average: a noise scale
that is far below its outcome's takes longer than all coefficients."""
LARGEST_CHANGE = 3.0
"""A step changes no precision by more than this factor."""


class Approach(NamedTuple):
    """The state of the first phase."""

    records: Int[Array, ""]
    mean: Float[Array, " dim"]
    """Mean of the first records' gradients, and the sum of squares around it."""
    squares: Float[Array, " dim"]
    slope: Float[Array, " dim"]
    """Sum of the first records' curvatures, by magnitude."""
    precision: Float[Array, " dim"]
    radius: Float[Array, " dim"]
    last_step: Float[Array, " dim"]
    agreement: Float[Array, ""]
    travel: Float[Array, " dim"]
    """Mean of the last steps, in standard deviations."""
    upward: Int[Array, ""]
    """Records along whose pairs the log joint curves upwards: between modes it does, where it is concave it never
    does, whatever the mini-batch."""

    @classmethod
    def start(cls, dim: int, dtype: jnp.dtype) -> "Approach":
        zeros, ones = jnp.zeros(dim, dtype), jnp.ones(dim, dtype)
        return cls(jnp.int32(0), zeros, zeros, zeros, ones, ones, zeros, jnp.ones((), dtype), zeros, jnp.int32(0))

    @property
    def over(self) -> Bool[Array, ""]:
        steps = self.records - RECORDS_TO_LOOK
        settled = (steps > LEAST_STEPS) & (self.agreement < AGREEMENT_OF_NOISE)
        settled &= jnp.abs(self.travel).max() < STILL_ON_THE_WAY
        return settled | (steps >= MOST_STEPS)


def approach(
    state: Approach, location: Float[Array, " dim"], scale: Float[Array, " dim"], record: Record
) -> tuple[Approach, Array]:
    """Use one record of mirrored pairs, drawn with these standard deviations around this location: the new state,
    and where the mean goes."""
    gradient = record.gradient.mean(axis=0)
    slope = _slope(record, scale)
    looking = state.records < RECORDS_TO_LOOK
    looked, moved = _look(state, gradient, slope, scale, record.share), _move(state, gradient, slope)
    state = jax.tree.map(lambda one, other: jnp.where(looking, one, other), looked, moved)
    location = location + jnp.where(looking, 0, state.last_step)
    finest = STEPS_OF_ROUNDING * jnp.finfo(location.dtype).eps * jnp.abs(location)
    return state._replace(
        precision=jnp.minimum(state.precision, finest**-2.0),
        upward=state.upward + (jnp.sum(slope * scale**2) < 0),
    ), location


def retreat(state: Approach, location: Float[Array, " dim"]) -> tuple[Approach, Array]:
    """The model was not finite here: undo the last step, and be more careful."""
    careful = state._replace(
        precision=state.precision * LARGEST_CHANGE**2,
        radius=jnp.maximum(state.radius / 4, 0.05),
        last_step=jnp.zeros_like(state.last_step),
    )
    return careful, location - state.last_step


def _slope(record: Record, scale: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """Curvature along the pairs. Divided by the expected, not the actual, squared distance of a pair: an entry whose
    two draws happen to lie close together would otherwise have a wild slope."""
    half = record.draws.shape[0] // 2
    draws = record.draws[:half] - record.draws[half:]
    gradients = record.gradient[half:] - record.gradient[:half]
    return (draws * gradients).sum(axis=0) / (4 * half * scale**2)


def _look(state: Approach, gradient: Array, slope: Array, scale: Array, share: Array) -> Approach:
    """Gather the spread of gradients between mini-batches; at the end, guess the precisions from it."""
    records = state.records + 1
    mean = state.mean + (gradient - state.mean) / records
    squares = state.squares + (gradient - state.mean) * (gradient - mean)
    slope = state.slope + jnp.abs(slope)
    # With one mini-batch there is no spread, and the slopes are exact: where the gradient is larger than they are, a
    # step of half a unit instead.
    spread = jnp.where(share < 1, share * squares / jnp.maximum(records - 1, 1), jnp.abs(mean))
    precision = jnp.maximum(spread, slope / records)
    precision = jnp.maximum(precision, 1e-12 * precision.max())
    # A first record whose slope happens to be near zero must not send the next one to the end of the world.
    precision = jnp.maximum(precision, (WIDENING * scale) ** -2.0)
    radius = jnp.where(share < 1, 1, jnp.maximum(1, FIRST_REACH * precision**0.5))
    return state._replace(records=records, mean=mean, squares=squares, slope=slope, precision=precision, radius=radius)


def _move(state: Approach, gradient: Array, slope: Array) -> Approach:
    steps = state.records - RECORDS_TO_LOOK
    rate = jnp.maximum(0.1, (steps + 1.0) ** -0.7).astype(gradient.dtype)
    # The square keeps the precision positive whatever the slope.
    change = slope - state.precision
    precision = state.precision + rate * change + 0.5 * (rate * change) ** 2 / state.precision
    precision = jnp.clip(precision, state.precision / LARGEST_CHANGE, state.precision * LARGEST_CHANGE)

    kept = jnp.sign(gradient) * jnp.sign(state.last_step)
    newton = 0.5 * gradient / precision
    # It grows only where it binds: an entry that most mini-batches say nothing about (a rare category) keeps its sign
    # because of its prior, and must not be thrown far away by the one mini-batch that does.
    grows = (kept > 0) & (jnp.abs(newton) > state.radius * precision**-0.5)
    radius = jnp.clip(state.radius * jnp.where(grows, 1.5, jnp.where(kept < 0, 0.5, 1.0)), 0.05, 1e6)
    reach = radius * precision**-0.5
    agreement = jnp.where(steps > 0, 0.9 * state.agreement + 0.1 * jnp.mean(kept), state.agreement)
    step = jnp.clip(newton, -reach, reach)
    return state._replace(
        records=state.records + 1,
        precision=precision,
        radius=radius,
        last_step=step,
        agreement=agreement,
        travel=0.9 * state.travel + 0.1 * step * precision**0.5,
    )
