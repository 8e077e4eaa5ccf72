"""Which run is this? What a checkpoint must agree with before a run goes on from it."""

import json
import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from isvi.checkpoints.choices import as_json
from isvi.checkpoints.lock import cannot_write
from isvi.checkpoints.probes import probe, same_values, trace_digest
from isvi.core.coordinates import Coordinates
from isvi.core.errors import CheckpointError, require
from isvi.core.files import write_atomically
from isvi.data.checksums import checksum
from isvi.data.opening import Data
from isvi.model.checks import Trial
from isvi.model.external import ExternalModel
from isvi.model.model import Model

log = logging.getLogger("isvi")

FORMAT = 2
"""Version of ``run.json`` and of what the checkpoints hold."""
FILE = "run.json"


def identify(
    choices: Mapping[str, Any], own_optimizer: bool, model: Model, data: Data, coordinates: Coordinates, trial: Trial
) -> dict[str, Any]:
    """What a run is, as JSON: its choices by name, whether the optimizer is isvi's own, latents, model and data."""
    rows = model.external.rows if isinstance(model, ExternalModel) else None
    return {
        "format": FORMAT,
        "isvi": version("isvi"),
        "options": {name: as_json(value) for name, value in choices.items()},
        "optimizer": "isvi's own" if own_optimizer else "the user's",
        "precision": str(jnp.result_type(float)),
        "latents": {
            name: f"shape {latent.shape}, {latent.constraint}" for name, latent in sorted(model.latents.items())
        },
        "model": {"trace": trace_digest(model, data.first), "values": probe(trial, coordinates, data.first)},
        "data": identify_data(data, rows),
        "jax": jax.__version__,
    }


def identify_data(data: Data, external_rows: Any = None) -> dict[str, Any]:
    """Names, shapes and a sum of all rows; of data larger than memory, of the first window's rows and of the files.
    (The other windows are compared with what the run has seen of them when they are read: ``Data.seen``.)

    ``external_rows`` are those that a model on the host keeps to itself, of which the mini-batches hold numbers only.
    """
    resident = data.first
    if resident.full is None:
        return {"rows": 0}
    columns = {
        jax.tree_util.keystr(path): f"{leaf.dtype} {leaf.shape[2:]}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(resident.full)
    }
    found = {
        "rows": data.size,
        "columns": columns,
        "sum of the values": checksum(jax.tree.leaves((resident.full, resident.rest))),
        **{f"file {name}": told for name, told in data.files().items()},
    }
    if external_rows is not None:
        found["sum of the model's own rows"] = checksum(jax.tree.leaves(external_rows))
    return found


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What keeps ``now`` from being the run that ``before`` describes, in words."""
    found = []
    for label in ("isvi", "optimizer", "precision"):
        found += _difference(label, before.get(label), now[label])
    for part in ("options", "latents", "data"):
        old = before.get(part)
        old = old if isinstance(old, dict) else {}  # it may be anything, if somebody edited it
        for name in sorted({*old, *now[part]}):
            found += _difference(f"{part}: {name}", old.get(name), now[part].get(name))
    if not found and not _same_model(before, now):
        found.append("model: its log densities compute something else now")
    return found


def _same_model(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """By values, up to rounding; and by traces, unless they are of different versions and cannot be compared."""
    old, new = before.get("model"), now["model"]
    if not isinstance(old, dict) or not same_values(old.get("values"), new["values"], now["precision"]):
        return False
    if before.get("jax") == now["jax"]:
        return old.get("trace") == new["trace"]
    log.warning("the run was made with jax %s; with %s its last bits may differ", before.get("jax"), now["jax"])
    return True


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
    try:
        write_atomically(folder / FILE, json.dumps(identity, indent=2).encode())
    except OSError as error:
        raise cannot_write(folder, error) from None


def read_identity(folder: Path) -> dict[str, Any]:
    require(
        (folder / FILE).is_file(),
        CheckpointError,
        f"{folder} holds no run: there is no {FILE} in it. A run that ended before its first checkpoint is started "
        "again, by isvi.fit.",
    )
    try:
        found = json.loads((folder / FILE).read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{folder / FILE} is damaged: {error}.") from None
    require(
        isinstance(found, dict) and found.get("format") == FORMAT and isinstance(found.get("options"), dict),
        CheckpointError,
        f"{folder / FILE} is not a run of format {FORMAT}, which this version of isvi reads; it says format "
        f"{found.get('format') if isinstance(found, dict) else None!r}.",
    )
    return found
