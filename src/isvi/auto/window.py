"""What many latents' records leave behind: a constant number of vectors, however many mini-batches there are.

Mini-batches come in one order, pass after pass. So the newest records of all of them are the latest ones, and sums over
a few consecutive chunks hold them: when a chunk is begun anew, the one of a pass ago is overwritten. Parameters move at
the end of a chunk only, so that a chunk has one location.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.families.collective import Collective
from isvi.memory.record import Record

CHUNKS = 20
"""Chunks in a window."""
LEAST_RECORDS = 20
"""Records in a window: a whole number of passes, with at least this many."""
EVENLY = 0.5
"""Pairs count by their squares over this plus these, for an entry's curvature: by their squares alone, the few large
ones would decide, and which mini-batches had them."""
UNEVEN, SCATTERED = 0.43, 2.06
"""The variance that is left of h and of o in an entry's curvature, for the radii and this."""
FORGETTING = 2
"""What pairs say about the curvature is averaged over one part in this many of the records so far, and at least over
as much of a window."""


@dataclass(frozen=True)
class Sizes:
    """What follows from the number of mini-batches."""

    num_batches: int

    @property
    def records(self) -> int:
        """In a window."""
        return self.num_batches * -(-LEAST_RECORDS // self.num_batches)

    @property
    def chunks(self) -> int:
        return min(CHUNKS, self.records)

    def chunk(self, remembered: Int[Array, ""]) -> Int[Array, ""]:
        """The chunk that the next record belongs to."""
        return (remembered % self.records) * self.chunks // self.records

    def ends(self, remembered: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the next record begins a chunk."""
        return self.chunk(remembered) != self.chunk(remembered - 1)

    def horizon(self, remembered: Int[Array, ""]) -> Float[Array, ""]:
        """Over how many records the curvature is averaged."""
        return jnp.maximum(remembered, self.records) / FORGETTING


class Pairs(NamedTuple):
    """What pairs say about the curvature, averaged; e and t are the differences of a pair's draws and of its negative
    gradients, each in units of q's standard deviations when it was drawn."""

    weight: Float[Array, ""]
    """So many records: all numbers below are sums over as many, older ones counting less."""
    weight_squares: Float[Array, ""]
    squares: Float[Array, " dim"]
    """Of e, weighted, ..."""
    products: Float[Array, " dim"]
    """... and products of e and t, times q's precision: their ratio is the curvature of an entry on its own."""
    answers: Float[Array, ""]
    """t^2, the mean over all entries, ..."""
    weighted: Float[Array, ""]
    """... the same times e^2, ..."""
    fourth: Float[Array, ""]
    """... and e^4."""
    moves: Float[Array, "size size"]
    """Products of the moves c along the collective directions, ..."""
    pulls: Float[Array, "size size"]
    """... of the gradients' differences u there with c, ..."""
    responses: Float[Array, "size size"]
    """... and of u with itself."""

    @property
    def energies(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Of t = h e + o: h^2, what a difference owes to the entry itself, and o^2, what it owes to others; means.

        Those of t^2 and of t^2 e^2 are h^2 + o^2 and E[e^4] h^2 + o^2. Where most mini-batches do not touch an entry,
        h^2 is large, as the others say more; that must not be taken for correlation.
        """
        weight = jnp.maximum(self.weight, 1)
        answers, weighted, fourth = self.answers / weight, self.weighted / weight, self.fourth / weight
        own = jnp.clip((weighted - answers) / jnp.maximum(fourth - 1, 0.05), 0, answers)
        return own, answers - own

    @property
    def number(self) -> Float[Array, ""]:
        """As many records, all counting the same, would be as uncertain."""
        return self.weight**2 / jnp.maximum(self.weight_squares, 1)

    def add(self, new: "Pairs", fade: Float[Array, ""], keep: Bool[Array, ""]) -> "Pairs":
        """With one more record, if it is kept."""
        fades: Pairs = jax.tree.map(lambda leaf: fade, self)
        fades = fades._replace(weight_squares=fade**2)
        return jax.tree.map(lambda old, one, fade: jnp.where(keep, fade * old + one, old), self, new, fades)

    @classmethod
    def none(cls, dim: int, size: int, dtype: jnp.dtype) -> "Pairs":
        zero, zeros, square = jnp.zeros((), dtype), jnp.zeros(dim, dtype), jnp.zeros((size, size), dtype)
        return cls(zero, zero, zeros, zeros, zero, zero, zero, square, square, square)


class Window(NamedTuple):
    """The newest records of all mini-batches, and what all pairs have said."""

    counts: Float[Array, " chunks"]
    """Records in a chunk, and what older ones still count."""
    locations: Float[Array, "chunks dim"]
    """The mean of q, averaged over these."""
    gradients: Float[Array, "chunks dim"]
    """The sum of the records' mean gradients."""
    pairs: Pairs

    @classmethod
    def none(cls, sizes: Sizes, size: int, record: Record) -> "Window":
        dim, dtype = record.draws.shape[-1], record.draws.dtype
        zeros = jnp.zeros((sizes.chunks, dim), dtype)
        return cls(jnp.zeros(sizes.chunks, dtype), zeros, zeros, Pairs.none(dim, size, dtype))

    def add(
        self,
        sizes: Sizes,
        collective: Collective,
        precision: Float[Array, " dim"],
        remembered: Int[Array, ""],
        passes: Float[Array, ""],
        record: Record,
        keep: Bool[Array, ""],
    ) -> "Window":
        """With one more record, if it is kept; ``remembered`` are those before it, and none of them means none. A chunk
        is an average over so many passes."""
        chunk, nothing, begins = sizes.chunk(remembered), remembered == 0, sizes.ends(remembered)
        location = record.draws.mean(axis=0)
        counts = jnp.where(nothing & keep, 0, self.counts)
        older = jnp.where(nothing, 0, jnp.where(begins, 1 - 1 / passes, 1)).astype(location.dtype)
        before = older * counts[chunk]
        way = (location - self.locations[chunk]) / (before + 1)
        gradient = older * self.gradients[chunk] + record.gradient.mean(axis=0)
        fade = jnp.where(nothing, 0, 1 - 1 / sizes.horizon(remembered)).astype(location.dtype)
        pairs = _seen(collective, precision, location, record)
        return Window(
            counts.at[chunk].set(jnp.where(keep, before + 1, counts[chunk])),
            self.locations.at[chunk].add(jnp.where(keep, way, 0)),
            self.gradients.at[chunk].set(jnp.where(keep, gradient, self.gradients[chunk])),
            self.pairs.add(pairs, fade, keep),
        )

    def level(self) -> tuple[Float[Array, " dim"], Float[Array, " dim"], Float[Array, ""]]:
        """(Z, G): mean point and mean gradient over every mini-batch's newest records, and how many these are."""
        total = jnp.maximum(self.counts.sum(), 1)
        point = jnp.tensordot(self.counts / total, self.locations, axes=1)
        return point, jnp.tensordot((self.counts > 0) / total, self.gradients, axes=1), total


def _seen(
    collective: Collective, precision: Float[Array, " dim"], location: Float[Array, " dim"], record: Record
) -> Pairs:
    """What one record's pairs say."""
    half = record.draws.shape[0] // 2
    draws = 0.5 * (record.draws[:half] - record.draws[half:])
    changes = 0.5 * (record.gradient[half:] - record.gradient[:half])
    squares, answers = precision * draws**2, changes**2 / precision
    evenly = 1 / (squares + EVENLY)
    spread = collective.spread(location, precision)
    lengths = collective.squares(precision, spread)
    moves = jax.vmap(lambda draw: collective.down(precision * draw, spread) / lengths)(draws)
    pulls = jax.vmap(lambda change: collective.down(change, spread))(changes)
    return Pairs(
        jnp.ones((), location.dtype),
        jnp.ones((), location.dtype),
        (evenly * squares).mean(axis=0),
        precision * (evenly * draws * changes).mean(axis=0),
        answers.mean(),
        (answers * squares).mean(),
        (squares**2).mean(),
        moves.T @ moves / half,
        pulls.T @ moves / half,
        pulls.T @ pulls / half,
    )
