"""The curvature in the coordinates in which q is standard, from all stored records at once.

In eps of z = m + L eps, the negative Hessian is L' H L: the identity once q's precision is H, and never badly
conditioned for a full-rank q, whatever the scales and correlations of the posterior. So single precision is enough, and
"nothing changes" is a good prior guess for the regression. Going over all stored records at every update would cost too
much in large problems; in small ones it does not.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from isvi.memory.record import Record

RIDGE = 3.0
"""Weight of the prior belief that q's precision is right, in squared whitened differences."""
LARGEST_CHANGE = 3.0
"""An update changes the precision in no direction by more than this factor."""
SMALLEST_EIGENVALUE = 1e-5
LEAST_DAMPING = 0.1


class Whitened(NamedTuple):
    """Weighted records in coordinates eps."""

    shares: Float[Array, " records"]
    """Weights that sum to 1."""
    centres: Float[Array, "records dim"]
    """Mean point and mean gradient of every record."""
    levels: Float[Array, "records dim"]
    pair_shares: Float[Array, "pairs 1"]
    differences: Float[Array, "pairs dim"]
    """s of mirrored draws, and y of their negative gradients."""
    answers: Float[Array, "pairs dim"]

    @classmethod
    def of(
        cls, records: Record, weights: Float[Array, " records"], location: Array, factor: Float[Array, "dim dim"]
    ) -> "Whitened":
        """In the coordinates of a Gaussian with this location and this L."""
        dim, half = location.shape[0], records.draws.shape[1] // 2
        rows = (records.draws - location).reshape(-1, dim)
        noise = solve_triangular(factor, rows.T, lower=True).T.reshape(records.draws.shape)
        gradients = records.gradient @ factor
        shares = weights / weights.sum()
        return cls(
            shares=shares,
            centres=noise.mean(axis=1),
            levels=gradients.mean(axis=1),
            pair_shares=jnp.repeat(shares / half, half)[:, None],
            differences=(noise[:, :half] - noise[:, half:]).reshape(-1, dim),
            answers=(gradients[:, half:] - gradients[:, :half]).reshape(-1, dim),
        )

    @property
    def records(self) -> Float[Array, ""]:
        """Effective number of records."""
        return 1 / jnp.sum(self.shares**2)

    @property
    def pairs(self) -> Float[Array, ""]:
        """Effective number of pairs."""
        return 1 / jnp.sum(self.pair_shares**2)


class Curvature(NamedTuple):
    """E_q[L' H L], regressed on the pairs."""

    matrix: Float[Array, "dim dim"]
    noise: Float[Array, " dim"]
    """Variance of every entry of y that it leaves unexplained."""
    variance: Float[Array, "dim dim"]
    """Of the estimate, whether or not longer differences have noisier answers (the sandwich estimate)."""
    gram: Float[Array, "dim dim"]
    """Mean of s s'."""
    pairs: Float[Array, ""]

    def precision(self, free: Bool[Array, "dim dim"], largest_change: Float[Array, ""]) -> Float[Array, "dim dim"]:
        """What the precision of q should become in the entries that it can choose: half way, in logarithms, to the
        curvature, and in no direction more than this factor away. All the way can overshoot for ever: in a tail that
        steepens, a wider q sees more curvature."""
        values, vectors = jnp.linalg.eigh(jnp.where(free, self.matrix, 0))
        return (vectors * jnp.clip(values, largest_change**-2, largest_change**2) ** 0.5) @ vectors.T

    def change(self, free: Bool[Array, "dim dim"]) -> Float[Array, ""]:
        """Nats per entry that q loses because its precision is not the curvature yet."""
        difference = self.matrix - jnp.eye(self.matrix.shape[0], dtype=self.matrix.dtype)
        return 0.25 * jnp.sum(jnp.where(free, difference, 0) ** 2) / difference.shape[0]

    def uncertainty(self, free: Bool[Array, "dim dim"]) -> Float[Array, ""]:
        """Nats per entry that q loses because its precision comes from finitely many pairs: a relative error r of an
        entry costs r^2 / 4."""
        diagonal = jnp.maximum(jnp.diagonal(self.matrix), 1 / LARGEST_CHANGE)
        relative = self.variance / (diagonal[:, None] * diagonal[None, :])
        return 0.25 * jnp.where(free, relative, 0).sum() / relative.shape[0]

    def sd_errors(self, factor: Float[Array, "dim dim"]) -> Float[Array, " dim"]:
        """Standard errors of the logarithms of the standard deviations of ``factor eps``, near the optimum, where the
        curvature is close to 1: half the relative error of each entry's variance, the sum over the axes of its
        parts."""
        parts = factor**2 / jnp.sum(factor**2, axis=1, keepdims=True)
        return 0.5 * jnp.sqrt(jnp.sum((parts @ self.variance) * parts, axis=1))

    def root(self) -> "Root":
        """R with R R' its inverse. Eigenvalues are raised to what can be told from noise."""
        dim = self.noise.shape[0]
        values, vectors = jnp.linalg.eigh(self.matrix)
        reach = jnp.sum(vectors * (self.gram @ vectors), axis=0)
        floor = self.noise.mean() * dim / (jnp.maximum(reach, 1e-6) * self.pairs)
        scales = jnp.maximum(values, jnp.maximum(floor, SMALLEST_EIGENVALUE)) ** 0.5
        return Root(vectors / scales, vectors.T * scales[:, None])


class Root(NamedTuple):
    """A square root of the inverse curvature, and its own inverse."""

    forward: Float[Array, "dim dim"]
    backward: Float[Array, "dim dim"]

    @classmethod
    def known(cls, root: Float[Array, "dim dim"], factor: Float[Array, "dim dim"]) -> "Root":
        """From one in the coordinates z, lower triangular."""
        return cls(solve_triangular(factor, root, lower=True), solve_triangular(root, factor, lower=True))


class Newton(NamedTuple):
    """A step to where the mean gradient vanishes."""

    step: Float[Array, " dim"]
    """In coordinates eps."""
    squared_length: Float[Array, ""]
    """step' H step."""
    gain: Float[Array, ""]
    """Nats per entry that the whole step, not damped, is predicted to gain."""
    uncertainty: Float[Array, ""]
    """Nats per entry that q loses because its mean comes from finitely many records."""


def regress(records: Whitened) -> Curvature:
    """The symmetric H that minimises ``sum |y - H s|^2 + ridge |H - 1|^2``: a Lyapunov equation."""
    weighted, y = records.pair_shares * records.differences, records.answers
    gram, cross = weighted.T @ records.differences, y.T @ weighted
    dim = gram.shape[0]
    ridge = RIDGE / records.pairs
    sizes, basis = jnp.linalg.eigh(gram)
    sizes = jnp.maximum(sizes, 0) + ridge
    right = cross + ridge * jnp.eye(dim, dtype=gram.dtype)
    rotated = basis.T @ (right + right.T) @ basis
    estimate = basis @ (rotated / (sizes[:, None] + sizes[None, :])) @ basis.T
    residuals = (y - records.differences @ estimate) ** 2
    freedom = jnp.maximum(1 - dim / (2 * records.pairs), 0.1)
    squares = jnp.maximum(jnp.diagonal(gram), SMALLEST_EIGENVALUE)
    sandwich = (records.pair_shares**2 * residuals).T @ records.differences**2 / squares**2
    noise = jnp.sum(records.pair_shares * residuals, axis=0)
    return Curvature(estimate, noise / freedom, sandwich / freedom, gram, records.pairs)


def newton(records: Whitened, root: Root) -> Newton:
    """All records' gradients, carried to q's mean by the curvature, agree but for noise.

    Where the pairs show more curvature than the root knows of, the step is damped: <s, y> / <y, y> in its metric.
    """
    seen = jnp.sum(records.pair_shares * records.differences * records.answers)
    damping = seen / jnp.sum(records.pair_shares * (records.answers @ root.forward) ** 2)
    damping = jnp.clip(damping, LEAST_DAMPING, 1)
    pulls, centres = records.levels @ root.forward, records.centres @ root.backward.T
    mean, whole = (records.shares @ (share * pulls + centres) for share in (damping, 1))
    spread = records.shares @ jnp.sum((pulls + centres - whole) ** 2, axis=1)
    dim = mean.shape[0]
    return Newton(
        step=root.forward @ mean,
        squared_length=jnp.sum(mean**2),
        gain=0.5 * jnp.sum(whole**2) / dim,
        uncertainty=0.5 * spread / dim / jnp.maximum(records.records - 1, 1),
    )
