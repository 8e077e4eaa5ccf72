"""Is a gradient that comes from outside the gradient of the log density that comes with it?

Compared at one point, along one random direction in which every entry moves: two evaluations if it is right. A wrong
gradient would not be noticed later: the fit would only be slow, or end somewhere else.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isvi.core.errors import ModelError

ValueAndGradient = Callable[[Float[np.ndarray, "points dim"]], tuple[np.ndarray, np.ndarray]]

STEPS = (1e-3, 1e-2, 1e-1)
"""In sds of the draws that a fit starts with. The first is right for a smooth function in double precision; the longer
ones are tried where it is not, as they are less disturbed by the rounding of single precision."""
TOLERANCE = 3e-3
"""Of the gradient's length: what the difference quotient of a function with some curvature, or in single precision, may
be off by. One entry of a thousand equal ones that is off by a third is off by three times as much."""
AGREEMENT = 0.1
"""Two quotients must agree this much better with each other than with the gradient for it to be called wrong: where the
density is noisy, or has a kink, they do not."""


def check_gradient(
    value_and_gradient: ValueAndGradient,
    draws: Float[np.ndarray, "draws dim"],
    labels: list[str],
    door: str,
) -> None:
    """Raise a ModelError that says how the gradient is wrong at the first of some draws, if it is."""
    point = np.asarray(draws[0], np.float64)
    width = np.asarray(draws, np.float64).std(axis=0)
    width = np.where(width > 0, width, 1e-3 * (1 + np.abs(point)))
    direction = width * np.random.default_rng(0).choice([-1.0, 1.0], size=len(point))
    gradient = value_and_gradient(point[None])[1][0]
    found = _true_slope(value_and_gradient, point, direction, gradient)
    if found is None:
        return
    claimed = float(gradient @ direction)
    entry = _worst_entry(value_and_gradient, point, direction, gradient)
    there = np.where(np.arange(len(point)) == entry, width, 0.0)
    at_entry = _slope(value_and_gradient, point, there, STEPS[1]) / width[entry]
    raise ModelError(
        f"The gradient given to {door} is not that of the log density given with it: along a random direction the "
        f"density changes by {found:.4g}, and the gradient says {claimed:.4g}{_pattern(claimed, found)}. In "
        f"{labels[entry]} it is {gradient[entry]:.4g}, and differences of the density say {at_entry:.4g}. Correct the "
        "function; if the gradient is meant to be approximate, pass check_gradient=False."
    )


def _true_slope(
    function: ValueAndGradient, point: np.ndarray, direction: np.ndarray, gradient: np.ndarray
) -> float | None:
    """How the density changes along a direction, if that is known and is not what the gradient says."""
    claimed, allowed = float(gradient @ direction), TOLERANCE * float(np.linalg.norm(gradient * direction))
    quotients: list[float] = []
    for step in STEPS:
        quotient = _slope(function, point, direction, step)
        if not np.isfinite(quotient):
            continue
        off = abs(quotient - claimed)
        if off <= allowed:
            return None
        if quotients and abs(quotients[-1] - quotient) < AGREEMENT * off:
            return quotients[-1]
        quotients.append(quotient)
    return None


def _slope(function: ValueAndGradient, point: np.ndarray, direction: np.ndarray, step: float) -> float:
    """The difference quotient around a point."""
    below, above = function(np.stack([point - step * direction, point + step * direction]))[0]
    with np.errstate(invalid="ignore"):
        return float((above - below) / (2 * step))


def _worst_entry(function: ValueAndGradient, point: np.ndarray, direction: np.ndarray, gradient: np.ndarray) -> int:
    """By halving: the half of the entries along which the gradient is more off has it."""
    entries = np.arange(len(point))
    while len(entries) > 1:
        halves = np.array_split(entries, 2)
        off = []
        for half in halves:
            part = np.where(np.isin(np.arange(len(point)), half), direction, 0.0)
            off.append(abs(_slope(function, point, part, STEPS[1]) - gradient @ part))
        entries = halves[int(np.nan_to_num(off[1]) > np.nan_to_num(off[0]))]
    return int(entries[0])


def _pattern(claimed: float, found: float) -> str:
    """The usual mistakes, if this looks like one."""
    if found != 0 and abs(claimed / found + 1) < 0.01:
        return " (the sign is wrong)"
    if found != 0 and claimed != 0:
        return f" ({claimed / found:.3g} times as much)"
    return ""


def in_double_precision(target: Any, batch: Any) -> ValueAndGradient:
    """The log joint of an external target on a mini-batch, for NumPy arrays of draws."""

    def value_and_gradient(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            values, gradients = jax.device_get(target.values_and_gradients(jnp.asarray(points, jnp.float64), batch))
        return np.asarray(values, np.float64), np.asarray(gradients, np.float64)

    return value_and_gradient
