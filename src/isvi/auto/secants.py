"""Secants: how the gradient changed along the way taken, on top of a preconditioner (limited-memory BFGS)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

KEPT = 10


class Secants(NamedTuple):
    """The latest pairs of steps and changes of the negative gradient, oldest first; unused rows are zero."""

    steps: Float[Array, "kept dim"]
    changes: Float[Array, "kept dim"]

    @classmethod
    def none(cls, dim: int, dtype: jnp.dtype) -> "Secants":
        zeros = jnp.zeros((KEPT, dim), dtype)
        return cls(zeros, zeros)

    def add(self, step: Float[Array, " dim"], change: Float[Array, " dim"]) -> "Secants":
        """Append a secant if the curvature along it is positive."""
        useful = jnp.sum(step * change) > 0
        appended = Secants(
            jnp.concatenate([self.steps[1:], step[None]]), jnp.concatenate([self.changes[1:], change[None]])
        )
        return jax.tree.map(lambda new, old: jnp.where(useful, new, old), appended, self)

    def solve(self, gradient: Float[Array, " dim"], preconditioner: Callable[[Array], Array]) -> Float[Array, " dim"]:
        """The two-loop recursion: the preconditioner's answer, corrected to agree with the secants."""
        curvatures = jnp.sum(self.steps * self.changes, axis=1)
        inverse = jnp.where(curvatures > 0, 1 / jnp.where(curvatures > 0, curvatures, 1), 0)

        def backward(carry: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            step, change, rho = row
            alpha = rho * jnp.dot(step, carry)
            return carry - alpha * change, alpha

        rows = (self.steps, self.changes, inverse)
        remaining, alphas = jax.lax.scan(backward, gradient, rows, reverse=True)

        def forward(carry: Array, row: tuple[Array, Array, Array, Array]) -> tuple[Array, None]:
            step, change, rho, alpha = row
            return carry + step * (alpha - rho * jnp.dot(change, carry)), None

        answer, _ = jax.lax.scan(forward, preconditioner(remaining), (*rows, alphas))
        return answer
