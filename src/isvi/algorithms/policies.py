"""When to reuse the newest record, and when to make a new one."""

from dataclasses import dataclass
from typing import Protocol

import jax
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from isvi.core.errors import ConfigurationError, require
from isvi.estimators.weights import WeightHealth


class Policy(Protocol):
    """Decides before each step whether the newest record has served long enough."""

    def wants_record(self, key: PRNGKeyArray, reuses: Int[Array, ""], health: WeightHealth) -> Bool[Array, ""]:
        """``reuses`` counts the steps taken with the record since it was made."""
        ...


@dataclass(frozen=True)
class Random:
    """Reuse with probability t, so 1/(1 - t) steps per record on average (the paper's rule)."""

    t: float = 0.9

    def __post_init__(self) -> None:
        require(
            isinstance(self.t, (int, float)) and 0 <= self.t < 1,
            ConfigurationError,
            f"t is the probability of reusing a record and must be in [0, 1); got {self.t!r}. "
            "t=0 never reuses; t=0.9 takes ten steps per record on average.",
        )

    def wants_record(self, key: PRNGKeyArray, reuses: Array, health: WeightHealth) -> Array:
        return jax.random.uniform(key) >= self.t


@dataclass(frozen=True)
class FixedSteps:
    """Take the same number of steps with every record; 1 never reuses."""

    steps: int = 10

    def __post_init__(self) -> None:
        require(
            isinstance(self.steps, int) and self.steps >= 1,
            ConfigurationError,
            f"steps must be a whole number, at least 1; got {self.steps!r}.",
        )

    def wants_record(self, key: PRNGKeyArray, reuses: Array, health: WeightHealth) -> Array:
        return reuses >= self.steps - 1


@dataclass(frozen=True)
class Adaptive:
    """Reuse a record while its weights are healthy.

    Attributes:
        min_effective: make a new record when the effective fraction of the draws falls below this.
        max_divergence: ... or when the KL from the record's parameters to today's, per factor, exceeds this.
        max_steps: ... or after this many steps: a healthy record still is one mini-batch only.
    """

    min_effective: float = 0.8
    max_divergence: float = 0.05
    max_steps: int = 20

    def __post_init__(self) -> None:
        require(
            0 <= self.min_effective <= 1 and self.max_divergence > 0 and self.max_steps >= 1,
            ConfigurationError,
            f"Adaptive needs 0 <= min_effective <= 1, max_divergence > 0 and max_steps >= 1; got {self}.",
        )

    def wants_record(self, key: PRNGKeyArray, reuses: Array, health: WeightHealth) -> Array:
        exhausted = reuses >= self.max_steps - 1
        return exhausted | (health.effective < self.min_effective) | (health.divergence > self.max_divergence)
