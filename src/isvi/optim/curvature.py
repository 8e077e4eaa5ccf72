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
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from isvi.memory.record import Record

RIDGE = 3.0
"""Weight of the prior belief "H is diagonal", in units of one whitened squared difference."""


SMALLEST_EIGENVALUE = 1e-5
"""Of a whitened matrix with eigenvalues around 1, in single precision."""
CARRIED_FLOOR = 0.1
"""How much of the floor of an eigenvalue counts when a gradient is carried from one point to another."""
NOISE_LIKE_ANSWERS = 0.5
"""How much of the answers' covariance counts as noise while there are no more pairs than dimensions."""


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
    gram: Float[Array, "dense dense"]
    """Sum of s s'; of size 0 where no dense estimate is made."""
    cross: Float[Array, "dense dense"]
    """Sum of y s'."""
    outer: Float[Array, "dense dense"]
    """Sum of y y'."""

    @classmethod
    def none(cls, dim: int, dense_dim: int, dtype: jnp.dtype) -> "Evidence":
        zero, zeros, square = jnp.zeros((), dtype), jnp.zeros(dim, dtype), jnp.zeros((dense_dim, dense_dim), dtype)
        return cls(zero, zero, zeros, zeros, zeros, square, square, square)

    @classmethod
    def of(cls, pairs: Pairs, weights: Float[Array, " pairs"], dense_dim: int) -> "Evidence":
        weighted = weights[:, None] * pairs.draws
        return cls(
            weights.sum(),
            (weights**2).sum(),
            (weighted * pairs.draws).sum(axis=0),
            (weighted * pairs.gradients).sum(axis=0),
            (weights[:, None] * pairs.gradients**2).sum(axis=0),
            weighted[:, :dense_dim].T @ pairs.draws[:, :dense_dim],
            pairs.gradients[:, :dense_dim].T @ weighted[:, :dense_dim],
            (weights[:, None] * pairs.gradients[:, :dense_dim]).T @ pairs.gradients[:, :dense_dim],
        )

    def __add__(self, other: "Evidence") -> "Evidence":  # type: ignore[override]
        return jax.tree.map(jnp.add, self, other)

    @property
    def pairs(self) -> Float[Array, ""]:
        """Effective number of pairs."""
        return self.weight**2 / jnp.maximum(self.weight_squares, jnp.finfo(self.weight.dtype).tiny)

    @property
    def slopes(self) -> Float[Array, " dim"]:
        """Curvature of every entry, regressed on its own."""
        return self.products / jnp.maximum(self.squares, jnp.finfo(self.squares.dtype).tiny)

    def misses(self, pairs: Pairs, scale: Float[Array, " dim"]) -> Float[Array, ""]:
        """How badly the slopes predict other pairs, in units of the given scale."""
        return jnp.sum(((pairs.gradients - self.slopes * pairs.draws) * scale) ** 2)


class Curvature(NamedTuple):
    """An estimate of H: its diagonal, or dense in the eigenbasis of the whitened matrix scale * H * scale."""

    precision: Float[Array, " dim"]
    """The diagonal of H."""
    damping: Float[Array, ""]
    """How much of a diagonal Newton step is safe, as H is not diagonal."""
    dense: Bool[Array, ""]
    scale: Float[Array, " dim"]
    vectors: Float[Array, "dense dense"]
    values: Float[Array, " dense"]
    """Eigenvalues, raised to what can be told from noise."""
    carried: Float[Array, " dense"]
    """Eigenvalues as they were found, or a tenth of what they were raised to."""
    uncertainty: Float[Array, ""]
    """Nats per entry that q loses because its precisions come from finitely many pairs."""

    @classmethod
    def diagonal(cls, precision: Float[Array, " dim"], dense_dim: int) -> "Curvature":
        one, ones = jnp.ones((), precision.dtype), jnp.ones(dense_dim, precision.dtype)
        eye = jnp.eye(dense_dim, dtype=precision.dtype)
        return cls(precision, one, jnp.array(False), precision**-0.5, eye, ones, ones, one * jnp.inf)

    def solve(self, gradient: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """H^{-1} g, damped where H is known by its diagonal only."""
        by_diagonal = self.damping * gradient / self.precision
        if self.values.shape[0] == 0:
            return by_diagonal
        by_eigenbasis = self.vectors @ ((self.vectors.T @ (gradient * self.scale)) / self.values)
        return jnp.where(self.dense, self.scale * by_eigenbasis, by_diagonal)

    def undetermined(self, way: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The part of a way along which the gradient changed by less than H says: H is raised to what can be told from
        noise, which is right for a step, and too much for carrying a gradient from one end of the way to the other.
        """
        if self.values.shape[0] == 0:
            return jnp.zeros_like(way)
        along = (1 - self.carried / self.values) * (self.vectors.T @ (way / self.scale))
        return jnp.where(self.dense, self.scale * (self.vectors @ along), 0)

    def squared_length(self, step: Float[Array, " dim"]) -> Float[Array, ""]:
        """step' H step."""
        by_diagonal = jnp.sum(self.precision * step**2)
        if self.values.shape[0] == 0:
            return by_diagonal
        by_eigenbasis = jnp.sum(self.values * (self.vectors.T @ (step / self.scale)) ** 2)
        return jnp.where(self.dense, by_eigenbasis, by_diagonal)

    def matrix(self) -> Float[Array, "dim dim"]:
        """H itself."""
        by_diagonal = jnp.diag(self.precision)
        if self.values.shape[0] == 0:
            return by_diagonal
        whitened = (self.vectors * self.values) @ self.vectors.T
        return jnp.where(self.dense, whitened / (self.scale[:, None] * self.scale[None, :]), by_diagonal)


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
    return before._replace(
        precision=precision,
        damping=jnp.clip(damping, 0.01, 1.0),
        dense=jnp.array(False),
        uncertainty=_uncertainty(evidence, residual, precision),
    )


def fit_dense(evidence: Evidence, diagonal: Curvature) -> Curvature:
    """H as the symmetric matrix that best explains the pairs.

    Minimises ``sum w (y - H s)' R^{-1} (y - H s)`` over symmetric H, with a ridge towards the diagonal. R is the
    covariance of what H cannot explain, as each pair has its own mini-batch's H: small along directions in which all
    mini-batches agree (an intercept against all effects of a category, say), however noisy the entries are one by one.
    Negative eigenvalues count by their size, so that a step climbs out of a saddle; and all are raised to what can be
    told from noise along their direction.
    """
    scale = diagonal.precision**-0.5
    dim, pairs = scale.shape[0], evidence.pairs
    ridge = jnp.maximum(RIDGE / pairs, SMALLEST_EIGENVALUE) * jnp.eye(dim, dtype=scale.dtype)
    gram = evidence.gram / (scale[:, None] * scale[None, :]) / evidence.weight + ridge
    cross = evidence.cross * (scale[:, None] / scale[None, :]) / evidence.weight + ridge
    outer = evidence.outer * (scale[:, None] * scale[None, :]) / evidence.weight
    root = jnp.linalg.cholesky(gram)
    by_gram = solve_triangular(root, cross.T, lower=True)
    left_over = (outer - by_gram.T @ by_gram) / jnp.maximum(1 - dim / pairs, 0.1)
    # With few pairs nothing is left over; what varies much is then also taken to be noisy.
    noise = left_over + NOISE_LIKE_ANSWERS * jnp.minimum(dim / pairs, 1) * outer
    estimate = _symmetric_fit(root, by_gram, noise)
    values, vectors = jnp.linalg.eigh(estimate)

    # How far the draws reach along each eigenvector: a correlated q shows flat directions the better.
    reach = jnp.maximum(jnp.sum(vectors * (gram @ vectors), axis=0), 1e-6)
    variance = jnp.maximum(jnp.sum(vectors * (noise @ vectors), axis=0), 0) / (reach * pairs)
    floor = jnp.maximum(jnp.sqrt(dim * variance), SMALLEST_EIGENVALUE)
    carried, values = (jnp.maximum(jnp.abs(values), share * floor) for share in (CARRIED_FLOOR, 1.0))
    residual = jnp.maximum(jnp.diagonal(noise), 0) * evidence.weight / scale**2
    fitted = jnp.clip(jnp.sum(vectors**2 * values, axis=1), 0.5, 2.0) * diagonal.precision
    return Curvature(
        precision=fitted,
        damping=jnp.ones_like(diagonal.damping),
        dense=jnp.array(True),
        scale=scale,
        vectors=vectors,
        values=values,
        carried=carried,
        uncertainty=_uncertainty(evidence, residual, fitted),
    )


def _symmetric_fit(root: Array, by_gram: Array, noise: Array) -> Float[Array, "dim dim"]:
    """The symmetric H of ``R^{-1} H G + G H R^{-1} = R^{-1} C + C' R^{-1}``, for G = root root', C = by_gram' root' and
    R the noise: in coordinates where G is the identity and R diagonal, a mean of C and C' that trusts the row with
    less noise."""
    sizes, basis = jnp.linalg.eigh(root.T @ noise @ root)
    sizes = jnp.maximum(sizes, 1e-6 * sizes[-1])
    rotated = basis.T @ (root.T @ by_gram.T) @ basis
    rotated = (rotated * sizes[None, :] + rotated.T * sizes[:, None]) / (sizes[:, None] + sizes[None, :])
    back = solve_triangular(root, basis, lower=True, trans=1)
    return back @ rotated @ back.T


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
