"""Why a fit ended."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Status:
    """How a fit ended, and what that means in words.

    Attributes:
        kind: ``"budget"`` (all model gradients were used), ``"converged"``, ``"diverged"`` (the model stopped
            giving finite numbers; the last good parameters were kept) or ``"interrupted"``.
        message: the reason, and what to try if it is a bad one.
    """

    kind: Literal["budget", "converged", "diverged", "interrupted"]
    message: str

    @property
    def good(self) -> bool:
        return self.kind in ("budget", "converged")

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
