"""A traced NumPyro model as an :class:`isvi.Model`: its densities, what it reports, and what it predicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import Parameter, signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import Predictive

from isvi.core.errors import ConfigurationError, require
from isvi.data.arrays import checked_arrays
from isvi.frontends.numpyro.dependence import depending_on_rows
from isvi.frontends.numpyro.enumeration import discrete_draws, marginal_log_density
from isvi.frontends.numpyro.labels import dims, groups
from isvi.frontends.numpyro.rows import ArrayRows, NoRows, SourceRows
from isvi.frontends.numpyro.sites import UNCONSTRAINED
from isvi.frontends.numpyro.traced import TracedModel
from isvi.model.model import Model


@dataclass(frozen=True)
class ExportedModel:
    """The functions that an :class:`isvi.Model` is made of.

    Attributes:
        traced: the model function with its rows.
        likelihood: the sites that are scaled to all rows, and what discrete latents are summed out of; every other site
            is counted once.
    """

    traced: TracedModel
    likelihood: frozenset[str]

    def model(self) -> Model:
        return Model(
            self.traced.latents,
            self.log_prior,
            None if isinstance(self.traced.rows, NoRows) else self.log_likelihood,
            report=self.report if self._reported else None,
            shown_as={name + UNCONSTRAINED: name for name in self.traced.moving},
            predict=self.predict,
            infer_discrete=self.infer_discrete if self.traced.discrete_sites else None,
            initial=self.traced.initial,
            dims=dims(self.traced),
            groups=partial(groups, self.traced),
        )

    def log_prior(self, values: dict[str, Array]) -> Array:
        if self.traced.discrete_sites and isinstance(self.traced.rows, NoRows):
            return marginal_log_density(self.traced, values, None)
        return self._counted_once(values)

    def _counted_once(self, values: dict[str, Array]) -> Array:
        terms, _ = self.traced.terms(values, self.traced.template())
        return sum((jnp.sum(term) for name, term in terms.items() if name not in self.likelihood), jnp.zeros(()))

    def log_likelihood(self, values: dict[str, Array], rows: Any) -> Array:
        if self.traced.discrete_sites:
            return marginal_log_density(self.traced, values, rows) - self._counted_once(values)
        terms, _ = self.traced.terms(values, rows)
        return sum((jnp.sum(terms[name]) for name in sorted(self.likelihood)), jnp.zeros(()))

    @cached_property
    def _reported(self) -> frozenset[str]:
        """Sites shown beside the latents: deterministic ones that are not per row, and moving latents."""
        names = {name for name, site in self.traced.sites.items() if site["type"] == "deterministic"}
        per_row = set() if isinstance(self.traced.rows, NoRows) else depending_on_rows(self.traced)[1]
        return frozenset(names - per_row) | self.traced.moving

    def report(self, draws: dict[str, Array]) -> dict[str, np.ndarray]:
        """Draws of the latents, with what the model computes from them."""
        shown = self._reported

        def computed(values: dict[str, Array]) -> dict[str, Array]:
            _, reported = self.traced.terms(values, self.traced.template())
            return {name: reported[name] for name in self.traced.sites if name in shown}

        return {**draws, **jax.device_get(jax.jit(jax.vmap(computed))(draws))}

    def predict(self, draws: dict[str, Array], data: Any, seed: int) -> dict[str, np.ndarray]:
        """Posterior predictive draws of all observed sites, and of deterministic ones, by numpyro's Predictive."""
        posterior = {**draws, **(self.report(draws) if self.traced.moving else {})}
        posterior = {name: posterior[name] for name in self.traced.latent_sites}
        rows, source = self._rows_to_predict(data), self.traced.source

        def simulated(*args: Any, **kwargs: Any) -> Any:
            more, named = self.traced.rows.arguments(rows)
            with self.traced.rows.plates(rows):
                return source.call(*args, *more, **{**kwargs, **named, **self._left_out(named)})

        simulate = Predictive(handlers.uncondition(simulated), posterior_samples=posterior)
        found = simulate(jax.random.key(seed), *source.args, **source.kwargs)
        return {name: np.asarray(value) for name, value in found.items() if np.size(value) > 0}

    def infer_discrete(self, draws: dict[str, Array], data: Any, seed: int) -> dict[str, np.ndarray]:
        """Draws of the discrete latents from their posterior, given draws of the others and the observations."""
        return discrete_draws(self.traced, draws, self._rows_to_predict(data), seed)

    def _rows_to_predict(self, data: Any) -> Any:
        fitted = self.traced.rows
        if data is None:
            require(
                not isinstance(fitted, SourceRows),
                ConfigurationError,
                "The rows that were fitted do not fit in memory: say for which rows to predict, fit.predict(rows).",
            )
            return jax.tree.map(jnp.asarray, fitted.data)
        require(
            isinstance(fitted, (ArrayRows, SourceRows)),
            ConfigurationError,
            "New rows can be predicted where the data were passed to isvi.fit. Here they were bound to the model: "
            "build it again with isvi.from_numpyro(model) and fit with isvi.fit(model, data).",
        )
        return jax.tree.map(jnp.asarray, checked_arrays(data, missing=True)[0])

    def _left_out(self, named: Mapping[str, Any]) -> dict[str, None]:
        """Columns that were fitted but are not among the new rows, such as the outcome: passed as None."""
        rows = self.traced.rows
        fitted = rows.data if isinstance(rows, (ArrayRows, SourceRows)) and isinstance(rows.data, dict) else {}
        parameters = signature(self.traced.source.function).parameters
        required = {name for name, parameter in parameters.items() if parameter.default is Parameter.empty}
        return dict.fromkeys((set(fitted) - set(named)) & required)
