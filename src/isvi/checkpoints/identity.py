"""Which run is this? What a checkpoint must agree with before a run goes on from it."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.checkpoints.choices import as_json
from isvi.core.errors import CheckpointError, require
from isvi.core.files import write_atomically
from isvi.data.dataset import Dataset
from isvi.data.opening import Data
from isvi.model.external import ExternalModel
from isvi.model.model import Model

FORMAT = 1
"""Version of ``run.json`` and of what the checkpoints hold."""
FILE = "run.json"


def identify(choices: Mapping[str, Any], own_optimizer: bool, model: Model, data: Data) -> dict[str, Any]:
    """What a run is, as JSON: its choices by name, whether the optimizer is isvi's own, latents, model and data."""
    return {
        "format": FORMAT,
        "options": {name: as_json(value) for name, value in choices.items()},
        "optimizer": "isvi's own" if own_optimizer else "the user's",
        "precision": str(jnp.result_type(float)),
        "latents": {
            name: f"shape {latent.shape}, {latent.constraint}" for name, latent in sorted(model.latents.items())
        },
        "model": _digest_of_model(model, data.first),
        "data": identify_data(data),
        "jax": jax.__version__,
    }


def identify_data(data: Data) -> dict[str, Any]:
    """Names, shapes and a digest of the rows; of data larger than memory, of the rows of the first window."""
    resident = data.first
    if resident.full is None:
        return {"rows": 0}
    digest = hashlib.blake2b(digest_size=16)
    for part in jax.tree.leaves((resident.full, resident.rest)):
        digest.update(np.ascontiguousarray(part).data)
    columns = {
        jax.tree_util.keystr(path): f"{leaf.dtype} {leaf.shape[2:]}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(resident.full)
    }
    return {"rows": data.size, "columns": columns, "digest of the values": digest.hexdigest()}


def _digest_of_model(model: Model, dataset: Dataset) -> str | None:
    """A digest of what the densities compute: of their traces, and the constants in these."""
    # What is computed outside cannot be seen; funsor sums discrete latents in an order that changes with every process.
    if isinstance(model, ExternalModel) or model.infer_discrete is not None:
        return None
    dtype = jnp.result_type(float)
    values = {name: jax.ShapeDtypeStruct(latent.shape, dtype) for name, latent in model.latents.items()}
    traces = [jax.make_jaxpr(model.log_prior)(values)]
    if model.log_likelihood is not None:
        rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), dataset.full)
        traces.append(jax.make_jaxpr(model.log_likelihood)(values, rows))
    digest = hashlib.sha256()
    for trace in traces:
        digest.update(re.sub(r"0x[0-9a-f]+", "", str(trace)).encode())  # addresses change from process to process
        for constant in trace.consts:
            digest.update(np.ascontiguousarray(constant).data)
    return digest.hexdigest()


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What keeps ``now`` from being the run that ``before`` describes, in words."""
    found = []
    for label in ("optimizer", "precision"):
        found += _difference(label, before.get(label), now[label])
    for part in ("options", "latents", "data"):
        old, new = before.get(part, {}), now[part]
        for name in sorted(set(old) | set(new)):
            found += _difference(f"{part}: {name}", old.get(name), new.get(name))
    same_jax = before.get("jax") == now["jax"]  # traces of different versions cannot be compared
    if same_jax and not found and before.get("model") != now["model"]:
        found.append("model: its log densities compute something else now")
    return found


def _difference(label: str, before: Any, now: Any) -> list[str]:
    return [] if before == now else [f"{label} was {_shown(before)} and is {_shown(now)}"]


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "kind" in value:
        choices = ", ".join(f"{name}={_shown(choice)}" for name, choice in value.items() if name != "kind")
        return f"{value['kind']}({choices})"
    return str(value)


def refuse_another_run(folder: Path) -> None:
    """A folder that already holds a run is refused: nothing is overwritten."""
    require(
        not (folder / FILE).exists(),
        CheckpointError,
        f"{folder} already holds a run. Go on with it by isvi.resume({str(folder)!r}, model, data), or choose another "
        "folder.",
    )


def write_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Mark a folder as this run's."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, json.dumps(identity, indent=2).encode())


def read_identity(folder: Path) -> dict[str, Any]:
    require(
        (folder / FILE).is_file(),
        CheckpointError,
        f"{folder} holds no run: there is no {FILE} in it. A run that ended before its first checkpoint is started "
        "again, by isvi.fit.",
    )
    try:
        found = json.loads((folder / FILE).read_text())
    except ValueError as error:
        raise CheckpointError(f"{folder / FILE} is damaged: {error}.") from None
    require(
        isinstance(found, dict) and found.get("format") == FORMAT and isinstance(found.get("options"), dict),
        CheckpointError,
        f"{folder / FILE} is not a run of format {FORMAT}, which this version of isvi reads; it says format "
        f"{found.get('format') if isinstance(found, dict) else None!r}.",
    )
    return found
