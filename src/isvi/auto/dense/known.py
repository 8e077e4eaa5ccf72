"""How much is remembered, and what is known beside the records."""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int

from isvi.auto.store import Sizes as SizesOfStore

LEVEL_RECORDS = 20
"""The level of the gradient is averaged over at least this many records."""
STORED_RECORDS = 2400
STORED_NUMBERS = 2**19
"""Up to so many records are kept if they take no more numbers than this; more only if the dimension asks for it."""
STORED_PER_DIMENSION = 4
FIT_OPERATIONS = 10.0
"""An estimate of the curvature takes as long as this times pairs x dim^2 of a model's floating-point operations."""
FIT_SHARE = 0.5
"""How long such estimates may take, compared to the records between them."""


@dataclass(frozen=True)
class Sizes(SizesOfStore):
    """What follows from the dimension and the number of mini-batches."""

    refit_every: int
    """Records from one estimate of the curvature to the next, at most."""

    @classmethod
    def for_model(cls, dim: int, unknowns: int, num_batches: int, operations: float) -> "Sizes":
        """``unknowns`` are those of a row of the curvature, ``operations`` those of a record."""
        update_every = max(1, min(num_batches // 10, 8))
        stored = max(min(STORED_RECORDS, STORED_NUMBERS // dim), STORED_PER_DIMENSION * unknowns)
        generations = -(-stored // num_batches)
        affordable = FIT_OPERATIONS * generations * num_batches * dim**2 / (FIT_SHARE * max(operations, 1.0))
        most = max(update_every, generations * num_batches // 8)
        return cls(
            num_batches=num_batches,
            generations=generations,
            level_generations=-(-LEVEL_RECORDS // num_batches),
            update_every=update_every,
            refit_every=int(min(max(update_every, affordable), most)),
        )


class Knowledge(NamedTuple):
    """What is known beside the records."""

    made_at: Int[Array, " slots"]
    """When the slot was filled, counted in records; -1 while empty."""
    factor: Float[Array, "dim dim"]
    """L of the best full-rank Gaussian, as far as it is known; lower triangular."""
    root: Float[Array, "dim dim"]
    """P with P P' the inverse curvature, for steps."""
    likelihood: Float[Array, "dim dim"]
    """The likelihood's curvature, for steps, in the coordinates of L; 0 while it is not known."""
    fitted_at: Int[Array, ""]
    """When the curvature was last estimated; 0 if it has not been yet."""
    doubt: Float[Array, " dim"]
    """How wrong the logarithms of q's standard deviations may be."""
    off: Float[Array, " dim"]
    """Predicted errors of q's means, in standard deviations."""
    anchor: Float[Array, "2 dim"]
    """Means and standard deviations when everything began to look settled."""
    leapt: Bool[Array, ""]
    """Whether q's mean has gone far since the curvature was estimated."""
    confined: Bool[Array, ""]
    """Whether q is in its family yet."""
