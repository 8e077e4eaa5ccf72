"""The order of visits: each epoch every mini-batch once, the oldest first, and the same after a resumption."""

import jax
import jax.numpy as jnp
import numpy as np

from isvi.data import Schedule
from isvi.data.schedule import Windows, order_of_visits

KEY = jax.random.key(3)
NUM_BATCHES = 7


def visits(schedule: Schedule, used: np.ndarray) -> tuple[Schedule, np.ndarray]:
    def step(schedule: Schedule, used: jax.Array) -> tuple[Schedule, jax.Array]:
        return schedule.advance(used), schedule.next_index

    schedule, indices = jax.jit(lambda s, u: jax.lax.scan(step, s, u))(schedule, jnp.asarray(used))
    return schedule, np.asarray(indices)


def test_every_epoch_visits_each_mini_batch_once_and_the_oldest_first():
    _, indices = visits(Schedule.start(KEY, NUM_BATCHES), np.ones(5 * NUM_BATCHES, bool))
    epochs = indices.reshape(5, NUM_BATCHES)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(NUM_BATCHES), (5, 1)))
    assert len({tuple(epoch) for epoch in epochs}) == 1
    assert tuple(epochs[0]) != tuple(range(NUM_BATCHES))


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


WINDOWS = Windows(length=4, has_rest=True, in_order=False)
"""Of 23 mini-batches: five windows of four, one of two, and the rest."""


def orders_of(windows: Windows, count: int = 4) -> list[list[int]]:
    """Of several runs."""
    return [np.asarray(order_of_visits(jax.random.key(seed), 23, windows)).tolist() for seed in range(count)]


def test_windows_are_visited_one_after_the_other_in_random_orders():
    orders = orders_of(WINDOWS)
    visits = []
    for order in orders:
        assert sorted(order) == list(range(23))
        windows = [index // 4 for index in order if index != 22]
        visits.append([window for i, window in enumerate(windows) if i == 0 or windows[i - 1] != window])
        assert sorted(visits[-1]) == [0, 1, 2, 3, 4, 5]
    assert len({tuple(order) for order in orders}) == 4
    assert len({tuple(order) for order in visits}) == 4
    assert len({order.index(22) for order in orders}) > 1
    within = {tuple(index for index in order if index // 4 == 2) for order in orders}
    assert len(within) > 1


def test_a_loader_is_visited_from_its_beginning_to_its_end():
    for order in orders_of(WINDOWS._replace(in_order=True)):
        windows = [index // 4 for index in order if index != 22]
        assert windows == sorted(windows)
        assert order != sorted(order)


def test_windows_advance_like_any_schedule():
    schedule = Schedule.start(KEY, 23, WINDOWS)
    advance = jax.jit(lambda schedule: schedule.advance(jnp.array(True)))
    seen = []
    for _ in range(46):
        seen.append(int(schedule.next_index))
        schedule = advance(schedule)
    expected = np.asarray(order_of_visits(KEY, 23, WINDOWS)).tolist()
    assert [seen[:23], seen[23:]] == [expected, expected]
