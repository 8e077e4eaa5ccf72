"""A fit as a DataTree, with the groups that ArviZ's functions look for."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from isvi.core.errors import ConfigurationError, require
from isvi.data.dataset import Dataset
from isvi.exchange.loo import NAME, ROW
from isvi.exchange.pointwise import columns, fitted_rows, pointwise_log_likelihood

if TYPE_CHECKING:
    from xarray import DataTree

    from isvi.results.fit import Fit


def to_datatree(
    fit: "Fit", num_samples: int, seed: int, sample_stats: bool, log_likelihood: bool, posterior_predictive: bool
) -> "DataTree":
    """See :meth:`isvi.Fit.to_datatree`."""
    import arviz_base

    groups: dict[str, dict[str, Any]] = {}
    if sample_stats or log_likelihood or posterior_predictive:
        draws = fit._evaluated(num_samples, seed).draws
        groups["posterior"] = _chained(fit._constrained(jnp.asarray(draws)))
    else:
        groups["posterior"] = _chained(fit.sample(num_samples, seed))
    if sample_stats:
        groups["sample_stats"] = _chained(_stats(fit, num_samples, seed))
    if log_likelihood:
        groups["log_likelihood"] = {NAME: pointwise_log_likelihood(fit, draws, fitted_rows(fit))[None]}
    if posterior_predictive:
        groups["posterior_predictive"] = _chained(fit._predicted(fit._latents(jnp.asarray(draws)), None, seed))
    predicted = set(groups.get("posterior_predictive", {}))
    more = fit.model.groups() if callable(fit.model.groups) else fit.model.groups
    groups |= _data_groups(fit, predicted) | {name: dict(group) for name, group in (more or {}).items()}
    attributes = {
        "inference_library": "isvi",
        "model_gradients": fit.gradients,
        "status": str(fit.status),
    }
    return arviz_base.from_dict(
        groups, attrs={"posterior": attributes}, dims=_dims(fit, groups), coords=fit.model.coords
    )


def _chained(values: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[None] for name, value in values.items()}


def _stats(fit: "Fit", num_samples: int, seed: int) -> dict[str, np.ndarray]:
    """Both log densities, in unconstrained space, and smoothed importance weights of the draws."""
    from isvi.results.weights.exploration import Candidates
    from isvi.results.weights.importance import importance

    evaluated = fit._evaluated(num_samples, seed)
    weighted = importance(Candidates.of(evaluated))
    return {"lp": evaluated.log_joint, "log_q": evaluated.log_density, "log_weight": weighted.log_weights}


def _data_groups(fit: "Fit", predicted: set[str]) -> dict[str, dict[str, np.ndarray]]:
    """The data's columns: observed if the model simulates them, constant otherwise."""
    data = fit.dataset
    if not isinstance(data, Dataset) or data.full is None or fit.model.groups is not None:
        return {}
    named = columns(fitted_rows(fit))
    groups = {
        "observed_data": {name: column for name, column in named.items() if name in predicted},
        "constant_data": {name: column for name, column in named.items() if name not in predicted},
    }
    return {group: found for group, found in groups.items() if found}


def _dims(fit: "Fit", groups: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The model's own names of axes; and of what has an entry per row, that of the rows."""
    given = {name: list(axes) for name, axes in (fit.model.dims or {}).items()}
    _require_axes(fit, given)
    known = {name for group in groups.values() for name in group}
    dims = {name: axes for name, axes in given.items() if name in known}
    size = None if fit.dataset is None else fit.dataset.size
    for group in ("log_likelihood", "posterior_predictive", "observed_data", "constant_data"):
        leading = 2 if group in ("log_likelihood", "posterior_predictive") else 0
        for name, value in groups.get(group, {}).items():
            if name not in dims and np.shape(value)[leading : leading + 1] == (size,):
                more = range(np.ndim(value) - leading - 1)
                dims[name] = [ROW, *(f"{name}_dim_{axis + 1}" for axis in more)]
    return dims


def _require_axes(fit: "Fit", given: dict[str, list[str]]) -> None:
    for name, latent in fit.model.latents.items():
        if name in given:
            require(
                len(given[name]) == len(latent.shape),
                ConfigurationError,
                f"dims of {name!r} must name its {len(latent.shape)} axes; got {given[name]}.",
            )
