"""Data larger than memory: every row once per epoch, in mini-batches that stay what they are."""

import threading
import weakref
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import files

import isvi
from isvi.data import Schedule, Stream
from isvi.data.reader import AHEAD, THREAD_NAME
from isvi.data.schedule import order_of_visits

ROWS, BATCH_SIZE = 513, 20
"""25 full mini-batches, in windows of 4, and one of 13 rows."""
KEY = jax.random.key(5)
ALL_KINDS = pytest.mark.parametrize("kind", files.KINDS)


def make_stream(kind: str, folder: Path, seed: int | None = 0, batch_size: int = BATCH_SIZE, **options: Any) -> Stream:
    return Stream(files.make_source(kind, folder, files.columns(ROWS), **options), batch_size, seed)


def rows_of(dataset: isvi.Dataset, index: int) -> dict[str, np.ndarray]:
    """The rows of a mini-batch that is in memory."""
    assert dataset.holds(jnp.int32(index))
    if dataset.rest is not None and index == dataset.num_batches - 1:
        return jax.device_get(dataset.rest)
    offset = 0 if dataset.offset is None else int(dataset.offset)
    return jax.device_get(jax.tree.map(lambda leaf: leaf[index - offset], dataset.full))


def epoch(stream: Stream, number: int = 0) -> list[dict[str, np.ndarray]]:
    """The rows of all mini-batches, by index, as the loop would meet them in one epoch."""
    order = order_of_visits(KEY, stream.num_batches, stream.windows)
    found = {}
    for position, index in enumerate(np.asarray(order)):
        visited = jnp.int32(number * stream.num_batches + position)
        found[int(index)] = rows_of(stream.resident(Schedule(order, visited)), int(index))
    stream.release()
    return [found[index] for index in range(stream.num_batches)]


@ALL_KINDS
@pytest.mark.parametrize("batch_size", [20, 27], ids=["a shorter mini-batch", "none"])
def test_an_epoch_visits_every_row_once(kind: str, batch_size: int, tmp_path: Path) -> None:
    stream = make_stream(kind, tmp_path, batch_size=batch_size)
    assert stream.num_windows > 1
    batches = epoch(stream)
    assert [len(rows["y"]) for rows in batches[:-1]] == [batch_size] * (len(batches) - 1)
    together = {name: np.concatenate([rows[name] for rows in batches]) for name in ("x", "y")}
    whole, order = files.columns(ROWS), np.argsort(together["y"])
    for name, column in whole.items():
        np.testing.assert_array_equal(together[name][order], column)


@ALL_KINDS
def test_mini_batches_keep_their_rows(kind: str, tmp_path: Path) -> None:
    stream = make_stream(kind, tmp_path)
    batches = epoch(stream)
    for again in (epoch(stream, 1), epoch(stream, 2), epoch(make_stream(kind, tmp_path))):
        jax.tree.map(np.testing.assert_array_equal, again, batches)


@ALL_KINDS
def test_the_seed_decides_which_rows_are_together(kind: str, tmp_path: Path) -> None:
    one, other = (epoch(make_stream(kind, tmp_path, seed)) for seed in (0, 1))
    assert any((a["y"] != b["y"]).any() for a, b in zip(one, other, strict=True))
    stored = epoch(make_stream(kind, tmp_path, None))
    # The shorter mini-batch is the first rows, so that a loader need not be run to its end for it.
    np.testing.assert_array_equal(np.concatenate([stored[-1]["y"], *(b["y"] for b in stored[:-1])]), np.arange(ROWS))


@ALL_KINDS
def test_parts_hold_every_row_once(kind: str, tmp_path: Path) -> None:
    rows = []
    for part in make_stream(kind, tmp_path).parts():
        rows += np.asarray(part.full["y"]).ravel().tolist()
        rows += [] if part.rest is None else np.asarray(part.rest["y"]).tolist()
    assert sorted(rows) == list(range(ROWS))


@ALL_KINDS
def test_one_window_is_data_in_memory(kind: str, tmp_path: Path) -> None:
    stream = make_stream(kind, tmp_path, window_bytes=10**6)
    assert stream.windows is None
    assert stream.first.offset is None
    assert stream.first.holds(jnp.int32(7)) is True
    assert sorted(np.concatenate([rows["y"] for rows in epoch(stream)]).tolist()) == list(range(ROWS))


def test_windows_have_the_asked_size_and_one_shape(tmp_path: Path) -> None:
    # 16 bytes a row, 320 a mini-batch: 7 fit into 2,240 bytes. 25 in windows of at most 7 are 4 windows: of 7, 7, 7, 4.
    stream = make_stream("npy", tmp_path, window_bytes=2240)
    assert stream.num_windows == 4
    shapes = {str(jax.tree.map(jnp.shape, stream._reader.get(number))) for number in range(4)}
    stream.release()
    assert len(shapes) == 1
    assert stream.windows is not None
    assert stream.windows.length == 7


def test_double_precision_in_the_background(tmp_path: Path, x64: None) -> None:
    data = {"x": np.full((100, 1), 1 + 1e-12), "y": np.arange(100, dtype=np.int64) + 2**40}
    stream = Stream(files.make_source("npy", tmp_path, data), 10)
    rows = stream.first.full
    stream.release()
    assert (np.asarray(rows["x"]) == 1 + 1e-12).all()
    assert int(rows["y"].min()) == 2**40


def test_float64_becomes_what_jax_uses(tmp_path: Path) -> None:
    data = {"x": np.ones((100, 2)), "y": np.ones(100, bool)}
    for kind in files.KINDS:
        with_layout = Stream(files.make_source(kind, tmp_path, data), 10)
        assert with_layout.first.full["x"].dtype == jnp.float32
        assert with_layout.first.full["y"].dtype == bool
        with_layout.release()


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


def test_few_windows_are_alive_and_the_thread_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref] = []
    most, read = [0], Stream._read_window

    def alive() -> int:
        return sum(window() is not None for window in made)

    def counting(self: Stream, number: int, stop: threading.Event) -> isvi.Dataset:
        window = read(self, number, stop)
        made.append(weakref.ref(window))
        most[0] = max(most[0], alive())
        return window

    monkeypatch.setattr(Stream, "_read_window", counting)
    stream = make_stream("npy", tmp_path)
    order = order_of_visits(KEY, stream.num_batches, stream.windows)
    for position in range(stream.num_batches):
        stream.resident(Schedule(order, jnp.int32(position)))
        wait(stream._reader._coming.values())  # the thread has read as far ahead as it may
        assert len(reader_threads()) == 1
    assert 2 <= most[0] <= 1 + AHEAD
    stream.release()
    assert reader_threads() == []
    assert alive() == 0


def test_windows_are_read_before_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, read = [], Stream._read_window

    def noting(self: Stream, number: int, stop: threading.Event) -> isvi.Dataset:
        numbers.append(number)
        return read(self, number, stop)

    monkeypatch.setattr(Stream, "_read_window", noting)
    stream = make_stream("npy", tmp_path)
    order = order_of_visits(KEY, stream.num_batches, stream.windows)
    ahead = stream.visits(np.asarray(order))
    last_of_epoch = Schedule(order, jnp.int32(stream.num_batches - 1))
    stream.resident(Schedule(order, jnp.int32(0)))
    stream._reader._executor.shutdown(wait=True)  # type: ignore[union-attr]
    assert numbers == ahead[: 1 + AHEAD]
    stream.release()
    numbers.clear()
    stream.resident(last_of_epoch)
    stream._reader._executor.shutdown(wait=True)  # type: ignore[union-attr]
    expected = (stream.visits(np.asarray(order)[-1:]) + ahead)[: 1 + AHEAD]
    assert numbers == [n for i, n in enumerate(expected) if n not in expected[:i]]
    stream.release()
