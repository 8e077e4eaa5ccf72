"""Tables of other libraries just work; what would be lost or change its value on the way is refused or converted."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import csv, feather, parquet

import isvi
from isvi.cli.data_file import open_data_file
from isvi.data.arrays import checked_arrays
from isvi.data.opening import open_data

COLUMNS = {"x": np.arange(5) / 4, "y": np.array([0, 1, 1, 0, 1]), "late": np.array([True, False, True, True, False])}


def polars() -> Any:
    return pytest.importorskip("polars")


def tables() -> dict[str, Any]:
    arrow = pyarrow.table(COLUMNS)
    return {
        "pandas": lambda: pandas.DataFrame(COLUMNS),
        "pandas, nullable": lambda: pandas.DataFrame(COLUMNS).convert_dtypes(),
        "arrow": lambda: arrow,
        "arrow, in chunks": lambda: pyarrow.concat_tables([arrow.slice(0, 2), arrow.slice(2)]),
        "record batch": lambda: arrow.to_batches()[0],
        "polars": lambda: polars().DataFrame(COLUMNS),
        "columns of polars": lambda: {name: polars().Series(column) for name, column in COLUMNS.items()},
        "columns of arrow": lambda: {name: arrow[name] for name in COLUMNS},
    }


@pytest.mark.parametrize("kind", tables())
def test_a_table_is_its_columns(kind):
    arrays, rows = checked_arrays(tables()[kind]())
    assert rows == 5
    assert list(arrays) == list(COLUMNS)
    for name, column in COLUMNS.items():
        np.testing.assert_array_equal(arrays[name], column.astype(arrays[name].dtype))


@pytest.mark.parametrize("kind", ["pandas", "arrow", "polars"])
def test_a_fit_to_a_table(kind):
    def log_likelihood(z, rows):
        return -0.5 * jnp.sum((rows["y"] - z["m"] * rows["x"]) ** 2)

    model = isvi.Model({"m": isvi.real()}, lambda z: -0.5 * z["m"] ** 2, log_likelihood)
    options = {"algorithm": isvi.SGD(), "budget": 30, "batch_size": 2, "progress": False}
    table = tables()[kind]()
    expected = isvi.fit(model, COLUMNS, **options).mean()["m"]
    assert isvi.fit(model, table, **options).mean()["m"] == expected


@pytest.mark.parametrize("suffix", ["csv", "feather", "parquet"])
def test_five_thousand_columns(suffix: str, tmp_path: Path) -> None:
    """As one array of the model's."""
    values, path = np.random.default_rng(0).normal(size=(6, 5_000)), tmp_path / f"wide.{suffix}"
    names = [f"x{number}" for number in range(5_000)]
    write: dict[str, Any] = {"csv": csv.write_csv, "feather": feather.write_feather, "parquet": parquet.write_table}
    write[suffix](pyarrow.table(dict(zip(names, values.T, strict=True))), path)
    (part,) = open_data(open_data_file(path, {"x": names}), 6).parts()
    np.testing.assert_array_equal(part.full["x"][0], values.astype(np.float32))


def with_null(kind: str) -> Any:
    values = [1, 2, None, 4]
    return {
        "pandas": lambda: pandas.DataFrame({"y": pandas.array(values, "Int64")}),
        "pandas column": lambda: {"y": pandas.Series(pandas.array([True, None], "boolean"))},
        "arrow": lambda: pyarrow.table({"y": pyarrow.array(values)}),
        "polars": lambda: polars().DataFrame({"y": values}),
        "masked": lambda: {"y": np.ma.masked_greater(np.array([1.0, 2.0, 9.0]), 5)},
        "masked matrix": lambda: np.ma.masked_equal(np.arange(6).reshape(3, 2), 3),
    }[kind]()


@pytest.mark.parametrize("kind", ["pandas", "pandas column", "arrow", "polars", "masked", "masked matrix"])
def test_missing_values_are_refused(kind):
    with pytest.raises(isvi.DataError, match=r"has no value at row [12] \(masked or null\), and 1 missing"):
        checked_arrays(with_null(kind))


def test_a_mask_without_missing_values_is_no_mask():
    arrays, _ = checked_arrays({"y": np.ma.masked_greater(np.array([1.0, 2.0]), 5)})
    assert type(arrays["y"]) is np.ndarray


def test_masks_are_not_lost_by_other_ways(tmp_path):
    """Beside a memory-mapped array, and by the rows that a model on the host keeps to itself."""
    masked = np.ma.masked_equal(np.arange(6.0), 4)
    source = isvi.data.Npy({"a": np.arange(6.0), "b": masked})
    with pytest.raises(isvi.DataError, match="has no value at row 4"):
        list(source.chunks(0, 2, 6))
    model = isvi.from_gradient(lambda z, rows: (0.0, z), {"m": isvi.real()}, log_prior=lambda z: -(z["m"] ** 2))
    with pytest.raises(isvi.DataError, match="has no value at row 4"):
        isvi.fit(model, {"y": masked})


@pytest.mark.parametrize(
    "table",
    [
        lambda: pandas.DataFrame(np.ones((3, 2)), columns=["a", "a"]),
        lambda: pandas.DataFrame(np.ones((3, 2)), columns=[1, "1"]),
        lambda: pyarrow.Table.from_arrays([pyarrow.array([1.0])] * 2, ["a", "a"]),
    ],
    ids=["pandas", "as text", "arrow"],
)
def test_columns_of_one_name_are_refused(table):
    with pytest.raises(isvi.DataError, match=r"several columns called '[a1]'"):
        checked_arrays(table())


def test_a_lazy_frame_is_told_to_collect():
    with pytest.raises(isvi.DataError, match="collect"):
        checked_arrays(polars().DataFrame(COLUMNS).lazy())


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.uint64])
def test_small_and_unsigned_integers_do_not_wrap(dtype, tmp_path):
    """``2 * y - 1`` of labels 0 and 1 is -1 and 1, whatever they are stored as, in memory or not."""
    labels = np.array([0, 1, 1, 0], dtype)
    np.save(tmp_path / "y.npy", labels)
    for data in ({"y": labels}, isvi.data.Npy({"y": tmp_path / "y.npy"})):
        found = open_data(data, 4, None).first.full["y"]
        assert found.dtype == np.int32
        assert jnp.array_equal(2 * found[0] - 1, jnp.array([-1, 1, 1, -1]))
    with pytest.raises(isvi.DataError, match="outside the range of int32"):
        checked_arrays({"y": np.array([2**31], np.uint64)})
    with jax.enable_x64(True):
        assert checked_arrays({"y": np.array([2**31], np.uint32)})[0]["y"][0] == 2**31
