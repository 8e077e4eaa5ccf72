"""Dirichlet, for simplexes, and Beta, for intervals: a Beta is a Dirichlet of size two."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import constraints

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.base import Factors, Plan, require_support
from isvi.families.positive import INITIAL_CONCENTRATIONS, refuse_antithetic
from isvi.families.special.simplex import interior, simplex_entropy, simplex_log_density, simplex_path
from isvi.families.special.simplex_fisher import simplex_natural, simplex_squared_length


def initial_log_concentration(
    mean: Float[Array, "... size"], variance: Float[Array, "..."]
) -> Float[Array, "... size"]:
    """log alpha such that the variances m_k (1 - m_k) / (A + 1) sum to ``variance``, as nearly as possible: there is
    a largest variance for every mean, and no alpha is to be so small that the density piles up at the border."""
    least, most = INITIAL_CONCENTRATIONS
    total = jnp.clip(jnp.sum(mean * (1 - mean), axis=-1, keepdims=True) / variance[..., None] - 1, 0, most)
    return jnp.log(jnp.clip(mean * total, least, most))


class DirichletParams(NamedTuple):
    """alpha = A * mean, with mean = softmax(logits) and A = exp(log_total), simplex after simplex. When A is large
    the alphas themselves are nearly collinear: gradient ascent would find their ratios, and hardly their size."""

    logits: Float[Array, " dim"]
    log_total: Float[Array, " factors"]


@dataclass(frozen=True)
class DirichletFactors(Factors):
    """``count`` Dirichlets of ``size`` entries each."""

    def init(self, location: Array, scale: Array) -> DirichletParams:
        """Means as given. There is one variance per simplex to choose: the entries' variances add up as given."""
        variance = jnp.sum(self._apart(scale) ** 2, axis=-1)
        log_alpha = initial_log_concentration(interior(self._apart(location)), variance)
        return DirichletParams(log_alpha.reshape(-1), logsumexp(log_alpha, axis=-1))

    def draw(self, key: PRNGKeyArray, params: DirichletParams, num_samples: int, antithetic: bool) -> Array:
        refuse_antithetic("Dirichlet", antithetic)
        alpha = jnp.exp(self.log_concentration(params))
        z = jax.random.dirichlet(key, alpha, (num_samples, self.count), alpha.dtype)
        return interior(z).reshape(num_samples, self.dim)

    def log_density(self, params: DirichletParams, z: Array) -> Array:
        return simplex_log_density(jnp.exp(self.log_concentration(params)), self._apart(z))

    def path(self, params: DirichletParams, z: Array) -> Array:
        return simplex_path(self.log_concentration(params), self._apart(z)).reshape(-1)

    def entropy(self, params: DirichletParams) -> Array:
        return simplex_entropy(jnp.exp(self.log_concentration(params)))

    def natural(self, params: DirichletParams, gradient: DirichletParams) -> DirichletParams:
        alpha = jnp.exp(self.log_concentration(params))
        logits, log_total = simplex_natural(alpha, self._apart(gradient.logits), gradient.log_total)
        return DirichletParams(logits.reshape(-1), log_total)

    def squared_length(self, params: DirichletParams, step: DirichletParams) -> Array:
        alpha = jnp.exp(self.log_concentration(params))
        return simplex_squared_length(alpha, self._apart(step.logits), step.log_total)

    def log_concentration(self, params: DirichletParams) -> Float[Array, "count size"]:
        """log alpha."""
        return params.log_total[:, None] + jax.nn.log_softmax(self._apart(params.logits), axis=-1)

    def _apart(self, flat: Float[Array, " dim"]) -> Float[Array, "count size"]:
        return flat.reshape(self.count, self.size)


@dataclass(frozen=True)
class Dirichlet:
    """An independent Dirichlet for every simplex (along the last axis) of simplex latents, in constrained space."""

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        require_support("Dirichlet()", "simplex latents", latents, (type(constraints.simplex),))
        # Simplexes of equal size next to each other are computed together.
        order = sorted(latents, key=lambda name: latents[name].shape[-1])
        runs = [(size, list(names)) for size, names in groupby(order, key=lambda name: latents[name].shape[-1])]
        factors = [DirichletFactors(sum(latents[name].size for name in names) // size, size) for size, names in runs]
        return Plan(tuple(order), constrained=True, factors=tuple(factors))


class BetaParams(NamedTuple):
    """(z - low) / (high - low) ~ Beta(A mean, A (1 - mean)), with mean = sigmoid(logit) and A = exp(log_total)."""

    logit: Float[Array, " dim"]
    log_total: Float[Array, " dim"]

    @property
    def log_concentration(self) -> Float[Array, "dim 2"]:
        """The logarithms of the two concentrations, as of a Dirichlet of size two."""
        both = jnp.stack([self.logit, -self.logit], axis=-1)
        return self.log_total[:, None] + jax.nn.log_sigmoid(both)


@dataclass(frozen=True)
class BetaFactors(Factors):
    """``count`` univariate Betas, stretched to the interval from ``low`` to ``high``."""

    size: int = 1
    low: float = 0.0
    high: float = 1.0

    @property
    def width(self) -> float:
        return self.high - self.low

    def init(self, location: Array, scale: Array) -> BetaParams:
        mean = self._unit(location)
        both = jnp.stack([mean, 1 - mean], axis=-1)
        log_alpha = initial_log_concentration(both, 2 * (scale / self.width) ** 2)
        return BetaParams(log_alpha[:, 0] - log_alpha[:, 1], logsumexp(log_alpha, axis=-1))

    def draw(self, key: PRNGKeyArray, params: BetaParams, num_samples: int, antithetic: bool) -> Array:
        refuse_antithetic("Beta", antithetic)
        a, b = jnp.moveaxis(jnp.exp(params.log_concentration), -1, 0)
        unit = jax.random.beta(key, a, b, (num_samples, self.dim), a.dtype)
        return self._inside(self.low + self.width * interior(unit))

    def log_density(self, params: BetaParams, z: Array) -> Array:
        unit = self._unit(z)
        both = jnp.stack([unit, 1 - unit], axis=-1)
        return simplex_log_density(jnp.exp(params.log_concentration), both) - math.log(self.width)

    def path(self, params: BetaParams, z: Array) -> Array:
        unit = jax.lax.stop_gradient(self._unit(z))
        moving = simplex_path(params.log_concentration, jnp.stack([unit, 1 - unit], axis=-1))[..., 0]
        return jax.lax.stop_gradient(z) + self.width * (moving - unit)

    def entropy(self, params: BetaParams) -> Array:
        return simplex_entropy(jnp.exp(params.log_concentration)) + math.log(self.width)

    def natural(self, params: BetaParams, gradient: BetaParams) -> BetaParams:
        """That of a Dirichlet of size two, whose logits differ by ``logit``."""
        both = jnp.stack([gradient.logit, -gradient.logit], axis=-1)
        logits, log_total = simplex_natural(jnp.exp(params.log_concentration), both, gradient.log_total)
        return BetaParams(logits[:, 0] - logits[:, 1], log_total)

    def squared_length(self, params: BetaParams, step: BetaParams) -> Array:
        both = jnp.stack([step.logit, jnp.zeros_like(step.logit)], axis=-1)
        return simplex_squared_length(jnp.exp(params.log_concentration), both, step.log_total)

    def _unit(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        return interior((z - self.low) / self.width)

    def _inside(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Not on the bounds: at least the next representable number away from them (and a normal one at 0)."""
        number = np.dtype(z.dtype).type
        low, high, tiny = number(self.low), number(self.high), np.finfo(number).tiny
        return jnp.clip(z, max(np.nextafter(low, high), low + tiny), min(np.nextafter(high, low), high - tiny))


@dataclass(frozen=True)
class Beta:
    """An independent Beta for every entry of latents between two bounds, in constrained space."""

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        intervals = (type(constraints.interval(0.0, 1.0)),)
        require_support("Beta()", "latents between two bounds", latents, intervals)
        bounds = {name: _bounds(name, latent) for name, latent in latents.items()}
        # Entries with the same bounds next to each other are computed together.
        order = sorted(latents, key=bounds.__getitem__)
        runs = [(ends, list(names)) for ends, names in groupby(order, key=bounds.__getitem__)]
        factors = [
            BetaFactors(sum(latents[name].size for name in names), low=low, high=high) for (low, high), names in runs
        ]
        return Plan(tuple(order), constrained=True, factors=tuple(factors))


def _bounds(name: str, latent: Latent) -> tuple[float, float]:
    low, high = (np.asarray(bound) for bound in (latent.constraint.lower_bound, latent.constraint.upper_bound))
    require(
        low.size == high.size == 1,
        ConfigurationError,
        f"Beta() needs one pair of bounds per latent; latent {name!r} has support {latent.constraint}. Split it "
        "into several latents, or use MeanField() for it.",
    )
    return low.item(), high.item()
