"""How many threads linear algebra may use while a fit runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from threadpoolctl import threadpool_limits

_lock = Lock()
_limits: list[threadpool_limits] = []
_fits = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS with one thread. The setting is the process's: of fits in several threads the first makes it, and the last
    puts back what was there before."""
    global _fits
    with _lock:
        if _fits == 0:
            _limits.append(threadpool_limits(1, "blas"))
        _fits += 1
    try:
        yield
    finally:
        with _lock:
            _fits -= 1
            if _fits == 0:
                _limits.pop().restore_original_limits()
