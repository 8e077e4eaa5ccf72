"""The benchmark's problems, so small that a test can afford them."""

from collections.abc import Callable

from benchmarks import problems
from benchmarks.problem import Problem

TOYS: dict[str, Callable[[], Problem]] = {
    "a": lambda: problems.diagonal_gaussian(rows=60, dim=3, batch_size=20),
    "b": lambda: problems.linear_regression(rows=60, dim=3, batch_size=20),
    "b'": lambda: problems.scaled_regression(rows=60, dim=3, batch_size=20),
    "d": lambda: problems.flights_regression(rows=500, batch_size=200),
    "e": lambda: problems.flights_hierarchy(rows=500, batch_size=200),
    "f": lambda: problems.poisson_regression(rows=200, dim=3, batch_size=60),
}
