"""Models in another language share the data and the references of NumPyro's, by name."""

from collections.abc import Callable

from benchmarks.models.case import Case
from benchmarks.models.numpyro import CASES


def named_alike(models: dict[str, Callable]) -> tuple[Case, ...]:
    return tuple(Case(name, model, CASES[name].data, CASES[name].hard_for) for name, model in models.items())
