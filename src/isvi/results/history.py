"""What happened during a fit, in rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from isvi.core.errors import CheckpointError, require


@dataclass
class History:
    """One entry per row of each list; a row covers the steps since the row before.

    Attributes:
        gradients: model gradients evaluated so far.
        steps: steps taken so far, fresh and reused.
        seconds: seconds spent so far, without compilation.
        elbo: mean of the fresh records' ELBO estimates in the row. Free, and noisy; parameters move while
            it is taken. :meth:`isvi.Fit.elbo` evaluates it properly.
        elbo_standard_error: standard error of that mean.
        effective: effective fraction of the remembered records' weights at the end of the row.
        visits: mini-batches visited so far.
        level: ``elbo`` without most of its noise: with what the row's mini-batches differ from the mean of all by, as
            their newest records say, taken off. The last pass over the data comes out as one number. Empty before the
            first is complete.
    """

    gradients: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    elbo: list[float] = field(default_factory=list)
    elbo_standard_error: list[float] = field(default_factory=list)
    effective: list[float] = field(default_factory=list)
    visits: list[int] = field(default_factory=list)
    level: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, found: Any) -> "History":
        """From JSON, which may be anybody's."""
        names = [column.name for column in fields(cls)]
        require(
            isinstance(found, Mapping)
            and sorted(found) == sorted(names)
            and all(map(_are_numbers, found.values()))
            and len({len(column) for name, column in found.items() if column or name != "level"}) == 1,
            CheckpointError,
            f"the history must be lists of numbers of one length, called {', '.join(names)}",
        )
        return cls(**found)

    def append(self, **row: float) -> None:
        """A row, without ``level``, which is known in hindsight only."""
        for column in fields(self):
            if column.name != "level":
                getattr(self, column.name).append(row[column.name])

    @property
    def covered(self) -> int:
        """Model gradients up to the last row."""
        return self.gradients[-1] if self.gradients else 0

    def __len__(self) -> int:
        return len(self.gradients)

    def as_arrays(self) -> dict[str, np.ndarray]:
        return {column.name: np.asarray(getattr(self, column.name)) for column in fields(self)}


def _are_numbers(found: Any) -> bool:
    return isinstance(found, list) and all(type(one) in (int, float) for one in found)
