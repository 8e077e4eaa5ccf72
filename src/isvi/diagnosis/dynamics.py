"""Hamiltonian Monte Carlo, many chains at once: trajectories in coordinates in which q is standard.

Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Points = Float[np.ndarray, "chains size"]
Values = Float[np.ndarray, " chains"]
Density = Callable[[Points], tuple[Values, Points]]
"""Log densities and their gradients."""


@dataclass(frozen=True)
class Place:
    """Where the chains are: points, log densities there, and their gradients."""

    x: Points
    value: Values
    gradient: Points

    @classmethod
    def at(cls, x: Points, density: Density) -> "Place":
        value, gradient = density(x)
        finite = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
        return cls(x, np.where(finite, value, -np.inf), np.where(finite[:, None], gradient, 0.0))

    def where(self, chosen: np.ndarray, other: "Place") -> "Place":
        """This place for the chosen chains, the other one for the rest."""
        rows = chosen[:, None]
        return Place(
            np.where(rows, self.x, other.x),
            np.where(chosen, self.value, other.value),
            np.where(rows, self.gradient, other.gradient),
        )


@dataclass(frozen=True)
class Stride:
    """How a trajectory is cut into steps.

    Attributes:
        length: of a step, in sds of q.
        leaps: how many.
    """

    length: float
    leaps: int


@dataclass(frozen=True)
class Kick:
    """What is random about one trajectory of every chain."""

    momentum: Points
    log_uniform: Values

    @classmethod
    def draw(cls, random: np.random.Generator, chains: int, size: int) -> "Kick":
        return cls(random.normal(size=(chains, size)), np.log(random.uniform(size=chains)))


LOST = 1000.0
"""Nats by which a trajectory's energy may be off: beyond, its steps are too long, and it would only go astray."""


def move(density: Density, start: Place, kick: Kick, stride: Stride) -> tuple[Place, Values]:
    """Where a trajectory of every chain leads, or where it began if that is refused; and how likely it was taken."""
    place, momentum = start, kick.momentum + 0.5 * stride.length * start.gradient
    before = start.value - 0.5 * (kick.momentum**2).sum(axis=1)
    astray = np.zeros(len(before), bool)
    for leap in range(stride.leaps):
        moved = np.where(astray[:, None], start.x, place.x + stride.length * momentum)
        place = Place.at(moved, density)
        momentum = momentum + (0.5 if leap + 1 == stride.leaps else 1.0) * stride.length * place.gradient
        gained = place.value - 0.5 * (momentum**2).sum(axis=1) - before
        astray |= ~(np.abs(gained) < LOST)
        momentum[astray] = 0.0
    log_odds = np.where(astray, -np.inf, np.minimum(gained, 0.0))
    return place.where(kick.log_uniform < log_odds, start), np.exp(log_odds)
