"""What families over positive numbers and simplices share: supports, limits, and what they refuse."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.base import require_support

INITIAL_CONCENTRATIONS = (0.5, 1e6)
"""Where an approximation may start. Below, the density piles up at the border of the support; above, float32
cannot tell it from a point."""


def require_positive(family: str, latents: Mapping[str, Latent]) -> None:
    """Raise unless every latent's support is the positive numbers, from 0 on."""
    require_support(family, "positive latents", latents, (type(constraints.greater_than(0.0)),))
    for name, latent in latents.items():
        require(
            bool(np.all(np.asarray(latent.constraint.lower_bound) == 0)),
            ConfigurationError,
            f"{family} is a family for positive latents; latent {name!r} has support {latent.constraint}, which "
            "does not begin at 0. Use MeanField() for it, which works for every support.",
        )


def refuse_antithetic(family: str, antithetic: bool) -> None:
    """Raise when mirrored draws are asked of a family that has no mirror."""
    require(
        not antithetic,
        ConfigurationError,
        f"antithetic draws need a family that is symmetric about its centre (MeanField, Block, FullRank, LogNormal, "
        f"StudentT); {family} is not. Use antithetic=False.",
    )


def representable(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """Positive values, kept from rounding to 0 or to infinity."""
    limits = jnp.finfo(z.dtype)
    return jnp.clip(z, limits.tiny, limits.max)


def representable_exp(log_z: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp, kept from rounding to 0 or to infinity before it happens, so that it can be differentiated."""
    limits = jnp.finfo(log_z.dtype)
    return jnp.exp(jnp.clip(log_z, np.log(limits.tiny) + 0.1, np.log(limits.max) - 0.1))
