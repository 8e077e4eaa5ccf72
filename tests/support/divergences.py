"""KL divergences between members of every family, in closed form or by quadrature, as functions of their parameters.

Their Hessians are the Fisher information. Each case also has natural parameters, where the family has them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln, logsumexp
from support import gaussian
from support.records import jiggled, normal_moments

import isvi
from isvi import families


@dataclass(frozen=True)
class Divergence:
    """A family bound to latents.

    Attributes:
        kl: ``kl(approximation, one, other)`` for the members with these parameters.
        natural_parameters: those of an exponential family, ``(approximation, params) -> vector``.
        location: where to centre the member that tests start from, and
        scale: how wide to make it.
    """

    family: Any
    latents: dict[str, isvi.Latent]
    kl: Callable[[isvi.Approximation, Any, Any], jax.Array]
    natural_parameters: Callable[[isvi.Approximation, Any], jax.Array] | None
    location: Any
    scale: float

    @property
    def approximation(self) -> isvi.Approximation:
        return isvi.approximate(self.family, self.latents)


def _gaussian_kl(approximation: isvi.Approximation, one: Any, other: Any) -> jax.Array:
    (mean, covariance), (far_mean, far_covariance) = (
        gaussian.moments(approximation, params) for params in (one, other)
    )
    precision, centred = jnp.linalg.inv(far_covariance), mean - far_mean
    volume = jnp.linalg.slogdet(far_covariance)[1] - jnp.linalg.slogdet(covariance)[1]
    return 0.5 * (jnp.trace(precision @ covariance) + centred @ precision @ centred - len(mean) + volume)


def _gaussian_natural(approximation: isvi.Approximation, params: Any) -> jax.Array:
    mean, covariance = gaussian.moments(approximation, params)
    precision = jnp.linalg.inv(covariance)
    return jnp.concatenate([precision @ mean, precision.ravel()])


def _log_normal_kl(_: isvi.Approximation, one: Any, other: Any) -> jax.Array:
    """That of the logarithms."""
    ratio = jnp.exp(2 * (one.log_scale - other.log_scale))
    distance = ((one.loc - other.loc) * jnp.exp(-other.log_scale)) ** 2
    return 0.5 * jnp.sum(ratio - 1 - jnp.log(ratio) + distance)


def _log_normal_natural(_: isvi.Approximation, params: Any) -> jax.Array:
    precision = jnp.exp(-2 * params.log_scale)
    return jnp.concatenate([precision * params.loc, precision])


def _gamma_usual(params: Any) -> tuple[jax.Array, jax.Array]:
    a = jnp.exp(params.log_concentration)
    return a, a * jnp.exp(-params.log_mean)


def _gamma_kl(_: isvi.Approximation, one: Any, other: Any) -> jax.Array:
    (a, rate), (far_a, far_rate) = _gamma_usual(one), _gamma_usual(other)
    volume = gammaln(far_a) - gammaln(a) + far_a * jnp.log(rate / far_rate)
    return jnp.sum((a - far_a) * digamma(a) + volume + a * (far_rate / rate - 1))


def _simplex_kl(alpha: jax.Array, far: jax.Array) -> jax.Array:
    def log_volume(alpha: jax.Array) -> jax.Array:
        return jnp.sum(gammaln(alpha).sum(axis=-1) - gammaln(alpha.sum(axis=-1)))

    mean_log = digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))
    return log_volume(far) - log_volume(alpha) + jnp.sum((alpha - far) * mean_log)


def _beta_alpha(_: isvi.Approximation, params: Any) -> jax.Array:
    return jnp.exp(params.log_total)[:, None] * jnp.stack(
        [jax.nn.sigmoid(params.logit), jax.nn.sigmoid(-params.logit)], 1
    )


def _dirichlet_alpha(approximation: isvi.Approximation, params: Any) -> jax.Array:
    logits = params.logits.reshape(approximation.num_factors, -1)
    return jnp.exp(params.log_total[:, None] + logits - logsumexp(logits, axis=1, keepdims=True))


def _student_kl(approximation: isvi.Approximation, one: Any, other: Any) -> jax.Array:
    """By the trapezoidal rule in s with z = sinh(s), whose errors fall exponentially; double precision only."""
    s = jnp.linspace(-40.0, 40.0, 8001)

    def difference(z: jax.Array) -> jax.Array:
        full = jnp.full(approximation.dim, z)
        here = approximation.log_density(one, full)
        return jnp.exp(here) * (here - approximation.log_density(other, full))

    return jnp.sum(jax.vmap(difference)(jnp.sinh(s)) * jnp.cosh(s)[:, None]) * (s[1] - s[0])


_REAL = gaussian.model().latents
_POSITIVE = {"v": isvi.positive(3)}
_GAUSSIAN = (_gaussian_kl, _gaussian_natural, [0.3, -0.7, 1.2], 0.4)
CASES = {
    "MeanField": Divergence(isvi.MeanField(), _REAL, *_GAUSSIAN),
    "Block": Divergence(isvi.Block(), _REAL, *_GAUSSIAN),
    "FullRank": Divergence(isvi.FullRank(), _REAL, *_GAUSSIAN),
    "LogNormal": Divergence(
        families.LogNormal(), _POSITIVE, _log_normal_kl, _log_normal_natural, [0.4, 1.0, 30.0], 0.5
    ),
    "Gamma": Divergence(
        families.Gamma(),
        _POSITIVE,
        _gamma_kl,
        lambda _, params: jnp.concatenate(_gamma_usual(params)),
        [0.4, 1.0, 30.0],
        0.5,
    ),
    "Beta": Divergence(
        families.Beta(),
        {"v": isvi.unit_interval(2)},
        lambda q, one, other: _simplex_kl(_beta_alpha(q, one), _beta_alpha(q, other)),
        lambda q, params: _beta_alpha(q, params).ravel(),
        [0.3, 0.9],
        0.1,
    ),
    "Dirichlet": Divergence(
        families.Dirichlet(),
        {"p": isvi.simplex(2, 3)},
        lambda q, one, other: _simplex_kl(_dirichlet_alpha(q, one), _dirichlet_alpha(q, other)),
        lambda q, params: _dirichlet_alpha(q, params).ravel(),
        [0.3, 0.3, 0.4, 0.7, 0.2, 0.1],
        0.15,
    ),
    "StudentT": Divergence(families.StudentT(), {"v": isvi.real(2)}, _student_kl, None, [0.5, -0.2], 0.7),
    "StudentT-fixed": Divergence(families.StudentT(df=4.0), {"v": isvi.real(2)}, _student_kl, None, [0.5, -0.2], 0.7),
}
EXPONENTIAL = {name: case for name, case in CASES.items() if case.natural_parameters is not None}


def members(case: Divergence, size: float = 0.3) -> tuple[Any, Any]:
    """Two members of a family, some way apart from each other."""
    start = jax.jit(case.approximation.init)(*normal_moments(case.location, case.scale))
    return jiggled(start, seed=0, size=size), jiggled(start, seed=1, size=size)
