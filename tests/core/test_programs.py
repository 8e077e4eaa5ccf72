"""What is compiled is kept, and found again: by another seed, in another process; and little is imported for it."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import isvi
from benchmarks.compile_cost import linear_regression
from isvi.core import programs

MISSES = "/jax/compilation_cache/cache_misses"
NOT_AT_ONCE = {"arviz_base", "arviz_stats", "matplotlib", "pandas", "polars", "pyarrow", "ray", "scipy.stats", "typer"}
"""Packages that take long to import, and that a fit does not need."""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """Programs of one test only."""
    before = {
        name: getattr(jax.config, name)
        for name in (
            "jax_compilation_cache_dir",
            "jax_persistent_cache_min_compile_time_secs",
            "jax_persistent_cache_min_entry_size_bytes",
        )
    }
    jax.clear_caches()
    yield isvi.keep_compiled(tmp_path / "programs")
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def misses() -> Iterator[Counter]:
    """Programs that had to be compiled."""
    seen: Counter = Counter()
    note = lambda event, **_: seen.update([event] if event == MISSES else [])  # noqa: E731
    jax.monitoring.register_event_listener(note)
    yield seen
    jax.monitoring.unregister_event_listener(note)


def on_the_host() -> tuple:
    """A model that is evaluated outside of JAX, so that the loop stops for it."""
    return isvi.from_gradient(lambda z: (-0.5 * z @ z, -z), 2), None


PROBLEMS = {
    "one mini-batch and eight starts": (linear_regression, {}),
    "many mini-batches": (linear_regression, {"batch_size": 100}),
    "reuse": (linear_regression, {"algorithm": isvi.ISGD()}),
    "on the host": (on_the_host, {"budget": 50}),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_another_seed_compiles_nothing(name: str, kept: Path, misses: Counter) -> None:
    make, options = PROBLEMS[name]
    (model, data), options = make(), {"budget": 100, "progress": False, **options}
    first = isvi.fit(model, data, seed=0, **options)
    assert misses[MISSES] > 0
    misses.clear()
    second = isvi.fit(model, data, seed=1, **options)
    assert misses[MISSES] == 0
    mine, other = (np.concatenate([np.ravel(value) for value in fit.mean().values()]) for fit in (first, second))
    assert not np.array_equal(mine, other)  # the key is not part of the program, but it is used


def test_a_folder_that_was_named_before_is_left(kept: Path) -> None:
    assert isvi.keep_compiled() == kept


def test_a_folder_that_cannot_be_used_is_refused(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(isvi.ConfigurationError, match="cannot be kept in"):
        isvi.keep_compiled(tmp_path / "file" / "programs")
    assert jax.config.jax_compilation_cache_dir == str(kept)


def test_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    monkeypatch.setattr(programs, "MOST_BYTES", 250)
    folder = tmp_path / "full"
    folder.mkdir()
    for age, name in enumerate(("new", "old", "older")):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    isvi.keep_compiled(folder)
    assert {path.name for path in folder.iterdir()} == {"new", "old"}


def test_importing_isvi_imports_nothing_that_a_fit_does_not_need() -> None:
    """By names, not by seconds: these took two thirds of the time."""
    code = "import sys, isvi; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not NOT_AT_ONCE & set(done.stdout.split())


def test_the_command_line_keeps_programs(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import isvi\nmodel = isvi.Model({'z': isvi.real()}, lambda z: -0.5 * z['z'] ** 2)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from isvi.cli.main import main; main()",
            "fit",
            "model.py",
            "--out",
            "run",
            "--budget",
            "20",
            "--quiet",
        ],
        cwd=tmp_path,
        env={**environment, "ISVI_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        check=True,
    )
    assert list((tmp_path / "cache" / "programs").glob("jit_run-*"))
