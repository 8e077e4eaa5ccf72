"""Drawing many records at old parameters and using them at new ones."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import isvi
from isvi.estimators import EstimatorOptions

AT_ONCE = 4_000
"""Records in memory at a time: 20,000 of a Dirichlet took a gigabyte."""


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0])


@partial(jax.jit, static_argnames=("seed", "size"))
def jiggled(params: Any, seed: int, size: float) -> Any:
    """Parameters with every entry moved by at most ``size``, so that none sits at a special value."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    moves = [jax.random.uniform(k, leaf.shape, leaf.dtype, -size, size) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, [leaf + move for leaf, move in zip(leaves, moves, strict=True)])


def bound(options: EstimatorOptions, model: isvi.Model, approximation: isvi.Approximation) -> isvi.Estimator:
    """An estimator whose functions are compiled, each as a whole."""
    estimator = options.bind(isvi.Target(model, approximation.coordinates), approximation)
    return estimator._replace(
        record=jax.jit(estimator.record), gradient=jax.jit(estimator.gradient), health=jax.jit(estimator.health)
    )


def reused_gradients(
    estimator: isvi.Estimator, old: Any, new: Any, num_records: int, seed: int = 0, dataset: isvi.Dataset | None = None
) -> np.ndarray:
    """``(num_records, parameters)``: gradients at ``new`` of records drawn at ``old``, one at a time."""
    batch = (dataset or isvi.Dataset.from_arrays(None)).batch(0)

    def one(key: jax.Array) -> jax.Array:
        record = estimator.record(key, old, batch)
        return ravel_pytree(estimator.gradient(new, record.alone()))[0]

    @jax.jit
    def every(keys: jax.Array) -> jax.Array:
        return jax.lax.map(one, keys, batch_size=AT_ONCE)

    return np.asarray(every(jax.random.split(jax.random.key(seed), num_records)))


def normal_moments(location: Any, scale: Any) -> tuple[jax.Array, jax.Array]:
    """Arrays that ``Approximation.init`` takes."""
    location = jnp.asarray(location, float)
    return location, jnp.broadcast_to(jnp.asarray(scale, float), location.shape)
