"""``from_pymc``, and which containers of the model are cut into mini-batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.core.extras import import_extra
from isvi.frontends.pymc.export import Export
from isvi.frontends.pymc.refusals import check_supported
from isvi.frontends.pymc.variables import Variables
from isvi.model.binding import Bound


def from_pymc(model: Any, data: Sequence[str] | None = None, *, local: str | None = None) -> "PymcModel":
    """A PyMC model as a model for :func:`isvi.fit`. Needs the extra ``isvi[pymc]``.

    Args:
        model: a ``pm.Model``. Its ``pm.Data`` containers are the data: fit with ``isvi.fit(isvi.from_pymc(model))``.
        data: names of the containers to cut into mini-batches; by default those with as many rows as the observed
            variables. Observations that are not in a container are used all at once.
        local: refused. A PyMC model's graph is built for all entries of a dimension at once, and cannot be evaluated
            for one group: latents of groups are integrated out for :class:`isvi.Model` and NumPyro models.
    """
    require(
        local is None,
        ConfigurationError,
        f"latents of the dimension {local!r} cannot be integrated out of a PyMC model: its graph is built for all "
        "groups at once, with their number in it, and cannot be evaluated for one. Write the model as isvi.Model(..., "
        "local={...}, log_local_prior=...) or in NumPyro (isvi.from_numpyro(..., local=..., by=...)); without local "
        "they are latents like any other.",
    )
    import_extra("pymc", "pymc", "isvi.from_pymc")
    require(
        hasattr(model, "free_RVs") and hasattr(model, "rvs_to_values"),
        ConfigurationError,
        f"from_pymc needs a pm.Model; got {type(model).__name__}.",
    )
    return PymcModel(model, None if data is None else tuple(data))


@dataclass(frozen=True)
class PymcModel:
    """A PyMC model; :func:`isvi.fit` binds it to the data in its containers.

    Attributes:
        source: the ``pm.Model``, which stays as it is.
        containers: names of the containers to cut into mini-batches, or None for the default.
    """

    source: Any
    containers: tuple[str, ...] | None

    def bind(self, data: Any = None, batch_size: int | None = None) -> Bound:
        """Export the model to JAX; the result holds an :class:`isvi.Model`."""
        require(
            data is None,
            ConfigurationError,
            "A PyMC model has its data in pm.Data containers: set them with pm.set_data, and call isvi.fit(model) "
            "without data.",
        )
        check_supported(self.source)
        containers = frozenset(self._row_containers())
        export = Export(Variables(self.source, containers))
        rows = {name: np.asarray(self.source[name].get_value()) for name in sorted(containers)}
        if not rows or not export.likelihood:
            require(
                batch_size is None,
                ConfigurationError,
                "batch_size was given, but no observed variable of the PyMC model has its data in pm.Data containers. "
                'Write observed=pm.Data("y", y), and the predictors likewise.',
            )
            return Bound(Export(Variables(self.source, frozenset())).model(), None, None)
        size = len(next(iter(rows.values())))
        problem = export.problem_with_cutting(size)
        if problem is not None:
            require(
                batch_size is None or batch_size >= size,
                ModelError,
                f"This PyMC model cannot be cut into mini-batches: {problem}. Use all rows at once (batch_size=None).",
            )
            batch_size = size
        return Bound(export.model(), rows, batch_size)

    def _row_containers(self) -> set[str]:
        """Containers with one entry per row."""
        known = {container.name: container for container in self.source.data_vars}
        if self.containers is not None:
            unknown = sorted(set(self.containers) - set(known))
            require(not unknown, ConfigurationError, f"No pm.Data containers {unknown}; the model has {sorted(known)}.")
            return set(self.containers)
        observed = [self.source.rvs_to_values[rv] for rv in self.source.observed_RVs]
        lengths = {len(value.get_value()) for value in observed if hasattr(value, "get_value") and value.ndim > 0}
        shapes = {name: np.shape(container.get_value()) for name, container in known.items()}
        return {name for name, shape in shapes.items() if len(lengths) == 1 and shape[:1] == (*lengths,)}
