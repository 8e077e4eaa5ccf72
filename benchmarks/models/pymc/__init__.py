"""The models in PyMC, by theme; latents are called as in NumPyro, so that they share their references."""

from typing import Any

import isvi
from benchmarks.models.case import Case
from benchmarks.models.pymc import hierarchies, regressions, series

CASES = {case.name: case for theme in (hierarchies, regressions, series) for case in theme.CASES}


def given(case: Case) -> tuple[Any, Any]:
    """The model and the data, as they are passed to ``isvi.fit``: PyMC's models have their data."""
    return isvi.from_pymc(case.model(**case.data().everything)), None
