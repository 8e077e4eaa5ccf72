"""What is asked of a fit when it has ended, with its model evaluated by workers: diagnosis, the ELBO, and whatever else
goes over all rows."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from threading import Event
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, require
from isvi.fitting.running.elsewhere import wait_for_turn
from isvi.fitting.running.making import Answers, at_draws, joined
from isvi.fitting.running.surroundings import Surroundings
from isvi.fitting.running.tasks import Calls
from isvi.model.external import External, ExternalModel
from isvi.results.fit import Fit
from isvi.workers import Asking, Workers, chosen_workers

DRAWS_AT_ONCE = 4
"""A task is so many draws, or fewer where there would not be one for every worker."""


@contextmanager
def with_workers(fit: Fit, workers: int | Workers | Executor) -> Iterator[Fit]:
    """The same fit, whose model is evaluated by workers while this is entered::

        with isvi.with_workers(fit, ThreadPoolExecutor(16)) as helped:
            print(helped.diagnose())

    The numbers are the same. For models on the host, whose function is called draw by draw for every mini-batch: with
    thousands of draws a diagnosis takes longer than the fit. Models in JAX evaluate many draws at once by themselves.

    Args:
        fit: of a model on the host, with its data.
        workers: as of :func:`isvi.fit`.
    """
    crew_of, model = chosen_workers(workers), fit.model
    require(
        isinstance(model, ExternalModel) and crew_of is not None,
        ConfigurationError,
        "isvi.with_workers is for models on the host (isvi.from_gradient, isvi.from_stan), and needs workers; models "
        "in JAX evaluate many draws at once in this process.",
    )
    assert isinstance(model, ExternalModel)
    assert crew_of is not None
    crew = crew_of.open(Calls(model.external, None, Surroundings.now()))
    own = {one.name: getattr(model.external, one.name) for one in fields(External)}
    try:
        yield replace(fit, model=replace(model, external=Spread(**own, asking=Asking(crew))))
    finally:
        crew.close()


@dataclass(frozen=True)
class Spread(External):
    """The user's callable, called by workers."""

    asking: Asking | None = field(default=None, compare=False, kw_only=True)

    def __call__(self, values: Mapping[str, Any], index: Any = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        assert self.asking is not None
        arrays = {name: np.asarray(value) for name, value in values.items()}
        count = len(next(iter(arrays.values())))
        self.count.draws += count
        at_once = max(1, min(DRAWS_AT_ONCE, count // self.asking.crew.size))
        answers = Answers([self.asking.ask((part, index)) for part in at_draws(arrays, count, at_once)], joined)
        came = Event()
        answers.listen(came.set)
        wait_for_turn(answers, came)
        return answers.result()
