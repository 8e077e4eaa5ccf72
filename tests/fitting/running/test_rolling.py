"""Records begun at whatever parameters there are: always so many under way, taken in in their order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isvi.algorithms.base import ANY_AGE, Memory
from isvi.algorithms.step import State
from isvi.data.schedule import Schedule
from isvi.fitting.running.elsewhere import Elsewhere
from isvi.fitting.running.rolling import MOST_WAITING, Rolling
from isvi.memory import Record

BATCHES = 7
UNDER_WAY = 3


def made(index: int, turn: int) -> Record:
    draws = jnp.full((2, 1), float(turn))
    zeros = jnp.zeros(2)
    return Record(draws, zeros[:, None], zeros, draws, jnp.int32(index), jnp.float32(1 / BATCHES))


@dataclass
class Fake:
    """A record that comes when it is told to; ``hurry`` says what happens while it is waited for."""

    index: int
    params: float
    turn: int
    waited: Callable[["Fake"], None]
    done: bool = False
    cancelled: bool = False
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def listen(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def come(self) -> None:
        self.done = True
        for listener in self.listeners:
            listener()

    def hurry(self) -> float:
        self.waited(self)
        return 60.0

    def result(self) -> Record:
        return made(self.index, self.turn)

    def cancel(self) -> None:
        self.cancelled = True


class Play:
    """A run in small: a state, a schedule, and records elsewhere; all of them come at once, if nothing else is said."""

    def __init__(self, oldest: int = ANY_AGE) -> None:
        self.begun: list[Fake] = []
        self.waited: Callable[[Fake], None] = Fake.come
        self.schedule = Schedule.start(jax.random.key(1), BATCHES)
        self.state = State(
            jnp.float32(0), (), Memory(made(0, -1), jnp.int32(0), jnp.int32(oldest)), *[jnp.int32(0)] * 3
        )
        method: Any = SimpleNamespace(oldest=lambda state: state.memory.store)
        self.rolling = Rolling(method, jax.random.key(2), Elsewhere(self._begin, UNDER_WAY, lambda params: params))

    def _begin(self, key_data: np.ndarray, params: Any, index: int) -> Fake:
        fake = Fake(index, float(params), len(self.begun), lambda fake: self.waited(fake))
        self.begun.append(fake)
        return fake

    def take(self) -> Record:
        record = self.rolling.take(self.state, self.schedule)
        memory = self.state.memory._replace(newest=record)
        self.state = self.state._replace(memory=memory)
        self.schedule = self.schedule.advance(jnp.array(True))
        return record

    @property
    def order(self) -> list[int]:
        return np.asarray(self.schedule.order).tolist()


def test_mini_batches_keep_their_order_and_so_many_are_under_way() -> None:
    play = Play()
    taken = [int(play.take().batch) for _ in range(2 * BATCHES)]
    assert taken == 2 * play.order
    assert sum(not fake.done for fake in play.begun) == UNDER_WAY


def test_others_go_on_while_one_is_waited_for_but_not_without_end() -> None:
    play = Play()

    def others_first(first: Fake) -> None:
        other = next((fake for fake in play.begun if not fake.done and fake is not first), first)
        other.come()

    play.waited = others_first
    assert int(play.take().batch) == play.order[0]
    assert len(play.begun) == MOST_WAITING * UNDER_WAY
    assert [fake.index for fake in play.begun[:BATCHES]] == play.order
    rest = [int(play.take().batch) for _ in range(BATCHES - 1)]
    assert rest == play.order[1:]


def test_they_are_begun_at_the_parameters_of_then_and_the_elbo_is_that_of_then() -> None:
    play = Play()
    play.take()
    play.state = play.state._replace(params=jnp.float32(5))
    record = play.take()
    assert [fake.params for fake in play.begun] == [0, 0, 0, 0, 5]
    # The entropy was 0 when it was begun, and is 5 now: what the memory adds.
    np.testing.assert_array_equal(record.log_joint, -5)


def test_where_every_record_moves_the_parameters_there_is_one_at_a_time() -> None:
    play = Play(oldest=0)
    for _ in range(3):
        play.take()
    assert len(play.begun) == 3


@pytest.mark.parametrize("what", ["began anew", "another run", "not finite"])
def test_what_is_under_way_is_dropped_when_it_is_of_no_use(what: str) -> None:
    play = Play()
    play.take()
    memory = play.state.memory
    if what == "began anew":
        memory = memory._replace(store=jnp.int32(0))
    elif what == "another run":
        play.schedule = Schedule.start(jax.random.key(1), BATCHES)
    else:
        memory = memory._replace(newest=made(0, -1))
    play.state = play.state._replace(memory=memory)
    before = list(play.begun[1:])
    play.take()
    assert all(fake.cancelled for fake in before)
    assert not any(fake.cancelled for fake in play.begun[1 + len(before) :])
