"""What the pairs say about the covariance of q, and where its mean goes."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from isvi.auto.curvature import prior
from isvi.auto.curvature.arrow import estimate_arrow
from isvi.auto.curvature.matching import Estimate, estimate, unseen_changes
from isvi.auto.dense.doubt import doubt_of, first_half
from isvi.auto.dense.known import Knowledge, Sizes
from isvi.auto.dense.recorded import pairs_of, secants_of
from isvi.auto.phases import Progress
from isvi.auto.trust import Trust
from isvi.estimators.base import Estimator
from isvi.memory.record import Record
from isvi.model.grouping import Groups

PAIRS_PER_DIMENSION = 1.3
"""There must be so many effective pairs per dimension before they are matched: with fewer, directions that none of them
reaches would look flat."""
LEAST_PAIRS = 20
PAIRS_PER_UNKNOWN = 3
"""Where latents belong to groups: so many pairs of either kind for every unknown of a row of the curvature."""
LARGEST_CHANGE = 2.0
"""While q is diagonal, a step changes no precision by more than this factor."""
WORTH_DOUBTING = 0.3
"""Whether the standard deviations are right is asked when no mean is predicted to be further off than this."""


def by_diagonal(location: Array, records: Record, filled: Array, own: Knowledge) -> Knowledge:
    """While there are few pairs: the curvature of every entry alone, and steps that are damped as that is not all."""
    scale = jnp.diagonal(own.factor)
    pairs = pairs_of(location, own.factor, records, filled, records.gradient, LEAST_PAIRS)
    shares = pairs.shares[:, None]
    slopes = jnp.sum(shares * pairs.draws * pairs.answers, axis=0) / jnp.sum(shares * pairs.draws**2, axis=0)
    slopes = jnp.clip(slopes, 1 / LARGEST_CHANGE, LARGEST_CHANGE)
    seen = jnp.sum(shares * pairs.draws * pairs.answers)
    damping = jnp.clip(seen / jnp.sum(shares * pairs.answers**2 / slopes), 0.01, 1.0)
    scale = scale * slopes**-0.5
    return own._replace(factor=jnp.diag(scale), root=jnp.diag(scale * jnp.sqrt(damping)))


def pairs_needed(dim: int, groups: Groups | None) -> float:
    """Pairs from which on they are gone through together."""
    if groups is None:
        return max(PAIRS_PER_DIMENSION * dim, LEAST_PAIRS)
    return max(2 * PAIRS_PER_UNKNOWN * groups.unknowns, 2 * LEAST_PAIRS)


def by_pairs(
    sizes: Sizes,
    groups: Groups | None,
    estimator: Estimator,
    location: Array,
    records: Record,
    progress: Progress,
    own: Knowledge,
) -> Knowledge:
    """What all stored pairs say about the curvature."""
    factor, curvature = own.factor, estimate if groups is None else partial(estimate_arrow, groups)
    gradient, known = records.gradient, curvature_of_prior(estimator, location, factor)
    if estimator.log_prior is not None:
        gradient = gradient - jax.vmap(jax.vmap(jax.grad(estimator.log_prior)))(records.draws)
    enough = pairs_needed(location.shape[0], groups)
    pairs = pairs_of(location, factor, records, own.made_at >= 0, gradient, enough, groups is not None)
    secants = secants_of(sizes, location, factor, records, gradient, own.made_at, pairs)
    found = curvature(pairs, secants, known)
    usable = jnp.isfinite(found.inverse_root).all()
    # What a prior that curves upwards outweighs is not seen with it; nor need it be, as the prior is known.
    known = jnp.where(usable, known, prior.downward(known))
    found = jax.lax.cond(usable, lambda: found, lambda: curvature(pairs, secants, known))
    learned = _with(estimator, location, own, found, known)
    # What is no number is not taken over: the next estimate begins from what was known.
    finite = jnp.isfinite(learned.factor).all() & jnp.isfinite(learned.root).all()
    learned = jax.tree.map(lambda new, old: jnp.where(finite, new, old), learned, own)
    return learned._replace(
        fitted_at=progress.remembered,
        leapt=jnp.array(False),
        doubt=jax.lax.cond(
            usable & (own.off.max() < WORTH_DOUBTING),
            lambda: doubt_of(
                sizes, pairs, unseen_changes(curvature, pairs, secants, first_half(sizes, pairs), known, factor)
            ),
            lambda: jnp.full_like(own.doubt, jnp.inf),
        ),
    )


def _with(estimator: Estimator, location: Array, own: Knowledge, found: Estimate, known: Array) -> Knowledge:
    """What is known when the curvature is the one found, with the prior's in it."""
    # Lower triangular, of the same covariance: from an orthogonal decomposition, which squares nothing.
    change = jnp.linalg.qr(found.inverse_root.T, mode="r").T
    change = change * jnp.sign(jnp.diagonal(change))
    factor, root = own.factor @ change, own.factor @ found.careful_root
    if estimator.log_prior is None:
        return own._replace(factor=factor, root=root)
    known = change.T @ known @ change
    eye = jnp.eye(len(known), dtype=known.dtype)
    q = prior.Gaussian(location, factor)
    precision, known_there = prior.best_root(estimator.log_prior, q, eye - known, change.T)
    careful = solve_triangular(change, found.careful_root, lower=True)
    careful = jnp.linalg.inv(careful @ careful.T) - known
    further = solve_triangular(precision, eye, lower=True, trans=1)
    further = jnp.linalg.qr(further.T, mode="r").T
    further = further * jnp.sign(jnp.diagonal(further))
    careful_root = solve_triangular(jnp.linalg.cholesky(careful + known_there), eye, lower=True, trans=1)
    return own._replace(
        factor=factor @ further,
        root=factor @ jnp.where(jnp.isfinite(careful_root).all(), careful_root, further),
        likelihood=further.T @ careful @ further,
    )


def within(
    estimator: Estimator, location: Array, point: Array, gradient: Array, trust: Trust, own: Knowledge
) -> Float[Array, " dim"]:
    """The step of the mean, inside the trust region."""

    def whitened(step: Array) -> Array:
        return solve_triangular(own.factor, step, lower=True)

    def shorten(step: Array) -> Array:
        return trust.shorten(step, jnp.sqrt(jnp.mean(step**2)))

    linear = own.factor @ shorten(whitened(point - location + own.root @ (own.root.T @ gradient)))
    if estimator.log_prior is None:
        return linear

    def newton(slope: Array) -> Array:
        return whitened(own.root @ (own.root.T @ solve_triangular(own.factor, slope, lower=True, trans=1)))

    likelihood = prior.Likelihood(own.factor.T @ gradient, whitened(point - location), own.likelihood)
    q = prior.Gaussian(location, own.factor)
    best = own.factor @ prior.best_step(estimator.log_prior, q, likelihood, newton, shorten)
    return jnp.where(own.fitted_at > 0, best, linear)


def curvature_of_prior(estimator: Estimator, location: Array, factor: Array) -> Float[Array, "dim dim"]:
    """In the coordinates of the factor; 0 where it is not known apart."""
    if estimator.log_prior is None:
        return jnp.zeros_like(factor)
    return prior.curvature(estimator.log_prior, prior.Gaussian(location, factor))
