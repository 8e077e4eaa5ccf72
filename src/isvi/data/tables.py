"""Tables of other libraries, as arrays by name: frames of pandas and polars, tables of Arrow."""

from typing import Any

import numpy as np

from isvi.core.errors import DataError, require


def as_columns(data: Any) -> Any:
    """A table as a dict of its columns; anything else as it is."""
    kind = type(data)
    if hasattr(kind, "column_names") and hasattr(kind, "schema"):  # a table or a record batch of Arrow
        return _named(data, list(data.column_names))
    if hasattr(kind, "columns") and hasattr(kind, "to_numpy"):
        return _named(data, list(data.columns))
    require(
        not (hasattr(kind, "collect") and hasattr(kind, "collect_schema")),
        DataError,
        "a lazy frame has no rows yet: pass frame.collect(), or isvi.data.Parquet(...) for files larger than memory.",
    )
    return data


def _named(table: Any, names: list[Any]) -> dict[str, Any]:
    """Columns by name. Two of one name would be one matrix, or two columns of which one is lost."""
    shown = [str(name) for name in names]
    twice = sorted({name for name in shown if shown.count(name) > 1}) if len(set(shown)) < len(shown) else []
    require(
        not twice,
        DataError,
        f"the table has several columns called {', '.join(map(repr, twice[:5]))}. Rename them, or leave some out.",
    )
    return {text: table[name] for text, name in zip(shown, names, strict=True)}


def as_array(column: Any, name: str, first_row: int | None = None) -> np.ndarray:
    """An array of NumPy's, or an error if that would lose which values are missing.

    ``first_row`` is the number of the first row, where the column is a part of something longer.
    """
    missing = _missing(column)
    if missing is not None and missing.any():
        row = int(np.argwhere(missing)[0][0]) + (first_row or 0)
        raise DataError(
            f"{name} has no value at row {row} (masked or null), and {int(missing.sum()):,} missing value(s) in all. "
            "Drop or impute these rows before fitting."
        )
    return np.asarray(column)


def _missing(column: Any) -> np.ndarray | None:
    """Where a column says that it has no value; None if it cannot say so. (NaN is a value, which is refused later.)"""
    if isinstance(column, np.ma.MaskedArray):
        return np.ma.getmaskarray(column)
    if isinstance(column, np.ndarray) or not hasattr(column, "to_numpy"):
        return None
    if hasattr(column, "null_count"):  # Arrow tells the number, polars is asked for it
        count = column.null_count() if callable(column.null_count) else column.null_count
        return np.asarray(column.is_null()) if count else None
    return None if isinstance(getattr(column, "dtype", None), np.dtype) else np.asarray(column.isna())
