"""Is another mode only a mirror image of this one? The components of a mixture can be numbered in any order.

A mirror image is found by exchanging entries: those of all latents that have an axis of the same length, together. The
model must be the same to the last digits when entries are exchanged, at draws of q; the other mode must come to lie
in q.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import linear_sum_assignment

from isvi.results.weights.evaluation import Evaluator

if TYPE_CHECKING:
    from isvi.results.fit import Fit

DRAWS = 8
"""Of q, at which the model is evaluated with entries exchanged, and as they are."""
ROUNDING = 1e-9
"""By which the two may differ, of their size."""

Values = Mapping[str, np.ndarray]
Order = Int[np.ndarray, " length"]


def mirrored(fit: "Fit", other: Float[np.ndarray, " dim"]) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Where another mode comes to lie when entries are exchanged without changing the model, in the coordinates of the
    approximation, and of which latents; None if there is no such exchange."""
    coordinates = fit.approximation.coordinates
    with jax.enable_x64(True):
        draws = jnp.asarray(np.asarray(fit._draw(DRAWS, seed=0, antithetic=False)), jnp.float64)
        here = {name: np.asarray(value) for name, value in coordinates.constrain(draws).items()}
        there = {name: np.asarray(value[0]) for name, value in coordinates.constrain(jnp.asarray(other)[None]).items()}
        for length in sorted({n for value in there.values() for n in value.shape if n > 1}):
            order = _order(here, there, length)
            names = tuple(name for name, value in there.items() if length in value.shape)
            exchanged = {name: jnp.asarray(_exchanged(value, order, length, 1)) for name, value in here.items()}
            if (order != np.arange(length)).any() and _same(fit, draws, jax.vmap(coordinates.encode)(exchanged)):
                back = {name: jnp.asarray(_exchanged(value, order, length, 0)) for name, value in there.items()}
                return np.asarray(coordinates.encode(back)), names
    return None


def _order(here: Values, there: Values, length: int) -> Order:
    """The order of the other mode's entries that makes them most like q's, in sds of q."""
    cost = np.zeros((length, length))
    for name, value in there.items():
        if length in value.shape:
            axis = value.shape.index(length)
            mean, sd = here[name].mean(axis=0), here[name].std(axis=0)
            rows, mine, scale = (np.moveaxis(one, axis, 0).reshape(length, -1) for one in (value, mean, sd))
            cost += (((mine[:, None] - rows[None]) / scale[:, None]) ** 2).sum(axis=2)
    return linear_sum_assignment(cost)[1]


def _exchanged(value: np.ndarray, order: Order, length: int, leading: int) -> np.ndarray:
    """With the entries along the first axis of this length in another order; others as they are."""
    shape = value.shape[leading:]
    return np.take(value, order, axis=leading + shape.index(length)) if length in shape else value


def _same(fit: "Fit", draws: Array, exchanged: Array) -> bool:
    """Whether the model says the same of both, apart from the Jacobians of the constraints."""
    evaluator, coordinates = Evaluator(fit), fit.approximation.coordinates
    jacobians = [np.asarray(jax.vmap(lambda z: coordinates.decode(z)[1])(one)) for one in (draws, exchanged)]
    before, after = (
        evaluator.log_joint(np.asarray(one)) - jacobian
        for one, jacobian in zip((draws, exchanged), jacobians, strict=True)
    )
    return bool(np.all(np.abs(after - before) <= ROUNDING * (1 + np.abs(before))))
