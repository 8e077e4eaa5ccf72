"""What the memory for many latents knows beside a diagonal, as a Gaussian of a diagonal plus low rank.

While the method runs, q is independent Gaussians: draws that move by them, and a little along collective directions,
tell the curvature. Its inverse is then known as a diagonal and a full matrix along those directions
(:mod:`isvi.auto.curvature.coarse`), and the nearest member of the family is found from how that multiplies vectors.
Directions that are not collective are not looked for.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isvi.auto.curvature.coarse import Coarse
from isvi.auto.window import Pairs
from isvi.families.approximation import Approximation
from isvi.families.base import Factors, Params
from isvi.families.collective import Collective
from isvi.families.low_rank import LowRankGaussian
from isvi.families.nearest import nearest


def with_directions(
    approximation: Approximation, pairs: Pairs, location: Float[Array, " dim"], precision: Float[Array, " dim"]
) -> Params:
    """The approximation's parameters, from independent Gaussians and what pairs say along collective directions."""
    collective = Collective.of(approximation.coordinates)
    curvature = Coarse.fitted(collective, pairs, precision, location)

    def member(piece: Factors, entries: slice) -> Params:
        if not isinstance(piece, LowRankGaussian):
            return piece.match(location[entries], curvature.precision[entries])
        inside = jnp.zeros_like(precision).at[entries].set(1)
        own = _of_block(curvature, collective.down(inside, jnp.ones_like(inside)) > 0)

        def times(column: Array) -> Array:
            vector = jnp.zeros_like(precision).at[entries].set(column)
            return (own.apart(collective, vector) + own.together(collective, own.along(collective, vector)))[entries]

        by_column = jax.vmap(times, in_axes=1, out_axes=1)
        return piece.of(location[entries], nearest(by_column, curvature.precision[entries], piece.rank))

    return approximation.by_piece(member)


def _of_block(curvature: Coarse, inside: Bool[Array, " size"]) -> Coarse:
    """The curvature of some latents while all others stay where they are: along their own directions only."""
    whole = (curvature.vectors * curvature.values) @ curvature.vectors.T
    block = jnp.where(inside[:, None] & inside, whole, jnp.eye(len(inside), dtype=whole.dtype))
    values, vectors = jnp.linalg.eigh(block)
    return curvature._replace(values=values, vectors=vectors)
