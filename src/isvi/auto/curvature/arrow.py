"""The curvature where latents belong to groups: rows know one group's latents each, beside those that all rows share.

Then the groups' latents are independent given the shared ones, and the curvature is an arrow: a full block for what is
shared, one for every group, and what couples the two. In the coordinates of a q whose L has the shared entries first,

    L = [[A, 0], [B, C]]    with C one block per group,

it is an arrow still. Noise in the first coordinates moves what is shared and lets all groups follow, which is how the
posterior's flat directions lie (an intercept against all groups, a scale against all effects); noise in the others
moves every group alone. A record has two mirrored pairs, the second with the groups' noise turned round, so that their
sum tells what the one does and their difference what the other does. Together they would drown each other: how much
single groups weigh in a mini-batch is chance, and the shared latents' gradients are sums over all groups. Few numbers
are unknown in every row of the curvature, and no direction needs pairs of its own.
"""

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from isvi.auto.curvature.matching import Differences, Estimate
from isvi.model.grouping import Groups

RIDGE = 1.0
"""Pairs that say q is right already."""
LARGEST_CHANGE = 4.0
"""An estimate changes the precision along no direction by more than this factor."""


def estimate_arrow(
    groups: Groups, pairs: Differences, secants: Differences, known: Float[Array, "dim dim"]
) -> Estimate:
    """The curvature that the pairs and the secants show, with the ``known`` one (the prior's) in it."""
    both = Differences(*map(lambda one, other: jnp.concatenate([one, other]), pairs, secants))
    number = pairs.number / 2  # half of the pairs are of either kind
    answers = both.answers + both.draws @ known
    curvature = _regress(groups, both._replace(answers=answers), RIDGE / number)
    values, vectors = jnp.linalg.eigh(curvature)
    error = jnp.sqrt(groups.unknowns / number)
    careful = jnp.clip(values * (1 + error), 1 / LARGEST_CHANGE, LARGEST_CHANGE)
    return Estimate(vectors, jnp.clip(values, 1 / LARGEST_CHANGE, LARGEST_CHANGE), careful)


def _regress(groups: Groups, pairs: Differences, ridge: Float[Array, ""]) -> Float[Array, "dim dim"]:
    """The arrow K that minimises ``E|y - K s|^2 + ridge |K - 1|^2``, the groups' rows first: they have the fewest
    unknowns, and what they say of the shared latents leaves these few too."""
    shared, members = groups.shared, groups.members
    draws, answers, weights = pairs.draws, pairs.answers, pairs.shares
    every, own, of_groups = draws[:, :shared], draws[:, members], answers[:, members]
    weighted, own_weighted = weights[:, None] * every, weights[:, None, None] * own
    gram = weighted.T @ every + ridge * jnp.eye(shared, dtype=draws.dtype)
    eye = ridge * jnp.eye(members.shape[1], dtype=draws.dtype)
    crossed = jnp.einsum("ni,ngk->gik", weighted, own)
    along = jnp.einsum("ij,gjk->gik", _inverse(gram), crossed)
    # What is left of a group's normal equations once the shared draws' part is taken out.
    squares = jnp.einsum("ngj,ngk->gjk", own_weighted, own) + eye - jnp.einsum("gij,gik->gjk", crossed, along)
    seen = jnp.einsum("ni,ngk->gik", weighted, of_groups)
    right = jnp.einsum("ngj,ngk->gjk", own_weighted, of_groups) + eye - jnp.einsum("gij,gik->gjk", along, seen)
    blocks = _solved(squares, right)
    coupling = jnp.einsum("ij,gjk->gik", _inverse(gram), seen) - along @ blocks
    coupling = coupling * _credible(coupling, blocks, of_groups, every, own, weights, ridge)
    left = answers[:, :shared] - jnp.einsum("ngk,gik->ni", own, coupling)
    return _assembled(groups, _core(every, left, weights, ridge), coupling, 0.5 * (blocks + blocks.swapaxes(1, 2)))


def _core(draws: Array, answers: Array, weights: Array, ridge: Array) -> Float[Array, "shared shared"]:
    """The block of what is shared. Each of its entries stands in two rows, and that which predicts its answers better
    says more about it: along a flat direction a mini-batch's own gradient enters, and is no noise elsewhere."""
    weighted, ridge_eye = weights[:, None] * draws, ridge * jnp.eye(draws.shape[1], dtype=draws.dtype)
    by_column = _inverse(weighted.T @ draws + ridge_eye) @ (weighted.T @ answers + ridge_eye)
    noise = weights @ (answers - draws @ by_column) ** 2 + jnp.finfo(draws.dtype).tiny
    mine, yours = by_column / noise[None, :], by_column.T / noise[:, None]
    return (mine + yours) / (1 / noise[None, :] + 1 / noise[:, None])


def _credible(
    coupling: Array, blocks: Array, answers: Array, every: Array, own: Array, weights: Array, ridge: Array
) -> Float[Array, "shared 1"]:
    """The part of every shared entry's couplings that is more than noise: each is small, and together they are not
    (James and Stein)."""
    misses = answers - jnp.einsum("ni,gik->ngk", every, coupling) - jnp.einsum("ngj,gjk->ngk", own, blocks)
    spread = jnp.einsum("n,ni,ngk->i", weights**2, every**2, misses**2)
    noise = spread / jnp.maximum(weights @ every**2, ridge) ** 2
    seen = jnp.sum(coupling**2, axis=(0, 2))
    return jnp.maximum(1 - noise / jnp.maximum(seen, jnp.finfo(seen.dtype).tiny), 0)[:, None]


def _inverse(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Of a positive definite matrix."""
    return cho_solve((jnp.linalg.cholesky(matrix), True), jnp.eye(len(matrix), dtype=matrix.dtype))


def _solved(matrices: Float[Array, "groups size size"], right: Float[Array, "groups size size"]) -> Array:
    """Many small positive definite systems, by Gauss and Jordan. (A batch of LAPACK's solvers inside a compiled loop
    was seen to wait for ever.)"""
    system = jnp.concatenate([matrices, right], axis=2)
    for row in range(matrices.shape[1]):
        pivot = system[:, row] / system[:, row, row][:, None]
        system = (system - system[:, :, row][:, :, None] * pivot[:, None, :]).at[:, row].set(pivot)
    return system[:, :, matrices.shape[1] :]


def _assembled(groups: Groups, core: Array, coupling: Array, blocks: Array) -> Float[Array, "dim dim"]:
    members, shared = groups.members, groups.shared
    whole = jnp.zeros((groups.dim, groups.dim), core.dtype).at[:shared, :shared].set(core)
    beside = jnp.moveaxis(coupling, 1, 0)
    whole = whole.at[jnp.arange(shared)[:, None, None], members[None]].set(beside)
    whole = whole.at[members[None], jnp.arange(shared)[:, None, None]].set(beside)
    return whole.at[members[:, :, None], members[:, None, :]].set(blocks)
