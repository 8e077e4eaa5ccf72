"""The log likelihood of whole groups with their local latents integrated out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from isvi.core.coordinates import Coordinates, lay_out
from isvi.core.latents import Latent
from isvi.data.groups.packs import Pack, each_row
from isvi.model.local.everywhere import START, components, points_of
from isvi.model.local.newton import Modes, find_modes
from isvi.model.local.nodes import Nodes
from isvi.model.local.small import log_determinant, solve_upper

Density = Callable[..., Array]

VALUES_AT_ONCE = 2**23
"""Rows times nodes: 64 MB for each intermediate number of a row in double precision."""
NEGLIGIBLE = 60.0
"""Nats below the heaviest point at which a point does not count."""
STEPS_COST = 10
"""Evaluations per dimension that Newton's steps are worth."""


class Integrals(NamedTuple):
    """What was found about each group, at one value of the global latents.

    Attributes:
        log_integral: log of the integral over the group's latents.
        nodes: where it was evaluated, in unconstrained coordinates.
        log_weights: of the nodes, as draws of the group's latents given the global ones; their exponentials sum to 1.
        found: whether the group has a mode, and Newton's method came to rest there.
    """

    log_integral: Float[Array, " groups"]
    nodes: Float[Array, "nodes groups size"]
    log_weights: Float[Array, "nodes groups"]
    found: Bool[Array, " groups"]


@dataclass(frozen=True)
class Marginal:
    """``sum_j log integral p(u_j | z) p(x_j | z, u_j) du_j`` over the groups j of a pack, or the rows of a batch.

    The nodes and their Gaussian are held constant for the gradient, which then is the average of the gradients of
    ``log p(x_j, u | z)`` over the nodes, weighted as draws of u_j given x_j and z: Fisher's identity.

    Attributes:
        local: the latents of one group.
        log_local_prior: of them, given the global ones.
        log_row: the log likelihood of one row, given both.
        rule: where the integral is evaluated.
    """

    local: Mapping[str, Latent]
    log_local_prior: Density
    log_row: Density
    rule: Nodes

    def __call__(self, z: Mapping[str, Array], batch: Any) -> Float[Array, ""]:
        pack = as_pack(batch)
        return jnp.sum(jnp.where(pack.number >= 0, self.integrate(z, pack).log_integral, 0.0))

    @cached_property
    def coordinates(self) -> Coordinates:
        """Of one group's latents, unconstrained."""
        return lay_out(self.local, list(self.local))

    def with_rule(self, rule: Nodes) -> "Marginal":
        return replace(self, rule=rule)

    @property
    def evaluations_per_row(self) -> int:
        """About how often a row is evaluated for one integral, to tell what a pass over the data costs."""
        return self.rule.total + STEPS_COST * (1 + self.coordinates.size)

    def integrate(self, z: Mapping[str, Array], pack: Pack) -> Integrals:
        """The integrals of all groups, and what they were computed from."""
        if self.rule.everywhere:
            return self.everywhere(self.gaussians(z, pack)[0], z, pack, self.rule.count)
        return self.around(self.modes(jax.lax.stop_gradient(dict(z)), pack), z, pack)

    def around(self, modes: Modes, z: Mapping[str, Array], pack: Pack) -> Integrals:
        """The integrals, given the modes."""
        modes = jax.tree.map(jax.lax.stop_gradient, modes)
        points, log_weights = self.rule.at(pack.number, modes.location.dtype)
        nodes = jax.lax.stop_gradient(spread(modes, points))
        values = self._log_joints(z, nodes, pack) + log_weights
        log_integral = logsumexp(values, axis=0)
        log_determinants = log_determinant(modes.precision)
        return Integrals(log_integral - log_determinants, nodes, values - log_integral, modes.found)

    def gaussians(self, z: Mapping[str, Array], pack: Pack) -> tuple[Modes, Modes]:
        """Where a group's mass may be, along a first axis; and its mode as :meth:`modes` finds it."""
        z = jax.lax.stop_gradient(dict(z))
        dtype = jnp.result_type(float, *jax.tree.leaves(z))
        shape = (pack.number.shape[0], self.coordinates.size)
        return components(lambda at: self.log_joint(z, at, pack), lambda at: self.log_prior(z, at), shape, dtype)

    def everywhere(self, gaussians: Modes, z: Mapping[str, Array], pack: Pack, count: int) -> Integrals:
        """The integrals by ``count`` points of each Gaussian."""
        points = jax.lax.stop_gradient(points_of(gaussians, pack.number, count))
        # Far out a density may overflow, and the gradient of what is infinite is not a number, whatever its weight:
        # such points are evaluated where the best one is, and then do not count.
        before = self._log_joints(jax.lax.stop_gradient(dict(z)), points.at, pack) - points.log_density
        counts = before > jnp.max(jnp.where(jnp.isnan(before), -jnp.inf, before), axis=0) - NEGLIGIBLE
        best = jnp.argmax(jnp.where(counts, before, -jnp.inf), axis=0)
        there = jnp.take_along_axis(points.at, best[None, :, None], axis=0)
        values = self._log_joints(z, jnp.where(counts[..., None], points.at, there), pack) - points.log_density
        values = jnp.where(counts, values, -jnp.inf)
        total = logsumexp(values, axis=0)
        return Integrals(total - jnp.log(len(values)), points.at, values - total, gaussians.found[:-1].any(axis=0))

    def modes(self, z: Mapping[str, Array], pack: Pack) -> Modes:
        """Of each group's latents given the global ones, and the curvature there."""
        dtype = jnp.result_type(float, *jax.tree.leaves(dict(z)))
        start = jnp.full((pack.number.shape[0], self.coordinates.size), START, dtype)
        return find_modes(lambda at: self.log_joint(z, at, pack), start)

    def _log_joints(self, z: Mapping[str, Array], nodes: Float[Array, "nodes groups size"], pack: Pack) -> Array:
        """At each node: all at once, or, for very long groups, some at a time, and once more for their gradients."""

        def at_node(at: Array) -> Array:
            return self.log_joint(z, at, pack)

        bearable = VALUES_AT_ONCE // pack.there.size
        if bearable >= len(nodes):
            return jax.vmap(at_node)(nodes)
        return jax.lax.map(jax.checkpoint(at_node), nodes, batch_size=max(1, bearable))

    def log_joint(self, z: Mapping[str, Array], at: Float[Array, "groups size"], pack: Pack) -> Float[Array, " groups"]:
        """``log p(x_j, u_j | z)`` of each group at its own point, with the Jacobians of the constraints."""
        values, _ = jax.vmap(self.coordinates.decode)(at)
        of_piece = values if pack.group is None else jax.tree.map(lambda a: a[pack.group], values)

        def piece(u: dict[str, Array], rows: Any, there: Array) -> Array:
            return jnp.sum(jnp.where(there, jax.vmap(lambda row: self.log_row({**z, **u}, row))(rows), 0.0))

        likelihood = jax.vmap(piece)(of_piece, pack.rows, pack.there)
        if pack.group is not None:
            likelihood = jax.ops.segment_sum(likelihood, pack.group, at.shape[0])
        return self.log_prior(z, at) + likelihood

    def log_prior(self, z: Mapping[str, Array], at: Float[Array, "groups size"]) -> Float[Array, " groups"]:
        """``log p(u_j | z)``, with the Jacobians of the constraints."""
        values, log_jacobian = jax.vmap(self.coordinates.decode)(at)
        return jax.vmap(lambda u: self.log_local_prior({**z, **u}))(values) + log_jacobian


def as_pack(batch: Any) -> Pack:
    """Rows that are in no groups are a group each."""
    return batch if isinstance(batch, Pack) else each_row(batch)


def spread(modes: Modes, points: Float[Array, "nodes groups size"]) -> Float[Array, "nodes groups size"]:
    """Points around each group's mode: ``mode + lower^-T point`` has covariance ``(lower lower^T)^-1``."""
    return modes.location + jax.vmap(lambda point: solve_upper(modes.precision, point))(points)
