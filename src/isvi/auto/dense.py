"""The memory for up to a thousand latents: a full-rank q, in whose own coordinates no direction is flat.

Slots for every mini-batch keep its newest records. Their mean point and mean gradient (Z, G) stand for the gradient of
all data, and the next mean of q is a Newton step from there, ``Z + Sigma G``. Sigma, also what q's covariance must be,
is the inverse of the curvature that all stored pairs show (``curvature.matching``), in the coordinates in which q
was standard. Draws from a q that is as wide as the posterior in every direction tell about every direction alike; a
factorised q has none that reach along the long ones. So q is of full rank first, whatever the family, and is confined
to its family when everything has settled.

The fit ends when, for a whole pass and more, no latent's mean was predicted to be off by more than a tenth of its
standard deviation, no standard deviation by more than a tenth, and none of them moved by that much either.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from isvi.algorithms.base import Algorithm, Doubts, Promise
from isvi.auto.curvature import prior
from isvi.auto.curvature.arrow import estimate_arrow
from isvi.auto.curvature.matching import Differences, Estimate, estimate, unseen_changes
from isvi.auto.curvature.outdated import tempered
from isvi.auto.phases import Progress, Store, algorithm
from isvi.auto.store import Sizes as SizesOfStore
from isvi.auto.store import remember
from isvi.auto.trust import Trust
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore
from isvi.model.grouping import Groups

LARGEST_DIM = 1000
"""Up to this dimension all pairs are gone through, now and then."""
LEVEL_RECORDS = 20
"""The level of the gradient is averaged over at least this many records."""
LEVEL_SHARE = 4
"""And over one part in this many of those that are stored."""
STORED_RECORDS = 2400
STORED_NUMBERS = 2**19
"""Up to so many records are kept if they take no more numbers than this; more only if the dimension asks for it."""
PAIRS_PER_DIMENSION = 1.3
"""There must be so many effective pairs per dimension before they are matched: with fewer, directions that none of them
reaches would look flat."""
LEAST_PAIRS = 20
PAIRS_PER_UNKNOWN = 3
"""Where latents belong to groups: so many pairs of either kind for every unknown of a row of the curvature."""
STORED_PER_DIMENSION = 4
NEAR = 1.0
"""Records count half if an entry's mean has moved by so many standard deviations since: then q's width is not what it
was either, and where a scale's mean should be follows from the widths of all of its effects."""
PAIRS_KEPT = 3
"""But so many times the pairs that are needed count, whatever has happened since."""
FIT_OPERATIONS = 10.0
"""An estimate of the curvature takes as long as this times pairs x dim^2 of a model's floating-point operations."""
FIT_SHARE = 0.5
"""How long such estimates may take, compared to the records between them, ..."""
GROWTH = 5
"""... unless the records have become more by one part in this many."""
LARGEST_CHANGE = 2.0
"""While q is diagonal, a step changes no precision by more than this factor."""
LEAST_VISITS = 1.5
"""Effective visits of every mini-batch from which on its own visits are compared."""
WORTH_DOUBTING = 0.3
"""Whether the standard deviations are right is asked when no mean is predicted to be further off than this."""
SETTLED_SHARE = 5
"""The fit ends when nothing has moved for one part in this many of its records."""
MEAN_TOLERANCE = 0.1
SD_TOLERANCE = 0.1


@dataclass(frozen=True)
class Sizes(SizesOfStore):
    """What follows from the dimension and the number of mini-batches."""

    refit_every: int
    """Records from one estimate of the curvature to the next, at most."""

    @classmethod
    def for_model(cls, dim: int, unknowns: int, num_batches: int, operations: float) -> "Sizes":
        """``unknowns`` are those of a row of the curvature, ``operations`` those of a record."""
        update_every = max(1, min(num_batches // 10, 8))
        stored = max(min(STORED_RECORDS, STORED_NUMBERS // dim), STORED_PER_DIMENSION * unknowns)
        generations = -(-stored // num_batches)
        affordable = FIT_OPERATIONS * generations * num_batches * dim**2 / (FIT_SHARE * max(operations, 1.0))
        most = max(update_every, generations * num_batches // 8)
        return cls(
            num_batches=num_batches,
            generations=generations,
            level_generations=-(-LEVEL_RECORDS // num_batches),
            update_every=update_every,
            refit_every=int(min(max(update_every, affordable), most)),
        )


class Knowledge(NamedTuple):
    """What is known beside the records."""

    made_at: Int[Array, " slots"]
    """When the slot was filled, counted in records; -1 while empty."""
    factor: Float[Array, "dim dim"]
    """L of the best full-rank Gaussian, as far as it is known; lower triangular."""
    root: Float[Array, "dim dim"]
    """P with P P' the inverse curvature, for steps."""
    likelihood: Float[Array, "dim dim"]
    """The likelihood's curvature, for steps, in the coordinates of L; 0 while it is not known."""
    fitted_at: Int[Array, ""]
    """When the curvature was last estimated; 0 if it has not been yet."""
    doubt: Float[Array, " dim"]
    """How wrong the logarithms of q's standard deviations may be."""
    off: Float[Array, " dim"]
    """Predicted errors of q's means, in standard deviations."""
    anchor: Float[Array, "2 dim"]
    """Means and standard deviations when everything began to look settled."""
    confined: Bool[Array, ""]
    """Whether q is in its family yet."""


@dataclass(frozen=True)
class Dense:
    """The memory of mini-batches for up to a thousand latents, a :class:`isvi.auto.phases.Kind`. For full-rank
    estimators.

    Attributes:
        family: the approximation that is wanted. Parameters stay those of the full-rank one; at the end their L has
            entries only where the family's has.
        groups: latents that belong to groups of rows, if there are some.
    """

    family: Approximation
    groups: Groups | None = None

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        dim = estimator.approximation.dim
        unknowns = dim if self.groups is None else self.groups.unknowns
        sizes = Sizes.for_model(dim, unknowns, num_batches, estimator.operations)
        return algorithm(_Memory(self.family, sizes, self.groups), estimator)


@dataclass(frozen=True)
class _Memory:
    family: Approximation
    sizes: Sizes
    groups: Groups | None

    promise: ClassVar[Promise] = "converged"

    def doubts(self, own: Knowledge) -> Doubts:
        return Doubts(own.off, own.doubt)

    def start(self, params: Params, record: Record) -> Store:
        dim, dtype = record.draws.shape[-1], record.draws.dtype
        eye, unknown = jnp.eye(dim, dtype=dtype), jnp.full(dim, jnp.inf, dtype)
        own = Knowledge(
            made_at=jnp.full(self.sizes.slots, -1, jnp.int32),
            factor=eye,
            root=eye,
            likelihood=jnp.zeros_like(eye),
            fitted_at=jnp.int32(0),
            doubt=unknown,
            off=unknown,
            anchor=jnp.stack([unknown, unknown]),
            confined=jnp.array(self.family.num_factors == 1),
        )
        return Store(
            Progress.start(params, self.sizes.num_batches, record), RecordStore.empty(record, self.sizes.slots), own
        )

    def remember(self, store: Store, record: Record, keep: Bool[Array, ""]) -> Store:
        return remember(self.sizes, store, record, keep)

    def due(self, progress: Progress) -> Bool[Array, ""]:
        enough = progress.remembered >= max(5, min(self.sizes.num_batches, 10))
        return enough & (progress.remembered % self.sizes.update_every == 0)

    def pass_ended(self, progress: Progress) -> Bool[Array, ""]:
        return progress.remembered % self.sizes.level_records == 0

    def learn(self, own: Knowledge, precision: Float[Array, " dim"]) -> Knowledge:
        diagonal = jnp.diag(precision**-0.5)
        return own._replace(factor=diagonal, root=diagonal)

    def forget(self, estimator: Estimator, own: Knowledge, params: Params) -> Knowledge:
        location, factor = estimator.approximation.location(params), estimator.approximation.factor(params)
        known = _curvature_of_prior(estimator, location, factor)
        return own._replace(
            made_at=jnp.full_like(own.made_at, -1),
            factor=factor,
            root=factor,
            likelihood=jnp.eye(len(factor), dtype=factor.dtype) - known,
            fitted_at=jnp.minimum(own.fitted_at, 1),
        )

    def converged(self, progress: Progress, own: Knowledge) -> Bool[Array, ""]:
        return own.confined & self._settled(progress)

    def _settled(self, progress: Progress) -> Bool[Array, ""]:
        """Whether everything has looked so for a pass, and for a good part of what is remembered."""
        return progress.settled >= jnp.maximum(self.sizes.level_records, progress.remembered // SETTLED_SHARE)

    def step(
        self, estimator: Estimator, params: Params, records: RecordStore, progress: Progress, own: Knowledge
    ) -> tuple[Progress, Knowledge]:
        """A Newton step for the mean; now and then, what the pairs say about the covariance."""
        approximation, sizes = estimator.approximation, self.sizes
        location = approximation.location(params)
        own = self._learned(estimator, location, records.records, progress, own)
        point, gradient = _level(sizes, records.records, own.made_at, _moved(records.records, location, own.factor))
        pull = own.root @ (own.root.T @ gradient)
        step = point + pull - location
        whitened = solve_triangular(own.factor, step, lower=True)
        length = jnp.sqrt(jnp.mean(whitened**2))
        sds = jnp.sqrt(jnp.sum(own.factor**2, axis=1))
        # Predicted with all of the covariance: a step that is careful would predict too little.
        off = jnp.abs(point + own.factor @ (own.factor.T @ gradient) - location) / sds
        fitted = own.fitted_at > 0
        # A long valley is crept along in steps that are each predicted to be nothing: where q began to look settled, it
        # must stay.
        moved = jnp.abs(location + step - own.anchor[0]) / sds
        stays = (moved.max() < MEAN_TOLERANCE) & (jnp.abs(jnp.log(sds / own.anchor[1])).max() < SD_TOLERANCE)
        fine = fitted & (off.max() < MEAN_TOLERANCE) & (own.doubt.max() < SD_TOLERANCE / 2)
        settled = jnp.where(fine & stays, progress.settled + sizes.update_every, 0)
        factor = own.factor
        if self.family.num_factors > 1:
            factor = jnp.where(own.confined, closest(self.family, factor), factor)
        step = _within(estimator, location, point, gradient, progress.trust, own)
        target = approximation.with_factor(location + step, factor)
        progress = progress._replace(
            target=target,
            left=0.5 * length**2,
            settled=settled,
        )
        anchor = jnp.where(settled > 0, own.anchor, jnp.stack([location + step, sds]))
        own = own._replace(off=off, anchor=anchor)
        if self.family.num_factors == 1:
            return progress, own
        ready = ~own.confined & self._settled(progress)
        confined = self._confined(approximation, progress, own, location + step)
        return jax.tree.map(lambda one, other: jnp.where(ready, one, other), confined, (progress, own))

    def _confined(
        self, approximation: Approximation, progress: Progress, own: Knowledge, location: Array
    ) -> tuple[Progress, Knowledge]:
        """End the full-rank phase: q becomes the closest member of its family, and records of it are gathered anew."""
        target = approximation.with_factor(location, closest(self.family, own.factor))
        trust = progress.trust._replace(best=target, elbos=jnp.full_like(progress.trust.elbos, jnp.nan))
        progress = progress._replace(trust=trust, target=target, settled=jnp.zeros_like(progress.settled))
        return progress, own._replace(confined=jnp.array(True))

    def _learned(
        self, estimator: Estimator, location: Array, records: Record, progress: Progress, own: Knowledge
    ) -> Knowledge:
        """With the curvature estimated anew, where it is time for that."""
        sizes, filled = self.sizes, own.made_at >= 0
        since = progress.remembered - own.fitted_at
        growing = jnp.maximum(own.fitted_at // GROWTH, sizes.update_every)
        due = since >= jnp.minimum(growing, sizes.refit_every)
        enough = filled.sum() * (records.draws.shape[1] // 2) >= _pairs_needed(location.shape[0], self.groups)
        return jax.lax.switch(
            jnp.where(enough, jnp.where(due, 2, 0), jnp.where(own.fitted_at > 0, 0, 1)),
            [
                lambda: own,
                lambda: _by_diagonal(location, records, filled, own),
                lambda: _by_pairs(sizes, self.groups, estimator, location, records, progress, own),
            ],
        )


def _pairs(
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
    moved = _moved(records, location, factor)
    log_weights = jnp.where(filled, -jnp.log1p(distance**2) - jnp.log1p((moved / NEAR) ** 2), -jnp.inf)
    weights = jnp.repeat(tempered(log_weights, jnp.minimum(filled.sum(), PAIRS_KEPT * enough / half)), half)
    return Differences(weights / weights.sum(), draws, answers @ factor)


def _moved(records: Record, location: Array, factor: Array) -> Float[Array, " slots"]:
    """How far q's mean has moved since, in the standard deviations of the entry that moved furthest."""
    sds = jnp.sqrt(jnp.sum(factor**2, axis=1))
    return jnp.abs((records.draws.mean(axis=1) - location) / sds).max(axis=1)


def _parted(pairs: Float[Array, "pairs dim"]) -> Float[Array, "pairs dim"]:
    """Sums and differences of every two pairs: the one moved what all rows share, the other every group alone."""
    one, other = pairs.reshape(-1, 2, pairs.shape[1]).swapaxes(0, 1)
    return jnp.stack([one + other, one - other], axis=1).reshape(pairs.shape) * jnp.asarray(0.5**0.5, pairs.dtype)


def _secants(
    sizes: Sizes, location: Array, factor: Array, records: Record, gradient: Array, made_at: Array, pairs: Differences
) -> Differences:
    """How the gradient of all data changed from pass to pass, as the mean moved, each pass against the mean of all. The
    points are those of mirrored draws, so that to first order there is no noise in either. A pass has the weight that
    its pairs have together."""
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
    return Differences(shares, points - centre @ points, centre @ gradients - gradients)


def _by_diagonal(location: Array, records: Record, filled: Array, own: Knowledge) -> Knowledge:
    """While there are few pairs: the curvature of every entry alone, and steps that are damped as that is not all."""
    scale = jnp.diagonal(own.factor)
    pairs = _pairs(location, own.factor, records, filled, records.gradient, LEAST_PAIRS)
    shares = pairs.shares[:, None]
    slopes = jnp.sum(shares * pairs.draws * pairs.answers, axis=0) / jnp.sum(shares * pairs.draws**2, axis=0)
    slopes = jnp.clip(slopes, 1 / LARGEST_CHANGE, LARGEST_CHANGE)
    seen = jnp.sum(shares * pairs.draws * pairs.answers)
    damping = jnp.clip(seen / jnp.sum(shares * pairs.answers**2 / slopes), 0.01, 1.0)
    scale = scale * slopes**-0.5
    return own._replace(factor=jnp.diag(scale), root=jnp.diag(scale * jnp.sqrt(damping)))


def _pairs_needed(dim: int, groups: Groups | None) -> float:
    """Pairs from which on they are gone through together."""
    if groups is None:
        return max(PAIRS_PER_DIMENSION * dim, LEAST_PAIRS)
    return max(2 * PAIRS_PER_UNKNOWN * groups.unknowns, 2 * LEAST_PAIRS)


def _by_pairs(
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
    gradient, known = records.gradient, _curvature_of_prior(estimator, location, factor)
    if estimator.log_prior is not None:
        gradient = gradient - jax.vmap(jax.vmap(jax.grad(estimator.log_prior)))(records.draws)
    enough = _pairs_needed(location.shape[0], groups)
    pairs = _pairs(location, factor, records, own.made_at >= 0, gradient, enough, groups is not None)
    secants = _secants(sizes, location, factor, records, gradient, own.made_at, pairs)
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
        doubt=jax.lax.cond(
            usable & (own.off.max() < WORTH_DOUBTING),
            lambda: _doubt(
                sizes, pairs, unseen_changes(curvature, pairs, secants, _first_half(sizes, pairs), known, factor)
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


def _within(
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


def _doubt(sizes: Sizes, pairs: Differences, changes: Float[Array, "pairs dim"]) -> Float[Array, " dim"]:
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


def _first_half(sizes: Sizes, pairs: Differences) -> Bool[Array, " pairs"]:
    """Of the pairs, as on a chessboard of generations and mini-batches: both halves have all mini-batches."""
    generation, batch = jnp.divmod(jnp.arange(sizes.slots), sizes.num_batches)
    return jnp.repeat((generation + batch) % 2 == 0, len(pairs.shares) // sizes.slots)


def _curvature_of_prior(estimator: Estimator, location: Array, factor: Array) -> Float[Array, "dim dim"]:
    """In the coordinates of the factor; 0 where it is not known apart."""
    if estimator.log_prior is None:
        return jnp.zeros_like(factor)
    return prior.curvature(estimator.log_prior, prior.Gaussian(location, factor))


def _level(
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


def closest(family: Approximation, factor: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """L of the member of the family that is closest, in KL(q || p), to a Gaussian p with the given L: their precisions
    agree in the entries that the family has."""
    if family.num_factors == 1:
        return factor
    inverse = solve_triangular(factor, jnp.eye(factor.shape[0], dtype=factor.dtype), lower=True)
    precision = jnp.where(family.blocks, inverse.T @ inverse, 0)
    scale = jnp.diagonal(precision) ** -0.5
    correlation = precision * scale[:, None] * scale[None, :]
    return scale[:, None] * jnp.linalg.cholesky(jnp.linalg.inv(correlation))
