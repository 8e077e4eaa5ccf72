"""The best Gaussian where the log likelihood is a parabola but for a few *sites*, functions of one number each.

A site is what the few rows say that know an entry r; u_r, with a 1 in entry r, is the pattern in which they couple it
with all others. With f_r the function, t_r = u_r'z, and slopes and curvatures averaged over q, q is best where::

    precision  =  rest  +  sum_r  kappa_r u_r u_r'            kappa_r = -E f_r''(t_r)
    0          =  slope of the rest at the mean  +  sum_r  u_r a_r     a_r = E f_r'(t_r)

With the patterns, a direction in which all rows are flat stays flat whatever the sites turn out to be.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

DAMPING = 0.6
"""Of the steps: mean and covariance follow each other, and would overshoot."""
LEAST_STEPS, MOST_STEPS = 4, 16
ARRIVED = 0.01
"""A mean's step in sds, and an sd's change relatively, after which it has arrived."""


class Moments(NamedTuple):
    """A Gaussian."""

    mean: Float[np.ndarray, " dim"]
    covariance: Float[np.ndarray, "dim dim"]

    @property
    def sd(self) -> Float[np.ndarray, " dim"]:
        return np.sqrt(np.diagonal(self.covariance))


class Told(NamedTuple):
    """What sites say, averaged over q."""

    slopes: Float[np.ndarray, " sites"]
    curvatures: Float[np.ndarray, " sites"]


Ask = Callable[[Moments, Float[np.ndarray, "sites dim"]], Told]
"""What the sites with these patterns say at a Gaussian."""


@dataclass(frozen=True)
class Sites:
    """The sites, and the parabola beside them.

    Attributes:
        patterns: u_r.
        rest: the precision without the sites.
        pull: the slope of the rest at 0, so that it is ``pull - rest @ mean`` at any mean.
    """

    patterns: Float[np.ndarray, "sites dim"]
    rest: Float[np.ndarray, "dim dim"]
    pull: Float[np.ndarray, " dim"]

    @classmethod
    def beside(
        cls,
        q: Moments,
        likelihood: Float[np.ndarray, "dim dim"],
        entries: Int[np.ndarray, " sites"],
        slopes: Callable[[Float[np.ndarray, "sites dim"]], Float[np.ndarray, " sites"]],
    ) -> "Sites":
        """Of these entries, where q was found to be best by sites of whose slopes it thought what ``slopes`` says, and
        of whose curvatures what ``likelihood`` has."""
        curvatures = likelihood[entries, entries]
        patterns = likelihood[entries] / curvatures[:, None]
        rest = np.linalg.inv(q.covariance) - (patterns.T * curvatures) @ patterns
        return cls(patterns, rest, rest @ q.mean - patterns.T @ slopes(patterns))

    def fitted(self, q: Moments, ask: Ask, steps: int = MOST_STEPS) -> tuple[Moments, bool]:
        """Where q is best, from here, and whether it arrived there in so many steps."""
        for _ in range(steps):
            told = ask(q, self.patterns)
            precision = self.rest + (self.patterns.T * told.curvatures) @ self.patterns
            # A step between the two precisions is a precision, wherever both are.
            covariance = np.linalg.inv((1 - DAMPING) * np.linalg.inv(q.covariance) + DAMPING * precision)
            gradient = self.pull - self.rest @ q.mean + self.patterns.T @ told.slopes
            after = Moments(q.mean + DAMPING * covariance @ gradient, covariance)
            if not (np.isfinite(after.mean).all() and np.linalg.eigvalsh(covariance)[0] > 0):
                return q, False
            moved = np.abs((after.mean - q.mean) / after.sd).max()
            changed = np.abs(np.log(after.sd / q.sd)).max()
            q = after
            if max(moved, changed) < ARRIVED:
                return q, True
        return q, False
