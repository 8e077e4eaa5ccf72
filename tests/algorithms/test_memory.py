"""How much room the memory of an algorithm takes."""

import jax
import jax.numpy as jnp
import optax
import pytest
from support import regression

import isvi
from isvi.memory.store import num_bytes


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
