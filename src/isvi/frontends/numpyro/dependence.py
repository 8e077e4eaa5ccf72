"""Which sites of a NumPyro model depend on the rows of the mini-batch: on their values, or on their number."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from isvi.frontends.numpyro.traced import TracedModel

DETERMINISTIC = "deterministic "
"""Begins the name of a reported value, beside the names of log densities: a moving latent has both."""


def depending_on_rows(traced: TracedModel) -> tuple[set[str], set[str]]:
    """Observed sites, and other sites, that depend on the rows."""
    depends, here = _reached_by_rows(traced)
    _, elsewhere = _reached_by_rows(replace(traced, num_rows=traced.num_rows - 1 if traced.num_rows > 1 else 2))
    depends |= {name for name in here if here[name] != elsewhere.get(name)}
    observed = traced.observed
    return depends & observed, {name.removeprefix(DETERMINISTIC) for name in depends - observed}


def depending_on_discrete(traced: TracedModel) -> set[str]:
    """Discrete latent sites, and all whose log density depends on their values: what has to be summed out together."""
    discrete = traced.discrete_sites
    if not discrete:
        return set()
    values = _outlines(traced)
    places = {name: jax.ShapeDtypeStruct(site["value"].shape, site["value"].dtype) for name, site in discrete.items()}
    names: list[str] = []

    def run(values: dict[str, Array], places: dict[str, Array]) -> dict[str, Array]:
        terms, _ = traced.terms({**values, **places}, traced.template())
        names[:] = sorted(terms)
        return terms

    jaxpr = jax.make_jaxpr(run)(values, places).jaxpr
    reached = _reached_from(jaxpr, jaxpr.invars[len(values) :])
    return set(discrete) | {name for name, var in zip(names, jaxpr.outvars, strict=True) if var in reached}


def _outlines(traced: TracedModel) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the latents' values."""
    dtype = jnp.result_type(float)
    return {name: jax.ShapeDtypeStruct(latent.shape, dtype) for name, latent in traced.latents.items()}


def _reached_by_rows(traced: TracedModel) -> tuple[set[str], dict[str, Any]]:
    """What depends on the rows' values, and the shapes of everything."""
    values = _outlines(traced)
    shapes: dict[str, Any] = {}

    def run(values: dict[str, Array], rows: Any) -> dict[str, Array]:
        terms, reported = traced.terms(values, rows)
        both = {**terms, **{DETERMINISTIC + name: value for name, value in reported.items()}}
        shapes.update({name: jnp.shape(value) for name, value in both.items()})
        return both

    jaxpr = jax.make_jaxpr(run)(values, traced.template()).jaxpr
    reached = _reached_from(jaxpr, jaxpr.invars[len(values) :])
    # Dicts are flattened in the order of their sorted keys.
    return {name for name, var in zip(sorted(shapes), jaxpr.outvars, strict=True) if var in reached}, shapes


def _reached_from(jaxpr: Any, start: list) -> set:
    """Variables of a jaxpr that any of the given ones can influence."""
    reached = _Variables(start)
    for equation in jaxpr.eqns:
        if any(var in reached for var in equation.invars):
            reached.update(equation.outvars)
    return reached


class _Variables(set):
    """A set of variables in which literals, which cannot be hashed, are never found."""

    def __contains__(self, var: object) -> bool:
        return not hasattr(var, "val") and super().__contains__(var)
