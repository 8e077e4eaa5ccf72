"""Integrals over local latents, taken again in two ways: with more nodes, and with points everywhere.

More nodes around the same mode tell how precise the integral is there. That there is mass which none of the nodes
reaches, another mode or a long tail, only points elsewhere can tell.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isvi.data.groups.packs import Pack
from isvi.model.local.marginal import Marginal

POINTS_EACH = 32
"""Of each Gaussian."""
MISSED = 0.1
"""The share of a group's mass that nodes may not reach before the points' integral is taken for the better one, if that
is also ``SURELY`` standard errors of theirs: one group in a million is taken wrongly."""
SURELY = 5.0


class Comparison(NamedTuple):
    """By group.

    Attributes:
        off: by how many nats the log of the integral is off: its better value minus that of the fit.
        lost: whether no mode was found.
        elsewhere: whether there is mass that nodes around the mode do not reach.
    """

    off: Float[Array, " groups"]
    lost: Bool[Array, " groups"]
    elsewhere: Bool[Array, " groups"]


def compare(marginal: Marginal, z: Mapping[str, Array], pack: Pack) -> Comparison:
    """Of a pack's groups, at one value of the global latents; differentiable in it as the integrals are. Groups that
    only fill the pack are off by 0."""
    rule, finer = marginal.rule, marginal.rule.finer()
    gaussians, modes = marginal.gaussians(z, pack)
    if rule.everywhere:
        few, many = (marginal.everywhere(gaussians, z, pack, one.count) for one in (rule, finer))
        better, elsewhere = many.log_integral, jnp.zeros(pack.number.shape, bool)
    else:
        few, many = (marginal.with_rule(one).around(modes, z, pack) for one in (rule, finer))
        wide = marginal.everywhere(gaussians, z, pack, POINTS_EACH)
        elsewhere = _missed(wide.log_integral - many.log_integral, wide.log_weights)
        better = jnp.where(elsewhere, wide.log_integral, many.log_integral)
    real = pack.number >= 0
    return Comparison(jnp.where(real, better - few.log_integral, 0.0), real & ~few.found, real & elsewhere)


def _missed(log_ratio: Float[Array, " groups"], log_weights: Float[Array, "points groups"]) -> Bool[Array, " groups"]:
    """Whether the points' integral, which is ``exp(log_ratio)`` of the other, is surely larger or smaller."""
    count = log_weights.shape[0]
    relative = jnp.sqrt(jnp.maximum(count * jnp.sum(jnp.exp(2 * log_weights), axis=0) - 1, 0) / count)
    ratio = jnp.exp(jnp.clip(log_ratio, -50, 50))
    return jnp.abs(ratio - 1) > jnp.maximum(MISSED, SURELY * relative * ratio)
