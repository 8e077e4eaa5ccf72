"""From a record that is wanted to tasks for workers, and from their answers to the record."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.data.stream import Stream
from isvi.estimators import Estimator
from isvi.families.base import Params
from isvi.fitting.running.elsewhere import Begin, Elsewhere, Pending
from isvi.fitting.running.surroundings import Surroundings
from isvi.fitting.running.tasks import Calls, Records
from isvi.fitting.setup import Setup
from isvi.memory.record import Record
from isvi.model.binding import Bindable
from isvi.model.external import ExternalTarget
from isvi.model.external.rows import host_rows
from isvi.model.model import Model
from isvi.workers import Asked, Asking, Crew, Workers

IN_RESERVE = 1.25
"""In asynchronous mode there are so many tasks for every worker: whoever has finished one finds the next."""


@dataclass(frozen=True)
class Making:
    """The user's workers, and what they need to know: the model and the data as they were passed."""

    workers: Workers | None
    model: Model | Bindable
    data: Any

    @contextmanager
    def open(self, setup: Setup, nodes: tuple[int, bool] | None = None) -> Iterator[Callable[[bool], Elsewhere | None]]:
        """``elsewhere_of(of_fallback)``, where the workers make records; None if there are none. ``nodes`` are the
        setup's, if not those that it was prepared with."""
        if self.workers is None:
            yield lambda of_fallback: None
            return
        target = setup.target
        if isinstance(target, ExternalTarget):
            stream = setup.dataset if isinstance(setup.dataset, Stream) else None
            crew = self.workers.open(Calls(target.model.external, stream, Surroundings.now()))
        else:
            crew = self.workers.open(
                Records(self.model, self.data, setup.options, setup.effort, Surroundings.now(), nodes, setup)
            )
        try:
            yield lambda of_fallback: _elsewhere(crew, setup, of_fallback)
        finally:
            crew.close()


def _elsewhere(crew: Crew, setup: Setup, of_fallback: bool) -> Elsewhere:
    asking, estimator = Asking(crew), setup.bound_estimator(of_fallback)
    begin: Begin
    if isinstance(setup.target, ExternalTarget):
        begin = CallsOf(asking, setup, setup.target, estimator)
        tasks = 1 if setup.target.model.external.vectorized else estimator.num_samples
    else:
        begin, tasks = WholeOf(asking, of_fallback), 1
    under_way = max(2, int(np.ceil(IN_RESERVE * crew.size / tasks)))
    approximation = estimator.approximation
    return Elsewhere(
        begin, under_way if crew.asynchronous else None, lambda params: approximation.entropy(params).sum()
    )


@dataclass(frozen=True)
class Answers:
    """A record, of one or several answers that are waited for."""

    asked: Sequence[Asked]
    complete: Callable[[list[Any]], Record]

    @property
    def done(self) -> bool:
        return all(one.done for one in self.asked)

    def listen(self, listener: Callable[[], None]) -> None:
        for one in self.asked:
            one.listen(listener)

    def hurry(self) -> float:
        return min((one.hurry() for one in self.asked if not one.done), default=0.0)

    def result(self) -> Record:
        return self.complete([one.answer() for one in self.asked])

    def cancel(self) -> None:
        for one in self.asked:
            one.cancel()


@dataclass(frozen=True)
class WholeOf:
    """``begin(key_data, params, index)`` for a model in JAX: one task, the whole record."""

    asking: Asking
    of_fallback: bool

    def __call__(self, key_data: np.ndarray, params: Params, index: int) -> Pending:
        asked = self.asking.ask((self.of_fallback, key_data, jax.device_get(params), index))
        return Answers([asked], lambda found: jax.tree.map(jnp.asarray, found[0]))


class CallsOf:
    """``begin(key_data, params, index)`` for a model on the host: a task for every draw."""

    def __init__(self, asking: Asking, setup: Setup, target: ExternalTarget, estimator: Estimator) -> None:
        self._asking, self._dataset, self._target, self._estimator = asking, setup.dataset, target, estimator
        self._any = setup.dataset.batch(0)  # all mini-batches have the same share
        self._kept: int | None = None

    def __call__(self, key_data: np.ndarray, params: Params, index: int) -> Pending:
        key = jax.random.wrap_key_data(jnp.asarray(key_data))
        draws, log_density, share = self._estimator.draw(key, params, self._any)
        values, rows = self._target.decode(draws), self._rows(index)
        parts = [values] if self._target.model.external.vectorized else _one_by_one(values, len(draws))

        def complete(found: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> Record:
            likelihoods = np.concatenate([value for value, _ in found])
            pulls = {name: np.concatenate([pull[name] for _, pull in found]) for name in found[0][1]}
            log_joint, gradient = self._target.complete(draws, likelihoods, pulls, self._any.scale)
            gradient = gradient[:, : self._gradient_dim(params)]
            return Record(draws, log_density, log_joint, gradient, jnp.int32(index), share)

        return Answers([self._asking.ask((part, rows)) for part in parts], complete)

    def _rows(self, index: int) -> Any:
        """What tells the rows: their numbers; of a source, the number of the mini-batch."""
        if isinstance(self._dataset, Stream):
            return index
        return None if self._dataset.full is None else host_rows(self._dataset.batch(index))

    def _gradient_dim(self, params: Params) -> int:
        """Entries of the gradient that a record keeps: all or none, as the estimator says."""
        if self._kept is None:
            shapes = jax.eval_shape(self._estimator.record, jax.random.key(0), params, self._any)
            self._kept = shapes.gradient.shape[-1]
        return self._kept


def _one_by_one(values: dict[str, np.ndarray], count: int) -> list[dict[str, np.ndarray]]:
    return [{name: value[draw : draw + 1] for name, value in values.items()} for draw in range(count)]
