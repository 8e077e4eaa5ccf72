"""PyMC's transforms, from the unconstrained space onto a support, as numpyro writes transforms."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from isvi.frontends.pymc.graphs import jax_function

SUPPORTS = {
    "LogTransform": constraints.positive,
    "LogExpM1": constraints.positive,
    "LogOddsTransform": constraints.unit_interval,
    "SimplexTransform": constraints.simplex,
    "Ordered": constraints.ordered_vector,
}
"""What PyMC's transforms map onto, where families other than Gaussians may ask."""


class PymcTransform(Transform):
    """A transform of PyMC, from the unconstrained space onto the support, as numpyro writes transforms."""

    domain = constraints.real

    def __init__(self, backward: Callable, forward: Callable, log_jacobian: Callable, shape: tuple[int, ...]) -> None:
        self._backward, self._forward, self._log_jacobian, self._shape = backward, forward, log_jacobian, shape

    @classmethod
    def of(cls, transform: Any, rv: Any, value: Any, shape: tuple[int, ...]) -> "PymcTransform":
        constrained = rv.type("constrained")
        inputs = rv.owner.inputs
        return cls(
            jax_function([value], [transform.backward(value, *inputs)]),
            jax_function([constrained], [transform.forward(constrained, *inputs)]),
            jax_function([value], [transform.log_jac_det(value, *inputs)]),
            shape,
        )

    def __call__(self, x: Array) -> Array:
        return self._backward(x)[0]

    def _inverse(self, y: Array) -> Array:
        return self._forward(y)[0]

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        return self._log_jacobian(x)[0]

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._shape

    def tree_flatten(self) -> tuple[tuple, tuple]:
        return (), ((), {"functions": (self._backward, self._forward, self._log_jacobian, self._shape)})
