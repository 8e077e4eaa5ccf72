"""What workers are asked for while a fit runs.

A model in JAX: whole records, each from a key, the parameters and the number of a mini-batch. A model on the host: its
own function at one draw, and nothing else; what JAX knows around it stays with the driver, so that the numbers are
those of a fit without workers, bit for bit.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from isvi.data.stream import Stream
from isvi.estimators import Estimator
from isvi.families.base import Params
from isvi.fitting.options import Options
from isvi.fitting.running.ahead import Begin, Pending
from isvi.fitting.running.surroundings import Surroundings
from isvi.fitting.setup import Setup, prepare
from isvi.memory.record import Record
from isvi.model.binding import Bindable
from isvi.model.external import ExternalTarget
from isvi.model.external.call import External
from isvi.model.external.rows import host_rows
from isvi.model.model import Model
from isvi.workers import Crew, Workers
from isvi.workers.crew import wait_for


@dataclass(frozen=True)
class Making:
    """The user's workers, and what they need to know: the model and the data as they were passed."""

    workers: Workers | None
    model: Model | Bindable
    data: Any

    @contextmanager
    def open(self, setup: Setup, nodes: tuple[int, bool] | None = None) -> Iterator[Callable[[bool], Begin | None]]:
        """``begin_of(of_fallback)``, which has records made by the workers; None if there are none. ``nodes`` are the
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
            yield lambda of_fallback: _begin(crew, setup, of_fallback)
        finally:
            crew.close()


def _begin(crew: Crew, setup: Setup, of_fallback: bool) -> Begin:
    if isinstance(setup.target, ExternalTarget):
        return CallsOf(crew, setup, setup.target, setup.bound_estimator(of_fallback))
    return lambda key, params, index: Whole(
        crew, crew.submit((of_fallback, *jax.device_get((jax.random.key_data(key), params)), index))
    )


@dataclass(frozen=True)
class Records:
    """Whole records, of a model in JAX: a :class:`isvi.workers.Work`.

    Attributes:
        options: nothing in them is left open.
        effort: compiler options.
        nodes: of the integrals over local latents, if not the usual ones.
        here: the driver's own setup, where the worker is a thread of it; it is not sent.
    """

    model: Model | Bindable
    data: Any
    options: Options
    effort: dict[str, Any] | None
    surroundings: Surroundings
    nodes: tuple[int, bool] | None = None
    here: Setup | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Records, (self.model, self.data, self.options, self.effort, self.surroundings, self.nodes)

    def __call__(self) -> Callable[[Any], Record]:
        with self.surroundings.entered():
            setup = self.here or prepare(self.model, self.data, self.options).with_nodes(self.nodes)
        make = {
            of_fallback: jax.jit(setup.bound_estimator(of_fallback).record, compiler_options=self.effort)
            for of_fallback in (False, True)
        }

        def record(task: tuple[bool, np.ndarray, Params, int]) -> Record:
            of_fallback, key, params, index = task
            with self.surroundings.entered():
                batch = setup.dataset.holding(index).batch(index)
                return jax.device_get(make[of_fallback](jax.random.wrap_key_data(jnp.asarray(key)), params, batch))

        return record


@dataclass(frozen=True)
class Whole:
    """A record that a worker makes."""

    crew: Crew
    future: "Future[Record]"

    def result(self) -> Record:
        return jax.tree.map(jnp.asarray, wait_for(self.future, self.crew.time_limit))

    def cancel(self) -> None:
        self.future.cancel()


@dataclass(frozen=True)
class Calls:
    """Evaluations of a model on the host: a :class:`isvi.workers.Work`.

    Attributes:
        stream: the data, if they come from a source; else the model has them.
    """

    external: External
    stream: Stream | None
    surroundings: Surroundings

    def __call__(self) -> Callable[[Any], tuple[np.ndarray, dict[str, np.ndarray]]]:
        def call(task: tuple[dict[str, np.ndarray], Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            values, rows = task
            with self.surroundings.entered():
                if self.stream is not None:
                    rows = host_rows(self.stream.holding(rows).batch(rows))
                return self.external(values, rows)

        return call


class CallsOf:
    """``begin(key, params, index)`` for a model on the host: a task for every draw."""

    def __init__(self, crew: Crew, setup: Setup, target: ExternalTarget, estimator: Estimator) -> None:
        self._crew, self._dataset, self._target, self._estimator = crew, setup.dataset, target, estimator
        self._any = setup.dataset.batch(0)  # all mini-batches have the same share
        self._kept: int | None = None

    def __call__(self, key: PRNGKeyArray, params: Params, index: int) -> Pending:
        draws, log_density, share = self._estimator.draw(key, params, self._any)
        values, rows = self._target.decode(draws), self._rows(index)
        parts = [values] if self._target.model.external.vectorized else _one_by_one(values, len(draws))

        def complete(likelihoods: np.ndarray, pulls: dict[str, np.ndarray]) -> Record:
            log_joint, gradient = self._target.complete(draws, likelihoods, pulls, self._any.scale)
            gradient = gradient[:, : self._gradient_dim(params)]
            return Record(draws, log_density, log_joint, gradient, jnp.int32(index), share)

        return Answers(self._crew, [self._crew.submit((part, rows)) for part in parts], complete)

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


@dataclass(frozen=True)
class Answers:
    """A record whose draws are evaluated one by one."""

    crew: Crew
    answers: "Sequence[Future[Any]]"
    complete: Callable[[np.ndarray, dict[str, np.ndarray]], Record]

    def result(self) -> Record:
        found = [wait_for(answer, self.crew.time_limit) for answer in self.answers]
        likelihoods = np.concatenate([value for value, _ in found])
        pulls = {name: np.concatenate([pull[name] for _, pull in found]) for name in found[0][1]}
        return self.complete(likelihoods, pulls)

    def cancel(self) -> None:
        for answer in self.answers:
            answer.cancel()


def _one_by_one(values: dict[str, np.ndarray], count: int) -> list[dict[str, np.ndarray]]:
    return [{name: value[draw : draw + 1] for name, value in values.items()} for draw in range(count)]
