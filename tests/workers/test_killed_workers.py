"""Workers and drivers killed at random moments: every run ends, with the same answer, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread

import jax
import numpy as np
import pytest
from support import killed_driver, sent

import isvi

SCRIPT = Path(killed_driver.__file__)
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'isvi[ray]'")
pytestmark = pytest.mark.slow


def same(one: isvi.Fit, other: isvi.Fit) -> None:
    for mine, yours in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_array_equal(mine, yours)
    assert (one.status, one.gradients, one.history.elbo) == (other.status, other.gradients, other.history.elbo)


@pytest.fixture(scope="module")
def alone() -> isvi.Fit:
    """A fit that nobody disturbs, compiled as in a process of its own."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield isvi.fit(sent.on_host(), sent.data(), **killed_driver.OPTIONS)
    jax.config.update("jax_disable_most_optimizations", before)


def living(notes: Path) -> list[int]:
    """Workers that noted their number and are there."""
    found = []
    for number in sorted(int(note.name) for note in notes.iterdir()):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            continue
        if "Z" not in Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[:1]:
            found.append(number)
    return found


def kill_now_and_then(notes: Path, generator: np.random.Generator, most: int, over: Event, killed: list[int]) -> None:
    while len(killed) < most and not over.wait(generator.exponential(0.5)):
        if workers := [number for number in living(notes) if number not in killed]:
            number = int(generator.choice(workers))
            os.kill(number, signal.SIGKILL)
            killed.append(number)


@pytest.mark.parametrize(
    ("kind", "kills"), [("processes", 10), pytest.param("ray", 40, marks=NEEDS_RAY)], ids=["processes", "ray"]
)
def test_fifty_kills_of_workers(kind: str, kills: int, tmp_path: Path, alone: isvi.Fit) -> None:
    generator, killed = np.random.default_rng(0), 0
    while killed < kills:
        notes = tmp_path / f"after {killed}"
        notes.mkdir()
        over, these = Event(), list[int]()
        killer = Thread(target=kill_now_and_then, args=(notes, generator, kills - killed, over, these))
        killer.start()
        try:
            fit = isvi.fit(
                sent.on_host(killed_driver.Noted(notes)),
                sent.data(),
                workers=killed_driver.workers(kind),
                **killed_driver.OPTIONS,
            )
        finally:
            over.set()
            killer.join()
        same(fit, alone)
        killed += len(these)


@pytest.mark.parametrize(
    ("kind", "kills"), [("processes", 7), pytest.param("ray", 3, marks=NEEDS_RAY)], ids=["processes", "ray"]
)
def test_ten_kills_of_the_driver(kind: str, kills: int, tmp_path: Path, alone: isvi.Fit) -> None:
    generator, killed, notes = np.random.default_rng(1), 0, tmp_path / "notes"
    notes.mkdir()
    runs = 0
    while killed < kills:
        runs += 1
        run = tmp_path / f"run {runs}"
        while killed < kills and drive(run, notes, kind, generator.exponential(0.5)):
            killed += 1
            wait_until_gone(notes)
        assert not drive(run, notes, kind)
        same(isvi.load(run), alone)


def drive(run: Path, notes: Path, kind: str, seconds: float | None = None) -> bool:
    """Go on with a run; whether it was killed, so long after its first checkpoint."""
    before = saved(run)
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(run), str(notes), kind], env=surroundings, stderr=subprocess.PIPE
    )
    if seconds is not None:
        while process.poll() is None and saved(run) == before:
            time.sleep(0.002)
        time.sleep(seconds)
        process.kill()
    _, said = process.communicate(timeout=killed_driver.TIME_LIMIT)
    assert process.returncode in (0, -signal.SIGKILL), said.decode()
    return process.returncode != 0


def saved(run: Path) -> set[str]:
    return {path.name for path in (run / "checkpoints").glob("*")}


def wait_until_gone(notes: Path) -> None:
    """Workers of a driver that was killed end by themselves."""
    given_up = time.monotonic() + killed_driver.TIME_LIMIT
    while left := living(notes):
        assert time.monotonic() < given_up, f"left behind: {left}"
        time.sleep(0.05)
