"""Stan code and Stan data, from what the user has: text or files, dicts of arrays or JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, DataError, require


def code_of(program: str | Path) -> str:
    """The program's text, read from its file if it is a path."""
    if isinstance(program, Path) or (str(program).endswith(".stan") and "\n" not in str(program)):
        path = Path(program)
        require(path.is_file(), ConfigurationError, f"There is no Stan file {str(path)!r}.")
        return path.read_text()
    return str(program)


def as_json(data: Mapping[str, Any] | str | Path | None) -> str:
    """Data as Stan's JSON."""
    if isinstance(data, (str, Path)):
        path = Path(data)
        require(path.is_file(), DataError, f"There is no JSON file {str(path)!r}.")
        return path.read_text()
    return json.dumps({name: _plain(name, value) for name, value in (data or {}).items()})


def _plain(name: str, value: Any) -> Any:
    array = np.asarray(value)
    require(
        array.dtype.kind in "fiub",
        DataError,
        f"Stan data must be numbers; {name!r} has dtype {array.dtype}.",
    )
    return (array.astype(int) if array.dtype.kind == "b" else array).tolist()
