"""Targets on which the ELBO of Gamma, log-normal, Beta, Dirichlet and Student t factors is known in closed form.

Each couples its entries by a product, so that the factors' gradients depend on each other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma, gammaln

import isvi
from isvi import families
from isvi.families.warped import NODE_WEIGHTS, NODES

COUPLING = 0.5


@dataclass(frozen=True)
class Case:
    """A family, a model, the exact ELBO, and where records are drawn and used (location and scale)."""

    family: Any
    model: isvi.Model
    elbo: Callable[[isvi.Approximation, Any], jax.Array]
    old: tuple[Any, Any]
    new: tuple[Any, Any]


def _positive_density(z: dict) -> jax.Array:
    """Two Gammas of shapes 3 and 2 and rates 2 and 1.5, coupled."""
    v = z["v"]
    return jnp.sum(np.array([2.0, 1.0]) * jnp.log(v) - np.array([2.0, 1.5]) * v) - COUPLING * v[0] * v[1]


def _positive_expected(mean: jax.Array, mean_log: jax.Array) -> jax.Array:
    return jnp.sum(np.array([2.0, 1.0]) * mean_log - np.array([2.0, 1.5]) * mean) - COUPLING * mean[0] * mean[1]


def _gamma_elbo(_: isvi.Approximation, params: Any) -> jax.Array:
    shape, mean = jnp.exp(params.log_concentration), jnp.exp(params.log_mean)
    rate = shape / mean
    entropy = shape - jnp.log(rate) + gammaln(shape) + (1 - shape) * digamma(shape)
    return _positive_expected(mean, digamma(shape) - jnp.log(rate)) + entropy.sum()


def _log_normal_elbo(_: isvi.Approximation, params: Any) -> jax.Array:
    variance = jnp.exp(2 * params.log_scale)
    entropy = params.loc + 0.5 * jnp.log(2 * np.pi * np.e * variance)
    return _positive_expected(jnp.exp(params.loc + variance / 2), params.loc) + entropy.sum()


def _unit_density(z: dict) -> jax.Array:
    v = z["v"]
    return jnp.sum(2 * jnp.log(v) + jnp.log1p(-v)) + COUPLING * v[0] * v[1]


def _beta_elbo(_: isvi.Approximation, params: Any) -> jax.Array:
    mean, concentration = jax.nn.sigmoid(params.logit), jnp.exp(params.log_total)
    a, b, total = concentration * mean, concentration * (1 - mean), digamma(concentration)
    expected = jnp.sum(2 * (digamma(a) - total) + digamma(b) - total) + COUPLING * mean[0] * mean[1]
    entropy = betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * total
    return expected + entropy.sum()


def _simplex_density(z: dict) -> jax.Array:
    p = z["p"]
    return jnp.sum(np.array([2.0, 1.0, 0.5]) * jnp.log(p)) + 4 * COUPLING * p[0] @ p[1]


def _dirichlet_elbo(_: isvi.Approximation, params: Any) -> jax.Array:
    mean, total = jax.nn.softmax(params.logits.reshape(2, 3)), jnp.exp(params.log_total)[:, None]
    alpha = total * mean
    mean_log = digamma(alpha) - digamma(total)
    expected = jnp.sum(np.array([2.0, 1.0, 0.5]) * mean_log) + 4 * COUPLING * mean[0] @ mean[1]
    entropy = jnp.sum(gammaln(alpha) - (alpha - 1) * mean_log) - jnp.sum(gammaln(total))
    return expected + entropy


def _quadratic(z: dict) -> jax.Array:
    v = z["v"]
    return -jnp.sum((v - np.array([0.5, -0.5])) ** 2) - COUPLING * v[0] * v[1]


def _student_elbo(approximation: isvi.Approximation, params: Any) -> jax.Array:
    df, scale = approximation.pieces[0].degrees(params), jnp.exp(params.log_scale)
    variance = scale**2 * df / (df - 2)
    expected = -jnp.sum((params.loc - np.array([0.5, -0.5])) ** 2 + variance) - COUPLING * jnp.prod(params.loc)
    half = (df + 1) / 2
    entropy = half * (digamma(half) - digamma(df / 2)) + 0.5 * jnp.log(df) + betaln(df / 2, jnp.full_like(df, 0.5))
    return expected + jnp.sum(entropy + jnp.log(scale))


def _warped_elbo(approximation: isvi.Approximation, params: Any) -> jax.Array:
    """Over a grid of the noise of both entries; the trapezoidal rule is exact to rounding here."""
    [piece] = approximation.pieces
    noise = jnp.stack(jnp.meshgrid(NODES, NODES), axis=-1).reshape(-1, 2)
    weights = jnp.outer(NODE_WEIGHTS, NODE_WEIGHTS).reshape(-1)
    values = jax.vmap(lambda eps: _quadratic({"v": piece.transform(params, eps)}))(noise)
    return weights @ values + piece.entropy(params).sum()


_POSITIVE = isvi.Model({"v": isvi.positive(2)}, _positive_density)
_REAL = isvi.Model({"v": isvi.real(2)}, _quadratic)
_MOVE = {"old": ([0.9, 1.5], 0.5), "new": ([1.0, 1.35], 0.5)}
_REAL_MOVE = {"old": ([-0.2, 0.4], 0.6), "new": ([-0.4, 0.6], 0.57)}
CASES = {
    "Gamma": Case(families.Gamma(), _POSITIVE, _gamma_elbo, **_MOVE),
    "LogNormal": Case(families.LogNormal(), _POSITIVE, _log_normal_elbo, **_MOVE),
    "Beta": Case(
        families.Beta(),
        isvi.Model({"v": isvi.unit_interval(2)}, _unit_density),
        _beta_elbo,
        old=([0.4, 0.6], 0.15),
        new=([0.43, 0.56], 0.15),
    ),
    "Dirichlet": Case(
        families.Dirichlet(),
        isvi.Model({"p": isvi.simplex(2, 3)}, _simplex_density),
        _dirichlet_elbo,
        old=([0.3, 0.3, 0.4, 0.5, 0.2, 0.3], 0.15),
        new=([0.33, 0.3, 0.37, 0.46, 0.22, 0.32], 0.15),
    ),
    "StudentT": Case(families.StudentT(), _REAL, _student_elbo, **_REAL_MOVE),
    "Warped": Case(families.Warped(), _REAL, _warped_elbo, **_REAL_MOVE),
    "StudentT-fixed": Case(families.StudentT(df=12.0), _REAL, _student_elbo, **_REAL_MOVE),
}
