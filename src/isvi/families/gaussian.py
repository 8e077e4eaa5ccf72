"""The mean-field Gaussian: every unconstrained entry is a factor of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.core.latents import Latent
from isvi.families.base import Plan
from isvi.families.location_scale import Univariate


class DiagonalParams(NamedTuple):
    """z = loc + exp(log_scale) * eps."""

    loc: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]


@dataclass(frozen=True)
class DiagonalGaussian(Univariate):
    """``count`` univariate Gaussians."""

    gaussian: ClassVar[bool] = True

    def init(self, location: Array, scale: Array) -> DiagonalParams:
        return DiagonalParams(location, jnp.log(scale))

    def location(self, params: DiagonalParams) -> Array:
        return params.loc

    def scale(self, params: DiagonalParams) -> Array:
        return jnp.exp(params.log_scale)

    def match(self, location: Array, precision: Array) -> DiagonalParams:
        diagonal = precision if precision.ndim == 1 else jnp.diagonal(precision)
        return DiagonalParams(location, -0.5 * jnp.log(diagonal))

    def factor(self, params: DiagonalParams) -> Array:
        return jnp.diag(self.scale(params))

    def with_factor(self, location: Array, factor: Array) -> DiagonalParams:
        return self.init(location, jnp.diagonal(factor))

    def natural(self, params: DiagonalParams, gradient: DiagonalParams) -> DiagonalParams:
        """The Fisher information is diagonal: 1/sigma^2 for loc and 2 for log sigma."""
        return DiagonalParams(jnp.exp(2 * params.log_scale) * gradient.loc, gradient.log_scale / 2)

    def squared_length(self, params: DiagonalParams, step: DiagonalParams) -> Array:
        return (step.loc * jnp.exp(-params.log_scale)) ** 2 + 2 * step.log_scale**2

    def entropy(self, params: DiagonalParams) -> Array:
        return params.log_scale + 0.5 * np.log(2 * np.pi * np.e)


@dataclass(frozen=True)
class MeanField:
    """A Gaussian with independent entries in unconstrained space, for any support."""

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        dim = sum(latent.unconstrained_size for latent in latents.values())
        return Plan(tuple(latents), constrained=False, factors=(DiagonalGaussian(dim),))
