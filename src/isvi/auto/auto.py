"""The default: nothing to choose.

What all of it shares is in :mod:`isvi.auto.phases`. Three kinds of memory: :mod:`isvi.auto.dense` for up to a thousand
latents, :mod:`isvi.auto.whole` where all data is one mini-batch and the latents are few, :mod:`isvi.auto.many`
for more.
"""

from dataclasses import dataclass

from isvi.algorithms.base import Algorithm
from isvi.auto import dense, whole
from isvi.auto.dense import Dense
from isvi.auto.many import Many
from isvi.auto.phases import algorithm
from isvi.auto.whole import Whole
from isvi.auto.window import Sizes
from isvi.core.errors import ConfigurationError, require
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.collective import Collective
from isvi.model.grouping import Groups


@dataclass(frozen=True)
class Auto:
    """Chooses everything itself: start, scale, step sizes, when to stop. For Gaussian families.

    Attributes:
        tolerance: end when the ELBO that is left to gain is predicted to be below this, in nats per
            unconstrained entry of the latents.
    """

    tolerance: float = 0.003

    def __post_init__(self) -> None:
        require(
            self.tolerance > 0,
            ConfigurationError,
            f"tolerance is in nats per entry of the latents and must be positive; got {self.tolerance!r}.",
        )

    def on_full_rank(
        self, approximation: Approximation, num_batches: int, groups: Groups | None = None
    ) -> Whole | Dense | None:
        """What to do instead, with draws of ``approximation.full_rank``, where that can be afforded; ``groups`` if
        latents belong to some."""
        if not approximation.gaussian or approximation.dim > dense.LARGEST_DIM:
            return None
        # ``Whole`` sees by the confined q's own draws alone, which do not reach along the directions that it lacks.
        if num_batches == 1 and approximation.dim <= whole.LARGEST_DIM and not approximation.low_rank:
            return Whole(self.tolerance, approximation)
        return Dense(approximation, groups)

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        require(
            estimator.approximation.gaussian and estimator.antithetic,
            ConfigurationError,
            "Auto needs Gaussian families (MeanField, Block, LowRank, FullRank) and records of antithetic pairs "
            "(Reparameterization(num_samples=2, antithetic=True)). For other families use ISGD().",
        )
        collective = Collective.of(estimator.approximation.coordinates)
        return algorithm(Many(self.tolerance, Sizes(num_batches), collective), estimator)
