"""Rows with missing values (NaN): the model's own business, if it masks or imputes them; an error otherwise."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from isvi.core.compiling import compiled_once
from isvi.core.errors import DataError
from isvi.data.arrays import checked_arrays
from isvi.data.source import Source
from isvi.model.external import ExternalModel
from isvi.model.model import Model
from isvi.model.rows_check import ROWS, first_draw


def check_missing(model: Model, data: Any, alone: bool, around: Mapping[str, Any]) -> None:
    """Raise the error that names the missing values, unless the log likelihood of their rows and its gradient are
    finite at a draw near the start.

    Args:
        alone: whether all rows are one mini-batch: then they are looked at together.
        around: constrained values of latents where the fit starts.
    """
    if data is None or isinstance(data, Source) or isinstance(model, ExternalModel):
        return  # sources are checked as they are read; what is outside JAX sees its rows as they came
    arrays, _ = checked_arrays(data, missing=True)
    holes = _rows_with_holes(arrays)
    if not holes.any() or _finite(model, arrays if alone else _some(arrays, holes), around):
        return
    try:
        checked_arrays(data)
    except DataError as error:
        raise DataError(
            f"{error} Or let the model mask or impute them: now its log likelihood or its gradient is not finite there "
            "(to keep NaN out of a gradient, replace it by jnp.where before computing with it, too)."
        ) from None


def _rows_with_holes(arrays: Any) -> np.ndarray:
    found = [np.isnan(leaf).reshape(len(leaf), -1).any(axis=1) for leaf in jax.tree.leaves(arrays) if _has_holes(leaf)]
    return np.any(found, axis=0) if found else np.zeros(1, bool)


def _has_holes(leaf: np.ndarray) -> bool:
    with np.errstate(all="ignore"):  # a sum is a number only if all its terms are
        return leaf.dtype.kind == "f" and bool(np.isnan(leaf.sum()))


def _some(arrays: Any, chosen: np.ndarray) -> Any:
    numbers = np.flatnonzero(chosen)[:ROWS]
    return jax.tree.map(lambda leaf: leaf[numbers], arrays)


def _finite(model: Model, rows: Any, around: Mapping[str, Any]) -> bool:
    assert model.log_likelihood is not None
    value_and_gradient = compiled_once(jax.value_and_grad(model.log_likelihood))
    found = jax.device_get(value_and_gradient(first_draw(model, around), rows))
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(found))
