"""PyTensor graphs: what they depend on, parts put in the place of others, and their export to JAX."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array

from isvi.core.errors import ModelError


def ancestors(graph: Any) -> Any:
    """All that a graph is computed from, itself included."""
    from pytensor.graph import traversal

    return traversal.ancestors([graph])


def replaced(graphs: list[Any], replacements: dict[Any, Any]) -> list[Any]:
    """The graphs with other variables in the place of some."""
    from pytensor.graph.replace import graph_replace

    return graph_replace(graphs, replacements, strict=False) if graphs and replacements else graphs


def jax_function(inputs: list[Any], outputs: list[Any]) -> Callable[..., tuple[Array, ...]]:
    """Export PyTensor graphs. Importing PyTensor's JAX backend switches JAX to 64 bits: this is undone."""
    if not outputs:
        return lambda *values: ()
    precision = jax.config.read("jax_enable_x64")
    try:
        from pymc.sampling.jax import get_jaxified_graph
    finally:
        jax.config.update("jax_enable_x64", precision)
    try:
        function = get_jaxified_graph(inputs=inputs, outputs=outputs)
    except NotImplementedError as error:
        raise ModelError(
            f"The PyMC model cannot be exported to JAX: {str(error).splitlines()[0]}. Register a conversion with "
            "pytensor.link.jax.dispatch.jax_funcify, or give the log density and its gradient to isvi.from_gradient."
        ) from error

    def quiet(*values: Array) -> tuple[Array, ...]:
        with warnings.catch_warnings():
            # PyTensor asks for float64 throughout; in JAX's default precision float32 is what there is.
            warnings.filterwarnings("ignore", message="Explicitly requested dtype", category=UserWarning)
            return tuple(function(*values))

    return quiet
