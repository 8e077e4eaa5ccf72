"""From a model with local latents to one without: its log likelihood has them integrated out."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.data.arrays import checked_arrays
from isvi.data.groups.grouped import Grouped
from isvi.data.groups.grouped_files import GroupedFiles
from isvi.data.source import Source, row_spec
from isvi.model.local.marginal import Marginal
from isvi.model.local.nodes import Nodes
from isvi.model.model import Model
from isvi.model.tracing import used_latents


def bind_local(model: Model, data: Any) -> Model:
    """A model over the global latents alone, whose log likelihood is that of whole groups (or of rows that are a
    group each). Mistakes in how the model is written are told apart here, where the parts are still apart."""
    assert model.local is not None
    assert model.log_local_prior is not None
    require(
        data is not None,
        ConfigurationError,
        "The model has local latents, but no data was given: isvi.fit(model, isvi.data.grouped(data, by=...)).",
    )
    size = sum(latent.unconstrained_size for latent in model.local.values())
    rule = Nodes.choose(size, model.nodes, _num_groups(data))
    if isinstance(data, (Grouped, GroupedFiles)):
        _refuse_one_per_group(size, data)
    _check(model, _row(data))
    assert model.log_likelihood is not None
    marginal = Marginal(model.local, model.log_local_prior, model.log_likelihood, rule)
    return replace(model, log_likelihood=marginal, local=None, log_local_prior=None, nodes=None)


def marginal_of(model: Model) -> Marginal:
    """What a bound model integrates; an error for a model without local latents."""
    if not isinstance(model.log_likelihood, Marginal):
        raise ConfigurationError("This model has no local latents: isvi.Model(..., local={...}) declares them.")
    return model.log_likelihood


def evaluations_per_row(model: Model) -> int:
    """About how often the log likelihood of a bound model looks at a row: once, if nothing is integrated out."""
    marginal = model.log_likelihood
    return marginal.evaluations_per_row if isinstance(marginal, Marginal) else 1


def _num_groups(data: Any) -> int:
    if isinstance(data, (Grouped, GroupedFiles)):
        return len(data.labels)
    return data.num_rows if isinstance(data, Source) else checked_arrays(data)[1]


def _row(data: Any) -> Any:
    """Shapes and types of one row."""
    if isinstance(data, (Source, Grouped, GroupedFiles)):
        return data.layout
    return jax.tree.map(lambda a: row_spec(a.shape[1:], a.dtype), checked_arrays(data)[0])


def _refuse_one_per_group(size: int, data: Grouped | GroupedFiles) -> None:
    require(
        size == 1 or size != len(data.labels),
        ModelError,
        f"the local latents have as many entries, {size}, as there are groups. A local latent is declared for one "
        "group: isvi.real() gives every group a number of its own, and log_likelihood sees the one of its row's group.",
    )


def _check(model: Model, row: Any) -> None:
    """Trace what the user wrote: names, shapes, and which latents it uses. Evaluates nothing."""
    assert model.local is not None
    assert model.log_local_prior is not None
    assert model.log_likelihood is not None
    dtype = jnp.result_type(float)
    all_latents = {**model.latents, **model.local}
    values = {name: jax.ShapeDtypeStruct(latent.shape, dtype) for name, latent in all_latents.items()}
    in_prior = used_latents("log_local_prior", model.log_local_prior, values)
    in_rows = used_latents("log_likelihood", model.log_likelihood, values, row)
    for name in model.local:
        require(
            name in in_prior,
            ModelError,
            f"log_local_prior does not use local latent {name!r}, so that its integral would be over a flat prior: "
            f"infinite for a group without rows. Add its density, given the global latents, to log_local_prior.",
        )
        require(
            name in in_rows,
            ModelError,
            f"log_likelihood does not use local latent {name!r}: the rows would say nothing about it. Use it, or "
            "remove it.",
        )
    for name in model.latents:
        require(
            name in in_prior or name in in_rows,
            ModelError,
            f"latent {name!r} is used by log_prior only: neither log_local_prior nor log_likelihood depends on it, so "
            "that the data would say nothing about it. Is it missing from log_local_prior, as the scale of a local "
            "latent for instance? Use it, or remove it.",
        )
