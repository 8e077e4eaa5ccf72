"""The curvature of the log joint, learned from the records' antithetic pairs.

For a mirrored pair z+ and z- on the same mini-batch, ``g(z-) - g(z+) = H (z+ - z-)`` with H the negative Hessian
averaged over the line between them: the level of the mini-batch's gradient cancels, and with it most of the noise.
For draws from q, regressing one difference on the other estimates E_q[H], the precision that a Gaussian
approximation must have at its optimum. So one regression serves twice: as the natural-gradient step for the
precision, and as the matrix of a Newton step for the mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isvi.memory.record import Record


class Pairs(NamedTuple):
    """Differences s of mirrored draws and y of their negative gradients."""

    draws: Float[Array, "pairs dim"]
    gradients: Float[Array, "pairs dim"]

    @classmethod
    def of(cls, records: Record) -> "Pairs":
        """All pairs of some records (with a leading axis)."""
        half, dim = records.draws.shape[1] // 2, records.draws.shape[2]
        draws = records.draws[:, :half] - records.draws[:, half:]
        gradients = records.gradient[:, half:] - records.gradient[:, :half]
        return cls(draws.reshape(-1, dim), gradients.reshape(-1, dim))


class Evidence(NamedTuple):
    """What pairs say about the curvature, as weighted sums."""

    weight: Float[Array, ""]
    weight_squares: Float[Array, ""]
    squares: Float[Array, " dim"]
    """Sum of s_i^2."""
    products: Float[Array, " dim"]
    """Sum of s_i y_i."""
    answers: Float[Array, " dim"]
    """Sum of y_i^2."""

    @classmethod
    def none(cls, dim: int, dtype: jnp.dtype) -> "Evidence":
        zero, zeros = jnp.zeros((), dtype), jnp.zeros(dim, dtype)
        return cls(zero, zero, zeros, zeros, zeros)

    @classmethod
    def of(cls, pairs: Pairs, weights: Float[Array, " pairs"]) -> "Evidence":
        weighted = weights[:, None] * pairs.draws
        return cls(
            weights.sum(),
            (weights**2).sum(),
            (weighted * pairs.draws).sum(axis=0),
            (weighted * pairs.gradients).sum(axis=0),
            (weights[:, None] * pairs.gradients**2).sum(axis=0),
        )

    def __add__(self, other: "Evidence") -> "Evidence":  # type: ignore[override]
        return jax.tree.map(jnp.add, self, other)

    @property
    def slopes(self) -> Float[Array, " dim"]:
        """Curvature of every entry, regressed on its own."""
        return self.products / jnp.maximum(self.squares, jnp.finfo(self.squares.dtype).tiny)

    def misses(self, pairs: Pairs, scale: Float[Array, " dim"]) -> Float[Array, ""]:
        """How badly the slopes predict other pairs, in units of the given scale."""
        return jnp.sum(((pairs.gradients - self.slopes * pairs.draws) * scale) ** 2)


class Curvature(NamedTuple):
    """An estimate of H by its diagonal."""

    precision: Float[Array, " dim"]
    damping: Float[Array, ""]
    """How much of a diagonal Newton step is safe, as H is not diagonal."""
    uncertainty: Float[Array, ""]
    """Nats per entry that q loses because its precisions come from finitely many pairs."""

    @classmethod
    def of(cls, precision: Float[Array, " dim"]) -> "Curvature":
        """Nothing known but these."""
        one = jnp.ones((), precision.dtype)
        return cls(precision, one, one * jnp.inf)

    def solve(self, gradient: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """H^{-1} g, damped."""
        return self.damping * gradient / self.precision

    def squared_length(self, step: Float[Array, " dim"]) -> Float[Array, ""]:
        """step' H step."""
        return jnp.sum(self.precision * step**2)


def fit_diagonal(evidence: Evidence, before: Curvature, largest_change: float) -> Curvature:
    """H by its diagonal; no entry changes by more than the given factor.

    The damping is <s, y> / <y, y> in the metric of the diagonal, the Barzilai-Borwein step for random directions:
    1 if H is diagonal, and the smaller the more of y the diagonal leaves unexplained.
    """
    tiny = jnp.finfo(evidence.squares.dtype).tiny
    slopes = evidence.slopes
    precision = jnp.clip(slopes, before.precision / largest_change, before.precision * largest_change)
    damping = evidence.products.sum() / jnp.maximum((evidence.answers / precision).sum(), tiny)
    residual = jnp.maximum(evidence.answers - slopes * evidence.products, 0)
    return Curvature(precision, jnp.clip(damping, 0.01, 1.0), _uncertainty(evidence, residual, precision))


def _uncertainty(evidence: Evidence, residual: Float[Array, " dim"], precision: Float[Array, " dim"]) -> Array:
    """A relative error r of a precision costs r^2 / 4 nats; r's variance is the regression's."""
    variance = residual / evidence.weight * evidence.weight_squares / evidence.weight
    tiny = jnp.finfo(residual.dtype).tiny
    return jnp.mean(variance / jnp.maximum(evidence.squares * precision**2, tiny)) / 4


def tempered(log_weights: Float[Array, " records"], enough: float | Array) -> Float[Array, " records"]:
    """Importance weights to the largest power, at most 1, at which their effective number is ``enough``.

    Entries of -inf (empty slots) get weight 0; the largest weight is 1.
    """
    centred = log_weights - jnp.max(log_weights)

    def effective(power: Array) -> Array:
        weights = _power(centred, power)
        return weights.sum() ** 2 / (weights**2).sum()

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        return jax.lax.cond(effective(middle) >= enough, lambda: (middle, high), lambda: (low, middle))

    zero, one = jnp.zeros((), centred.dtype), jnp.ones((), centred.dtype)
    low, _ = jax.lax.fori_loop(0, 20, halve, (zero, one))
    return _power(centred, jnp.where(effective(one) >= enough, one, low))


def _power(log_weights: Array, power: Array) -> Array:
    # -inf times a power of 0 must stay an empty slot.
    empty = jnp.isneginf(log_weights)
    return jnp.where(empty, 0, jnp.exp(power * jnp.where(empty, 0, log_weights)))
