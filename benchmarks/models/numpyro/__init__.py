"""The models in NumPyro, by theme."""

from benchmarks.models.numpyro import hierarchies, regressions, time_series

CASES = {case.name: case for theme in (hierarchies, regressions, time_series) for case in theme.CASES}
