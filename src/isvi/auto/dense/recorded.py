"""What stored records say: their pairs, secants from pass to pass, and the level of the gradient."""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from isvi.auto.curvature.matching import Differences
from isvi.auto.curvature.outdated import tempered
from isvi.auto.dense.known import Sizes
from isvi.memory.record import Record

LEVEL_SHARE = 4
"""The level of the gradient is averaged over one part in this many of the records that are stored."""
NEAR = 1.0
"""Records count half if an entry's mean has moved by so many standard deviations since: then q's width is not what it
was either, and where a scale's mean should be follows from the widths of all of its effects."""
PAIRS_KEPT = 3
"""But so many times the pairs that are needed count, whatever has happened since."""


def pairs_of(
    location: Array, factor: Array, records: Record, filled: Array, gradient: Array, enough: float, apart: bool = False
) -> Differences:
    """All stored pairs in the coordinates of a Gaussian; those made far away, or by a q of another size, count less."""
    half, dim = records.draws.shape[1] // 2, location.shape[0]
    draws = 0.5 * (records.draws[:, :half] - records.draws[:, half:]).reshape(-1, dim)
    answers = 0.5 * (gradient[:, half:] - gradient[:, :half]).reshape(-1, dim)
    if apart:
        draws, answers = _parted(draws), _parted(answers)
    centres = solve_triangular(factor, (records.draws.mean(axis=1) - location).T, lower=True)
    draws = solve_triangular(factor, draws.T, lower=True).T
    size = jnp.maximum(jnp.mean(draws.reshape(-1, half * dim) ** 2, axis=1), 1e-12)
    distance = jnp.mean(centres**2, axis=0) + size - 1 - jnp.log(size)
    moved = moved_since(records, location, factor)
    log_weights = jnp.where(filled, -jnp.log1p(distance**2) - jnp.log1p((moved / NEAR) ** 2), -jnp.inf)
    weights = jnp.repeat(tempered(log_weights, jnp.minimum(filled.sum(), PAIRS_KEPT * enough / half)), half)
    return Differences(weights / weights.sum(), draws, answers @ factor)


def moved_since(records: Record, location: Array, factor: Array) -> Float[Array, " slots"]:
    """How far q's mean has moved since, in the standard deviations of the entry that moved furthest."""
    sds = jnp.sqrt(jnp.sum(factor**2, axis=1))
    return jnp.abs((records.draws.mean(axis=1) - location) / sds).max(axis=1)


def _parted(pairs: Float[Array, "pairs dim"]) -> Float[Array, "pairs dim"]:
    """Sums and differences of every two pairs: the one moved what all rows share, the other every group alone."""
    one, other = pairs.reshape(-1, 2, pairs.shape[1]).swapaxes(0, 1)
    return jnp.stack([one + other, one - other], axis=1).reshape(pairs.shape) * jnp.asarray(0.5**0.5, pairs.dtype)


def secants_of(
    sizes: Sizes, location: Array, factor: Array, records: Record, gradient: Array, made_at: Array, pairs: Differences
) -> Differences:
    """How the gradient of all data changed from pass to pass, as the mean moved, each pass against the mean of all. The
    points are those of mirrored draws, so that to first order there is no noise in either. A pass has the weight that
    its pairs have together. While there is only one, the mini-batches that were visited again tell what changed."""
    shape, dim = (sizes.generations, sizes.num_batches), location.shape[0]
    generations = made_at.reshape(shape)
    behind = (jnp.argmax(generations, axis=0)[None, :] - jnp.arange(sizes.generations)[:, None]) % sizes.generations
    ages = jax.nn.one_hot(behind, sizes.generations, axis=0, dtype=gradient.dtype) * (generations >= 0)
    complete = ages.sum(axis=(1, 2)) == sizes.num_batches
    shares = pairs.shares.reshape(*shape, -1).sum(axis=2)
    shares = jnp.where(complete, jnp.einsum("agb,gb->a", ages, shares), 0)
    means = jnp.stack([records.draws.mean(axis=1), gradient.mean(axis=1)]).reshape(2, *shape, dim)
    points, gradients = jnp.einsum("agb,cgbd->cad", ages, means) / sizes.num_batches
    points = solve_triangular(factor, (points - location).T, lower=True).T
    gradients = gradients @ factor
    centre = shares / jnp.maximum(shares.sum(), jnp.finfo(shares.dtype).tiny)
    if sizes.generations == 1:
        return Differences(shares, points - centre @ points, centre @ gradients - gradients)
    again = ages[1] - ages[0] * (ages[1].sum(axis=0) > 0)
    visits = jnp.where(complete[1], 0, ages[1].sum())
    point, change = jnp.einsum("gb,cgbd->cd", again, means) / jnp.maximum(visits, 1)
    share = jnp.where(visits > 0, (ages[1] * pairs.shares.reshape(*shape, -1).sum(axis=2)).sum(), 0)
    return Differences(
        jnp.append(shares, share),
        jnp.vstack([points - centre @ points, solve_triangular(factor, point, lower=True)]),
        jnp.vstack([centre @ gradients - gradients, -change @ factor]),
    )


def level(
    sizes: Sizes, records: Record, made_at: Int[Array, " slots"], moved: Float[Array, " slots"]
) -> tuple[Array, Array]:
    """(Z, G): mean point and mean gradient over every mini-batch's newest records."""
    generations = made_at.reshape(sizes.generations, sizes.num_batches)
    newest = jnp.argmax(generations, axis=0)
    behind = (newest[None, :] - jnp.arange(sizes.generations)[:, None]) % sizes.generations
    # The more there are, the more are averaged, back to where q was elsewhere: old ones are carried to today's mean by
    # the curvature, but not to today's width.
    since = jnp.where((made_at >= 0) & (moved > NEAR), made_at.max() - made_at, jnp.iinfo(made_at.dtype).max).min()
    share = (generations >= 0).sum() // (LEVEL_SHARE * sizes.num_batches)
    enough = jnp.maximum(sizes.level_generations, jnp.minimum(share, since // sizes.num_batches))
    counted = (generations >= 0) & (behind < enough)
    shares = counted.reshape(-1).astype(records.draws.dtype)
    shares = shares / shares.sum()
    point = jnp.tensordot(shares, records.draws.mean(axis=1), axes=1)
    return point, jnp.tensordot(shares, records.gradient.mean(axis=1), axes=1)
