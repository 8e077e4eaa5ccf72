"""Tasks reach workers, answers and errors come back, and workers may die: for every engine."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.sent import Double, Process, Unopened

import isvi
from isvi.core.errors import ConfigurationError, WorkerError
from isvi.workers import Crew, chosen_workers
from isvi.workers.answers import Raised, WorkerTraceback
from isvi.workers.crew import TRIES, wait_for

PATIENCE = 900.0
"""Used up only where something hangs: on a busy machine a worker takes ten seconds to come back, ten times over."""
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'isvi[ray]'")


def processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


KINDS = [
    pytest.param(lambda: isvi.Pool(lambda: ThreadPoolExecutor(2), time_limit=PATIENCE), id="threads"),
    pytest.param(lambda: isvi.Pool(processes, time_limit=PATIENCE), id="processes"),
    pytest.param(lambda: isvi.Ray(num_workers=2, time_limit=PATIENCE), id="ray", marks=NEEDS_RAY),
]


@pytest.fixture
def opened() -> Iterator[Callable[..., Crew]]:
    crews: list[Crew] = []

    def opening(workers: Any, work: Any) -> Crew:
        crews.append(workers.open(work))
        return crews[-1]

    yield opening
    for crew in crews:
        crew.close()


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_are_answered_and_errors_are_raised_here(kind: Callable, opened: Callable) -> None:
    crew = opened(kind(), Double())
    futures = [crew.submit(task) for task in range(10)]
    assert [wait_for(future, PATIENCE) for future in futures] == [2 * task for task in range(10)]
    with pytest.raises(KeyError, match="asked to") as raised:
        wait_for(crew.submit("raise"), PATIENCE)
    assert isinstance(raised.value.__cause__, WorkerTraceback)
    assert "in doubled" in str(raised.value.__cause__)
    assert wait_for(crew.submit(4), PATIENCE) == 8  # it goes on


@pytest.mark.parametrize("kind", KINDS)
def test_work_that_cannot_be_opened_says_so(kind: Callable, opened: Callable) -> None:
    crew = opened(kind(), Unopened())
    with pytest.raises(FileNotFoundError, match="no such data"):
        wait_for(crew.submit(1), PATIENCE)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_task_that_kills_its_worker_is_given_up(kind: Callable, opened: Callable) -> None:
    crew = opened(kind(), Double())
    assert wait_for(crew.submit(1), PATIENCE) == 2
    with pytest.raises(WorkerError, match=f"begun {TRIES} times"):
        wait_for(crew.submit("die"), PATIENCE)
    assert wait_for(crew.submit(4), PATIENCE) == 8  # the others do not suffer


def test_an_executor_that_cannot_be_made_anew_says_so(opened: Callable) -> None:
    with processes() as executor:
        crew = opened(isvi.Pool(executor), Double())
        with pytest.raises(WorkerError, match=r"(?s)A worker died.*Pass a function"):
            wait_for(crew.submit("die"), PATIENCE)


@NEEDS_RAY
def test_tasks_of_a_place_go_to_one_worker_as_long_as_it_is_there(opened: Callable) -> None:
    crew = opened(isvi.Ray(num_workers=2, time_limit=PATIENCE, parts=True), Process())
    told = [wait_for(crew.submit(None, place), PATIENCE) for place in (0, 1, 2, 3, 0, 1)]
    assert told == 3 * told[:2]
    assert told[0] != told[1]
    os.kill(told[0], signal.SIGKILL)
    assert wait_for(crew.submit(None, 0), PATIENCE) != told[0]


def test_no_wait_is_without_end(opened: Callable) -> None:
    crew = opened(isvi.Pool(processes), Double())
    with pytest.raises(WorkerError, match=r"(?s)within 0.01 seconds.*time_limit"):
        wait_for(crew.submit("sleep"), 0.01)


ENDS = """
from support.sent import Double
from test_crews import PATIENCE, processes
import isvi
from isvi.workers.crew import wait_for

if __name__ == "__main__":
    crew = isvi.Pool(processes, time_limit=PATIENCE).open(Double())
    for number in range(4):
        wait_for(crew.submit(number), PATIENCE)
    hanging = [crew.submit("sleep") for number in range(4)]
    while not any(future.running() for future in tuple(crew._sent)):
        pass
    crew.close()
"""


def test_a_worker_that_hangs_does_not_keep_the_driver_from_ending(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    here = Path(__file__).parent
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), str(here.parent), *sys.path])}
    ended = subprocess.run([sys.executable, str(script)], env=surroundings, capture_output=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    from isvi.workers.answers import answered

    class Local(Exception):
        pass

    def fails() -> None:
        raise Local("words")

    answer = answered(fails)
    assert isinstance(answer, Raised)
    assert "Local: words" in str(answer.error)


def test_work_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)cannot be sent.*threads"):
        isvi.Pool(processes).open(one for one in ())  # type: ignore[arg-type]


def test_forked_processes_are_refused() -> None:
    forked = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pytest.raises(ConfigurationError, match="spawn"):
        isvi.Pool(forked).open(Double())


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        (lambda: chosen_workers("four"), "a number of processes"),
        (lambda: chosen_workers(True), "a number of processes"),
        (lambda: chosen_workers(0), "at least 1"),
        (lambda: isvi.Ray(2, time_limit=0), "must be positive"),
        (lambda: isvi.Pool(3), "takes an executor"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_workers_is_refused(workers: Callable, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        workers()


def test_ray_is_asked_for_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("ray") is not None:
        pytest.skip("Ray is installed, so that nothing is missing")
    with pytest.raises(ConfigurationError, match=r"pip install 'isvi\[ray\]'"):
        isvi.Ray(2).open(Double())
