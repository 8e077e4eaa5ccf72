"""Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isvi.core.errors import DataError, first_line, require
from isvi.core.extras import import_extra
from isvi.data.arrays import checked_values
from isvi.data.files.parquet_schema import Columns, checked_columns, column_types
from isvi.data.source import ROWS_AT_ONCE, WINDOW_BYTES, Source, checked_window_bytes, file_stamps, row_spec

BUFFER_BYTES = 1 << 18
"""Read ahead per column. Without it the whole row group would be in memory, which may be gigabytes."""

CACHED_BYTES = 1 << 19
"""What columns are put side by side in."""


class File(NamedTuple):
    """An opened file's description; the file itself is opened for every read."""

    path: Path
    metadata: Any
    schema: Any
    stamp: Any
    """Size and time of the last change, when it was described."""


class Block(NamedTuple):
    """One row group of one file."""

    file: File
    row_group: int
    first_row: int
    """The number, within the file, of its first row."""


class Parquet(Source):
    """Rows of Parquet files, of which only a part is in memory at any time. Needs the extra ``isvi[parquet]``.

    ``isvi.fit(model, isvi.data.Parquet("flights/", columns={"x": ["hour", "distance"], "y": "late"}))``. Row groups
    are read in an order that the fit's seed shuffles. They should be small next to ``window_bytes`` (a row group
    is read again for every window that it reaches into); ``pyarrow.parquet.write_table`` has ``row_group_size``.

    Args:
        path: a file, a folder (all its ``*.parquet`` files, also in folders below, by name), or a list of files.
        columns: what the model receives: names of columns, or lists of them to be put side by side as a matrix,
            by the names that the model knows them by. A list of names alone means each under its own name; None
            means all columns.
        window_bytes: how much is held in memory together, about. Three times as much is needed.
    """

    def __init__(
        self,
        path: str | PathLike | Sequence[str | PathLike],
        columns: Columns | None = None,
        *,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        import_extra("pyarrow", "parquet", "isvi.data.Parquet")
        self.window_bytes = checked_window_bytes(window_bytes)
        files = [_described(file) for file in _found(path)]
        self._columns = checked_columns(columns, files[0].schema, str(files[0].path))
        types = column_types(self._columns, [(str(file.path), file.schema) for file in files])
        self._dtypes = {
            name: np.result_type(*(types[column] for column in _listed(chosen)))
            for name, chosen in self._columns.items()
        }
        self._blocks = [block for file in files for block in _row_groups(file)]
        self.block_rows = np.array(
            [block.file.metadata.row_group(block.row_group).num_rows for block in self._blocks], np.int64
        )
        self.num_rows = int(self.block_rows.sum())
        require(self.num_rows > 0, DataError, f"data is empty: the Parquet files in {path} have 0 rows.")

    @property
    def layout(self) -> Any:
        return {name: row_spec(_shape(chosen), self._dtypes[name]) for name, chosen in self._columns.items()}

    @property
    def files(self) -> Sequence[Path]:
        return list(dict.fromkeys(block.file.path for block in self._blocks))

    @property
    def identity(self) -> Any:
        files = file_stamps(self.files)
        return None if files is None else {"parquet": files, "columns": self._columns}

    def without(self, column: str) -> "Parquet":
        """The same rows, of which the model does not see this column."""
        if column not in self._columns:
            return self
        others = {name: chosen for name, chosen in self._columns.items() if name != column}
        require(len(others) > 0, DataError, f"data holds no column beside {column!r}, which says the groups.")
        return Parquet(self.files, others, window_bytes=self.window_bytes)

    def runs(self, column: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The values of a column, numbers or names, in the order of the rows, with how often each is repeated."""
        for file in dict.fromkeys(block.file.path for block in self._blocks):
            opened_file = next(block.file for block in self._blocks if block.file.path == file)
            require(
                column in opened_file.schema.names,
                DataError,
                f"{file} has no column {column!r} to group by; it has {sorted(opened_file.schema.names)}.",
            )
            first = 0
            with _naming(file), _open(opened_file) as opened:
                for batch in opened.iter_batches(ROWS_AT_ONCE, columns=[column]):
                    yield _runs(batch.column(0), column, file, first)
                    first += batch.num_rows

    def chunks(self, block: int, start: int, stop: int) -> Iterator[Any]:
        file, row_group, first_row = self._blocks[block]
        names = list(dict.fromkeys(column for chosen in self._columns.values() for column in _listed(chosen)))
        done = 0
        require(
            file_stamps([file.path]) in (file.stamp, None),  # one that is not there any more is told below
            DataError,
            f"{file.path} has changed since it was opened. Do not write to files that a fit reads; start it again.",
        )
        with _naming(file.path), _open(file) as opened:
            for batch in self._batches(opened, row_group, names):
                first, last = max(start - done, 0), min(stop - done, batch.num_rows)
                done += batch.num_rows
                if first < last:
                    # Row groups have no index: what comes before is read and dropped.
                    begin = first_row + done - batch.num_rows + first
                    yield from self._converted(batch.slice(first, last - first), file.path, begin)
                if done >= stop:
                    return
        raise DataError(f"{file.path} ends after {done} rows of row group {row_group}, which should have more.")

    def _batches(self, opened: Any, row_group: int, names: Sequence[str]) -> Iterator[Any]:
        """The record batches of a row group: at once, which takes half the time, unless it is large."""
        if opened.metadata.row_group(row_group).total_byte_size <= self.window_bytes // 4:
            yield from opened.read_row_group(row_group, columns=names).to_batches()
        else:
            yield from opened.iter_batches(ROWS_AT_ONCE, row_groups=[row_group], columns=names)

    def _converted(self, batch: Any, path: Path, first_row: int) -> Iterator[dict[str, np.ndarray]]:
        """A record batch as arrays, checked, a few rows at a time: what is written stays in the processor's cache."""
        columns = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count:
                row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                raise DataError(
                    f"column {name!r} of {path} is null at row {row}, and {column.null_count} time(s) in the rows that "
                    "were read with it. Drop or impute these rows before fitting."
                )
            columns[name] = column.to_numpy(zero_copy_only=False)
        step = max(64, CACHED_BYTES // self.row_bytes)
        for start in range(0, batch.num_rows, step):
            few = {name: column[start : start + step] for name, column in columns.items()}
            yield {
                name: _checked(few[chosen][:, None], [chosen], path, first_row + start)[:, 0]
                if isinstance(chosen, str)
                else _checked(_side_by_side(few, chosen, self._dtypes[name]), chosen, path, first_row + start)
                for name, chosen in self._columns.items()
            }


def _runs(values: Any, name: str, path: Path, first_row: int) -> tuple[np.ndarray, np.ndarray]:
    """An array of pyarrow's as values and how often each is repeated."""
    from pyarrow import compute, types

    if values.null_count:
        row = first_row + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(
            f"row {row} of {path} has no group: column {name!r} is null there. Give such rows a group, of their own if "
            "need be, or drop them."
        )
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    encoded = compute.run_end_encode(values)
    labels, ends = (part.to_numpy(zero_copy_only=False) for part in (encoded.values, encoded.run_ends))
    require(
        labels.dtype.kind != "f" or not np.isnan(labels).any(),
        DataError,
        f"a row of {path} has no group: column {name!r} is NaN there. Give such rows a group, or drop them.",
    )
    return labels, np.diff(ends, prepend=0).astype(np.int64)


def _side_by_side(columns: Mapping[str, np.ndarray], names: Sequence[str], dtype: np.dtype) -> np.ndarray:
    array = np.empty((len(columns[names[0]]), len(names)), dtype)
    for place, name in enumerate(names):
        array[:, place] = columns[name]
    return array


def _checked(array: np.ndarray, names: Sequence[str], path: Path, first_row: int) -> np.ndarray:
    """All columns at once; one by one, to name the right one, if something is wrong."""
    try:
        return checked_values(array, str(path), first_row)
    except DataError:
        for place, name in enumerate(names):
            checked_values(array[:, place], f"column {name!r} of {path}", first_row)
        raise


def _found(path: str | PathLike | Sequence[str | PathLike]) -> list[Path]:
    if not isinstance(path, (str, PathLike)):
        require(len(path) > 0, DataError, "data is empty: the list of Parquet files is.")
        return [Path(file) for file in path]
    place = Path(path)
    if not place.is_dir():
        return [place]
    files = [file for file in sorted(place.rglob("*.parquet")) if not _hidden(file.relative_to(place))]
    require(len(files) > 0, DataError, f"The folder {place} holds no *.parquet files.")
    return files


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _described(path: Path) -> File:
    stamp = file_stamps([path])
    with _naming(path), _open(File(path, None, None, stamp)) as opened:
        require(
            len(opened.schema_arrow.names) > 0, DataError, f"{path} has no columns."
        )  # names that are no text raise
        return File(path, opened.metadata, opened.schema_arrow, stamp)


@contextmanager
def _open(file: File) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    # Where the writer has put sums over the pages, they are compared: a flipped bit is an error, and no number.
    options = {"buffer_size": BUFFER_BYTES, "page_checksum_verification": True}
    with ParquetFile(file.path, metadata=file.metadata, **options) as opened:
        yield opened


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What pyarrow raises, with the name of the file."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.") from error
    except (ArrowException, OSError, UnicodeError) as error:
        raise DataError(
            f"{path} cannot be read as a Parquet file; it may be damaged or cut short. pyarrow said: "
            f"{first_line(error)}"
        ) from error


def _row_groups(file: File) -> Iterator[Block]:
    first_row = 0
    for row_group in range(file.metadata.num_row_groups):
        yield Block(file, row_group, first_row)
        first_row += file.metadata.row_group(row_group).num_rows


def _listed(chosen: str | Sequence[str]) -> Sequence[str]:
    return [chosen] if isinstance(chosen, str) else chosen


def _shape(chosen: str | Sequence[str]) -> tuple[int, ...]:
    return () if isinstance(chosen, str) else (len(chosen),)
