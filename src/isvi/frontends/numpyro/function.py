"""A NumPyro model function with the arguments that it was bound to, and how it is called."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from isvi.core.errors import ModelError

UNKNOWN_YET = (
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""What JAX raises where a program must know a number while it is traced."""


@dataclass(frozen=True)
class ModelFunction:
    """What the user gave.

    Attributes:
        function: the model function.
        args, kwargs: the arguments that are always passed.
        eager: whether what depends on nothing but these is computed while the function is traced, so that it can ask
            for numbers: ``int(np.max(group)) + 1`` of a bound array, which JAX would only know later.
    """

    function: Callable
    args: tuple
    kwargs: Mapping[str, Any]
    eager: bool = field(default=False, kw_only=True)

    def __call__(self, *more: Any, **named: Any) -> None:
        """Call the function on some rows, with what it was bound to in today's precision: next to latents in double
        precision, floats in single precision would clash wherever JAX wants one type, as in a scan."""
        args, kwargs = jax.tree.map(_in_precision, (self.args, dict(self.kwargs)))
        self.call(*args, *more, **{**kwargs, **named})

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with these arguments only."""
        try:
            with jax.ensure_compile_time_eval() if self.eager else nullcontext():
                return self.function(*args, **kwargs)
        except UNKNOWN_YET as error:
            raise ModelError(
                "The NumPyro model needs to know numbers that JAX has not computed yet: by NumPy (np.unique, np.max), "
                "int() or `if`, of the data or of latents. Compute what is about all rows beforehand and bind it in "
                "from_numpyro, isvi.from_numpyro(model, num_groups=8); write the rest with jax.numpy. JAX said: "
                + str(error).splitlines()[0]
            ) from error


def _in_precision(leaf: Any) -> Any:
    floats = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
    if not floats or isinstance(leaf, jax.core.Tracer):
        return leaf
    with jax.ensure_compile_time_eval():  # so that the model may look at it with NumPy
        return leaf.astype(jnp.result_type(float))
