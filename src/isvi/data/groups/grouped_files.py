"""Rows that belong to groups, in Parquet files that hold the rows of a group behind each other.

Only the column that says the groups is read as a whole, and kept as runs. A window is some consecutive groups, however
they are torn over row groups and files, and is dealt out to mini-batches as groups in memory are. All mini-batches have
the same shape, so that one program is compiled for all windows.
"""

from collections.abc import Iterator
from functools import cached_property
from threading import Event
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.data.dataset import Batch
from isvi.data.files.parquet import Parquet
from isvi.data.groups.packs import Pack, Packs, Plan, dealt_out, number_of_packs, packed, piece_length
from isvi.data.schedule import Windows
from isvi.data.stream import Stream


class GroupedFiles:
    """Parquet files with the groups of their rows; made by :func:`isvi.data.grouped`.

    Attributes:
        source: the rows, without the column of the groups.
        labels: what the groups are called, in the order of the files.
        sizes: how many rows each has.
        by: what the groups were found by, for messages.
    """

    def __init__(self, source: Parquet, by: str) -> None:
        self.by = repr(by)
        self.labels, self.sizes = _groups(source, by)
        self.source = source.without(by)

    @property
    def num_rows(self) -> int:
        return self.source.num_rows

    @property
    def layout(self) -> Any:
        """Shapes and types of one row."""
        return self.source.layout

    def first_row(self) -> Any:
        return jax.tree.map(lambda a: a[0], self.source.head(1))

    def cut(self, batch_size: int, seed: int | None = None) -> "GroupedStream":
        """Mini-batches of whole groups, of about ``batch_size`` rows, a window of them in memory at a time."""
        return GroupedStream(self, batch_size, seed)

    def __repr__(self) -> str:
        sizes = f"{self.sizes.min():,} to {self.sizes.max():,}"
        return f"GroupedFiles({self.num_rows:,} rows in {len(self.labels):,} groups of {sizes}, by {self.by})"


def _groups(source: Parquet, by: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels and sizes of the groups, if each is one run of rows."""
    values: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    for labels, sizes in source.runs(by):
        torn = int(len(values) > 0 and values[-1][-1] == labels[0])
        if torn:
            counts[-1][-1] += sizes[0]
        if len(labels) > torn:
            values.append(labels[torn:])
            counts.append(sizes[torn:])
    found, first, times = np.unique(np.concatenate(values), return_index=True, return_counts=True)
    if times.max() > 1:
        again = found[times > 1][0]
        raise DataError(
            f"the rows are not sorted by {by!r}: those of group {np.asarray(again).item()!r} are in several places, as "
            f"are those of {int((times > 1).sum()):,} groups in all. Files are streamed if the rows of a group are "
            "behind each other: sort them once "
            f"(DuckDB: COPY (SELECT * FROM 'data/*.parquet' ORDER BY {by}) TO 'sorted.parquet'; pandas: "
            f"frame.sort_values({by!r})), or pass arrays that fit into memory, which may be in any order."
        )
    order = np.argsort(first)
    return found[order], np.concatenate(counts)


class GroupedStream(Stream):
    """A source cut into packs, of which one window at a time is in memory.

    Attributes:
        groups: the :class:`GroupedFiles` that they are of.
    """

    def __init__(self, groups: GroupedFiles, batch_size: int, shuffle_seed: int | None = 0) -> None:
        require(
            isinstance(batch_size, (int, np.integer)) and batch_size >= 1,
            ConfigurationError,
            f"batch_size must be a positive whole number of rows; got {batch_size!r}.",
        )
        super().__init__(groups.source, min(int(batch_size), groups.num_rows), None)
        self.groups, self._deal_seed = groups, shuffle_seed
        self._piece = piece_length(groups.sizes)
        self._bounds = _windows(groups.sizes, max(1, groups.source.window_bytes // groups.source.row_bytes))
        # As many mini-batches in every window: the fewest, so that none is without groups.
        self._length = min(
            number_of_packs(self._sizes(number), self._piece, self.batch_size) for number in range(self.num_windows)
        )
        shapes = [self._plan(number).shape for number in range(self.num_windows)]
        self._shape = max(pieces for pieces, _ in shapes), max(count for _, count in shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupedStream, (self.groups, self.batch_size, self._deal_seed)

    @property
    def num_batches(self) -> int:
        return self.num_windows * self._length

    @property
    def num_windows(self) -> int:
        return len(self._bounds) - 1

    @property
    def windows(self) -> Windows | None:
        return None if self.num_windows == 1 else Windows(self._length, has_rest=False, in_order=False)

    def window_of(self, index: int) -> int | None:
        return index // self._length

    def batch(self, index: int | Int[Array, ""]) -> Batch:
        nothing = self._plan(0).padded(*self._shape)
        one = Plan(np.zeros_like(nothing.rows[:1]), nothing.there[:1], nothing.group[:1], nothing.number[:1])
        row = jax.tree.map(lambda spec: np.zeros((1, *spec.shape), spec.dtype), self._layout)
        return self._packs(self._packed(row, one), None).batch(index)

    def parts(self) -> Iterator[Packs]:
        try:
            for number in range(self.num_windows):
                window = self._reader.get(number, range(number + 1, self.num_windows))
                yield self._packs(window.full, None)
        finally:
            self.release()

    def visits(self, order: np.ndarray) -> list[int]:
        numbers = order // self._length
        return [int(number) for number in numbers[np.diff(numbers, prepend=-1) != 0]]

    def _sizes(self, window: int) -> np.ndarray:
        return self.groups.sizes[self._bounds[window] : self._bounds[window + 1]]

    def _plan(self, window: int) -> Plan:
        seed = None if self._deal_seed is None else (self._deal_seed, window + 1)
        return dealt_out(self._sizes(window), self._piece, self._length, seed)

    def _packed(self, rows: Any, plan: Plan) -> Pack:
        pack = packed(rows, plan)
        return pack if self._alone else pack._replace(group=jnp.asarray(plan.group))

    @cached_property
    def _alone(self) -> bool:
        """Whether in every window each group is one piece, in its own place."""
        return all(self._plan(number).padded(*self._shape).one_piece_each for number in range(self.num_windows))

    def _read_window(self, number: int, stop: Event) -> Packs:
        starts = np.append(0, np.cumsum(self.groups.sizes))
        first, last = (int(starts[bound]) for bound in self._bounds[number : number + 2])
        with jax.enable_x64(self._x64):
            rows = self._rows(first, last, number, last - first, stop)
            plan = self._plan(number).padded(*self._shape)
            pack = self._packed(rows, plan)
            of_all = jnp.where(pack.number >= 0, pack.number + np.int32(self._bounds[number]), -1)
            return self._packs(pack._replace(number=of_all), number)

    def _packs(self, full: Pack, number: int | None) -> Packs:
        """A window, that knows which it is; or packs that need not be found by their number."""
        if number is None or self.windows is None:
            return Packs(full, None, self.size, self.batch_size, count=self.num_batches)
        offset = jnp.int32(number * self._length)
        return Packs(full, None, self.size, self.batch_size, offset, self.windows, count=self.num_batches)


def _windows(sizes: np.ndarray, rows: int) -> np.ndarray:
    """Where windows of about so many rows begin and end, in groups: at least one group in each."""
    ends = np.cumsum(sizes)
    count = min(len(sizes), max(1, int(np.ceil(ends[-1] / rows))))
    wanted = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    return np.unique(np.concatenate([[0], wanted, [len(sizes)]]))
