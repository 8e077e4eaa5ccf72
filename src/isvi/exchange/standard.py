"""Coordinates in which q is standard: mean 0, covariance 1. What a sampler should start with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.results.unconstrained import Unconstrained

if TYPE_CHECKING:
    from isvi.results.fit import Fit

LARGEST_DENSE = 1000
"""Entries up to which the covariance of q is used as a whole, and beyond which only its diagonal: as a fit does."""
DRAWS_PER_ENTRY, FEWEST_DRAWS = 20, 10_000
"""Of q, for the moments of families that are not Gaussian: correlations are then known to a fifth of a hundredth."""


@dataclass(frozen=True)
class Standard:
    """u = location + factor eps, in the latents' unconstrained space; a factor of one axis is a diagonal."""

    location: Float[np.ndarray, " size"]
    factor: Float[np.ndarray, "size size"] | Float[np.ndarray, " size"]

    @classmethod
    def of(cls, fit: "Fit") -> "Standard":
        approximation = fit.approximation
        dense = approximation.dim <= LARGEST_DENSE
        if approximation.gaussian:
            shape = approximation.factor if dense and not approximation.diagonal else approximation.scale
            return cls(*(np.asarray(part(fit.params), np.float64) for part in (approximation.location, shape)))
        number = max(FEWEST_DRAWS, DRAWS_PER_ENTRY * approximation.dim)
        draws = np.asarray(fit._draw(number, seed=0, antithetic=False), np.float64)
        u = Unconstrained(approximation.coordinates).enter(draws)[0]
        mean, sd = u.mean(axis=0), u.std(axis=0)
        if not dense:
            return cls(mean, sd)
        correlation = np.corrcoef(u, rowvar=False).reshape(len(mean), len(mean))
        return cls(mean, sd[:, None] * np.linalg.cholesky(correlation + 1e-9 * np.eye(len(mean))))

    @property
    def covariance(self) -> Float[np.ndarray, "size size"] | Float[np.ndarray, " size"]:
        return self.factor**2 if self.factor.ndim == 1 else self.factor @ self.factor.T

    def leave(self, eps: Array) -> Array:
        """To unconstrained values, of one point or of many."""
        factor = jnp.asarray(self.factor)
        return jnp.asarray(self.location) + (factor * eps if factor.ndim == 1 else eps @ factor.T)

    def enter(self, u: Float[np.ndarray, "points size"]) -> Float[np.ndarray, "points size"]:
        centred = u - self.location
        if self.factor.ndim == 1:
            return centred / self.factor
        return np.linalg.solve(self.factor, centred.T).T


def starts(fit: "Fit", number: int, seed: int) -> Float[np.ndarray, "points dim"]:
    """Points to start chains at, in the coordinates of the approximation: resampled where the weights can be trusted,
    else q's own draws."""
    weighted = fit._weighted(None, seed)
    if weighted.trusted:
        return weighted.resample(number, seed)
    return np.asarray(fit._draw(number, seed, antithetic=False), np.float64)


def initial_points(fit: "Fit", number: int, seed: int) -> dict[str, np.ndarray]:
    """See :meth:`isvi.Fit.initial_points`."""
    with jax.enable_x64(True):
        return fit._latents(jnp.asarray(starts(fit, number, seed)))
