"""How much effort the tests compile with: less than for a short run."""

import pytest

from isvi.core import compiling

ORDINARY = compiling.A_LITTLE


def hardly() -> None:
    """Short runs are compiled as what runs once: half the time to compile, which takes far longer than a test's run."""
    compiling.A_LITTLE = compiling.HARDLY


def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test, as it is in processes that do not import this."""
    monkeypatch.setattr(compiling, "A_LITTLE", ORDINARY)
