"""The callable inside compiled code: a JAX function with a derivative, which calls back to the host."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isvi.model.external.call import External
from isvi.model.external.rows import numbers


def called_back(external: External) -> Callable[[dict[str, Array], Any], Array]:
    """The log likelihood of some rows, for code that JAX traces."""

    def call(values: dict[str, Array], rows: Any) -> tuple[Array, dict[str, Array]]:
        dtype = jnp.result_type(*values.values())

        def on_host(values: dict[str, Any], rows: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            one = {name: np.asarray(value)[None] for name, value in values.items()}
            number, gradients = external(one, numbers(rows))
            with np.errstate(over="ignore"):  # what the type cannot hold is not finite, which is dealt with
                return number[0].astype(dtype), {name: array[0].astype(dtype) for name, array in gradients.items()}

        shapes = (
            jax.ShapeDtypeStruct((), dtype),
            jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, dtype), values),
        )
        return jax.pure_callback(on_host, shapes, values, rows, vmap_method="sequential")

    @jax.custom_vjp
    def likelihood(values: dict[str, Array], rows: Any) -> Array:
        return call(values, rows)[0]

    likelihood.defvjp(call, lambda gradients, by: (jax.tree.map(lambda one: by * one, gradients), None))
    return likelihood
