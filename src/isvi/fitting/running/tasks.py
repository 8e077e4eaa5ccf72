"""What workers do: the functions that they open once, and what a task has to tell them.

A model in JAX: whole records, each from a key, the parameters and the number of a mini-batch. A model on the host: its
own function at one draw, and nothing else; what JAX knows around it stays with the driver, so that the numbers are
those of a fit without workers, bit for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.data.stream import Stream
from isvi.families.base import Params
from isvi.fitting.options import Options
from isvi.fitting.running.surroundings import Surroundings
from isvi.fitting.setup import Setup, prepare
from isvi.memory.record import Record
from isvi.model.binding import Bindable
from isvi.model.external.call import External
from isvi.model.external.rows import host_rows
from isvi.model.model import Model


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

        def record(task: tuple[bool, np.ndarray, Params, int, Sequence[int]]) -> Record:
            of_fallback, key, params, index, ahead = task
            with self.surroundings.entered():
                batch = setup.dataset.holding(index, ahead).batch(index)
                return jax.device_get(make[of_fallback](jax.random.wrap_key_data(jnp.asarray(key)), params, batch))

        return record


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
                    index, ahead = rows
                    rows = host_rows(self.stream.holding(index, ahead).batch(index))
                return self.external(values, rows)

        return call
