"""The free variables of a PyMC model as latents, and graphs of the model as JAX functions of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import constraints

from isvi.core.errors import ModelError, require
from isvi.core.latents import Latent, real
from isvi.frontends.pymc.graphs import ancestors, jax_function, replaced
from isvi.frontends.pymc.transforms import SUPPORTS, PymcTransform


@contextmanager
def _without_initial_values(model: Any) -> Iterator[None]:
    kept = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(kept))
        yield
    finally:
        model.rvs_to_initial_values.update(kept)


@dataclass(frozen=True)
class Variables:
    """The variables of a PyMC model.

    Attributes:
        source: the model.
        containers: names of the containers whose entries are rows.
    """

    source: Any
    containers: frozenset[str]

    @cached_property
    def moving(self) -> frozenset[str]:
        """Free variables whose support depends on others: they stay in PyMC's unconstrained space."""
        free = set(self.source.free_RVs)
        moving = set()
        for rv in self.source.free_RVs:
            transform, value = self.source.rvs_to_transforms[rv], self.source.rvs_to_values[rv]
            if transform is not None and free & set(ancestors(transform.backward(value, *rv.owner.inputs))):
                moving.add(rv.name)
        return frozenset(moving)

    @cached_property
    def plain(self) -> Any:
        """The model in its constrained space, except for moving supports."""
        from pymc.model.transform.conditioning import remove_value_transforms

        with _without_initial_values(self.source):  # which PyMC cannot convert
            return remove_value_transforms(
                self.source, [rv for rv in self.source.free_RVs if rv.name not in self.moving]
            )

    @cached_property
    def names(self) -> dict[str, str]:
        """Free variables, in the model's order, and the names of the latents that stand for them."""
        values = {rv.name: self.source.rvs_to_values[rv].name for rv in self.source.free_RVs}
        return {name: value if name in self.moving else name for name, value in values.items()}

    @cached_property
    def latents(self) -> dict[str, Latent]:
        discrete = sorted(value.name for value in self.source.discrete_value_vars)
        require(
            not discrete,
            ModelError,
            f"The PyMC model has discrete free variables: {discrete}. Sum them out: pm.Mixture, or "
            "pymc_extras.marginalize.",
        )
        start = self.plain.initial_point()
        latents = {}
        for rv in self.source.free_RVs:
            latent, transform = self.names[rv.name], self.source.rvs_to_transforms[rv]
            if rv.name in self.moving or transform is None:
                latents[latent] = real(*np.shape(start[latent]), flat_prior=True)
            else:
                support = SUPPORTS.get(type(transform).__name__, constraints.dependent)
                inner = np.shape(self.source.initial_point()[self.source.rvs_to_values[rv].name])
                exported = PymcTransform.of(transform, rv, self.source.rvs_to_values[rv], inner)
                latents[latent] = Latent(np.shape(start[latent]), support, exported, flat_prior=True)
        return latents

    @cached_property
    def initial(self) -> dict[str, np.ndarray]:
        """Values of the latents whose variables have an ``initval``, drawn or computed by PyMC if that is a word."""
        given = {rv.name for rv, value in self.source.rvs_to_initial_values.items() if value is not None}
        if not given:
            return {}
        start = self.source.initial_point()
        values = {name: start[self.source.rvs_to_values[self.source[name]].name] for name in given}
        return {
            self.names[name]: np.asarray(self.latents[self.names[name]].transform(jnp.asarray(value)))
            for name, value in values.items()
        }

    def depends_on_rows(self, graph: Any) -> bool:
        return any(node.name in self.containers for node in ancestors(graph) if hasattr(node, "get_value"))

    def exported(self, graphs: list[Any], rows: list[str]) -> Callable[..., tuple[Array, ...]]:
        """A JAX function of the latents in order, then of the named rows."""
        values = {value.name: value for value in self.plain.value_vars}
        inputs = [values[latent] for latent in self.names.values()]
        # Containers are shared variables, which an export takes for constants: put inputs in their places.
        fresh = {self.plain[name]: self.plain[name].type(name) for name in rows}
        return jax_function([*inputs, *fresh.values()], replaced(graphs, fresh))
