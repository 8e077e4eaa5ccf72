"""Data larger than memory, as mini-batches that keep their identity.

A seed fixes an order of the source's blocks (row groups of a file, runs of rows of an array); all rows in that
order are the *virtual rows*. The first ``N mod batch_size`` of them are the shorter mini-batch; of the others,
every ``window length * batch_size`` consecutive ones are a window, shuffled within by a generator that is seeded
with (seed, window) and cut into mini-batches. So mini-batch ``b`` is the same rows in every epoch, and after a
resumption: where a run stands is told by its schedule alone, and nothing about files needs to be saved.
"""

from collections.abc import Iterator, Mapping, Sequence
from threading import Event, Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Int

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.data.cache import Cached
from isvi.data.checksums import checksum, fingerprints
from isvi.data.dataset import Batch, Dataset
from isvi.data.reader import Reader, Stopped
from isvi.data.room import Rooms
from isvi.data.schedule import Schedule, Windows
from isvi.data.source import Source

LEAST_BATCHES = 4
"""Mini-batches in a window, at least."""


class Stream:
    """A source cut into mini-batches, of which one window at a time is in memory.

    It stands where a :class:`isvi.Dataset` stands. At most three windows are alive: the one in use, the next one, and
    the one after that, which a background thread is reading. The thread ends with :meth:`release`.

    Args:
        source: where the rows come from.
        batch_size: rows in a full mini-batch.
        shuffle_seed: seed of the assignment of rows to mini-batches; None keeps the rows' order, and so does a single
            mini-batch.
    """

    def __init__(self, source: Source, batch_size: int, shuffle_seed: int | None = 0) -> None:
        self.size, self.source = source.num_rows, source
        require(
            isinstance(batch_size, (int, np.integer)) and 1 <= batch_size <= self.size,
            ConfigurationError,
            f"batch_size must be a whole number between 1 and the number of rows, {self.size}; got {batch_size!r}.",
        )
        self.batch_size = int(batch_size)
        # One mini-batch of all rows keeps their order: they may depend on each other.
        shuffle_seed = None if self.batch_size == self.size else shuffle_seed
        self._seed, self._layout = shuffle_seed, source.layout
        self._x64 = jax.dtypes.canonicalize_dtype(float).itemsize == 8  # the thread that reads has its own setting
        self._length = _window_length(source, self.batch_size)
        self._blocks = np.arange(len(source.block_rows))
        if shuffle_seed is not None and not source.in_order:
            self._blocks = np.random.default_rng(shuffle_seed).permutation(self._blocks)
        self._ends = np.cumsum(source.block_rows[self._blocks])
        self._rest: Any = None
        self._kept = None
        if isinstance(source, Cached):
            self._kept = source.kept(self._blocks, shuffle_seed, self.batch_size, self._length)
        self._seen: dict[str, str] = {}
        self._compared: set[str] = set()
        self._rooms = Rooms()
        self._reader = Reader(self._read_window)
        self._asked_for = Lock()
        self._sharding: NamedSharding | None = None

    @property
    def num_batches(self) -> int:
        return -(-self.size // self.batch_size)

    @property
    def num_windows(self) -> int:
        return -(-(self.size // self.batch_size) // self._length)

    @property
    def windows(self) -> Windows | None:
        """How the mini-batches are cut into windows; None if one window holds them all."""
        if self.num_windows == 1:
            return None
        return Windows(self._length, self._rest_rows > 0, self.source.in_order)

    @property
    def first(self) -> Dataset:
        """A window that holds mini-batch 0."""
        return self._reader.get(0)

    def batch(self, index: int | Int[Array, ""]) -> Batch:
        """A mini-batch of zeros, which tells the shapes. The rows themselves are in the windows."""
        full = jax.tree.map(lambda spec: jnp.zeros((1, self.batch_size, *spec.shape), spec.dtype), self._layout)
        rest = jax.tree.map(lambda spec: jnp.zeros((self._rest_rows, *spec.shape), spec.dtype), self._layout)
        outline = Dataset(full, rest if self._rest_rows else None, self.size, self.batch_size)
        return outline.batch(index)

    def resident(self, schedule: Schedule) -> Dataset:
        """A window that holds the mini-batch that the schedule visits next; the following ones are being read."""
        if self.num_windows == 1:
            return self._reader.get(0)
        order, position = np.asarray(schedule.order), int(schedule.visited) % self.num_batches
        ahead = self.visits(np.concatenate([order[position:], order]))
        return self._reader.get(ahead[0], ahead[1:])

    def holding(self, index: int, ahead: Sequence[int] = ()) -> Dataset:
        """A window that holds this mini-batch, after which those ahead will be wanted; for several threads, which may
        ask for different ones. The rest is in all windows, also in the one that is there."""
        with self._asked_for:
            number = self.window_of(index)
            return self._reader.get(self._latest if number is None else number, ahead)

    def on(self, sharding: NamedSharding) -> "Stream":
        """The same, with windows on several devices."""
        self.release()
        self._sharding = sharding
        return self

    @property
    def _latest(self) -> int:
        """The window that is in memory, or the first."""
        return self._reader.current or 0

    def window_of(self, index: int) -> int | None:
        """The window that a mini-batch belongs to; None for the rest, which is in all of them."""
        return index // self._length if index < self.size // self.batch_size else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, the source is opened there."""
        return Stream, (self.source, self.batch_size, self._seed)

    def parts(self) -> Iterator[Dataset]:
        """Data sets that hold every row once between them: the windows without padding, the rest with the last."""
        try:
            for number in range(self.num_windows):
                window = self._reader.get(number, range(number + 1, self.num_windows))
                count = min(self._length, self.size // self.batch_size - number * self._length)
                full = window.full if count == self._length else jax.tree.map(lambda a, n=count: a[:n], window.full)
                rest = window.rest if number == self.num_windows - 1 else None
                yield Dataset(full, rest, self.size, self.batch_size)
        finally:
            self.release()

    def release(self) -> None:
        """End the background thread and let go of all windows; they are read again when they are asked for."""
        self._reader.stop()
        self._rooms.clear()
        self.source.close()

    def files(self) -> dict[str, str]:
        """What tells the files that rows are read from from others."""
        return fingerprints(self.source.files)

    @property
    def seen(self) -> dict[str, str]:
        """Sums of the windows that were read so far, by name."""
        return dict(self._seen)

    def expect(self, seen: Mapping[str, str]) -> None:
        """From now on, refuse windows that differ from those that were seen before."""
        self._seen |= seen
        self._compared.clear()

    @property
    def _rest_rows(self) -> int:
        return self.size % self.batch_size

    def visits(self, order: np.ndarray) -> list[int]:
        """The windows that mini-batches belong to, one after the other. The rest belongs to none."""
        numbers = order[order < self.size // self.batch_size] // self._length
        return [int(number) for number in numbers[np.diff(numbers, prepend=-1) != 0]]

    def _read_window(self, number: int, stop: Event) -> Dataset:
        with jax.enable_x64(self._x64):
            if self._rest is None and self._rest_rows:
                self._rest = jax.tree.map(jnp.asarray, self._rows(0, self._rest_rows, None, self._rest_rows, stop))
            length = self._length * self.batch_size
            first = self._rest_rows + number * length
            last = min(first + length, self.size)
            rows = self._rows(first, last, number, length, stop)
            # The arrays are not written to any more: JAX need not copy them.
            full = jax.tree.map(
                lambda a: jax.device_put(a.reshape(-1, self.batch_size, *a.shape[1:]), self._sharding, may_alias=True),
                rows,
            )
            offset = None if self.windows is None else jnp.int32(number * self._length)
            return Dataset(full, self._rest, self.size, self.batch_size, offset, self.windows)

    def _rows(self, first: int, last: int, number: int | None, length: int, stop: Event) -> Any:
        """Virtual rows ``first`` to ``last``, in arrays of ``length`` rows: kept from an earlier pass, or read now."""
        name = "rest" if number is None else f"window-{number}"
        if self._kept is None:
            rows = self._read_rows(first, last, number, length, stop)
        else:
            layout = jax.tree.map(lambda spec: jax.ShapeDtypeStruct((length, *spec.shape), spec.dtype), self._layout)
            rows = self._kept.get(name, layout, lambda: self._read_rows(first, last, number, length, stop))
        self._require_same(name, rows)
        return rows

    def _require_same(self, name: str, rows: Any) -> None:
        """What a resumed run reads must be what it read before. Once in a process: to look at all bytes in every pass
        would slow light models down."""
        if name in self._compared:
            return
        found = checksum(jax.tree.leaves(rows)) if self._kept is None else self._kept.sums[name]
        require(
            self._seen.setdefault(name, found) == found,
            DataError,
            f"{name} of the data holds other rows than when this run read it first: a file has changed since, or is "
            "damaged. Bring the data back as they were, or start a new run.",
        )
        self._compared.add(name)

    def _read_rows(self, first: int, last: int, number: int | None, length: int, stop: Event) -> Any:
        """Those of a window are shuffled."""
        places = np.arange(last - first)
        if self._seed is not None and number is not None:
            places = np.random.default_rng((self._seed, number + 1)).permutation(places)
        arrays = jax.tree.map(lambda spec: self._rooms.array((length, *spec.shape), spec.dtype), self._layout)
        leaves, done = jax.tree.leaves(arrays), 0
        for chunk in self._chunks(first, last):
            if stop.is_set():
                raise Stopped
            columns = jax.tree.leaves(chunk)
            there = places[done : done + len(columns[0])]
            for array, column in zip(leaves, columns, strict=True):
                array[there] = column
            done += len(there)
        for array in leaves:
            array[done:] = 0
        self.source.release()
        return arrays

    def _chunks(self, first: int, last: int) -> Iterator[Any]:
        """Virtual rows, block by block."""
        position = int(np.searchsorted(self._ends, first, side="right"))
        while first < last:
            block = int(self._blocks[position])
            begin = int(self._ends[position] - self.source.block_rows[block])
            until = min(last, int(self._ends[position]))
            if until > first:
                yield from self.source.chunks(block, first - begin, until - begin)
            first, position = until, position + 1


def _window_length(source: Source, batch_size: int) -> int:
    """Mini-batches in a window, such that windows are about equally long."""
    num_full = source.num_rows // batch_size
    length = max(LEAST_BATCHES, source.window_bytes // max(1, batch_size * source.row_bytes))
    num_windows = -(-num_full // length)
    return -(-num_full // num_windows)
