"""Models and data that can be sent to another process, and work for workers there."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import isvi
from isvi.data import Source
from isvi.data.source import row_spec

DIM = 3
ROWS = 2_000
OPTIONS: dict[str, Any] = {"batch_size": 20, "progress": False, "budget": 400}
"""A hundred mini-batches: the memory waits for eight records between two steps."""


def data() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, DIM))
    return {"x": x, "y": x.sum(axis=1) + generator.normal(size=ROWS)}


def log_prior(z: dict) -> Any:
    return -0.5 * jnp.sum(z["w"] ** 2)


def log_likelihood(z: dict, rows: dict) -> Any:
    return -0.5 * jnp.sum((rows["y"] - rows["x"] @ z["w"]) ** 2)


def in_jax() -> isvi.Model:
    return isvi.Model({"w": isvi.real(DIM)}, log_prior, log_likelihood)


def value_and_grad(z: dict, rows: dict) -> tuple[float, dict]:
    error = rows["y"] - rows["x"] @ z["w"]
    return -0.5 * error @ error, {"w": error @ rows["x"]}


def on_host(function: Callable = value_and_grad) -> Any:
    return isvi.from_gradient(function, {"w": isvi.real(DIM)}, log_prior=log_prior)


class Killer:
    """The gradient; but whoever finds the file first, and is not the driver, is killed."""

    def __init__(self, file: Path) -> None:
        self.file, self.driver = file, os.getpid()

    def __call__(self, z: dict, rows: dict) -> tuple[float, dict]:
        if os.getpid() != self.driver:
            try:
                self.file.unlink()
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return value_and_grad(z, rows)


class Broken:
    """The gradient; but not on a worker."""

    def __init__(self) -> None:
        self.driver = os.getpid()

    def __call__(self, z: dict, rows: dict) -> tuple[float, dict]:
        if os.getpid() != self.driver:
            raise ZeroDivisionError("the simulator has no answer")
        return value_and_grad(z, rows)


class Reading(Source):
    """The rows, in blocks; who reads one notes it."""

    ROWS_PER_BLOCK = 200

    def __init__(self, notes: Path) -> None:
        self.notes, self.rows = notes, data()
        self.num_rows, self.window_bytes = ROWS, 8_000
        self.block_rows = np.full(ROWS // self.ROWS_PER_BLOCK, self.ROWS_PER_BLOCK)

    @property
    def layout(self) -> dict[str, Any]:
        return {"x": row_spec((DIM,), np.float64), "y": row_spec((), np.float64)}

    def chunks(self, block: int, start: int, stop: int) -> Iterator[Any]:
        (self.notes / f"{block} by {os.getpid()}").touch()
        first = block * self.ROWS_PER_BLOCK
        yield {name: column[first + start : first + stop].astype(np.float32) for name, column in self.rows.items()}


class Process:
    """Work: which process is asked."""

    def __call__(self) -> Callable[[Any], Any]:
        return lambda task: os.getpid()


class Double:
    """Work: twice a number; or what the number stands for."""

    def __call__(self) -> Callable[[Any], Any]:
        return doubled


def doubled(task: Any) -> Any:
    if task == "raise":
        raise KeyError("asked to")
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "sleep":
        time.sleep(3600)
    return 2 * task


class Unopened:
    """Work that cannot be opened."""

    def __call__(self) -> Callable[[Any], Any]:
        raise FileNotFoundError("no such data on this machine")
