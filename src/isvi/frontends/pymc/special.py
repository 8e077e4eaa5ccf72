"""Error functions for PyTensor's export to JAX.

PyMC computes the tails of normals by a switch between formulas, each of which is infinite where the other one is
chosen. JAX multiplies the slope of what is not chosen by 0, and infinity times 0 is not a number: so neither the values
nor the slopes here are infinite where it matters. ``erfcx`` PyTensor exports only with TensorFlow Probability.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special
from jaxtyping import Array

LEFT_OUT = "local_log_erfc"
"""PyTensor's rewrite that :func:`rewrite_log_erfc` takes the place of."""
DONE = "isvi_log_erfc"


@jax.custom_jvp
def erfcx(x: Array) -> Array:
    """exp(x^2) erfc(x); with a slope of 0 where it overflows."""
    large = x > _largest_product(x.dtype)
    near, far = jnp.where(large, 0, x), jnp.where(large, x, 1)
    term = 0.5 / far**2
    series = 1 - term * (1 - 3 * term * (1 - 5 * term * (1 - 7 * term)))
    return jnp.where(large, series / (far * np.sqrt(np.pi)), jnp.exp(near**2) * special.erfc(near))


def _largest_product(dtype: jnp.dtype) -> float:
    """Up to where erfc has all its digits; the asymptotic series has them beyond."""
    return 9.0 if dtype == jnp.float32 else 25.0


@erfcx.defjvp
def _erfcx_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    [x], [moved] = primals, tangents
    value = erfcx(x)
    slope = 2 * x * value - 2 / np.sqrt(np.pi)
    return value, jnp.where(jnp.isfinite(slope), slope, 0) * moved


def erfc(x: Array) -> Array:
    """1 - erf(x), at most the largest number below 2: of the logarithm of 1 - erfc / 2 then something is left."""
    return jnp.minimum(special.erfc(x), jnp.nextafter(jnp.asarray(2, x.dtype), jnp.asarray(0, x.dtype)))


def register() -> None:
    """Tell PyTensor's JAX backend."""
    from pytensor.link.jax.dispatch.basic import jax_funcify
    from pytensor.scalar.math import Erfc, Erfcx

    for op, function in ((Erfc, erfc), (Erfcx, erfcx)):
        jax_funcify.register(op)(_exporting(function))


def _exporting(function: Callable[[Array], Array]) -> Callable[..., Callable[[Array], Array]]:
    def exported(op: Any, node: Any, **kwargs: Any) -> Callable[[Array], Array]:
        return lambda x: function(jnp.asarray(x, jnp.result_type(x, float)))

    return exported


def rewrite_log_erfc(graph: Any) -> None:
    """Put ``log(erfcx(x)) - x^2`` for ``log(erfc(x))`` at positive x, in place. PyTensor's own rewrite has powers of
    1 / x up to the sixth in what is not chosen, which overflow next to 0."""
    import pytensor.tensor as pt
    from pytensor.graph.rewriting.basic import in2out, node_rewriter
    from pytensor.scalar.math import Erfc

    @node_rewriter([pt.log])
    def stable(graph: Any, node: Any) -> list[Any] | None:
        inner = node.inputs[0].owner
        if inner is None or not isinstance(getattr(inner.op, "scalar_op", None), Erfc) or hasattr(node.tag, DONE):
            return None
        [x] = inner.inputs
        above, below = pt.maximum(x, 0), pt.minimum(x, 0)
        near = pt.log(pt.erfc(below))
        setattr(near.owner.tag, DONE, True)
        chosen = pt.switch(x > 0, pt.log(pt.erfcx(above)) - above**2, near)
        return [pt.cast(chosen, node.outputs[0].dtype)]

    in2out(stable).rewrite(graph)
