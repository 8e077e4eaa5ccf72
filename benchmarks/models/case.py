"""One model with its data, in the idiom of its language."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Data(NamedTuple):
    """What a model is given: columns with a row each, and all that is not per row."""

    rows: Mapping[str, Any] | None = None
    bound: Mapping[str, Any] = {}

    @property
    def everything(self) -> dict[str, Any]:
        return {**self.bound, **(self.rows or {})}


@dataclass(frozen=True)
class Case:
    """A model, written as for NUTS.

    Attributes:
        name: of the model, and of its reference.
        model: the model function; it takes the data by name.
        data: makes the data, the same every time.
        hard_for: what is hard about it.
        nuts: what its reference needs beyond the defaults of :mod:`benchmarks.models.reference`.
        refused: part of the reason with which the model is to be refused; None if it is to be accepted.
        enumerated: whether it has discrete sites, which are summed out.
        easier: a model with the same posterior in which NUTS moves more freely, and which has this one's latents as
            deterministic sites: for the reference only.
        exact: means and sds of the latents, where they are known in closed form.
    """

    name: str
    model: Callable
    data: Callable[[], Data]
    hard_for: str
    nuts: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    enumerated: bool = False
    easier: Callable | None = None
    exact: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
