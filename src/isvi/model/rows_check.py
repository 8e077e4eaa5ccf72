"""Do the rows depend on each other? Then they must not be cut into mini-batches.

The log likelihood of independent rows is a sum over them: it is the same in another order, and those of two halves add
up to that of both. A series, a Gaussian process, a mean in the place of a sum or a term that is not about rows at all
fails one of the two. Compared on the first rows in the order in which they came, at a few draws around the start.
"""

import gc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.core.compiling import compiled_once
from isvi.core.latents import Latent
from isvi.model.external import ExternalModel
from isvi.model.external.rows import numbers
from isvi.model.model import Model

ROWS = 1000
"""How many rows are looked at, at most: a sum over so few has a relative rounding error of 1e-7 in single precision."""
SPREADS = (0.01, 0.3, 1.0)
"""How far from the start each draw is, in the unconstrained space: the first is finite where the fit can start at all;
further away, what has no effect at the start (a series' coefficient of 0) has one."""
NOTICED = 2e-6
"""Of the size of the log likelihoods compared: a difference in single precision, of ten times its rounding and more,
that is looked at again in double precision."""
EXACT = 1e-8
"""The same, in double precision: a hundred million times its rounding, and a thousandth of one row in 100,000."""
ROUGH = 1e-4
"""The same, for a callable in a precision unknown, or a model that cannot be evaluated in double precision."""
NOISE = 0.1
"""A callable that answers twice with numbers this part of the difference apart is random; its rows cannot be judged."""

Values = Mapping[str, Any]


class Compared(NamedTuple):
    """Log likelihoods of the same rows, at every draw."""

    whole: Float[np.ndarray, " draws"]
    reordered: Float[np.ndarray, " draws"]
    halves: Float[np.ndarray, " draws"]
    """The sum of those of the first and of the second half; NaN where the model cannot take fewer rows."""


def dependence(model: Model, rows: Any, around: Values) -> str | None:
    """What shows that the rows depend on each other, in words; None if nothing does.

    Args:
        rows: consecutive rows, at least two, in the order in which they came.
        around: constrained values of latents where the fit starts; others are near the image of 0.
    """
    count = len(jax.tree.leaves(rows)[0]) // 2 * 2
    rows = jax.tree.map(lambda column: np.asarray(column[:count]), rows)
    if isinstance(model, ExternalModel):
        return _on_host(model, rows, count, around)
    compare = partial(_compared, model, rows, around)
    double = jax.dtypes.canonicalize_dtype(float) == np.float64
    found = compare()
    words = _difference(found, count, EXACT if double else NOTICED)
    if words is None or double:
        return words
    exactly = _in_double_precision(compare)
    return _difference(found, count, ROUGH) if exactly is None else _difference(exactly, count, EXACT)


def first_draw(model: Model, around: Values) -> dict[str, Array]:
    """Constrained values next to where a fit starts."""
    return jax.tree.map(lambda values: values[0], _placed(model.latents, around, _noise(model.latents)))


def _difference(found: Compared, count: int, tolerance: float) -> str | None:
    """The largest difference beyond what rounding explains, in words."""
    with np.errstate(invalid="ignore"):
        sizes = np.stack([tolerance * (np.abs(found.whole) + np.abs(other) + count) for other in found[1:]])
        excess = np.stack([np.abs(found.whole - other) for other in found[1:]]) / sizes
    excess = np.where(np.isfinite(excess), excess, 0.0)
    other, draw = np.unravel_index(np.argmax(excess), excess.shape)
    if excess[other, draw] <= 1:
        return None
    whole, changed = float(found.whole[draw]), float(found[1 + other][draw])
    of_what = "for the same rows in another order" if other == 0 else "as the sum over their two halves"
    mean = " (a mean over the rows? It must be their sum)" if other == 1 and np.isclose(changed, 2 * whole) else ""
    return f"the log likelihood of {count:,} rows is {whole:,.7g}, and {changed:,.7g} {of_what}{mean}"


def _compared(model: Model, rows: Any, around: Values) -> Compared:
    """Compiled as one program. Where half of the rows cannot be traced, only their order is changed."""
    try:
        return _evaluated(model, rows, around, with_halves=True)
    except (TypeError, ValueError):  # arrays as long as the mini-batch, in the model
        return _evaluated(model, rows, around, with_halves=False)


def _evaluated(model: Model, rows: Any, around: Values, with_halves: bool) -> Compared:
    log_likelihood = model.log_likelihood
    assert log_likelihood is not None

    def at(values: dict[str, Array], orders: Any) -> tuple[Array, Array]:
        whole, reordered = jax.lax.map(lambda rows: log_likelihood(values, rows), orders)
        if not with_halves:
            return jnp.stack([whole, reordered]), jnp.full((2,), jnp.nan)
        halves = jax.tree.map(lambda column: column[0].reshape(2, -1, *column.shape[2:]), orders)
        return jnp.stack([whole, reordered]), jax.lax.map(lambda rows: log_likelihood(values, rows), halves)

    @compiled_once
    def compare_rows(given: dict[str, Array], noise: dict[str, Array], orders: Any) -> tuple[Array, Array]:
        draws = _placed(model.latents, given, noise)
        return jax.lax.map(lambda values: at(values, orders), draws)

    float_type = jnp.result_type(float)
    order = _order(len(jax.tree.leaves(rows)[0]))
    orders = jax.tree.map(lambda column: jnp.asarray(np.stack([column, column[order]])), _floats(rows, float_type))
    given, noise = _floats(dict(around), float_type), _floats(_noise(model.latents), float_type)
    both, halves = jax.device_get(compare_rows(given, noise, orders))
    whole, reordered = np.asarray(both, np.float64).T
    return Compared(whole, reordered, np.asarray(halves, np.float64).sum(axis=1))


def _in_double_precision(compare: Callable[[], Compared]) -> Compared | None:
    """What a model closes over keeps the precision in which it was first traced for as long as anything compiled with
    it lives: so nothing may be left of what was before, and nothing of this for the fit."""
    forget_compiled()
    try:
        with jax.enable_x64(True):
            return compare()
    except (TypeError, ValueError):
        return None
    finally:
        forget_compiled()


def forget_compiled() -> None:
    """Before and after a model is evaluated in another precision."""
    jax.clear_caches()
    gc.collect()


def _on_host(model: ExternalModel, rows: Any, count: int, around: Values) -> str | None:
    def called(part: Any) -> np.ndarray:
        return np.asarray(model.external(draws, numbers(part))[0], np.float64)

    def slice_of(chosen: Any) -> np.ndarray:
        return called(jax.tree.map(lambda column: column[chosen], rows))

    draws = jax.device_get(_placed(model.latents, around, _noise(model.latents)))
    whole, half = slice_of(slice(None)), count // 2
    found = Compared(whole, slice_of(_order(count)), slice_of(slice(0, half)) + slice_of(slice(half, None)))
    words = _difference(found, count, ROUGH)
    if words is None:
        return None
    again = np.abs(slice_of(slice(None)) - whole)
    differences = np.maximum(np.abs(found.reordered - whole), np.abs(found.halves - whole))
    return None if (again > NOISE * differences).any() else words


def _placed(latents: Mapping[str, Latent], given: Values, noise: Mapping[str, Any]) -> dict[str, Array]:
    """Constrained values at every draw."""

    def placed(name: str, latent: Latent) -> Array:
        centre = jnp.zeros(latent.unconstrained_shape)
        if name in given:
            centre = latent.transform.inv(jnp.broadcast_to(given[name], latent.shape))
        return jax.vmap(lambda step: latent.transform(centre + step))(noise[name])

    return {name: placed(name, latent) for name, latent in latents.items()}


def _noise(latents: Mapping[str, Latent]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        name: np.stack([spread * generator.normal(size=latent.unconstrained_shape) for spread in SPREADS])
        for name, latent in latents.items()
    }


def _order(count: int) -> np.ndarray:
    """Of two rows, the other one."""
    return np.arange(count)[::-1] if count < 4 else np.random.default_rng(0).permutation(count)


def _floats(tree: Any, dtype: Any) -> Any:
    """The tree with its floats in one precision."""

    def cast(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        return leaf.astype(dtype) if leaf.dtype.kind == "f" else leaf

    return jax.tree.map(cast, tree)
