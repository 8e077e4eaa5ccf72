"""Mini-batches: every row once, the same rows every time, an uneven last one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvi


def rows_of(dataset: isvi.Dataset, index: int):
    """The rows of one mini-batch; full and short ones differ in shape, so they are fetched outside of ``apply``."""
    if dataset.rest is not None and index == dataset.num_batches - 1:
        return jax.device_get(dataset.rest)
    return jax.device_get(jax.tree.map(lambda leaf: leaf[index], dataset.full))


@pytest.mark.parametrize(("size", "batch_size", "num_batches"), [(12, 4, 3), (13, 4, 4), (5, 5, 1), (5, 1, 5)])
def test_every_row_is_in_exactly_one_mini_batch(size, batch_size, num_batches):
    dataset = isvi.Dataset.from_arrays(np.arange(size), batch_size)
    assert dataset.num_batches == num_batches
    rows = np.concatenate([rows_of(dataset, index) for index in range(num_batches)])
    assert sorted(rows.tolist()) == list(range(size))
    assert (rows.tolist() == list(range(size))) is (num_batches == 1)  # shuffled, if there is anything to shuffle


def test_apply_gives_the_rows_of_each_mini_batch():
    dataset = isvi.Dataset.from_arrays(np.arange(13.0), 4, shuffle_seed=None)
    totals = jax.jit(jax.vmap(lambda index: dataset.batch(index).apply(lambda rows, count: rows.sum() + 100 * count)))
    np.testing.assert_array_equal(totals(jnp.arange(4)), [406, 422, 438, 112])


@pytest.mark.parametrize("batch_size", [4, 5, 13])
def test_shares_sum_to_one(batch_size):
    dataset = isvi.Dataset.from_arrays(np.arange(13), batch_size)
    shares = [float(dataset.batch(index).share) for index in range(dataset.num_batches)]
    np.testing.assert_allclose(sum(shares), 1.0, rtol=1e-6)


def test_columns_stay_together():
    x = np.arange(10)
    dataset = isvi.Dataset.from_arrays({"x": x, "y": 2 * x, "z": np.stack([x, x], axis=1)}, 3)
    for index in range(dataset.num_batches):
        rows = rows_of(dataset, index)
        np.testing.assert_array_equal(rows["y"], 2 * rows["x"])
        np.testing.assert_array_equal(rows["z"][:, 1], rows["x"])


def test_assignment_depends_on_the_seed_only():
    first, second, other = (isvi.Dataset.from_arrays(np.arange(20), 3, shuffle_seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.full, second.full)
    assert (np.asarray(first.full) != np.asarray(other.full)).any()


def test_no_data_is_one_empty_mini_batch():
    dataset = isvi.Dataset.from_arrays(None)
    assert dataset.num_batches == 1
    assert float(dataset.batch(0).share) == 1.0


@pytest.mark.parametrize("make", [list, np.asarray, jnp.asarray, tuple], ids=["list", "numpy", "jax", "tuple"])
def test_columns_of_every_kind(make):
    pytest.importorskip("pandas")
    import pandas

    column = make([1.0, 2.0, 3.0])
    dataset = isvi.Dataset.from_arrays({"a": column, "b": pandas.Series([4, 5, 6])})
    np.testing.assert_array_equal(dataset.full["a"], [[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(dataset.full["b"], [[4, 5, 6]])


def test_a_data_frame_becomes_its_columns():
    pandas = pytest.importorskip("pandas")
    dataset = isvi.Dataset.from_arrays(pandas.DataFrame({"a": [1.0, 2.0], "b": [True, False]}))
    assert sorted(dataset.full) == ["a", "b"]
    assert dataset.full["b"].dtype == bool


def test_a_tuple_stays_a_tuple():
    dataset = isvi.Dataset.from_arrays((np.zeros(4), np.ones((4, 2))), 2)
    assert [leaf.shape for leaf in dataset.full] == [(2, 2), (2, 2, 2)]
