"""Tracing a density before it is evaluated: names, shapes, and which latents it uses."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from isvi.core.errors import IsviError, ModelError, require
from isvi.core.settings import users_settings


def used_latents(label: str, density: Callable[..., Any], values: dict[str, Any], *rows: Any) -> set[str]:
    """The latents that a density depends on, found by tracing it."""
    try:
        with users_settings():
            jaxpr, result = jax.make_jaxpr(density, return_shape=True)(values, *rows)
    except IsviError:
        raise
    except KeyError as error:
        asked = error.args[0] if error.args else None
        if isinstance(asked, str) and asked not in values and (not rows or asked not in _row_names(rows[0])):
            known = f"latents are {sorted(values)}"
            columns = f", its data columns {sorted(_row_names(rows[0]))}" if rows and _row_names(rows[0]) else ""
            raise ModelError(
                f"{label} asks for {asked!r}, which the model does not have: its {known}{columns}."
            ) from error
        raise
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise ModelError(
            f"{label} cannot be compiled by JAX: write it with jax.numpy instead of numpy, without Python `if` or "
            "float() on latents. JAX said: " + str(error).splitlines()[0]
        ) from error
    except TypeError as error:
        by_name = "string indexing" in str(error) or "indices must be integers" in str(error)
        if rows and not isinstance(rows[0], dict) and by_name:
            raise ModelError(
                f"{label} asks for columns by name, but the data have none: they are one array, or a tuple. Pass a "
                "dict, isvi.fit(model, {'x': x, 'y': y}), or write the model for what there is."
            ) from error
        error.add_note(f"(raised while isvi traced {label}, before fitting)")
        raise
    except Exception as error:
        error.add_note(f"(raised while isvi traced {label}, before fitting)")
        raise
    require(
        hasattr(result, "shape") and result.shape == (),
        ModelError,
        f"{label} must return a scalar; it returned "
        + (f"shape {result.shape}" if hasattr(result, "shape") else f"{type(result).__name__}")
        + ". Sum over rows and entries, for instance with jnp.sum(...).",
    )
    require(
        jnp.issubdtype(result.dtype, jnp.floating),
        ModelError,
        f"{label} must return a real number; it returned dtype {result.dtype}.",
    )
    inputs = jaxpr.jaxpr.invars[: len(values)]
    mentioned = {id(var) for equation in jaxpr.jaxpr.eqns for var in equation.invars}
    mentioned |= {id(var) for var in jaxpr.jaxpr.outvars}
    # Dicts are flattened in the order of their sorted keys.
    return {name for name, var in zip(sorted(values), inputs, strict=True) if id(var) in mentioned}


def _row_names(rows: Any) -> set[str]:
    return set(rows) if isinstance(rows, dict) else set()


def outputs_reached(function: Callable[..., dict[str, Any]], inputs: Any) -> set[str]:
    """Names of the outputs that depend on any of the inputs."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(inputs)
    reached = {id(var) for var in jaxpr.jaxpr.invars}
    for equation in jaxpr.jaxpr.eqns:
        if any(id(var) in reached for var in equation.invars):
            reached |= {id(var) for var in equation.outvars}
    # Dicts are flattened in the order of their sorted keys.
    return {name for name, var in zip(sorted(shapes), jaxpr.jaxpr.outvars, strict=True) if id(var) in reached}
