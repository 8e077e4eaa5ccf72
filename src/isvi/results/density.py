"""The density of an approximation at values that the user gives."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.approximation import Approximation
from isvi.families.base import Params


def log_prob(
    approximation: Approximation, params: Params, latents: Mapping[str, Latent], values: Mapping[str, Any]
) -> np.ndarray:
    """Log density at constrained values with a common leading axis; -inf outside the support."""
    arrays = _checked(latents, values)
    coordinates = approximation.coordinates

    def one(point: dict[str, Array]) -> Array:
        inside = jnp.stack([_inside(latents[name], point[name]) for name in latents]).all()
        z = coordinates.encode(point)
        _, log_jacobian = coordinates.decode(z)
        density = approximation.log_density(params, z).sum() - log_jacobian
        return jnp.where(inside, density, -jnp.inf)

    return np.asarray(jax.vmap(one)(arrays))


def _checked(latents: Mapping[str, Latent], values: Mapping[str, Any]) -> dict[str, Array]:
    missing = sorted(set(latents) - set(values))
    require(not missing, ConfigurationError, f"log_prob needs a value for every latent; missing: {missing}.")
    arrays = {name: jnp.asarray(values[name], jnp.result_type(float)) for name in latents}
    for name, latent in latents.items():
        require(
            arrays[name].ndim >= 1 and arrays[name].shape[1:] == latent.shape,
            ConfigurationError,
            f"log_prob needs values[{name!r}] of shape (number of points, *{latent.shape}); got {arrays[name].shape}. "
            "A single point takes a leading axis of one.",
        )
    points = {name: len(array) for name, array in arrays.items()}
    require(
        len(set(points.values())) == 1,
        ConfigurationError,
        f"log_prob needs the same number of points for every latent; got {points}.",
    )
    return arrays


def _inside(latent: Latent, value: Array) -> Bool[Array, ""]:
    """Whether a value lies in the open support.

    By way of the unconstrained space and back. The constraints' own checks are for double precision: a simplex drawn in
    single precision may fail them.
    """
    z = latent.transform.inv(value)
    back = latent.transform(z)
    tolerance = 100 * jnp.sqrt(value.size) * jnp.finfo(value.dtype).eps
    close = jnp.abs(back - value) <= tolerance * (1 + jnp.abs(value))
    return jnp.isfinite(z).all() & close.all()
