"""Packages that only some front ends and data sources need."""

from importlib import import_module
from types import ModuleType

from isvi.core.errors import ConfigurationError


def import_extra(package: str, extra: str, needed_by: str) -> ModuleType:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or package.split(".")[0] != error.name.split(".")[0]:
            raise  # the package is there, but something that it needs itself is not
        raise ConfigurationError(
            f"{needed_by} needs {package.split('.')[0]}, which is not installed: pip install 'isvi[{extra}]'."
        ) from None
