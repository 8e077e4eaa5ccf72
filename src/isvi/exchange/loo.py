"""Leave-one-out cross-validation of a fit, by importance sampling: arviz-stats', with its correction for draws that are
not the posterior's.

Magnusson, Riis Andersen, Jonasson and Vehtari (2019), Bayesian leave-one-out cross-validation for large data, ICML.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from isvi.core.extras import import_extra
from isvi.exchange.pointwise import count, fitted_rows, pointwise_log_likelihood, take

if TYPE_CHECKING:
    from arviz_stats.utils import ELPDData
    from pandas import DataFrame

    from isvi.results.fit import Fit

MOST_VALUES = 2 * 10**7
"""Draws times rows that are looked at one by one: 160 MB. Of more rows, some are drawn at random."""
ROW = "row"
NAME = "log_likelihood"


def loo(fit: "Fit", num_samples: int | None = None, seed: int = 0) -> "ELPDData":
    """See :meth:`isvi.Fit.loo`."""
    import_extra("xarray_einstats", "loo", "Leave-one-out")  # arviz-stats needs it, and does not say so
    candidates = fit._weighted(num_samples, seed).candidates
    usable = np.isfinite(candidates.log_joint) & np.isfinite(candidates.log_proposal)
    draws, log_p, log_q = (a[usable] for a in (candidates.draws, candidates.log_joint, candidates.log_proposal))
    rows = fitted_rows(fit)
    size, most = count(rows), max(100, MOST_VALUES // len(draws))
    if size <= most:
        return _of(pointwise_log_likelihood(fit, draws, rows), log_p, log_q)
    chosen = np.sort(np.random.default_rng(seed).choice(size, most, replace=False))
    some = _of(pointwise_log_likelihood(fit, draws, take(rows, chosen)), log_p, log_q)
    point = _central(draws, log_p - log_q)
    everywhere = pointwise_log_likelihood(fit, point[None], rows)[0]
    return _extended(some, chosen, everywhere)


def compare_by_loo(fits: dict[str, "Fit"], num_samples: int | None, seed: int) -> "DataFrame":
    """arviz-stats' table, the best first."""
    found = {name: loo(fit, num_samples, seed) for name, fit in fits.items()}
    import arviz_stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it calls pandas in a way that pandas will drop
        return arviz_stats.compare(found)


def _of(values: Float[np.ndarray, "draws rows"], log_p: np.ndarray, log_q: np.ndarray) -> "ELPDData":
    import arviz_base
    import arviz_stats

    tree = arviz_base.from_dict({"log_likelihood": {NAME: values[None]}}, dims={NAME: [ROW]})
    return arviz_stats.loo_approximate_posterior(tree, log_p, log_q, pointwise=True)


def _central(draws: Float[np.ndarray, "draws dim"], ratios: np.ndarray) -> Float[np.ndarray, " dim"]:
    """The posterior mean, about."""
    weights = np.exp(ratios - ratios.max())
    return weights @ draws / weights.sum()


def _extended(some: "ELPDData", chosen: Int[np.ndarray, " some"], everywhere: Float[np.ndarray, " rows"]) -> "ELPDData":
    """From some rows to all, by the difference estimator: the log likelihood at the posterior mean is known for every
    row and nearly the same, so that only the difference between the two is extrapolated."""
    import xarray
    from arviz_stats.utils import ELPDData

    size, number = len(everywhere), len(chosen)
    values = np.asarray(some.elpd_i, float)
    difference = values - everywhere[chosen]
    elpd = everywhere.sum() + size * difference.mean()
    sampling_error = size * np.sqrt((1 - number / size) * difference.var(ddof=1) / number)
    squares = (everywhere**2).sum() + size * (values**2 - everywhere[chosen] ** 2).mean()
    # The variance of a sum of rows, of which some are known by a difference.
    spread = max(0.0, squares - (elpd**2 - sampling_error**2) / size)
    filled = np.full(size, np.nan)
    filled[chosen] = values
    k_hats = np.full(size, np.nan)
    k_hats[chosen] = np.asarray(some.pareto_k)
    return ELPDData(
        "loo",
        float(elpd),
        float(np.sqrt(spread)),
        float(some.p * size / number),
        some.n_samples,
        size,
        "log",
        some.warning,
        some.good_k,
        xarray.DataArray(filled, dims=[ROW]),
        xarray.DataArray(k_hats, dims=[ROW]),
        approx_posterior=True,
        subsampling_se=float(sampling_error),
        subsample_size=number,
        loo_subsample_observations=chosen,
        elpd_loo_approx=xarray.DataArray(everywhere, dims=[ROW]),
    )
