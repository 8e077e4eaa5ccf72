"""``.npy`` files and memory-mapped arrays."""

import mmap
import pathlib
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, DataError, first_line
from isvi.data.files.sliced import Column, SlicedArrays
from isvi.data.source import WINDOW_BYTES, file_stamps

Path = str | PathLike

RESIDENT_BYTES = 256_000_000
"""Memory-mapped arrays up to this size, in all, are simply read."""


class Npy(SlicedArrays):
    """Arrays in ``.npy`` files, of which only a part is in memory at any time.

    ``isvi.fit(model, isvi.data.Npy({"x": "x.npy", "y": "y.npy"}))``. The files are read in blocks of about a megabyte,
    in an order that the fit's seed shuffles. Memory-mapped arrays in a dict, as ``np.load(path, mmap_mode="r")``
    gives them, may also be passed to :func:`isvi.fit` directly.

    Args:
        arrays: paths of files, or :class:`numpy.memmap` arrays: in a dict (or a tuple), or one. The model
            receives mini-batches in the same structure.
        window_bytes: how much is held in memory together, about. Three times as much is needed.
    """

    def __init__(self, arrays: Any, *, window_bytes: int = WINDOW_BYTES) -> None:
        if isinstance(arrays, Mapping):
            columns: Any = {str(name): _column(value, f"{name!r}") for name, value in arrays.items()}
        elif isinstance(arrays, tuple):
            columns = tuple(_column(value, f"array {i}") for i, value in enumerate(arrays))
        else:
            columns = _column(arrays, "the array")
        super().__init__(columns, window_bytes=window_bytes)
        self._when_opened = self._stamps()

    @property
    def identity(self) -> Any:
        # A file that was replaced since it was mapped is still the old one here; one that was overwritten is not.
        stamps = [self._when_opened, self._stamps()]
        return None if None in stamps else {"npy": stamps}

    @property
    def files(self) -> Sequence[pathlib.Path]:
        mapped = (getattr(column.array, "filename", None) for column in self._flat)
        return [pathlib.Path(file) for file in dict.fromkeys(mapped) if file is not None]

    def _stamps(self) -> list[Any] | None:
        found = [_stamp(column.array) for column in self._flat]
        return None if None in found else found


def _column(value: Any, name: str) -> Column:
    if isinstance(value, (str, PathLike)):
        return Column(_opened(value), f"{name} ({value})")
    if isinstance(value, np.ndarray):
        file = getattr(value, "filename", None)
        return Column(value, name if file is None else f"{name} ({file})")
    raise ConfigurationError(
        f"isvi.data.Npy takes paths of .npy files, or memory-mapped arrays; {name} is a {type(value).__name__}."
    )


def _stamp(array: np.ndarray) -> list[Any] | None:
    """Which part of which file an array is; None if that cannot be told, or its numbers may have been changed here."""
    if not isinstance(array, np.memmap) or not isinstance(array.base, mmap.mmap):
        return None  # a view does not know which part of the file it sees
    if array.mode != "r" or array.filename is None:
        return None
    stamps = file_stamps([array.filename])
    return stamps and [*stamps, array.offset, array.shape, array.strides, array.dtype.str]


def _opened(path: Path) -> np.ndarray:
    try:
        opened = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # its header is parsed as Python, which may end in any way
        raise DataError(f"{path} cannot be opened as a .npy file: {first_line(error)}") from error
    if not isinstance(opened, np.ndarray):
        opened.close()
        raise DataError(f"{path} holds several arrays (.npz). Save each with numpy.save, in a file of its own.")
    return opened


def is_large_map(data: Any) -> bool:
    """Whether data in a dict, a tuple or one array are memory-mapped, and too large to be simply read."""
    arrays = data.values() if isinstance(data, Mapping) else data if isinstance(data, tuple) else (data,)
    mapped = [array for array in arrays if isinstance(array, np.memmap)]
    return len(mapped) > 0 and sum(array.nbytes for array in mapped) > RESIDENT_BYTES


def from_maps(data: Any) -> SlicedArrays:
    """Data of which some arrays are memory-mapped; the others are taken as they are."""
    if isinstance(data, Mapping):
        return Npy({name: np.asanyarray(column) for name, column in data.items()})
    return Npy(tuple(np.asanyarray(column) for column in data) if isinstance(data, tuple) else data)
