"""The way back to PyMC: what a fit reports, the groups that PyMC's own functions look at, and predictions by PyMC."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isvi.core.errors import ConfigurationError, require
from isvi.frontends.pymc.variables import Variables


@dataclass(frozen=True)
class Posterior:
    """Draws of the latents, in the terms of the PyMC model."""

    variables: Variables

    @property
    def dims(self) -> dict[str, list[str]]:
        axes_of = self.variables.source.named_vars_to_dims
        return {name: list(axes) for name, axes in axes_of.items() if None not in axes}

    @property
    def coords(self) -> dict[str, list]:
        return {name: list(labels) for name, labels in self.variables.source.coords.items() if labels is not None}

    @cached_property
    def groups(self) -> dict[str, dict[str, np.ndarray]]:
        """The groups beside the posterior that PyMC's own functions look at."""
        source = self.variables.source
        containers = {container.name: np.asarray(container.get_value()) for container in source.data_vars}
        values = {rv.name: source.rvs_to_values[rv] for rv in source.observed_RVs}
        observed = {
            name: np.asarray(value.get_value() if hasattr(value, "get_value") else value.data)
            for name, value in values.items()
            if hasattr(value, "get_value") or hasattr(value, "data")
        }
        return {group: found for group, found in (("constant_data", containers), ("observed_data", observed)) if found}

    @cached_property
    def reported(self) -> dict[str, Any]:
        """Variables with a moving support, and deterministics that are not per row, as graphs."""
        plain, moving = self.variables.plain, self.variables.moving
        shown = [plain[name] for name in self.variables.names if name in moving] + list(plain.deterministics)
        graphs = plain.replace_rvs_by_values(shown)
        pairs = [(variable.name, graph) for variable, graph in zip(shown, graphs, strict=True)]
        return {name: graph for name, graph in pairs if not self.variables.depends_on_rows(graph)}

    def report(self, draws: dict[str, Array]) -> dict[str, np.ndarray]:
        """Draws of the latents, with what the model computes from them."""
        computed = self.variables.exported(list(self.reported.values()), [])
        points = [jnp.asarray(draws[latent]) for latent in self.variables.names.values()]
        found = jax.device_get(jax.jit(jax.vmap(computed))(*points))
        return {**draws, **dict(zip(self.reported, found, strict=True))}

    def predict(self, draws: dict[str, Array], data: Any, seed: int) -> dict[str, np.ndarray]:
        """Posterior predictive draws by ``pm.sample_posterior_predictive``, for the data now in the containers."""
        import pymc as pm

        source = self.variables.source
        containers = sorted(container.name for container in source.data_vars)
        require(
            data is None or (isinstance(data, dict) and set(data) <= set(containers)),
            ConfigurationError,
            f"predict takes new values of pm.Data containers; the model has {containers}.",
        )
        trace = as_trace(self._tree(draws))
        before = {name: source[name].get_value() for name in data or {}}
        with source:
            try:
                pm.set_data(dict(data or {}))
                found = pm.sample_posterior_predictive(
                    trace, random_seed=seed, progressbar=False, return_inferencedata=False
                )
            finally:
                pm.set_data(before)
        return {name: np.asarray(value)[0] for name, value in found.items()}

    def _tree(self, draws: dict[str, Array]) -> Any:
        """The draws as a DataTree with one chain."""
        import arviz_base

        shown = self.report(draws) if self.reported else draws
        posterior = {name: np.asarray(shown[name], np.float64)[None] for name in self.variables.names}
        groups = {"posterior": posterior, "constant_data": self.groups.get("constant_data", {})}
        return arviz_base.from_dict(
            {name: group for name, group in groups.items() if group}, dims=self.dims, coords=self.coords
        )


def as_trace(tree: Any) -> Any:
    """A DataTree as the installed PyMC takes it: PyMC 6 as it is, PyMC 5 as an ``arviz.InferenceData``."""
    import pymc as pm

    if int(pm.__version__.split(".")[0]) >= 6:
        return tree
    import arviz

    return arviz.from_datatree(tree)
