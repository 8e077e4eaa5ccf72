"""Importance weights: what a stored draw counts under today's parameters."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record

WeightMode = Literal["exact", "paper", "none"]


class Weighting(NamedTuple):
    """How records are weighted.

    Per factor, ``w_ms = q_s(z_ms; today) / q_s(z_ms; when drawn)``. This treats the draws of the other factors
    as if they came from today's q, so it has a bias that vanishes as the parameters come together, and far
    less variance than the joint weight ``w_m = prod_s w_ms``, which is unbiased.
    """

    approximation: Approximation
    mode: WeightMode
    per_factor: bool
    max_weight: float | None
    self_normalize: bool

    def density(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        """The log density whose ratios are the weights. The paper leaves the ratio of Jacobians out."""
        if self.mode == "paper":
            return self.approximation.base_log_density(params, z)
        return self.approximation.log_density(params, z)

    def log_ratios(self, params: Params, records: Record) -> Float[Array, "records draws factors"]:
        """Logarithms of the ratios, factor by factor, of today's density to the one at the time of drawing."""
        density_now = jax.vmap(jax.vmap(self.density, (None, 0)), (None, 0))
        return density_now(params, records.draws) - records.log_density

    def raw(self, params: Params, records: Record) -> Float[Array, "records draws factors"]:
        """Weights before capping and normalisation: their spread tells the records' health."""
        if self.mode == "none":
            return jnp.ones_like(records.log_density)
        log_ratio = self.log_ratios(params, records)
        if not self.per_factor:
            log_ratio = jnp.broadcast_to(log_ratio.sum(axis=-1, keepdims=True), log_ratio.shape)
        # Empty slots weigh 1 and have no share: an overflow there would make 0 times infinity.
        return jnp.exp(jnp.where(records.share[:, None, None] > 0, log_ratio, 0))

    def coefficients(self, params: Params, records: Record) -> Float[Array, "records draws factors"]:
        """What each draw's gradient is multiplied with: capped, normalised weights times shares. With weights
        of 1 they sum to 1 over records and draws."""
        weights = self.raw(params, records)
        if self.max_weight is not None:
            weights = jnp.minimum(weights, self.max_weight)
        weights = weights * records.share[:, None, None]
        if self.self_normalize:
            total = weights.sum(axis=(0, 1))
            # A factor whose weights have all died contributes nothing rather than 0/0.
            return weights / jnp.where(total > 0, total, 1)
        return weights / (records.draws.shape[1] * total_share(records))


def total_share(records: Record) -> Float[Array, ""]:
    """The fraction of the mini-batches that the records cover; 1 when there are none yet."""
    total = records.share.sum()
    return jnp.where(total > 0, total, 1)


class WeightHealth(NamedTuple):
    """How usable a record still is."""

    effective: Float[Array, ""]
    """Effective sample size of the weights as a fraction of the draws, over all factors; 1 when fresh."""
    divergence: Float[Array, ""]
    """KL from the parameters that drew the record to today's, per factor, estimated from the draws."""
    largest: Float[Array, ""]
    """The largest weight."""


def weight_health(weights: Float[Array, "records draws factors"]) -> WeightHealth:
    """Summaries of raw weights.

    With the mean weight known to be 1, the effective fraction is 1 / E[w^2], here pooled over draws and
    factors so that it says something at M = 1 too. The divergence is the mean of ``w - 1 - log w``: it is
    never negative and has expectation KL(q_old || q_today).
    """
    tiny = jnp.finfo(weights.dtype).tiny
    return WeightHealth(
        effective=jnp.minimum(jnp.mean(weights), 1) ** 2 / jnp.maximum(jnp.mean(weights**2), tiny),
        divergence=jnp.mean(weights - 1 - jnp.log(jnp.maximum(weights, tiny))),
        largest=jnp.max(weights),
    )
