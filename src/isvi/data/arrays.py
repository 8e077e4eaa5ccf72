"""Checking what the user passed as data, before anything is computed from it."""

import logging
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.errors import DataError, require
from isvi.data.tables import as_array, as_columns

log = logging.getLogger("isvi")


def checked_arrays(data: Any, missing: bool = False) -> tuple[Any, int]:
    """The data as a pytree of NumPy arrays with a common number of rows, and that number.

    Takes a dict or tuple of arrays (NumPy, JAX, lists, columns of pandas, polars or Arrow), one array, or a table of
    one of these libraries. NaN is refused unless values may be ``missing``.
    """
    data = as_columns(data)
    if isinstance(data, Mapping):
        arrays: Any = {name: _checked(column, f"data[{name!r}]", missing) for name, column in data.items()}
    elif isinstance(data, tuple):
        arrays = tuple(_checked(column, f"data[{i}]", missing) for i, column in enumerate(data))
    else:
        arrays = _checked(data, "data", missing)
    lengths = _named_lengths(arrays)
    require(len(lengths) > 0, DataError, "data is empty: it holds no arrays. Pass None for a model without data.")
    rows = common_length(lengths, " Constants that are not per row belong in the model, not in the data.")
    require(rows > 0, DataError, "data is empty: the arrays have 0 rows.")
    return arrays, rows


def common_length(lengths: Mapping[str, int], advice: str = "") -> int:
    """How many rows all arrays have; an error with the names of those that differ."""
    require(
        len(set(lengths.values())) == 1,
        DataError,
        "All arrays must have the same number of rows (the first axis); got "
        + ", ".join(f"{name}: {length}" for name, length in lengths.items())
        + f".{advice}",
    )
    return next(iter(lengths.values()))


def _named_lengths(arrays: Any) -> dict[str, int]:
    if isinstance(arrays, dict):
        return {f"data[{name!r}]": len(array) for name, array in arrays.items()}
    if isinstance(arrays, tuple):
        return {f"data[{i}]": len(array) for i, array in enumerate(arrays)}
    return {"data": len(arrays)}


def _checked(column: Any, name: str, missing: bool) -> np.ndarray:
    try:
        array = as_array(column, name)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(
            f"{name} must be an array with rows of equal shape; numpy could not make one of it: {error}. "
            "Pass several arrays as a dict or a tuple, not as a list."
        ) from None
    require_numbers(array.dtype, name)
    require(array.ndim >= 1, DataError, f"{name} must be an array with rows; got the scalar {column!r}.")
    if array.dtype.kind in "iu" and array.dtype.itemsize < dtype_in_jax(array.dtype).itemsize:
        log.info("%s holds %s, in which 2 * y - 1 may wrap around: taken as longer integers", name, array.dtype)
    return checked_values(array, name, missing=missing)


def require_numbers(dtype: np.dtype, name: str) -> None:
    """Refuse what is neither numbers nor booleans."""
    require(
        dtype.kind in "fiub",
        DataError,
        f"{name} must hold numbers or booleans; got dtype {dtype}. "
        "Encode categories as integers first (pandas: column.cat.codes).",
    )


def checked_values(array: np.ndarray, name: str, first_row: int | None = None, missing: bool = False) -> np.ndarray:
    """Numbers in the precision that JAX uses, or an error that says which of them cannot be used.

    ``first_row`` is the number of the first row, where the array is a part of something longer.
    """
    if array.dtype.kind == "f":
        _require_finite(array, name, first_row, missing)
    return _in_jax_precision(array, name)


def _require_finite(array: np.ndarray, name: str, first_row: int | None, missing: bool) -> None:
    # A sum is finite only if all its terms are, and costs a fraction of looking at each.
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):
            return
    finite = ~np.isinf(array) if missing else np.isfinite(array)
    if finite.all():
        return
    bad = np.argwhere(~finite)
    row, *index = (int(i) for i in bad[0])
    row += first_row or 0
    where = ", ".join(str(i) for i in (row, *index))
    among = "in all" if first_row is None else "in the rows that were read with it"
    raise DataError(
        f"{name} holds {array[tuple(bad[0])]} at row {row} (index [{where}]), and "
        f"{len(bad)} non-finite value(s) {among}. Drop or impute these rows before fitting."
    )


def dtype_in_jax(dtype: Any) -> np.dtype:
    """What rows of this type are given to the model as: in JAX's precision, and no integers that wrap around. In
    ``2 * y - 1`` a 0 of type uint8 becomes 255, and of uint32 4,294,967,295; int32 holds what both mean."""
    dtype = np.dtype(dtype)
    if dtype.kind == "u" or (dtype.kind == "i" and dtype.itemsize < 4):
        dtype = np.dtype(np.int32 if dtype.itemsize < 4 else np.int64)
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def _in_jax_precision(array: np.ndarray, name: str) -> np.ndarray:
    """Cast to what the model will receive, but never let an integer or a large float change its value silently."""
    dtype = dtype_in_jax(array.dtype)
    if dtype == array.dtype:
        return array
    if array.dtype.kind in "iu":
        limits = jnp.iinfo(dtype)
        require(
            array.size == 0 or (array.min() >= limits.min and array.max() <= limits.max),
            DataError,
            f"{name} holds integers outside the range of {dtype}. Rescale them, or enable 64 bits with "
            "jax.config.update('jax_enable_x64', True).",
        )
    with np.errstate(over="ignore"):  # told below, in more words
        cast = array.astype(dtype)
    if array.dtype.kind == "f" and np.isinf(cast).any():
        raise DataError(
            f"{name} holds values too large for {dtype} (largest magnitude {np.abs(array).max():.3g}). Rescale "
            "them, or enable 64 bits with jax.config.update('jax_enable_x64', True)."
        )
    return cast
