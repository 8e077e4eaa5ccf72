"""Saying that a Stan program is being built, which takes half a minute and more."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

log = logging.getLogger("isvi")


@contextmanager
def told(doing: str, usual: str) -> Iterator[None]:
    """Next to a spinner where somebody looks, and to the log.

    Args:
        doing: what is being done.
        usual: how long that takes, in words.
    """
    console = Console(file=sys.stderr)
    said = f"{doing} (usually {usual}; once per program)"
    log.info("%s", said)
    started = time.perf_counter()
    with console.status(said) if console.is_terminal or console.is_jupyter else nullcontext():
        yield
    log.info("%s: done in %.0f s", doing, time.perf_counter() - started)
