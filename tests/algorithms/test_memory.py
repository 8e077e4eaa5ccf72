"""What is remembered: slots by mini-batch, the latest K, and how much room it takes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import regression

import isvi
from isvi.memory import Record, RecordStore
from isvi.memory.store import num_bytes


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


def memory_bytes(algorithm, batch_size: int) -> tuple[int, int, int]:
    """Bytes of the whole state, of its memory, and the number of mini-batches."""
    dataset = isvi.Dataset.from_arrays(regression.data(), batch_size)
    approximation = isvi.approximate(isvi.MeanField(), regression.model().latents)
    target = isvi.Target(regression.model(), approximation.coordinates)
    method = isvi.build(isvi.Reparameterization().bind(target, approximation), algorithm, optax.adam(0.1), dataset)
    state = jax.eval_shape(method.init, approximation.init(jnp.zeros(3), jnp.ones(3)))
    return num_bytes(state), num_bytes(state.memory), dataset.num_batches


@pytest.mark.parametrize("algorithm", [isvi.SGD(), isvi.ISGD(), isvi.SRA(), isvi.ISAG(latest=4)])
def test_memory_does_not_grow_with_the_number_of_mini_batches(algorithm):
    assert memory_bytes(algorithm, 30)[0] == memory_bytes(algorithm, 2)[0]


def test_isag_grows_by_one_record_per_mini_batch_and_nothing_else():
    """A record of one draw in three dimensions with three factors: 3 + 3 + 3 numbers, the log joint, the index and
    the share, of 4 bytes each."""
    few, few_memory, few_batches = memory_bytes(isvi.ISAG(), 30)
    many, many_memory, many_batches = memory_bytes(isvi.ISAG(), 2)
    assert many - few == many_memory - few_memory == (many_batches - few_batches) * 12 * 4
