"""Memory that is lent is not used again while anything looks into it."""

import gc

import jax
import numpy as np

from isvi.data.room import Rooms

SHAPE, DTYPE = (64, 32), np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_comes_back():
    rooms = Rooms()
    first = rooms.array(SHAPE, DTYPE)
    there = address(first)
    del first
    assert address(rooms.array(SHAPE, DTYPE)) == there


def test_memory_is_kept_by_views_and_by_arrays_of_jax():
    rooms = Rooms()
    lent = rooms.array(SHAPE, DTYPE)
    lent[:] = 1.0
    view, there = lent[3:].reshape(-1), address(lent)
    shared = jax.device_put(lent.reshape(4, 16, 32), may_alias=True)
    del lent
    assert address(rooms.array(SHAPE, DTYPE)) != there
    del view
    gc.collect()
    other = rooms.array(SHAPE, DTYPE)
    other[:] = 2.0
    assert address(other) != there
    np.testing.assert_array_equal(shared, 1.0)
    doubled = 2 * shared  # what is being computed keeps it too
    del shared, other
    np.testing.assert_array_equal(doubled, 2.0)


def test_arrays_are_aligned_and_cleared_memory_is_forgotten():
    rooms = Rooms()
    lent = rooms.array((5,), np.dtype(np.float64))
    assert address(lent) % 64 == 0
    rooms.clear()
    del lent
    assert not rooms._free
