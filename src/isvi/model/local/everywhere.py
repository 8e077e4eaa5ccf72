"""Integrals over a group's latents wherever their mass is: at several modes, in heavy tails, far from the start.

Nodes around one mode see what is near it. Here points are drawn from a mixture of Gaussians, narrow and wide ones: at
each mode that Newton's method finds, from near 0 and from places that the prior allows, over the prior itself, and over
the likelihood. Each point is weighed by the whole mixture, so that no weight is large unless the mass is where none of
the Gaussians is.
It is rougher than quadrature, by some percent in a group. But these errors are random and average out over groups,
while what nodes around one mode do not see is missing in all of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from isvi.model.local.newton import LogDensities, Modes, find_modes
from isvi.model.local.nodes import MOST_AXES, SCALES, normal_points
from isvi.model.local.small import log_determinant, solve_upper, times_upper

START = 0.01
"""Where Newton's method starts: near 0, not there, where a density that has two signs of a latent alike is level."""
REACH = 2.0
"""Of the prior's sds: how far from its mode Newton's method starts."""


class Points(NamedTuple):
    """Where to evaluate, and the log of how likely the mixture is there."""

    at: Float[Array, "points groups size"]
    log_density: Float[Array, "points groups"]


def components(
    log_joint: LogDensities, log_prior: LogDensities, shape: tuple[int, int], dtype: np.dtype
) -> tuple[Modes, Modes]:
    """The Gaussians, along a new first axis: around the mode that is reached first, around those reached from
    elsewhere, the likelihood's, and the prior's. One that was not found is the prior's again; that of a prior without a
    mode, a standard one. And the first as it was found or not."""
    groups, size = shape
    prior = find_modes(log_prior, jnp.zeros((1, size), dtype))
    standard = Modes(jnp.zeros((1, size), dtype), jnp.eye(size, dtype=dtype)[None], jnp.ones(1, bool))
    prior = _or_else(prior, standard)
    axes = np.eye(size)[:MOST_AXES]
    steps = REACH * jnp.asarray(np.concatenate([axes, -axes]), dtype)
    elsewhere = prior.location + solve_upper(jnp.broadcast_to(prior.precision, (len(steps), size, size)), steps)
    near = jnp.full((1, size), START, dtype)
    starts = jnp.concatenate([near, elsewhere, near])
    starts = jnp.broadcast_to(starts[:, None], (len(starts), groups, size))
    # The last search is of the likelihood alone: what the rows say, if the prior is narrow with long tails.
    without = jnp.zeros(len(starts), dtype).at[-1].set(1.0)
    found = jax.vmap(lambda start, share: find_modes(lambda at: log_joint(at) - share * log_prior(at), start))(
        starts, without
    )
    of_prior: Modes = jax.tree.map(lambda a: jnp.broadcast_to(a, (1, groups, *a.shape[1:])), prior)
    gaussians = jax.tree.map(lambda some, last: jnp.concatenate([some, last]), _or_else(found, of_prior), of_prior)
    return gaussians, jax.tree.map(lambda a: a[0], found)


def _or_else(modes: Modes, others: Modes) -> Modes:
    def chosen(one: Array, other: Array) -> Array:
        found = modes.found.reshape(*modes.found.shape, *(1,) * (one.ndim - modes.found.ndim))
        return jnp.where(found, one, other)

    return Modes(chosen(modes.location, others.location), chosen(modes.precision, others.precision), modes.found)


def points_of(gaussians: Modes, numbers: Int[Array, " groups"], count: int) -> Points:
    """``count`` points of each Gaussian at each scale, for every group others."""
    size, dtype = gaussians.location.shape[-1], gaussians.location.dtype
    kinds = len(gaussians.location) * len(SCALES)

    def drawn(kind: Array, location: Array, precision: Array, scale: Array) -> Array:
        standard = normal_points(numbers * kinds + kind, count, size, dtype)
        return location + scale * jax.vmap(lambda one: solve_upper(precision, one))(standard)

    scales = jnp.tile(jnp.asarray(SCALES, dtype), len(gaussians.location))
    location, precision = (jnp.repeat(a, len(SCALES), axis=0) for a in gaussians[:2])
    at = jax.vmap(drawn)(jnp.arange(kinds, dtype=jnp.int32), location, precision, scales)
    at = at.reshape(-1, *at.shape[2:])

    def log_density(location: Array, precision: Array, scale: Array) -> Array:
        whitened = jax.vmap(lambda one: times_upper(precision, one - location))(at) / scale
        exponent = -0.5 * jnp.sum(whitened**2, axis=-1) - size * (jnp.log(scale) + 0.5 * np.log(2 * np.pi))
        return exponent + log_determinant(precision)

    densities = jax.lax.map(lambda one: log_density(*one), (location, precision, scales))
    return Points(at, logsumexp(densities, axis=0) - np.log(kinds))
