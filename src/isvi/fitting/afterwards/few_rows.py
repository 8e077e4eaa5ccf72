"""Are signs enough of a Gaussian where few rows say what an entry is? Asked before a fit on mini-batches has converged.

Records of ``Dense`` are mirrored pairs of signs, which have a Gaussian's second moments and not its fourth. Where the
log likelihood is a parabola over q's width that is all the same, and it is one where many rows know. A level of a
category whose few rows all say no is another matter: its sd came out by 5 to 25% off, and its mean 0.15 sd.

How far a log likelihood bends along every entry is told by one further gradient of each mini-batch, in the middle of
its newest pair. The entries that bend are taken for sites (:mod:`isvi.fitting.afterwards.sites`), which are looked at
with Gauss-Hermite nodes; and so are, when the usual budget is used, a few entries whose sds are all that the pairs
cannot tell. In the end all rows are looked at with draws that have a Gaussian's fourth moments in every entry: if
these do not agree about the mean, the fit has not converged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from isvi.algorithms import Method
from isvi.auto.dense import MEAN_TOLERANCE, SD_TOLERANCE, Dense
from isvi.core.compiling import A_LITTLE, on_cpu
from isvi.data.dataset import Batch
from isvi.diagnosis.passes import over_batches
from isvi.fitting.afterwards.sites import LEAST_STEPS, MOST_STEPS, Moments, Sites, Told
from isvi.fitting.options import PATIENCE
from isvi.fitting.outcome import Outcome
from isvi.fitting.running.driver import PROMISES
from isvi.fitting.setup import Setup
from isvi.memory.record import Record
from isvi.results.status import NOT_CONVERGED, Status, some

BENDS = 0.13
"""How far the middle of a pair may be from the mean of its ends, in the sds that the entry would have if all others
were known. Below that, nodes changed no mean by 0.001 sd and no sd by 1%; levels without a count, at 0.15 to 0.24, were
up to 10% too narrow without them, and a hinge at 0.28 was 8 to 15% off."""
NODES = 5
KNOWS = 1e-3
"""A mini-batch knows an entry if it has this share of what all of them together say of it."""
FEW = 4
"""Up to one entry in so many may be looked at more closely because the pairs cannot tell how wide it is."""
STILL = MEAN_TOLERANCE / 2
"""What no mean may have moved by, in sds, while the newer half of the stored records was made: a scale that waits for
the widths of its effects creeps, and is predicted to be right all the while."""
CIRCLE = (3**0.5, 0.0, 0.0)
"""Radii of an entry in three pairs, in an order of its own: squares have mean 1 and fourth powers mean 3."""


def looks(setup: Setup) -> list[int]:
    """After how many gradients to look whether a few entries alone keep a run from coming to rest."""
    return [part * setup.budget_of_method // PATIENCE for part in range(1, PATIENCE)] if _on_batches(setup) else []


def look_at_few_rows(setup: Setup, method: Method, outcome: Outcome, stopped: Callable[[], str | None]) -> bool:
    """Where the promise would not hold along entries of which few rows know, mend that; or take the promise back. Tells
    whether the run has ended with this."""
    batches, over = setup.dataset.num_batches, outcome.status.kind == "converged"
    if not _on_batches(setup) or outcome.gave_up or outcome.gradients + batches > setup.budget or stopped():
        return False
    wide = _undecided(method, outcome)
    if not over and (outcome.looked or not 0 < wide.sum() <= len(wide) // FEW or not _still(setup, outcome)):
        return False
    outcome.looked = True
    look = Look.at(setup, outcome)
    entries = np.flatnonzero(wide | (np.abs(look.bends()) > BENDS))
    if not len(entries) or stopped():
        _spend(outcome, look.evaluated)
        return over
    q, doubt = look.mended(entries, setup.budget_of_method - outcome.gradients)
    _spend(outcome, look.evaluated)
    if doubt is not None and not over:
        return False
    labels = setup.approximation.coordinates.labels()
    few = f"no parabola along {some(labels, np.isin(np.arange(len(labels)), entries))}"
    if doubt is None:
        outcome.status = Status("converged", f"{PROMISES['converged']}; {few}, which took a closer look")
    else:
        outcome.status = Status("budget", f"{NOT_CONVERGED}: {doubt}; {few}")
    _put(setup, outcome, q)
    return True


def _on_batches(setup: Setup) -> bool:
    return isinstance(setup.on_full_rank, Dense) and setup.dataset.num_batches > 1


def _undecided(method: Method, outcome: Outcome) -> Bool[np.ndarray, " dim"]:
    """The entries whose sds the pairs cannot tell, if that is all that they cannot; otherwise every one."""
    doubts = jax.device_get(method.doubts(outcome.loop.state))
    means, sds = (np.asarray(one) for one in (doubts.means, doubts.sds))
    return (sds >= SD_TOLERANCE / 2) | ~(means < MEAN_TOLERANCE).all()


def _still(setup: Setup, outcome: Outcome) -> bool:
    """Whether q's mean has come to rest: records are mirrored around where it was when they were made."""
    state = outcome.loop.state
    store = state.memory.store
    made_at, centres = np.asarray(store.own.made_at), np.asarray(store.records.records.draws).mean(axis=1)
    then = np.argmin(np.abs(made_at - (made_at.max() + made_at[made_at >= 0].min()) / 2))
    moved = np.asarray(setup.drawn_from.location(state.params)) - centres[then]
    return bool((np.abs(moved) < STILL * np.asarray(setup.drawn_from.scale(state.params))).all())


def _spend(outcome: Outcome, gradients: int) -> None:
    state = outcome.loop.state
    spent = state.gradients + jnp.asarray(gradients, state.gradients.dtype)
    outcome.loop = outcome.loop._replace(state=state._replace(gradients=spent))


def _put(setup: Setup, outcome: Outcome, q: Moments) -> None:
    state, drawn_from = outcome.loop.state, setup.drawn_from
    dtype = drawn_from.location(state.params).dtype
    root = np.linalg.cholesky(q.covariance)
    params = drawn_from.with_factor(jnp.asarray(q.mean, dtype), jnp.asarray(root, dtype))
    outcome.loop = outcome.loop._replace(state=state._replace(params=params))


@dataclass
class Look:
    """A look at the log likelihood around a q that has converged.

    Attributes:
        setup: of the run.
        q: where it came to.
        newest: every mini-batch's newest record, of pairs.
        apart: whether a record's pairs each move entries of their own.
        evaluated: model gradients that it took so far.
    """

    setup: Setup
    q: Moments
    newest: Record
    apart: bool
    evaluated: int = 0

    @classmethod
    def at(cls, setup: Setup, outcome: Outcome) -> "Look":
        drawn_from, params = setup.drawn_from, outcome.loop.state.params
        mean, factor = (np.asarray(part(params), np.float64) for part in (drawn_from.location, drawn_from.factor))
        store = jax.device_get(outcome.loop.state.memory.store)
        made_at = store.own.made_at.reshape(-1, setup.dataset.num_batches)
        slots = made_at.argmax(axis=0) * made_at.shape[1] + np.arange(made_at.shape[1])
        newest = jax.tree.map(lambda leaf: leaf[slots], store.records.records)
        return cls(setup, Moments(mean, factor @ factor.T), newest, setup.groups is not None)

    def bends(self) -> Float[np.ndarray, " dim"]:
        """How far the middles of pairs are from the means of their ends, of all rows."""
        draws = self.newest.draws
        half = draws.shape[1] // 2
        middles = self._sum(np.asarray(draws).mean(axis=1, keepdims=True), np.ones((1, 1)))[0]
        ends = self._likelihood(draws, self.newest.gradient).mean(axis=(0, 1))
        moves = half if self.apart else 1  # what every pair adds, or all of them on average
        return moves * (ends - middles) * np.diagonal(np.linalg.inv(self.q.covariance)) ** -0.5

    def mended(self, entries: Int[np.ndarray, " sites"], room: int) -> tuple[Moments, str | None]:
        """q with these entries looked at more closely, and what is in doubt about it."""
        known = self._known(entries)
        certain = 2 * len(CIRCLE) * len(known) + 2 * known.sum()
        steps = min(MOST_STEPS, int((room - self.evaluated - certain) // (NODES * known.sum())))
        if steps < LEAST_STEPS:
            return self.q, "the budget was too small for a closer look"
        likelihood = np.linalg.inv(self.q.covariance) - self._of_prior
        signs = np.random.default_rng(self.setup.options.seed).choice([-1.0, 1.0], (len(known), len(entries)))

        def ask(nodes: np.ndarray, shares: np.ndarray, q: Moments, patterns: np.ndarray) -> Told:
            return self._ask(entries, known, signs, nodes, shares, q, patterns)

        # What q came from is what signs say.
        nodes, shares = np.array([-1.0, 1.0]), np.array([0.5, 0.5])
        sites = Sites.beside(self.q, likelihood, entries, lambda patterns: ask(nodes, shares, self.q, patterns).slopes)
        nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
        shares = shares / shares.sum()
        q, arrived = sites.fitted(self.q, lambda q, patterns: ask(nodes, shares, q, patterns), steps)
        if not arrived:  # where they were on the way is no place to end
            return self.q, "the nodes that these need did not come to rest"
        off = np.abs(self._off(q))
        if (off < MEAN_TOLERANCE).all():
            return q, None
        labels = self.setup.approximation.coordinates.labels()
        return q, f"the mean of {some(labels, off >= MEAN_TOLERANCE)} may be off"

    def _known(self, entries: Int[np.ndarray, " sites"]) -> Bool[np.ndarray, " batches"]:
        """The mini-batches that know any of these entries."""
        half = self.newest.draws.shape[1] // 2
        gradients = self._likelihood(self.newest.draws, self.newest.gradient)[..., entries]
        answers = np.abs(gradients[:, :half] - gradients[:, half:]).sum(axis=1)
        return (answers / answers.sum(axis=0)).max(axis=1) > KNOWS

    def _ask(
        self,
        entries: Int[np.ndarray, " sites"],
        known: Bool[np.ndarray, " batches"],
        signs: Float[np.ndarray, "batches sites"],
        nodes: Float[np.ndarray, " nodes"],
        shares: Float[np.ndarray, " nodes"],
        q: Moments,
        patterns: Float[np.ndarray, "sites dim"],
    ) -> Told:
        """Slopes and curvatures of sites: every u_r'z is moved to all nodes, and z to its mean given that. All sites
        move at once, each in its own direction in every mini-batch."""
        sds = np.sqrt(np.einsum("rd,de,re->r", patterns, q.covariance, patterns))
        moves = patterns @ q.covariance / sds[:, None]
        points = q.mean + np.einsum("k,br,rd->bkd", nodes, signs, moves)
        both = np.concatenate(
            [
                np.broadcast_to(shares, (len(signs), 1, len(nodes))),
                np.einsum("k,br->brk", shares * nodes, signs),
            ],
            axis=1,
        )
        sums = self._sum(points, both, known)
        at = np.arange(len(entries))
        return Told(sums[0, entries], -sums[1 + at, entries] / sds)

    def _off(self, q: Moments) -> Float[np.ndarray, " dim"]:
        """How far a Newton step of the mean would go, in sds, by all rows at draws that were not used yet."""
        random = np.random.default_rng([self.setup.options.seed, 1])
        batches, dim = self.setup.dataset.num_batches, len(q.mean)
        radii = random.permuted(np.broadcast_to(CIRCLE, (batches, dim, len(CIRCLE))), axis=2).swapaxes(1, 2)
        noise = radii * random.choice([-1.0, 1.0], radii.shape)
        root = np.linalg.cholesky(q.covariance)
        points = q.mean + np.concatenate([noise, -noise], axis=1) @ root.T
        shares = np.full((1, points.shape[1]), 1 / points.shape[1])
        gradient = self._sum(points, shares)[0] + self._prior_slope(points).mean(axis=(0, 1))
        return q.covariance @ gradient / q.sd

    def _sum(
        self,
        points: Float[np.ndarray, "batches draws dim"],
        shares: Float[np.ndarray, "... sums draws"],
        known: Bool[np.ndarray, " batches"] | None = None,
    ) -> Float[np.ndarray, "sums dim"]:
        """Weighted sums over draws of the log likelihood's gradient of all rows, or of the mini-batches that are
        known; each mini-batch has draws, and perhaps weights, of its own."""
        batches = len(points)
        wanted = np.ones(batches, bool) if known is None else known
        dtype = self.newest.draws.dtype
        shares = np.broadcast_to(shares, (batches, *shares.shape[-2:]))
        asked = (jnp.asarray(points, dtype), jnp.asarray(shares, dtype), jnp.asarray(wanted))
        self.evaluated += int(wanted.sum()) * points.shape[1]
        joint = np.asarray(self._over_batches(asked, self.setup.dataset), np.float64)
        slopes = self._prior_slope(points[wanted])
        return joint - np.einsum("bmk,bkd->md", shares[wanted], slopes) / batches

    @cached_property
    def _over_batches(self) -> Callable[..., Any]:
        target = self.setup.target

        def each(asked: tuple[Array, Array, Array], batch: Batch) -> Array:
            points, shares, wanted = (one[batch.index] for one in asked)

            def summed() -> Array:
                return shares @ target.values_and_gradients(points, batch)[1]

            nothing = jnp.zeros((shares.shape[0], points.shape[1]), points.dtype)
            if target.on_host:
                return summed() if wanted else nothing
            return jax.lax.cond(wanted, summed, lambda: nothing)

        return over_batches(target, each, on_cpu(A_LITTLE))

    def _likelihood(self, draws: Any, gradient: Any) -> np.ndarray:
        """The part of gradients that is the likelihood's, where the prior's is known apart."""
        return gradient - self._prior_slope(draws)

    def _prior_slope(self, points: Float[np.ndarray, "batches draws dim"]) -> Float[np.ndarray, "batches draws dim"]:
        prior = self._log_prior
        if prior is None:
            return np.zeros_like(points)
        return np.asarray(self._slope_of_prior(jnp.asarray(points, self.newest.draws.dtype)), np.float64)

    @cached_property
    def _slope_of_prior(self) -> Callable[[Array], Array]:
        assert self._log_prior is not None
        return jax.jit(jax.vmap(jax.vmap(jax.grad(self._log_prior))), compiler_options=on_cpu(A_LITTLE))

    @property
    def _log_prior(self) -> Callable[[Array], Array] | None:
        return self.setup.free_prior

    @cached_property
    def _of_prior(self) -> Float[np.ndarray, "dim dim"]:
        """Its curvature at q's mean."""
        if self._log_prior is None:
            return np.zeros_like(self.q.covariance)
        hessian = jax.jit(jax.hessian(self._log_prior), compiler_options=on_cpu(A_LITTLE))
        return -np.asarray(hessian(jnp.asarray(self.q.mean, self.newest.draws.dtype)), np.float64)
