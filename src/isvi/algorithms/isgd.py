"""Importance sampled SGD: Algorithm 2 of Sakaya & Klami (2017)."""

from dataclasses import dataclass

from jaxtyping import Array, PRNGKeyArray

from isvi.algorithms.base import Algorithm, Memory, on_newest
from isvi.algorithms.policies import Policy, Random
from isvi.core.errors import ConfigurationError, require
from isvi.estimators.base import Estimator
from isvi.families.base import Params


@dataclass(frozen=True)
class ISGD:
    """Several steps per record; each reweights and re-transports it to today's parameters.

    Attributes:
        t: probability of reusing the newest record instead of making one (the paper's rule).
        policy: another rule, such as ``FixedSteps(10)`` or ``Adaptive()``; replaces ``t``.
        safe_weight: make a new record when a weight exceeds this (the paper's safety rule for w >> 1).
    """

    t: float = 0.9
    policy: Policy | None = None
    safe_weight: float = 100.0

    def __post_init__(self) -> None:
        Random(self.t)  # checks t
        require(
            self.safe_weight > 1,
            ConfigurationError,
            f"safe_weight must be above 1, the weight of a fresh record; got {self.safe_weight!r}.",
        )

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        policy = Random(self.t) if self.policy is None else self.policy

        def wants_record(key: PRNGKeyArray, params: Params, memory: Memory) -> Array:
            health = estimator.health(params, memory.newest.alone())
            none_yet = memory.newest.share == 0
            unsafe = ~(health.largest <= self.safe_weight)  # also when it is NaN
            return none_yet | unsafe | policy.wants_record(key, memory.reuses, health)

        return on_newest(estimator, wants_record)
