"""Directions along which many entries of the latents move together.

An intercept against the effects of ten thousand groups, a scale against the size of all of them: such directions have
the largest and the smallest curvatures of a large model, and no entry shows them on its own. Most of them are spanned
by few vectors: every entry of a small latent; and for a large one its *shift*, all entries by as much, and its
*spread*, all of them away from their mean. A matrix with few columns has both for every column.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from isvi.core.coordinates import Coordinate, Coordinates
from isvi.families.approximation import Approximation
from isvi.families.base import Params

MOST_SMALL = 64
"""Entries of small latents, together. The smallest latents come first; any other is a large one."""
MOST_COLUMNS = 16
"""Columns of a large latent that have directions of their own; those of a wider one move together."""
MOST_LARGE = 32
"""Columns of large latents with directions, together."""
SHARED, STANDS_OUT = 0.2, 5.0
"""How far draws move along the shift and the spread of a large latent, at most, in standard deviations of its entries
(root mean square); less for very many, so that its curvature is this many times the noise of all of them. Every entry
has that much less noise of its own: its variance stays what it is."""
MOST_SHARED = 0.5
"""The largest share of an entry's variance that is not its own."""
RADII = ((1 - (2 / 3) ** 0.5) ** 0.5, (1 + 3 * (2 / 3) ** 0.5) ** 0.5)
"""An entry's noise is a sign times one of these, the second with probability 1/4: its squares have mean 1 and its
fourth powers mean 3, as a normal number's. What many entries share adds up the smallest bias of each: with signs
alone, ten thousand effects of groups put their scale more than a standard deviation off."""


@dataclass(frozen=True)
class _Part:
    """A latent's place in the flat vector, as rows and columns."""

    start: int
    stop: int
    shape: tuple[int, ...]
    axis: int
    """The axis that is summed over."""
    columns: int
    small: bool

    def rows(self, vector: Float[Array, " dim"]) -> Float[Array, "rows columns"]:
        part = vector[self.start : self.stop].reshape(self.shape)
        return jnp.moveaxis(part, self.axis, 0).reshape(self.shape[self.axis], -1)

    def flat(self, rows: Float[Array, "rows columns"]) -> Float[Array, " entries"]:
        others = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        return jnp.moveaxis(rows.reshape(self.shape[self.axis], *others), 0, self.axis).ravel()


@dataclass(frozen=True)
class Collective:
    """The span V of these directions. Coefficients are those of the small latents' entries, in their order; then the
    shifts of the large latents' columns, and then their spreads."""

    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, coordinates: Coordinates) -> "Collective":
        parts: list[_Part] = []
        small_left, large_left = MOST_SMALL, MOST_LARGE
        for entry in sorted(coordinates.entries, key=lambda one: one.stop - one.start):
            part = _part(entry, small_left, large_left)
            small_left -= part.columns if part.small else 0
            large_left -= 0 if part.small else part.columns
            parts.append(part)
        return cls(tuple(sorted(parts, key=lambda part: part.start)))

    @property
    def small(self) -> int:
        """How many coefficients are those of small latents."""
        return sum(part.columns for part in self.parts if part.small)

    @property
    def large(self) -> int:
        """How many columns of large latents have a shift and a spread."""
        return sum(part.columns for part in self.parts if not part.small)

    @property
    def size(self) -> int:
        return self.small + 2 * self.large

    @property
    def counts(self) -> Float[np.ndarray, " size"]:
        """How many entries move along every direction of a large latent; 0 for those of small ones."""
        large = [[part.shape[part.axis]] * part.columns for part in self.parts if part.columns and not part.small]
        both = 2 * [one for columns in large for one in columns]
        return np.asarray([0] * self.small + both, np.float32)

    def spread(self, location: Float[Array, " dim"], precision: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The vector whose columns are the spreads: how far every entry is from the mean of its column, weighted by
        these precisions, so that shifts and spreads are orthogonal in them. 0 for small latents."""

        def centred(part: _Part) -> Array:
            rows, weights = part.rows(location), part.rows(precision)
            return part.flat(rows - (rows * weights).sum(axis=0) / weights.sum(axis=0))

        return jnp.concatenate(
            [
                centred(part) if part.columns and not part.small else jnp.zeros(part.stop - part.start, location.dtype)
                for part in self.parts
            ]
        )

    def down(self, vector: Float[Array, " dim"], spread: Float[Array, " dim"]) -> Float[Array, " size"]:
        """V' x."""
        return jnp.concatenate([self._small(vector), self._sums(vector), self._sums(vector * spread)])

    def squares(self, precision: Float[Array, " dim"], spread: Float[Array, " dim"]) -> Float[Array, " size"]:
        """v' D v of every direction, with D the diagonal matrix of these precisions; in its metric they are
        orthogonal."""
        found = [self._small(precision), self._sums(precision), self._sums(precision * spread**2)]
        return jnp.maximum(jnp.concatenate(found), jnp.finfo(precision.dtype).tiny)

    def with_small(self, vector: Float[Array, " dim"], small: Float[Array, " small"]) -> Float[Array, " dim"]:
        """The vector with these numbers as the entries of small latents."""
        pieces, at = [], 0
        for part in self.parts:
            pieces.append(small[at : at + part.columns] if part.small else vector[part.start : part.stop])
            at += part.columns if part.small else 0
        return jnp.concatenate(pieces)

    def up(self, coefficients: Float[Array, " size"], spread: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """V c."""
        small, shifts, spreads = jnp.split(coefficients, [self.small, self.small + self.large])
        return self._laid_out(small, shifts) + spread * self._laid_out(jnp.zeros_like(small), spreads)

    def up_squares(self, coefficients: Float[Array, " size"], spread: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The sum of squares of what every direction moves an entry by; small latents stay out of it."""
        small, shifts, spreads = jnp.split(coefficients**2, [self.small, self.small + self.large])
        nothing = jnp.zeros_like(small)
        return self._laid_out(nothing, shifts) + spread**2 * self._laid_out(nothing, spreads)

    def _small(self, vector: Float[Array, " dim"]) -> Float[Array, " small"]:
        pieces = [vector[part.start : part.stop] for part in self.parts if part.small]
        return jnp.concatenate([jnp.zeros(0, vector.dtype), *pieces])

    def _sums(self, vector: Float[Array, " dim"]) -> Float[Array, " large"]:
        pieces = [part.rows(vector).sum(axis=0) for part in self.parts if part.columns and not part.small]
        return jnp.concatenate([jnp.zeros(0, vector.dtype), *pieces])

    def _laid_out(self, small: Float[Array, " small"], large: Float[Array, " large"]) -> Float[Array, " dim"]:
        """One number for every entry of a small latent, and one for every column of a large one."""
        pieces, at_small, at_large = [], 0, 0
        for part in self.parts:
            if part.small:
                pieces.append(small[at_small : at_small + part.columns])
                at_small += part.columns
            elif part.columns:
                own = large[at_large : at_large + part.columns]
                pieces.append(part.flat(jnp.broadcast_to(own, (part.shape[part.axis], part.columns))))
                at_large += part.columns
            else:
                pieces.append(jnp.zeros(part.stop - part.start, small.dtype))
        return jnp.concatenate(pieces)


def _part(entry: Coordinate, small_left: int, large_left: int) -> _Part:
    size, shape = entry.stop - entry.start, entry.shape or (1,)
    if size <= small_left:
        return _Part(entry.start, entry.stop, (size,), 0, size, small=True)
    axis = int(np.argmax(shape))
    columns = size // shape[axis]
    if columns > min(MOST_COLUMNS, large_left):
        shape, axis, columns = (size,), 0, min(1, large_left)
    return _Part(entry.start, entry.stop, tuple(shape), axis, columns, small=False)


def draw_collective(
    key: PRNGKeyArray, approximation: Approximation, collective: Collective, params: Params, num_samples: int
) -> Float[Array, "draws dim"]:
    """Mirrored draws of independent Gaussians, made of signs with two radii, that move along shifts and spreads too.
    Means, variances and, for what is an entry's own, fourth moments are those of q."""
    location, scale = approximation.location(params), approximation.scale(params)
    own_key, shared_key = jax.random.split(key)
    half = num_samples // 2
    noise = _noise(own_key, half, location)
    if not collective.large:
        return jnp.concatenate([location + scale * noise, location - scale * noise])
    precision = scale**-2.0
    spread = collective.spread(location, precision)
    reach, squares = _reach(collective, precision, spread)
    signs = jax.random.rademacher(shared_key, (half, collective.size), location.dtype)
    shared = jax.vmap(lambda sign: collective.up(reach * sign, spread))(signs)
    moves = scale * jnp.sqrt(1 - squares) * noise + shared
    return jnp.concatenate([location + moves, location - moves])


def _reach(
    collective: Collective, precision: Float[Array, " dim"], spread: Float[Array, " dim"]
) -> tuple[Float[Array, " size"], Float[Array, " dim"]]:
    """How far to move along every direction, and the share of every entry's variance that this makes."""
    counts = jnp.asarray(collective.counts, precision.dtype)
    wanted = jnp.minimum(SHARED * jnp.sqrt(counts), STANDS_OUT)
    # A latent whose entries are all alike has no spread, and a length of next to nothing.
    reach = jnp.minimum(wanted / jnp.sqrt(collective.squares(precision, spread)), 1e6)
    squares = precision * collective.up_squares(reach, spread)
    shorter = jnp.minimum(1, MOST_SHARED / jnp.maximum(squares.max(), jnp.finfo(squares.dtype).tiny))
    return reach * jnp.sqrt(shorter), squares * shorter


def _noise(key: PRNGKeyArray, count: int, like: Float[Array, " dim"]) -> Float[Array, "count dim"]:
    """Signs with two radii, from four random bits each: most of what a normal number costs is its bits."""
    words = -(-like.shape[0] // 8)
    bits = jax.random.bits(key, (count, words, 1), jnp.uint32) >> (4 * jnp.arange(8, dtype=jnp.uint32))
    bits = bits.reshape(count, -1)[:, : like.shape[0]]
    radius = jnp.where((bits & 6) == 6, RADII[1], RADII[0]).astype(like.dtype)
    return jnp.where(bits & 1, radius, -radius)
