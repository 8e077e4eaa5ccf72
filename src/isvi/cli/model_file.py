"""The user's model file: Python that defines ``model``, and perhaps ``columns``."""

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.frontends import from_numpyro
from isvi.model.binding import Bindable
from isvi.model.model import Model


class ModelFile(NamedTuple):
    """What a model file defines."""

    model: Model | Bindable
    columns: Any
    """Which columns of the data the model receives, and under which names; None for all, as they are."""
    digest: str


def load_model_file(path: Path) -> ModelFile:
    """Run the file and take ``model`` (an ``isvi.Model``, a model of a front end, or a NumPyro model function) and
    ``columns`` from it."""
    require(path.is_file(), ConfigurationError, f"there is no model file {path}.")
    source = path.read_bytes()
    names = _executed(path)
    require(
        "model" in names,
        ModelError,
        f"{path} must define `model`: an isvi.Model, isvi.from_numpyro(...), or a NumPyro model function. It defines "
        f"{', '.join(sorted(name for name in names if not name.startswith('_'))) or 'nothing'}.",
    )
    return ModelFile(_as_model(path, names["model"]), _columns(path, names), hashlib.sha256(source).hexdigest())


def _executed(path: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    require(
        spec is not None and spec.loader is not None, ConfigurationError, f"{path} is not a Python file (name it *.py)."
    )
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.path.insert(0, str(path.parent.resolve()))  # it may import files beside it
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(where) if Path(frame.filename) == path), None)
        line = error.lineno if isinstance(error, SyntaxError) else line
        raise ModelError(f"{path}, line {line}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return vars(module)


def _as_model(path: Path, model: Any) -> Model | Bindable:
    if isinstance(model, Model) or hasattr(model, "bind"):
        return model
    require(
        inspect.isfunction(model),
        ModelError,
        f"`model` in {path} must be an isvi.Model, isvi.from_numpyro(...), or a NumPyro model function; it is "
        f"{type(model).__name__}.",
    )
    return from_numpyro(model)


def _columns(path: Path, names: Mapping[str, Any]) -> Any:
    columns = names.get("columns")
    require(
        columns is None or isinstance(columns, (Mapping, list, tuple)),
        ConfigurationError,
        f"`columns` in {path} must be a dict such as {{'x': ['hour', 'distance'], 'y': 'late'}}, or a list of names; "
        f"it is {columns!r}.",
    )
    return list(columns) if isinstance(columns, tuple) else columns
