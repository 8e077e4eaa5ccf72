"""Batches that something else makes: a loader, a sequence of batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.data.arrays import checked_arrays
from isvi.data.checksums import checksum
from isvi.data.source import WINDOW_BYTES, Source, checked_window_bytes, row_spec


class Batches(Source):
    """Rows from a loader, such as torch's or grain's, of which only a part is in memory at any time.

    ``isvi.fit(model, isvi.data.Batches(loader, num_rows=1_000_000))``. The loader must give the same rows in the same
    order every time: isvi remembers what it learnt from each row, and shuffles itself. Switch shuffling and random
    augmentation off; a loader that gives other rows the second time is refused when that is noticed.

    A sequence (with ``len`` and ``[]``) is read in an order that the fit's seed shuffles; anything else from its
    beginning to its end in every epoch, and only what is in memory together is shuffled. Its batches need not have the
    size of the fit's mini-batches.

    Args:
        batches: a sequence of batches; or something that can be iterated over again and again; or a function that
            returns a new iterator. A batch is a dict or tuple of arrays, or one array.
        num_rows: rows in all. May be left out for a sequence, whose batches must then be equally long, but the last.
        window_bytes: how much is held in memory together, about. Three times as much is needed.
    """

    def __init__(
        self,
        batches: Any,
        num_rows: int | None = None,
        *,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.window_bytes = checked_window_bytes(window_bytes)
        self._batches = batches
        self._iterator: Iterator[Any] | None = None
        self._position, self._number = 0, 0
        self._left: Any = None
        self._sums: dict[int, str] = {}
        self._sequence = hasattr(batches, "__getitem__") and hasattr(batches, "__len__")
        require(
            not isinstance(batches, (Mapping, np.ndarray)) and (self._sequence or _iterable(batches)),
            ConfigurationError,
            "isvi.data.Batches takes a loader, a sequence of batches, or a function that returns an iterator; got "
            f"{type(batches).__name__}. Arrays in a dict are passed to isvi.fit as they are.",
        )
        require(
            not isinstance(batches, Iterator),
            ConfigurationError,
            f"A {type(batches).__name__} can be gone through only once, and every epoch does so again. Pass a function "
            "that returns a new one: isvi.data.Batches(lambda: ..., num_rows=...).",
        )
        self.in_order = not self._sequence
        self._example = self._get(0) if self._sequence else self._converted(next(self._started(), None), 0)
        self.num_rows, self.block_rows = self._sizes(num_rows)

    @property
    def layout(self) -> Any:
        return jax.tree.map(lambda array: row_spec(array.shape[1:], array.dtype), self._example)

    def chunks(self, block: int, start: int, stop: int) -> Iterator[Any]:
        if not self._sequence:
            yield from self._run(start, stop)
            return
        rows = self._get(block)
        self._require_length(rows, block)
        self._require_same(block, rows)
        yield jax.tree.map(lambda array: array[start:stop], rows)

    def close(self) -> None:
        self._iterator = None

    def _sizes(self, num_rows: int | None) -> tuple[int, np.ndarray]:
        require(
            num_rows is None or (isinstance(num_rows, (int, np.integer)) and num_rows >= 1),
            ConfigurationError,
            f"num_rows must be a positive whole number; got {num_rows!r}.",
        )
        if not self._sequence:
            if num_rows is None:
                raise ConfigurationError("A loader does not tell how many rows it has: Batches(loader, num_rows=...).")
            return int(num_rows), np.array([int(num_rows)])
        count, length = len(self._batches), _length(self._example)
        last = _length(self._get(count - 1))
        total = (count - 1) * length + last
        require(
            num_rows is None or num_rows == total,
            DataError,
            f"num_rows is {num_rows}, but {count} batches of {length} rows, the last one of {last}, have {total}.",
        )
        return total, np.array([length] * (count - 1) + [last])

    def _run(self, start: int, stop: int) -> Iterator[Any]:
        """Rows from the running iterator, which is started again if it is past them already."""
        if self._iterator is None or start < self._position:
            self._iterator, self._position, self._left, self._number = self._started(), 0, None, 0
        while self._position < stop:
            rows = self._left if self._left is not None else self._next()
            length = _length(rows)
            first, last = max(start - self._position, 0), min(stop - self._position, length)
            self._left = jax.tree.map(lambda a, n=last: a[n:], rows) if last < length else None
            self._position += last
            if first < last:
                yield jax.tree.map(lambda a, f=first, n=last: a[f:n], rows)
        if stop == self.num_rows:
            more = self._left is not None or self._raw() is not None
            require(not more, DataError, f"The loader gave more rows than num_rows, {self.num_rows}.")

    def _next(self) -> Any:
        raw = self._raw()
        require(
            raw is not None,
            DataError,
            f"The loader ended after {self._position} rows, but num_rows is {self.num_rows}.",
        )
        rows = self._converted(raw, self._number)
        self._require_same(self._number, rows)
        self._number += 1
        return rows

    def _raw(self) -> Any:
        """What the iterator gives next; None at its end."""
        iterator = self._iterator if self._iterator is not None else iter(())
        return self._guarded(lambda: next(iterator, None), self._number)

    def _get(self, number: int) -> Any:
        return self._converted(self._guarded(lambda: self._batches[number], number), number)

    def _started(self) -> Iterator[Any]:
        source = self._batches
        return self._guarded(
            lambda: iter(source() if callable(source) and not isinstance(source, Iterable) else source), 0
        )

    @staticmethod
    def _guarded(call: Callable[[], Any], number: int) -> Any:
        """What the user's code raises, as an error of the data, so that the fit so far is kept."""
        try:
            return call()
        except Exception as error:
            raise DataError(f"Batch {number} of isvi.data.Batches raised {type(error).__name__}: {error}") from error

    def _converted(self, raw: Any, number: int) -> Any:
        """A batch as checked arrays; with the structure of the first one."""
        require(raw is not None, DataError, "isvi.data.Batches got no batches at all.")
        try:
            rows, _ = checked_arrays(tuple(raw) if isinstance(raw, list) else raw)
        except DataError as error:
            raise DataError(f"Batch {number} of isvi.data.Batches: {error}") from error
        if hasattr(self, "_example"):
            here, first = (jax.tree.map(lambda a: (a.shape[1:], a.dtype), tree) for tree in (rows, self._example))
            require(
                here == first,
                DataError,
                f"Batch {number} of isvi.data.Batches has other arrays than the first one: rows of {here} instead of "
                f"{first}.",
            )
        return rows

    def _require_length(self, rows: Any, block: int) -> None:
        require(
            _length(rows) == self.block_rows[block],
            DataError,
            f"Batch {block} of isvi.data.Batches has {_length(rows)} rows instead of {self.block_rows[block]}: all but "
            "the last must be equally long.",
        )

    def _require_same(self, number: int, rows: Any) -> None:
        """Notice a loader that shuffles: by a sum over each batch, which must not change."""
        found = checksum(jax.tree.leaves(rows))
        require(
            self._sums.setdefault(number, found) == found,
            DataError,
            f"Batch {number} of isvi.data.Batches holds other rows than before. isvi remembers what it learnt from "
            "each mini-batch, so its rows must stay the same: switch shuffling and random augmentation off. "
            "isvi shuffles itself.",
        )


def _length(rows: Any) -> int:
    return len(jax.tree.leaves(rows)[0])


def _iterable(batches: Any) -> bool:
    return callable(batches) or isinstance(batches, Iterable)
