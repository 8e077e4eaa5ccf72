"""Where the starts of a fit led to."""

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
        return asdict(self)

    @classmethod
    def from_json(cls, noted: dict[str, Any]) -> "Attempt":
        return cls(float(noted["elbo"]), tuple(map(float, noted["location"])), int(noted["records"]))
