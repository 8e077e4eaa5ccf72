"""Records made by workers: how much sooner, and whether the bits are the same.

    python -m benchmarks.workers sleep    # a gradient that takes 50 ms elsewhere: 1 process, 16 threads, 16 of Ray's
    python -m benchmarks.workers long     # a thousand mini-batches, so that the approach is a small part of the fit
    python -m benchmarks.workers unequal  # eight threads of which one is ten times slower, waiting and not waiting
    python -m benchmarks.workers decode   # a source that takes half a second a window: one and two of Ray's processes
    python -m benchmarks.workers busy     # a model in JAX of about 5 ms a record: one and two of Ray's processes
    python -m benchmarks.workers kills    # workers killed at random moments

Each writes a section of ``benchmarks/results/workers.json``.
"""

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isvi
from isvi.data.arrays import checked_values
from isvi.data.source import row_spec

RESULTS = Path(__file__).parent / "results" / "workers.json"
SLEEP = 0.05
LONG_SLEEP, SLOWER = 0.25, 10
"""So long that it changes little if the machine has other things to do."""
DECODING = 0.5
"""Seconds for a window, which somebody else decodes."""
NUM_KILLS = 50
WORK = 10
"""Rounds of work for nothing, so that a record takes some milliseconds."""


def regression(rows: int, dim: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, dim))
    chance = 1 / (1 + np.exp(-x @ generator.normal(size=dim) / np.sqrt(dim)))
    return {"x": x, "y": (generator.uniform(size=rows) < chance).astype(float)}


def asleep(z: np.ndarray, rows: dict[str, np.ndarray], seconds: float = SLEEP) -> tuple[float, np.ndarray]:
    """A logistic regression that somebody else computes."""
    time.sleep(seconds)
    logits = rows["x"] @ z
    chance = 1 / (1 + np.exp(-logits))
    return float(rows["y"] @ logits - np.logaddexp(0, logits).sum()), rows["x"].T @ (rows["y"] - chance)


class Unequal:
    """The same, and the eighth thread that asks always waits ten times longer: the first few are all that the approach
    needs, of which it would be half."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def __call__(self, z: np.ndarray, rows: dict[str, np.ndarray]) -> tuple[float, np.ndarray]:
        here = threading.get_ident()
        if threading.current_thread() is not threading.main_thread():
            if here not in self.threads:
                self.threads.append(here)
            slow = self.threads.index(here) % 8 == 7
            return asleep(z, rows, LONG_SLEEP * (SLOWER if slow else 1))
        return asleep(z, rows, 0.0)


class Decoded(isvi.data.Source):
    """A regression's rows, in blocks that are each a window and take a while."""

    def __init__(self, blocks: int, rows: int, dim: int) -> None:
        self.rows, self.num_rows = rows, blocks * rows
        self.block_rows, self.columns = np.full(blocks, rows), regression(blocks * rows, dim)
        self.window_bytes = rows * self.row_bytes

    @property
    def layout(self) -> Any:
        return {name: row_spec(column.shape[1:], np.float64) for name, column in self.columns.items()}

    def chunks(self, block: int, start: int, stop: int) -> Any:
        time.sleep(DECODING * (stop - start) / self.rows)
        first = block * self.rows
        yield {
            name: checked_values(column[first + start : first + stop], name, first + start)
            for name, column in self.columns.items()
        }


def log_prior(z: Any) -> jax.Array:
    return -0.5 * jnp.sum(z**2)


def log_prior_by_name(z: dict[str, jax.Array]) -> jax.Array:
    return log_prior(z["w"])


def plain_log_likelihood(z: dict[str, jax.Array], rows: dict[str, jax.Array]) -> jax.Array:
    logits = rows["x"] @ z["w"]
    return rows["y"] @ logits - jnp.logaddexp(0, logits).sum()


def log_likelihood(z: dict[str, jax.Array], rows: dict[str, jax.Array]) -> jax.Array:
    logits = rows["x"] @ z["w"]
    for _ in range(WORK):  # nearly the identity
        logits = jnp.sinh(jnp.arcsinh(logits))
    return rows["y"] @ logits - jnp.logaddexp(0, logits).sum()


def same(one: isvi.Fit, other: isvi.Fit) -> bool:
    pairs = zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True)
    return all(np.array_equal(mine, yours) for mine, yours in pairs)


def timed(model: Any, data: Any, workers: Any, **options: Any) -> tuple[isvi.Fit, dict[str, Any]]:
    started = time.perf_counter()
    fit = isvi.fit(model, data, workers=workers, progress=False, **options)
    seconds = time.perf_counter() - started
    return fit, {
        "seconds": seconds,
        "in_steps": fit.seconds,
        "gradients": fit.gradients,
        "status": fit.status.kind,
        "later_rate": later_rate(fit),
    }


def later_rate(fit: isvi.Fit) -> float:
    """Gradients a second in the second half of a fit: all workers are there, and the approach is over."""
    gradients, seconds = np.array(fit.history.gradients), np.array(fit.history.seconds)
    half = int(np.argmax(gradients >= fit.gradients / 2))
    return float((gradients[-1] - gradients[half]) / (seconds[-1] - seconds[half]))


def compared(model: Any, data: Any, kinds: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fits with different workers against the first."""
    found: dict[str, Any] = {}
    first: isvi.Fit | None = None
    for name, workers in kinds.items():
        fit, numbers = timed(model, data, workers, **options)
        first = first or fit
        before = next(iter(found.values()), numbers)
        times = {f"times_{what}": before[what] / numbers[what] for what in ("seconds", "in_steps")}
        times["times_later_rate"] = numbers["later_rate"] / before["later_rate"]
        found[name] = {**numbers, **times, "same_bits": same(first, fit)}
        print(name, found[name], flush=True)
    return found


def sleep() -> dict[str, Any]:
    model = isvi.from_gradient(asleep, 5, log_prior=log_prior)
    kinds = {"one process": None, "16 threads": ThreadPoolExecutor(16), "16 of Ray": isvi.Ray(num_workers=16)}
    return compared(model, regression(20_000, 5), kinds, batch_size=200)


def long() -> dict[str, Any]:
    """Without the one process, which would take half an hour: one gradient after the other takes its time."""
    model = isvi.from_gradient(partial(asleep, seconds=LONG_SLEEP), 5, log_prior=log_prior)
    kinds = {
        "16 threads": ThreadPoolExecutor(16),
        "16 threads, asynchronous": isvi.Pool(ThreadPoolExecutor(16), asynchronous=True),
    }
    found = compared(model, regression(20_000, 5), kinds, batch_size=20)
    for numbers in found.values():
        numbers["times_one_process"] = numbers["gradients"] * LONG_SLEEP / numbers["in_steps"]
        numbers["later_times_one_process"] = numbers["later_rate"] * LONG_SLEEP
    return found


def unequal() -> dict[str, Any]:
    """The ideal: every thread busy all the time."""
    kinds: dict[str, Any] = {
        "eight threads, asynchronous": isvi.Pool(ThreadPoolExecutor(8), asynchronous=True),
        "eight threads": isvi.Pool(ThreadPoolExecutor(8)),
    }
    found = compared(
        isvi.from_gradient(Unequal(), 20, log_prior=log_prior), regression(20_000, 20), kinds, batch_size=200
    )
    ideal = (7 + 1 / SLOWER) / LONG_SLEEP
    for numbers in found.values():
        numbers["of_the_ideal_rate"] = numbers["later_rate"] / ideal
    return found


def decode() -> dict[str, Any]:
    model = isvi.Model({"w": isvi.real(10)}, log_prior_by_name, plain_log_likelihood)
    kinds = {f"{number} of Ray, in parts": isvi.Ray(num_workers=number, parts=True) for number in (1, 2)} | {
        "2 of Ray": isvi.Ray(num_workers=2)
    }
    return compared(model, Decoded(20, 4_000, 10), kinds, batch_size=200, budget=1_600)


def busy() -> dict[str, Any]:
    model = isvi.Model({"w": isvi.real(100)}, log_prior_by_name, log_likelihood)
    kinds = {"no workers": None, "one of Ray": isvi.Ray(num_workers=1), "two of Ray": isvi.Ray(num_workers=2)}
    return compared(model, regression(400_000, 100), kinds, batch_size=4_000)


def kills() -> dict[str, Any]:
    """Fits, one after the other, until so many workers were killed."""
    import ray

    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
    model, data = isvi.from_gradient(asleep, 5, log_prior=log_prior), regression(20_000, 5)
    options = {"batch_size": 200, "budget": 600}
    with ThreadPoolExecutor(16) as executor:
        alone, _ = timed(model, data, executor, **options)
    generator, killed, fits, agreed = np.random.default_rng(0), 0, 0, 0
    while killed < NUM_KILLS:
        over = threading.Event()
        counted: list[int] = []
        killer = threading.Thread(target=_kill, args=(over, generator, counted))
        killer.start()
        fit, _ = timed(model, data, isvi.Ray(num_workers=4, time_limit=120), **options)
        over.set()
        killer.join()
        killed, fits, agreed = killed + len(counted), fits + 1, agreed + same(alone, fit)
        print(f"{killed} kills, {fits} fits, {agreed} with the same bits", flush=True)
    return {"kills": killed, "fits": fits, "same_bits": agreed}


def _kill(over: threading.Event, generator: np.random.Generator, counted: list[int]) -> None:
    """A worker of Ray's that is in a fit, now and then."""
    import psutil

    while not over.wait(generator.exponential(1.0)):
        workers = [one for one in psutil.Process().children(recursive=True) if "ray::_Worker" in " ".join(_line(one))]
        if workers:
            one = workers[generator.integers(len(workers))]
            try:
                os.kill(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            counted.append(one.pid)


def _line(process: Any) -> list[str]:
    import psutil

    try:
        return process.cmdline()
    except psutil.Error:
        return []


if __name__ == "__main__":
    kinds = {"sleep": sleep, "long": long, "unequal": unequal, "decode": decode, "busy": busy, "kills": kills}
    for chosen in sys.argv[1:] or kinds:
        measured = kinds[chosen]()
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**known, chosen: measured}, indent=2) + "\n")
