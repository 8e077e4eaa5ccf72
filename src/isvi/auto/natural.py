"""Natural-gradient steps for posteriors that are far from quadratic: what :class:`isvi.Auto` hands over to.

Networks, factorisations, horseshoes: curvature changes on the way and is negative in places, so that no memory of old
gradients is of use. Each record moves q a little: its mean by the gradient over the precision, and its precision
towards the curvature along the mirrored pair, by a step that cannot make it negative (Lin, Schmidt and Khan 2020; IVON,
Shen et al. 2024, is this with single draws). Draws are signs: a q that has grown wide then looks for curvature one
standard deviation away, and finds some. Steps are in q's own standard deviations, so there is no unit to choose; they
become shorter along a cosine until the budget ends.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from isvi.algorithms.base import Algorithm, Boolean, Memory
from isvi.auto.approach import RECORDS_TO_LOOK, Approach, approach
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.memory.record import Record

RATE = 0.2
"""How much of a natural-gradient step is taken at first."""
MOMENTUM = 0.9
LONGEST = 1.0
"""No entry's mean moves by more than this many standard deviations with a record."""
LARGEST_CHANGE = 1.2
"""No precision changes by more than this factor with a record."""
WIDENING = 16.0
"""No precision falls by more than this factor from one safe place to the next."""
LEAST_RECORDS = 50
"""A safe place is noted after every pass, but not sooner than after so many records."""
CAREFUL = 1.5
"""After a record that was not finite, q goes half of the way back to the last safe place, and precisions are
multiplied by this."""


class Motion(NamedTuple):
    """What is kept between records."""

    records: Int[Array, ""]
    gradient: Float[Array, " dim"]
    """Averaged over the last few."""
    precision: Float[Array, " dim"]
    target: Params
    safe: tuple[Float[Array, " dim"], Float[Array, " dim"]]
    """Mean and precision at the last safe place."""
    look: Approach
    """The first records, which tell the scale."""


@dataclass(frozen=True)
class NaturalSteps:
    """Natural-gradient steps for independent Gaussians, a record each.

    Attributes:
        records: how many there will be.
    """

    records: int

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        approximation = estimator.approximation

        def init_store(params: Params, record: Record) -> Motion:
            scale = approximation.scale(params)
            look = Approach.start(scale.shape[0], scale.dtype)
            safe = (approximation.location(params), scale**-2.0)
            return Motion(jnp.int32(0), jnp.zeros_like(scale), scale**-2.0, params, safe, look)

        def update_store(params: Params, memory: Memory, fresh: Boolean) -> Motion:
            motion: Motion = memory.store
            moved = jax.lax.cond(
                motion.records < RECORDS_TO_LOOK,
                lambda: _looked(estimator, params, memory.newest, motion),
                lambda: self._moved(estimator, num_batches, params, memory.newest, motion),
            )
            careful = _careful(estimator, params, motion)
            return jax.tree.map(lambda one, other: jnp.where(fresh, one, other), moved, careful)

        return Algorithm(
            init_store=init_store,
            wants_record=lambda key, params, memory: True,
            update_store=update_store,
            gradient=lambda params, memory: jax.tree.map(jnp.subtract, memory.store.target, params),
            health=lambda params, memory: estimator.health(params, memory.newest.alone()),
            recovers=True,
        )

    def _moved(self, estimator: Estimator, num_batches: int, params: Params, record: Record, motion: Motion) -> Motion:
        approximation = estimator.approximation
        location = approximation.location(params)
        half = record.draws.shape[0] // 2
        draws = 0.5 * (record.draws[:half] - record.draws[half:])
        changes = 0.5 * (record.gradient[half:] - record.gradient[:half])
        slope = motion.precision * (draws * changes).mean(axis=0)

        steps = motion.records - RECORDS_TO_LOOK
        done = jnp.minimum(motion.records / self.records, 1)
        rate = RATE * 0.5 * (1 + jnp.cos(jnp.pi * done))
        # Precisions follow a pass, or as long as there has been anything to follow.
        follow = jnp.maximum(1 / num_batches, 1 / (steps + 2)).clip(0, 0.1)
        change = follow * (slope - motion.precision)
        precision = motion.precision + change + 0.5 * change**2 / motion.precision
        least = jnp.maximum(motion.precision / LARGEST_CHANGE, motion.safe[1] / WIDENING)
        precision = jnp.clip(precision, least, jnp.maximum(motion.precision * LARGEST_CHANGE, least))
        gradient = MOMENTUM * motion.gradient + (1 - MOMENTUM) * record.gradient.mean(axis=0)
        corrected = gradient / (1 - MOMENTUM ** (steps + 1.0))
        step = rate * corrected * precision**-0.5
        step = jnp.clip(step, -LONGEST, LONGEST) * precision**-0.5
        target = approximation.match(location + step, precision)
        noted = steps % max(num_batches, LEAST_RECORDS) == 0
        safe = jax.tree.map(lambda new, old: jnp.where(noted, new, old), (location, motion.precision), motion.safe)
        return Motion(motion.records + 1, gradient, precision, target, safe, motion.look)


def _looked(estimator: Estimator, params: Params, record: Record, motion: Motion) -> Motion:
    """Learn the scale of every entry, and stay."""
    approximation = estimator.approximation
    location, scale = approximation.location(params), approximation.scale(params)
    look, _ = approach(motion.look, location, scale, record)
    target = approximation.match(location, look.precision)
    return Motion(motion.records + 1, motion.gradient, look.precision, target, (location, look.precision), look)


def _careful(estimator: Estimator, params: Params, motion: Motion) -> Motion:
    """The model was not finite here."""
    approximation = estimator.approximation
    location = 0.5 * (approximation.location(params) + motion.safe[0])
    precision = CAREFUL * jnp.sqrt(motion.precision * jnp.maximum(motion.precision, motion.safe[1]))
    target = approximation.match(location, precision)
    return motion._replace(gradient=jnp.zeros_like(motion.gradient), precision=precision, target=target)
