"""Room for windows: memory that is used again once nobody looks at it any more.

Fresh memory is not free. The system hands it out page by page as it is first written to, which on some machines takes
longer than reading the rows does.
"""

from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes to whose multiples XLA aligns its arrays: it uses such an array as it is, where it would copy another."""


class Rooms:
    """Lends memory for arrays, and has it back when the last array that looks into it is gone."""

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array with any contents, which JAX need not copy on a CPU."""
        num_bytes = int(np.prod(shape)) * dtype.itemsize
        free = self._free.setdefault(num_bytes, [])
        room = free.pop() if free else np.empty(num_bytes + ALIGNMENT, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        return np.asarray(_Lease(room, free))[start : start + num_bytes].view(dtype).reshape(shape)

    def clear(self) -> None:
        """Let go of all memory: what is free now, and what is lent when it comes back."""
        self._free = {}


class _Lease:
    """Stands between a room and the arrays in it. NumPy's views, and through them JAX's arrays, keep what they look
    into alive: this object. So its end is the end of all of them."""

    def __init__(self, room: np.ndarray, free: list[np.ndarray]) -> None:
        self._room, self._free = room, free

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._room.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._room)
