"""The same rows in every kind of source."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import isvi

ROWS_PER_LOADED_BATCH = 37


def columns(num_rows: int) -> dict[str, np.ndarray]:
    """Every number tells its row, so that rows that are missing, doubled or torn apart are seen."""
    row = np.arange(num_rows)
    return {"x": np.stack([row, row + 0.25, -row], axis=1).astype(np.float32), "y": row.astype(np.int32)}


def write_parquet(folder: Path, data: dict[str, np.ndarray], row_group_size: int = 30) -> Path:
    """Two files, with row groups that match neither mini-batches nor windows."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({**{f"x{j}": data["x"][:, j] for j in range(data["x"].shape[1])}, "y": data["y"]})
    cut = len(table) // 3
    for name, part in {"a": table.slice(0, cut), "b": table.slice(cut)}.items():
        parquet.write_table(part, folder / f"{name}.parquet", row_group_size=row_group_size)
    return folder


def write_npy(folder: Path, data: dict[str, np.ndarray]) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, column in data.items():
        np.save(folder / f"{name}.npy", column)
    return {name: folder / f"{name}.npy" for name in data}


def write_zarr(path: Path, data: dict[str, np.ndarray]) -> str:
    import zarr

    group = zarr.open_group(str(path), mode="w")
    for name, column in data.items():
        array = group.create_array(
            name,
            shape=column.shape,
            dtype=column.dtype,
            chunks=(20, *column.shape[1:]),
            config={"write_empty_chunks": True},
        )
        array[:] = column
    return str(path)


class Sequence:
    """Batches by their number."""

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.data, self.num_rows = data, len(data["y"])

    def __len__(self) -> int:
        return -(-self.num_rows // ROWS_PER_LOADED_BATCH)

    def __getitem__(self, number: int) -> dict[str, np.ndarray]:
        start = number * ROWS_PER_LOADED_BATCH
        return {name: column[start : start + ROWS_PER_LOADED_BATCH] for name, column in self.data.items()}


class Loader:
    """Batches one after the other, as often as one likes."""

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.batches = Sequence(data)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self.batches[number] for number in range(len(self.batches)))


KINDS = ("parquet", "npy", "zarr", "sequence", "loader")


def make_source(kind: str, folder: Path, data: dict[str, np.ndarray], window_bytes: int = 1) -> Any:
    """A source with the smallest windows there are, unless said otherwise."""
    num_rows, width = data["x"].shape
    if kind == "parquet":
        chosen = {"x": [f"x{j}" for j in range(width)], "y": "y"}
        return isvi.data.Parquet(write_parquet(folder / "parquet", data), chosen, window_bytes=window_bytes)
    if kind == "npy":
        return isvi.data.Npy(write_npy(folder / "npy", data), window_bytes=window_bytes)
    if kind == "zarr":
        return isvi.data.Zarr(write_zarr(folder / "store.zarr", data), window_bytes=window_bytes)
    if kind == "sequence":
        return isvi.data.Batches(Sequence(data), window_bytes=window_bytes)
    return isvi.data.Batches(Loader(data), num_rows=num_rows, window_bytes=window_bytes)
