"""From what the user passed as data to mini-batches, in memory or not."""

from collections.abc import Mapping
from typing import Any

from isvi.data.arrays import checked_arrays
from isvi.data.dataset import Dataset
from isvi.data.files.npy import from_maps, is_large_map
from isvi.data.groups.grouped import Grouped
from isvi.data.groups.grouped_files import GroupedFiles
from isvi.data.source import Source
from isvi.data.stream import Stream
from isvi.data.tables import as_columns

DEFAULT_BATCH_SIZE = 1000

Data = Dataset | Stream
"""Mini-batches, all in memory or not."""


def as_source(data: Any) -> Any:
    """Tables as their columns, large memory-mapped arrays as a source; anything else as it is."""
    data = as_columns(data)
    return from_maps(data) if not isinstance(data, Source) and is_large_map(data) else data


def first_rows(data: Any, count: int) -> Any:
    """The first rows of data that are not None, checked, in the order in which they came."""
    if isinstance(data, Source):
        return data.head(count)
    if isinstance(data, Mapping):
        data = {name: column[:count] for name, column in data.items()}
    else:
        data = tuple(column[:count] for column in data) if isinstance(data, tuple) else data[:count]
    return checked_arrays(data, missing=True)[0]


def open_data(
    data: Any,
    batch_size: int | None = None,
    shuffle_seed: int | None = 0,
    few_rows: int = DEFAULT_BATCH_SIZE,
    missing: bool = False,
) -> Data:
    """Cut data into mini-batches, by default of 1,000 rows; up to ``few_rows`` in memory are one mini-batch. Values in
    memory may be NaN if they may be ``missing``."""
    data = as_source(data)
    if data is None:
        return Dataset.from_arrays(None, batch_size)
    if isinstance(data, (Grouped, GroupedFiles)):
        usual = data.num_rows if data.num_rows <= few_rows else DEFAULT_BATCH_SIZE
        return data.cut(usual if batch_size is None else batch_size, shuffle_seed)
    if isinstance(data, Source):
        return Stream(data, min(data.num_rows, DEFAULT_BATCH_SIZE) if batch_size is None else batch_size, shuffle_seed)
    if batch_size is None:
        _, rows = checked_arrays(data, missing)
        batch_size = rows if rows <= few_rows else min(rows, DEFAULT_BATCH_SIZE)
    return Dataset.from_arrays(data, batch_size, shuffle_seed, missing)
