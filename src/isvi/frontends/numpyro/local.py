"""NumPyro models whose latents in one plate are local: the plate of the groups, or that of the rows.

The model function is run on one row, with a plate of one group. Sites in the plate are that group's, so that their
log densities are what :class:`isvi.Model` wants for local latents.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to

from isvi.core.errors import ModelError, require
from isvi.core.latents import Latent
from isvi.data.arrays import checked_arrays
from isvi.data.groups.grouped import Grouped, grouped
from isvi.data.groups.grouped_files import GroupedFiles
from isvi.data.source import Source
from isvi.frontends.numpyro.rows import DataPlates
from isvi.frontends.numpyro.sites import Site, is_latent, is_observed, same_support, within
from isvi.frontends.numpyro.traced import ModelFunction
from isvi.model.binding import Bound, bind
from isvi.model.model import Model
from isvi.model.tracing import outputs_reached


@dataclass(frozen=True)
class LocalNumpyroModel(ModelFunction):
    """A NumPyro model with local latents that waits for its data; :func:`isvi.fit` binds it.

    Attributes:
        plate: the plate whose latents are local.
        by: the column that says which group a row belongs to; None if the plate is that of the rows.
    """

    plate: str
    by: str | None

    def bind(self, data: Any = None, batch_size: int | None = None) -> Bound:
        """Trace the model on one row; the result holds an :class:`isvi.Model`."""
        if self.by is not None and not isinstance(data, (Grouped, GroupedFiles)):
            data = grouped(data, self.by)
        row, num_rows = _first_row(data)
        require(
            isinstance(row, Mapping),
            ModelError,
            "a NumPyro model with local latents takes its data by name: a dict of arrays, or a DataFrame.",
        )
        return bind(_OneGroup(self, dict(row), num_rows).model(), data, batch_size)


def _first_row(data: Any) -> tuple[Any, int]:
    """The first row, and how many there are."""
    if isinstance(data, (Grouped, GroupedFiles)):
        return data.first_row(), data.num_rows
    if isinstance(data, Source):
        return jax.tree.map(lambda column: column[0], data.head(1)), data.num_rows
    arrays, num_rows = checked_arrays(data)
    return jax.tree.map(lambda column: column[0], arrays), num_rows


class _OnePlace(DataPlates):
    """Makes the plate of the groups, and that of the rows, one entry long."""

    def __init__(self, plate: str, num_rows: int) -> None:
        super().__init__(num_rows, jnp.arange(1))
        self.plate = plate

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate" and msg["name"] == self.plate:
            self.scales[self.plate] = float(msg["args"][0])
            msg["value"], msg["args"] = jnp.arange(1), (msg["args"][0], 1)
        else:
            super().process_message(msg)


@dataclass(frozen=True)
class _OneGroup:
    """The model function on one row of one group."""

    source: LocalNumpyroModel
    row: dict[str, np.ndarray]
    num_rows: int

    def model(self) -> Model:
        local = {name: self._latent(site) for name, site in self._latents.items() if self._inside(site)}
        latents = {name: self._latent(site) for name, site in self._latents.items() if not self._inside(site)}
        require(
            len(local) > 0,
            ModelError,
            f"no latent site of the NumPyro model is in a plate {self.source.plate!r}; its plates are {self._plates}.",
        )
        require(
            len(latents) > 0, ModelError, f"all latent sites are in the plate {self.source.plate!r}: none is global."
        )
        return Model(
            latents,
            lambda z: self._sum(z, self.row, "prior"),
            lambda z, row: self._sum(z, row, "likelihood"),
            local=local,
            log_local_prior=lambda z: self._sum(z, self.row, "local prior"),
        )

    @cached_property
    def _sites(self) -> dict[str, Site]:
        return self._trace(self.row, within(0))

    @cached_property
    def _elsewhere(self) -> dict[str, Site]:
        return self._trace(self.row, within(1))

    @property
    def _latents(self) -> dict[str, Site]:
        return {name: site for name, site in self._sites.items() if is_latent(site)}

    @property
    def _plates(self) -> list[str]:
        return sorted(name for name, site in self._sites.items() if site["type"] == "plate")

    def _inside(self, site: Site) -> bool:
        return any(frame.name == self.source.plate for frame in site["cond_indep_stack"])

    def _trace(self, row: Mapping[str, Any], places: Any) -> dict[str, Site]:
        columns = {name: jnp.asarray(value)[None] for name, value in row.items()}
        if self.source.by is not None:
            columns[self.source.by] = jnp.zeros(1, jnp.int32)
        with handlers.trace() as sites, _OnePlace(self.source.plate, self.num_rows), places, handlers.seed(rng_seed=0):
            self.source.function(*self.source.args, **{**self.source.kwargs, **columns})
        return sites

    def _latent(self, site: Site) -> Latent:
        support, shape = site["fn"].support, list(jnp.shape(site["value"]))
        require(
            not support.is_discrete,
            ModelError,
            f"the latent site {site['name']!r} is discrete, which goes with local latents only if it is summed out.",
        )
        require(
            same_support(support, self._elsewhere[site["name"]]["fn"].support),
            ModelError,
            f"the support of the latent site {site['name']!r} depends on other latents, which does not go with local "
            "ones. Write it as a transformation of a site with a fixed support.",
        )
        if self._inside(site):
            axis = self._axis(site)
            require(
                shape[axis] == 1,
                ModelError,
                f"the site {site['name']!r} in plate {self.source.plate!r} has {shape[axis]} entries for one group: "
                "its distribution is given for all groups at once. Make what it depends on a column of the rows, and "
                "use it where the rows are.",
            )
            del shape[axis]
        return Latent(tuple(shape), support, biject_to(support), flat_prior=True)

    def _axis(self, site: Site) -> int:
        """Of the plate, in the site's value."""
        dim = next(frame.dim for frame in site["cond_indep_stack"] if frame.name == self.source.plate)
        return len(site["fn"].batch_shape) + dim

    def _terms(self, values: Mapping[str, Array], row: Mapping[str, Any]) -> dict[str, Array]:
        """The log density of every site."""
        placed = {
            name: jnp.expand_dims(values[name], self._axis(site)) if self._inside(site) else values[name]
            for name, site in self._latents.items()
        }
        sites = self._trace(row, handlers.substitute(data=placed))
        found = {name: site for name, site in sites.items() if site["type"] == "sample"}
        return {
            name: jnp.sum(site["fn"].log_prob(site["value"])) * (1.0 if site["scale"] is None else site["scale"])
            for name, site in found.items()
        }

    @cached_property
    def _parts(self) -> dict[str, str]:
        """Which density each site belongs to. An observed site that no row reaches, such as a soft constraint, is
        counted once for all rows, or once for each group if it is in the plate."""
        values = {name: site["value"] for name, site in self._latents.items()}
        for name, site in self._latents.items():
            if self._inside(site):
                values[name] = jnp.squeeze(values[name], self._axis(site))
        of_rows = outputs_reached(lambda row: self._terms(values, row), self.row)
        return {
            name: "likelihood"
            if is_observed(site) and name in of_rows
            else ("local prior" if self._inside(site) else "prior")
            for name, site in self._sites.items()
            if site["type"] == "sample"
        }

    def _sum(self, values: Mapping[str, Array], row: Mapping[str, Any], part: str) -> Array:
        """Of the sites of one part. The other sites are computed too, and left out by the compiler."""
        inside = {name: site["value"] for name, site in self._latents.items() if self._inside(site)}
        zeros = {name: jnp.squeeze(value, self._axis(self._latents[name])) for name, value in inside.items()}
        terms = self._terms({**zeros, **values}, row)
        return sum((terms[name] for name, of in self._parts.items() if of == part), jnp.zeros(()))
