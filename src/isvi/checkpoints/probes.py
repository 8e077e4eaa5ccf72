"""What a model computes, so that another one is told from it: its trace, and its values at fixed points."""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.coordinates import Coordinate, Coordinates
from isvi.core.settings import users_settings
from isvi.data.dataset import Dataset
from isvi.model.checks import DRAWS, Trial
from isvi.model.external import ExternalModel
from isvi.model.model import Model

TOLERANCE = {"float32": 1e-4, "float64": 1e-5}
"""Relative difference of values and gradients that another version of JAX, or another processor, may make by rounding:
a hundred times what was seen for sums over a thousand rows. In double precision a model may round to single inside."""
SMALLEST, LARGEST = 0.1, 1.0
"""How far from 0 the points are, in unconstrained space. Near 0, where fits begin, most models are finite."""


def trace_digest(model: Model, dataset: Dataset) -> str | None:
    """A digest of what the densities and their gradients compute: of their traces, and all constants in these."""
    # What is computed outside cannot be seen; funsor sums discrete latents in an order that changes with every process.
    if isinstance(model, ExternalModel) or model.infer_discrete is not None:
        return None
    dtype = jnp.result_type(float)
    values = {name: jax.ShapeDtypeStruct(latent.shape, dtype) for name, latent in model.latents.items()}
    # With gradients: a rule for derivatives (custom_vjp) is traced only where it is used.
    traces = [jax.make_jaxpr(jax.value_and_grad(_number(model.log_prior)))(values)]
    if model.log_likelihood is not None:
        rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), dataset.full)
        traces.append(jax.make_jaxpr(jax.value_and_grad(_number(model.log_likelihood)))(values, rows))
    digest = hashlib.sha256()
    for trace in traces:
        digest.update(re.sub(r"0x[0-9a-f]+", "", str(trace)).encode())  # addresses change from process to process
        _add_constants(trace, digest)
    return digest.hexdigest()


def _number(density: Callable[..., Any]) -> Callable[..., jax.Array]:
    """The density as one floating-point number, which it may be for a user who returns an array of one, or an int."""

    def number(*arguments: Any) -> jax.Array:
        with users_settings():
            found = density(*arguments)
        return jnp.asarray(found, jnp.result_type(float)).reshape(())

    return number


def _add_constants(trace: Any, digest: Any) -> None:
    """Those of a trace, and of all traces within it: an inner ``jax.jit`` keeps the arrays that it closed over."""
    for constant in getattr(trace, "consts", ()):
        raw = jax.random.key_data(constant) if jax.dtypes.issubdtype(constant.dtype, jax.dtypes.prng_key) else constant
        digest.update(np.ascontiguousarray(raw).tobytes())
    for equation in getattr(trace, "jaxpr", trace).eqns:
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                if hasattr(inner, "eqns"):
                    _add_constants(inner, digest)


def probe(trial: Trial, coordinates: Coordinates, dataset: Dataset) -> dict[str, list[list[float | None]]]:
    """For each density: value, length of the gradient and gradient along a fixed direction, at fixed points and on the
    first mini-batch. None stands for what is not finite."""
    points = _points(coordinates)
    direction = np.where(_uniform(coordinates.size, seed=DRAWS) < 0, -1.0, 1.0)
    parts = trial.parts(jnp.asarray(points, jnp.result_type(float)), dataset)
    found = {}
    for label, (values, gradients) in parts.items():
        lengths = np.linalg.norm(np.asarray(gradients, np.float64), axis=1)
        along = np.asarray(gradients, np.float64) @ direction
        rows = np.stack([np.asarray(values, np.float64), lengths, along], axis=1)
        found[label] = [[number if math.isfinite(number) else None for number in row] for row in rows.tolist()]
    return found


def same_values(before: Any, now: Mapping[str, list[list[float | None]]], precision: str) -> bool:
    """Whether two probes are of the same model, up to rounding."""
    if not isinstance(before, dict) or set(before) != set(now):
        return False
    tolerance = TOLERANCE.get(precision, TOLERANCE["float32"])
    return all(
        isinstance(before[label], list)
        and len(before[label]) == len(rows)
        and all(_close(old, new, tolerance) for old, new in zip(before[label], rows, strict=True))
        for label, rows in now.items()
    )


def _close(before: Any, now: list[float | None], tolerance: float) -> bool:
    """What is compared is small next to the larger of the value and the gradient. What was there before may be
    anything, if somebody edited it."""
    if not isinstance(before, list) or len(before) != len(now):
        return False
    scale = max((abs(number) for number in now if number is not None), default=0.0)
    return all(
        old is new or (type(old) in (int, float) and new is not None and abs(old - new) <= tolerance * scale)
        for old, new in zip(before, now, strict=True)
    )


def _points(coordinates: Coordinates) -> np.ndarray:
    """``DRAWS`` points, the first near 0, in the coordinates of an approximation."""
    rows = []
    for scale, seed in zip(np.linspace(SMALLEST, LARGEST, DRAWS), range(DRAWS), strict=True):
        parts = [_entries(entry, scale, seed) for entry in coordinates.entries]
        rows.append(np.concatenate(parts))
    return np.stack(rows)


def _entries(entry: Coordinate, scale: float, seed: int) -> np.ndarray:
    """One latent's: of a constrained one, the image of a point of the unconstrained space."""
    shape = entry.latent.unconstrained_shape
    free = scale * _uniform(int(np.prod(shape, dtype=int)), [seed, entry.start]).reshape(shape)
    return np.asarray(entry.latent.transform(jnp.asarray(free)) if entry.constrained else free).ravel()


def _uniform(count: int, seed: int | list[int]) -> np.ndarray:
    """Numbers between -1 and 1 by NumPy's generator, whose uniform numbers do not change with JAX's version."""
    return np.random.default_rng(seed).uniform(-1.0, 1.0, count)
