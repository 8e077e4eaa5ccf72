"""Windows kept on disk: the same rows, found again if and only if they are the same, and never in the way of a fit."""

import errno
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import files, regression
from support.callbacks import StopAt

import isvi
from isvi.checkpoints.identity import identify_data
from isvi.data import Cached, Schedule, Source, Stream
from isvi.data.cache import FORGOTTEN_SECONDS, KeptWindows
from isvi.data.schedule import order_of_visits

ROWS, BATCH_SIZE = 513, 20
"""25 full mini-batches, in windows of 4, and one of 13 rows: 7 windows and the rest."""
KEY = jax.random.key(5)
IDENTIFIED = ("parquet", "npy", "zarr")


class Counting(Source):
    """A source that counts how often its rows are asked for."""

    def __init__(self, source: Source) -> None:
        self.source, self.calls = source, 0
        self.num_rows, self.block_rows, self.in_order = source.num_rows, source.block_rows, source.in_order
        self.window_bytes = source.window_bytes

    @property
    def layout(self) -> Any:
        return self.source.layout

    @property
    def identity(self) -> Any:
        return self.source.identity

    def chunks(self, block: int, start: int, stop: int) -> Iterator[Any]:
        self.calls += 1
        return self.source.chunks(block, start, stop)


def epoch(source: Source, seed: int | None = 0, batch_size: int = BATCH_SIZE) -> list[dict[str, np.ndarray]]:
    """The windows in the order of a fit, with the rest."""
    return epoch_of(Stream(source, batch_size, seed))


def epoch_of(stream: Stream) -> list[dict[str, np.ndarray]]:
    order = order_of_visits(KEY, stream.num_batches, stream.windows)
    found = []
    for position in range(stream.num_batches):
        window = stream.resident(Schedule(order, jnp.int32(position)))
        found.append(jax.tree.map(np.array, (window.full, window.rest)))
    del window
    stream.release()
    return found


def assert_same(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def kept_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[[], Counting]:
    """A new source of the same files, every time it is called."""
    files.write_parquet(tmp_path / "parquet", files.columns(ROWS))
    chosen = {"x": ["x0", "x1", "x2"], "y": "y"}
    return lambda: Counting(isvi.data.Parquet(tmp_path / "parquet", chosen, window_bytes=1))


@pytest.mark.parametrize("kind", files.KINDS)
def test_the_rows_are_the_same(kind: str, tmp_path: Path) -> None:
    def source() -> Source:
        return files.make_source(kind, tmp_path, files.columns(ROWS))

    plain = epoch(source())
    stream = Stream(Cached(source(), tmp_path / "cache"), BATCH_SIZE)
    for _ in range(3):
        assert_same(epoch_of(stream), plain)
    assert len(kept_files(tmp_path / "cache")) == 8
    assert identify_data(stream) == identify_data(Stream(source(), BATCH_SIZE))
    stream.release()


@pytest.mark.parametrize("kind", IDENTIFIED)
def test_a_later_fit_reads_no_rows_of_the_source(kind: str, tmp_path: Path) -> None:
    first = Counting(files.make_source(kind, tmp_path, files.columns(ROWS)))
    rows = epoch(Cached(first, tmp_path / "cache"))
    assert first.calls > 0
    again = Counting(first.source)
    assert_same(epoch(Cached(again, tmp_path / "cache")), rows)
    assert again.calls == 0


def test_rows_that_cannot_be_told_from_others_are_kept_for_one_fit(tmp_path: Path) -> None:
    source = Counting(files.make_source("loader", tmp_path, files.columns(ROWS)))
    stream = Stream(Cached(source, tmp_path / "cache"), BATCH_SIZE)
    rows, calls = epoch_of(stream), source.calls
    assert_same(epoch_of(stream), rows)
    assert source.calls == calls
    assert_same(epoch(Cached(source, tmp_path / "cache")), rows)
    assert source.calls == 2 * calls
    del stream
    gc.collect()
    assert list((tmp_path / "cache").iterdir()) == []


def test_maps_that_may_be_other_than_their_file_have_no_identity(tmp_path: Path) -> None:
    path = files.write_npy(tmp_path, files.columns(ROWS))["x"]
    whole = np.load(path, mmap_mode="r")
    assert isvi.data.Npy(path).identity == isvi.data.Npy(whole).identity is not None
    assert isvi.data.Npy(whole[100:]).identity is None
    assert isvi.data.Npy(np.load(path, mmap_mode="c")).identity is None
    assert isvi.data.Npy(np.load(path)).identity is None
    # Replaced: the map still shows the old file, which must not be kept under the name of the new one.
    replaced = isvi.data.Npy(path)
    np.save(tmp_path / "new.npy", -np.load(path))
    (tmp_path / "new.npy").replace(path)
    assert replaced.identity != isvi.data.Npy(path).identity
    os.utime(path, ns=(0, 0))
    path.unlink()
    assert replaced.identity is None


@pytest.mark.parametrize("kind", IDENTIFIED)
def test_a_changed_file_is_read_anew(kind: str, tmp_path: Path) -> None:
    data = files.columns(ROWS)
    before = epoch(Cached(files.make_source(kind, tmp_path, data), tmp_path / "cache"))
    data["x"] = -data["x"]
    now = time.time_ns() + 10**9
    source = files.make_source(kind, tmp_path, data)
    for path in kept_files(tmp_path):
        if "cache" not in path.parts:
            os.utime(path, ns=(now, now))  # whatever the clock of the file system can tell apart
    if kind in ("npy", "parquet"):
        source = files.make_source(kind, tmp_path, data)  # its files were stamped when they were opened
    after = epoch(Cached(source, tmp_path / "cache"))
    assert_same(after, epoch(source))
    assert_same([full["x"] for full, _ in after], [-full["x"] for full, _ in before])
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_other_choices_are_other_windows(parquet: Callable[[], Counting], tmp_path: Path) -> None:
    folder = tmp_path / "cache"

    def kept(source: Source, batch_size: int = BATCH_SIZE, seed: int | None = 0) -> str:
        kept = Stream(Cached(source, folder), batch_size, seed)._kept
        assert kept is not None
        return kept.folder.name

    other_columns = isvi.data.Parquet(tmp_path / "parquet", {"x": ["x0", "x2", "x1"], "y": "y"}, window_bytes=1)
    other_names = isvi.data.Parquet(tmp_path / "parquet", {"z": ["x0", "x1", "x2"], "y": "y"}, window_bytes=1)
    longer = isvi.data.Parquet(tmp_path / "parquet", {"x": ["x0", "x1", "x2"], "y": "y"}, window_bytes=4000)
    names = [
        kept(parquet()),
        kept(parquet(), seed=1),
        kept(parquet(), seed=None),
        kept(parquet(), batch_size=21),
        *map(kept, (other_columns, other_names, longer)),
    ]
    assert len(set(names)) == len(names)
    assert kept(parquet()) == names[0]


def test_precisions_are_kept_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(100, 3)))
    for _ in range(2):
        with jax.enable_x64(True):
            double = Stream(Cached(isvi.data.Npy(tmp_path / "x.npy"), tmp_path / "cache"), 10).first.full
        single = Stream(Cached(isvi.data.Npy(tmp_path / "x.npy"), tmp_path / "cache"), 10).first.full
        assert (double.dtype, single.dtype) == (np.float64, np.float32)
        np.testing.assert_array_equal(np.asarray(double).astype(np.float32), single)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lose_a_block(path: Path) -> None:
    contents = path.read_bytes()
    path.write_bytes(bytes(512) + contents[512:])


@pytest.mark.parametrize("damage", [cut_short, lose_a_block, Path.unlink])
def test_a_damaged_window_is_read_and_written_again(
    damage: Callable[[Path], None], parquet: Callable[[], Counting], tmp_path: Path
) -> None:
    rows = epoch(Cached(parquet(), tmp_path / "cache"))
    damaged = next(path for path in kept_files(tmp_path / "cache") if path.name == "window-3")
    contents = damaged.read_bytes()
    damage(damaged)
    again = parquet()
    assert_same(epoch(Cached(again, tmp_path / "cache")), rows)
    assert again.calls > 0
    assert damaged.read_bytes() == contents


def test_what_a_killed_process_leaves_is_not_used(parquet: Callable[[], Counting], tmp_path: Path) -> None:
    rows = epoch(Cached(parquet(), tmp_path / "cache"))
    window = next(path for path in kept_files(tmp_path / "cache") if path.name == "window-2")
    being_written, forgotten = (window.with_name(f"window-2.{name}.part") for name in ("new", "old"))
    window.replace(being_written)
    forgotten.write_bytes(b"half a window")
    long_ago = time.time() - FORGOTTEN_SECONDS - 60
    os.utime(forgotten, (long_ago, long_ago))
    again = parquet()
    assert_same(epoch(Cached(again, tmp_path / "cache")), rows)
    assert again.calls > 0
    assert not forgotten.exists()
    assert being_written.exists()  # another process may be about to rename it


def test_a_full_disk_does_not_end_a_fit(
    parquet: Callable[[], Counting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = []

    def replace(self: Path, target: Path) -> Path:
        written.append(target)
        if len(written) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.replace(self, target)
        return target

    monkeypatch.setattr(Path, "replace", replace)
    with caplog.at_level(logging.WARNING, "isvi"):
        stream = Stream(Cached(parquet(), tmp_path / "cache"), BATCH_SIZE)
        for _ in range(2):
            assert_same(epoch_of(stream), epoch(parquet()))
    assert [record.getMessage() for record in caplog.records if "No space left" in record.getMessage()] != []
    assert len(caplog.records) == 1
    assert len(kept_files(tmp_path / "cache")) == 2
    assert len(written) == 3


def test_a_folder_that_cannot_be_made_does_not_end_a_fit(
    parquet: Callable[[], Counting], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "isvi"):
        assert_same(epoch(Cached(parquet(), tmp_path / "file" / "cache")), epoch(parquet()))
    assert "could not keep a window" in caplog.text
    assert len(caplog.records) == 1


def test_one_window_is_kept_too(tmp_path: Path) -> None:
    source = files.make_source("npy", tmp_path, files.columns(ROWS), window_bytes=10**6)
    plain = epoch(source)
    for _ in range(2):
        stream = Stream(Cached(source, tmp_path / "cache"), BATCH_SIZE)
        assert stream.windows is None
        assert_same(epoch_of(stream), plain)
        parts = [np.asarray(part.full["y"]).ravel() for part in stream.parts()]
        assert sum(map(len, parts)) == ROWS // BATCH_SIZE * BATCH_SIZE


def test_jax_uses_the_mapped_file_itself_for_as_long_as_it_needs_it(tmp_path: Path) -> None:
    layout = {"x": jax.ShapeDtypeStruct((300, 7), np.float32), "y": jax.ShapeDtypeStruct((300,), bool)}
    values = {"x": np.arange(2100, dtype=np.float32).reshape(300, 7), "y": np.arange(300) % 3 == 0}
    kept = KeptWindows(tmp_path / "cache")
    assert kept.get("window-0", layout, lambda: values) is values
    mapped = kept.get("window-0", layout, lambda: pytest.fail("it is kept"))
    arrays = jax.tree.map(lambda array: jax.device_put(array, may_alias=True), mapped)
    for name, array in arrays.items():
        assert array.unsafe_buffer_pointer() == mapped[name].ctypes.data
    kept.folder.joinpath("window-0").unlink()
    results = [jnp.cos(arrays["x"]) @ jnp.ones((7, 50)) for _ in range(20)]
    del mapped, arrays, array
    gc.collect()
    for result in results:
        np.testing.assert_allclose(result[:, 0], np.cos(values["x"]).sum(1), atol=1e-4)


def test_windows_may_go_while_something_is_computed_from_them(tmp_path: Path) -> None:
    source = files.make_source("npy", tmp_path, files.columns(ROWS))
    stream = Stream(Cached(source, tmp_path / "cache"), BATCH_SIZE)
    plain = Stream(source, BATCH_SIZE)
    order = order_of_visits(KEY, stream.num_batches, stream.windows)
    matrix = jnp.full((3, 300), 1 / 3)
    computed = []
    for turn in range(60):
        window = stream.resident(Schedule(order, jnp.int32(turn % stream.num_batches)))
        offset = int(window.offset)  # type: ignore[arg-type]
        computed.append((offset, jnp.tanh(window.full["x"] @ matrix / ROWS).sum(-1)))
        del window
        if turn % 7 == 3:
            stream.release()
    stream.release()
    expected = {}
    for number in range(plain.num_windows):
        window = plain._reader.get(number)
        expected[int(window.offset)] = np.tanh(np.asarray(window.full["x"]).mean(-1) / ROWS) * 300  # type: ignore[arg-type]
    for offset, found in computed:
        np.testing.assert_allclose(found, expected[offset], rtol=1e-4, atol=1e-4)


def regression_source(folder: Path) -> Source:
    return files.make_source("parquet", folder, regression.data())


def regression_fit(data: Any, **options: Any) -> isvi.Fit:
    return isvi.fit(regression.model(), data, batch_size=9, budget=120, progress=False, **options)


def same_bits(one: isvi.Fit, other: isvi.Fit) -> bool:
    pairs = zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs) and one.history.elbo == other.history.elbo


def test_a_fit_gives_the_same_bits_with_and_without(tmp_path: Path) -> None:
    source = regression_source(tmp_path)
    plain = regression_fit(source)
    for _ in range(2):
        assert same_bits(regression_fit(Cached(source, tmp_path / "cache")), plain)


def test_a_run_is_resumed_with_the_cache_added_or_removed(tmp_path: Path) -> None:
    source = regression_source(tmp_path)
    cached = Cached(source, tmp_path / "cache")
    plain = regression_fit(source, algorithm=isvi.SGD())
    for run, before, after in (("added", source, cached), ("removed", cached, source)):
        stopped = regression_fit(before, algorithm=isvi.SGD(), checkpoint=tmp_path / run, callbacks=[StopAt(30)])
        assert stopped.status.kind == "interrupted"
        assert same_bits(isvi.resume(tmp_path / run, regression.model(), after, progress=False), plain)


def test_what_is_not_a_source_or_a_folder_is_refused(parquet: Callable[[], Counting], tmp_path: Path) -> None:
    with pytest.raises(isvi.ConfigurationError, match=r"takes a source, .* got dict"):
        Cached({"x": np.ones(3)}, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(isvi.ConfigurationError, match="is a file"):
        Cached(parquet(), tmp_path / "file")


def test_the_first_rows_are_those_of_the_source(parquet: Callable[[], Counting], tmp_path: Path) -> None:
    assert_same(Cached(parquet(), tmp_path / "cache").head(5), parquet().head(5))
