"""Where the mini-batches of a NumPyro model come from, and how its plates learn about them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.primitives import Messenger

from isvi.data.source import Source


class ArrayRows(NamedTuple):
    """Data passed to the fit: a mini-batch is given to the model as arguments."""

    arrays: Any
    size: int

    @property
    def data(self) -> Any:
        return self.arrays

    def arguments(self, rows: Any) -> tuple[tuple, dict]:
        return _as_arguments(rows)

    def plates(self, rows: Any) -> "DataPlates":
        return _plates_over(rows, self.size)


class SourceRows(NamedTuple):
    """Data larger than memory: a mini-batch is given to the model as arguments, and the first one tells the shapes."""

    source: Source
    head: Any

    @property
    def size(self) -> int:
        return self.source.num_rows

    @property
    def data(self) -> Any:
        return self.head

    def arguments(self, rows: Any) -> tuple[tuple, dict]:
        return _as_arguments(rows)

    def plates(self, rows: Any) -> "DataPlates":
        return _plates_over(rows, self.size)


class PlateRows(NamedTuple):
    """Data bound to the model, which a plate with ``subsample_size`` picks rows of: a mini-batch is its indices."""

    plate: str
    size: int

    @property
    def data(self) -> dict[str, np.ndarray]:
        return {self.plate: np.arange(self.size, dtype=np.int32)}

    def arguments(self, rows: Any) -> tuple[tuple, dict]:
        return (), {}

    def plates(self, rows: dict[str, Array]) -> "DataPlates":
        return DataPlates(self.size, rows[self.plate], self.plate)


class NoRows(NamedTuple):
    """No mini-batches: every evaluation uses all that the model was bound to."""

    size: int = 1

    @property
    def data(self) -> None:
        return None

    def arguments(self, rows: None) -> tuple[tuple, dict]:
        return (), {}

    def plates(self, rows: None) -> "DataPlates":
        return DataPlates(-1, jnp.arange(0))


Rows = ArrayRows | SourceRows | PlateRows | NoRows


class DataPlates(Messenger):
    """Makes plates over the data as long as the mini-batch, and takes out the scales that plates add.

    A plate is over the data if it has the name given, or else as many entries as the data have rows. Any other
    plate with a ``subsample_size`` is taken in full. No plate draws random indices, which would cost a permutation
    of all rows for every evaluation.
    """

    def __init__(self, size: int, indices: Array, name: str | None = None) -> None:
        super().__init__()
        self.size, self.indices, self.name = size, indices, name
        self.scales: dict[str, float] = {}

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            size = msg["args"][0]
            over_data = msg["name"] == self.name if self.name else size in (self.size, len(self.indices))
            indices = self.indices if over_data else jnp.arange(size)
            msg["value"], msg["args"] = indices, (size, len(indices))
            self.scales[msg["name"]] = size / len(indices)
        elif msg["type"] == "subsample" and self.name is None:
            msg["kwargs"]["event_dim"] = None  # the rows are those of the mini-batch already
        elif msg["type"] == "sample" and msg.get("scale") is not None:
            for frame in msg["cond_indep_stack"]:
                msg["scale"] = msg["scale"] / self.scales.get(frame.name, 1.0)


def _plates_over(rows: Any, size: int) -> DataPlates:
    """For rows that are given as arguments: the mini-batch itself is what plates are over."""
    return DataPlates(size, jnp.arange(len(jax.tree.leaves(rows)[0])))


def _as_arguments(rows: Any) -> tuple[tuple, dict]:
    """Keyword arguments of a dict, positional ones of a tuple or of one array."""
    if isinstance(rows, Mapping):
        return (), dict(rows)
    return (rows if isinstance(rows, tuple) else (rows,)), {}
