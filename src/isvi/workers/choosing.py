"""From what the user passed as ``workers`` to workers."""

from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError
from isvi.workers.crew import Workers
from isvi.workers.pool import Pool
from isvi.workers.ray import Ray


def chosen_workers(workers: Any) -> Workers | None:
    """A number is so many processes on this machine, an executor is itself, None is none."""
    if workers is None or hasattr(workers, "open"):
        return workers
    if isinstance(workers, (int, np.integer)) and not isinstance(workers, bool):
        return Ray(num_workers=int(workers))
    if hasattr(workers, "submit"):
        return Pool(workers)
    raise ConfigurationError(
        "workers must be a number of processes, isvi.Ray(num_workers=8), isvi.Pool(executor), or an executor of "
        f"concurrent.futures; got {workers!r}."
    )
