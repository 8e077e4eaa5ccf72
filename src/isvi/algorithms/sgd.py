"""Stochastic gradient descent: a new record every step, and only that one."""

from dataclasses import dataclass

from isvi.algorithms.base import Algorithm, on_newest
from isvi.estimators.base import Estimator


@dataclass(frozen=True)
class SGD:
    """Plain stochastic gradients; what NumPyro's SVI and other tools do."""

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        return on_newest(estimator, wants_record=lambda key, params, memory: True)
