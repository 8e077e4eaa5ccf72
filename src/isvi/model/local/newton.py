"""The mode of every group's latents, and the curvature there: damped Newton steps for all groups at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isvi.model.local.small import Cholesky, cholesky, solve_lower, solve_upper

Points = Float[Array, "groups size"]
LogDensities = Callable[[Points], Float[Array, " groups"]]
"""The log density of each group at its own point."""

MOST_STEPS = 50
"""A logistic or Poisson group needs four to eight, and a quarter of a step is tried where a whole one is too much."""
NEAR = 1e-2
"""The square of the length of a Newton step, in sds, after which no other is taken: a tenth of an sd before the step,
and about a hundredth after it. The nodes around the mode make up for what is left."""
SHRINKAGE = 0.25
ROUNDING = 16
"""Units of the last place by which a log density may fall and still be said not to have."""


class Modes(NamedTuple):
    """A Gaussian for every group: around its mode, with the curvature there.

    Attributes:
        location: the modes.
        precision: the Cholesky factor of minus the Hessian.
        found: whether the steps came to rest where the log density curves downwards.
    """

    location: Points
    precision: Float[Array, "groups size size"]
    found: Bool[Array, " groups"]


class _Search(NamedTuple):
    """Where each group's search stands: the best point so far, and the step from there that is tried next."""

    point: Points
    value: Float[Array, " groups"]
    step: Points
    length: Float[Array, " groups"]
    """How much of the step."""
    decrement: Float[Array, " groups"]
    """The square of the whole step's length, in sds."""
    curvature: Cholesky
    steps: Array

    @property
    def resting(self) -> Bool[Array, " groups"]:
        return (self.decrement < NEAR) & (self.length == 1)


def find_modes(log_densities: LogDensities, start: Points) -> Modes:
    """Newton's method from ``start``. Where the log density does not curve downwards the step is along an ascent
    direction, and a step after which it is lower (or not a number) is taken back and shortened."""

    def at(points: Points) -> _Search:
        value, gradient, hessian = _derivatives(log_densities, points)
        curvature = cholesky(-hessian)
        whitened = solve_lower(curvature.lower, gradient)
        # Where it curves upwards a small slope does not mean that a mode is near: the step is one of the sds there.
        size = jnp.sqrt(jnp.sum(whitened**2, axis=-1))
        stretch = jnp.where(curvature.definite | (size >= 1), 1.0, 1 / jnp.maximum(size, jnp.finfo(size.dtype).tiny))
        whitened = whitened * stretch[:, None]
        step = solve_upper(curvature.lower, whitened)
        decrement = jnp.sum(whitened**2, axis=-1)
        return _Search(points, value, step, jnp.ones_like(value), decrement, curvature, jnp.int32(0))

    def forward(search: _Search) -> _Search:
        reached = at(search.point + search.length[:, None] * search.step)
        slack = ROUNDING * jnp.finfo(search.value.dtype).eps * (1 + jnp.abs(search.value))
        better = (reached.value >= search.value - slack) & jnp.isfinite(reached.decrement) & ~search.resting
        shorter = search._replace(length=jnp.where(search.resting, search.length, SHRINKAGE * search.length))
        chosen = jax.tree.map(lambda new, old: _where(better, new, old), reached, shorter)
        return chosen._replace(steps=search.steps + 1)

    def unfinished(search: _Search) -> Bool[Array, ""]:
        return (search.steps < MOST_STEPS) & ~jnp.all(search.resting)

    end = jax.lax.while_loop(unfinished, forward, at(start))
    last = jnp.where(end.resting[:, None], end.step, 0.0)
    found = end.resting & end.curvature.definite & jnp.isfinite(end.value)
    return Modes(end.point + last, end.curvature.lower, found)


def _derivatives(log_densities: LogDensities, points: Points) -> tuple[Array, Array, Array]:
    """Values, gradients and Hessians of all groups. As no group's density depends on another's point, the gradient of
    their sum holds all gradients, and its derivative along an axis, in all groups at once, a column of each Hessian."""

    def gradients(at: Points) -> tuple[Array, Array]:
        def total(at: Points) -> tuple[Array, Array]:
            values = log_densities(at)
            return values.sum(), values

        return jax.grad(total, has_aux=True)(at)

    (gradient, value), along = jax.linearize(gradients, points)
    axes = jnp.eye(points.shape[-1], dtype=points.dtype)
    columns = [along(jnp.broadcast_to(axis, points.shape))[0] for axis in axes]
    return value, gradient, jnp.stack(columns, axis=-1)


def _where(mask: Array, new: Array, old: Array) -> Array:
    """``jnp.where`` with the mask along the first axis; a number that is not a group's stays the new one."""
    if new.ndim == 0:
        return new
    return jnp.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)
