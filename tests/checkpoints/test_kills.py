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


def start(folder: Path, stay: bool = False) -> subprocess.Popen:
    command = [sys.executable, str(SCRIPT), str(folder), *["stay"] * stay]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def signs(folder: Path) -> set[str]:
    """What a run has made that is seen from outside."""
    return {path.name for path in [*(folder / "checkpoints").glob("*"), *folder.glob("near-the-end")]}


def start_and_wait_for_progress(folder: Path, stay: bool) -> subprocess.Popen:
    """Until the first sign of life, however long that takes: most of the time goes into starting Python, and being
    killed there is dull."""
    seen = signs(folder)
    process = start(folder, stay)
    while process.poll() is None and signs(folder) <= seen:
        time.sleep(0.002)
    return process


def survive(folder: Path, kills: int, seed: int) -> int:
    """Kill and resume until it has been killed that often or has finished; returns how often it was killed.

    The time that passes before a kill decides where it falls and not whether it does: the first process of a run does
    not end by itself, however late the machine lets us look."""
    generator = np.random.default_rng(seed)
    killed = 0
    while killed < kills:
        process = start_and_wait_for_progress(folder, stay=killed == 0)
        time.sleep(generator.exponential(0.15))
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
