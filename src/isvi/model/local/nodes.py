"""Where an integral over a group's latents is evaluated, in coordinates in which the Gaussian around the mode is the
standard one.

Up to three dimensions: the products of Gauss-Hermite nodes, without those that hardly count. In more: quasi-random
points and their mirror images, shifted for every group in its own way. The shift matters: with the same points for all
groups, the errors of all groups would be the same and add up, where as it is they average out.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from isvi.core.errors import ModelError, require

LARGEST_PRODUCT = 3
"""Dimensions up to which products of nodes are affordable."""
LARGEST_SIZE = 12
"""Dimensions up to which a group's latents are integrated out: points around one Gaussian go no further."""
NODES = {1: (15, 21, 31), 2: (9, 11, 15), 3: (5, 7, 9)}
"""Per dimension, for up to 10,000 groups, up to 100,000, and more. The errors of all groups add up while the posterior
narrows: to be as small next to its sd, the error of a group must fall with the square root of their number. A rate of
a gamma distribution of shape 1.5 whose row has a count of 0, a skewed case, is right to 2e-4 nats with 15 nodes, to
3e-5 with 21 and to 3e-6 with 31."""
MANY, VERY_MANY = 10_000, 100_000
POINTS = 256
"""In all, beyond three dimensions."""
FEWEST_NODES, FEWEST_POINTS = 3, 32
"""As nodes are held constant for the gradient, they must be enough to tell how a group's latents spread. With one node
the value is Laplace's approximation, and the gradient is not that of the value."""
NEGLIGIBLE = 1e-9
"""Products of nodes with less weight than this are left out: corners of the grid."""
FURTHER = {1: 8, 2: 4, 3: 4}
"""Nodes per dimension that a rule has more than the one that it judges."""
MORE = {1: (31, 63), 2: (15, 25), 3: (9, 15)}
"""Nodes per dimension for groups that the usual number is too few for."""
MOST_POINTS = 4096
POINTS_EACH, MOST_POINTS_EACH = 32, 512
"""Of each Gaussian, where points are everywhere."""
MOST_AXES = 3
"""Along which modes are searched for, where points are everywhere: two searches each."""
SCALES = (1.15, 3.5)
"""Of the Gaussians there, in the sds that the curvature at the mode gives: one for the bulk, one for heavy tails."""
WIDENING = 1.15
"""Of the Gaussian that points are drawn from: too narrow a one would give some of them unbounded weights."""


@dataclass(frozen=True)
class Nodes:
    """A rule for integrals of ``size`` dimensions.

    Attributes:
        size: dimensions.
        count: nodes per dimension, or, beyond three dimensions, in all.
        everywhere: whether points are not only around one mode (:mod:`isvi.model.local.everywhere`); ``count`` is then
            how many there are of each Gaussian.
        asked: whether the user said so: then there are no others.
    """

    size: int
    count: int
    everywhere: bool = False
    asked: bool = False

    @classmethod
    def choose(cls, size: int, count: int | None, groups: int = 1) -> "Nodes":
        """As many as were asked for, or as usual for so many groups."""
        require(
            size <= LARGEST_SIZE,
            ModelError,
            f"the local latents of one group have {size} entries in all; at most {LARGEST_SIZE} can be integrated out. "
            "A local latent is declared for one group: isvi.real() if each group has one number, not one for every "
            "group.",
        )
        least = FEWEST_NODES if size <= LARGEST_PRODUCT else FEWEST_POINTS
        require(
            count is None or (isinstance(count, (int, np.integer)) and count >= least),
            ModelError,
            f"nodes must be a whole number, for {size} local entries of at least {least}; got {count!r}.",
        )
        asked = count is not None
        if count is None:
            usual = NODES.get(size, (POINTS, POINTS, POINTS))
            count = usual[(groups > MANY) + (groups > VERY_MANY)]
        return cls(size, int(count), asked=asked)

    @property
    def products(self) -> bool:
        return self.size <= LARGEST_PRODUCT and not self.everywhere

    @property
    def total(self) -> int:
        """Nodes in all dimensions together."""
        if self.everywhere:
            return self.count * gaussians(self.size)
        return len(self._grid[0]) if self.products else 2 * -(-self.count // 2)

    def finer(self) -> "Nodes":
        """A rule to judge this one by: with an error that is a small part of this one's."""
        return replace(self, count=self.count + FURTHER[self.size] if self.products else 4 * self.count)

    def next(self, elsewhere: bool) -> "Nodes | None":
        """The rule to go on with where this one is not precise enough; None if there is no better one.

        ``elsewhere`` tells that there is mass which nodes around one mode do not reach."""
        if self.asked:
            return None
        if self.everywhere:
            return replace(self, count=4 * self.count) if self.count < MOST_POINTS_EACH else None
        if elsewhere:
            return Nodes(self.size, POINTS_EACH, everywhere=True)
        if self.products:
            more = [count for count in MORE[self.size] if count > self.count]
            return replace(self, count=more[0]) if more else Nodes(self.size, POINTS_EACH, everywhere=True)
        return replace(self, count=4 * self.count) if self.count < MOST_POINTS else None

    def at(self, numbers: Int[Array, " groups"], dtype: np.dtype) -> tuple[Float[Array, "nodes groups size"], Array]:
        """Points for each group, and the log of the weight of each: with z a point and w its weight, the integral
        of f is the sum of w f(z)."""
        if self.products:
            grid, log_weights = self._grid
            shape = (len(grid), numbers.shape[0], self.size)
            spread = jnp.broadcast_to(jnp.asarray(grid, dtype)[:, None], shape)
            return spread, jnp.asarray(log_weights, dtype)[:, None]
        points = normal_points(numbers, self.count, self.size, dtype)
        log_density = -0.5 * jnp.sum(points**2, axis=-1) - self.size * (np.log(WIDENING) + 0.5 * np.log(2 * np.pi))
        return WIDENING * points, -log_density - np.log(points.shape[0])

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        nodes, weights = np.polynomial.hermite_e.hermegauss(self.count)
        log_weights = np.log(weights) + nodes**2 / 2
        importance = weights / weights.sum()
        chosen = [
            place
            for place in product(range(self.count), repeat=self.size)
            if self.size == 1 or np.prod(importance[list(place)]) > NEGLIGIBLE
        ]
        places = np.array(chosen)
        return nodes[places], log_weights[places].sum(axis=1)


def normal_points(
    numbers: Int[Array, " groups"], count: int, size: int, dtype: np.dtype
) -> Float[Array, "nodes groups size"]:
    """Standard normal points: those of a Korobov-like lattice, shifted, and their mirror images."""
    half = -(-count // 2)
    lattice = jnp.asarray(_lattice(half, size), dtype)
    keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(0), number))(numbers)
    shifts = jax.vmap(lambda key: jax.random.uniform(key, (size,), dtype))(keys)
    inside = jnp.clip((lattice[:, None] + shifts) % 1.0, 1e-6, 1 - 1e-6)
    points = ndtri(inside)
    return jnp.concatenate([points, -points])


def gaussians(size: int) -> int:
    """How many there are, where points are everywhere: from 0, from both ends of each axis, the likelihood's and the
    prior's."""
    return (3 + 2 * min(size, MOST_AXES)) * len(SCALES)


def _lattice(count: int, size: int) -> np.ndarray:
    """The additive recurrence of the generalised golden ratio (Roberts 2018): points that fill a cube evenly, for any
    number of them."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (size + 1))
    return (np.arange(1, count + 1)[:, None] * ratio ** -np.arange(1.0, size + 1)) % 1.0
