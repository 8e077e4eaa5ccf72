"""What importance weights say about every entry of the latents."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from isvi.core.coordinates import entry_labels
from isvi.diagnosis.drift import ROUND_OFF
from isvi.results.weights.importance import Importance, log_ratios
from isvi.results.weights.smoothing import k_noise, smooth

PerEntry = Float[np.ndarray, " entries"]

MOST_K_HATS = 500
"""Entries whose own k-hat is computed: those that look most off, where there are more."""
MEAN_OFF, SD_OFF = 0.25, 1.25
"""A mean off by this many posterior sds, or an sd off by this factor, is more than is promised."""
ONE_IN = 20
"""Of so many sets of resampled draws, fewer than one has a mean that is off by more than is promised."""
NEARLY_EQUAL = 0.95
"""Where only q's own draws are weighed, and this share of them is effective, the shape of the tail says nothing: a q
that is all but exact has log ratios such as c (z^3 - 3 z), whose largest values fill it."""


@dataclass(frozen=True)
class Entries:
    """How far q is off, entry by entry, as the weights of the candidates see it.

    Attributes:
        names: labels such as ``w[3]``.
        mean_error: the posterior's mean minus q's, in the posterior's sds.
        sd_ratio: the posterior's sd over q's: above 1 where q is too narrow.
        k_hat: shape of the tail of weight times squared deviation, which is what the weighted variance is a mean of
            (the function-specific k-hat of Vehtari et al. 2024).
        error_noise: the larger of the standard errors of ``mean_error`` and of the logarithm of ``sd_ratio``.
        resampled_noise: the same, of the posterior's mean and sd alone: what resampled draws may be off by.
        trusted: whether weights and k-hats are such that all of this can be relied on.
    """

    names: list[str]
    mean_error: PerEntry
    sd_ratio: PerEntry
    k_hat: PerEntry
    error_noise: PerEntry
    resampled_noise: PerEntry
    trusted: bool

    @property
    def largest_noise(self) -> float:
        """What the standard errors of resampled draws may be: none of many entries should be off by chance."""
        return MEAN_OFF / float(np.sqrt(2 * np.log(ONE_IN * len(self.names))))

    @property
    def precise(self) -> bool:
        return bool(self.resampled_noise.max() <= self.largest_noise)

    def against(self, other: "Entries") -> "Entries":
        """How far off they have the posterior from where others have it."""
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch = self.sd_ratio / other.sd_ratio
        error = self.mean_error - other.mean_error / np.where(stretch > 0, stretch, 1.0)
        noise = np.hypot(self.error_noise, other.error_noise)
        return replace(self, mean_error=error, sd_ratio=stretch, error_noise=noise)

    def worst(self, limit: int) -> list[int]:
        """Rows by how far they are off: the mean in sds, the sd by its logarithm; by k-hat where neither is known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.maximum(np.abs(self.mean_error), np.abs(np.log(self.sd_ratio))) if self.trusted else self.k_hat
        return [int(row) for row in np.argsort(-np.nan_to_num(off, nan=-np.inf), kind="stable")[:limit]]

    def to_dict(self) -> dict[str, dict[str, Any]]:
        rows = zip(self.names, self.mean_error, self.sd_ratio, self.k_hat, strict=True)
        return {
            name: {
                "mean_error": number(error) if self.trusted else None,
                "sd_ratio": number(ratio) if self.trusted else None,
                "k_hat": number(k_hat),
            }
            for name, error, ratio, k_hat in rows
        }


def number(value: float | None) -> float | None:
    """As JSON can hold it: None for what is not finite."""
    return float(value) if value is not None and np.isfinite(value) else None


def flatten(draws: dict[str, np.ndarray]) -> tuple[list[str], Float[np.ndarray, "draws entries"]]:
    """Labels and values of all entries, from arrays with a leading axis."""
    names = [label for name, values in draws.items() for label in entry_labels(name, values.shape[1:])]
    return names, np.concatenate([np.reshape(v, (len(v), -1)).astype(np.float64) for v in draws.values()], axis=1)


def weigh_entries(draws: dict[str, np.ndarray], weighted: Importance) -> Entries:
    """Compare the posterior's moments with q's, both by weights of the same draws (with a leading axis)."""
    names, flat = flatten(draws)
    # A draw far outside may overflow in constrained space; it has no weight then.
    weights, own = weighted.weights, weighted.own_weights
    flat = np.where(np.isfinite(flat) & ((weights > 0) | (own > 0))[:, None], flat, own @ np.nan_to_num(flat))
    posterior, q = _Moments.of(flat, weights), _Moments.of(flat, own)
    varies = (posterior.sd > 0) & (q.sd > 0)
    error = np.where(varies, (posterior.mean - q.mean) / np.where(varies, posterior.sd, 1.0), 0.0)
    ratio = np.where(varies, posterior.sd / np.where(varies, q.sd, 1.0), 1.0)
    mean_pull, sd_pull = posterior.pulls(flat)
    own_mean_pull, own_sd_pull = q.pulls(flat)
    in_posterior_sds = np.where(varies, q.sd / np.where(varies, posterior.sd, 1.0), 0.0)
    noise = np.maximum(_length(mean_pull - own_mean_pull * in_posterior_sds), _length(sd_pull - own_sd_pull))
    resampled = np.maximum(_length(mean_pull), _length(sd_pull))
    k_hat = _k_hats(flat, posterior, weighted)
    entries = Entries(names, error, ratio, k_hat, noise, resampled, bearable(weighted, k_hat))
    return entries if entries.precise else replace(entries, trusted=False)


def off(entries: Entries, errors: float = 1.0) -> str | None:
    """What is off by more than it may be, or is within a standard error of that; with a negative number of standard
    errors, what is off by more than it may be even if the estimate is off by so many."""
    error = np.abs(entries.mean_error) + errors * entries.error_noise
    stretch = np.abs(np.log(np.maximum(entries.sd_ratio, 1e-300))) + errors * entries.error_noise
    mean, sd = int(np.argmax(error)), int(np.argmax(stretch))
    noise = entries.error_noise
    if error[mean] > MEAN_OFF:
        distance = f"{abs(entries.mean_error[mean]):.2f} ± {noise[mean]:.2f}"
        return f"the mean of {entries.names[mean]} is off by {distance} of the posterior's sds"
    if stretch[sd] > np.log(SD_OFF):
        ratio = entries.sd_ratio[sd]
        return f"the sd of {entries.names[sd]} is {ratio:.2f} ± {ratio * noise[sd]:.2f} times q's"
    return None


@dataclass(frozen=True)
class _Moments:
    """Weighted moments of every entry."""

    weights: Float[np.ndarray, " draws"]
    mean: PerEntry
    sd: PerEntry

    @classmethod
    def of(cls, flat: Float[np.ndarray, "draws entries"], weights: Float[np.ndarray, " draws"]) -> "_Moments":
        mean = weights @ flat
        sd = np.sqrt(weights @ (flat - mean) ** 2)
        return cls(weights, mean, np.where(sd > ROUND_OFF * np.abs(mean), sd, 0.0))

    def pulls(self, flat: Float[np.ndarray, "draws entries"]) -> tuple[np.ndarray, np.ndarray]:
        """How much every draw pulls at the mean, in sds, and at the logarithm of the sd; standard errors are their
        lengths."""
        deviations = (flat - self.mean) / np.where(self.sd > 0, self.sd, np.inf)
        return self.weights[:, None] * deviations, 0.5 * self.weights[:, None] * (deviations**2 - 1)


def _length(pulls: Float[np.ndarray, "draws entries"]) -> PerEntry:
    return np.sqrt(np.sum(pulls**2, axis=0))


def _k_hats(flat: np.ndarray, posterior: _Moments, weighted: Importance) -> PerEntry:
    """Of every entry's variance; beyond the first few hundred entries the k-hat of the weights stands for it."""
    ratios = log_ratios(weighted.candidates)
    k_hats = np.full(flat.shape[1], weighted.k_hat)
    heaviest = np.argsort(-_length(posterior.pulls(flat)[1]), kind="stable")[:MOST_K_HATS]
    for entry in heaviest:
        if posterior.sd[entry] > 0:
            with np.errstate(divide="ignore"):
                k_hats[entry] = smooth(ratios + 2 * np.log(np.abs(flat[:, entry] - posterior.mean[entry])))[1]
    return k_hats


def bearable(weighted: Importance, k_hat: PerEntry) -> bool:
    """Whether both the weights and the variances estimated with them have tails that this many draws can bear. The
    largest of several k-hats is allowed two thirds of their noise."""
    only_own = weighted.candidates.own == weighted.num_draws
    if only_own and weighted.effective >= NEARLY_EQUAL * weighted.num_draws:
        return True
    return bool(weighted.trusted and k_hat.max() <= weighted.threshold + 2 / 3 * k_noise(weighted.num_draws))
