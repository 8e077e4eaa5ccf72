"""The curvature that mirrored pairs show, in coordinates in which today's guess of it is the identity.

In eps of z = m + L eps the negative Hessian is L' H L. A pair's two draws differ by s and its gradients by y = H_b s,
with H_b that of its own mini-batch. Two estimates of H follow, and each is good where the other is not:

- *matching*: the C with ``C E[s s'] C = E[y y']`` (the update of batch and match, Cai et al. 2024). As E[y y'] is the
  mean of H_b^2, it never shows less curvature than there is, up to the noise of finitely many pairs; and where every
  mini-batch agrees that a direction is flat (an intercept against all levels of a category), it is flat. Where few
  mini-batches know about an entry, it shows too much.
- *regressing* y on s, which is right on average and noisy.

So the pairs are matched first, and then regressed in the coordinates in which the match is the identity, with a ridge
towards it. The prior needs no estimate: its curvature is known, and only the likelihood's is matched.

From pass to pass the mean of q moves, and the gradient of all data with it: such *secants* are pairs of which no
mini-batch disagrees with another, and they lie along the valleys that q creeps through. They count beside the pairs.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

SMALLEST_SHARE = 0.1
LARGEST_SHARE = 1.2
"""The part of the matched curvature that the regression may leave, in any direction."""
MATCH_RIDGE = 3.0
"""Of the match, in whitened squared differences: small, as the match must see flat directions."""
ROUNDING = 1e-6
"""Eigenvalues below this part of the largest are single precision's rounding."""


class Differences(NamedTuple):
    """Mirrored pairs, in coordinates eps."""

    shares: Float[Array, " pairs"]
    """Weights that sum to 1."""
    draws: Float[Array, "pairs dim"]
    """s: half the difference of the draws."""
    answers: Float[Array, "pairs dim"]
    """y: half the difference of the negative gradients of what is to be estimated."""

    @property
    def number(self) -> Float[Array, ""]:
        """Effective number of pairs."""
        return 1 / jnp.sum(self.shares**2)

    def only(self, chosen: Bool[Array, " pairs"]) -> "Differences":
        """With no weight on the others."""
        shares = jnp.where(chosen, self.shares, 0)
        return self._replace(shares=shares / jnp.maximum(shares.sum(), jnp.finfo(shares.dtype).tiny))

    @property
    def moments(self) -> "Moments":
        """Weighted means."""
        draws, answers = self.shares[:, None] * self.draws, self.shares[:, None] * self.answers
        return Moments(draws.T @ self.draws, self.answers.T @ draws, answers.T @ self.answers)


class Estimate(NamedTuple):
    """The curvature C in coordinates eps, by ``C^{-1} = back values^{-1} back'``."""

    back: Float[Array, "dim dim"]
    values: Float[Array, " dim"]
    careful: Float[Array, " dim"]
    """The values, raised by their standard errors: for steps, which must not be too long."""

    @property
    def inverse_root(self) -> Float[Array, "dim dim"]:
        """A with A A' = C^{-1}: what the covariance of q should be."""
        return self.back * self.values**-0.5

    @property
    def careful_root(self) -> Float[Array, "dim dim"]:
        """The same for steps."""
        return self.back * self.careful**-0.5

    def variance_changes(
        self, pairs: Differences, known: Float[Array, "dim dim"], factor: Float[Array, "dim dim"]
    ) -> Float[Array, "pairs dim"]:
        """How each pair alone would change the variance of every entry of ``factor eps``, relatively: their weighted
        mean is (nearly) 0, and its standard error is that of the variance."""
        covariances = self.inverse_root @ (factor @ self.inverse_root).T
        variances = jnp.sum((factor @ self.inverse_root) ** 2, axis=1)
        # With C x = factor' e_j: what C leaves of an answer y, along x, is x'y + x'(known - C)s.
        residuals = pairs.answers @ covariances + pairs.draws @ (known @ covariances - factor.T)
        return residuals * (pairs.draws @ covariances) / variances


def unseen_changes(
    curvature: Callable[[Differences, Differences, Float[Array, "dim dim"]], Estimate],
    pairs: Differences,
    secants: Differences,
    first: Bool[Array, " pairs"],
    known: Float[Array, "dim dim"],
    factor: Float[Array, "dim dim"],
) -> Float[Array, "pairs dim"]:
    """How each pair would change the variances that the other half of the pairs shows: pairs that an estimate was made
    from agree with it too well, and say nothing of what its ridge left out. ``curvature`` is how it is estimated."""
    by_first = curvature(pairs.only(first), secants, known).variance_changes(pairs, known, factor)
    by_second = curvature(pairs.only(~first), secants, known).variance_changes(pairs, known, factor)
    return jnp.where(first[:, None], by_second, by_first)


class Moments(NamedTuple):
    """Weighted means over pairs."""

    gram: Float[Array, "dim dim"]
    """Of s s'."""
    cross: Float[Array, "dim dim"]
    """Of y s'."""
    outer: Float[Array, "dim dim"]
    """Of y y'."""

    def with_known(self, known: Float[Array, "dim dim"]) -> "Moments":
        """With ``known s`` added to every answer."""
        return Moments(
            self.gram,
            self.cross + known @ self.gram,
            self.outer + known @ self.cross.T + self.cross @ known + known @ self.gram @ known,
        )

    def seen_from(self, root: Float[Array, "dim dim"]) -> "Moments":
        """In coordinates root' s, in which a curvature root root' is the identity."""
        halves = solve_triangular(root, self.cross @ root, lower=True)
        outer = solve_triangular(root, solve_triangular(root, self.outer, lower=True).T, lower=True)
        return Moments(root.T @ self.gram @ root, halves, outer)


def match(moments: Moments, ridge: Float[Array, ""]) -> Float[Array, "dim dim"]:
    """The positive C with C E[s s'] C = E[y y']."""
    root = jnp.linalg.cholesky(moments.gram + ridge * jnp.eye(len(moments.gram), dtype=moments.gram.dtype))
    values, vectors = jnp.linalg.eigh(root.T @ moments.outer @ root)
    half = jnp.maximum(values, 0) ** 0.25 * vectors
    back = solve_triangular(root, half, lower=True, trans=1)
    return back @ back.T


def regress(moments: Moments, ridge: Float[Array, ""]) -> Float[Array, "dim dim"]:
    """The symmetric K that minimises ``E|y - K s|^2 + ridge |K - 1|^2``: a Lyapunov equation."""
    sizes, basis = jnp.linalg.eigh(moments.gram)
    sizes = jnp.maximum(sizes, 0) + ridge
    right = moments.cross + ridge * jnp.eye(len(sizes), dtype=sizes.dtype)
    rotated = basis.T @ (right + right.T) @ basis
    return basis @ (rotated / (sizes[:, None] + sizes[None, :])) @ basis.T


def estimate(pairs: Differences, secants: Differences, known: Float[Array, "dim dim"]) -> Estimate:
    """The curvature that the pairs and the secants show, plus the ``known`` one (the prior's)."""
    dim, number = known.shape[0], pairs.number
    moments = Moments(*map(jnp.add, pairs.moments, secants.moments))
    matched = match(moments, MATCH_RIDGE / number) + known
    matched = matched + ROUNDING * jnp.trace(matched) / dim * jnp.eye(dim, dtype=known.dtype)
    root = jnp.linalg.cholesky(matched)
    seen = moments.with_known(known).seen_from(root)
    # The more dimensions and the fewer pairs, the more of the noise is in what is fitted.
    ridge = 0.5 * (dim + 50) / number * jnp.minimum(1, max(4 * dim, 200) / number)
    fitted = regress(seen, ridge)
    values, vectors = jnp.linalg.eigh(fitted)
    explained = fitted @ seen.cross.T
    left_over = seen.outer - explained - explained.T + fitted @ seen.gram @ fitted
    noise = jnp.maximum(jnp.sum(vectors * (left_over @ vectors), axis=0), 0)
    reach = jnp.maximum(jnp.sum(vectors * (seen.gram @ vectors), axis=0), 0)
    error = jnp.sqrt(noise * reach / number) / (reach + ridge)
    values = jnp.clip(values, SMALLEST_SHARE, LARGEST_SHARE)
    careful = jnp.clip(values + error, SMALLEST_SHARE, LARGEST_SHARE)
    return Estimate(solve_triangular(root, vectors, lower=True, trans=1), values, careful)
