"""Data for the command line, by the name of the file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.core.extras import import_extra
from isvi.data import Cached, Npy, Parquet, Source, Zarr


def open_data_file(path: Path, columns: Any, cache: Path | None = None) -> Any:
    """Arrays or a source: Parquet (a file or a folder), CSV, ``.npz``, ``.npy`` or Zarr; with windows kept in
    ``cache``."""
    require(path.exists(), DataError, f"there is no data at {path}.")
    readers: dict[str, Callable[[Path, Any], Any]] = {
        ".parquet": Parquet,
        ".csv": _csv,
        ".npz": _npz,
        ".npy": lambda path, columns: Npy(path),
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
    except Exception as error:  # pyarrow's own, of several kinds
        raise DataError(f"{path} cannot be read as CSV: {error}.") from None
    return _chosen({name: table[name].to_numpy() for name in table.column_names}, columns, path)


def _npz(path: Path, columns: Any) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return _chosen({name: archive[name] for name in archive.files}, columns, path)
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as .npz: {error}.") from None


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
        name: arrays[one] if isinstance(one, str) else np.stack([arrays[part] for part in one], axis=1)
        for name, one in wanted.items()
    }
