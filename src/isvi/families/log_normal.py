"""The log-normal family, for positive latents: a Gaussian of the logarithm."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from isvi.core.latents import Latent
from isvi.families.base import Plan
from isvi.families.gaussian import DiagonalGaussian, DiagonalParams
from isvi.families.positive import representable, representable_exp, require_positive


@dataclass(frozen=True)
class LogNormalFactors(DiagonalGaussian):
    """``count`` univariate log-normals, z = exp(loc + exp(log_scale) * eps). Antithetic pairs mirror log z."""

    gaussian: ClassVar[bool] = False

    def init(self, location: Array, scale: Array) -> DiagonalParams:
        """mean = exp(loc + sigma^2/2) and (sd/mean)^2 = exp(sigma^2) - 1, solved for loc and sigma."""
        mean = representable(location)
        # exp of either end is finite and not lost against 1 in float32.
        relative = jnp.clip(scale / mean, 1e-3, 1e6)
        variance = jnp.log1p(relative**2)
        return DiagonalParams(jnp.log(mean) - variance / 2, jnp.log(variance) / 2)

    def transform(self, params: DiagonalParams, noise: Array) -> Array:
        return representable_exp(super().transform(params, noise))

    def standardize(self, params: DiagonalParams, z: Array) -> Array:
        return super().standardize(params, jnp.log(z))

    def log_jacobian(self, params: DiagonalParams, z: Array) -> Array:
        """dz/deps = exp(log_scale) z."""
        return super().log_jacobian(params, z) + jnp.log(z)

    def entropy(self, params: DiagonalParams) -> Array:
        """The Gaussian's, plus E[log z] = loc."""
        return super().entropy(params) + params.loc


@dataclass(frozen=True)
class LogNormal:
    """An independent log-normal for every entry of positive latents, in constrained space."""

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        require_positive("LogNormal()", latents)
        dim = sum(latent.size for latent in latents.values())
        return Plan(tuple(latents), constrained=True, factors=(LogNormalFactors(dim),))
