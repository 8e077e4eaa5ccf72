"""Slots for records: by mini-batch, or the latest in turn."""

import jax
import jax.numpy as jnp
import numpy as np

from isvi.memory import Record, RecordStore


def record(batch: int, share: float = 0.25) -> Record:
    mark = jnp.full((2, 3), float(batch + 1))
    return Record(mark, mark, mark[:, 0], mark, jnp.int32(batch), jnp.asarray(share))


def empty(slots: int) -> RecordStore:
    return RecordStore.empty(jax.tree.map(jnp.zeros_like, record(0)), slots)


def test_put_replaces_the_slot_of_the_mini_batch():
    store = empty(4).put(record(2), jnp.int32(2)).put(record(0), jnp.int32(0)).put(record(2), jnp.int32(2))
    np.testing.assert_array_equal(store.records.share, [0.25, 0, 0.25, 0])
    np.testing.assert_array_equal(store.records.draws[:, 0, 0], [1, 0, 3, 0])
    assert int(store.newest.batch) == 2


def test_put_next_keeps_the_latest():
    store = empty(3)
    for batch in range(5):
        store = store.put_next(record(batch), jnp.array(True))
        store = store.put_next(record(batch), jnp.array(False))  # a reuse step changes nothing
    assert sorted(np.asarray(store.records.batch).tolist()) == [2, 3, 4]
    assert int(store.newest.batch) == 4
