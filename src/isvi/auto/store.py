"""What is remembered of mini-batches, and for how long."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from isvi.auto.phases import Store
from isvi.memory.record import Record


@dataclass(frozen=True)
class Sizes:
    """What follows from the number of mini-batches."""

    num_batches: int
    generations: int
    level_generations: int
    update_every: int
    """Records from one step of the memory phase to the next. More steps would follow the noise of single records."""

    @property
    def slots(self) -> int:
        """Records that are kept."""
        return self.generations * self.num_batches

    @property
    def level_records(self) -> int:
        """Records in the average that stands for the gradient of all data: a whole number of passes."""
        return self.level_generations * self.num_batches


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
