"""Bytes that a disk got wrong are noticed, and become no numbers."""

import os
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import isvi
from isvi.data import Cached, Stream


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def rows_of(source: isvi.data.Source) -> list[np.ndarray]:
    return [np.asarray(part.full["y"]) for part in Stream(source, 20).parts()]


def test_in_a_parquet_file_with_sums_over_its_pages(tmp_path):
    path = tmp_path / "y.parquet"
    values = np.random.default_rng(0).normal(size=400)
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    parquet.write_table(pyarrow.table({"y": values}), path, **options)
    assert sum(map(np.size, rows_of(isvi.data.Parquet(path)))) == 400
    flip(path, path.read_bytes().index(values[200].tobytes()) + 5)
    with pytest.raises(isvi.DataError, match=r"y\.parquet.*(damaged|checksum|CRC)"):
        rows_of(isvi.data.Parquet(path))


def test_in_a_file_that_is_written_to_while_it_is_read(tmp_path):
    path = tmp_path / "y.parquet"
    parquet.write_table(pyarrow.table({"y": np.arange(40.0)}), path)
    source = isvi.data.Parquet(path)
    parquet.write_table(pyarrow.table({"y": np.arange(40.0) + 1}), path)
    os.utime(path, ns=(0, 0))
    with pytest.raises(isvi.DataError, match="has changed since it was opened"):
        rows_of(source)


def test_windows_of_a_cache_that_were_swapped(tmp_path):
    """Whole and undamaged, but in each other's place."""
    np.save(tmp_path / "y.npy", np.random.default_rng(0).normal(size=400))
    source = isvi.data.Npy({"y": tmp_path / "y.npy"}, window_bytes=1)
    expected = rows_of(Cached(source, tmp_path / "cache"))
    one, other = (next((tmp_path / "cache").glob(f"*/window-{number}")) for number in (0, 1))
    contents = one.read_bytes(), other.read_bytes()
    assert len(contents[0]) == len(contents[1])
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    np.testing.assert_array_equal(rows_of(Cached(source, tmp_path / "cache")), expected)


def test_in_the_cache_at_any_place(tmp_path):
    """Each byte in turn, of the values and of the sums behind them: the rows are those of the source."""
    np.save(tmp_path / "y.npy", np.random.default_rng(0).normal(size=100))
    source = isvi.data.Npy({"y": tmp_path / "y.npy"})
    expected = rows_of(Cached(source, tmp_path / "cache"))
    (kept,) = (tmp_path / "cache").glob("*/window-0")
    whole = kept.read_bytes()
    for place in range(0, len(whole), 7):
        flip(kept, place)
        np.testing.assert_array_equal(rows_of(Cached(source, tmp_path / "cache")), expected)
        kept.write_bytes(whole)
