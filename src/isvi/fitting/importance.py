"""Importance weights of an approximation's own draws, smoothed (PSIS), and what they say.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25(72); for variational
inference Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work?, ICML. The ratios p(x, z) / q(z) are taken in
the coordinates of the approximation; a change of coordinates multiplies both densities by the same Jacobian, so
they are the same in any.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from arviz_stats.base import array_stats
from jaxtyping import Float

from isvi.fitting.evaluation import Evaluation, Float64

FEWEST_FOR_A_TAIL = 25
"""The tail is the largest fifth of few draws, and fitted to five at least."""


def k_threshold(num_draws: int) -> float:
    """The largest k-hat at which this many draws give usable estimates (Vehtari et al. 2024)."""
    return min(1 - 1 / np.log10(num_draws), 0.7)


def k_noise(num_draws: int) -> float:
    """About the standard error of a k-hat near its threshold, from the number of draws that the tail is fitted to."""
    return (1 + k_threshold(num_draws)) / np.sqrt(min(num_draws / 5, 3 * np.sqrt(num_draws)))


@dataclass(frozen=True)
class Importance:
    """Smoothed, self-normalised importance weights of evaluated draws.

    Attributes:
        evaluation: the draws and their log densities.
        log_weights: normalised to sum to one.
        k_hat: shape of the ratios' tail: infinite if no tail could be fitted, 0 if all ratios are equal.
        failed: draws at which the model gave NaN or +inf. They count with weight 0.
    """

    evaluation: Evaluation
    log_weights: Float64
    k_hat: float
    failed: int

    @property
    def num_draws(self) -> int:
        return len(self.log_weights)

    @cached_property
    def weights(self) -> Float64:
        return np.exp(self.log_weights)

    @property
    def threshold(self) -> float:
        return k_threshold(self.num_draws)

    @property
    def trusted(self) -> bool:
        """Whether the weights' tail is light enough for estimates with them."""
        return self.k_hat <= self.threshold

    @property
    def effective(self) -> float:
        """Effective number of draws."""
        return float(1 / np.sum(self.weights**2))

    @property
    def log_evidence(self) -> float:
        """log p(x), by the mean of the smoothed ratios. Smoothing keeps those below the tail (at most the largest
        fifth) as they are, so the constant that normalised one of these is the constant of all."""
        ratios = log_ratios(self.evaluation)[0]
        reference = np.argsort(ratios)[3 * self.num_draws // 4]
        return float(ratios[reference] - self.log_weights[reference] - np.log(self.num_draws))

    def resample(self, num_samples: int, seed: int) -> Float[np.ndarray, "samples dim"]:
        """Draws picked in proportion to their weights, with replacement, in random order.

        Systematic: every draw is picked as often as its weight says, rounded up or down.
        """
        random = np.random.default_rng(seed)
        points = (random.random() + np.arange(num_samples)) / num_samples
        cumulative = np.cumsum(self.weights)
        picked = np.searchsorted(cumulative / cumulative[-1], points, side="right")
        return self.evaluation.draws[random.permutation(np.minimum(picked, self.num_draws - 1))]


def log_ratios(evaluation: Evaluation) -> tuple[Float64, int]:
    """log p(x, z) - log q(z), and at how many draws there is none."""
    ratios = evaluation.log_joint - evaluation.log_density
    failed = np.isnan(ratios) | np.isposinf(ratios)
    return np.where(failed, -np.inf, ratios), int(failed.sum())


def importance(evaluation: Evaluation) -> Importance:
    """Smooth the ratios of evaluated draws."""
    ratios, failed = log_ratios(evaluation)
    # Differences below this are rounding: of the log joint, and of sums over its rows.
    rounding = 1e-11 * (1 + np.abs(evaluation.log_joint[np.isfinite(evaluation.log_joint)]).max(initial=0.0))
    log_weights, k_hat = smooth(ratios, rounding)
    return Importance(evaluation, log_weights, k_hat, failed)


def smooth(ratios: Float64, rounding: float = 0.0) -> tuple[Float64, float]:
    """Normalised log weights with a smoothed tail, and k-hat."""
    positive = np.isfinite(ratios)
    if not positive.any():
        return np.full_like(ratios, -np.log(len(ratios))), float("inf")
    if positive.all() and np.ptp(ratios) <= rounding:
        return np.full_like(ratios, -np.log(len(ratios))), 0.0
    try:
        with np.errstate(all="ignore"):
            # It is written for leave-one-out, and takes the logarithm of the inverse ratios.
            smoothed, k_hat = array_stats.psislw(-ratios)
    except ValueError:  # a tail of equal values: most draws have weight 0, or the largest ratios are all the same
        smoothed, k_hat = ratios, np.inf
    if not np.isfinite(k_hat) or np.isnan(smoothed).any():
        smoothed, k_hat = ratios, np.inf
    return smoothed - np.logaddexp.reduce(smoothed), float(k_hat)
