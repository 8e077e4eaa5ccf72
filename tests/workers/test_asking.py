"""A task that takes far longer than others do is given to another worker too, and the first answer counts."""

from concurrent.futures import Future
from typing import Any

import pytest

from isvi.core.errors import WorkerError
from isvi.workers import Asking, asking


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Silent:
    """A crew that answers when it is told to."""

    time_limit, size, asynchronous, parts = 50.0, 2, False, False

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, task: Any, place: int | None = None) -> "Future[Any]":
        self.futures.append(Future())
        return self.futures[-1]

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asking, "time", clock)
    return clock


@pytest.fixture
def crew() -> Silent:
    return Silent()


@pytest.fixture
def used(crew: Silent, clock: Clock) -> Asking:
    """It is known that answers take a second, but for every fourth, of a worker that is slow."""
    questions = Asking(crew)
    for task in range(asking.REMEMBERED):
        asked = questions.ask(task)
        clock.now += 10 if task % 4 == 0 else 1
        crew.futures[-1].set_result(task)
        assert asked.done
        assert asked.answer() == task
    crew.futures.clear()
    return questions


def test_what_is_overdue_is_given_to_another_worker(used: Asking, crew: Silent, clock: Clock) -> None:
    asked = used.ask("late")
    assert asked.hurry() == pytest.approx(asking.PATIENCE)
    clock.now += asking.PATIENCE
    assert len(crew.futures) == 1
    asked.hurry()
    assert len(crew.futures) == 2
    clock.now += 1
    asked.hurry()
    assert len(crew.futures) == 2  # not to everyone
    crew.futures[1].set_result("there")
    assert asked.done
    assert asked.answer() == "there"
    assert crew.futures[0].cancelled()


def test_where_one_task_of_many_is_long_on_any_worker_that_is_no_reason(crew: Silent, clock: Clock) -> None:
    questions = Asking(crew, remembered=20, slow_share=0.0)
    for task in range(20):
        questions.ask(task)
        clock.now += 10 if task == 3 else 1
        crew.futures[-1].set_result(task)
    assert questions.patience == 10 * asking.PATIENCE


def test_a_slow_worker_may_still_be_the_first(used: Asking, crew: Silent, clock: Clock) -> None:
    asked = used.ask("late")
    clock.now += asking.PATIENCE
    asked.hurry()
    crew.futures[0].set_result("there")
    assert asked.answer() == "there"
    assert crew.futures[1].cancelled()


def test_nothing_is_overdue_while_nobody_knows_how_long_it_takes(crew: Silent, clock: Clock) -> None:
    asked = Asking(crew).ask("first")
    asked.hurry()
    clock.now += Silent.time_limit - 1
    assert asked.hurry() == pytest.approx(1)
    assert len(crew.futures) == 1


def test_a_second_worker_does_not_lengthen_the_wait(used: Asking, crew: Silent, clock: Clock) -> None:
    asked = used.ask("lost")
    asked.hurry()
    clock.now += Silent.time_limit - 1
    asked.hurry()
    assert len(crew.futures) == 2
    clock.now += 1
    with pytest.raises(WorkerError, match="within 50 seconds"):
        asked.hurry()


def test_listeners_hear_of_every_answer(used: Asking, crew: Silent, clock: Clock) -> None:
    heard: list[str] = []
    asked = used.ask("late")
    asked.listen(lambda: heard.append("came"))
    clock.now += asking.PATIENCE
    asked.hurry()
    crew.futures[1].set_result("there")
    assert heard == ["came"]
    asked.listen(lambda: heard.append("was there"))  # too late to be told
    assert heard == ["came", "was there"]
