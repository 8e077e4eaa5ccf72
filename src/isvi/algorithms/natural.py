"""Natural-gradient steps: a new record every step, and what it says in the geometry of q."""

from dataclasses import dataclass

from isvi.algorithms.base import Algorithm, on_newest
from isvi.core.errors import ConfigurationError, require
from isvi.estimators.base import Estimator


@dataclass(frozen=True)
class Natural:
    """Natural gradients, of a bounded length, with a rate that falls to zero over the budget: the default for families
    that are not Gaussian. For a model that is conjugate to q a whole natural gradient is a whole step to the posterior,
    and sticking-the-landing gradients, its default estimator, have no noise there.

    Attributes:
        rate: how much of the natural gradient is taken at first.
        max_kl: no factor of q moves further than this in one step, in nats.
    """

    rate: float = 0.3
    max_kl: float = 0.1

    def __post_init__(self) -> None:
        require(
            self.rate > 0 and self.max_kl > 0,
            ConfigurationError,
            f"Natural(rate=..., max_kl=...) must be positive; got {self.rate!r} and {self.max_kl!r}.",
        )

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        return on_newest(estimator, wants_record=lambda key, params, memory: True)
