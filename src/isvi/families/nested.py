"""A Gaussian whose mean and covariance follow a few latents that drive it, which are bent: ``Nested``.

z has two parts, drivers t and others u: a scale and the effects that have it, a noise level and coefficients. With
independent standard normal noise (d, e),

    t = bent(d),    u = mean(d) + base shape(d) e,

where ``bent`` is a warped Gaussian of few dimensions (:mod:`isvi.families.warped`), ``shape`` is lower triangular, and
the entries of ``mean``, those of ``shape`` below the diagonal and the logarithms of those on it are polynomials in d.
Given its drivers nearly every hierarchical posterior is nearly Gaussian, and none is without. The inverse is closed:
first the drivers' noise, then the others'. So is the entropy: the determinant's logarithm is linear in the features.

The polynomials are of d and not of t, so that a tail of t that is bent far out is no far-off point for them; and beyond
``FARTHEST`` they stay what they are there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from isvi.core.errors import ConfigurationError
from isvi.core.latents import Latent
from isvi.families.base import Params, Plan
from isvi.families.location_scale import LocationScale
from isvi.families.warped import NODE_WEIGHTS, NODES, WarpedGaussian, WarpedParams

FARTHEST = 3.0
"""Noise of drivers beyond this is taken for this by the polynomials: one draw in 370, and no polynomial runs away."""
FEW_DRIVERS, HIGHEST_OF_FEW, HIGHEST = 4, 4, 3
"""With up to so many drivers powers of each go up to the first, with more up to the second; products are of two."""
STEEPEST = 8.0
"""Bound of the logarithms on the diagonal of ``shape``."""
DRAWS_AT_ONCE = 64
"""As many triangles are made together."""


class NestedParams(NamedTuple):
    """t = outer(d), u = mean(d) + base shape(d) e."""

    outer: WarpedParams
    base: Float[Array, "others others"]
    """Lower triangular."""
    mean: Float[Array, "features others"]
    shape: Float[Array, "features others others"]
    """Of the entries below the diagonal, and of the logarithms of those on it."""


@cache
def powers(drivers: int) -> tuple[tuple[int, ...], ...]:
    """Of every feature, the power of each driver's noise."""
    highest = HIGHEST_OF_FEW if drivers <= FEW_DRIVERS else HIGHEST
    products = [one for order in range(3) for one in combinations_with_replacement(range(drivers), order)]
    alone = [(one,) * power for power in range(3, highest + 1) for one in range(drivers)]
    return tuple(tuple(one.count(driver) for driver in range(drivers)) for one in [*products, *alone])


def features(noise: Any, numpy: Any = jnp) -> Any:
    """Products of Hermite polynomials of the drivers' noise (..., drivers), orthonormal but for what is beyond
    ``FARTHEST``: (..., features), by JAX or by NumPy."""
    alone = _hermite(numpy.clip(noise, -FARTHEST, FARTHEST))
    found = [
        prod((alone[power][..., driver] for driver, power in enumerate(one) if power), start=alone[0][..., 0])
        for one in powers(noise.shape[-1])
    ]
    return numpy.stack(found, axis=-1)


def _hermite(x: Any) -> list[Any]:
    return [
        0 * x + 1,
        x,
        (x**2 - 1) / np.sqrt(2),
        (x**3 - 3 * x) / np.sqrt(6),
        (x**4 - 6 * x**2 + 3) / np.sqrt(24),
    ]


@cache
def mean_features(drivers: int) -> np.ndarray:
    """E[features] over the noise."""
    alone = [NODE_WEIGHTS @ one for one in _hermite(np.clip(NODES, -FARTHEST, FARTHEST))]
    return np.array([np.prod([alone[power] for power in one]) for one in powers(drivers)])


@dataclass(frozen=True)
class NestedGaussian(LocationScale):
    """One factor of ``size`` entries, of which those at ``drivers`` drive the others."""

    drivers: tuple[int, ...] = ()

    @property
    def outer(self) -> WarpedGaussian:
        return WarpedGaussian(1, len(self.drivers))

    @property
    def others(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.size), self.drivers)

    @property
    def numbers_per_draw(self) -> int:
        return len(self.others) ** 2

    def init(self, location: Array, scale: Array) -> NestedParams:
        return self.straight(location, jnp.diag(scale))

    def straight(self, location: Array, factor: Array) -> NestedParams:
        """The Gaussian z = location + factor eps."""
        location, factor = jnp.asarray(location), jnp.asarray(factor)
        order = np.concatenate([np.asarray(self.drivers, int), self.others])
        reordered = jnp.linalg.cholesky(factor[order] @ factor[order].T)
        first, count = len(self.drivers), len(powers(len(self.drivers)))
        base, coupling = reordered[first:, first:], reordered[first:, :first]
        mean = jnp.zeros((count, len(base)), factor.dtype).at[0].set(location[self.others])
        return NestedParams(
            outer=self.outer.straight(location[np.asarray(self.drivers)], reordered[:first, :first]),
            base=base,
            mean=mean.at[1 : 1 + first].set(coupling.T),  # the features behind the constant are the noise itself
            shape=jnp.zeros((count, *base.shape), factor.dtype),
        )

    def transform(self, params: NestedParams, noise: Array) -> Array:
        first = len(self.drivers)
        mean, shape, _ = self.given(params, noise[:first])
        others = mean + params.base @ (shape @ noise[first:])
        return self._joined(self.outer.transform(params.outer, noise[:first]), others)

    def standardize(self, params: NestedParams, z: Array) -> Array:
        noise = self.outer.standardize(params.outer, z[np.asarray(self.drivers)])
        mean, shape, _ = self.given(params, noise)
        inner = solve_triangular(params.base, z[self.others] - mean, lower=True)
        return jnp.concatenate([noise, solve_triangular(shape, inner, lower=True)])

    def log_jacobian(self, params: NestedParams, z: Array) -> Array:
        drivers = z[np.asarray(self.drivers)]
        logs = self.given(params, self.outer.standardize(params.outer, drivers))[2]
        return self.outer.log_jacobian(params.outer, drivers) + self._log_determinant(params, logs)

    def given(self, params: NestedParams, noise: Float[Array, " drivers"]) -> tuple[Array, Array, Array]:
        """mean and shape at this noise of the drivers, and the logarithms on the diagonal of shape."""
        seen = features(noise)
        shape = jnp.tensordot(seen, params.shape, axes=1)
        logs = jnp.clip(jnp.diagonal(shape), -STEEPEST, STEEPEST)
        return seen @ params.mean, jnp.tril(shape, -1) + jnp.diag(jnp.exp(logs)), logs

    def draw(self, key: PRNGKeyArray, params: Params, num_samples: int, antithetic: bool) -> Array:
        half = self.base_draw(key, params, num_samples // 2 if antithetic else num_samples, params.base.dtype)
        noise = jnp.concatenate([half, -half]) if antithetic else half
        return jax.lax.map(lambda one: self.transform(params, one), noise, batch_size=DRAWS_AT_ONCE)

    def entropy(self, params: NestedParams) -> Array:
        expected = jnp.asarray(mean_features(len(self.drivers)), params.base.dtype)
        logs = expected @ jnp.diagonal(params.shape, axis1=1, axis2=2)
        straight = 0.5 * len(self.others) * np.log(2 * np.pi * np.e)
        return self.outer.entropy(params.outer) + straight + self._log_determinant(params, logs)

    def location(self, params: NestedParams) -> Array:
        """A point in the middle of it: where the noise is 0."""
        return self.transform(params, jnp.zeros_like(params.base, shape=self.size))

    def along_axes(self, params: NestedParams, z: Array, gradient: Array) -> Array:
        """Along the axes that it has in its middle."""
        _, pull = jax.vjp(lambda noise: self.transform(params, noise), jnp.zeros_like(z))
        return pull(gradient)[0]

    def _joined(self, drivers: Array, others: Array) -> Array:
        whole = jnp.zeros(self.size, others.dtype).at[np.asarray(self.drivers)].set(drivers)
        return whole.at[self.others].set(others)

    def _log_determinant(self, params: NestedParams, logs: Array) -> Array:
        return jnp.sum(logs) + jnp.sum(jnp.log(jnp.abs(jnp.diagonal(params.base))))


def conditional(
    outer: WarpedParams,
    noise: Float[np.ndarray, "nodes drivers"],
    modes: Sequence[np.ndarray],
    factors: Sequence[np.ndarray],
    ridge: float,
) -> NestedParams:
    """The polynomials that go, as nearly as can be, through means and L of the others at some nodes of the drivers."""
    seen, base = features(noise, np), factors[int(np.argmin((noise**2).sum(axis=1)))]
    shapes = np.linalg.solve(base, np.stack(factors))
    diagonal = np.arange(len(base))
    shapes[:, diagonal, diagonal] = np.log(shapes[:, diagonal, diagonal])
    wanted = np.concatenate([np.stack(modes), np.tril(shapes).reshape(len(noise), -1)], axis=1)
    penalty = ridge * np.diag(np.sum(powers(noise.shape[1]), axis=1) > 1)
    found = np.linalg.solve(seen.T @ seen / len(noise) + penalty, seen.T @ wanted / len(noise))
    mean, shape = found[:, : len(base)], found[:, len(base) :].reshape(-1, *base.shape)
    return NestedParams(outer, jnp.asarray(base), jnp.asarray(mean), jnp.asarray(shape))


@dataclass(frozen=True)
class Nested:
    """A Gaussian given a few latents that drive it, such as the scales of a hierarchical model, which are bent.

    Where all data is one mini-batch and there are at most 500 entries of latents, ``isvi.fit`` fits a Gaussian first,
    finds out which latents drive the others' curvature, and learns how. For models in JAX.

    Attributes:
        always: whether it is kept in any case; else only if draws that it was not fitted to say that it is better than
            the Gaussian. The latter is what ``isvi.fit`` does if no family is named.
    """

    always: bool = True

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        raise ConfigurationError(
            "isvi.Nested() is found by isvi.fit, from a Gaussian and the model: it takes no algorithm, estimator or "
            "optimizer, and is for all latents together. Leave these out, or use FullRank()."
        )
