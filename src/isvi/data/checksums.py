"""Sums that tell rows from other rows, and files from other files."""

import os
import zlib
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

READ_WHOLE = 32_000_000
"""Files up to so many bytes in all are read from end to end to tell them from others: a hundredth of a second."""
PLACES = 2048
"""Of larger ones, pieces from so many places in all: every few megabytes, where row groups are some megabytes."""
PIECE = 4096
"""Bytes of a piece: what a disk reads at least."""
ENDS = 65_536
"""Bytes at the beginning and the end of a file, where headers and footers are."""
NAMED = 1000
"""Files that are named one by one; of more, only their number and a sum over all are told."""


def checksum(arrays: Iterable[Any]) -> str:
    """Of types, shapes and all bytes. By CRC-32, at several gigabytes per second: of changes that happen by accident it
    misses one in four billion."""
    found = 0
    for array in map(np.asarray, arrays):
        found = zlib.crc32(f"{array.dtype.str}{array.shape}".encode(), found)
        found = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8), found)
    return f"{found:08x}"


def fingerprints(files: Sequence[str | PathLike]) -> dict[str, str]:
    """What tells files from others that may have come in their place, by name within their common folder.

    Small ones are read whole; of large ones, size, both ends, and pieces at equal distances. Where they are and when
    they were written is left out: a copy is as good.
    """
    paths = [Path(file).absolute() for file in files]
    sizes = [path.stat().st_size for path in paths]
    total = max(1, sum(sizes))
    step = max(1, len(paths) // PLACES)  # of very many files, some
    found = {}
    for number, (name, path, size) in enumerate(zip(_names(paths), paths, sizes, strict=True)):
        places = None if total <= READ_WHOLE else max(4, PLACES * size // total)
        read = number % step == 0
        found[name] = f"{size:,} bytes" + (f", sum {_file_sum(path, size, places)}" if read else "")
    if len(found) <= NAMED:
        return found
    return {"files": f"{len(found):,} files, sum {zlib.crc32(repr(sorted(found.items())).encode()):08x}"}


def _names(paths: Sequence[Path]) -> list[str]:
    if len(paths) <= 1:
        return ["alone"] * len(paths)
    folder = os.path.commonpath(paths)
    return [os.path.relpath(path, folder) for path in paths]


def _file_sum(path: Path, size: int, places: int | None) -> str:
    """Of the whole file; or of both ends and of pieces at so many places."""
    with path.open("rb") as file:
        if places is None or size <= 2 * ENDS + places * PIECE:
            return f"{zlib.crc32(file.read()):08x}"
        found = zlib.crc32(file.read(ENDS))
        for start in np.linspace(ENDS, size - ENDS, places, dtype=np.int64).tolist():
            file.seek(start)
            found = zlib.crc32(file.read(PIECE if start < size - ENDS else ENDS), found)
    return f"{found:08x}"
