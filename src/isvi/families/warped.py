"""A Gaussian that is bent: skewed, with tails of its own, with scales that depend on other latents: ``Warped``.

z = loc + M u, and entry by entry, in an order in which those that drive others come first,

    u_i = h_i(eps_i) exp(a_i . eps_<i) + b_i . (eps_<i^2 - 1),
    h(eps) = sinh(t y + k (sqrt(1 + y^2) - 1)),  y = asinh(eps),  |k| < t.

h is monotone; its tails grow as the powers t + k on the right and t - k on the left of those of the noise, so that k is
skewness and t is weight in both tails. The a are funnels, such as coefficients whose width is that of the noise scale,
and the b are bananas. With t = 1 and everything else 0 it is a Gaussian. All of it has a closed inverse, one entry
after the other, and as the noise has mean 0, its entropy needs one-dimensional integrals only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.core.latents import Latent
from isvi.families.base import Plan
from isvi.families.location_scale import LocationScale

NODES = np.linspace(-9.0, 9.0, 73)
"""Of the integrals over the noise. The integrand's singularities nearest to the line are at +-i, so that the error of
the trapezoidal rule at this spacing is exp(-2 pi / 0.25), less than 1e-10."""
NODE_WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()

FARTHEST, MOST_STRETCHED = 1e4, 60.0
"""Of a point that no draw is near, the noise is not found beyond this, nor with a larger exponent: what matters is
that its density is nothing, and not that it is no number."""


def _fisher_of_one() -> np.ndarray:
    """The Fisher information of one entry's shift, stretch, skew and tail where h is the identity: of velocities v of
    the noise, whose scores are eps v - v'."""
    y, root = np.arcsinh(NODES), np.sqrt(1 + NODES**2)
    arc, ones = np.sqrt(1 + y**2), np.ones_like(NODES)
    velocities = np.stack([ones, NODES, root * (arc - 1), root * y])
    slopes = np.stack([0 * ones, ones, NODES / root * (arc - 1) + y / arc, NODES / root * y + 1])
    scores = NODES * velocities - slopes
    return (scores * NODE_WEIGHTS) @ scores.T


FISHER = _fisher_of_one()


class WarpedParams(NamedTuple):
    """z = loc + M u. Of ``scales`` and ``bends``, only what is below the diagonal counts."""

    loc: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]
    """M, with any entries: rows are entries of z, columns those of u."""
    skew: Float[Array, " dim"]
    """k = t tanh(skew)."""
    tail: Float[Array, " dim"]
    """log t."""
    scales: Float[Array, "dim dim"]
    """The rows are a_i."""
    bends: Float[Array, "dim dim"]
    """The rows are b_i."""


class Tails(NamedTuple):
    """h of one entry, or of many."""

    both: Array
    """t."""
    skewed: Array
    """k."""

    @classmethod
    def of(cls, params: WarpedParams) -> "Tails":
        both = jnp.exp(params.tail)
        return cls(both, both * jnp.tanh(params.skew))

    def __call__(self, noise: Array) -> Array:
        return jnp.sinh(self._angle(jnp.arcsinh(noise)))

    def inverse(self, value: Array) -> Array:
        """Of t y + k (sqrt(1 + y^2) - 1) = asinh(value), the quadratic's root on the right branch."""
        angle, room = jnp.arcsinh(value) + self.skewed, self.both**2 - self.skewed**2
        return jnp.sinh((self.both * angle - self.skewed * jnp.sqrt(angle**2 + room)) / room)

    def log_slope(self, noise: Array) -> Array:
        """log h'(eps)."""
        y = jnp.arcsinh(noise)
        angle = jnp.abs(self._angle(y))
        log_cosh = angle + jnp.log1p(jnp.exp(-2 * angle)) - np.log(2)
        return log_cosh + jnp.log(self.both + self.skewed * y / jnp.sqrt(1 + y**2)) - 0.5 * jnp.log1p(noise**2)

    def _angle(self, y: Array) -> Array:
        return self.both * y + self.skewed * (jnp.sqrt(1 + y**2) - 1)


@dataclass(frozen=True)
class WarpedGaussian(LocationScale):
    """One bent Gaussian of ``size`` dimensions."""

    def init(self, location: Array, scale: Array) -> WarpedParams:
        return self.straight(location, jnp.diag(scale))

    def straight(self, location: Array, factor: Array) -> WarpedParams:
        """The Gaussian z = location + factor eps."""
        none, nothing = jnp.zeros_like(location), jnp.zeros_like(factor)
        return WarpedParams(location, factor, none, none, nothing, nothing)

    def transform(self, params: WarpedParams, noise: Array) -> Array:
        scales, bends = jnp.tril(params.scales, -1), jnp.tril(params.bends, -1)
        bent = Tails.of(params)(noise) * jnp.exp(scales @ noise) + bends @ (noise**2 - 1)
        return params.loc + params.factor @ bent

    def standardize(self, params: WarpedParams, z: Array) -> Array:
        bent = jnp.linalg.solve(params.factor, z - params.loc)
        tails, numbers = Tails.of(params), jnp.arange(self.size)

        def one_more(noise: Array, entry: tuple) -> tuple[Array, None]:
            # Entries that are not known yet are 0, and of their squares nothing is counted.
            number, value, scales, bends, own = entry
            known = numbers < number
            shift = bends @ jnp.where(known, noise**2 - 1, 0)
            stretch = jnp.clip(scales @ jnp.where(known, noise, 0), -MOST_STRETCHED, MOST_STRETCHED)
            found = own.inverse((value - shift) * jnp.exp(-stretch))
            return noise.at[number].set(jnp.clip(found, -FARTHEST, FARTHEST)), None

        entries = (numbers, bent, params.scales, params.bends, tails)
        return jax.lax.scan(one_more, jnp.zeros_like(bent), entries)[0]

    def log_jacobian(self, params: WarpedParams, z: Array) -> Array:
        noise = self.standardize(params, z)
        stretched = Tails.of(params).log_slope(noise) + jnp.tril(params.scales, -1) @ noise
        return (self._log_determinant(params) + jnp.sum(stretched))[None]

    def location(self, params: WarpedParams) -> Array:
        """A point in the middle of it: where the noise is 0."""
        return self.transform(params, jnp.zeros_like(params.loc))

    def along_axes(self, params: WarpedParams, z: Array, gradient: Array) -> Array:
        """Along the columns of M: what the ELBO gains as ``loc`` moves."""
        return params.factor.T @ gradient

    def log_density(self, params: WarpedParams, z: Array) -> Array:
        # The noise is found once, as it is found one entry after the other.
        noise = self.standardize(params, z)
        stretched = Tails.of(params).log_slope(noise) + jnp.tril(params.scales, -1) @ noise
        return self.base_log_prob(params, noise) - (self._log_determinant(params) + jnp.sum(stretched))[None]

    def entropy(self, params: WarpedParams) -> Array:
        nodes = jnp.asarray(NODES, params.loc.dtype)[:, None]
        stretched = jnp.asarray(NODE_WEIGHTS, params.loc.dtype) @ Tails.of(params).log_slope(nodes)
        straight = 0.5 * self.size * np.log(2 * np.pi * np.e)
        return (straight + self._log_determinant(params) + jnp.sum(stretched))[None]

    def natural(self, params: WarpedParams, gradient: WarpedParams) -> WarpedParams:
        """With the Fisher information of the unbent q, which is block diagonal in moves of its own: loc by M, and M to
        M (1 + D) with D lower triangular. A bent q has about the same one."""
        shift, spread = params.factor.T @ gradient.loc, params.factor.T @ gradient.factor
        own = jnp.stack([shift, jnp.diagonal(spread), gradient.skew, gradient.tail])
        own = jnp.asarray(np.linalg.inv(FISHER), own.dtype) @ own
        return WarpedParams(
            loc=params.factor @ own[0],
            factor=params.factor @ (jnp.tril(spread, -1) + jnp.diag(own[1])),
            skew=own[2],
            tail=own[3],
            scales=jnp.tril(gradient.scales, -1) / 2,
            bends=jnp.tril(gradient.bends, -1) / 2,
        )

    def squared_length(self, params: WarpedParams, step: WarpedParams) -> Array:
        moves = jnp.linalg.solve(params.factor, jnp.column_stack([step.loc, step.factor]))
        shift, spread = moves[:, 0], jnp.tril(moves[:, 1:])
        own = jnp.stack([shift, jnp.diagonal(spread), step.skew, step.tail])
        alone = jnp.sum(own * (jnp.asarray(FISHER, own.dtype) @ own))
        shared = jnp.tril(spread, -1) ** 2 + 2 * jnp.tril(step.scales, -1) ** 2 + 2 * jnp.tril(step.bends, -1) ** 2
        return (alone + jnp.sum(shared))[None]

    def _log_determinant(self, params: WarpedParams) -> Array:
        return jnp.linalg.slogdet(params.factor)[1]


@dataclass(frozen=True)
class Warped:
    """A bent Gaussian over all latents, in unconstrained space: skewness, tails, funnels and bananas.

    Where all data is one mini-batch and there are at most 50 entries of latents, ``isvi.fit`` fits a Gaussian first,
    and bends it by the records that it has then.

    Attributes:
        always: whether it is kept in any case; else only if draws that it was not fitted to say that it is better than
            the Gaussian. The latter is what ``isvi.fit`` does if no family is named.
    """

    always: bool = True

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        dim = sum(latent.unconstrained_size for latent in latents.values())
        return Plan(tuple(latents), constrained=False, factors=(WarpedGaussian(1, dim),))
