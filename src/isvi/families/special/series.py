"""Differences of large numbers in closed form.

Concentrations of 1e4 and more are what data sets of that size give. Wherever a textbook formula for Gamma, Beta and
Dirichlet subtracts large numbers of like size there, this module has the difference itself.
"""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

ASYMPTOTIC = 10.0
"""From here on, five terms of Stirling's series are exact to float64."""


def stirling_series(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log Gamma(x) - ((x - 1/2) log x - x + log(2 pi)/2), for x >= ASYMPTOTIC."""
    y = 1 / x**2
    return (1 / 12 + y * (-1 / 360 + y * (1 / 1260 + y * (-1 / 1680 + y / 1188)))) / x


def digamma_deficit_series(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log x - digamma(x), for x >= ASYMPTOTIC."""
    y = 1 / x**2
    return 0.5 / x + y * (1 / 12 + y * (-1 / 120 + y * (1 / 252 + y * (-1 / 240 + y / 132))))


def stirling_remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log Gamma(x) - ((x - 1/2) log x - x + log(2 pi)/2): what is left of log Gamma without its large terms."""
    large = x >= ASYMPTOTIC
    small = jnp.where(large, 1, x)  # each branch sees only what it can differentiate
    direct = gammaln(small) - (small - 0.5) * jnp.log(small) + small - 0.5 * math.log(2 * math.pi)
    return jnp.where(large, stirling_series(jnp.where(large, x, ASYMPTOTIC)), direct)


def digamma_deficit(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log x - digamma(x), which is -E[log(t/x)] for t ~ Gamma(x, 1)."""
    large = x >= ASYMPTOTIC
    small = jnp.where(large, 1, x)
    direct = jnp.log(small) - digamma(small)
    return jnp.where(large, digamma_deficit_series(jnp.where(large, x, ASYMPTOTIC)), direct)


def concentration_information(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x^2 (trigamma(x) - 1/x): the Fisher information of log x in Gamma(x, x / mean). Tends to 1/2 for large x."""
    _, slope = jax.jvp(digamma_deficit, (x,), (jnp.ones_like(x),))
    return -(x**2) * slope


def log_below_tangent(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """log r - (r - 1), from log r: how far the logarithm lies below its tangent at 1."""
    return log_ratio - jnp.expm1(log_ratio)
