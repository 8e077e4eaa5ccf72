"""Linear algebra of many small matrices at once, entry by entry: for matrices of a few rows this is one vector
operation per entry, where a library routine is one call per matrix."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Matrices = Float[Array, "groups size size"]
Vectors = Float[Array, "groups size"]

SMALLEST_PIVOT = 1e-4
"""Of the diagonal entry that it came from. Less is rounding, or a matrix that is not positive definite."""


class Cholesky(NamedTuple):
    """``lower @ lower.T`` is the matrix, or one near it that is positive definite."""

    lower: Matrices
    definite: Bool[Array, " groups"]
    """Whether it is the matrix itself."""


def cholesky(matrices: Matrices) -> Cholesky:
    """Where a pivot is not positive, its absolute value is taken, so that there always is a factor."""
    size = matrices.shape[-1]
    dtype = matrices.dtype
    tiny = jnp.finfo(dtype).tiny ** 0.5
    entries = [[jnp.zeros(matrices.shape[:1], dtype) for _ in range(size)] for _ in range(size)]
    definite = jnp.ones(matrices.shape[:1], bool)
    for column in range(size):
        own = matrices[:, column, column]
        pivot = own - sum((entries[column][j] ** 2 for j in range(column)), jnp.zeros_like(own))
        least = jnp.maximum(SMALLEST_PIVOT * jnp.abs(own), tiny)
        definite &= pivot >= least
        root = jnp.sqrt(jnp.maximum(jnp.abs(pivot), least))
        entries[column][column] = root
        for row in range(column + 1, size):
            rest = sum((entries[row][j] * entries[column][j] for j in range(column)), jnp.zeros_like(own))
            entries[row][column] = (matrices[:, row, column] - rest) / root
    return Cholesky(jnp.stack([jnp.stack(row, axis=-1) for row in entries], axis=-2), definite)


def solve_lower(lower: Matrices, vectors: Vectors) -> Vectors:
    """x of ``lower x = vector``."""
    found: list[Array] = []
    for row in range(lower.shape[-1]):
        rest = sum((lower[:, row, j] * found[j] for j in range(row)), jnp.zeros_like(vectors[:, row]))
        found.append((vectors[:, row] - rest) / lower[:, row, row])
    return jnp.stack(found, axis=-1)


def solve_upper(lower: Matrices, vectors: Vectors) -> Vectors:
    """x of ``lower.T x = vector``."""
    size = lower.shape[-1]
    found: dict[int, Array] = {}
    for row in reversed(range(size)):
        rest = sum((lower[:, j, row] * found[j] for j in range(row + 1, size)), jnp.zeros_like(vectors[:, row]))
        found[row] = (vectors[:, row] - rest) / lower[:, row, row]
    return jnp.stack([found[row] for row in range(size)], axis=-1)


def times_upper(lower: Matrices, vectors: Vectors) -> Vectors:
    """``lower.T vector``."""
    size = lower.shape[-1]
    entries = [
        sum((lower[:, j, row] * vectors[:, j] for j in range(row, size)), jnp.zeros_like(vectors[:, row]))
        for row in range(size)
    ]
    return jnp.stack(entries, axis=-1)


def log_determinant(lower: Matrices) -> Float[Array, " groups"]:
    """Of the factor: half of the matrix'."""
    return jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)), axis=-1)
