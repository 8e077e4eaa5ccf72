"""JAX's settings of the driver, for its workers: they compute the same numbers only if they compile the same."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from isvi.core.settings import Strictness, own_settings

NAMES = (
    "jax_disable_most_optimizations",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)
FLAGS = "XLA_FLAGS"


@dataclass(frozen=True)
class Surroundings:
    """What was set where the fit was called.

    Attributes:
        process: of the driver.
        double: whether numbers are in double precision.
        settings: others that change numbers, by name.
        flags: XLA's, from the environment.
    """

    process: int
    double: bool
    settings: dict[str, Any]
    flags: str | None

    @classmethod
    def now(cls) -> "Surroundings":
        settings = {name: jax.config.values[name] for name in NAMES if name in jax.config.values}
        return cls(os.getpid(), Strictness.now().double, settings, os.environ.get(FLAGS))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While it is entered, they hold. In another process they are set for good, at the first time: XLA reads its
        flags when it first computes."""
        if os.getpid() != self.process and (self.process, os.getpid()) not in _set:
            _set.add((self.process, os.getpid()))
            if self.flags is not None:
                os.environ[FLAGS] = self.flags
            for name, value in self.settings.items():
                jax.config.update(name, value)
        with jax.enable_x64(self.double), own_settings():
            yield


_set: set[tuple[int, int]] = set()
"""Drivers whose settings this process has taken over."""
