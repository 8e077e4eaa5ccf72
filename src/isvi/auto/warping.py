"""A warp for a Gaussian that has settled, from the records that it was fitted to.

Everything that the model said near the posterior is still in memory, and nothing in it depends on what q was: weighted
to a bent q, the same records give the gradient of its ELBO. Sticking-the-landing gradients have no noise where q equals
the posterior, so that a few hundred records are enough for a few hundred coefficients. No model is evaluated here.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.estimators import Reparameterization
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.warped import WarpedGaussian, WarpedParams
from isvi.memory.record import Record

LARGEST_DIM = 50
"""Entries up to which a warp is tried."""
LARGEST_WEIGHT = 20.0
RATE, SLOWER, SLOWEST = 0.5, 0.7, 0.05
"""How much of the natural gradient is taken, what that is multiplied with when steps grow, and where that ends. (A
whole step is too much: the Fisher information is that of the unbent q.)"""
LONGEST_STEP = 0.3
"""Root mean square over the entries, in the geometry of q."""
SHORT = 1e-4
"""Squared length of a natural gradient, in nats per entry, at which nothing is left to be done."""
MOST_STEPS, FORWARD_STEPS = 150, 60
LIGHTEST, HEAVIEST, MOST_SKEWED = -0.4, 0.7, 1.5
"""Bounds of tails and skewness. Records that end where the posterior goes on look like one with hardly any tails."""
WORN = 0.5
"""When fewer than this share of the records that were effective at the start still are, q has gone as far as they
reach: further ones have to be made there."""
FAR = 3.0
"""Records whose squared distance from q's mean is more than this many times what is usual say nothing about its shape
there."""


def bound(approximation: Approximation) -> Estimator:
    """The verb that evaluates no model, for a bent q."""
    options = Reparameterization(
        num_samples=2,
        antithetic=True,
        per_factor=False,
        self_normalize=True,
        max_weight=LARGEST_WEIGHT,
        entropy="sticking",
    )
    return options.bind(None, approximation)


def straight(
    location: Float[np.ndarray, " dim"], factor: Float[np.ndarray, "dim dim"], records: Record
) -> tuple[WarpedParams, WarpedParams]:
    """The Gaussian z = location + factor eps as a q that can be bent, in two ways: with what drives others first, and
    last.

    A funnel and a banana have the same third derivatives. The first is one with the driver first, whose noise stretches
    the others; the second one with the driver last, which the squares of the others move."""
    covariance = factor @ factor.T
    order = _drivers_first(location, covariance, records)
    return _in_order(location, covariance, order), _in_order(location, covariance, order[::-1])


def _in_order(location: np.ndarray, covariance: np.ndarray, order: np.ndarray) -> WarpedParams:
    reordered = np.linalg.cholesky(covariance[np.ix_(order, order)])
    return WarpedGaussian(1, len(order)).straight(jnp.asarray(location), jnp.asarray(reordered[np.argsort(order)]))


def _drivers_first(location: np.ndarray, covariance: np.ndarray, records: Record) -> np.ndarray:
    """Entries by how much the others' curvature changes along them, less how much theirs changes along others.

    In coordinates x in which q is standard and that are as near to the entries as can be, (x_i^2 - 1) x_j has in the
    log density the coefficient E[r_i x_i x_j] / 2, with r = gradient + x."""
    dim, sds = len(location), np.sqrt(np.diagonal(covariance))
    values, axes = np.linalg.eigh(covariance / np.outer(sds, sds))
    root = sds[:, None] * ((axes * np.sqrt(np.maximum(values, 1e-12))) @ axes.T)
    noise = np.linalg.solve(root, (np.asarray(records.draws).reshape(-1, dim) - location).T).T
    rest = np.asarray(records.gradient).reshape(-1, dim) @ root + noise
    near = (noise**2).sum(axis=1) < FAR * (dim + 3)
    driven = (rest * noise)[near].T @ noise[near] / max(near.sum(), 1)
    np.fill_diagonal(driven, 0)
    return np.argsort((driven**2).sum(axis=1) - (driven**2).sum(axis=0), kind="stable")


class Descent(NamedTuple):
    """How far the fit of a warp has come."""

    params: WarpedParams
    left: Float[Array, ""]
    """Squared length of the last natural gradient, per entry."""
    rate: Float[Array, ""]
    steps: Array
    effective: Float[Array, ""]
    """Records, by their weights."""


def fit_warp(estimator: Estimator, start: WarpedParams, records: Record) -> Descent:
    """To where the records' gradient vanishes. What is not finite stays so, and is not kept."""
    approximation = estimator.approximation

    def effective(params: WarpedParams) -> Array:
        log_weights = jnp.minimum(estimator.log_weights(params, records).sum(axis=-1), np.log(LARGEST_WEIGHT))
        weights = jnp.exp(log_weights) * records.share[:, None]
        return weights.sum() ** 2 / jnp.sum(weights**2)

    at_first = effective(start)

    def going_on(now: Descent) -> Array:
        return (now.left > SHORT) & (now.steps < MOST_STEPS) & (now.effective > WORN * at_first)

    def step(now: Descent) -> Descent:
        move = approximation.natural(now.params, estimator.gradient(now.params, records))
        left = approximation.squared_length(now.params, move).sum() / approximation.dim
        rate = jnp.where(left > now.left, jnp.maximum(now.rate * SLOWER, SLOWEST), now.rate)
        length = rate * jnp.minimum(1, LONGEST_STEP / jnp.sqrt(left))
        params = _bounded(jax.tree.map(lambda old, change: old + length * change, now.params, move))
        return Descent(params, left, rate, now.steps + 1, effective(params))

    dtype = start.loc.dtype
    first = Descent(start, jnp.asarray(jnp.inf, dtype), jnp.asarray(RATE, dtype), jnp.int32(0), at_first)
    return jax.lax.while_loop(going_on, step, first)


def fit_forward(
    approximation: Approximation,
    start: WarpedParams,
    draws: Float[Array, "draws dim"],
    shares: Float[Array, " draws"],
) -> WarpedParams:
    """The bent q under which draws with these shares are likeliest: KL(p || q), where ``fit_warp`` has KL(q || p). For
    a handful of entries, of which draws reach everywhere: it leaves no tail out."""

    def step(now: WarpedParams, rate: Array) -> tuple[WarpedParams, None]:
        densities = jax.vmap(lambda params, z: approximation.log_density(params, z)[0], (None, 0))
        move = approximation.natural(now, jax.grad(lambda params: shares @ densities(params, draws))(now))
        length = approximation.squared_length(now, move).sum() / approximation.dim
        length = rate * jnp.minimum(1, LONGEST_STEP / jnp.sqrt(length))
        return _bounded(jax.tree.map(lambda old, change: old + length * change, now, move)), None

    return jax.lax.scan(step, start, jnp.geomspace(RATE, SLOWEST, FORWARD_STEPS, dtype=start.loc.dtype))[0]


def _bounded(params: WarpedParams) -> WarpedParams:
    return params._replace(
        tail=jnp.clip(params.tail, LIGHTEST, HEAVIEST), skew=jnp.clip(params.skew, -MOST_SKEWED, MOST_SKEWED)
    )


def moments(approximation: Approximation, params: WarpedParams, noise: Any) -> tuple[Array, Array]:
    """Means and standard deviations of q over this noise."""
    [piece] = approximation.pieces
    draws = jax.vmap(piece.transform, (None, 0))(params, noise)  # type: ignore[attr-defined]
    return draws.mean(axis=0), draws.std(axis=0)
