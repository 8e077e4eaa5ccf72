"""A Gaussian whose covariance is a diagonal plus a matrix of low rank: ``LowRank``.

It is written with an invertible map, as stored records need it: z = loc + s (I + U U') eps, with s diagonal and U of
r columns. The covariance s (I + U U')^2 s = s^2 + s U (2 I + U' U) U' s is a diagonal plus any matrix of rank r, and
everything costs r times what a diagonal costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Float

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.base import Plan
from isvi.families.location_scale import LocationScale
from isvi.families.nearest import Nearest, nearest

INITIAL_FACTOR = 0.01
"""U starts small, but not at 0, where its gradient vanishes."""


class LowRankParams(NamedTuple):
    """z = loc + exp(log_scale) (I + U U') eps."""

    loc: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    factor: Float[Array, "dim rank"]
    """U."""


@dataclass(frozen=True)
class LowRankGaussian(LocationScale):
    """One Gaussian of ``size`` dimensions, with ``rank`` directions of correlation."""

    rank: int = 1

    gaussian: ClassVar[bool] = True

    def init(self, location: Array, scale: Array) -> LowRankParams:
        directions = jax.random.normal(jax.random.key(0), (self.size, self.rank), location.dtype)
        return LowRankParams(location, jnp.log(scale), INITIAL_FACTOR * directions)

    def transform(self, params: LowRankParams, noise: Array) -> Array:
        spread = noise + params.factor @ (params.factor.T @ noise)
        return params.loc + jnp.exp(params.log_scale) * spread

    def standardize(self, params: LowRankParams, z: Array) -> Array:
        """(I + U U')^{-1} = I - U (I + U' U)^{-1} U'."""
        scaled = (z - params.loc) * jnp.exp(-params.log_scale)
        return scaled - params.factor @ jnp.linalg.solve(self._inner(params), params.factor.T @ scaled)

    def log_jacobian(self, params: LowRankParams, z: Array) -> Array:
        return self._log_determinant(params)[None]

    def entropy(self, params: LowRankParams) -> Array:
        return (self._log_determinant(params) + 0.5 * self.size * np.log(2 * np.pi * np.e))[None]

    def location(self, params: LowRankParams) -> Array:
        return params.loc

    def scale(self, params: LowRankParams) -> Array:
        """The variances of I + U U', squared: 1 + U (2 I + U' U) U'."""
        factor = params.factor
        inner = 2 * jnp.eye(self.rank, dtype=factor.dtype) + factor.T @ factor
        return jnp.exp(params.log_scale) * jnp.sqrt(1 + jnp.sum((factor @ inner) * factor, axis=1))

    def match(self, location: Array, precision: Array) -> LowRankParams:
        if precision.ndim == 1:
            return LowRankParams(location, -0.5 * jnp.log(precision), jnp.zeros((self.size, self.rank), location.dtype))
        precisions = jnp.diagonal(precision)
        unit = precisions[:, None] ** -0.5
        root = cho_factor(precision * unit * unit.T, lower=True)
        return self.of(location, nearest(lambda columns: unit * cho_solve(root, unit * columns), precisions, self.rank))

    def factor(self, params: LowRankParams) -> Array:
        """From an orthogonal decomposition of the symmetric root, so that no condition number is squared."""
        root = jnp.exp(params.log_scale)[:, None] * (jnp.eye(self.size) + params.factor @ params.factor.T)
        lower = jnp.linalg.qr(root.T, mode="r").T
        return lower * jnp.sign(jnp.diagonal(lower))

    def with_factor(self, location: Array, factor: Array) -> LowRankParams:
        """Of the member closest to the Gaussian with this location and this L, if it is none itself."""
        inverse = solve_triangular(factor, jnp.eye(self.size, dtype=factor.dtype), lower=True)
        precisions = jnp.sum(inverse**2, axis=0)
        return self.of(location, nearest(lambda columns: factor @ (factor.T @ columns), precisions, self.rank))

    def of(self, location: Array, covariance: Nearest) -> LowRankParams:
        """With this covariance: I + E (M - 1) E' is the square of I + E (M^1/2 - 1) E'."""
        lengths = jnp.sqrt(jnp.sqrt(covariance.lengths) - 1)
        return LowRankParams(location, 0.5 * jnp.log(covariance.variance), covariance.directions * lengths)

    def _inner(self, params: LowRankParams) -> Array:
        return jnp.eye(self.rank, dtype=params.loc.dtype) + params.factor.T @ params.factor

    def _log_determinant(self, params: LowRankParams) -> Array:
        return jnp.sum(params.log_scale) + jnp.linalg.slogdet(self._inner(params))[1]


@dataclass(frozen=True)
class LowRank:
    """A Gaussian over all latents with a covariance of a diagonal plus low rank: for more dimensions than ``FullRank``
    can take, where a few directions hold most of the correlation.

    Attributes:
        rank: number of these directions.
    """

    rank: int = 5

    def __post_init__(self) -> None:
        require(
            isinstance(self.rank, int) and self.rank >= 1,
            ConfigurationError,
            f"LowRank(rank=...) must be a whole number, at least 1; got {self.rank!r}.",
        )

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        dim = sum(latent.unconstrained_size for latent in latents.values())
        require(
            self.rank <= dim,
            ConfigurationError,
            f"LowRank(rank={self.rank}) needs at least that many dimensions; the latents have {dim}.",
        )
        return Plan(tuple(latents), constrained=False, factors=(LowRankGaussian(1, dim, self.rank),))
