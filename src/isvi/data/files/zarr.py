"""Zarr stores."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import lcm
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.core.extras import import_extra
from isvi.data.files.sliced import BLOCK_BYTES, Column, SlicedArrays
from isvi.data.source import WINDOW_BYTES, file_stamps


class Zarr(SlicedArrays):
    """Arrays in a Zarr store, of which only a part is in memory at any time. Needs the extra ``isvi[zarr]``.

    ``isvi.fit(model, isvi.data.Zarr("store.zarr", columns={"x": "features", "y": "late"}))``. Whole chunks are read,
    in an order that the fit's seed shuffles: chunks should be small next to ``window_bytes``.

    Args:
        store: what ``zarr.open`` takes: a path, or a store; or an opened group or array.
        columns: names of the group's arrays, by the names that the model knows them by; None for all arrays of
            the group, under their own names.
        window_bytes: how much is held in memory together, about. Three times as much is needed.
        missing_chunks: "error" refuses arrays of which chunks are not in the store; "fill" takes such chunks for their
            fill value without looking. Zarr itself leaves chunks out that hold nothing else, unless they are written
            with ``write_empty_chunks``, and nothing tells these from lost ones.
    """

    def __init__(
        self,
        store: Any,
        columns: Mapping[str, str] | None = None,
        *,
        window_bytes: int = WINDOW_BYTES,
        missing_chunks: Literal["error", "fill"] = "error",
    ) -> None:
        require(
            missing_chunks in ("error", "fill"),
            ConfigurationError,
            f'missing_chunks must be "error" or "fill"; it is {missing_chunks!r}.',
        )
        zarr = import_extra("zarr", "zarr", "isvi.data.Zarr")
        self._store, self._chosen = store, None if columns is None else dict(columns)
        opened = store
        try:
            if not isinstance(store, (zarr.Group, zarr.Array)):
                opened = zarr.open(store, mode="r")
            arrays = {} if isinstance(opened, zarr.Array) else dict(opened.arrays())
        except Exception as error:  # of its metadata, which may be anything
            raise DataError(f"{store} cannot be opened as a Zarr store: {type(error).__name__}: {error}") from error
        if isinstance(opened, zarr.Array):
            require(columns is None, ConfigurationError, f"{store} holds one array, so that columns cannot be chosen.")
            super().__init__(Column(opened, f"{store}"), _rows_per_block([opened]), window_bytes)
            if missing_chunks == "error":
                _require_chunks(self._flat)
            return
        chosen = dict(columns) if columns is not None else {name: name for name in sorted(arrays)}
        for name, path in chosen.items():
            require(
                path in arrays,
                DataError,
                f"{store} has no array {path!r}, which columns names for {name!r}; it has {sorted(arrays)}.",
            )
        named = {name: Column(arrays[path], f"{path!r} of {store}") for name, path in chosen.items()}
        super().__init__(named, _rows_per_block([column.array for column in named.values()]), window_bytes)
        if missing_chunks == "error":
            _require_chunks(self._flat)

    @property
    def identity(self) -> Any:
        files = file_stamps(self.files) if self.files else None  # without files: not on a disk of this machine
        return None if files is None else {"zarr": files, "columns": self._chosen}

    @property
    def files(self) -> Sequence[Path]:
        if not isinstance(self._store, (str, PathLike)) or not Path(self._store).exists():
            return ()
        place = Path(self._store)
        return [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())


def _rows_per_block(arrays: list[Any]) -> int | None:
    """Whole chunks of every array, as far as that does not make blocks large; several of them if they are small."""
    if not arrays or any(not array.shape for array in arrays):
        return None
    common = lcm(*(array.chunks[0] for array in arrays))
    row_bytes = sum(array.nbytes // max(1, array.shape[0]) for array in arrays)
    if common * row_bytes > 16 * BLOCK_BYTES:
        common = max(array.chunks[0] for array in arrays)
    return common * max(1, BLOCK_BYTES // max(1, common * row_bytes))


def _require_chunks(columns: list[Column]) -> None:
    from zarr.core.sync import sync  # stores answer in the event loop of zarr only

    for column in columns:
        array = column.array
        stored = array.shards or array.chunks  # what is one object of the store, and is lost as a whole
        counts = [-(-size // length) for size, length in zip(array.shape, stored, strict=True)]
        path = array.store_path.path
        rows = {
            f"{path}/{array.metadata.encode_chunk_key(place)}".lstrip("/"): place[0] * stored[0]
            for place in product(*map(range, counts))
        }
        try:
            missing = sync(_missing(array.store_path.store, path, list(rows)))
        except Exception as error:  # of any store, which may allow reading only
            raise DataError(
                f"{column.name} cannot be asked which of its chunks are there: {type(error).__name__}: {error}. To "
                "read it without that, as fill values where chunks are missing: "
                'isvi.data.Zarr(..., missing_chunks="fill").'
            ) from error
        if missing:
            first = rows[missing[0]]
            raise DataError(
                f"{column.name} should have {len(rows)} chunks in its store, and {len(missing)} of them are missing, "
                f"the first of them {missing[0]}, of rows {first} to {min(first + stored[0], array.shape[0])}. If they "
                f"were lost, restore them. If all their values are {array.fill_value}, Zarr may have left them out "
                'when they were written: then say isvi.data.Zarr(..., missing_chunks="fill"), or write the array with '
                'config={"write_empty_chunks": True}.'
            )


async def _missing(store: Any, path: str, keys: list[str]) -> list[str]:
    """Keys that are not in the store. One listing answers for most; what it does not name is asked for by itself,
    since some stores (HTTP) have no complete listing. ``Array.nchunks_initialized`` compares every key with every
    other, and counts chunks beyond the end of the last shard."""
    listed = {key async for key in store.list_prefix(path)} if store.supports_listing else set()
    return [key for key in keys if key not in listed and not await store.exists(key)]
