"""Newton steps along what many latents share, and diagonal ones in the rest.

With D the diagonal curvature and V the collective directions (:mod:`isvi.families.collective`), orthogonal in the
metric of D, the inverse curvature is taken to be::

    D^-1 - V (V' D V)^-1 V'  +  V A^-1 V'

with A = V' H V by regression on the pairs: in V's span a full matrix, and outside of it a diagonal one (whose steps are
damped, as H is not diagonal there either).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isvi.auto.window import Pairs
from isvi.families.collective import Collective

RIDGE = 0.3
"""As many records' worth of belief that the collective directions have the curvature that the diagonal gives them."""
FLATTEST = 1e-4
"""No collective direction is taken to be flatter than this, next to the steepest."""
FEW = 2.0
"""Nor than this over the number of records: a few pairs cannot tell what is flat from what they missed."""
LEAST_NOISE = 1e-7
"""What is unexplained along any direction, at least, next to what there is to explain: single precision."""


class Coarse(NamedTuple):
    """The curvature as it is used for steps."""

    precision: Float[Array, " dim"]
    spread: Float[Array, " dim"]
    lengths: Float[Array, " size"]
    """Of the collective directions, in the metric of the diagonal."""
    values: Float[Array, " size"]
    """Eigenvalues of A for directions of unit length, ..."""
    vectors: Float[Array, "size size"]
    """... and its eigenvectors."""
    clear: Bool[Array, ""]
    """Whether no direction is flatter than can be told."""

    @classmethod
    def fitted(
        cls,
        collective: Collective,
        pairs: Pairs,
        precision: Float[Array, " dim"],
        location: Float[Array, " dim"],
    ) -> "Coarse":
        # An entry of a small latent has its curvature from here: shared moves of all others hide it from itself.
        guess = jnp.sqrt(collective.squares(precision, collective.spread(location, precision)))
        found = jnp.diagonal(_regressed(pairs, guess))[: collective.small]
        precision = collective.with_small(precision, jnp.clip(found, 0.5, 2.0) * guess[: collective.small] ** 2)
        spread = collective.spread(location, precision)
        lengths = jnp.sqrt(collective.squares(precision, spread))
        values, vectors = jnp.linalg.eigh(_regressed(pairs, lengths))
        least = jnp.maximum(FLATTEST * values[-1], FEW / jnp.maximum(pairs.weight, 1))
        clear = values[0] > least if len(values) else jnp.array(True)
        return cls(precision, spread, lengths, jnp.maximum(values, least), vectors, clear)

    def along(self, collective: Collective, gradient: Float[Array, " dim"]) -> Float[Array, " size"]:
        """A Newton step of every eigenvector of the collective curvature, in its standard deviations."""
        pull = collective.down(gradient, self.spread) / self.lengths
        return self.vectors.T @ pull / jnp.sqrt(self.values)

    def distances(self, collective: Collective, moved: Float[Array, " dim"]) -> Float[Array, " size"]:
        """How far that is along these eigenvectors, in the same units."""
        moves = collective.down(self.precision * moved, self.spread) / self.lengths
        return jnp.sqrt(self.values) * (self.vectors.T @ moves)

    def together(self, collective: Collective, steps: Float[Array, " size"]) -> Float[Array, " dim"]:
        """The move that steps along the eigenvectors make, in their standard deviations."""
        return collective.up(self.vectors @ (steps / jnp.sqrt(self.values)) / self.lengths, self.spread)

    def apart(self, collective: Collective, gradient: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """A diagonal Newton step without its collective part, not damped."""
        pull = collective.down(gradient, self.spread) / self.lengths**2
        return gradient / self.precision - collective.up(pull, self.spread)


def _regressed(pairs: Pairs, lengths: Float[Array, " size"]) -> Float[Array, "size size"]:
    """A, for directions of unit length: symmetric, by least squares with the covariance R of what is left unexplained.

    Along a flat direction every pair says the same, and along others they differ. Without R the noise of the steep ones
    hides the flat one. The normal equation, ``R^-1 A M + M A R^-1 = R^-1 Q + Q' R^-1``, is solved in the coordinates in
    which R is 1 and M diagonal.
    """
    weight, tiny = jnp.maximum(pairs.weight, 1), jnp.finfo(lengths.dtype).tiny
    moves = pairs.moves * lengths[:, None] * lengths[None, :]
    ridge = jnp.diag(jnp.maximum(RIDGE * jnp.diagonal(moves) / weight, tiny))
    moves, pulls = moves + ridge, pairs.pulls * lengths[None, :] / lengths[:, None] + ridge
    responses = pairs.responses / lengths[:, None] / lengths[None, :] + ridge
    unexplained = responses - pulls @ jnp.linalg.solve(moves, pulls.T)
    unexplained = 0.5 * (unexplained + unexplained.T)
    values, vectors = jnp.linalg.eigh(unexplained)
    least = LEAST_NOISE * jnp.maximum(jnp.diagonal(responses).max(), tiny)
    root = vectors * jnp.sqrt(jnp.maximum(values, least))
    inverse = vectors * jnp.maximum(values, least) ** -0.5
    lengths, axes = jnp.linalg.eigh(root.T @ moves @ root)
    sides = root.T @ (inverse @ inverse.T @ pulls) @ root
    sides = axes.T @ (sides + sides.T) @ axes
    lengths = jnp.maximum(lengths, LEAST_NOISE * lengths[-1])
    solved = root @ axes @ (sides / (lengths[:, None] + lengths[None, :])) @ axes.T @ root.T
    return 0.5 * (solved + solved.T)
