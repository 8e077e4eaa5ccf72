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
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from isvi.algorithms.base import Algorithm, Doubts, Promise
from isvi.auto.dense.known import Knowledge, Sizes
from isvi.auto.dense.learning import by_diagonal, by_pairs, curvature_of_prior, pairs_needed, within
from isvi.auto.dense.recorded import level, moved_since
from isvi.auto.phases import Progress, Store, algorithm
from isvi.auto.store import remember
from isvi.estimators.base import Estimator
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore
from isvi.model.grouping import Groups

LARGEST_DIM = 1000
"""Up to this dimension all pairs are gone through, now and then."""
GROWTH = 5
"""The curvature is estimated anew, whatever that takes, when records have become more by one part in this many."""
LEAP = 3.0
"""A step so long, in standard deviations along it, may be too long by a factor: what it shows is learned at once."""
SETTLED_SHARE = 5
"""The fit ends when nothing has moved for one part in this many of its records."""
MEAN_TOLERANCE = 0.1
SD_TOLERANCE = 0.1


@dataclass(frozen=True)
class Dense:
    """The memory of mini-batches for up to a thousand latents, a :class:`isvi.auto.phases.Kind`. For full-rank
    estimators.

    Attributes:
        family: the approximation that is wanted. Parameters stay those of the full-rank one; at the end their L is
            one that the family has.
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
            leapt=jnp.array(False),
            confined=jnp.array(self.family.full),
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
        known = curvature_of_prior(estimator, location, factor)
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
        point, gradient = level(sizes, records.records, own.made_at, moved_since(records.records, location, own.factor))
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
        if not self.family.full:
            renewed = own.fitted_at == progress.remembered
            factor = jax.lax.switch(
                jnp.where(own.confined, jnp.where(renewed, 2, 1), 0),
                [
                    lambda: own.factor,
                    lambda: approximation.factor(params),
                    lambda: closest(self.family, own.factor),
                ],
            )
        step = within(estimator, location, point, gradient, progress.trust, own)
        target = approximation.with_factor(location + step, factor)
        progress = progress._replace(
            target=target,
            left=0.5 * length**2,
            settled=settled,
        )
        anchor = jnp.where(settled > 0, own.anchor, jnp.stack([location + step, sds]))
        gone = jnp.sqrt(jnp.sum(solve_triangular(own.factor, step, lower=True) ** 2))
        own = own._replace(off=off, anchor=anchor, leapt=own.leapt | (gone > LEAP))
        if self.family.full:
            return progress, own
        return jax.lax.cond(
            ~own.confined & self._settled(progress),
            lambda: self._confined(approximation, progress, own, location + step),
            lambda: (progress, own),
        )

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
        due = own.leapt | (since >= jnp.minimum(growing, sizes.refit_every))
        enough = filled.sum() * (records.draws.shape[1] // 2) >= pairs_needed(location.shape[0], self.groups)
        return jax.lax.switch(
            jnp.where(enough, jnp.where(due, 2, 0), jnp.where(own.fitted_at > 0, 0, 1)),
            [
                lambda: own,
                lambda: by_diagonal(location, records, filled, own),
                lambda: by_pairs(sizes, self.groups, estimator, location, records, progress, own),
            ],
        )


def closest(family: Approximation, factor: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """L of the member of the family that is closest, in KL(q || p), to a Gaussian p with the given L: their precisions
    agree in the entries that the family has; or, where it is a diagonal and a few directions, on the diagonal."""
    if family.full:
        return factor
    if family.num_factors > 1:
        inverse = solve_triangular(factor, jnp.eye(factor.shape[0], dtype=factor.dtype), lower=True)
        precision = jnp.where(family.blocks, inverse.T @ inverse, 0)
        scale = jnp.diagonal(precision) ** -0.5
        correlation = precision * scale[:, None] * scale[None, :]
        factor = scale[:, None] * jnp.linalg.cholesky(jnp.linalg.inv(correlation))
    if family.low_rank:
        factor = family.factor(family.with_factor(jnp.zeros_like(factor[0]), factor))
    return factor
