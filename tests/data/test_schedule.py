"""The order of visits: each epoch every mini-batch once, new orders, and the same after a resumption."""

import jax
import jax.numpy as jnp
import numpy as np

from isvi.data import Schedule

KEY = jax.random.key(3)
NUM_BATCHES = 7


def visits(schedule: Schedule, used: np.ndarray) -> tuple[Schedule, np.ndarray]:
    def step(schedule: Schedule, used: jax.Array) -> tuple[Schedule, jax.Array]:
        return schedule.advance(KEY, used), schedule.next_index

    schedule, indices = jax.jit(lambda s, u: jax.lax.scan(step, s, u))(schedule, jnp.asarray(used))
    return schedule, np.asarray(indices)


def test_every_epoch_visits_each_mini_batch_once_in_a_new_order():
    _, indices = visits(Schedule.start(KEY, NUM_BATCHES), np.ones(5 * NUM_BATCHES, bool))
    epochs = indices.reshape(5, NUM_BATCHES)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(NUM_BATCHES), (5, 1)))
    assert len({tuple(epoch) for epoch in epochs}) == 5


def test_a_step_that_reuses_does_not_advance():
    used = np.arange(3 * 2 * NUM_BATCHES) % 3 == 2
    schedule, indices = visits(Schedule.start(KEY, NUM_BATCHES), used)
    _, straight = visits(Schedule.start(KEY, NUM_BATCHES), np.ones(2 * NUM_BATCHES, bool))
    np.testing.assert_array_equal(indices[used], straight)
    assert int(schedule.visited) == 2 * NUM_BATCHES


def test_stopping_in_between_changes_nothing():
    start = Schedule.start(KEY, NUM_BATCHES)
    _, straight = visits(start, np.ones(20, bool))
    stopped, first = visits(start, np.ones(9, bool))
    _, second = visits(jax.device_put(jax.device_get(stopped)), np.ones(11, bool))
    np.testing.assert_array_equal(np.concatenate([first, second]), straight)
