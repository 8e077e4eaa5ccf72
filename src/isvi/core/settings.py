"""JAX's settings for strictness: isvi's own code runs under JAX's defaults, the user's model under the user's.

Who sets ``jax_numpy_rank_promotion`` or ``jax_numpy_dtype_promotion`` wants to be told about their own code, and not
about isvi's, nor that of the libraries beneath it. ``jax_debug_nans`` and ``jax_debug_infs`` stop at every number that
is not finite, of which isvi has many on purpose: what is not known yet, what is to be masked. Its fits look for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import jax

from isvi.core.forking import check_not_forked


class Strictness(NamedTuple):
    """The settings that concern how the model is written."""

    rank_promotion: str
    dtype_promotion: str
    double: bool = False

    @classmethod
    def now(cls) -> "Strictness":
        names = ("jax_numpy_rank_promotion", "jax_numpy_dtype_promotion", "jax_enable_x64")
        return cls(*(getattr(jax.config, name) for name in names))


DEFAULT = Strictness("allow", "standard")
_users: ContextVar[Strictness | None] = ContextVar("what the user has set, while isvi's own code runs", default=None)


@contextmanager
def own_settings() -> Iterator[None]:
    """While it is entered, JAX's defaults hold. May be entered again further down."""
    if _users.get() is not None:
        yield
        return
    check_not_forked()
    token = _users.set(Strictness.now())
    try:
        with jax.debug_nans(False), jax.debug_infs(False), _set(DEFAULT):
            yield
    finally:
        _users.reset(token)


@contextmanager
def users_settings() -> Iterator[None]:
    """While it is entered, what the user had set holds again: for the user's own functions. But not where isvi
    evaluates them in double precision, and constants of the user's are still in single: the two must be allowed to
    meet."""
    users = _users.get()
    if users is not None and users.double != Strictness.now().double:
        users = users._replace(dtype_promotion=DEFAULT.dtype_promotion)
    with _set(users):
        yield


@contextmanager
def _set(found: Strictness | None) -> Iterator[None]:
    if found is None:
        yield
        return
    with jax.numpy_rank_promotion(found.rank_promotion), jax.numpy_dtype_promotion(found.dtype_promotion):
        yield
