"""What is remembered of mini-batches, and for how long."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.auto.curvature import Curvature, Evidence
from isvi.auto.phases import Store
from isvi.auto.secants import Secants
from isvi.memory.record import Record

LEVEL_RECORDS = 20
"""The level of the gradient is averaged over at least this many records."""
STORED_RECORDS = 60
"""At least this many records are kept."""


@dataclass(frozen=True)
class Sizes:
    """What follows from the number of mini-batches."""

    num_batches: int
    generations: int
    level_generations: int
    update_every: int
    """Records from one step of the memory phase to the next. More steps would follow the noise of single records."""

    @classmethod
    def of(cls, num_batches: int) -> "Sizes":
        return cls(
            num_batches=num_batches,
            generations=-(-STORED_RECORDS // num_batches),
            level_generations=-(-LEVEL_RECORDS // num_batches),
            update_every=max(1, min(num_batches // 10, 8)),
        )

    @property
    def slots(self) -> int:
        """Records that are kept."""
        return self.generations * self.num_batches

    @property
    def level_records(self) -> int:
        """Records in the average that stands for the gradient of all data: a whole number of passes."""
        return self.level_generations * self.num_batches


class Knowledge(NamedTuple):
    """What is known beside the records themselves."""

    made_at: Int[Array, " slots"]
    """When the slot was filled, counted in records; -1 while empty."""
    evidence: Evidence
    """What all pairs so far say about the curvature; starts anew when they no longer predict new ones."""
    curvature: Curvature
    secants: Secants
    anchors: Float[Array, "2 2 dim"]
    """(Z, G) one and one half pass ago."""

    @classmethod
    def none(cls, sizes: Sizes, record: Record) -> "Knowledge":
        """``record`` gives the shapes."""
        dim, dtype = record.draws.shape[-1], record.draws.dtype
        return cls(
            made_at=jnp.full(sizes.slots, -1, jnp.int32),
            evidence=Evidence.none(dim, dtype),
            curvature=Curvature.of(jnp.ones(dim, dtype)),
            secants=Secants.none(dim, dtype),
            anchors=jnp.zeros((2, 2, dim), dtype),
        )

    def anew(self, precision: Float[Array, " dim"]) -> "Knowledge":
        """Everything forgotten but these precisions."""
        return Knowledge(
            made_at=jnp.full_like(self.made_at, -1),
            evidence=jax.tree.map(jnp.zeros_like, self.evidence),
            curvature=Curvature.of(precision),
            secants=jax.tree.map(jnp.zeros_like, self.secants),
            anchors=jnp.zeros_like(self.anchors),
        )


def remember(sizes: Sizes, store: Store, record: Record, keep: Bool[Array, ""]) -> Store:
    """Put the record into its mini-batch's oldest generation."""
    progress, records, made_at = store.progress, store.records, store.own.made_at
    generation = (progress.remembered // sizes.num_batches) % sizes.generations
    slot = jnp.where(keep, generation * sizes.num_batches + record.batch, records.newest_slot)
    empty_yet = progress.remembered == 0
    kept = jax.tree.map(lambda new, old: jnp.where(keep | empty_yet, new, old), record, records.newest)
    made_at = made_at.at[slot].set(jnp.where(keep, progress.remembered, made_at[slot]))
    return Store(
        progress._replace(remembered=progress.remembered + keep.astype(jnp.int32)),
        records.put(kept, slot),
        store.own._replace(made_at=made_at),
    )
