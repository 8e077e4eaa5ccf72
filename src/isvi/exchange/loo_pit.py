"""Where each observed value is among those that the other rows predict for it: uniform, if the model is calibrated.

Gelfand, Dey and Chang (1992); the weights are those of leave-one-out, smoothed (PSIS).
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isvi.core.errors import ConfigurationError, require
from isvi.exchange.pointwise import columns, count, fitted_rows, pointwise_log_likelihood, take
from isvi.exchange.prediction import predict
from isvi.results.weights.smoothing import smooth

if TYPE_CHECKING:
    from isvi.results.fit import Fit

MOST_ROWS = 2_000
"""Of more, so many are drawn at random: the weights of each are smoothed by itself."""


def loo_pit(
    fit: "Fit", name: str | None = None, num_samples: int | None = None, seed: int = 0
) -> Float[np.ndarray, " rows"]:
    """For each row (a sample of 2,000 of more), the probability that a value simulated for it, by a posterior without
    this row, is below the observed one; of equal values a random part counts, so that counts are uniform too.

    Args:
        fit: of a model that can simulate, with a log likelihood by row, and its data in memory.
        name: the column; by default the first that the model simulates and the data have.
        num_samples: draws, as for ``fit.diagnose()``.
        seed: of the draws and of the simulation.
    """
    rows = fitted_rows(fit)
    random = np.random.default_rng(seed)
    if count(rows) > MOST_ROWS:
        rows = take(rows, np.sort(random.choice(count(rows), MOST_ROWS, replace=False)))
    candidates = fit._weighted(num_samples, seed).candidates
    usable = np.isfinite(candidates.log_joint) & np.isfinite(candidates.log_proposal)
    draws = candidates.draws[usable]
    ratios = (candidates.log_joint - candidates.log_proposal)[usable]
    likelihoods = pointwise_log_likelihood(fit, draws, rows)
    latents = jax.device_get(fit.approximation.coordinates.constrain(jnp.asarray(draws)))
    simulated = predict(fit, latents, rows, seed)
    shown, observed = _observed(columns(rows), simulated, name)
    values = np.asarray(simulated[shown], float)
    weights = np.exp(np.stack([smooth(ratios - column)[0] for column in likelihoods.T], axis=1))
    below, equal = ((weights * compared).sum(axis=0) for compared in (values < observed, values == observed))
    return below + random.random(len(observed)) * equal


def _observed(
    known: dict[str, np.ndarray], simulated: dict[str, np.ndarray], name: str | None
) -> tuple[str, np.ndarray]:
    """The column's name, and its values."""
    both = [one for one in simulated if one in known]
    shown = both[0] if name is None and both else str(name)
    require(
        shown in both and known[shown].ndim == 1,
        ConfigurationError,
        f"there is no column {name!r} of one number per row that is both observed and simulated; there are {both}.",
    )
    return shown, np.asarray(known[shown], float)
