"""Run-time checks of array shapes, and of nothing else.

jaxtyping's import hook passes every function of the package through a type checker. Other annotations are left
alone: what a user passes wrongly must be answered by isvi's own errors, not by the checker's.
"""

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def check_shapes(function: Callable) -> Callable:
    """beartype, for annotations that mention an array's shape."""
    if function.__name__ == "__init__":
        return function  # JAX rebuilds pytrees with placeholders in the place of arrays
    annotations = getattr(function, "__annotations__", {})
    if not any(map(_is_shape, annotations.values())):
        return function
    function.__annotations__ = {name: hint if _is_shape(hint) else Any for name, hint in annotations.items()}
    return beartype(function)


def _is_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_is_shape(part) for part in get_args(hint))
