"""PyTensor graphs: what they depend on, parts put in the place of others, and their export to JAX."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array

from isvi.core.errors import ModelError, require
from isvi.frontends.pymc import special

NO_GRADIENT = (
    "JAX cannot differentiate what the PyMC model is computed with: {reason} (Cumulative probabilities of negative "
    "binomials, Betas and Student's t, which pm.Truncated, pm.Censored and hurdle models ask for, are incomplete beta "
    "functions.) Write that term in a closed form with pm.Potential or pm.CustomDist, or give the log density and its "
    "gradient to isvi.from_gradient."
)


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
        import pymc.sampling.jax  # noqa: F401 - PyMC's own conversions
    finally:
        jax.config.update("jax_enable_x64", precision)
    special.register()
    try:
        function = _converted(inputs, outputs)
    except NotImplementedError as error:
        raise ModelError(
            f"The PyMC model cannot be exported to JAX: {without_properties(str(error))}. Register a conversion with "
            "pytensor.link.jax.dispatch.jax_funcify, or give the log density and its gradient to isvi.from_gradient."
        ) from error

    def quiet(*values: Array) -> tuple[Array, ...]:
        with warnings.catch_warnings():
            # PyTensor asks for float64 throughout; in JAX's default precision float32 is what there is.
            warnings.filterwarnings("ignore", message="Explicitly requested dtype", category=UserWarning)
            try:
                return tuple(function(*values))
            except ValueError as error:
                require("gradient" not in str(error), ModelError, NO_GRADIENT.format(reason=error))
                raise

    return quiet


def without_properties(message: str) -> str:
    """The first line, without what PyTensor writes in braces after the name of an Op: of ``pm.ode`` all time points."""
    return message.splitlines()[0].split("{")[0]


def _converted(inputs: list[Any], outputs: list[Any]) -> Callable[..., Any]:
    """As ``pymc.sampling.jax.get_jaxified_graph``, with error functions that JAX can differentiate."""
    from pytensor.compile import mode
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.fg import FunctionGraph
    from pytensor.link.jax.dispatch import jax_funcify
    from pytensor.tensor import constant

    found = {node for graph in outputs for node in ancestors(graph) if isinstance(node, SharedVariable)}
    fixed = {one: constant(one.get_value(borrow=True), name=one.name) for one in found if one not in inputs}
    graph = FunctionGraph(inputs=inputs, outputs=replaced(outputs, fixed), clone=True)
    mode.JAX.excluding(special.LEFT_OUT).optimizer.rewrite(graph)
    special.rewrite_log_erfc(graph)
    return jax_funcify(graph)
