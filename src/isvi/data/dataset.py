"""A data set cut into mini-batches.

Rows are assigned to mini-batches once, at random; after that mini-batch ``b`` is the same rows in every
epoch, so that what was stored about it stays about it, and they are visited in the same order
(:mod:`isvi.data.schedule`). The last mini-batch may be shorter; nothing is padded or dropped.

Data larger than memory are a :class:`isvi.data.stream.Stream`, which gives out one window at a time: a data set
that holds some consecutive mini-batches only, and knows which.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Float, Int

from isvi.core.errors import ConfigurationError, require
from isvi.data.arrays import checked_arrays
from isvi.data.schedule import Schedule, Windows

Result = TypeVar("Result")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["full", "rest", "offset"],
    meta_fields=["size", "batch_size", "windows", "shuffle_seed"],
)
@dataclass(frozen=True)
class Dataset:
    """Rows laid out as mini-batches, on the device.

    Attributes:
        full: the data with axes ``(number of full mini-batches, batch_size, ...)``.
        rest: the rows of the shorter last mini-batch, or None.
        size: number of rows N.
        batch_size: rows in a full mini-batch.
        offset: the number of the first mini-batch in ``full``, if that is a window; None if all are there.
        windows: how the mini-batches are cut into windows; None if they are not.
        shuffle_seed: seed of the assignment of rows to mini-batches; None if they are in the rows' order.
    """

    full: Any
    rest: Any
    size: int
    batch_size: int
    offset: Int[Array, ""] | None = None
    windows: Windows | None = None
    shuffle_seed: int | None = None

    @classmethod
    def from_arrays(
        cls, data: Any, batch_size: int | None = None, shuffle_seed: int | None = 0, missing: bool = False
    ) -> "Dataset":
        """Check arrays, shuffle their rows once, and cut them.

        Args:
            data: dict or tuple of arrays with a common first axis, a DataFrame, one array, or None.
            batch_size: rows per mini-batch; None puts all rows into one.
            shuffle_seed: seed of the assignment of rows to mini-batches; None keeps the rows' order, and so does a
                single mini-batch.
            missing: whether values may be missing (NaN).
        """
        if data is None:
            require(batch_size is None, ConfigurationError, "batch_size was given, but there is no data to batch.")
            return cls(full=None, rest=None, size=1, batch_size=1)
        arrays, size = checked_arrays(data, missing)
        batch_size = size if batch_size is None else batch_size
        require(
            isinstance(batch_size, (int, np.integer)) and 1 <= batch_size <= size,
            ConfigurationError,
            f"batch_size must be a whole number between 1 and the number of rows, {size}; got {batch_size!r}.",
        )
        batch_size = int(batch_size)
        num_full = size // batch_size
        cut = num_full * batch_size
        if shuffle_seed is not None and batch_size < size:
            order = _order(shuffle_seed, size)
            arrays = jax.tree.map(lambda a: a[order], arrays)
        else:
            shuffle_seed = None
        full = jax.tree.map(lambda a: jnp.asarray(a[:cut].reshape(num_full, batch_size, *a.shape[1:])), arrays)
        rest = jax.tree.map(lambda a: jnp.asarray(a[cut:]), arrays) if cut < size else None
        return cls(full, rest, size, batch_size, shuffle_seed=shuffle_seed)

    @property
    def row_numbers(self) -> Int[np.ndarray, " rows"]:
        """The place of every row in the data as they were given; for data that are all in memory."""
        return np.arange(self.size) if self.shuffle_seed is None else _order(self.shuffle_seed, self.size)

    @property
    def num_batches(self) -> int:
        return -(-self.size // self.batch_size)

    def batch(self, index: int | Int[Array, ""]) -> "Batch":
        return Batch(self, jnp.asarray(index, jnp.int32))

    def holds(self, index: Int[Array, ""]) -> Bool[Array, ""] | bool:
        """Whether a mini-batch is in memory. True, known at compile time, if all are."""
        if self.offset is None or self.windows is None:
            return True
        place = index - self.offset
        inside = (place >= 0) & (place < self.windows.length)
        return inside if self.rest is None else inside | (index == self.num_batches - 1)

    # What a Stream does, for data that are in memory.

    @property
    def first(self) -> "Dataset":
        """A data set that holds mini-batch 0."""
        return self

    def resident(self, schedule: Schedule) -> "Dataset":
        """A data set that holds the mini-batch that the schedule visits next."""
        return self

    def holding(self, index: int, ahead: Sequence[int] = ()) -> "Dataset":
        """A data set that holds this mini-batch."""
        return self

    def on(self, sharding: NamedSharding) -> "Dataset":
        """The same, on several devices."""
        return replace(self, full=jax.device_put(self.full, sharding))

    def parts(self) -> "Iterator[Dataset]":
        """Data sets that hold every row once between them."""
        yield self

    def release(self) -> None:
        """Let go of what was read; it is read again when it is asked for."""

    def files(self) -> dict[str, str]:
        """What tells the files that rows are read from from others."""
        return {}

    @property
    def seen(self) -> dict[str, str]:
        """Sums of the windows that were read so far, by name."""
        return {}

    def expect(self, seen: Mapping[str, str]) -> None:
        """From now on, refuse windows that differ from those that were seen before."""


def _order(shuffle_seed: int, size: int) -> Int[np.ndarray, " rows"]:
    return np.random.default_rng(shuffle_seed).permutation(size)


@partial(jax.tree_util.register_dataclass, data_fields=["dataset", "index"], meta_fields=[])
@dataclass(frozen=True)
class Batch:
    """A handle on one mini-batch. Its rows are fetched only where they are used, so that a compiled step
    that decides to reuse a record does not touch the data at all."""

    dataset: Dataset
    index: Int[Array, ""]

    def apply(self, function: Callable[[Any, int], Result]) -> Result:
        """``function(rows, number of rows)``, with the number static. Works inside compiled code."""
        data = self.dataset

        def on_full() -> Result:
            place = self.index if data.offset is None else self.index - data.offset
            return function(jax.tree.map(lambda a: a[place], data.full), data.batch_size)

        def on_rest() -> Result:
            return function(data.rest, data.size % data.batch_size)

        if data.rest is None:
            return on_full()
        return jax.lax.cond(self.index == data.num_batches - 1, on_rest, on_full)

    @property
    def scale(self) -> float:
        """What the mini-batch's log likelihood is multiplied with to stand for all rows: B, the number of
        mini-batches. An epoch visits each of them once, a shorter one as often as a full one, so that B (and
        not ``N/|b|``, which would count the rows of the shorter one more often) makes the mean over an epoch right.
        """
        return float(self.dataset.num_batches)

    @property
    def share(self) -> Float[Array, ""]:
        """Its say in a sum over all mini-batches, 1/B."""
        return jnp.asarray(1 / self.scale)
