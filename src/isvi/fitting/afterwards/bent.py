"""What came of bending a Gaussian."""

from dataclasses import dataclass

from isvi.families import Approximation
from isvi.families.base import Params
from isvi.results.status import Status


@dataclass(frozen=True)
class Bent:
    """What came of it.

    Attributes:
        words: why it was kept, or was not.
        gradients: model gradients that it took.
        approximation: the family of the bent q; None if the Gaussian is kept.
        params: of the bent q.
        effective: the share of its draws that are effective, by importance weights.
        in_doubt: what may be further from the best bent q than is promised; None if nothing is.
        error: what a model on the host raised, if it did.
    """

    words: str
    gradients: int = 0
    approximation: Approximation | None = None
    params: Params = None
    effective: float = 0.0
    in_doubt: str | None = None
    error: Exception | None = None

    @property
    def kept(self) -> bool:
        return self.approximation is not None

    def status(self, before: Status, promise: str) -> Status:
        """How the fit ended, after the Gaussian had ended like this."""
        if not self.kept:
            return before.adding(self.words) if self.gradients else before
        if self.in_doubt is None:
            return Status("converged", f"{promise}; {self.words}")
        return Status("budget", f"not converged: {self.in_doubt}; {self.words}")
