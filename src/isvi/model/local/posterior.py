"""A group's latents given the global ones: moments by the nodes of the integral, and draws."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from isvi.data.groups.packs import Pack
from isvi.model.local.marginal import Marginal, spread
from isvi.model.local.newton import Modes
from isvi.model.local.nodes import WIDENING

CANDIDATES = 64
"""From which a draw is picked by importance weights. A group's posterior is near a Gaussian, so that most of them
count, and the draw's distribution is off by about one part in as many."""


class Given(NamedTuple):
    """Local latents of each group, given one value of the global ones; all in constrained space.

    Attributes:
        draw: one draw.
        mean: the mean.
        square: the mean of the square.
        effective: the share of the draw's candidates that counted.
    """

    draw: dict[str, Array]
    mean: dict[str, Array]
    square: dict[str, Array]
    effective: Float[Array, " groups"]


def given(marginal: Marginal, key: PRNGKeyArray, z: Mapping[str, Array], pack: Pack) -> Given:
    """The posterior of the local latents of every group at one value of the global ones."""
    modes = None if marginal.rule.everywhere else marginal.modes(z, pack)
    integrals = marginal.integrate(z, pack) if modes is None else marginal.around(modes, z, pack)
    weights = jnp.exp(integrals.log_weights)
    values = jax.vmap(jax.vmap(lambda at: marginal.coordinates.decode(at)[0]))(integrals.nodes)
    mean = {name: _averaged(weights, value) for name, value in values.items()}
    square = {name: _averaged(weights, value**2) for name, value in values.items()}
    noise_key, pick_key = jax.random.split(key)
    # Nodes of a quadrature are no draws; points everywhere are.
    candidates, log_weights = (
        (integrals.nodes, integrals.log_weights) if modes is None else _candidates(marginal, noise_key, z, modes, pack)
    )
    picked = jax.random.categorical(pick_key, log_weights, axis=0)
    drawn = jnp.take_along_axis(candidates, picked[None, :, None], axis=0)[0]
    draw = jax.vmap(lambda at: marginal.coordinates.decode(at)[0])(drawn)
    effective = 1 / jnp.sum(jnp.exp(2 * log_weights), axis=0) / len(candidates)
    return Given(draw, mean, square, effective)


def _candidates(
    marginal: Marginal, key: PRNGKeyArray, z: Mapping[str, Array], modes: Modes, pack: Pack
) -> tuple[Float[Array, "candidates groups size"], Float[Array, "candidates groups"]]:
    """Draws around each group's mode, and the logs of their weights, which sum to 1."""
    noise = jax.random.normal(key, (CANDIDATES, *modes.location.shape), modes.location.dtype)
    candidates = spread(modes, WIDENING * noise)
    log_joint = jax.vmap(lambda at: marginal.log_joint(z, at, pack))(candidates)
    return candidates, jax.nn.log_softmax(log_joint + 0.5 * jnp.sum(noise**2, axis=-1), axis=0)


def _averaged(weights: Float[Array, "nodes groups"], values: Array) -> Array:
    return jnp.einsum("sg,sg...->g...", weights, values)
