"""Importance weights of draws from an approximation, and from around it, smoothed (PSIS), and what they say.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25(72); for variational
inference Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work?, ICML. The ratios p(x, z) / q(z) are taken in
the coordinates of the approximation; a change of coordinates multiplies both densities by the same Jacobian, so
they are the same in any.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from isvi.results.weights.evaluation import Float64
from isvi.results.weights.exploration import Candidates
from isvi.results.weights.smoothing import k_threshold, smooth


@dataclass(frozen=True)
class Importance:
    """Smoothed, self-normalised importance weights of evaluated draws.

    Attributes:
        candidates: the draws and their log densities.
        log_weights: normalised to sum to one.
        k_hat: shape of the ratios' tail: infinite if no tail could be fitted, 0 if all ratios are equal.
        failed: draws of q at which the model gave NaN or +inf. They count with weight 0.
    """

    candidates: Candidates
    log_weights: Float64
    k_hat: float
    failed: int

    @property
    def num_draws(self) -> int:
        return len(self.log_weights)

    @cached_property
    def weights(self) -> Float64:
        return np.exp(self.log_weights)

    @cached_property
    def own_weights(self) -> Float64:
        """Weights that make the same draws those of q."""
        with np.errstate(invalid="ignore"):
            ratios = self.candidates.log_density - self.candidates.log_proposal
        finite = np.where(np.isfinite(ratios), ratios, -np.inf)
        if not np.isfinite(finite).any():
            return np.full(self.num_draws, 1 / self.num_draws)
        return np.exp(finite - np.logaddexp.reduce(finite))

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
        ratios = log_ratios(self.candidates)
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
        return self.candidates.draws[random.permutation(np.minimum(picked, self.num_draws - 1))]


def log_ratios(candidates: Candidates) -> Float64:
    """log p(x, z) minus the log density that the draws are from; -inf where the model fails."""
    with np.errstate(invalid="ignore"):
        ratios = candidates.log_joint - candidates.log_proposal
    return np.where(np.isfinite(ratios), ratios, -np.inf)


def importance(candidates: Candidates) -> Importance:
    """Smooth the ratios of evaluated draws."""
    own = candidates.log_joint[: candidates.own]
    failed = int((np.isnan(own) | np.isposinf(own)).sum())
    # What a float64 of this size can be wrong by: if the largest ratios differ by no more, they are equal. (Draws far
    # outside, where the log joint may be of any size, are not among these.)
    ratios = log_ratios(candidates)
    upper = candidates.log_joint[np.isfinite(ratios) & (ratios >= np.median(ratios))]
    rounding = 16 * np.finfo(np.float64).eps * (1 + np.abs(upper).max(initial=0.0))
    log_weights, k_hat = smooth(ratios, rounding)
    return Importance(candidates, log_weights, k_hat, failed)
