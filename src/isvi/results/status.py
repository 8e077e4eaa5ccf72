"""Why a fit ended."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from isvi.core.errors import CheckpointError, require
from isvi.core.text import shown

Kind = Literal["budget", "converged", "settled", "diverged", "interrupted"]
NOT_CONVERGED = "not converged"
"""How the message begins where a method came to rest, and what it promises is not kept all the same."""
NAMES_SHOWN = 5


@dataclass(frozen=True)
class Status:
    """How a fit ended, and what that means in words.

    Attributes:
        kind: ``"budget"`` (all model gradients were used), ``"converged"`` (no entry's mean is predicted to be further
            than a tenth of its standard deviation, and no standard deviation than a tenth, from that of the best member
            of the family: ``fit.diagnose()`` tells how good that is), ``"settled"`` (nothing is left to gain on
            average; with very many latents that is all that is checked; a message that begins with "not converged" says
            why that is not enough), ``"diverged"`` (the model stopped giving finite numbers; the last good parameters
            were kept) or ``"interrupted"``.
        message: the reason, and what to try if it is a bad one.
    """

    kind: Kind
    message: str

    @classmethod
    def of(cls, found: Any) -> "Status":
        """From JSON, which may be anybody's."""
        require(
            isinstance(found, dict)
            and sorted(found) == ["kind", "message"]
            and found["kind"] in get_args(Kind)
            and isinstance(found["message"], str),
            CheckpointError,
            f"its status {found!r:.100} is none of {', '.join(get_args(Kind))}",
        )
        return cls(**found)

    @property
    def good(self) -> bool:
        return self.kind in ("budget", "converged", "settled")

    def adding(self, words: str) -> "Status":
        """The same, with more to say."""
        return replace(self, message=f"{self.message}; {words}")

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def some(labels: list[str], chosen: np.ndarray) -> str:
    """The names of the chosen entries, the first few of many."""
    names = [shown(label) for label, one in zip(labels, chosen, strict=True) if one]
    if len(names) == len(labels) > 1:
        return "every entry"
    return ", ".join(names[:NAMES_SHOWN]) + (
        f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    )
