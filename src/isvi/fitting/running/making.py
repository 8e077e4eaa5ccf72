"""From a record that is wanted to tasks for workers, and from their answers to the record."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from isvi.data.stream import Stream
from isvi.estimators import Estimator
from isvi.families.base import Params
from isvi.fitting.running.elsewhere import Begin, Elsewhere, Pending
from isvi.fitting.running.parts import Parts
from isvi.fitting.running.surroundings import Surroundings
from isvi.fitting.running.tasks import Calls, Records
from isvi.fitting.setup import Setup
from isvi.memory.record import Record
from isvi.model.binding import Bindable
from isvi.model.external import ExternalTarget
from isvi.model.external.rows import host_rows
from isvi.model.model import Model
from isvi.workers import Asked, Asking, Crew, Workers
from isvi.workers.asking import REMEMBERED

Whole = TypeVar("Whole")

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
    target, estimator, parts = setup.target, setup.bound_estimator(of_fallback), Parts(setup, crew)
    external = isinstance(target, ExternalTarget) and not target.model.external.vectorized
    tasks = estimator.num_samples if external else 1
    asking = _asking(crew, setup, tasks)
    begin: Begin = WholeOf(asking, parts, of_fallback)
    if isinstance(target, ExternalTarget):
        begin = CallsOf(asking, parts, target, estimator)
    under_way = max(2, int(np.ceil(IN_RESERVE * crew.size / tasks)))
    approximation = estimator.approximation
    return Elsewhere(
        begin, under_way if crew.asynchronous else None, lambda params: approximation.entropy(params).sum()
    )


def _asking(crew: Crew, setup: Setup, tasks: int) -> Asking:
    """The first record of a window waits until that is decoded, on the best of workers: it is no reason to ask another
    one."""
    if setup.dataset.windows is None:
        return Asking(crew)
    return Asking(crew, max(REMEMBERED, 2 * tasks * setup.dataset.windows.length), slow_share=0.0)


@dataclass(frozen=True)
class Answers(Generic[Whole]):
    """A record, or what else is made of one or several answers that are waited for."""

    asked: Sequence[Asked]
    complete: Callable[[list[Any]], Whole]

    @property
    def done(self) -> bool:
        return all(one.done for one in self.asked)

    def listen(self, listener: Callable[[], None]) -> None:
        for one in self.asked:
            one.listen(listener)

    def hurry(self) -> float:
        return min((one.hurry() for one in self.asked if not one.done), default=0.0)

    def result(self) -> Whole:
        return self.complete([one.answer() for one in self.asked])

    def cancel(self) -> None:
        for one in self.asked:
            one.cancel()


@dataclass(frozen=True)
class WholeOf:
    """``begin(key_data, params, index)`` for a model in JAX: one task, the whole record."""

    asking: Asking
    parts: Parts
    of_fallback: bool

    def __call__(self, key_data: np.ndarray, params: Params, index: int) -> Pending:
        place, ahead = self.parts.of(index)
        asked = self.asking.ask((self.of_fallback, key_data, jax.device_get(params), index, ahead), place)
        return Answers([asked], lambda found: jax.tree.map(jnp.asarray, found[0]))


class CallsOf:
    """``begin(key_data, params, index)`` for a model on the host: a task for every draw."""

    def __init__(self, asking: Asking, parts: Parts, target: ExternalTarget, estimator: Estimator) -> None:
        self._asking, self._parts, self._target, self._estimator = asking, parts, target, estimator
        self._dataset = parts.setup.dataset
        self._any = self._dataset.batch(0)  # all mini-batches have the same share
        self._kept: int | None = None

    def __call__(self, key_data: np.ndarray, params: Params, index: int) -> Pending:
        key = jax.random.wrap_key_data(jnp.asarray(key_data))
        draws, log_density, share = self._estimator.draw(key, params, self._any)
        place, ahead = self._parts.of(index)
        values, rows = self._target.decode(draws), self._rows(index, ahead)
        at_once = len(draws) if self._target.model.external.vectorized else 1
        parts = at_draws(values, len(draws), at_once)

        def complete(found: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> Record:
            likelihoods, pulls = joined(found)
            log_joint, gradient = self._target.complete(draws, likelihoods, pulls, self._any.scale)
            gradient = gradient[:, : self._gradient_dim(params)]
            return Record(draws, log_density, log_joint, gradient, jnp.int32(index), share)

        return Answers([self._asking.ask((part, rows), place) for part in parts], complete)

    def _rows(self, index: int, ahead: Sequence[int]) -> Any:
        """What tells the rows: their numbers; of a source, the number of the mini-batch, and windows to read ahead."""
        if isinstance(self._dataset, Stream):
            return index, ahead
        return None if self._dataset.full is None else host_rows(self._dataset.batch(index))

    def _gradient_dim(self, params: Params) -> int:
        """Entries of the gradient that a record keeps: all or none, as the estimator says."""
        if self._kept is None:
            shapes = jax.eval_shape(self._estimator.record, jax.random.key(0), params, self._any)
            self._kept = shapes.gradient.shape[-1]
        return self._kept


def at_draws(values: dict[str, np.ndarray], count: int, at_once: int) -> list[dict[str, np.ndarray]]:
    """Values at so many draws, cut into some at a time."""
    return [
        {name: value[first : first + at_once] for name, value in values.items()} for first in range(0, count, at_once)
    ]


def joined(found: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Values and gradients at all draws again."""
    names = found[0][1]
    values = np.concatenate([value for value, _ in found])
    return values, {name: np.concatenate([gradients[name] for _, gradients in found]) for name in names}
