"""Predictions of more rows than memory holds: read, simulated, summarised and written piece by piece."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from isvi.core.errors import CheckpointError, ConfigurationError, require
from isvi.core.extras import import_extra
from isvi.data.arrays import checked_arrays
from isvi.data.opening import as_source
from isvi.data.source import Source
from isvi.exchange.pointwise import count, take
from isvi.model.model import Model

if TYPE_CHECKING:
    from isvi.results.fit import Fit

VALUES_AT_ONCE = 2**21
"""Rows times draws that are simulated together, for every simulated column."""
QUANTILES = (0.05, 0.5, 0.95)
SUMMARIES = ("mean", "sd", *(f"q{round(100 * quantile):02}" for quantile in QUANTILES))
DONE = "isvi_rows_done"


def predict_to(
    fit: "Fit", data: Any, path: Path, num_samples: int, seed: int, draws: bool, progress: bool | None
) -> Any:
    """See :meth:`isvi.Fit.predict`: a Zarr group with an array of ``(rows, ...)`` for every simulated column and
    summary, or of ``(rows, ..., draws)``. What an earlier call has written of the same is kept."""
    require(
        data is not None,
        ConfigurationError,
        "say for which rows to predict: fit.predict(rows, to=...), with arrays or a source such as isvi.data.Parquet.",
    )
    source = as_source(data)
    size = source.num_rows if isinstance(source, Source) else checked_arrays(source)[1]
    at_once = max(1, VALUES_AT_ONCE // num_samples)
    pieces = _pieces(source, at_once)
    latents = fit._latents(fit._draw(num_samples, seed, antithetic=False))
    simulated = _Simulation(fit.model, latents, seed)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(values).tobytes() for values in latents.values()))
    asked = {
        "latents": digest.hexdigest(),
        "rows": size,
        "num_samples": num_samples,
        "seed": seed,
        "draws": draws,
        "rows_at_once": at_once,
    }
    store, done = _opened(path, asked)
    total = -(-size // at_once)
    quiet = progress is False or (progress is None and not Console(stderr=True).is_terminal)
    start = 0
    for number, rows in track(
        enumerate(pieces), "predicting", total=total, disable=quiet, console=Console(stderr=True)
    ):
        stop = start + count(rows)
        if stop > done:
            for name, values in simulated(rows, number).items():
                for column, array in _summarised(name, values, draws).items():
                    _array(store, column, size, at_once, array)[start:stop] = array
            store.attrs[DONE] = stop  # after the arrays: what is counted is there
        start = stop
    require(start == size, CheckpointError, f"the source gave {start:,} rows of {size:,}.")
    return store


def _pieces(source: Any, at_once: int) -> Iterator[Any]:
    """All rows in their order, so many at a time: the same pieces whenever they are asked for."""
    if not isinstance(source, Source):
        arrays, size = checked_arrays(source)
        yield from (take(arrays, slice(start, start + at_once)) for start in range(0, size, at_once))
        return
    waiting: list[Any] = []
    for block, rows in enumerate(source.block_rows):
        for chunk in source.chunks(block, 0, int(rows)):
            waiting.append(chunk)
            while sum(map(count, waiting)) >= at_once:
                joined = _joined(waiting)
                yield take(joined, slice(None, at_once))
                waiting = [take(joined, slice(at_once, None))] if count(joined) > at_once else []
        source.release()
    source.close()
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[Any]) -> Any:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


class _Simulation:
    """Simulated columns of pieces of rows, compiled once for pieces of one length. The random numbers follow from the
    seed and the number of the piece, so that a run that was stopped goes on as it would have."""

    def __init__(self, model: Model, latents: dict[str, np.ndarray], seed: int) -> None:
        require(
            model.simulate is not None or model.predict is not None,
            ConfigurationError,
            "This model cannot simulate data: give it isvi.Model(..., simulate=lambda key, z, rows: ...).",
        )
        self._model, self._latents, self._seed = model, latents, seed
        self._compiled = jax.jit(self._all)

    def __call__(self, rows: Any, number: int) -> dict[str, np.ndarray]:
        if self._model.simulate is None:
            assert self._model.predict is not None
            seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0] >> 1)
            return {name: np.asarray(one) for name, one in self._model.predict(self._latents, rows, seed).items()}
        key = jax.random.fold_in(jax.random.key(self._seed), number)
        return jax.device_get(self._compiled(key, self._latents, rows))

    def _all(self, key: Any, latents: dict[str, Any], rows: Any) -> dict[str, Any]:
        assert self._model.simulate is not None
        keys = jax.random.split(key, len(next(iter(latents.values()))))
        arrays = jax.tree.map(jnp.asarray, rows)
        return jax.vmap(self._model.simulate, (0, 0, None))(keys, latents, arrays)


def _summarised(name: str, values: np.ndarray, draws: bool) -> dict[str, np.ndarray]:
    """Over the leading axis of draws, in single precision; or the draws themselves, as the last axis."""
    if draws:
        return {name: np.moveaxis(values, 0, -1)}
    sorted_values = np.sort(values.astype(np.float32, copy=False), axis=0)
    places = np.asarray(QUANTILES) * (len(values) - 1)
    below, part = np.floor(places).astype(int), (places % 1).astype(np.float32)
    above = np.minimum(below + 1, len(values) - 1)
    mean, sd = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
    quantiles = [
        (1 - share) * sorted_values[low] + share * sorted_values[high]
        for low, high, share in zip(below, above, part, strict=True)
    ]
    found = (mean.astype(np.float32), sd.astype(np.float32), *quantiles)
    return {f"{name}_{summary}": one for summary, one in zip(SUMMARIES, found, strict=True)}


def _opened(path: Path, asked: dict[str, Any]) -> tuple[Any, int]:
    """The store, and how many of its rows are written already."""
    zarr = import_extra("zarr", "zarr", "fit.predict(..., to=...)")
    if not path.exists():
        store = zarr.open_group(str(path), mode="w")
        store.attrs.update({**asked, DONE: 0})
        return store, 0
    try:
        store = zarr.open_group(str(path), mode="r+")
    except Exception as error:
        raise CheckpointError(f"{path} is there already, and is no Zarr group: choose another name.") from error
    held = dict(store.attrs)
    differs = [f"{name} {held.get(name)!r} instead of {one!r}" for name, one in asked.items() if held.get(name) != one]
    require(
        not differs,
        CheckpointError,
        f"{path} holds other predictions, with {'; '.join(differs)}: choose another name, or remove it.",
    )
    return store, int(store.attrs[DONE])


def _array(store: Any, name: str, size: int, at_once: int, piece: np.ndarray) -> Any:
    if name not in store:
        shape = piece.shape[1:]
        store.create_array(name, shape=(size, *shape), chunks=(min(size, at_once), *shape), dtype=piece.dtype)
    return store[name]
