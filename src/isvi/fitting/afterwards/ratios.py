"""Of two approximations, which is better? By log p(x, z) - log q(z) of draws of theirs."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from isvi.results.weights.smoothing import k_noise, k_threshold, smooth

STANDARD_ERRORS = 2.0
"""By which an ELBO must be higher."""
NEARLY_EQUAL = 0.95
"""Where this share of the draws is effective, the shape of the weights' tail says nothing."""


@dataclass(frozen=True)
class Ratios:
    """log p(x, z) - log q(z) of draws, in groups that may depend on each other, with weights that make them q's."""

    values: Float[np.ndarray, "groups draws"]
    weights: Float[np.ndarray, "groups draws"] | None = None

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.values).all())

    @cached_property
    def shares(self) -> Float[np.ndarray, "groups draws"]:
        return np.full_like(self.values, 1 / self.values.size) if self.weights is None else self.weights

    @property
    def mean(self) -> float:
        """The ELBO."""
        return float(np.sum(self.shares * self.values))

    @property
    def error(self) -> float:
        """Its standard error."""
        return float(np.sqrt(np.sum(np.sum(self.shares * (self.values - self.mean), axis=1) ** 2)))

    @cached_property
    def _smoothed(self) -> tuple[np.ndarray, float]:
        return smooth(self.values.ravel())

    @property
    def importance(self) -> Float[np.ndarray, " draws"]:
        """Smoothed importance weights, which sum to 1."""
        return np.exp(self._smoothed[0])

    @property
    def k_hat(self) -> float:
        return self._smoothed[1]

    @property
    def effective(self) -> float:
        """The effective share of the draws, by their importance weights."""
        return float(np.exp(-np.logaddexp.reduce(2 * self._smoothed[0]))) / self.values.size

    def no_worse_than(self, other: "Ratios") -> bool:
        """Whether no fewer of the draws are effective, and the tail of their weights is no heavier, beyond its noise,
        where it is not such that they can be trusted anyway."""
        most = max(other.k_hat + k_noise(self.values.size), k_threshold(self.values.size))
        return self.effective >= NEARLY_EQUAL or (self.effective >= other.effective and self.k_hat <= most)


def compared(before: Ratios, after: Ratios) -> tuple[bool, str]:
    """Whether a bent q is better than the Gaussian before it, and in words."""
    if not after.finite:
        return False, "the model is not finite where it reaches"
    gain, error = after.mean - before.mean, float(np.hypot(after.error, before.error))
    words = (
        f"by {after.values.size:,} draws that it was not fitted to, its ELBO is {gain:+.2f} ± {error:.2f} nats from "
        f"the Gaussian's, {after.effective:.0%} of them are effective (of the Gaussian's, {before.effective:.0%})"
    )
    if after.effective < NEARLY_EQUAL:
        words += f", and k-hat is {after.k_hat:.2f} ({before.k_hat:.2f})"
    return bool(gain > STANDARD_ERRORS * error) and after.no_worse_than(before), words
