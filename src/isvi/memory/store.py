"""A store of records: a fixed number of slots, each holding one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from isvi.memory.record import Record


class RecordStore(NamedTuple):
    """Slots for records, and which was filled last."""

    records: Record
    newest_slot: Int[Array, ""]

    @classmethod
    def empty(cls, template: Record, slots: int) -> "RecordStore":
        """``template`` is an empty record; all slots hold a copy of it."""
        return cls(jax.tree.map(lambda leaf: jnp.tile(leaf, (slots,) + (1,) * leaf.ndim), template), jnp.int32(0))

    @property
    def slots(self) -> int:
        return self.records.batch.shape[0]

    @property
    def newest(self) -> Record:
        return jax.tree.map(lambda leaf: leaf[self.newest_slot], self.records)

    def put(self, record: Record, slot: Int[Array, ""]) -> "RecordStore":
        """Overwrite one slot. Writing the same record to the same slot again changes nothing."""
        return RecordStore(put_slot(self.records, record, slot), jnp.asarray(slot, jnp.int32))

    def put_next(self, record: Record, fresh: Bool[Array, ""]) -> "RecordStore":
        """Write to the next slot in turn if the record is fresh; the store then holds the latest ones."""
        return self.put(record, (self.newest_slot + fresh.astype(jnp.int32)) % self.slots)


def put_slot(slots: Any, value: Any, slot: Int[Array, ""]) -> Any:
    """Write ``value`` at position ``slot`` of the leading axis of every leaf."""
    return jax.tree.map(lambda leaf, new: leaf.at[slot].set(new), slots, value)


def num_bytes(tree: Any) -> int:
    """Size of a pytree's arrays (or their abstract shapes)."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
