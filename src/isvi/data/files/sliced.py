"""Sources whose arrays give rows by slicing: memory-mapped files, Zarr arrays."""

import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from isvi.core.errors import DataError, require
from isvi.data.arrays import checked_values, common_length, require_numbers
from isvi.data.source import ROWS_AT_ONCE, WINDOW_BYTES, Source, checked_window_bytes, row_spec
from isvi.data.tables import as_array

BLOCK_BYTES = 1_000_000
"""Rows that are read in one go, of arrays that are not stored in pieces themselves. A window is put together from
such blocks of the whole file, so that it is a fair sample of it."""


class Column(NamedTuple):
    """An array that is read by slices, and what to call it in messages."""

    array: Any
    name: str


class SlicedArrays(Source):
    """Arrays with a common number of rows, read by slices.

    Args:
        columns: a dict or tuple of :class:`Column`, or one.
        rows_per_block: rows stored together, or None for blocks of about a megabyte.
        window_bytes: how much is held in memory together, about.
    """

    def __init__(self, columns: Any, rows_per_block: int | None = None, window_bytes: int = WINDOW_BYTES) -> None:
        self._columns = columns
        self.window_bytes = checked_window_bytes(window_bytes)
        flat = self._flat
        require(len(flat) > 0, DataError, "data is empty: it names no arrays.")
        for column in flat:
            require_numbers(np.dtype(column.array.dtype), column.name)
            require(len(column.array.shape) >= 1, DataError, f"{column.name} holds a single number, not rows.")
        self.num_rows = common_length({column.name: int(column.array.shape[0]) for column in flat})
        require(self.num_rows > 0, DataError, f"data is empty: {flat[0].name} has 0 rows.")
        block = rows_per_block or max(1, BLOCK_BYTES // self.row_bytes)
        starts = np.arange(0, self.num_rows, block)
        self.block_rows = np.diff(np.append(starts, self.num_rows))
        self._starts = starts

    @property
    def _flat(self) -> list[Column]:
        return jax.tree.leaves(self._columns, is_leaf=_is_column)

    @property
    def layout(self) -> Any:
        return jax.tree.map(
            lambda column: row_spec(tuple(column.array.shape[1:]), column.array.dtype),
            self._columns,
            is_leaf=_is_column,
        )

    def chunks(self, block: int, start: int, stop: int) -> Iterator[Any]:
        begin = int(self._starts[block])
        for first in range(begin + start, begin + stop, ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, begin + stop)
            yield jax.tree.map(lambda c, f=first, n=last: self._read(c, f, n), self._columns, is_leaf=_is_column)

    def release(self) -> None:
        """Give mapped pages back: they would count as memory of this process until the system wants them."""
        for column in self._flat:
            mapped = getattr(column.array, "_mmap", None)
            private = getattr(column.array, "mode", "c") == "c"  # whose changes would be lost
            if mapped is not None and not private and hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)

    @staticmethod
    def _read(column: Column, first: int, last: int) -> np.ndarray:
        try:
            rows = as_array(column.array[first:last], column.name, first)
        except DataError:
            raise
        except Exception as error:
            raise DataError(
                f"{column.name} cannot be read at rows {first} to {last}: {type(error).__name__}: {error}. The file "
                "may be damaged."
            ) from error
        require(
            len(rows) == last - first,
            DataError,
            f"{column.name} gave {len(rows)} rows for rows {first} to {last}: it ends too early, or changed meanwhile.",
        )
        return checked_values(rows, column.name, first)


def _is_column(node: Any) -> bool:
    return isinstance(node, Column)
