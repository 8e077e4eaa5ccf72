"""Work as bytes: with cloudpickle where it is installed, which sends functions that no module has a name for."""

import pickle
from importlib import import_module
from typing import Any

from isvi.core.errors import ConfigurationError

CANNOT_BE_SENT = (
    "The model or its data cannot be sent to another process: {error}. Functions that are defined in a module of their "
    "own always can; what holds open files, locks or libraries cannot, and must be opened inside the function that "
    "uses it. Or use threads, which share what there is: workers=isvi.Pool(ThreadPoolExecutor(8))."
)


def pickled(value: Any) -> bytes:
    try:
        return _pickler().dumps(value)
    except Exception as error:
        raise ConfigurationError(CANNOT_BE_SENT.format(error=f"{type(error).__name__}: {error}")) from error


def _pickler() -> Any:
    for name in ("cloudpickle", "ray.cloudpickle"):
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    return pickle
