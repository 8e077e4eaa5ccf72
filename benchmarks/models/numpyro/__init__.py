"""The models in NumPyro, by theme."""

from benchmarks.models.numpyro import functions, hidden_states, hierarchies, regressions, textbooks, time_series

THEMES = (hierarchies, regressions, time_series, hidden_states, functions, textbooks)
CASES = {case.name: case for theme in THEMES for case in theme.CASES}
