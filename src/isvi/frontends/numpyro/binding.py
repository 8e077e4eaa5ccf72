"""``from_numpyro``, and the moment when the model meets its data: what is likelihood, and what can be cut."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.data.arrays import checked_arrays
from isvi.data.opening import DEFAULT_BATCH_SIZE
from isvi.data.source import Source
from isvi.frontends.numpyro.dependence import depending_on_discrete, depending_on_rows
from isvi.frontends.numpyro.enumeration import check_enumerable
from isvi.frontends.numpyro.exported import ExportedModel
from isvi.frontends.numpyro.function import ModelFunction
from isvi.frontends.numpyro.local import LocalNumpyroModel
from isvi.frontends.numpyro.rows import ArrayRows, NoRows, PlateRows, SourceRows
from isvi.frontends.numpyro.sites import subsampled_plates
from isvi.frontends.numpyro.traced import TracedModel
from isvi.model.binding import Bound


def from_numpyro(
    model: Callable, *args: Any, local: str | None = None, by: str | None = None, **kwargs: Any
) -> "NumpyroModel | LocalNumpyroModel":
    """A NumPyro model function as a model for :func:`isvi.fit`.

    Args:
        model: the model function. :func:`isvi.fit` calls it with the rows of a mini-batch: the columns of a dict
            (or DataFrame) as keyword arguments, a tuple's arrays as further positional ones.
        args, kwargs: arguments that are not per row and are always passed, such as the number of groups. If
            *all* arguments are given here, fit without data: every evaluation uses all rows, except in a plate
            with ``subsample_size``, whose rows become the mini-batches.
        local: the plate whose latents belong to one group each, and are integrated out (``docs/local.md``).
        by: the column of the data, and argument of the model, that says which group a row belongs to. Without it the
            plate is that of the rows.

    >>> import isvi, numpyro, numpyro.distributions as dist
    >>> def coin(heads=None):
    ...     bias = numpyro.sample("bias", dist.Beta(2, 2))
    ...     numpyro.sample("heads", dist.Bernoulli(bias), obs=heads)
    >>> model = isvi.from_numpyro(coin)  # isvi.fit(model, {"heads": [1, 0, 1]})
    """
    require(callable(model), ConfigurationError, f"from_numpyro needs a model function; got {model!r}.")
    # As JAX arrays: NumPy ones would be read in another precision whenever the precision is switched.
    args, kwargs = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" else leaf,
        (args, kwargs),
    )
    require(
        by is None or local is not None,
        ConfigurationError,
        f"by={by!r} goes with local=..., the plate whose latents belong to one group each.",
    )
    return NumpyroModel(model, args, kwargs) if local is None else LocalNumpyroModel(model, args, kwargs, local, by)


class NumpyroModel(ModelFunction):
    """A NumPyro model that waits for its data; :func:`isvi.fit` binds it."""

    def bind(self, data: Any = None, batch_size: int | None = None) -> Bound:
        """Trace the model with its data; the result holds an :class:`isvi.Model`."""
        if isinstance(data, Source):
            batch_size = min(data.num_rows, DEFAULT_BATCH_SIZE) if batch_size is None else batch_size
            return _bind_rows(self, SourceRows(data, data.head(batch_size)), batch_size)
        if data is not None:
            arrays, size = checked_arrays(data, missing=True)
            return _bind_rows(self, ArrayRows(arrays, size), batch_size)
        plates = subsampled_plates(self.function, self.args, self.kwargs)
        require(
            len(plates) <= 1,
            ModelError,
            f"isvi makes mini-batches of one plate; several have a subsample_size: {sorted(plates)}. Remove it from "
            "all but one.",
        )
        if plates:
            ((name, (size, subsample_size)),) = plates.items()
            return _bind_rows(self, PlateRows(name, size), batch_size or subsample_size)
        traced = TracedModel(self, NoRows(), 1).knowing()
        if traced.discrete_sites:
            check_enumerable(traced)
        return Bound(ExportedModel(traced, frozenset()).model(), None, batch_size)


def _bind_rows(source: ModelFunction, rows: ArrayRows | SourceRows | PlateRows, batch_size: int | None) -> Bound:
    """Decide what is likelihood, and refuse what cannot be cut into mini-batches."""
    _check_arguments(source, rows)
    size = rows.size
    traced = TracedModel(source, rows, min(size, batch_size or size)).knowing()
    likelihood, per_row = depending_on_rows(traced) if size > 1 else (traced.observed, set())
    local = sorted(per_row & set(traced.latent_sites))
    if local:
        everything = "as arrays, and batch_size=None" if isinstance(rows, SourceRows) else "batch_size=None"
        require(
            batch_size is None or batch_size >= size,
            ModelError,
            f"The latent site {local[0]!r} depends on the rows of the mini-batch: it has an entry per row, or a prior "
            f"computed from the data. Use all rows at once ({everything}), sum it out, or compute what its prior "
            "needs beforehand and bind it: isvi.from_numpyro(model, scale=x.std()).",
        )
        batch_size = size
        traced = replace(traced, num_rows=size)
    require(
        len(likelihood) > 0,
        ModelError,
        "No observed site of the NumPyro model depends on the data. Pass the observations as obs=..., and the data "
        "under the names of the model's arguments.",
    )
    if traced.discrete_sites:
        check_enumerable(traced)
        likelihood |= depending_on_discrete(traced)
    data = rows.source if isinstance(rows, SourceRows) else rows.data
    return Bound(ExportedModel(traced, frozenset(likelihood)).model(), data, batch_size)


def _check_arguments(source: ModelFunction, rows: ArrayRows | SourceRows | PlateRows) -> None:
    """The data must be what the model function takes."""
    args, kwargs = ((), {}) if isinstance(rows, PlateRows) else rows.arguments(rows.data)
    try:
        signature(source.function).bind(*source.args, *args, **source.kwargs, **kwargs)
    except TypeError as error:
        given = f"columns {', '.join(map(str, kwargs))}" if kwargs else f"{len(args)} array(s)"
        name = getattr(source.function, "__name__", "model")
        raise ModelError(
            f"The NumPyro model cannot be called with the data: {error}. It is {name}{signature(source.function)}, and "
            f"the data has {given}. Rename or leave out columns, or bind what is not per row: "
            "isvi.from_numpyro(model, groups=8)."
        ) from None
