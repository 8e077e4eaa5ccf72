"""Shared set-up: shapes are checked while the tests run, what was compiled is kept on disk and not in memory, and a
few fixtures."""

import ctypes
import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import support.shapes
from jaxtyping import install_import_hook

# Before anything imports isvi: every annotation such as Float[Array, "draws dim"] is checked at run time.
install_import_hook("isvi", f"{support.shapes.__name__}.check_shapes")

# Most of the suite's time is compilation of programs that run once: with little effort, as isvi compiles short runs.
# Processes that tests start inherit it, and so compute the same bits.
FLAG = "--xla_cpu_use_fusion_emitters=false"
if FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"

import jax  # noqa: E402
import psutil  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_disable_most_optimizations", True)

MOST_BYTES = 2 * 10**9
"""Of compiled programs on disk. A run of all tests writes a tenth of it; beyond, it begins anew."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="tests that are skipped fail: all they need is installed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _not_skipped(item.config, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _not_skipped(collector.config, (yield))


def _not_skipped(config: pytest.Config, report: Any) -> Any:
    """The report of a test or a module; with ``--no-skips``, of its failure if it was skipped."""
    if report.skipped and config.getoption("--no-skips"):
        report.outcome, report.longrepr = "failed", f"--no-skips, but {report.nodeid} was skipped: {report.longrepr}"
    return report


def pytest_collection_finish() -> None:
    """Python looks for garbage among all objects again and again while JAX traces: not among the half a million that
    imports have left, and not as often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def pytest_configure(config: pytest.Config) -> None:
    """Compiled programs are kept beside pytest's own cache (``.pytest_cache``), for the other worker, for modules that
    come later and for the next run. They are found by what they compute, so none is ever out of date."""
    if not config.pluginmanager.hasplugin("cacheprovider"):
        return
    folder = Path(config.cache.mkdir("compiled"))  # type: ignore[union-attr]
    if not hasattr(config, "workerinput") and sum(path.stat().st_size for path in folder.iterdir()) > MOST_BYTES:
        shutil.rmtree(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)  # for processes that tests start
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class Memory:
    """JAX remembers all that it has compiled: with all of it, a worker would grow to 4 GB. From time to time it is made
    to forget; what is needed again comes from disk."""

    GROWTH = 400e6
    """Bytes to grow by before that."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._least = self._process.memory_info().rss

    def look(self) -> None:
        if self._process.memory_info().rss > self._least + self.GROWTH:
            jax.clear_caches()
            gc.collect()
            if sys.platform == "linux":
                ctypes.CDLL(None).malloc_trim(0)  # freed in small pieces, which the C library would keep
            self._least = self._process.memory_info().rss


@pytest.fixture(scope="session")
def memory() -> Memory:
    return Memory()


@pytest.fixture(autouse=True)
def _bounded_memory(memory: Memory) -> Iterator[None]:
    yield
    memory.look()


@pytest.fixture
def x64() -> Iterator[None]:
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield
