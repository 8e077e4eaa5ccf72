"""What the prior says, which costs no gradient of the model: so it is never taken for a parabola.

The likelihood of much data is one, a few standard deviations around. Along a direction in which it is flat, q is as
wide as the prior lets it be, and the prior of effects u ~ N(0, s) is nothing like a parabola in (log s, u): it even
curves upwards where the effects are far from 0. A Newton step from there goes astray. So the records tell about the
likelihood alone, and where q is best, given that and the prior as it is, is sought in turns that each must gain.

Everything is in coordinates eps of a Gaussian, z = location + L eps.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

LogPrior = Callable[[Float[Array, " dim"]], Float[Array, ""]]

MOST_PAIRS, LEAST_PAIRS, NUMBERS = 16, 2, 2000
"""Mirrored draws over which everything here is averaged: as many as make up so many numbers."""
MOST_TURNS = 10
LEAST_GAIN = 0.01
"""In nats: when a turn gains less it is the last one."""
HALVINGS = 8
"""How often a turn is shortened that does not gain; then it is not taken."""


class Gaussian(NamedTuple):
    """N(location, L L')."""

    location: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]


def curvature(log_prior: LogPrior, q: Gaussian) -> Float[Array, "dim dim"]:
    """L' H L, with H the prior's negative Hessian, averaged over a few draws of q."""
    hessians = jax.lax.map(jax.hessian(log_prior), q.location + _noise(q) @ q.factor.T)
    return -q.factor.T @ hessians.mean(axis=0) @ q.factor


def downward(known: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """The part of a curvature that curves downwards."""
    values, vectors = jnp.linalg.eigh(known)
    return (vectors * jnp.maximum(values, 0)) @ vectors.T


def _noise(q: Gaussian) -> Float[Array, "draws dim"]:
    """Mirrored signs, the same whenever they are asked for."""
    dim = q.location.shape[0]
    pairs = max(LEAST_PAIRS, min(MOST_PAIRS, NUMBERS // dim))
    signs = jax.random.rademacher(jax.random.key(0), (pairs, dim), q.location.dtype)
    return jnp.concatenate([signs, -signs])


class _Turn(NamedTuple):
    precision: Float[Array, "dim dim"]
    root: Float[Array, "dim dim"]
    value: Float[Array, ""]
    gain: Float[Array, ""]
    number: Int[Array, ""]
    known: Float[Array, "dim dim"]
    """The prior's curvature when the turn began."""


def best_root(
    log_prior: LogPrior, q: Gaussian, likelihood: Float[Array, "dim dim"], before: Float[Array, "dim dim"]
) -> tuple[Float[Array, "dim dim"], Float[Array, "dim dim"]]:
    """R, lower triangular, with R R' the precision that the best Gaussian around this location has, where the
    likelihood has this curvature; and the prior's curvature there. Everything is in the coordinates of q. The search
    begins there, or, if that was better, from a q of ``before``, an R like the one to be found."""
    noise, eye = _noise(q), jnp.eye(len(likelihood), dtype=likelihood.dtype)

    def elbo(root: Float[Array, "dim dim"]) -> Float[Array, ""]:
        inverse = solve_triangular(root, eye, lower=True)
        prior = jax.vmap(log_prior)(q.location + noise @ inverse @ q.factor.T).mean()
        return prior - 0.5 * jnp.sum((inverse @ likelihood) * inverse) - jnp.log(jnp.diagonal(root)).sum()

    def curved(root: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
        points = q.location + noise @ solve_triangular(root, eye, lower=True) @ q.factor.T
        return -q.factor.T @ jax.lax.map(jax.hessian(log_prior), points).mean(axis=0) @ q.factor

    def turn(last: _Turn) -> _Turn:
        wanted = likelihood + curved(last.root)

        def shorter(part: Float[Array, ""]) -> _Turn:
            precision = last.precision + part * (wanted - last.precision)
            root = jnp.linalg.cholesky(precision)
            value = elbo(root)
            return _Turn(precision, root, value, value - last.value, last.number + 1, wanted - likelihood)

        def fails(found: tuple[Float[Array, ""], _Turn]) -> Bool[Array, ""]:
            return ~(found[1].gain > -LEAST_GAIN) & (found[0] > 0.5**HALVINGS)

        nothing = last._replace(gain=jnp.full_like(last.gain, -jnp.inf))
        start = jnp.full_like(last.gain, 2), nothing
        _, found = jax.lax.while_loop(fails, lambda found: (found[0] / 2, shorter(found[0] / 2)), start)
        none = last._replace(gain=jnp.zeros_like(last.gain), known=wanted - likelihood)
        return jax.tree.map(lambda new, old: jnp.where(found.gain > -LEAST_GAIN, new, old), found, none)

    values = jax.lax.map(elbo, jnp.stack([eye, before]))
    best = jnp.where(values[0] > values[1] - LEAST_GAIN, 0, 1)
    root = jnp.where(best == 0, eye, before)
    start = _Turn(root @ root.T, root, values[best], jnp.full_like(values[0], jnp.inf), jnp.int32(0), likelihood)
    last = jax.lax.while_loop(lambda last: (last.gain > LEAST_GAIN) & (last.number < MOST_TURNS), turn, start)
    return last.root, last.known


class Likelihood(NamedTuple):
    """The parabola that the records show, and its top's uncertainty in the steps that are taken towards it."""

    slope: Float[Array, " dim"]
    """Of the log joint, ..."""
    point: Float[Array, " dim"]
    """... at this point; both in coordinates eps."""
    curvature: Float[Array, "dim dim"]
    """Without the prior's."""


def best_step(
    log_prior: LogPrior,
    q: Gaussian,
    likelihood: Likelihood,
    newton: Callable[[Float[Array, " dim"]], Float[Array, " dim"]],
    shorten: Callable[[Float[Array, " dim"]], Float[Array, " dim"]],
) -> Float[Array, " dim"]:
    """Where the mean of q goes, in coordinates eps. ``newton`` makes a step of a gradient, and ``shorten`` keeps it
    where the likelihood is trusted. Of the prior only changes count, from the point to where the mean goes: its slope
    at the point is in the log joint's."""
    noise = _noise(q) @ q.factor.T
    parts = 0.5 ** jnp.arange(HALVINGS + 1, dtype=q.location.dtype)

    def prior(step: Float[Array, " dim"]) -> Float[Array, ""]:
        return jax.vmap(log_prior)(q.location + q.factor @ step + noise).mean()

    slope = likelihood.slope - jax.grad(prior)(likelihood.point)

    def value(step: Float[Array, " dim"]) -> Float[Array, ""]:
        away = step - likelihood.point
        return slope @ step - 0.5 * away @ (likelihood.curvature @ away) + prior(step)

    def turn(last: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        step, before, _, number = last
        direction = newton(jax.grad(value)(step))
        steps = jax.vmap(lambda part: shorten(step + part * direction))(parts)
        gains = jax.lax.map(value, steps) - before
        gains = jnp.where(jnp.isfinite(gains), gains, -jnp.inf)
        # The longest of those that gain as much: differences below that may be rounding.
        best = jnp.argmax(gains > gains.max() - LEAST_GAIN / 10)
        gained = gains[best] > -LEAST_GAIN
        return (
            jnp.where(gained, steps[best], step),
            jnp.where(gained, before + gains[best], before),
            jnp.where(gained, gains[best], 0),
            number + 1,
        )

    nowhere = jnp.zeros_like(q.location)
    start = (nowhere, value(nowhere), jnp.full((), jnp.inf, nowhere.dtype), jnp.int32(0))
    return jax.lax.while_loop(lambda last: (last[2] > LEAST_GAIN) & (last[3] < MOST_TURNS), turn, start)[0]
