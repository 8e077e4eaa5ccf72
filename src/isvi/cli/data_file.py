"""Data for the command line, by the name of the file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, DataError, first_line, require
from isvi.core.extras import import_extra
from isvi.data import Cached, Npy, Parquet, Source, Zarr
from isvi.data.tables import as_array, as_columns


def open_data_file(path: Path, columns: Any, cache: Path | None = None) -> Any:
    """Arrays or a source: Parquet (a file or a folder), CSV, Arrow (Feather, IPC), ``.npz``, ``.npy`` or Zarr; with
    windows kept in ``cache``."""
    require(path.exists(), DataError, f"there is no data at {path}.")
    readers: dict[str, Callable[[Path, Any], Any]] = {
        ".parquet": Parquet,
        ".csv": _csv,
        ".npz": _npz,
        ".npy": _npy,
        ".feather": _arrow,
        ".arrow": _arrow,
        ".ipc": _arrow,
        ".zarr": lambda path, columns: Zarr(path, columns) if columns else Zarr(path),
    }
    suffix = path.suffix.lower() or (".parquet" if path.is_dir() else "")
    require(
        suffix in readers,
        ConfigurationError,
        f"isvi does not know how to read {path}: it reads {', '.join(readers)}, and folders of Parquet files.",
    )
    data = readers[suffix](path, columns)
    if cache is None:
        return data
    require(
        isinstance(data, Source),
        ConfigurationError,
        f"--cache keeps what is read in every pass, but {path} is read once, into memory. Leave --cache out.",
    )
    return Cached(data, cache)


def _csv(path: Path, columns: Any) -> dict[str, np.ndarray]:
    csv = import_extra("pyarrow.csv", "parquet", "reading CSV")
    try:
        table = csv.read_csv(path)
        table.column_names  # noqa: B018 (names that are no text raise)
    except Exception as error:  # pyarrow's own, of several kinds
        raise DataError(f"{path} cannot be read as CSV: {first_line(error)}.") from None
    return _chosen(_columns(table, path), columns, path)


def _arrow(path: Path, columns: Any) -> dict[str, Any]:
    ipc = import_extra("pyarrow.ipc", "parquet", "reading Arrow files")
    feather = import_extra("pyarrow.feather", "parquet", "reading Feather files")
    try:
        try:
            table = feather.read_table(path)
        except Exception:  # a stream, which has no footer
            table = ipc.open_stream(path.read_bytes()).read_all()
        table.column_names  # noqa: B018 (likewise)
    except Exception as error:  # pyarrow's own, of several kinds
        raise DataError(f"{path} cannot be read as an Arrow file: {first_line(error)}.") from None
    return _chosen(_columns(table, path), columns, path)


def _npy(path: Path, columns: Any) -> Npy:
    require(
        columns is None,
        ConfigurationError,
        f"the model file names columns, but {path} is one array without names. Save them as .npz, CSV or Parquet, "
        "or leave `columns` out and write the model for one array.",
    )
    return Npy(path)


def _columns(table: Any, path: Path) -> dict[str, np.ndarray]:
    """Columns of an Arrow table, checked for what is missing or there twice."""
    try:
        return {name: as_array(column, f"column {name!r} of {path}") for name, column in as_columns(table).items()}
    except DataError as error:
        raise DataError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from None


def _npz(path: Path, columns: Any) -> dict[str, np.ndarray]:
    try:
        # Opened here: what NumPy opens itself it leaves open if it cannot read it.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return _chosen({name: archive[name] for name in archive.files}, columns, path)
    except DataError:
        raise
    except Exception as error:  # of NumPy, of zipfile, of zlib
        raise DataError(f"{path} cannot be read as .npz: {first_line(error)}.") from None


def _chosen(arrays: Mapping[str, np.ndarray], columns: Any, path: Path) -> dict[str, np.ndarray]:
    """The columns that the model wants, lists of them side by side."""
    if columns is None:
        return dict(arrays)
    wanted = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    missing = {
        name for one in wanted.values() for name in ([one] if isinstance(one, str) else one) if name not in arrays
    }
    require(
        not missing,
        DataError,
        f"{path} has no column {', '.join(sorted(missing))}; it has {', '.join(sorted(arrays))}.",
    )
    return {
        name: arrays[one] if isinstance(one, str) else _side_by_side([arrays[part] for part in one], name, path)
        for name, one in wanted.items()
    }


def _side_by_side(columns: list[np.ndarray], name: str, path: Path) -> np.ndarray:
    try:
        return np.stack(columns, axis=1)
    except ValueError as error:
        raise DataError(f"the columns of {name!r} in {path} cannot be put side by side: {first_line(error)}.") from None
