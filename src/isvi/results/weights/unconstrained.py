"""Draws of an approximation in the unconstrained space of its latents, and back.

Gaussians live there already; a Gamma, a Beta or a Dirichlet is over the constrained values themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions.transforms import IdentityTransform

from isvi.core.coordinates import Coordinate, Coordinates, lay_out

Moved = tuple[Float[np.ndarray, "draws entries"], Float[np.ndarray, " draws"]]
"""Draws in the other space, and log|dz/du| with u the unconstrained ones."""


@dataclass(frozen=True)
class Unconstrained:
    """The way between the coordinates z of an approximation and unconstrained ones u."""

    coordinates: Coordinates

    @cached_property
    def plain(self) -> Coordinates:
        """The same latents in the same order, all of them unconstrained."""
        entries = self.coordinates.entries
        return lay_out({entry.name: entry.latent for entry in entries}, [entry.name for entry in entries])

    @cached_property
    def identity(self) -> bool:
        return not any(map(_moves, self.coordinates.entries))

    def enter(self, z: Float[np.ndarray, "draws dim"]) -> Moved:
        """From z to u."""
        return (z, np.zeros(len(z))) if self.identity else self._through(self._entering, z)

    def leave(self, u: Float[np.ndarray, "draws size"]) -> Moved:
        """From u to z."""
        return (u, np.zeros(len(u))) if self.identity else self._through(self._leaving, u)

    def _through(self, way: Callable[[Array], tuple[Array, Array]], draws: np.ndarray) -> Moved:
        with jax.enable_x64(True):
            moved, log_jacobian = jax.device_get(way(jnp.asarray(draws, jnp.float64)))
        return np.array(moved), np.array(log_jacobian)

    @cached_property
    def _entering(self) -> Callable[[Array], tuple[Array, Array]]:
        def one(z: Array) -> tuple[Array, Array]:
            parts, log_jacobians = [], []
            for entry in self.coordinates.entries:
                value = z[entry.start : entry.stop].reshape(entry.shape)
                part = entry.latent.transform.inv(value) if _moves(entry) else value
                parts.append(part.ravel())
                log_jacobians.append(_log_jacobian(entry, part, value))
            return jnp.concatenate(parts), sum(log_jacobians, jnp.zeros((), z.dtype))

        return jax.jit(jax.vmap(one))

    @cached_property
    def _leaving(self) -> Callable[[Array], tuple[Array, Array]]:
        return jax.jit(jax.vmap(self.leaving))

    def leaving(self, u: Float[Array, " size"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """From one u to z, with log|dz/du|, inside of what JAX traces."""
        parts, log_jacobians = [], []
        for entry, plain in zip(self.coordinates.entries, self.plain.entries, strict=True):
            part = u[plain.start : plain.stop].reshape(plain.shape)
            value = entry.latent.transform(part) if _moves(entry) else part
            parts.append(value.ravel())
            log_jacobians.append(_log_jacobian(entry, part, value))
        return jnp.concatenate(parts), sum(log_jacobians, jnp.zeros((), u.dtype))


def _moves(entry: Coordinate) -> bool:
    """Whether an entry is not already unconstrained."""
    return entry.constrained and not isinstance(entry.latent.transform, IdentityTransform)


def _log_jacobian(entry: Coordinate, part: Array, value: Array) -> Array:
    if not _moves(entry):
        return jnp.zeros((), part.dtype)
    return jnp.sum(entry.latent.transform.log_abs_det_jacobian(part, value))
