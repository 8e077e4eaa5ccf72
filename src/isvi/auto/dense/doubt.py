"""How wrong the standard deviations of q may be, as far as the pairs can tell."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isvi.auto.curvature.matching import Differences
from isvi.auto.dense.known import Sizes

LEAST_VISITS = 1.5
"""Effective visits of every mini-batch from which on its own visits are compared."""


def doubt_of(sizes: Sizes, pairs: Differences, changes: Float[Array, "pairs dim"]) -> Float[Array, " dim"]:
    """How wrong the logarithms of the standard deviations may be, from how each pair would change the variances that
    others show: the mean of that is what an estimate leaves out, and its standard error what cannot be told.

    That mini-batches differ is no error once every one of them has been visited equally often: what counts is how much
    one mini-batch's own visits differ. Until there are two of each, all differences count.
    """
    left_out = jnp.sum(pairs.shares[:, None] * changes, axis=0)
    everything = jnp.sum((pairs.shares[:, None] * (changes - left_out)) ** 2, axis=0)
    visits = changes.reshape(sizes.generations, sizes.num_batches, -1)
    shares = pairs.shares.reshape(sizes.generations, sizes.num_batches, -1).repeat(changes.shape[1], axis=2)
    total = jnp.maximum(shares.sum(axis=0), jnp.finfo(shares.dtype).tiny)
    number = total**2 / jnp.maximum((shares**2).sum(axis=0), jnp.finfo(shares.dtype).tiny)
    mean = (shares * visits).sum(axis=0) / total
    within = ((shares * (visits - mean)) ** 2).sum(axis=0) * number / jnp.maximum(number - 1, 0.1)
    within = within.reshape(-1, changes.shape[1]).sum(axis=0)
    unknown = jnp.where(number.min() > LEAST_VISITS, jnp.minimum(within, everything), everything)
    # What a ridge leaves out falls with the number of pairs: all of them leave out half of what half of them do.
    return 0.5 * jnp.sqrt(unknown + (left_out / 2) ** 2)


def first_half(sizes: Sizes, pairs: Differences) -> Bool[Array, " pairs"]:
    """Of the pairs, as on a chessboard of generations and mini-batches: both halves have all mini-batches."""
    generation, batch = jnp.divmod(jnp.arange(sizes.slots), sizes.num_batches)
    return jnp.repeat((generation + batch) % 2 == 0, len(pairs.shares) // sizes.slots)
