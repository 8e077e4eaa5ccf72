"""Sources that cannot be used say so: with file, row and column, at the start or when the rows are met."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support import files

import isvi
from isvi.data import Batches, Npy, Parquet, Stream, Zarr
from isvi.data.files.npy import RESIDENT_BYTES, is_large_map
from isvi.data.opening import as_source

ROWS = 200


def says(*parts: str) -> str:
    """A pattern: all parts, in this order."""
    return "(?s)" + ".*".join(re.escape(part) for part in parts)


def read_all(source: Any) -> None:
    for _ in Stream(source, 10).parts():
        pass


def tables(folder: Path, *parts: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, columns in enumerate(parts):
        parquet.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=40)
    return folder


def spoiled(value: float, row: int) -> np.ndarray:
    column = np.zeros(ROWS)
    column[row] = value
    return column


NUMBERS = {"a": np.zeros(ROWS), "b": np.arange(ROWS)}
AT_THE_START: dict[str, tuple[list[dict[str, Any]], Any, str]] = {
    "missing column": ([NUMBERS], {"x": "c"}, says("0.parquet has no column 'c'", "'a', 'b'")),
    "missing in the second file": ([NUMBERS, {"a": np.zeros(3)}], ["a", "b"], says("1.parquet has no column 'b'")),
    "strings": ([{"s": ["u", "v"]}], None, says("column 's'", "0.parquet", "numbers or booleans", "string", "Encode")),
    "categories": (
        [{"s": pa.array(["u", "v"]).dictionary_encode()}],
        None,
        says("column 's'", "dictionary", "cat.codes"),
    ),
    "times": ([{"t": pa.array([0, 1], pa.timestamp("s"))}], None, says("column 't'", "timestamp", "hours since")),
    "lists": ([{"l": [[1.0], [2.0]]}], None, says("column 'l'", "list", "columns of their own")),
    "another type": (
        [NUMBERS, {"a": np.zeros(3, np.float32), "b": np.arange(3)}],
        ["a", "b"],
        says("column 'a' changes its type", "double in", "0.parquet", "float in", "1.parquet"),
    ),
    "no rows": ([{"a": np.zeros(0)}], None, says("empty", "0 rows")),
    "no columns": ([NUMBERS], {}, says("no columns", "0.parquet")),
}


@pytest.mark.parametrize("case", AT_THE_START)
def test_schemas_are_checked_at_the_start(case: str, tmp_path: Path) -> None:
    parts, columns, message = AT_THE_START[case]
    with pytest.raises(isvi.DataError, match=message):
        Parquet(tables(tmp_path / "data", *parts), columns)


WHEN_MET: dict[str, tuple[dict[str, Any], str]] = {
    "nan": ({"a": spoiled(np.nan, 123)}, says("column 'a' of", "1.parquet", "holds nan at row 123", "Drop or impute")),
    "infinity": ({"a": spoiled(-np.inf, 7)}, says("column 'a' of", "1.parquet", "holds -inf at row 7")),
    "null": ({"a": [*[0.5] * 150, None, *[0.5] * 49]}, says("column 'a' of", "1.parquet is null at row 150", "1 time")),
    "huge integer": ({"b": np.arange(ROWS) + 2**40}, says("column 'b' of", "1.parquet", "range of int32", "64 bits")),
    "huge float": ({"a": spoiled(1e200, 3)}, says("column 'a' of", "1.parquet", "too large for float32")),
}


@pytest.mark.parametrize("case", WHEN_MET)
@pytest.mark.parametrize("columns", [{"x": ["a", "c"], "y": "b"}, ["a", "b", "c"]], ids=["matrix", "columns"])
def test_values_are_checked_when_they_are_met(case: str, columns: Any, tmp_path: Path) -> None:
    changed, message = WHEN_MET[case]
    good = {**NUMBERS, "c": np.ones(ROWS)}
    source = Parquet(tables(tmp_path / "data", good, {**good, **changed}, good), columns, window_bytes=1)
    with pytest.raises(isvi.DataError, match=message):
        read_all(source)


def test_a_column_in_a_matrix_is_named_when_it_is_an_integer(tmp_path: Path) -> None:
    source = Parquet(tables(tmp_path / "data", {"a": np.arange(19), "b": np.arange(19) + 2**40}), {"x": ["a", "b"]})
    with pytest.raises(isvi.DataError, match=says("column 'b'", "range of int32")):
        read_all(source)


def test_matrices_of_mixed_columns_take_the_common_type(tmp_path: Path) -> None:
    data = {"i": np.arange(50), "f": np.arange(50) + 0.5, "b": np.arange(50) % 2 == 0}
    source = Parquet(tables(tmp_path / "data", data), {"x": ["i", "f", "b"], "flag": "b", "n": "i"})
    head = source.head(20)
    np.testing.assert_array_equal(head["x"], np.stack([np.arange(20), np.arange(20) + 0.5, data["b"][:20]], axis=1))
    assert (head["x"].dtype, head["flag"].dtype, head["n"].dtype) == (np.float32, bool, np.int32)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = tables(tmp_path / "data", NUMBERS, NUMBERS)
    whole = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        isvi.DataError, match=says("1.parquet cannot be read as a Parquet file", "damaged or cut short")
    ):
        Parquet(folder)
    (folder / "1.parquet").write_bytes(whole)
    source = Parquet(folder, window_bytes=1)
    # The same length, time and description, but the pages are overwritten, as by a bad disk.
    before = (folder / "1.parquet").stat()
    (folder / "1.parquet").write_bytes(whole[:4] + b"\xff" * (len(whole) - 2004) + whole[-2000:])
    os.utime(folder / "1.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(isvi.DataError, match=says("1.parquet cannot be read as a Parquet file")):
        read_all(source)
    (folder / "1.parquet").unlink()
    with pytest.raises(isvi.DataError, match=says("no file", "1.parquet")):
        read_all(source)


def test_large_row_groups_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isvi.data.files.parquet.ROWS_AT_ONCE", 16)
    path = tmp_path / "one.parquet"
    parquet.write_table(pa.table({"a": np.arange(300)}), path, row_group_size=300)
    at_once = list(Parquet(path).chunks(0, 50, 111))
    np.testing.assert_array_equal(np.concatenate([chunk["a"] for chunk in at_once]), np.arange(50, 111))
    chunks = list(Parquet(path, window_bytes=1_000).chunks(0, 50, 111))
    assert max(len(chunk["a"]) for chunk in chunks) <= 16
    np.testing.assert_array_equal(np.concatenate([chunk["a"] for chunk in chunks]), np.arange(50, 111))


REFUSED: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "empty folder": (lambda folder: Parquet(folder), isvi.DataError, says("holds no *.parquet files")),
    "no parquet file": (lambda folder: Parquet(folder / "no.parquet"), isvi.DataError, says("no file", "no.parquet")),
    "no files": (lambda folder: Parquet([]), isvi.DataError, says("empty")),
    "columns as a string": (
        lambda folder: Parquet(tables(folder, NUMBERS), "a"),
        isvi.ConfigurationError,
        says("columns must be a dict", "got 'a'"),
    ),
    "an empty list of columns": (
        lambda folder: Parquet(tables(folder, NUMBERS), {"x": []}),
        isvi.ConfigurationError,
        says("columns['x'] is an empty list"),
    ),
    "window_bytes": (
        lambda folder: Parquet(tables(folder, NUMBERS), window_bytes=0),
        isvi.ConfigurationError,
        says("window_bytes must be a positive number", "got 0"),
    ),
    "no npy file": (lambda folder: Npy({"x": folder / "no.npy"}), isvi.DataError, says("no.npy cannot be opened")),
    "lists": (lambda folder: Npy({"x": [1.0]}), isvi.ConfigurationError, says("paths of .npy files", "list")),
    "no arrays": (lambda folder: Npy({}), isvi.DataError, says("names no arrays")),
    "no zarr": (lambda folder: Zarr(str(folder / "no.zarr")), isvi.DataError, says("no.zarr cannot be opened")),
    "a generator": (
        lambda folder: Batches((batch for batch in [np.zeros(3)]), num_rows=3),
        isvi.ConfigurationError,
        says("generator can be gone through only once", "lambda: ..."),
    ),
    "arrays as batches": (
        lambda folder: Batches({"x": np.zeros(3)}),
        isvi.ConfigurationError,
        says("takes a loader", "got dict", "isvi.fit as they are"),
    ),
    "unknown number of rows": (
        lambda folder: Batches(files.Loader(files.columns(10))),
        isvi.ConfigurationError,
        says("num_rows=..."),
    ),
    "another number of rows": (
        lambda folder: Batches(files.Sequence(files.columns(100)), num_rows=90),
        isvi.DataError,
        says("num_rows is 90", "have 100"),
    ),
    "no batches": (lambda folder: Batches(lambda: iter(()), num_rows=3), isvi.DataError, says("no batches at all")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_source_is_refused(case: str, tmp_path: Path) -> None:
    use, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        use(tmp_path)


def test_npy_files_are_checked(tmp_path: Path) -> None:
    paths = files.write_npy(tmp_path, {"x": np.zeros((5, 2)), "y": np.zeros(4), "s": np.array(["a", "b"])})
    with pytest.raises(isvi.DataError, match=says("same number of rows", "x.npy): 5", "y.npy): 4")):
        Npy({"x": paths["x"], "y": paths["y"]})
    with pytest.raises(isvi.DataError, match=says("'s'", "s.npy", "numbers or booleans")):
        Npy({"s": paths["s"]})
    paths["x"].write_bytes(paths["x"].read_bytes()[:-8])
    with pytest.raises(isvi.DataError, match=says("x.npy cannot be opened as a .npy file")):
        Npy({"x": paths["x"]})
    np.savez(tmp_path / "z.npz", a=np.zeros(2))
    with pytest.raises(isvi.DataError, match=says("z.npz holds several arrays")):
        Npy(tmp_path / "z.npz")


@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_rows_of_arrays_are_checked_when_they_are_met(kind: str, tmp_path: Path) -> None:
    data = {"x": np.zeros((ROWS, 2)), "y": np.zeros(ROWS)}
    data["x"][171, 1] = np.nan
    with pytest.raises(isvi.DataError, match=says("'x'", "holds nan at row 171 (index [171, 1])")):
        read_all(files.make_source(kind, tmp_path, data))


def test_a_damaged_zarr_chunk_is_named(tmp_path: Path) -> None:
    store = files.write_zarr(tmp_path / "store.zarr", files.columns(ROWS))
    for chunk in (path for path in Path(store).rglob("*") if path.is_file() and "/x/c/" in str(path)):
        chunk.write_bytes(b"nonsense")
    with pytest.raises(isvi.DataError, match=says("'x' of", "store.zarr cannot be read at rows")):
        read_all(Zarr(store))
    with pytest.raises(isvi.DataError, match=says("store.zarr has no array 'w'", "['x', 'y']")):
        Zarr(store, {"x": "w"})


def test_batches_are_checked_when_they_are_met() -> None:
    data = {"x": np.zeros((ROWS, 1)), "y": np.zeros(ROWS)}
    data["y"][5 * files.ROWS_PER_LOADED_BATCH + 2] = np.nan
    with pytest.raises(isvi.DataError, match=says("Batch 5 of isvi.data.Batches", "data['y'] holds nan at row 2")):
        read_all(Batches(files.Loader(data), num_rows=ROWS))


def test_loaders_must_keep_their_word() -> None:
    data = files.columns(ROWS)
    with pytest.raises(isvi.DataError, match=says(f"ended after {ROWS} rows", f"num_rows is {ROWS + 1}")):
        read_all(Batches(files.Loader(data), num_rows=ROWS + 1))
    with pytest.raises(isvi.DataError, match=says("more rows than num_rows, 198")):
        read_all(Batches(files.Loader(data), num_rows=198))
    with pytest.raises(isvi.DataError, match=says("Batch 1", "rows instead of", "equally long")):
        read_all(Batches([data["y"][:50], data["y"][:20], data["y"][:50]]))
    with pytest.raises(isvi.DataError, match=says("Batch 1", "other arrays than the first")):
        read_all(Batches([data["y"][:50], data["x"][:50], data["y"][:50]]))


def test_loaders_that_shuffle_are_noticed() -> None:
    generator = np.random.default_rng(0)
    source = Batches(lambda: iter(np.split(generator.permutation(ROWS), 10)), num_rows=ROWS)
    read_all(source)
    with pytest.raises(isvi.DataError, match=says("holds other rows than before", "switch shuffling")):
        read_all(source)


def test_what_a_loader_raises_is_told() -> None:
    def broken() -> Any:
        yield np.zeros(10)
        raise RuntimeError("the network is down")

    with pytest.raises(isvi.DataError, match=says("Batch 1", "RuntimeError: the network is down")) as caught:
        read_all(Batches(broken, num_rows=20))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_lists_of_tuples_are_sequences_of_batches() -> None:
    batches = [[np.full(5, i), np.full((5, 2), i)] for i in range(4)]
    head = Batches(batches).head(7)
    assert [column.shape for column in head] == [(7,), (7, 2)]


def test_large_memory_maps_are_streamed_and_small_ones_read(tmp_path: Path) -> None:
    paths = files.write_npy(tmp_path, files.columns(ROWS))
    small = {name: np.load(path, mmap_mode="r") for name, path in paths.items()}
    assert as_source(small) is small
    large = np.lib.format.open_memmap(
        tmp_path / "large.npy", mode="w+", dtype=np.float32, shape=(RESIDENT_BYTES // 400 + 1, 100)
    )  # all zeros: a file with a hole, which takes no room
    assert is_large_map({"x": large})
    source = as_source({"x": large, "y": np.zeros(len(large))})
    assert isinstance(source, isvi.data.Source)
    assert source.head(3)["x"].shape == (3, 100)
    assert isinstance(as_source((large,)), isvi.data.Source)
    assert isinstance(as_source(large), isvi.data.Source)


@pytest.mark.parametrize(
    ("package", "extra", "use"), [("pyarrow", "parquet", lambda: Parquet("x")), ("zarr", "zarr", lambda: Zarr("x"))]
)
def test_missing_packages(package: str, extra: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(isvi.ConfigurationError, match=f"needs {package}.*pip install 'isvi\\[{extra}\\]'"):
        use()
