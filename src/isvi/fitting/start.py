"""Where a run starts: variational parameters around the initial values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from isvi.core.compiling import compiled_once
from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families import Approximation
from isvi.families.base import Params
from isvi.model.model import Model


def start_params(
    key: PRNGKeyArray,
    approximation: Approximation,
    model: Model,
    initial: Mapping[str, Any] | Callable | None,
    initial_scale: float,
    nearness: Sequence[float] = (1.0,),
) -> list[Params]:
    """Variational parameters around the initial values, for every ``nearness``; latents without a value are next to the
    image of 0, and where that is below 1 all draws come closer to it."""
    require(
        np.ndim(initial_scale) == 0 and np.isfinite(initial_scale) and initial_scale > 0,
        ConfigurationError,
        f"initial_scale must be a positive number; got {initial_scale!r}.",
    )
    given = given_values(model, initial)

    @compiled_once
    def located(key: PRNGKeyArray, given: dict[str, Array], nearness: Array) -> Array:
        keys = jax.random.split(key, len(model.latents))
        values = {
            name: _initial_value(one_key, name, latent, given.get(name), nearness)
            for one_key, (name, latent) in zip(keys, model.latents.items(), strict=True)
        }
        return approximation.coordinates.encode(values)

    locations = [np.asarray(located(key, given, np.float32(one))) for one in nearness]
    outside = {
        entry.name
        for entry in approximation.coordinates.entries
        if not np.isfinite(locations[0][entry.start : entry.stop]).all()
    }
    require(
        not outside,
        ConfigurationError,
        "initial values must lie strictly inside the latents' supports; these do not: " + ", ".join(sorted(outside)),
    )
    init = compiled_once(approximation.init)
    return [
        init(location, np.full_like(location, one * initial_scale))
        for location, one in zip(locations, nearness, strict=True)
    ]


def given_values(model: Model, initial: Mapping[str, Any] | Callable | None) -> dict[str, np.ndarray]:
    """The initial values that the user gave, by latent."""
    found = initial if model.initial is None else model.initial(initial)
    require(
        found is None or isinstance(found, Mapping),
        ConfigurationError,
        f"initial must be a dict of values by latent; got {initial!r}.",
    )
    given: dict[str, Any] = dict(found or {})  # type: ignore[arg-type]
    if given and model.unreport is not None:
        given = dict(model.unreport(given))
    unknown = sorted(set(given) - set(model.latents))
    require(
        not unknown,
        ConfigurationError,
        f"initial names {unknown}, which the model does not have; its latents are {sorted(model.latents)}.",
    )
    return {name: np.asarray(value, jnp.result_type(float)) for name, value in given.items()}


def _initial_value(key: PRNGKeyArray, name: str, latent: Latent, given: Array | None, nearness: Array) -> Array:
    if given is None:
        # Not exactly 0: components of a mixture that start alike would stay alike.
        return latent.transform(0.01 * nearness * jax.random.normal(key, latent.unconstrained_shape))
    require(
        jnp.broadcast_shapes(given.shape, latent.shape) == latent.shape,
        ConfigurationError,
        f"initial[{name!r}] must have shape {latent.shape}; got {given.shape}.",
    )
    return jnp.broadcast_to(given, latent.shape)
