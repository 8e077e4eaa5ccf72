"""Pareto smoothing of importance ratios, and the shape of their tail.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25(72).
"""

import numpy as np

from isvi.results.weights.evaluation import Float64

FEWEST_FOR_A_TAIL = 25
"""The tail is the largest fifth of few draws, and fitted to five at least."""


FLAT_TAIL = 0.01
"""Nats. If the largest ratios differ by no more, they have reached their bound, and there is no tail to fit: rounding
may have made them equal."""


def tail_length(num_draws: int) -> int:
    """How many of the largest ratios the tail is fitted to."""
    return int(np.ceil(min(num_draws / 5, 3 * np.sqrt(num_draws))))


def k_threshold(num_draws: int) -> float:
    """The largest k-hat at which this many draws give usable estimates (Vehtari et al. 2024)."""
    return min(1 - 1 / np.log10(num_draws), 0.7)


def k_noise(num_draws: int) -> float:
    """About the standard error of a k-hat near its threshold, from the number of draws that the tail is fitted to."""
    return (1 + k_threshold(num_draws)) / np.sqrt(tail_length(num_draws))


def smooth(ratios: Float64, rounding: float = 0.0) -> tuple[Float64, float]:
    """Normalised log weights with a smoothed tail, and k-hat."""
    from arviz_stats.base import array_stats  # takes as long to import as JAX, and a fit does not need it

    positive = np.isfinite(ratios)
    if not positive.any():
        return np.full_like(ratios, -np.log(len(ratios))), float("inf")
    ratios = ratios - ratios[positive].max()  # first: sums of numbers of size 1e13 have no digits left for weights
    if positive.all() and np.ptp(ratios) <= rounding:
        return np.full_like(ratios, -np.log(len(ratios))), 0.0
    largest = np.sort(ratios)[-tail_length(len(ratios)) :]
    if np.isfinite(largest).all() and np.ptp(largest) <= max(FLAT_TAIL, rounding):
        return ratios - np.logaddexp.reduce(ratios), 0.0
    try:
        with np.errstate(all="ignore"):
            # It is written for leave-one-out, and takes the logarithm of the inverse ratios.
            smoothed, k_hat = array_stats.psislw(-ratios)
    except ValueError:  # a tail of equal values: most draws have weight 0, or the largest ratios are all the same
        smoothed, k_hat = ratios, np.inf
    if not np.isfinite(k_hat) or np.isnan(smoothed).any():
        smoothed, k_hat = ratios, np.inf
    return smoothed - np.logaddexp.reduce(smoothed), float(k_hat)
