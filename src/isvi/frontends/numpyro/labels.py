"""What ArviZ shows beside the draws: plates as names of axes, and the observed data."""

import jax.numpy as jnp
import numpy as np

from isvi.frontends.numpyro.rows import SourceRows
from isvi.frontends.numpyro.sites import Site, is_continuous, is_observed
from isvi.frontends.numpyro.traced import TracedModel


def dims(traced: TracedModel) -> dict[str, list[str]]:
    """Names of the axes of all sample sites that are in a plate: the plates', and ArviZ's own for others."""
    found = {name: _axes(name, site) for name, site in traced.sites.items() if _shown(site)}
    return {name: axes for name, axes in found.items() if axes is not None}


def groups(traced: TracedModel) -> dict[str, dict[str, np.ndarray]]:
    """The observed data of all rows, if these are in memory."""
    if isinstance(traced.rows, SourceRows):
        return {}
    sites = traced.trace(traced.template(traced.rows.size))
    observed = {
        name: np.asarray(site["value"])
        for name, site in sites.items()
        # A factor is an observed site without a value.
        if is_observed(site) and np.size(site["value"]) > 0
    }
    return {"observed_data": observed} if observed else {}


def _shown(site: Site) -> bool:
    return is_continuous(site) or is_observed(site)


def _axes(name: str, site: Site) -> list[str] | None:
    """None if no axis has a name."""
    plates = {frame.dim: frame.name for frame in site["cond_indep_stack"]}
    shape = jnp.shape(site["value"])
    batch = len(shape) - site["fn"].event_dim
    axes = [plates.get(place - batch) if place < batch else None for place in range(len(shape))]
    if not any(axes):
        return None
    return [axis or f"{name}_dim_{place}" for place, axis in enumerate(axes)]
