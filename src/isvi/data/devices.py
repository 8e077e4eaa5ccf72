"""Rows of every mini-batch spread over several devices of one process, such as the GPUs of a machine.

JAX splits what is computed of them accordingly, and adds up the parts; everything else is computed on every device
alike.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from isvi.core.errors import ConfigurationError, require
from isvi.data.opening import Data

Devices = int | Sequence[jax.Device]
"""So many of ``jax.devices()``, or these."""


def spread(data: Data, devices: Devices) -> Data:
    """The same mini-batches, with their rows on these devices."""
    chosen = _chosen(devices)
    require(
        data.batch_size % len(chosen) == 0,
        ConfigurationError,
        f"Every device gets as many rows of a mini-batch: batch_size must be a multiple of {len(chosen)}, the number "
        f"of devices; got {data.batch_size}.",
    )
    mesh = Mesh(np.array(chosen), ("rows",))
    return data.on(NamedSharding(mesh, PartitionSpec(None, "rows")))


def _chosen(devices: Devices) -> list[jax.Device]:
    if isinstance(devices, (int, np.integer)) and not isinstance(devices, bool):
        there = jax.devices()
        require(
            1 <= devices <= len(there),
            ConfigurationError,
            f"devices must be between 1 and the number that JAX sees, {len(there)}; got {devices}.",
        )
        return there[:devices]
    listed = isinstance(devices, Sequence) and len(devices) > 0 and all(isinstance(d, jax.Device) for d in devices)
    require(listed, ConfigurationError, f"devices must be a number, or some of jax.devices(); got {devices!r}.")
    assert not isinstance(devices, int)
    return list(devices)
