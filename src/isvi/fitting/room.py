"""Whether a run fits in memory, asked before it begins."""

from pathlib import Path
from typing import Any

import jax

from isvi.core.errors import ConfigurationError, require
from isvi.memory.store import num_bytes

COPIES = 2
"""A run begins with a copy of its state, which is given away to the compiled loop."""
GIGABYTE = 1e9


def free_bytes() -> int | None:
    """Memory that is free on the device that arrays are on; None if it does not say."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        told = device.memory_stats() or {}
        return told["bytes_limit"] - told["bytes_in_use"] if {"bytes_limit", "bytes_in_use"} <= set(told) else None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def check_room(state: Any, entries: int) -> None:
    """``state`` is what the run will carry, or its shapes."""
    needed, free = COPIES * num_bytes(state), free_bytes()
    require(
        free is None or needed <= free,
        ConfigurationError,
        f"A run with {entries:,} entries of latents needs about {needed / GIGABYTE:,.1f} GB of memory for its state, "
        f"and {(free or 0) / GIGABYTE:,.1f} GB are free. Latents that belong to one row or one group each can be "
        "integrated out (docs/local.md), and then take none; algorithm=isvi.SGD() with an optax optimizer keeps the "
        "fewest vectors.",
    )
