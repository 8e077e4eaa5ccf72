"""Shared set-up: shapes are checked while the tests run, and a few fixtures."""

from collections.abc import Iterator

import support.shapes
from jaxtyping import install_import_hook

# Before anything imports isvi: every annotation such as Float[Array, "draws dim"] is checked at run time.
install_import_hook("isvi", f"{support.shapes.__name__}.check_shapes")

import jax  # noqa: E402
import pytest  # noqa: E402

# Most of the suite's time is compilation of small programs that run once.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield
