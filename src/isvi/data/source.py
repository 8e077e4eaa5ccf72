"""Where rows come from that are not in memory: what every source can do."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np

from isvi.core.errors import ConfigurationError, require
from isvi.data.arrays import dtype_in_jax

WINDOW_BYTES = 64_000_000
"""Size of a window, by default: long to read compared to what starting to read costs, small next to the memory
of any machine, also three at a time."""

ROWS_AT_ONCE = 16_384
"""Rows read in one go: a few megabytes, so that what a window needs beside itself stays small."""


class Source(ABC):
    """Rows in blocks: parts of files that are read in one go, in any order.

    Attributes:
        num_rows: rows in all.
        block_rows: rows of each block.
        in_order: whether rows can only be read from the first to the last.
        window_bytes: how much of it is held in memory together, about.
    """

    num_rows: int
    block_rows: np.ndarray
    in_order: bool = False
    window_bytes: int

    @property
    @abstractmethod
    def layout(self) -> Any:
        """The structure of the data, with shape and dtype of one row of each array, in JAX's precision."""

    @abstractmethod
    def chunks(self, block: int, start: int, stop: int) -> Iterator[Any]:
        """Some rows of a block, checked, in consecutive pieces with the structure of ``layout``."""

    @property
    def identity(self) -> Any:
        """What tells its rows from all others, as JSON; None if nothing does. For :class:`isvi.data.Cached`."""
        return None

    @property
    def files(self) -> Sequence[Path]:
        """Files on this machine that its rows are in, all or some of them, to tell them from others."""
        return ()

    def release(self) -> None:  # noqa: B027 (most sources hold nothing)
        """Let go of what was read. Called after every window."""

    def close(self) -> None:  # noqa: B027 (most sources hold nothing)
        """Let go of everything; it is opened again when it is asked for."""

    def head(self, num_rows: int) -> Any:
        """The first rows, at least one, in the order in which they are stored."""
        chunks: list[Any] = []
        missing = min(max(1, int(num_rows)), self.num_rows)
        for block, size in enumerate(self.block_rows):
            if missing:
                chunks += self.chunks(block, 0, min(missing, int(size)))
                missing -= min(missing, int(size))
        self.close()
        return jax.tree.map(lambda *pieces: np.concatenate(pieces), *chunks)

    @property
    def row_bytes(self) -> int:
        return sum(spec.dtype.itemsize * int(np.prod(spec.shape)) for spec in jax.tree.leaves(self.layout))


def row_spec(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """One row of an array, as the model receives it."""
    return jax.ShapeDtypeStruct(shape, dtype_in_jax(dtype))


def file_stamps(paths: Iterable[str | PathLike]) -> list[Any] | None:
    """Path, size and time of the last change of files, which tell them from others; None if one is not there."""
    try:
        found = [(Path(path).absolute(), Path(path).stat()) for path in paths]
    except OSError:
        return None
    return [[str(path), status.st_size, status.st_mtime_ns] for path, status in found]


def checked_window_bytes(window_bytes: int) -> int:
    require(
        isinstance(window_bytes, (int, np.integer)) and window_bytes >= 1,
        ConfigurationError,
        f"window_bytes must be a positive number of bytes; got {window_bytes!r}.",
    )
    return int(window_bytes)
