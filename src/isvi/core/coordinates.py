"""Coordinates: the flat vector z that an approximation is over, and its meaning for the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.core.errors import ModelError, require
from isvi.core.latents import Latent


@dataclass(frozen=True)
class Coordinate:
    """Where one latent sits in the flat vector, and in which space.

    A Gaussian approximates the unconstrained value, so the model's density then includes the Jacobian
    of the transform. A Gamma or a Dirichlet approximates the constrained value itself.
    """

    name: str
    latent: Latent
    constrained: bool
    start: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.latent.shape if self.constrained else self.latent.unconstrained_shape

    @property
    def stop(self) -> int:
        return self.start + int(np.prod(self.shape, dtype=int))

    def decode(self, z: Float[Array, " dim"]) -> tuple[Array, Array]:
        """The constrained value, and the log-determinant of the Jacobian of getting there."""
        part = z[self.start : self.stop].reshape(self.shape)
        if self.constrained:
            return part, jnp.zeros((), z.dtype)
        value = self.latent.transform(part)
        return value, jnp.sum(self.latent.transform.log_abs_det_jacobian(part, value))

    def encode(self, value: Array) -> Array:
        """The flat entries of a constrained value."""
        part = value if self.constrained else self.latent.transform.inv(value)
        return jnp.ravel(part)


@dataclass(frozen=True)
class Coordinates:
    """The flat vector as a whole."""

    entries: tuple[Coordinate, ...]

    @property
    def size(self) -> int:
        return self.entries[-1].stop

    def decode(self, z: Float[Array, " dim"]) -> tuple[dict[str, Array], Float[Array, ""]]:
        """Named constrained values, and the summed log-determinant."""
        decoded = {entry.name: entry.decode(z) for entry in self.entries}
        log_determinant = sum((log_det for _, log_det in decoded.values()), jnp.zeros((), z.dtype))
        return {name: value for name, (value, _) in decoded.items()}, log_determinant

    def encode(self, values: Mapping[str, Array]) -> Float[Array, " dim"]:
        """The flat vector of named constrained values (of one draw)."""
        return jnp.concatenate([entry.encode(values[entry.name]) for entry in self.entries])

    def constrain(self, draws: Float[Array, "draws dim"]) -> dict[str, Array]:
        """Named constrained values of many draws, with a leading axis."""
        return jax.vmap(lambda z: self.decode(z)[0])(draws)

    def labels(self) -> list[str]:
        """A name for every entry of the flat vector, such as ``w[3]``."""
        return [label for entry in self.entries for label in entry_labels(entry.name, entry.shape)]


def entry_labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """``["w[0]", "w[1]"]`` for a vector, ``["tau"]`` for a scalar."""
    if shape == ():
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(shape)]


def lay_out(
    latents: Mapping[str, Latent], order: Sequence[str], constrained: frozenset[str] = frozenset()
) -> Coordinates:
    """Put latents one behind the other, in the given order."""
    require(
        sorted(order) == sorted(latents),
        ModelError,
        f"Every latent must appear exactly once: expected {sorted(latents)}, got {sorted(order)}.",
    )
    entries: list[Coordinate] = []
    for name in order:
        start = entries[-1].stop if entries else 0
        entries.append(Coordinate(name, latents[name], name in constrained, start))
    return Coordinates(tuple(entries))
