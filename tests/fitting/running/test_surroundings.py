"""What a fit is surrounded by may be strange: clocks, limits, terminals, damaged stores, and many fits before it."""

import fcntl
import gc
import logging
import multiprocessing
import os
import re
import resource
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import psutil
import pytest

import isvi

ROWS = np.random.default_rng(0).normal(size=(4000, 2))
MODEL = isvi.Model(
    {"m": isvi.real(2)},
    lambda z: -0.5 * jnp.sum(z["m"] ** 2),
    lambda z, rows: -0.5 * jnp.sum((rows - z["m"]) ** 2),
)
OPTIONS: dict[str, Any] = {"algorithm": isvi.ISGD(), "budget": 200, "batch_size": 500}
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def test_a_clock_that_goes_backwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed by the clock on the wall."""
    expected = isvi.fit(MODEL, ROWS, progress=False, **OPTIONS)
    now = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    monkeypatch.setattr(time, "time_ns", lambda: next(now) * 10**9)
    fit = isvi.fit(MODEL, ROWS, progress=False, checkpoint=isvi.Checkpoint(tmp_path / "run", every=0.0), **OPTIONS)
    np.testing.assert_array_equal(fit.mean()["m"], expected.mean()["m"])
    assert (np.diff(fit.history.seconds) >= 0).all()
    np.testing.assert_array_equal(
        isvi.resume(tmp_path / "run", MODEL, ROWS, progress=False).mean()["m"], fit.mean()["m"]
    )


class Limited(isvi.Callback):
    """After some rows of history files may not be longer than 1,000 bytes, as by ``ulimit -f``."""

    def __init__(self) -> None:
        self.rows = 0

    def on_row(self, *_: Any) -> None:
        self.rows += 1
        if self.rows == 20:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.fixture
def limits() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_limit_on_files_in_mid_run(tmp_path: Path, limits: None, caplog: pytest.LogCaptureFixture) -> None:
    """The fit goes on without checkpoints, and says so; what was written before is whole."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    where = isvi.Checkpoint(tmp_path / "run", every=0.0)
    with caplog.at_level(logging.WARNING, "isvi"):
        fit = isvi.fit(MODEL, ROWS, progress=False, checkpoint=where, callbacks=[Limited()], **OPTIONS)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "could not write a checkpoint" in caplog.text
    assert fit.gradients == 200
    again = isvi.resume(tmp_path / "run", MODEL, ROWS, progress=False)
    np.testing.assert_array_equal(again.mean()["m"], fit.mean()["m"])


def shown(columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a fit shows on a terminal of so many columns."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(slave, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        os.set_blocking(master, False)
        said = b""

        class Reader(isvi.Callback):
            def on_row(self, *_: Any) -> None:
                nonlocal said
                said += _read(master)  # or the terminal would be full, and the fit wait

        isvi.fit(MODEL, ROWS, callbacks=[Reader()], **OPTIONS)
        terminal.flush()
        said += _read(master)
    os.close(master)
    return said.decode(errors="replace")


def _read(file: int) -> bytes:
    try:
        return os.read(file, 10**6)
    except BlockingIOError:
        return b""


def test_terminals_without_colour_and_narrow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert COLOUR.search(shown(100, monkeypatch))  # the check sees colours
    for columns in (3, 12):
        assert shown(columns, monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(shown(100, monkeypatch))


def broken_metadata(store: Path) -> None:
    (store / "y" / "zarr.json").write_text("{")


def no_group(store: Path) -> None:
    (store / "zarr.json").unlink()


def garbage(store: Path) -> None:
    (store / "y" / "c" / "3").write_bytes(bytes(range(200)))


def cut_short(store: Path) -> None:
    chunk = store / "y" / "c" / "3"
    chunk.write_bytes(chunk.read_bytes()[:50])


@pytest.mark.parametrize("damage", [broken_metadata, no_group, garbage, cut_short])
def test_damaged_zarr_stores_are_refused(damage: Any, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    group.create_array("y", shape=(4000,), chunks=(500,), dtype="f8")[:] = ROWS[:, 0]
    damage(tmp_path / "rows.zarr")
    model = isvi.Model(
        {"m": isvi.real()}, lambda z: -0.5 * z["m"] ** 2, lambda z, rows: -0.5 * jnp.sum((rows["y"] - z["m"]) ** 2)
    )
    with pytest.raises(isvi.DataError, match=r"rows\.zarr"):
        isvi.fit(model, isvi.data.Zarr(tmp_path / "rows.zarr"), progress=False, **OPTIONS)


def fitted(seed: int) -> np.ndarray:
    return isvi.fit(MODEL, ROWS, progress=False, seed=seed, **OPTIONS).mean()["m"]


def test_two_threads_fit_as_if_they_were_alone() -> None:
    expected = [fitted(seed) for seed in (0, 1)]
    with ThreadPoolExecutor(2) as threads:
        np.testing.assert_array_equal(list(threads.map(fitted, (0, 1))), expected)


def tell(connection: Connection, work: Callable[[], Any]) -> None:
    try:
        connection.send(work())
    except Exception as error:
        connection.send(error)


@pytest.mark.parametrize("work", [lambda fit: fitted(1), lambda fit: fit.sample(3)], ids=["fit", "sample"])
def test_a_process_that_was_forked_off_after_a_fit_is_refused(work: Callable) -> None:
    """It lacks JAX's threads, and would wait for them for ever."""
    fit = isvi.fit(MODEL, ROWS, progress=False, **OPTIONS)
    ours, theirs = multiprocessing.Pipe()
    forked = multiprocessing.get_context("fork").Process(target=tell, args=(theirs, lambda: work(fit)))
    with pytest.warns(RuntimeWarning, match=r"os\.fork"):
        forked.start()
    try:
        assert ours.poll(60), "it waits for ever"
        said = ours.recv()
    finally:
        forked.kill()
        forked.join()
    assert isinstance(said, isvi.ConfigurationError)
    assert "spawn" in str(said)


@pytest.mark.slow
def test_two_hundred_fits_do_not_grow() -> None:
    """JAX keeps compiled programs of functions that are still there: a fit leaves none behind. The last hundred fits
    may take 20 MB more than the hundred before, a fifth of a megabyte each: less than one program's code."""
    process, sizes = psutil.Process(), []
    for number in range(200):
        isvi.fit(MODEL, ROWS, progress=False, seed=number, **OPTIONS)
        if number in (99, 199):
            gc.collect()
            sizes.append(process.memory_info().rss)
    assert sizes[1] - sizes[0] < 20e6
