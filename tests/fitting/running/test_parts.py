"""Windows of a source, dealt out to workers in the order in which they are visited."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from support import files

import isvi
from isvi.data.schedule import Schedule
from isvi.data.stream import Stream
from isvi.fitting.running.loop import run_keys
from isvi.fitting.running.parts import Parts

WORKERS = 2
KEY = jax.random.key(5)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Mini-batches of 20 rows in windows, and a shorter one."""
    source = isvi.data.Npy(files.write_npy(tmp_path, files.columns(610)), window_bytes=1_500)
    return Stream(source, 20)


def parts(stream: Any, parted: bool = True) -> Parts:
    setup: Any = SimpleNamespace(dataset=stream, run_key=KEY)
    crew: Any = SimpleNamespace(parts=parted, size=WORKERS)
    return Parts(setup, crew)


def test_one_worker_has_a_window_and_reads_its_next_ones_meanwhile(stream: Stream) -> None:
    order = np.asarray(Schedule.start(run_keys(KEY)[1], stream.num_batches, stream.windows).order)
    visited = stream.visits(order)
    assert len(visited) == stream.num_windows > 2 * WORKERS
    found = parts(stream)
    for turn, window in enumerate(visited):
        index = next(int(index) for index in order if stream.window_of(int(index)) == window)
        place, ahead = found.of(index)
        assert place == turn
        mine = visited[turn % WORKERS :: WORKERS]
        after = mine.index(window) + 1
        assert list(ahead) == (mine + mine)[after : after + 2]


def test_the_rest_is_everywhere(stream: Stream) -> None:
    assert parts(stream).of(stream.num_batches - 1) == (None, ())


def test_without_parts_or_windows_anybody_makes_a_record(stream: Stream) -> None:
    assert parts(stream, parted=False).of(0) == (None, ())
    assert parts(isvi.Dataset.from_arrays(files.columns(100), 20)).of(0) == (None, ())
