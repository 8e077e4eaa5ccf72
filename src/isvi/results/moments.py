"""Means, sds and quantiles of very many latents, entry by entry, without draws.

A Gaussian approximation knows every entry's own mean and sd. A latent that is real has just these; one whose constraint
acts entry by entry (a positive number, one in an interval) has the moments of a transformed Gaussian, by Gauss-Hermite
quadrature, and transformed quantiles. What is left, simplexes and matrices, needs draws.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpyro.distributions.transforms import IdentityTransform, Transform

from isvi.core.coordinates import Coordinate

if TYPE_CHECKING:
    from isvi.results.fit import Fit

MANY = 1_000
"""Entries beyond which draws are avoided."""
NODES = 48
DRAWS, NUMBERS, FEWEST = 10_000, 5 * 10**7, 100
"""Draws that moments are taken from; fewer where that would be more than so many numbers, but never below the last."""
QUANTILES = (0.05, 0.5, 0.95)
NORMAL_QUANTILES = (-1.6448536269514722, 0.0, 1.6448536269514722)


class Marginals(NamedTuple):
    """Of every entry of a latent."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray
    """With a leading axis: 5, 50 and 95%."""

    @classmethod
    def of_draws(cls, draws: np.ndarray) -> "Marginals":
        quantiles = np.quantile(draws, QUANTILES, axis=0)
        return cls(draws.mean(axis=0), draws.std(axis=0, ddof=1, dtype=np.float64), quantiles)


def marginals(fit: "Fit") -> dict[str, Marginals]:
    """Of every latent, and of what the model reports besides: from draws where they are not known exactly."""
    if fit.saved_draws is not None:
        return {name: Marginals.of_draws(values) for name, values in fit.saved_draws.items()}
    exact = exact_marginals(fit)
    if exact and set(exact) == set(fit.model.latents):
        return exact
    # Mirrored draws give the exact mean of every entry that is not transformed.
    number, mirrored = affordable_draws(fit.approximation.dim), fit.approximation.symmetric
    drawn = fit._constrained(fit._draw(number, seed=0, antithetic=mirrored))
    return {name: exact.get(name) or Marginals.of_draws(values) for name, values in drawn.items()}


def affordable_draws(dim: int) -> int:
    """How many draws of so many entries moments are taken from."""
    return max(FEWEST, min(DRAWS, NUMBERS // dim))


def exact_marginals(fit: "Fit") -> dict[str, Marginals]:
    """Of the latents that need no draws; none where draws are cheap, or the model reports something else."""
    approximation = fit.approximation
    if approximation.dim <= MANY or not approximation.gaussian or fit.model.report is not None:
        return {}
    location = np.asarray(approximation.location(fit.params), np.float64)
    scale = np.asarray(approximation.scale(fit.params), np.float64)
    found = {
        entry.name: _transformed(entry, location[entry.start : entry.stop], scale[entry.start : entry.stop])
        for entry in approximation.coordinates.entries
        if _by_entry(entry.latent.transform)
    }
    return {name: found[name] for name in fit.model.latents if name in found}


def _by_entry(transform: Transform) -> bool:
    return transform.domain.event_dim == 0 and transform.codomain.event_dim == 0


def _transformed(entry: Coordinate, location: np.ndarray, scale: np.ndarray) -> Marginals:
    transform, shape = entry.latent.transform, entry.latent.shape
    location, scale = location.reshape(shape), scale.reshape(shape)
    if isinstance(transform, IdentityTransform):
        return Marginals(location, scale, np.stack([location + scale * one for one in NORMAL_QUANTILES]))
    nodes, weights = hermegauss(NODES)
    weights = weights / weights.sum()
    with jax.enable_x64(True):
        at = jax.jit(lambda node: transform(jnp.asarray(location) + jnp.asarray(scale) * node))
        # Node by node: all at once would be as large as the draws that are avoided.
        mean = sum(weight * np.asarray(at(node)) for node, weight in zip(nodes, weights, strict=True))
        squares = sum(weight * (np.asarray(at(node)) - mean) ** 2 for node, weight in zip(nodes, weights, strict=True))
        quantiles = np.stack([np.asarray(at(one)) for one in NORMAL_QUANTILES])
    return Marginals(np.asarray(mean), np.sqrt(squares), np.sort(quantiles, axis=0))
