"""Groups in Parquet files: whole in every mini-batch, however they are torn, and the same answer as in memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from isvi.data import Parquet, grouped
from isvi.data.schedule import Schedule
from tests.support.mixed import logistic, logistic_rows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SIZES = np.random.default_rng(0).integers(1, 30, size=300)
HUGE = np.insert(SIZES, 100, 2_000)
"""One group is longer than a window."""


def written(folder, columns, cuts, row_group_size=100):
    """Columns as several files, cut at these rows."""
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(next(iter(columns.values())))], strict=True)):
        table = pa.table({name: column[first:last] for name, column in columns.items()})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=row_group_size)
    return folder


def of_sizes(folder, sizes, label=lambda number: number, **options):
    group = np.repeat(np.arange(len(sizes)), sizes)
    columns = {"g": group, "y": np.arange(len(group), dtype=float), "group": [label(number) for number in group]}
    rows = len(group)
    return grouped(Parquet(written(folder, columns, [rows // 3, rows // 2]), columns=["g", "y"], **options), by="group")


@pytest.mark.parametrize("sizes", [SIZES, HUGE, np.full(64, 7), np.ones(99, int)], ids=["unequal", "huge", "7", "1"])
@pytest.mark.parametrize("window_bytes", [6_000, 10**8])
def test_every_row_is_there_once_and_groups_are_whole_though_torn_over_files_and_row_groups(
    tmp_path, sizes, window_bytes
):
    data = of_sizes(tmp_path, sizes, window_bytes=window_bytes)
    assert data.sizes.tolist() == sizes.tolist()
    stream, seen, numbers = data.cut(200, seed=3), [], []
    for part in stream.parts():
        pack = jax.device_get(part.full)
        place = (
            np.broadcast_to(np.arange(pack.number.shape[1]), pack.there.shape[:2]) if pack.group is None else pack.group
        )
        number = np.take_along_axis(pack.number, place, axis=1)[..., None]
        assert (np.broadcast_to(number, pack.there.shape) == pack.rows["g"])[pack.there].all()
        seen += pack.rows["y"][pack.there].tolist()
        numbers += pack.number[pack.number >= 0].tolist()
    assert sorted(seen) == list(range(sizes.sum()))
    assert sorted(numbers) == list(range(len(sizes)))
    assert (stream.num_windows > 1) == (window_bytes == 6_000 and sizes.sum() > 500)


def test_every_mini_batch_is_found_in_the_window_that_the_schedule_asks_for(tmp_path):
    stream = of_sizes(tmp_path, SIZES, window_bytes=6_000).cut(200, seed=0)
    schedule = Schedule.start(jax.random.key(0), stream.num_batches, stream.windows)
    shapes = jax.tree.map(lambda a: a.shape[1:], stream.batch(0).dataset.full)
    groups = []
    for _ in range(stream.num_batches):
        window, index = stream.resident(schedule), schedule.next_index
        assert window.holds(index)
        assert jax.tree.map(lambda a: a.shape[1:], window.full) == shapes
        numbers = np.asarray(window.full.number[int(index) - int(window.offset)])
        groups += numbers[numbers >= 0].tolist()
        schedule = schedule.advance(jnp.array(True))
    stream.release()
    assert sorted(groups) == list(range(len(SIZES)))


def test_names_are_labels_and_the_column_of_the_groups_is_not_a_predictor(tmp_path):
    data = of_sizes(tmp_path, SIZES, label=lambda number: f"school {number:03d}")
    assert data.labels[:2].tolist() == ["school 000", "school 001"]
    assert set(data.layout) == {"g", "y"}
    assert "300 groups of 1 to 29, by 'group'" in repr(data)


def test_files_that_are_not_sorted_are_refused_with_what_to_do(tmp_path):
    columns = {"group": np.array([1, 1, 2, 1]), "y": np.zeros(4)}
    with pytest.raises(
        isvi.DataError, match=r"not sorted by 'group': those of group .*1.* several places.*ORDER BY group"
    ):
        grouped(Parquet(written(tmp_path, columns, [])), by="group")


@pytest.mark.parametrize(
    ("column", "told"),
    [(pa.array([1, None, 2]), "row 1 of .* has no group"), (pa.array([1.0, float("nan"), 2.0]), "is NaN there")],
)
def test_a_row_without_a_group_is_refused(tmp_path, column, told):
    pq.write_table(pa.table({"group": column, "y": np.zeros(3)}), tmp_path / "rows.parquet")
    with pytest.raises(isvi.DataError, match=told):
        grouped(Parquet(tmp_path / "rows.parquet", columns=["y"]), by="group")


def test_a_column_that_is_not_there_is_told(tmp_path):
    written(tmp_path, {"group": np.array([1, 2]), "y": np.zeros(2)}, [])
    with pytest.raises(isvi.DataError, match=r"no column 'school' to group by; it has \['group', 'y'\]"):
        grouped(Parquet(tmp_path), by="school")
    with pytest.raises(isvi.DataError, match="by the name of a column"):
        grouped(Parquet(tmp_path), by=np.array([1, 2]))


def test_a_streamed_fit_is_that_of_the_rows_in_memory(tmp_path):
    """Both promise means within 0.1 and sds within 10% of the same optimum."""
    rows = logistic_rows(400, tau=1.0)
    order = np.argsort(rows["group"], kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    files = written(tmp_path, rows, [333, 1_000])
    streamed = isvi.fit(
        logistic(),
        grouped(Parquet(files, columns=["x", "y"], window_bytes=5_000), by="group"),
        batch_size=200,
        progress=False,
    )
    resident = isvi.fit(logistic(), grouped(rows, by="group"), batch_size=200, progress=False)
    assert streamed.status.kind == resident.status.kind == "converged"
    for name in ("a", "b", "tau"):
        sd = resident.sd()[name]
        assert streamed.mean()[name] == pytest.approx(resident.mean()[name], abs=0.2 * sd)
        assert streamed.sd()[name] == pytest.approx(sd, rel=0.2)
    some = streamed.local(
        data=grouped({name: column[:50] for name, column in rows.items()}, by="group"), num_samples=50
    )
    assert len(some.groups) > 1
    with pytest.raises(isvi.ConfigurationError, match="groups are in files"):
        streamed.local(["g1"])
