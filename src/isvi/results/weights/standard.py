"""Coordinates in which q is standard."""

from typing import TYPE_CHECKING

import numpy as np

from isvi.results.weights.exploration import Frame
from isvi.results.weights.unconstrained import Unconstrained

if TYPE_CHECKING:
    from isvi.results.fit import Fit

LARGEST_DENSE = 1000
"""Entries up to which the covariance of q is used as a whole, and beyond which only its diagonal: as a fit does."""
DRAWS_PER_ENTRY, FEWEST_DRAWS = 20, 10_000
"""Of q, for the moments of families that are not Gaussian."""


def standard(fit: "Fit") -> Frame:
    """Coordinates of the latents' unconstrained space in which q has mean 0 and covariance 1: exactly, for Gaussian
    families; by draws of q, for others."""
    approximation = fit.approximation
    dense = approximation.dim <= LARGEST_DENSE
    if approximation.gaussian:
        shape = approximation.factor if dense and not approximation.diagonal else approximation.scale
        return Frame(*(np.asarray(part(fit.params), np.float64) for part in (approximation.location, shape)))
    number = max(FEWEST_DRAWS, DRAWS_PER_ENTRY * approximation.dim)
    draws = np.asarray(fit._draw(number, seed=0, antithetic=False), np.float64)
    u = Unconstrained(approximation.coordinates).enter(draws)[0]
    mean, sd = u.mean(axis=0), u.std(axis=0)
    if not dense:
        return Frame(mean, sd)
    correlation = np.corrcoef(u, rowvar=False).reshape(len(mean), len(mean))
    return Frame(mean, sd[:, None] * np.linalg.cholesky(correlation + 1e-9 * np.eye(len(mean))))
