"""From what the user passes to :func:`isvi.fit` to a model, its data and a target."""

from typing import Any, NamedTuple, Protocol

from isvi.core.coordinates import Coordinates
from isvi.core.errors import ConfigurationError, require
from isvi.data.groups.grouped import Grouped
from isvi.data.groups.grouped_files import GroupedFiles
from isvi.data.opening import as_source
from isvi.model.external import ExternalModel, ExternalTarget
from isvi.model.local import bind_local
from isvi.model.model import Model
from isvi.model.target import Target


class Bound(NamedTuple):
    """A model that knows the shapes of its data, and the data to cut into mini-batches."""

    model: Model
    data: Any
    """What the log likelihood receives rows of; it may be other than what the user passed."""
    batch_size: int | None
    """What the user or the model asks for; None leaves it to the library."""


class Bindable(Protocol):
    """A model from a front end, whose latents can be known only once there are data."""

    def bind(self, data: Any, batch_size: int | None) -> Bound: ...


def bind(model: Model | Bindable, data: Any, batch_size: int | None) -> Bound:
    """Give the model its data, if it wants to see them; plain models do not."""
    if isinstance(model, ExternalModel):
        bound, rows = model.with_rows(data)
        return Bound(bound, rows, batch_size)
    data = as_source(data)
    if isinstance(model, Model) and model.local is not None:
        return Bound(bind_local(model, data), data, batch_size)
    require(
        not isinstance(data, (Grouped, GroupedFiles)),
        ConfigurationError,
        "The data are grouped, but the model has no local latents that a group could have: "
        "isvi.Model(..., local={...}, log_local_prior=...). Pass the rows as they are, or declare them.",
    )
    return Bound(model, data, batch_size) if isinstance(model, Model) else model.bind(data, batch_size)


def make_target(model: Model, coordinates: Coordinates) -> Target:
    """The model's log joint in the coordinates of an approximation."""
    return ExternalTarget(model, coordinates) if isinstance(model, ExternalModel) else Target(model, coordinates)
