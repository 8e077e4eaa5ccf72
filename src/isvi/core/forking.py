"""Processes that were forked off: without JAX's threads, which stay behind, what they compute would never end."""

import os

from isvi.core.errors import ConfigurationError, require

_computed_in: int | None = None
"""The process in which isvi has computed something, or that it was forked from."""


def check_not_forked() -> None:
    """An error in a process that was forked from one in which isvi has computed; else this is one."""
    global _computed_in
    require(
        _computed_in in (None, os.getpid()),
        ConfigurationError,
        "This process was forked from one that has computed with JAX, and would wait for ever for threads that stayed "
        'there. Start processes by multiprocessing.get_context("spawn"), or fork before the first fit.',
    )
    _computed_in = os.getpid()
