"""The memory for more than a thousand latents: Newton steps along what they share, diagonal ones in the rest.

The newest records of all mini-batches are kept as sums over chunks (:mod:`isvi.auto.window`): their mean point and mean
gradient (Z, G) stand for the gradient of all data, and at the end of every chunk q's mean goes to ``Z + H^-1 G``. H is
learned from the records' mirrored pairs, by its diagonal and by a full matrix along collective directions
(``curvature.coarse``); its diagonal is also what the precisions of q have to be. The fit ends when what is left to
gain, as H and G predict it, is negligible on average and along every collective direction.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isvi.algorithms.base import Promise
from isvi.auto.curvature.coarse import Coarse
from isvi.auto.phases import Progress, Store
from isvi.auto.window import SCATTERED, UNEVEN, Pairs, Sizes, Window
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.families.collective import Collective
from isvi.memory.record import Record

LARGEST_CHANGE = 2.0
"""A step changes no precision by more than this factor."""
APPROACHED = 4.0
"""The approach's precisions count as much as twice as many records."""
MEAN_TOLERANCE = 0.1
"""Standard deviations that may be left along any collective direction."""
SHARPER, BLUNTER = 1.3, 0.5
"""What a diagonal step is multiplied by after a pass in which less was left to gain, or clearly more."""
CLEARLY_MORE = 1.5
NOISE_ALONE, BEYOND_NOISE = 2.0, 4.0
"""Where there is no more than so many times the noise left to gain, more passes are averaged; where there is more than
so many times, only the newest."""
MOST_PASSES = 50.0


class Noise(NamedTuple):
    """What draws add to the mean gradient of the newest records, and what is done about it."""

    point: Float[Array, " dim"]
    """Z, one step ago, ..."""
    gradient: Float[Array, " dim"]
    """... and G."""
    apart: Float[Array, ""]
    """The variance of a diagonal step, in variances of q, if one pass is averaged."""
    passes: Float[Array, ""]
    """How many are."""


class Knowledge(NamedTuple):
    """What is known beside the window."""

    precision: Float[Array, " dim"]
    """Of q, as records are drawn."""
    approached: Float[Array, " dim"]
    """What the approach thought they were."""
    noise: Noise
    rate: Float[Array, ""]
    """How much of a diagonal step is taken, as H is not diagonal."""
    before: Float[Array, ""]
    """What was left to gain a pass ago."""

    @classmethod
    def of(cls, precision: Float[Array, " dim"]) -> "Knowledge":
        """Nothing known but these."""
        zero, one = jnp.zeros((), precision.dtype), jnp.ones((), precision.dtype)
        zeros = jnp.zeros_like(precision)
        return cls(precision, precision, Noise(zeros, zeros, zero, one), zero, one * jnp.inf)


@dataclass(frozen=True)
class Many:
    """The memory for many latents, a :class:`isvi.auto.phases.Kind`.

    Attributes:
        tolerance: nats per entry that may be left.
        sizes: how much is kept, and how often a step is taken.
        collective: what many latents share.
    """

    tolerance: float
    sizes: Sizes
    collective: Collective

    promise: ClassVar[Promise] = "settled"

    def doubts(self, own: Knowledge) -> None:
        """Only averages are known, and what is collective."""

    def start(self, params: Params, record: Record) -> Store:
        ones = jnp.ones(record.draws.shape[-1], record.draws.dtype)
        return Store(
            Progress.start(params, self.sizes.num_batches, record),
            Window.none(self.sizes, self.collective.size, record),
            Knowledge.of(ones),
        )

    def remember(self, store: Store, record: Record, keep: Bool[Array, ""]) -> Store:
        progress, window, own = store
        window = window.add(
            self.sizes, self.collective, own.precision, progress.remembered, own.noise.passes, record, keep
        )
        return Store(progress._replace(remembered=progress.remembered + keep.astype(jnp.int32)), window, own)

    def due(self, progress: Progress) -> Bool[Array, ""]:
        return (progress.remembered > 0) & self.sizes.ends(progress.remembered)

    def pass_ended(self, progress: Progress) -> Bool[Array, ""]:
        return (progress.remembered > 0) & (progress.remembered % self.sizes.records == 0)

    def learn(self, own: Knowledge, precision: Float[Array, " dim"]) -> Knowledge:
        return own._replace(precision=precision, approached=precision)

    def forget(self, estimator: Estimator, own: Knowledge, params: Params) -> Knowledge:
        return Knowledge.of(estimator.approximation.scale(params) ** -2.0)

    def converged(self, progress: Progress, own: Knowledge) -> Bool[Array, ""]:
        """For a whole pass nothing was predicted to be left. The prediction can miss a slow direction that the
        curvature does not show; but then the ELBO is still rising."""
        dim = own.precision.shape[0]
        return (progress.settled >= self.sizes.chunks) & (progress.trust.rising < self.tolerance * dim)

    def step(
        self, estimator: Estimator, params: Params, records: Any, progress: Progress, own: Knowledge
    ) -> tuple[Progress, Knowledge]:
        """A Newton step for the mean, and what the pairs say about the precisions."""
        window: Window = records
        approximation, shared = estimator.approximation, self.collective
        location = approximation.location(params)
        curvature = Coarse.fitted(shared, window.pairs, _precision(window.pairs, own), location)
        precision = curvature.precision
        point, gradient, seen = window.level()
        # What mini-batches that were not seen yet may add, in variances of the posterior.
        unseen = jnp.maximum(self.sizes.num_batches / seen - 1, 0)

        along, apart = curvature.along(shared, gradient), curvature.apart(shared, gradient)
        noise = self._noise(progress, own.noise, curvature, point, gradient)
        rate, sds = self._rate(window.pairs, own.rate), precision**-0.5
        by_draws = noise.apart / noise.passes  # along collective directions too: what is flat has little noise
        shrunk = _shrunk(rate * apart / sds, unseen + rate**2 * by_draws) * sds
        step = point - location + shrunk + curvature.together(shared, _shrunk(along, unseen + by_draws))
        length = jnp.sqrt(jnp.mean(precision * step**2))

        off = along + curvature.distances(shared, point - location)
        found = jnp.mean(precision * (point - location + apart) ** 2)
        left = 0.5 * (jnp.maximum(found - by_draws, 0) + rate**2 * by_draws) + _uncertainty(window.pairs)
        arrived = (jnp.abs(off).max(initial=0.0) < MEAN_TOLERANCE) & curvature.clear
        fine = (left < self.tolerance) & arrived & (unseen == 0)
        progress = progress._replace(
            target=approximation.match(location + progress.trust.shorten(step, length), precision),
            left=left,
            settled=jnp.where(fine, progress.settled + 1, 0),
        )
        excess = jnp.maximum(found, jnp.mean(off**2)) / jnp.maximum(by_draws, jnp.finfo(by_draws.dtype).tiny)
        own = own._replace(precision=precision, noise=noise, rate=rate)
        return progress, self._after_pass(progress, own, excess, unseen == 0)

    def _rate(self, pairs: Pairs, rate: Float[Array, ""]) -> Float[Array, ""]:
        """What is taken of a diagonal step, between what a mini-batch says, whose rows correlate by chance, and what is
        left of that if all of it is chance."""
        _, others = pairs.energies
        least, most = 1 / (1 + others), 1 / (1 + others / self.sizes.num_batches)
        return jnp.where(rate == 0, jnp.sqrt(least * most), jnp.clip(rate, least, most))

    def _noise(self, progress: Progress, noise: Noise, curvature: Coarse, point: Array, gradient: Array) -> Noise:
        """From how G changed with one chunk renewed, but for what Z's move explains. Not known while passes are
        averaged, as then it would change for their weights too."""
        change = gradient - noise.gradient + curvature.precision * (point - noise.point)
        apart = jnp.mean(curvature.precision * curvature.apart(self.collective, change) ** 2)
        usable = (progress.remembered > self.sizes.records) & (noise.passes == 1)
        return Noise(point, gradient, jnp.where(usable, self.sizes.chunks / 2 * apart, noise.apart), noise.passes)

    def _after_pass(
        self, progress: Progress, own: Knowledge, excess: Float[Array, ""], all_seen: Bool[Array, ""]
    ) -> Knowledge:
        """Longer or shorter diagonal steps, and more or fewer passes to average."""
        ended, passes, left = self.pass_ended(progress) & all_seen, own.noise.passes, progress.left
        factor = jnp.where(left < own.before, SHARPER, jnp.where(left > CLEARLY_MORE * own.before, BLUNTER, 1.0))
        more = jnp.where(excess < NOISE_ALONE, jnp.minimum(passes + 1, MOST_PASSES), passes)
        passes = jnp.where(ended, jnp.where(excess > BEYOND_NOISE, 1, more), passes).astype(passes.dtype)
        return own._replace(
            noise=own.noise._replace(passes=passes),
            rate=jnp.where(ended, factor * own.rate, own.rate),
            before=jnp.where(ended, left, own.before),
        )


def _precision(pairs: Pairs, own: Knowledge) -> Float[Array, " dim"]:
    """The curvature of every entry on its own, and a little of what the approach thought."""
    slopes = (pairs.products + APPROACHED * own.approached) / (pairs.squares + APPROACHED)
    return jnp.clip(slopes, own.precision / LARGEST_CHANGE, own.precision * LARGEST_CHANGE)


def _shrunk(step: Array, noise: Array) -> Array:
    """Steps in standard deviations, short where they are not longer than noise of this variance."""
    return step**3 / jnp.maximum(step**2 + noise, jnp.finfo(step.dtype).tiny)


def _uncertainty(pairs: Pairs) -> Float[Array, ""]:
    """Nats per entry that q loses because its precisions come from finitely many pairs: a relative error r costs
    r^2 / 4. As pairs count nearly alike, that mini-batches differ is a small error; what other entries do is a
    larger one."""
    itself, others = pairs.energies
    return (SCATTERED * others + UNEVEN * itself) / (4 * jnp.maximum(pairs.number, 1))
