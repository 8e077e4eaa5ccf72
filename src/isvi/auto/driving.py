"""Which latents drive the curvature of the others? Given them a posterior is nearly Gaussian, without them it is not.

With T the third derivatives of the log joint in coordinates in which q is standard, what keeps the posterior from being
Gaussian is the sum of their squares. ``grad (v' H v)`` at random v has the squares of all T_ijk in its i-th entry, for
all i at once. The entry with the largest is a driver; what is left is looked at given that one; and so on, until
nothing much is. A few dozen third derivatives along directions tell this, whatever the dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from isvi.core.compiling import compiled_once

PROBES = 16
"""Random directions, for every driver."""
COST_OF_PROBE = 6
"""Model gradients that a third derivative along a direction takes the time of."""
MOST_DRIVERS = 10
NEGLIGIBLE, LITTLE = 0.1, 0.02
"""A sum of squares of which no more need be explained, about a three-hundredth of a nat; or a part of the whole."""
WORTH_IT = 0.1
"""A driver explains at least this part of what is left ..."""
EXPLAINED = 0.8
"""... and all of them together leave no more than this part of the whole."""


@dataclass(frozen=True)
class Driving:
    """What was found.

    Attributes:
        drivers: entries that drive the others, the strongest first; none if there are no such few.
        bent: whether the posterior is far enough from Gaussian for any of this.
        gradients: model gradients that it took, about.
    """

    drivers: tuple[int, ...]
    bent: bool
    gradients: int


def most_to_find() -> int:
    """Model gradients that it takes at most."""
    return PROBES * COST_OF_PROBE * (MOST_DRIVERS + 1)


def find_drivers(
    log_joint: Callable[[Array], Array],
    location: Float[np.ndarray, " dim"],
    covariance: Float[np.ndarray, "dim dim"],
    seed: int = 0,
) -> Driving:
    """Drivers of the log joint around a Gaussian."""
    random, dim = np.random.default_rng(seed), len(location)
    bends = compiled_once(
        lambda along: jax.vmap(
            jax.grad(lambda z, v: jax.jvp(lambda x: jax.jvp(log_joint, (x,), (v,))[1], (z,), (v,))[1]), (None, 0)
        )(location, along)
    )
    drivers: list[int] = []
    left: list[float] = []
    while len(drivers) <= min(MOST_DRIVERS, dim - 2):
        rest = np.setdiff1d(np.arange(dim), drivers)
        root = _root(_given(covariance, rest, drivers))
        along = np.zeros((PROBES, dim))
        along[:, rest] = random.normal(size=(PROBES, len(rest))) @ root.T
        strength = np.mean((np.asarray(bends(along))[:, rest] @ root) ** 2, axis=0)
        left.append(float(strength.sum()))
        least = max(NEGLIGIBLE, LITTLE * left[0])
        if not left[-1] > least or not np.isfinite(left[-1]) or strength.max() < WORTH_IT * left[-1]:
            break
        drivers.append(int(rest[np.argmax(strength)]))
    else:
        drivers.pop()  # what the last one leaves was not looked at
    spent = PROBES * COST_OF_PROBE * len(left)
    enough = np.isfinite(left).all() and left[-1] < max(NEGLIGIBLE, EXPLAINED * left[0])
    return Driving(tuple(drivers) if enough else (), not left[0] < NEGLIGIBLE, spent)


def _given(covariance: np.ndarray, rest: np.ndarray, drivers: list[int]) -> np.ndarray:
    """The covariance of the rest, given the drivers."""
    own = covariance[np.ix_(rest, rest)]
    if not drivers:
        return own
    coupling = covariance[np.ix_(rest, np.asarray(drivers))]
    return own - coupling @ np.linalg.solve(covariance[np.ix_(np.asarray(drivers), np.asarray(drivers))], coupling.T)


def _root(covariance: np.ndarray) -> np.ndarray:
    """R with R R' the covariance, whose coordinates are as near to the entries as can be."""
    sds = np.sqrt(np.diagonal(covariance))
    values, axes = np.linalg.eigh(covariance / np.outer(sds, sds))
    return sds[:, None] * ((axes * np.sqrt(np.maximum(values, 1e-12))) @ axes.T)
