"""The covariance of a diagonal plus low rank that is nearest to a given one.

Of a Gaussian target with covariance S and precision P the best such q, in KL(q || p), minimises ``tr(P Sigma) -
log|Sigma|`` over ``Sigma = D + V V'``; its mean is the target's. Where the gradient in D and V vanishes,

    diag(Sigma^-1) = diag(P)    and    P V = Sigma^-1 V.

Given D the best V is known: with M and E the largest eigenvalues and the eigenvectors of ``D^-1/2 S D^-1/2``, as far as
they are above 1, ``Sigma = D^1/2 (I + E (M - 1) E') D^1/2``. Then the first condition says ``D = (1 - h) / diag(P)``
with ``h = diag(E (1 - 1/M) E')``. The two take turns, from independent Gaussians (h = 0) on; on all that was tried, the
divergence fell in every turn. It is factor analysis turned around: that would have the variances of S, and this has
the diagonal of P.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

OVERSAMPLED = 8
"""Further directions that are followed: the more, the sooner the wanted ones stand out."""
POWERS = 3
"""Multiplications by the covariance in every turn."""
MOST_TURNS = 100
STILL = 1e-3
"""The turns end when no D changes by more than this part of itself."""
SMALLEST = 1e-3
"""D as a part of 1 / diag(P), at least: where it would vanish, single precision could not tell the directions."""


class Nearest(NamedTuple):
    """``Sigma = D^1/2 (I + E (M - 1) E') D^1/2``."""

    variance: Float[Array, " dim"]
    """D."""
    directions: Float[Array, "dim rank"]
    """E, orthonormal."""
    lengths: Float[Array, " rank"]
    """M, the variances along them in units of D: 1 is no more than D has."""


def nearest(
    times: Callable[[Float[Array, "dim columns"]], Float[Array, "dim columns"]],
    precisions: Float[Array, " dim"],
    rank: int,
) -> Nearest:
    """From how S multiplies columns, and diag(P)."""
    dim, dtype = precisions.shape[0], precisions.dtype
    unit = precisions**-0.5  # all that follows is in units of the sds that independent Gaussians would have

    def towards(span: Array, share: Array) -> tuple[Array, Array]:
        """Orthonormal directions and their M, the largest first, from directions near them."""
        scale = jnp.sqrt(share) * unit

        def multiplied(columns: Array) -> Array:
            return times(columns / scale[:, None]) / scale[:, None]

        for _ in range(POWERS):
            span = jnp.linalg.qr(multiplied(span))[0]
        values, turn = jnp.linalg.eigh(span.T @ multiplied(span))
        return span @ turn[:, ::-1], values[::-1]

    def turn(carried: tuple) -> tuple:
        turns, share, span, _ = carried
        found, values = towards(span, share)
        new = jnp.maximum(1 - found[:, :rank] ** 2 @ _above(values[:rank]), SMALLEST)
        span = jnp.sqrt(share / new)[:, None] * found  # the same directions, in the new units
        return turns + 1, new, jnp.linalg.qr(span)[0], jnp.abs(jnp.log(new / share)).max()

    start = jax.random.normal(jax.random.key(0), (dim, min(dim, rank + OVERSAMPLED)), dtype)
    _, share, span, _ = jax.lax.while_loop(
        lambda carried: (carried[0] < MOST_TURNS) & (carried[3] > STILL),
        turn,
        (jnp.int32(0), jnp.ones(dim, dtype), jnp.linalg.qr(start)[0], jnp.full((), jnp.inf, dtype)),
    )
    directions, lengths = towards(span, share)
    return Nearest(share / precisions, directions[:, :rank], jnp.maximum(lengths[:rank], 1))


def _above(lengths: Float[Array, " rank"]) -> Float[Array, " rank"]:
    """1 - 1 / M, where that is above 0."""
    return 1 - 1 / jnp.maximum(lengths, 1)
