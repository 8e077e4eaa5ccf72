"""Windows kept on disk, as they are in memory.

A window is the same rows in the same order in every epoch, yet reading it means to decode, check and shuffle them. The
first time that is done, the result is written to a file; from then on the window is that file, mapped into memory,
where JAX uses it as it is. Reading the next window then costs next to nothing, also in later fits to the same data.
"""

import hashlib
import json
import logging
import mmap
import os
import shutil
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import jax
import numpy as np

from isvi.core.errors import ConfigurationError, require
from isvi.data.checksums import checksum
from isvi.data.room import ALIGNMENT
from isvi.data.source import Source

FORMAT = 2
"""Version of the files and of how a source's rows become windows: another one does not find them."""
BLOCK = 4096
"""Bytes that a disk keeps or loses together, and the smallest part of a file that is brought into memory."""
PART = ".part"
"""How names of files end that are not complete."""
FORGOTTEN_SECONDS = 3600
"""Age at which an incomplete file is taken for that of a process that was killed. Writing one takes seconds."""

log = logging.getLogger("isvi")


class Cached(Source):
    """A source whose windows are kept in a folder once they were read, decoded, checked and shuffled.

    ``isvi.fit(model, isvi.data.Cached(isvi.data.Parquet("flights/", columns), "cache/"))``. The first pass reads the
    source; later ones, also those of later fits and resumed runs, read the folder, which takes a fraction of the time.
    Nothing else changes, to the last bit. The folder takes as much of the disk as the rows would of memory; it can be
    deleted at any time.

    Windows are found again by a later fit if files (their paths, sizes and times of change), columns, ``window_bytes``,
    mini-batch size and seed are the same. What :class:`isvi.data.Batches` or a source of your own gives cannot be told
    from other rows: such windows are kept for one fit only, and then removed.

    Args:
        source: any other source.
        folder: where windows are kept; made if it is not there. Several sources may share it, and several processes.
    """

    def __init__(self, source: Any, folder: str | os.PathLike) -> None:
        require(
            isinstance(source, Source),
            ConfigurationError,
            "isvi.data.Cached takes a source, such as isvi.data.Parquet(...) or isvi.data.Npy(...); got "
            f"{type(source).__name__}. Arrays in memory need no cache: pass them to isvi.fit as they are.",
        )
        self._source, self._folder = source, Path(folder).absolute()
        require(
            not self._folder.exists() or self._folder.is_dir(),
            ConfigurationError,
            f"isvi.data.Cached keeps windows in a folder, but {folder} is a file. Choose another place.",
        )
        self.num_rows, self.block_rows, self.in_order = source.num_rows, source.block_rows, source.in_order
        self.window_bytes = source.window_bytes

    @property
    def layout(self) -> Any:
        return self._source.layout

    @property
    def identity(self) -> Any:
        return self._source.identity

    @property
    def files(self) -> Sequence[Path]:
        return self._source.files

    def chunks(self, block: int, start: int, stop: int) -> Iterator[Any]:
        return self._source.chunks(block, start, stop)

    def release(self) -> None:
        self._source.release()

    def close(self) -> None:
        self._source.close()

    def head(self, num_rows: int) -> Any:
        return self._source.head(num_rows)

    def kept(self, blocks: np.ndarray, seed: int | None, batch_size: int, length: int) -> "KeptWindows":
        """The windows of ``length`` mini-batches into which the blocks are cut, in this order."""
        identity = self.identity
        if identity is None:
            return KeptWindows(self._folder / f"once-{uuid4().hex}", once=True)
        leaves = jax.tree_util.tree_leaves_with_path(self.layout)
        choices = {
            "format": FORMAT,
            "source": identity,
            "layout": [(jax.tree_util.keystr(path), spec.shape, spec.dtype.str) for path, spec in leaves],
            "seed": None if seed is None else int(seed),
            "batch_size": batch_size,
            "length": length,
        }
        digest = hashlib.blake2b(json.dumps(choices, sort_keys=True).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(np.stack([blocks, self.block_rows]), np.int64))
        return KeptWindows(self._folder / digest.hexdigest())


class KeptWindows:
    """Files of a folder, each a window's arrays one after the other, and a sum that shows whether blocks were lost.

    A file is complete once it has its name. One of another size, or with other sums than when it was written, is not
    used, but written again. What cannot be written is not kept, and that is all.

    Attributes:
        sums: of all bytes of the windows that were read or found here so far, by name.

    Args:
        folder: made when the first window is written.
        once: remove the folder when this object, or the process, ends.
    """

    def __init__(self, folder: Path, once: bool = False) -> None:
        self.folder = folder
        self._writable = True
        self.sums: dict[str, str] = {}
        if once:
            weakref.finalize(self, _remove, folder, os.getpid())
        for part in folder.glob(f"*{PART}"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > FORGOTTEN_SECONDS:
                    part.unlink()

    def get(self, name: str, layout: Any, read: Callable[[], Any]) -> Any:
        """Arrays with the shapes and types of ``layout``: those that are kept under this name, or else those that are
        read, which are kept from now on."""
        arrays = self._found(name, layout)
        if arrays is None:
            arrays = read()
            self.sums[name] = checksum(jax.tree.leaves(arrays))
            self._write(name, jax.tree.leaves(arrays), self.sums[name])
        return arrays

    def _found(self, name: str, layout: Any) -> Any:
        """The arrays that are kept under this name; None if they are not there, or not what was written."""
        starts, size = _places(layout)
        contents = self._mapped(name, size)
        if contents is None:
            return None
        arrays = jax.tree.map(
            lambda spec, start: contents[start : start + _num_bytes(spec)].view(spec.dtype).reshape(spec.shape),
            layout,
            starts,
        )
        # All bytes are looked at once; after that, one of each block will do, for all would slow light models down.
        written = contents[size + 8 : size + 16].tobytes().decode("ascii", "replace")
        if self.sums.get(name) != written:
            here = contents[size + 16 : size + 24].tobytes() == self._place(name)
            if not here or checksum(jax.tree.leaves(arrays)) != written:
                log.warning("%s is damaged; its rows are read from the source again", self.folder / name)
                return None
            self.sums[name] = written
        return arrays

    def _place(self, name: str) -> bytes:
        """Tells a file from another of the same size that was put in its place."""
        return f"{zlib.crc32(f'{self.folder.name}/{name}'.encode()):08x}".encode()

    def _mapped(self, name: str, size: int) -> np.ndarray | None:
        """The contents of a file, in memory; None if it is not there, or has lost its end or a block."""
        try:
            with (self.folder / name).open("rb") as file:
                if os.fstat(file.fileno()).st_size != size + ALIGNMENT:
                    return None
                contents = _map(file)
        except OSError:
            return None
        if _sum_of_blocks(contents[:size]) != contents[size : size + 8].tobytes():
            log.warning("%s is damaged; its rows are read from the source again", self.folder / name)
            return None
        return contents

    def _write(self, name: str, arrays: list[np.ndarray], total: str) -> None:
        """Write beside the file, then rename. A full disk must not end a fit."""
        if not self._writable:
            return
        part = self.folder / f"{name}.{uuid4().hex}{PART}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with part.open("w+b") as file:
                for array in arrays:
                    file.write(array.data)
                    file.write(bytes(-array.nbytes % ALIGNMENT))
                file.flush()
                file.write((_sum_of_blocks(_map(file)) + total.encode() + self._place(name)).ljust(ALIGNMENT, b"\0"))
            part.replace(self.folder / name)
        except OSError as error:
            self._writable = False
            log.warning(
                "could not keep a window in %s (%s); the fit goes on, and reads the source again in every pass",
                self.folder,
                error,
            )
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _places(layout: Any) -> tuple[Any, int]:
    """Where each array begins, at places that suit XLA, and the number of bytes of all."""
    leaves, structure = jax.tree.flatten(layout)
    ends = np.cumsum([0, *(-(-_num_bytes(spec) // ALIGNMENT) * ALIGNMENT for spec in leaves)]).tolist()
    return jax.tree.unflatten(structure, ends[:-1]), ends[-1]


def _num_bytes(spec: jax.ShapeDtypeStruct) -> int:
    return int(np.prod(spec.shape)) * spec.dtype.itemsize


def _map(file: IO[bytes]) -> np.ndarray:
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _sum_of_blocks(contents: np.ndarray) -> bytes:
    """Of one number from each block. Looking at it brings the block into memory, for which the fit would have to wait
    otherwise. Looking at all of them would take as long as a light model needs for a pass."""
    return contents.view(np.uint64)[:: BLOCK // 8].sum().tobytes()


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a process that was forked off
        shutil.rmtree(folder, ignore_errors=True)
