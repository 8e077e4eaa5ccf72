"""Rows that belong to groups: schools, customers, documents."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.data.arrays import checked_arrays
from isvi.data.files.parquet import Parquet
from isvi.data.groups.grouped_files import GroupedFiles
from isvi.data.groups.packs import Pack, Packs, packed, plan
from isvi.data.source import Source, row_spec


class Grouped:
    """Rows sorted by their group; made by :func:`grouped`.

    Attributes:
        labels: what the groups are called, in order.
        sizes: how many rows each has.
        arrays: the rows, those of one group behind each other.
        order: the rows' numbers in the data as they were given.
        by: what the groups were found by, for messages.
    """

    def __init__(self, arrays: Any, labels: np.ndarray, numbers: np.ndarray, by: str) -> None:
        self.order = np.argsort(numbers, kind="stable")
        self.arrays = jax.tree.map(lambda a: a[self.order], arrays)
        self.labels, self.by = labels, by
        self.sizes = np.bincount(numbers, minlength=len(labels))
        self._places = {label: place for place, label in enumerate(labels.tolist())}

    @property
    def num_rows(self) -> int:
        return len(self.order)

    @property
    def layout(self) -> Any:
        """Shapes and types of one row."""
        return jax.tree.map(lambda a: row_spec(a.shape[1:], a.dtype), self.arrays)

    def first_row(self) -> Any:
        return jax.tree.map(lambda a: a[0], self.arrays)

    def cut(self, batch_size: int, seed: int | None = None) -> Packs:
        """Mini-batches of whole groups, of about ``batch_size`` rows."""
        require(
            isinstance(batch_size, (int, np.integer)) and batch_size >= 1,
            ConfigurationError,
            f"batch_size must be a positive whole number of rows; got {batch_size!r}.",
        )
        layout = plan(self.sizes, int(batch_size), seed)
        full, count = packed(self.arrays, layout), layout.rows.shape[0]
        return Packs(full, None, self.num_rows, int(batch_size), count=count, groups=self)

    def numbers(self, labels: Sequence[Any]) -> np.ndarray:
        """The groups' numbers; -1 for those that are not there."""
        return np.array([self._places.get(np.asarray(label).item(), -1) for label in labels], int)

    def pack(self, numbers: np.ndarray) -> Pack:
        """The rows of some groups, as one pack in which they have their places in this order."""
        starts = np.cumsum(self.sizes) - self.sizes
        chosen = np.concatenate([np.arange(self.sizes[number]) + starts[number] for number in numbers])
        layout = plan(self.sizes[numbers], len(chosen), None)
        one = jax.tree.map(lambda a: a[0], packed(jax.tree.map(lambda a: a[chosen], self.arrays), layout))
        return one._replace(number=jnp.asarray(numbers, jnp.int32))

    def __repr__(self) -> str:
        sizes = f"{self.sizes.min():,} to {self.sizes.max():,}"
        return f"Grouped({self.num_rows:,} rows in {len(self.labels):,} groups of {sizes}, by {self.by})"


def grouped(data: Any, by: Any) -> "Grouped | GroupedFiles":
    """Rows with the group that each belongs to, for models with local latents; mini-batches then are whole groups.

    Args:
        data: a dict or tuple of arrays with a common first axis, a DataFrame, or one array; or
            :class:`isvi.data.Parquet`, whose files hold the rows of a group behind each other, and are streamed.
        by: the column that says which group a row belongs to, numbers or names, which the rows that the model sees are
            then without; or an array of as many.

    >>> grouped({"school": ["b", "a", "b"], "y": [1.0, 2.0, 3.0]}, by="school")
    Grouped(3 rows in 2 groups of 1 to 2, by 'school')
    """
    if isinstance(data, Source):
        return _files(data, by)
    if isinstance(by, str):
        columns = _columns(data, by)
        data, by, name = {key: value for key, value in columns.items() if key != by}, columns[by], repr(by)
        require(len(data) > 0, DataError, f"data holds no column beside {name}, which says the groups.")
    else:
        name = "an array"
    arrays, num_rows = checked_arrays(data)
    labels, numbers = _groups(np.asarray(by), num_rows, name)
    return Grouped(arrays, labels, numbers, name)


def _files(data: Source, by: Any) -> GroupedFiles:
    require(
        isinstance(data, Parquet) and isinstance(by, str),
        DataError,
        "of data larger than memory, groups are found in Parquet files, by the name of a column: "
        f"isvi.data.grouped(isvi.data.Parquet(...), by='school'); got {type(data).__name__} and by={by!r:.50}.",
    )
    assert isinstance(data, Parquet)
    return GroupedFiles(data, by)


def _columns(data: Any, by: str) -> dict[str, Any]:
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        data = {str(column): data[column] for column in data.columns}
    require(
        isinstance(data, Mapping),
        DataError,
        f"by={by!r} names a column, and data has none: it is a {type(data).__name__}. Pass the groups as an array.",
    )
    require(by in data, DataError, f"data has no column {by!r} to group by; it has {sorted(data)}.")
    return dict(data)


def _groups(column: np.ndarray, num_rows: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The groups' labels, and for each row the number of its group."""
    require(
        column.shape == (num_rows,),
        DataError,
        f"the groups, by {name}, must be one value per row, {num_rows} in all; got shape {column.shape}.",
    )
    missing = np.flatnonzero(_missing(column))
    require(
        len(missing) == 0,
        DataError,
        f"row {missing[0] if len(missing) else ''} has no group: {name} is missing there, and in {len(missing)} row(s) "
        "in all (-1 is how pandas codes a missing category). Give each of them a group, of its own if need be, or drop "
        "them.",
    )
    try:
        return np.unique(column, return_inverse=True)
    except TypeError as error:
        raise DataError(f"the groups, by {name}, must be numbers or names, not a mixture: {error}.") from None


def _missing(column: np.ndarray) -> np.ndarray:
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind == "i":
        return (column == -1) & (column.min(initial=0) == -1)
    if column.dtype.kind == "O":
        return np.array([value is None or _not_itself(value) for value in column], bool)
    return np.zeros(column.shape, bool)


def _not_itself(value: Any) -> bool:
    """Whether it is NaN, or pandas' NA, which cannot say."""
    try:
        return bool(value != value)
    except TypeError:
        return True
