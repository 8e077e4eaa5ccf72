"""A NumPyro model function together with its rows: its sites, its latents, and the log density of every site."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from isvi.core.errors import ModelError, require
from isvi.core.latents import Latent, real
from isvi.frontends.numpyro.function import ModelFunction
from isvi.frontends.numpyro.modules import GivenParams, check_params
from isvi.frontends.numpyro.refusals import check_supported
from isvi.frontends.numpyro.rows import Rows
from isvi.frontends.numpyro.sites import (
    UNCONSTRAINED,
    Site,
    is_continuous,
    is_latent,
    is_observed,
    same_support,
    within,
)


@dataclass(frozen=True)
class TracedModel:
    """A model function together with its rows: all that can be found out by running it under NumPyro's handlers.

    Attributes:
        source: the function and the arguments that are always passed.
        rows: where mini-batches come from.
        num_rows: how many rows the function is traced with when no particular ones are meant.
    """

    source: ModelFunction
    rows: Rows
    num_rows: int

    def trace(self, rows: Any, *places: Messenger) -> dict[str, Site]:
        """The sites of one run on some rows. ``places`` put values at the latent sites."""
        with handlers.trace() as sites:
            self.runner(rows, *places)()
        return sites

    def runner(self, rows: Any, *places: Messenger) -> Callable[[], None]:
        """The model function on some rows, without arguments."""

        def run() -> None:
            more, named = self.rows.arguments(rows)
            with ExitStack() as stack:
                # The seed comes last: what places values may ask it for keys.
                for handler in (self.rows.plates(rows), GivenParams(), *places, handlers.seed(rng_seed=0)):
                    stack.enter_context(handler)
                self.source(*more, **named)

        return run

    def template(self, num_rows: int | None = None) -> Any:
        """Some rows, where only their number matters."""
        length = self.num_rows if num_rows is None else num_rows
        return jax.tree.map(lambda column: jnp.asarray(column[:length]), self.rows.data)

    def knowing(self) -> "TracedModel":
        """The same; computing what depends on bound arrays only while it is traced, where the function asks for it."""
        eager = replace(self, source=replace(self.source, eager=True))
        try:
            jax.eval_shape(lambda rows: self.runner(rows, within(0))(), self.template())
        except ModelError:
            jax.eval_shape(lambda rows: eager.runner(rows, within(0))(), self.template())
            return eager
        return self

    @cached_property
    def sites(self) -> dict[str, Site]:
        """The sites of a run with all latents at the image of 0."""
        return self.trace(self.template(), within(0))

    @cached_property
    def moving(self) -> frozenset[str]:
        """Latent sites whose support depends on other latents."""
        # What counts is the supports: away from 0, predictors that were not scaled may overflow in a link.
        with numpyro.validation_enabled(False):
            elsewhere = self.trace(self.template(), within(1))
        return frozenset(
            name
            for name, site in self.sites.items()
            if is_continuous(site) and not same_support(site["fn"].support, elsewhere[name]["fn"].support)
        )

    @property
    def latent_sites(self) -> dict[str, Site]:
        """The unobserved sample sites that have a posterior density, in the model's order."""
        return {name: site for name, site in self.sites.items() if is_continuous(site)}

    @property
    def discrete_sites(self) -> dict[str, Site]:
        """The unobserved sample sites that are summed out."""
        return {name: site for name, site in self.sites.items() if is_latent(site) and not is_continuous(site)}

    @property
    def observed(self) -> set[str]:
        """Names of the observed sites."""
        return {name for name, site in self.sites.items() if is_observed(site)}

    @cached_property
    def latents(self) -> dict[str, Latent]:
        """The latents that stand for the latent sites, in the model's order."""
        check_params(self.sites)
        check_supported(self.sites)
        latents = dict(self._latent(name, site) for name, site in self.latent_sites.items())
        require(len(latents) > 0, ModelError, "The NumPyro model has no continuous latent sites: nothing to fit.")
        return latents

    def _latent(self, name: str, site: Site) -> tuple[str, Latent]:
        support, shape = site["fn"].support, jnp.shape(site["value"])
        try:
            transform = biject_to(support)
        except NotImplementedError:
            raise ModelError(f"numpyro knows no bijection onto the support of {name!r}, {support}.") from None
        if name in self.moving:
            return name + UNCONSTRAINED, real(*transform.inverse_shape(shape), flat_prior=True)
        # The site states its prior itself, also where that is flat.
        return name, Latent(tuple(shape), support, transform, flat_prior=True)

    def initial(self, given: Any) -> dict[str, Any]:
        """Where to start: values by site, or what one of NumPyro's strategies (``init_to_median()``) says."""
        if callable(given):
            # A trace with random draws: strategies that look at the prior ask the seed for keys.
            sites = self.trace(self.template(), handlers.substitute(substitute_fn=given))
            return dict(self._started(name, sites[name]) for name in self.latent_sites)
        named = dict(given or {})
        moving = self.moving & named.keys()
        if not moving:
            return named
        # The support of a moving one is known once the others have their values.
        placed = {name: jnp.asarray(value) for name, value in named.items()}
        sites = self.trace(self.template(), handlers.substitute(data=placed), within(0))
        return {
            **dict(self._started(name, sites[name]) for name in moving),
            **{name: value for name, value in named.items() if name not in moving},
        }

    def _started(self, name: str, site: Site) -> tuple[str, Any]:
        """The name of the latent that stands for a site, and its value."""
        if name not in self.moving:
            return name, site["value"]
        return name + UNCONSTRAINED, biject_to(site["fn"].support).inv(site["value"])

    def places(self, values: dict[str, Array], jacobians: dict[str, Array]) -> list[Messenger]:
        """What puts the latents' values at their sites, and the Jacobians of moving supports into a dict."""

        def place_unconstrained(site: Site) -> Array | None:
            given = values.get(site["name"] + UNCONSTRAINED) if is_latent(site) else None
            if given is None:
                return None
            transform = biject_to(site["fn"].support)
            value = transform(given)
            jacobians[site["name"]] = transform.log_abs_det_jacobian(given, value)
            return value

        places: list[Messenger] = [handlers.substitute(data=values)]
        return [*places, handlers.substitute(substitute_fn=place_unconstrained)] if self.moving else places

    def located(self, values: dict[str, Array], rows: Any) -> dict[str, Array]:
        """The values of the latent sites, of latents' values."""
        sites = self.trace(rows, *self.places(values, {}))
        return {name: sites[name]["value"] for name in self.latent_sites}

    def terms(self, values: dict[str, Array], rows: Any) -> tuple[dict[str, Array], dict[str, Array]]:
        """The log density of every sample site, entry by entry, and the values of all that is reported."""
        jacobians: dict[str, Array] = {}
        sites = self.trace(rows, *self.places(values, jacobians))
        terms, reported = {}, {}
        for name, site in sites.items():
            if site["type"] == "sample":
                term = site["fn"].log_prob(site["value"])
                terms[name] = term if site["scale"] is None else site["scale"] * term
                if name in jacobians:
                    terms[name] = jnp.sum(terms[name]) + jnp.sum(jacobians[name])
            if site["type"] == "deterministic" or name in jacobians:
                reported[name] = site["value"]
        return terms, reported
