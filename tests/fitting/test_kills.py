"""Killed at random moments, a run loses nothing beyond its last checkpoint."""

import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from support import killed_fit

import isvi

SCRIPT = Path(killed_fit.__file__)


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder)], stderr=subprocess.PIPE)


def wait_for_progress(process: subprocess.Popen, folder: Path, seconds: float) -> None:
    """Kill some moments after the first sign of life, whatever the machine is busy with: most of the time goes into
    starting Python, and being killed there is dull."""
    seen = {path.name for path in (folder / "checkpoints").glob("*")}
    while process.poll() is None and {path.name for path in (folder / "checkpoints").glob("*")} == seen:
        time.sleep(0.002)
    time.sleep(seconds)


def survive(folder: Path, kills: int, seed: int) -> int:
    """Kill and resume until it has been killed that often or has finished; returns how often it was killed."""
    generator = np.random.default_rng(seed)
    killed = 0
    while killed < kills:
        process = start(folder)
        wait_for_progress(process, folder, generator.exponential(0.15))
        process.kill()
        _, said = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -9, said.decode()
        killed += 1
    return killed


def check_finished(folder: Path) -> None:
    process = start(folder)
    _, said = process.communicate()
    assert process.returncode == 0, said.decode()
    whole, resumed = killed_fit.fit(), isvi.load(folder)
    for mine, yours in zip(jax.tree.leaves(whole.params), jax.tree.leaves(resumed.params), strict=True):
        np.testing.assert_array_equal(mine, yours)
    assert resumed.history.elbo == whole.history.elbo
    assert resumed.status == whole.status


@pytest.fixture
def ordinary_compilation():
    """As in the killed process: optimisations change the last bits."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def test_a_few_kills(tmp_path, ordinary_compilation):
    assert survive(tmp_path / "run", kills=3, seed=0) >= 1
    check_finished(tmp_path / "run")


@pytest.mark.slow
def test_a_hundred_kills(tmp_path, ordinary_compilation):
    killed = 0
    for run in range(100):
        folder = tmp_path / f"run{run}"
        killed += survive(folder, kills=100 - killed, seed=run)
        check_finished(folder)
        if killed == 100:
            break
    assert killed == 100
