"""Chunks that are not in a Zarr store are not taken for data, unless the user says that they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import files

import isvi
from isvi.data import Stream, Zarr

zarr = pytest.importorskip("zarr", reason="zarr is not installed: pip install 'isvi[zarr]'")

ROWS = 90


def values(source: isvi.data.Source) -> np.ndarray:
    return np.sort(np.concatenate([np.ravel(part.full) for part in Stream(source, 10).parts()]))


def written(store: Any, **options: Any) -> Any:
    """One array with the values 1 to 90, none of which is the fill value."""
    array = zarr.create_array(store, shape=(ROWS,), dtype="f4", **{"chunks": (20,), **options})
    array[:] = np.arange(1, ROWS + 1)
    return array


def test_a_lost_chunk_is_refused(tmp_path: Path) -> None:
    store = files.write_zarr(tmp_path / "store.zarr", files.columns(ROWS))
    Zarr(store)
    (tmp_path / "store.zarr" / "x" / "c" / "4" / "0").unlink()
    message = r"'x' of .*store\.zarr should have 5 chunks.* 1 of them are missing.*x/c/4/0, of rows 80 to 90.*=\"fill\""
    with pytest.raises(isvi.DataError, match=message):
        Zarr(store)
    assert Zarr(store, {"y": "y"}).num_rows == ROWS  # what is not read may be missing


@pytest.mark.parametrize(
    ("options", "lost"),
    [({}, "c/1"), ({"zarr_format": 2}, "1"), ({"chunks": (10,), "shards": (20,)}, "c/1")],
    ids=["chunks", "format 2", "shards"],
)
def test_every_layout(options: dict[str, Any], lost: str, tmp_path: Path) -> None:
    """The last shard reaches beyond the last row, and is whole nonetheless."""
    written(tmp_path / "y.zarr", **options)
    assert values(Zarr(tmp_path / "y.zarr")).tolist() == list(range(1, ROWS + 1))
    (tmp_path / "y.zarr" / lost).unlink()
    with pytest.raises(isvi.DataError, match=r"5 chunks.* 1 of them are missing.*of rows 20 to 40"):
        Zarr(tmp_path / "y.zarr")
    filled = values(Zarr(tmp_path / "y.zarr", missing_chunks="fill"))
    assert filled.tolist() == [0] * 20 + list(range(1, 21)) + list(range(41, ROWS + 1))


def test_chunks_that_zarr_left_out_need_a_word(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], [40, 50]).astype(np.int32)
    zarr.create_array(tmp_path / "short.zarr", data=labels, chunks=(20,))
    zarr.create_array(tmp_path / "whole.zarr", data=labels, chunks=(20,), config={"write_empty_chunks": True})
    with pytest.raises(isvi.DataError, match=r"2 of them are missing.*write_empty_chunks"):
        Zarr(tmp_path / "short.zarr")
    assert values(Zarr(tmp_path / "short.zarr", missing_chunks="fill")).tolist() == labels.tolist()
    assert values(Zarr(tmp_path / "whole.zarr")).tolist() == labels.tolist()


def test_a_folder_and_an_array_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zarr's own listing of a relative path drops the name twice: chunks are asked for before they are missed."""
    monkeypatch.chdir(tmp_path)
    group = zarr.open_group("y", mode="w")
    group.create_array("y", shape=(ROWS,), dtype="f4", chunks=(20,))[:] = 1.0
    assert Zarr("y").num_rows == ROWS


class Unlisted(zarr.storage.MemoryStore):
    """As over HTTP: objects can be asked for by name only."""

    supports_listing = False

    def list_prefix(self, prefix: str) -> Any:
        raise NotImplementedError


class Unwilling(zarr.storage.MemoryStore):
    """As with a key that may read, and may not list."""

    def list_prefix(self, prefix: str) -> Any:
        raise PermissionError("listing is not allowed")


def test_stores_without_a_listing() -> None:
    unlisted = Unlisted()
    array = written(unlisted)
    assert Zarr(array).num_rows == ROWS
    del unlisted._store_dict["c/3"]
    with pytest.raises(isvi.DataError, match=r"1 of them are missing.*c/3"):
        Zarr(array)
    unwilling = written(Unwilling())
    with pytest.raises(isvi.DataError, match=r"PermissionError: listing is not allowed.*missing_chunks"):
        Zarr(unwilling)
    assert Zarr(unwilling, missing_chunks="fill").num_rows == ROWS


def test_other_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(isvi.ConfigurationError, match=r"missing_chunks must be .* it is 'zero'"):
        Zarr(tmp_path, missing_chunks="zero")  # type: ignore[arg-type]
