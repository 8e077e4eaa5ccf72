"""What importance weights say about every entry of what is reported."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from isvi.core.coordinates import entry_labels
from isvi.fitting.importance import Importance, k_noise, log_ratios, smooth


@dataclass(frozen=True)
class Entries:
    """How far q is off, entry by entry, as its importance weights see it.

    Attributes:
        names: labels such as ``w[3]``.
        mean_error: the weighted mean minus q's own (of the same draws), in q's sds.
        sd_ratio: the weighted sd over q's: above 1 where q is too narrow.
        k_hat: shape of the tail of weight times squared deviation, which is what the weighted variance is a mean of
            (the function-specific k-hat of Vehtari et al. 2024). For the weights alone it would be the same number in
            every row. An entry far above the joint k-hat is one along which q is too narrow.
        trusted: whether the k-hats are low enough for the first two to be relied on.
    """

    names: list[str]
    mean_error: Float[np.ndarray, " entries"]
    sd_ratio: Float[np.ndarray, " entries"]
    k_hat: Float[np.ndarray, " entries"]
    trusted: bool

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


def weigh_entries(draws: dict[str, np.ndarray], weighted: Importance) -> Entries:
    """Compare the weighted and the plain moments of reported draws (with a leading axis)."""
    names = [label for name, values in draws.items() for label in entry_labels(name, values.shape[1:])]
    flat = np.concatenate([np.reshape(v, (len(v), -1)).astype(np.float64) for v in draws.values()], axis=1)
    mean, sd = flat.mean(axis=0), flat.std(axis=0)
    # Reported quantities may be constant, such as the diagonal of a correlation matrix.
    deviations = (flat - mean) / np.where(sd > 0, sd, 1.0)
    error = weighted.weights @ deviations
    ratio = np.where(sd > 0, np.sqrt(np.maximum(weighted.weights @ deviations**2 - error**2, 0)), 1.0)
    with np.errstate(divide="ignore"):
        log_moments = log_ratios(weighted.evaluation)[0][:, None] + 2 * np.log(np.abs(deviations))
    k_hat = [
        smooth(column)[1] if spread > 0 else weighted.k_hat for column, spread in zip(log_moments.T, sd, strict=True)
    ]
    return Entries(names, error, ratio, np.array(k_hat), _trusted(weighted, max(k_hat)))


def _trusted(weighted: Importance, largest: float) -> bool:
    """Whether both the weights and the variances estimated with them have tails that this many draws can bear.

    The k-hat of the weights alone misses what matters in a few dimensions: with mean-field on five regression
    coefficients whose sds it halves (posteriordb's sblrc) it comes out anywhere between 0.5 and 1.1, and that of
    some entry's variance always above 0.8. The largest of several k-hats is allowed two thirds of their noise.

    Conversely a Gaussian q has k near 1 for every posterior with heavier tails, however little mass there is in them
    (kilpisjarvi with FullRank). So that is tolerated where nine tenths of the draws are effective.
    """
    nearly_equal = weighted.effective >= 0.9 * weighted.num_draws and weighted.k_hat < 1
    entries_bear_it = largest <= weighted.threshold + 2 / 3 * k_noise(weighted.num_draws)
    return bool((weighted.trusted or nearly_equal) and entries_bear_it)
