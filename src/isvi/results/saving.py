"""A fit as one file, and back.

The file is a ZIP archive (docs/saving.md): ``fit.json`` says what the fit is, and every array is a member in NumPy's
``.npy`` format. Reading it runs no code from it: nothing is pickled, and only known kinds of things are built.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.errors import CheckpointError, ConfigurationError, require
from isvi.core.files import write_atomically
from isvi.data.opening import Data, open_data
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.model.binding import Bindable, bind
from isvi.model.checks import check_model
from isvi.model.model import Model
from isvi.results.fit import Fit
from isvi.results.history import History
from isvi.results.layout_json import approximation_as_json, approximation_from_json
from isvi.results.status import Status

FORMAT = 1
"""Version of the file. Newer ones are refused by name; older ones stay readable."""
REPORTED_DRAWS = 2000
"""Draws that are saved of models whose posterior shows more than their latents (front ends)."""
FILE = "fit.isvi"


def save(fit: Fit, path: Path) -> None:
    """See :meth:`isvi.Fit.save`."""
    require(
        path.parent.is_dir(),
        ConfigurationError,
        f"cannot save to {path}: there is no folder {path.parent}. Make it first.",
    )
    arrays = {f"params/{number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(fit.params))}
    if fit.model.report is not None:
        arrays |= {f"draws/{name}": values for name, values in fit.sample(REPORTED_DRAWS).items()}
    text = json.dumps(_described(fit), indent=2)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr("fit.json", text)
        for name, array in arrays.items():
            with members.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    write_atomically(path, archive.getvalue())


def load(path: str | Path, model: Model | Bindable | None = None, data: Any = None) -> Fit:
    """Read a fit that was saved. What needs only the approximation works at once: draws, summaries, log densities.

    Args:
        path: the file, or the folder of a run that was given to ``isvi.fit(..., checkpoint=...)``.
        model: the model, for ``elbo``, ``diagnose`` and ``predict``; its latents must be those of the fit.
        data: the data, likewise.
    """
    described, arrays = _read(Path(path))
    try:
        approximation = approximation_from_json(described["approximation"])
        params = _params(approximation, arrays)
        history, status = History(**described["history"]), Status(**described["status"])
        numbers = {name: described[name] for name in ("gradients", "steps", "skipped", "seconds", "compile_seconds")}
        names, reports = described["latents"], described["reports"]
        settings = described.get("settings", {})  # files of older versions have none
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a fit that this version of isvi can read ({error!r}).") from None
    draws = {name.removeprefix("draws/"): values for name, values in arrays.items() if name.startswith("draws/")}
    if model is None:
        dataset, bound = None, _absent_model(approximation, names, reports)
    else:
        dataset, bound = _bound(model, data, approximation)
    return Fit(
        bound, approximation, dataset, params, history, status, **numbers, saved_draws=draws or None, settings=settings
    )


def _described(fit: Fit) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "isvi": version("isvi"),
        "approximation": approximation_as_json(fit.approximation),
        "latents": list(fit.model.latents),
        "reports": fit.model.report is not None,
        "status": asdict(fit.status),
        "history": asdict(fit.history),
        "gradients": fit.gradients,
        "steps": fit.steps,
        "skipped": fit.skipped,
        "seconds": fit.seconds,
        "compile_seconds": fit.compile_seconds,
        "settings": dict(fit.settings),
    }


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    path = path / FILE if path.is_dir() else path
    require(path.is_file(), CheckpointError, f"there is no saved fit at {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            described = json.loads(archive.read("fit.json"))
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
    except Exception as error:  # whatever a damaged file makes a reader raise
        raise CheckpointError(f"{path} is damaged, or not a saved fit: {error}.") from None
    found = described.get("format") if isinstance(described, dict) else None
    require(
        found == FORMAT,
        CheckpointError,
        f"{path} has format {found!r}; this version of isvi reads format {FORMAT}.",
    )
    return described, arrays


def _params(approximation: Approximation, arrays: Mapping[str, np.ndarray]) -> Params:
    template = jax.eval_shape(approximation.init, *2 * [jax.ShapeDtypeStruct((approximation.dim,), jnp.float32)])
    shapes, structure = jax.tree.flatten(template)
    leaves = [arrays[f"params/{number}"] for number in range(len(shapes))]
    require(
        all(leaf.shape == shape.shape for leaf, shape in zip(leaves, shapes, strict=True)),
        CheckpointError,
        "the parameters in the file have other shapes than its approximation.",
    )
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])


def _bound(model: Model | Bindable, data: Any, approximation: Approximation) -> tuple[Data, Model]:
    bound, rows, batch_size = bind(model, data, None)
    dataset = open_data(rows, batch_size)
    check_model(bound, dataset.first)
    expected = {entry.name: entry.latent.shape for entry in approximation.coordinates.entries}
    found = {name: latent.shape for name, latent in bound.latents.items()}
    require(
        found == expected,
        CheckpointError,
        f"the fit is of a model with latents {expected}; this model has {found}.",
    )
    return dataset, bound


def _absent_model(approximation: Approximation, names: list[str], reports: bool) -> Model:
    """Stands for the model of a fit that was loaded without it."""
    latents = {entry.name: entry.latent for entry in approximation.coordinates.entries}

    def absent(*arguments: Any) -> Any:
        raise ConfigurationError(
            "This fit was loaded without its model, which is needed: isvi.load(path, model, data)."
        )

    return Model({name: latents[name] for name in names}, absent, report=absent if reports else None)
