"""A fit as one file, and back.

The file is a ZIP archive (docs/saving.md): ``fit.json`` says what the fit is, and every array is a member in NumPy's
``.npy`` format. Reading it runs no code from it: nothing is pickled, and only known kinds of things are built.
"""

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.archives import Archive, write_archive
from isvi.core.errors import CheckpointError, ConfigurationError, first_line, require
from isvi.core.settings import own_settings
from isvi.data.opening import Data
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.model.binding import Bindable, bind
from isvi.model.cutting import cut
from isvi.model.model import Model
from isvi.results.attempts import Attempt
from isvi.results.fit import Fit
from isvi.results.history import History
from isvi.results.layout_json import approximation_as_json, approximation_from_json
from isvi.results.moments import affordable_draws
from isvi.results.status import Status

FORMAT = 1
"""Version of the file. Newer ones are refused by name; older ones stay readable."""
REPORTED_DRAWS = 2000
"""Draws that are saved of models whose posterior shows more than their latents (front ends); fewer of very many."""
FILE = "fit.isvi"
WHOLE, SECONDS = ("gradients", "steps", "skipped"), ("seconds", "compile_seconds")


def save(fit: Fit, path: Path) -> None:
    """See :meth:`isvi.Fit.save`."""
    require(
        path.parent.is_dir(),
        ConfigurationError,
        f"cannot save to {path}: there is no folder {path.parent}. Make it first.",
    )
    arrays = {f"params/{number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(fit.params))}
    if fit.model.report is not None:
        arrays |= {f"draws/{name}": values for name, values in fit.sample(_draws_to_save(fit)).items()}
    write_archive(path, ("fit.json", _described(fit)), arrays, compress=True)


def _draws_to_save(fit: Fit) -> int:
    return min(REPORTED_DRAWS, affordable_draws(fit.approximation.dim))


@own_settings()
def load(path: str | Path, model: Model | Bindable | None = None, data: Any = None) -> Fit:
    """Read a fit that was saved. What needs only the approximation works at once: draws, summaries, log densities.

    Args:
        path: the file, or the folder of a run that was given to ``isvi.fit(..., checkpoint=...)``.
        model: the model, for ``elbo``, ``diagnose`` and ``predict``; its latents must be those of the fit.
        data: the data, likewise.
    """
    saved = _read(Path(path))
    if model is None:
        dataset, bound = None, _absent_model(saved.approximation, saved.latents, saved.reports)
    else:
        drawn = saved.approximation.draw(jax.random.key(0), saved.params, 1)
        around = {name: value[0] for name, value in saved.approximation.coordinates.constrain(drawn).items()}
        dataset, bound = _bound(model, data, saved.approximation, around, independent=saved.cut or None)
    draws = dict(saved.draws) or None
    return Fit(
        bound,
        saved.approximation,
        dataset,
        saved.params,
        saved.history,
        saved.status,
        **saved.numbers,
        starts=saved.starts,
        saved_draws=draws,
        settings=saved.settings,
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
        "starts": [one.as_json() for one in fit.starts],
        # Rows that were cut into mini-batches are independent; of others it is found out when they are loaded.
        "cut": fit.dataset is not None and fit.dataset.num_batches > 1,
        "settings": dict(fit.settings),
    }


class Saved(NamedTuple):
    """What a file holds, checked."""

    approximation: Approximation
    params: Params
    draws: Mapping[str, np.ndarray]
    latents: list[str]
    reports: bool
    history: History
    status: Status
    numbers: dict[str, Any]
    starts: tuple[Attempt, ...]
    cut: bool
    """Whether the rows were cut into mini-batches."""
    settings: dict[str, Any]


def _read(path: Path) -> Saved:
    """A file that may be damaged, or anybody's: whatever is wrong with it is told in one line."""
    path = path / FILE if path.is_dir() else path
    require(path.is_file(), CheckpointError, f"there is no saved fit at {path}.")
    try:
        with Archive(path) as archive:
            return _checked(archive)
    except MemoryError:
        raise CheckpointError(f"{path} needs more memory than there is.") from None
    except Exception as error:  # whatever a damaged file makes a reader raise
        raise CheckpointError(
            f"{path} is damaged, or not a fit that this version of isvi can read: {first_line(error)}."
        ) from None


def _checked(archive: Archive) -> Saved:
    described = archive.described("fit.json")
    found = described.get("format")
    require(found == FORMAT, CheckpointError, f"it has format {found!r}; this version of isvi reads format {FORMAT}")
    missing = sorted({*WHOLE, *SECONDS, "approximation", "latents", "reports", "status", "history"} - set(described))
    require(not missing, CheckpointError, f"fit.json has no {', '.join(missing)}")
    most = archive.num_bytes("params/")  # as many entries cannot be in a smaller file
    approximation = approximation_from_json(described["approximation"], most)
    names, known = described["latents"], {entry.name for entry in approximation.coordinates.entries}
    require(
        isinstance(names, list) and all(isinstance(name, str) for name in names) and sorted(names) == sorted(known),
        CheckpointError,
        f"its latents {names!r:.100} are not those of the approximation",
    )
    params = _params(approximation, archive)
    draws = {name: archive.array(f"draws/{name}") for name in archive.names("draws/")}
    require(
        all(values.ndim >= 1 and len(values) > 1 for values in draws.values())
        and len({len(values) for values in draws.values()}) <= 1
        and (described["reports"] is True) == (len(draws) > 0),
        CheckpointError,
        "its draws are not those of a posterior",
    )
    history, status = History.of(described["history"]), Status.of(described["status"])
    starts = tuple(map(Attempt.from_json, described.get("starts", [])))
    cut = described.get("cut") is True
    settings = described.get("settings", {})
    require(isinstance(settings, dict), CheckpointError, f"its settings are no table of choices: {settings!r:.100}")
    numbers = _numbers(described)
    return Saved(approximation, params, draws, names, len(draws) > 0, history, status, numbers, starts, cut, settings)


def _numbers(described: Mapping[str, Any]) -> dict[str, Any]:
    """Counts and seconds."""
    counts = {name: described[name] for name in WHOLE}
    seconds = {name: described[name] for name in SECONDS}
    require(
        all(type(count) is int and count >= 0 for count in counts.values())
        and all(type(one) in (int, float) and one >= 0 for one in seconds.values()),
        CheckpointError,
        f"its counts and seconds are not positive numbers: {counts | seconds}",
    )
    return counts | seconds


def _params(approximation: Approximation, archive: Archive) -> Params:
    template = jax.eval_shape(approximation.init, *2 * [jax.ShapeDtypeStruct((approximation.dim,), jnp.float32)])
    shapes, structure = jax.tree.flatten(template)
    leaves = [archive.array(f"params/{number}", leaf.shape) for number, leaf in enumerate(shapes)]
    require(all(leaf.dtype.kind == "f" for leaf in leaves), CheckpointError, "its parameters must be floating-point")
    params = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
    # Constraints with bounds that are no numbers, and the like, are met here, without computing anything.
    jax.eval_shape(
        lambda params: approximation.coordinates.constrain(approximation.draw(jax.random.key(0), params, 2, False)),
        params,
    )
    return params


def _bound(
    model: Model | Bindable,
    data: Any,
    approximation: Approximation,
    around: Mapping[str, Any],
    independent: bool | None,
) -> tuple[Data, Model]:
    bound, rows, batch_size = bind(model, data, None)
    expected = {entry.name: entry.latent.shape for entry in approximation.coordinates.entries}
    found = {name: latent.shape for name, latent in bound.latents.items()}
    require(
        found == expected,
        CheckpointError,
        f"the fit is of a model with latents {expected}; this model has {found}.",
    )
    return cut(bound, rows, batch_size, independent=independent, around=around)[0], bound


def _absent_model(approximation: Approximation, names: list[str], reports: bool) -> Model:
    """Stands for the model of a fit that was loaded without it."""
    latents = {entry.name: entry.latent for entry in approximation.coordinates.entries}

    def absent(*arguments: Any) -> Any:
        raise ConfigurationError(
            "This fit was loaded without its model, which is needed: isvi.load(path, model, data)."
        )

    return Model({name: latents[name] for name in names}, absent, report=absent if reports else None)
