"""The log likelihood row by row, and simulated rows: what leave-one-out and predictive checks are made of."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.data.dataset import Dataset
from isvi.model.external import ExternalModel
from isvi.model.model import Model
from isvi.results.weights.evaluation import VALUES_AT_ONCE, in_one_precision

if TYPE_CHECKING:
    from isvi.results.fit import Fit

SUM_TOLERANCE = 1e-6
"""Of the sum over rows, relative to the sum of absolute values: float64 leaves a millionth of it."""


def fitted_rows(fit: "Fit") -> Any:
    """The data as they were given, if they are all in memory."""
    data = fit.data()
    require(
        isinstance(data, Dataset) and data.full is not None,
        ConfigurationError,
        "This needs the fitted rows in memory: the model has none, or they are streamed. Pass the rows that matter, as "
        "arrays.",
    )
    assert isinstance(data, Dataset)
    place = np.argsort(data.row_numbers)

    def joined(full: Any, rest: Any = None) -> np.ndarray:
        flat = np.asarray(full).reshape(-1, *np.shape(full)[2:])
        return (flat if rest is None else np.concatenate([flat, np.asarray(rest)]))[place]

    return jax.tree.map(joined, data.full, *([] if data.rest is None else [data.rest]))


def columns(rows: Any) -> dict[str, np.ndarray]:
    """Rows as named columns."""
    if isinstance(rows, dict):
        return {str(name): np.asarray(column) for name, column in rows.items() if not isinstance(column, dict)}
    arrays = rows if isinstance(rows, tuple) else (rows,)
    return {"data" if len(arrays) == 1 else f"data_{number}": np.asarray(a) for number, a in enumerate(arrays)}


def take(rows: Any, which: Any) -> Any:
    return jax.tree.map(lambda column: column[which], rows)


def count(rows: Any) -> int:
    return len(jax.tree.leaves(rows)[0])


def pointwise_log_likelihood(
    fit: "Fit", draws: Float[np.ndarray, "draws dim"], rows: Any
) -> Float[np.ndarray, "draws rows"]:
    """In float64, at draws in the coordinates of the approximation. Refused if it does not sum to the likelihood."""
    model, coordinates = fit.model, fit.approximation.coordinates
    by_row = _by_row(model)
    at_once = max(1, VALUES_AT_ONCE // max(1, len(draws)))

    def compute() -> np.ndarray:
        decode = jax.jit(coordinates.constrain)
        function = jax.jit(jax.vmap(by_row, (0, None)))
        with jax.enable_x64(True):
            values = decode(jnp.asarray(draws, jnp.float64))
            pieces = [np.asarray(function(values, piece)) for piece in _pieces(rows, at_once)]
        return np.concatenate(pieces, axis=1)

    found = in_one_precision(compute)
    _require_sum(model, coordinates.constrain, draws, rows, found)
    return found


def _by_row(model: Model) -> Callable[[dict[str, Array], Any], Array]:
    require(
        model.log_likelihood is not None and not isinstance(model, ExternalModel),
        ConfigurationError,
        "The log likelihood of single rows is known for models in JAX whose data were passed to isvi.fit. This model "
        "has a bare density, or is evaluated outside JAX.",
    )
    if model.pointwise is not None:
        return model.pointwise
    log_likelihood = model.log_likelihood
    assert log_likelihood is not None

    def by_row(values: dict[str, Array], rows: Any) -> Array:
        return jax.vmap(lambda row: log_likelihood(values, jax.tree.map(lambda column: column[None], row)))(rows)

    return by_row


def _pieces(rows: Any, at_once: int) -> Iterator[Any]:
    """Some rows after the other, their floats in float64."""
    for start in range(0, count(rows), at_once):
        piece = take(rows, slice(start, start + at_once))
        yield jax.tree.map(
            lambda a: jnp.asarray(a, jnp.float64 if np.issubdtype(np.asarray(a).dtype, np.floating) else None), piece
        )


def _require_sum(model: Model, constrain: Callable, draws: np.ndarray, rows: Any, found: np.ndarray) -> None:
    """The rows' log likelihoods must add up to that of all of them, at the first draw."""

    def whole() -> float:
        with jax.enable_x64(True):
            values = take(constrain(jnp.asarray(draws[:1], jnp.float64)), 0)
            sums = [model.log_likelihood(values, piece) for piece in _pieces(rows, VALUES_AT_ONCE)]  # type: ignore[misc]
            return float(sum(map(float, sums)))

    expected, got = in_one_precision(whole), float(found[0].sum())
    require(
        abs(expected - got) <= SUM_TOLERANCE * (1 + np.abs(found[0]).sum()) or not np.isfinite(expected),
        ModelError,
        f"log_likelihood is not the sum of its rows: of all rows together it is {expected:.6g}, and of one after the "
        f"other {got:.6g}. Give the rows' own by isvi.Model(..., pointwise=lambda z, rows: ...); if rows depend on "
        "each other, one cannot be left out.",
    )


def simulate(model: Model, draws: dict[str, np.ndarray], rows: Any, seed: int) -> dict[str, np.ndarray]:
    """Simulated columns for every draw, by name, with a leading axis."""
    assert model.simulate is not None
    number = len(next(iter(draws.values())))
    keys = jax.random.split(jax.random.key(seed), number)
    function = model.simulate

    @jax.jit
    def some(keys: Array, values: dict[str, Array]) -> Any:
        return jax.vmap(lambda key, z: function(key, z, jax.tree.map(jnp.asarray, rows)))(keys, values)

    at_once = max(1, VALUES_AT_ONCE // max(1, count(rows)))
    pieces = [
        jax.device_get(some(keys[start : start + at_once], take(draws, slice(start, start + at_once))))
        for start in range(0, number, at_once)
    ]
    require(
        isinstance(pieces[0], dict),
        ModelError,
        "simulate must return a dict of columns, such as {'y': ...}; it returned " + type(pieces[0]).__name__ + ".",
    )
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
