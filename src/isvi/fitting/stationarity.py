"""Has the fit arrived? What the gradient at the end and the tail of the history say."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.data.dataset import Dataset
from isvi.fitting.evaluation import in_float64, in_one_precision
from isvi.fitting.history import History
from isvi.model.binding import make_target
from isvi.model.target import Target

if TYPE_CHECKING:
    from isvi.fitting.result import Fit

PAIRS = 8
FEWEST_ROWS = 6


class Slope(NamedTuple):
    """The ELBO's gradient in the mean of q, per sd of q and per entry: root mean squares over the entries.

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
        """Three standard errors, and enough to matter: a tenth of an sd is a two-hundredth of a nat per entry."""
        return self.value > max(0.1, 3 * self.standard_error)


def slope(fit: "Fit", seed: int) -> Slope | None:
    """Gradients of all mini-batches at eight antithetic pairs of draws; None for families without a mean parameter.

    A pair cancels all that is odd in the draw: for a Gaussian posterior nothing is left but the gradient itself.
    """
    approximation = fit.approximation
    if not approximation.gaussian:
        return None
    target = make_target(fit.model, approximation.coordinates)
    with jax.enable_x64(True):
        params = in_float64(fit.params)
        draws = approximation.draw(jax.random.key(seed), params, 2 * PAIRS, antithetic=True)
        total, squares = _over_batches(target, draws, fit.dataset)
        scale = np.asarray(approximation.scale(params))
    mean, square = np.asarray(total) * scale, np.asarray(squares) * scale**2
    pairs = (mean[:PAIRS] + mean[PAIRS:]) / 2
    average, error = pairs.mean(axis=0), pairs.std(axis=0, ddof=1) / np.sqrt(PAIRS)
    noise = np.maximum(square.mean(axis=0) - mean.mean(axis=0) ** 2, 0)
    value = np.sqrt(max(0.0, np.mean(average**2 - error**2)))
    return Slope(float(value), float(np.sqrt(np.mean(error**2))), float(np.sqrt(noise.mean())), 2 * PAIRS)


def _over_batches(target: Target, draws: Float[Array, "draws dim"], dataset: Dataset) -> tuple[Any, Any]:
    """Means over the mini-batches of the gradients, and of their squares. The first are gradients of all rows."""

    if target.on_host:
        gradients = [
            np.asarray(target.values_and_gradients(draws, dataset.batch(index))[1])
            for index in range(dataset.num_batches)
        ]
        return np.mean(gradients, axis=0), np.mean(np.square(gradients), axis=0)
    return in_one_precision(lambda: jax.jit(partial(_scan_batches, target))(draws, dataset))


def _scan_batches(target: Target, draws: Float[Array, "draws dim"], dataset: Dataset) -> tuple[Array, Array]:
    def add(sums: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], None]:
        _, gradients = target.values_and_gradients(draws, dataset.batch(index))
        return (sums[0] + gradients, sums[1] + gradients**2), None

    zero = jnp.zeros_like(draws)
    (total, squares), _ = jax.lax.scan(add, (zero, zero), jnp.arange(dataset.num_batches))
    return total / dataset.num_batches, squares / dataset.num_batches


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
