"""A PyMC model as an :class:`isvi.Model`: which terms of its log density are prior, and which belong to the rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from isvi.frontends.pymc.posterior import Posterior
from isvi.frontends.pymc.variables import Variables
from isvi.model.model import Model


@dataclass(frozen=True)
class Export:
    """A PyMC model as JAX functions of named values and rows."""

    variables: Variables

    @cached_property
    def posterior(self) -> Posterior:
        return Posterior(self.variables)

    @cached_property
    def _terms(self) -> dict[str, Any]:
        """The log density of every variable and potential, as a PyTensor graph."""
        plain = self.variables.plain
        terms = [*plain.basic_RVs, *plain.potentials]
        graphs = plain.logp(vars=terms, jacobian=True, sum=False)
        return {term.name: graph.sum() for term, graph in zip(terms, graphs, strict=True)}

    @cached_property
    def _by_rows(self) -> frozenset[str]:
        """Variables and potentials whose log density depends on the rows."""
        return frozenset(name for name, graph in self._terms.items() if self.variables.depends_on_rows(graph))

    @property
    def likelihood(self) -> frozenset[str]:
        """Observed variables, and potentials, that depend on the rows: what is scaled to all of them."""
        return self._by_rows - frozenset(self.variables.names)

    def problem_with_cutting(self, size: int) -> str | None:
        """Why mini-batches make no sense, if so."""
        local = sorted(self._by_rows & frozenset(self.variables.names))
        if local:
            return f"the prior of {local[0]!r} depends on the rows"
        values = {name: jnp.zeros(latent.shape) for name, latent in self.variables.latents.items()}
        containers = {name: self.variables.source[name] for name in self.variables.containers}
        fewer = {name: container.get_value()[: max(size - 1, 1)] for name, container in containers.items()}
        log_likelihood = self.model().log_likelihood
        assert log_likelihood is not None
        try:
            jax.eval_shape(log_likelihood, values, fewer)
        except (TypeError, ValueError) as error:
            return f"its likelihood needs exactly {size} rows ({str(error).splitlines()[0]})"
        return None

    def model(self) -> Model:
        """The :class:`isvi.Model`."""
        variables, posterior = self.variables, self.posterior
        rows, inputs = sorted(variables.containers), list(variables.names.values())
        prior = variables.exported([graph for name, graph in self._terms.items() if name not in self.likelihood], [])
        likelihood = variables.exported([self._terms[name] for name in sorted(self.likelihood)], rows)

        def log_prior(values: dict[str, Array]) -> Array:
            return sum(prior(*(values[name] for name in inputs)), jnp.zeros(()))

        def log_likelihood(values: dict[str, Array], batch: dict[str, Array]) -> Array:
            return sum(likelihood(*(values[name] for name in inputs), *(batch[name] for name in rows)), jnp.zeros(()))

        return Model(
            variables.latents,
            log_prior,
            log_likelihood if self.likelihood else None,
            report=posterior.report if posterior.reported else None,
            shown_as={latent: name for name, latent in variables.names.items() if name in variables.moving},
            predict=posterior.predict,
            dims=posterior.dims,
            coords=posterior.coords,
            groups=posterior.groups,
            initial=self._initial,
        )

    def _initial(self, given: Any) -> dict[str, Any]:
        """Where to start: what the user says, otherwise the variables' ``initval``."""
        return {**self.variables.initial, **(given or {})}
