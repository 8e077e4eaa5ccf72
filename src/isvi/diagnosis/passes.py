"""Means over all mini-batches of what is computed from each, compiled where the model allows it."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isvi.data.dataset import Batch, Dataset
from isvi.data.opening import Data
from isvi.model.target import Target

Each = Callable[[Any, Batch], Any]
"""Of draws, or whatever is asked for, and a mini-batch: arrays."""


def over_batches(target: Target, each: Each, options: dict[str, Any] | None = None) -> Callable[[Any, Data], Any]:
    """A function of draws and data: the mean of ``each`` over the mini-batches. A mean of gradients of the log joint,
    each estimated from one mini-batch, is the gradient with all rows. ``options`` are the compiler's."""
    on_part = _on_host(each) if target.on_host else _compiled(each, options)

    def mean(draws: Any, data: Data) -> Any:
        total = None
        for part in data.parts():
            more = on_part(draws, part)
            total = more if total is None else jax.tree.map(operator.add, total, more)
        return jax.tree.map(lambda one: np.asarray(one) / data.num_batches, total)

    return mean


def _on_host(each: Each) -> Callable[[Any, Dataset], Any]:
    """The sum over a part of the data, for a model that is evaluated on the host."""

    def on_part(draws: Any, part: Dataset) -> Any:
        total = None
        for index in _indices(part):
            more = each(draws, part.batch(index))
            total = more if total is None else jax.tree.map(operator.add, total, more)
        return total

    return on_part


def _compiled(each: Each, options: dict[str, Any] | None) -> Callable[[Any, Dataset], Any]:
    """The same, compiled."""

    @partial(jax.jit, compiler_options=options)
    def on_part(draws: Any, part: Dataset) -> Any:
        def add(total: Any, index: Array) -> tuple[Any, None]:
            return jax.tree.map(operator.add, total, each(draws, part.batch(index))), None

        shapes = jax.eval_shape(lambda: each(draws, part.batch(0)))
        nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)
        return jax.lax.scan(add, nothing, jnp.asarray(_indices(part)))[0]

    return on_part


def _indices(part: Dataset) -> list[int]:
    """The mini-batches that are in memory, by the numbers that this part of the data knows them by."""
    leaves = jax.tree.leaves(part.full)
    full = list(range(len(leaves[0]) if leaves else 1))
    return full if part.rest is None else [*full, part.num_batches - 1]
