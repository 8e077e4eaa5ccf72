"""Where the starts of a fit led to."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Attempt:
    """Where one start led to, in the few records that it had.

    Attributes:
        elbo: the mean of the last records' estimates; NaN where the model was not finite.
        location: the mean of q there, in the coordinates of the approximation.
        records: how many it had.
    """

    elbo: float
    location: tuple[float, ...]
    records: int

    def as_json(self) -> dict[str, Any]:
        """With null for an ELBO that is not finite, which JSON cannot say."""
        return {**asdict(self), "elbo": self.elbo if math.isfinite(self.elbo) else None}

    @classmethod
    def from_json(cls, noted: dict[str, Any]) -> "Attempt":
        elbo = math.nan if noted["elbo"] is None else float(noted["elbo"])
        return cls(elbo, tuple(map(float, noted["location"])), int(noted["records"]))
