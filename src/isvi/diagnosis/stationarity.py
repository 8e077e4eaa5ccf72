"""Has the fit arrived? What the gradient at the end and the tail of the history say."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from isvi.data.dataset import Batch
from isvi.diagnosis.passes import over_batches
from isvi.model.binding import make_target
from isvi.results.history import History
from isvi.results.weights.evaluation import in_float64, in_one_precision

if TYPE_CHECKING:
    from isvi.results.fit import Fit

PAIRS = 8
FEWEST_ROWS = 6


class Slope(NamedTuple):
    """The ELBO's gradient in the mean of q, per sd of q along its own axes: root mean squares over the axes.

    For a posterior with q's own curvature it is also how many sds the mean is off. Along directions in which
    the posterior is much wider than q (a mean-field fit of correlated latents) the mean can be further off than this.
    """

    value: float
    """With what the noise adds to it taken off."""
    standard_error: float
    noise: float
    """The standard deviation of a single gradient: one mini-batch, one draw."""
    passes: int
    """Passes over the data, with gradients."""

    @property
    def significant(self) -> bool:
        """More than noise, and enough to matter: a quarter of an sd is a thirtieth of a nat per axis."""
        return self.value > max(0.25, 3 * self.standard_error)


def slope(fit: "Fit", seed: int) -> Slope | None:
    """Gradients of all mini-batches at eight antithetic pairs of draws; None for families that no parameter moves
    as a whole.

    A pair cancels all that is odd in the draw: for a Gaussian posterior nothing is left but the gradient itself.
    """
    approximation = fit.approximation
    if not (approximation.gaussian or approximation.warped or approximation.nested):
        return None
    target = make_target(fit.model, approximation.coordinates)
    with jax.enable_x64(True):
        params = in_float64(fit.params)
        draws = approximation.draw(jax.random.key(seed), params, 2 * PAIRS, antithetic=True)
        along_axes = jax.vmap(partial(approximation.in_noise, params))

        def with_squares(draws: Array, batch: Batch) -> tuple[Array, Array]:
            moved = along_axes(draws, target.values_and_gradients(draws, batch)[1])
            return moved, moved**2

        def compute() -> tuple[np.ndarray, np.ndarray]:
            return over_batches(target, with_squares)(draws, fit.data())

        mean, square = compute() if target.on_host else in_one_precision(compute)
    pairs = (mean[:PAIRS] + mean[PAIRS:]) / 2
    average, error = pairs.mean(axis=0), pairs.std(axis=0, ddof=1) / np.sqrt(PAIRS)
    noise = np.maximum(square.mean(axis=0) - mean.mean(axis=0) ** 2, 0)
    value = np.sqrt(max(0.0, np.mean(average**2 - error**2)))
    return Slope(float(value), float(np.sqrt(np.mean(error**2))), float(np.sqrt(noise.mean())), 2 * PAIRS)


class Trend(NamedTuple):
    """How much the ELBO rose over the last third of the history's rows, by a straight line through them."""

    value: float
    standard_error: float

    @property
    def rising(self) -> bool:
        return self.value > max(0.1, 3 * self.standard_error)


def trend(history: History) -> Trend | None:
    """From the ELBOs that the fit reported as it went, which cost nothing; None if the rows are too few."""
    count = len(history) // 3
    if count < FEWEST_ROWS:
        return None
    gradients, elbo = (np.asarray(column[-count:], np.float64) for column in (history.gradients, history.elbo))
    if not np.isfinite(elbo).all() or np.ptp(gradients) == 0:
        return None
    progress = (gradients - gradients.mean()) / np.ptp(gradients)
    rise = float(progress @ elbo / (progress @ progress))
    residuals = elbo - elbo.mean() - rise * progress
    variance = residuals @ residuals / (count - 2) / (progress @ progress)
    return Trend(rise, float(np.sqrt(variance)))
