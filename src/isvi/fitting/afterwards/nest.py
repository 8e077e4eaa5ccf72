"""After a Gaussian: do a few latents drive the others? Then the others are Gaussian given these, and q is made so.

The drivers are found by third derivatives (:mod:`isvi.auto.driving`), and where they are by Newton's method; at some of
their values the others' modes and curvatures are computed, and polynomials put through them. With u given t known, each
further draw of both is a record of the drivers alone, a handful of entries: to such records q(t) is bent
(:mod:`isvi.fitting.afterwards.trial`). Draws that were not used for any of it say whether it is better than the
Gaussian and, weighted to the posterior, how far off every mean and sd still is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from isvi.auto.dense import MEAN_TOLERANCE, SD_TOLERANCE
from isvi.auto.driving import find_drivers, most_to_find
from isvi.core.compiling import A_LITTLE, compiled_once, on_cpu
from isvi.core.coordinates import lay_out
from isvi.core.latents import real
from isvi.families.approximation import Approximation
from isvi.families.nested import NestedGaussian, NestedParams, conditional, features, powers
from isvi.families.warped import WarpedGaussian, WarpedParams
from isvi.fitting.afterwards.bent import Bent
from isvi.fitting.afterwards.nodes import Middle, Node, Nodes, find_middle
from isvi.fitting.afterwards.ratios import NEARLY_EQUAL, Ratios, compared
from isvi.fitting.afterwards.trial import Trial
from isvi.fitting.outcome import Outcome
from isvi.fitting.setup import Setup
from isvi.results.status import some
from isvi.results.weights.evaluation import in_one_precision
from isvi.results.weights.smoothing import k_threshold

ROUNDS = 4
"""Of nodes and records where the drivers are, at most."""
FIRST_NODES, MORE_NODES = 2.0, 0.5
"""Nodes per feature of the polynomials, in the first round and in every other."""
STRETCH = 1.4
"""Nodes, and half of the records, lie this much wider than draws of the drivers."""
FARTHEST_NODE = 4.0
"""Nodes that have turned out to be further away, in noise of the drivers, say nothing that matters."""
RIDGE = 1e-4
"""On coefficients of second and higher order."""
RECORDS = 200
"""Draws of a round, twice."""
MIDDLE, HIGH, MISSED = 1.5, 5.0, 2.0
"""Nodes with noise of the drivers up to the first are in the middle of q; no other that is less than so many nats below
the highest may be one where q is too low by so many."""
HOPELESS = 30.0
"""Nats below the median at which a record says only that the polynomials do not hold there."""
NO_DERIVATIVE = "ifferentiation"
"""A word in what JAX says of a function that cannot be differentiated again."""
CALM = 0.5
"""No more rounds are made when q(t) stays within this part of the tolerances."""
POLISH, JUDGES, GAUSSIANS = 320, 800, 320
"""Draws that correct means and scales of the others, that judge, and that tell the Gaussian's ELBO."""
AT_ONCE = 40
"""Draws that are looked at in one call: a divisor of all these numbers."""
POINTS = 16
"""So many values of the drivers are moved in one call."""


@dataclass(frozen=True)
class Wanted:
    """What nesting asks the model for.

    Attributes:
        log_joint: of all rows.
        location, covariance: of the Gaussian.
        room: model gradients that may be spent.
    """

    log_joint: Callable[[Array], Array]
    location: Float[np.ndarray, " dim"]
    covariance: Float[np.ndarray, "dim dim"]
    room: int


def nest(setup: Setup, outcome: Outcome, spent: int, stopped: Callable[[], str | None]) -> Bent:
    """Try a nested q, after the Gaussian that a run came to, and after so many gradients spent on trying others."""
    own, drawn_from = outcome.loop.state.params, setup.drawn_from
    with jax.enable_x64(True):
        location, factor = (np.asarray(part(own), np.float64) for part in (drawn_from.location, drawn_from.factor))
        wanted = Wanted(_log_joint(setup), location, factor @ factor.T, setup.budget - outcome.gradients - spent)
        try:
            found: Bent = in_one_precision(lambda: _nested(setup, wanted, stopped))
        except (TypeError, ValueError, NotImplementedError) as error:
            if NO_DERIVATIVE not in str(error):  # somebody's own derivative, of which JAX knows no further one
                raise
            return Bent(f"a nested q was not tried, as the model has no second derivatives ({_line(error)})", 1)
    return found


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:80]


def _log_joint(setup: Setup) -> Callable[[Array], Array]:
    batch = setup.dataset.first.batch(0)
    return lambda z: setup.target.values(z[None], batch)[0]


def _nested(setup: Setup, wanted: Wanted, stopped: Callable[[], str | None]) -> Bent:
    if wanted.room < most_to_find() + Work(setup, wanted, NestedGaussian(1, setup.approximation.dim, (0,))).least:
        return Bent("")
    found = find_drivers(wanted.log_joint, wanted.location, wanted.covariance)
    if not found.drivers:
        return Bent("no few latents drive the others" if found.bent else "", found.gradients if found.bent else 0)
    shape = NestedGaussian(1, setup.approximation.dim, found.drivers)
    work = Work(setup, wanted, shape)
    work.evaluated += found.gradients
    if work.least > wanted.room:
        return Bent(f"a nested q was not tried, which takes {work.least:,} model gradients or more", found.gradients)
    found_ones = work.made(stopped)
    if not found_ones:
        return Bent("a nested q was tried, and not found", work.spent)
    return work.judged(found_ones)


class Work:
    """What nesting takes, step by step.

    Attributes:
        evaluated: model gradients that it took so far.
    """

    def __init__(self, setup: Setup, wanted: Wanted, shape: NestedGaussian) -> None:
        self.evaluated = 0
        self._setup, self._wanted, self._shape = setup, wanted, shape
        self._random = np.random.default_rng(setup.options.seed)
        self._nodes = Nodes(wanted.log_joint, shape)
        self._drivers, self._others = np.asarray(shape.drivers), shape.others
        self._features = len(powers(len(shape.drivers)))
        self._approximation = Approximation(setup.approximation.coordinates, (shape,))
        self._given: NestedParams | None = None
        self._known: list[Node] = []
        self._first: WarpedParams | None = None

    @property
    def least(self) -> int:
        """Model gradients that it takes at least."""
        nodes = FIRST_NODES * self._features + 1 + 2 * len(self._drivers)
        return int(nodes * (1 + 2 * len(self._others))) + 2 * RECORDS + POLISH + JUDGES + GAUSSIANS

    def made(self, stopped: Callable[[], str | None]) -> list[NestedParams]:
        """Two nested q: with the q(t) that is closest to the posterior by KL(q || p), and by KL(p || q). None if there
        is none, or it was stopped."""
        wanted, drivers, others = self._wanted, self._drivers, self._others
        root = np.linalg.cholesky(wanted.covariance[np.ix_(drivers, drivers)])
        middle, nodes = find_middle(self._nodes, Middle(wanted.location[drivers], root, wanted.location[others]))
        if middle is None:
            return []
        outer = self._small.straight(jnp.asarray(middle.location), jnp.asarray(middle.root))
        for number in range(ROUNDS):
            nodes += self._more_nodes(number, outer, nodes, middle.mode)
            given = self._through(nodes, outer)
            if given is None or stopped():
                return []
            self._given = given
            last, outer = outer, self._bent(number, outer)
            means, sds = self._trial.apart(outer, last)
            calm = bool((means < CALM * MEAN_TOLERANCE).all() and (sds < CALM * SD_TOLERANCE).all())
            calm = calm and not self._missed(nodes, outer).any()
            if calm or self.spent + self.least > wanted.room:
                break
        self._known = nodes
        ways = [self._through(nodes, one) for one in (outer, self._trial.fit_forward(outer))]
        return [self._polished(one) for one in ways if one is not None]

    @property
    def spent(self) -> int:
        """Model gradients so far."""
        return self.evaluated + self._nodes.evaluated + self._trial.evaluated

    @property
    def _small(self) -> WarpedGaussian:
        return self._shape.outer

    @cached_property
    def _trial(self) -> Trial:
        latents = {"drivers": real(len(self._drivers))}
        approximation = Approximation(lay_out(latents, ["drivers"]), (self._small,))
        return Trial(approximation, self._of_drivers, self._setup.run_key, np.float64, ROUNDS * RECORDS)

    def _more_nodes(self, number: int, outer: WarpedParams, nodes: list[Node], guess: np.ndarray) -> list[Node]:
        """Around draws of the drivers, mirrored; each mode is looked for from that of the nearest node."""
        count = round((MORE_NODES if number else FIRST_NODES) * self._features / 2)
        half = STRETCH * self._random.normal(size=(count, len(self._drivers)))
        noise = np.concatenate([half, -half] if number else [half, -half, 0 * half[:1]])
        found: list[Node] = []
        for drivers in self._placed(outer, noise):
            known = [*nodes, *found]
            nearest = min(known, key=lambda node: float(np.sum((node.drivers - drivers) ** 2)), default=None)
            node = self._nodes.at(drivers, guess if nearest is None else nearest.mode)
            if node is not None:
                found.append(node)
        return found

    def _through(self, nodes: list[Node], outer: WarpedParams) -> NestedParams | None:
        """Polynomials through the nodes, in noise of the drivers; None where they are too few for that."""
        if len(nodes) < self._features:
            return None
        noise = self._noise_of(outer, np.stack([node.drivers for node in nodes]))
        near = np.flatnonzero((np.abs(noise) < FARTHEST_NODE).all(axis=1))
        if len(near) < self._features:
            return None
        chosen = [nodes[one] for one in near]
        return conditional(outer, noise[near], [one.mode for one in chosen], [one.factor for one in chosen], RIDGE)

    def _missed(self, nodes: list[Node], outer: WarpedParams) -> Bool[np.ndarray, " drivers"]:
        """Drivers with a tail that q has not, as the nodes know it: draws of q would say nothing of that."""
        drivers, values = np.stack([node.drivers for node in nodes]), np.array([node.value for node in nodes])
        noise = self._noise_of(outer, drivers)
        apart = values - self._trial.log_density(outer, drivers)
        near = (noise**2).mean(axis=1) < MIDDLE**2
        if not near.any():
            return np.ones(len(self._drivers), bool)
        missed = (values > values.max() - HIGH) & (apart > np.median(apart[near]) + MISSED)
        return (np.abs(noise[missed]) > MIDDLE).any(axis=0)

    def _placed(self, outer: WarpedParams, noise: np.ndarray) -> np.ndarray:
        """Drivers made of noise."""
        return self._filled(self._transform, outer, noise)

    def _noise_of(self, outer: WarpedParams, drivers: np.ndarray) -> np.ndarray:
        return self._filled(self._standardize, outer, drivers)

    def _filled(self, function: Callable, outer: WarpedParams, points: np.ndarray) -> np.ndarray:
        """At points, filled up so that one program is compiled for any number of them."""
        missing = -len(points) % POINTS
        filled = np.concatenate([points, np.repeat(points[-1:], missing, axis=0)])
        pieces = [np.asarray(function(outer, piece)) for piece in np.split(filled, len(filled) // POINTS)]
        return np.concatenate(pieces)[: len(points)]

    @cached_property
    def _transform(self) -> Callable:
        return compiled_once(jax.vmap(self._small.transform, (None, 0)))

    @cached_property
    def _standardize(self) -> Callable:
        return compiled_once(jax.vmap(self._small.standardize, (None, 0)))

    def _of_drivers(self, drivers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(t, u) - log q(u | t) at drivers t, of which u is drawn, and its gradient in t: as far as u given t is
        right, the log density of t alone."""
        noise = self._random.normal(size=(len(drivers), len(self._others)))
        pieces = [
            self._ratio_given(self._given, drivers[start : start + AT_ONCE], noise[start : start + AT_ONCE])
            for start in range(0, len(drivers), AT_ONCE)
        ]
        values, gradients = (np.concatenate([np.asarray(one) for one in part]) for part in zip(*pieces, strict=True))
        hopeless = ~(values > np.nanmedian(values) - HOPELESS)
        return np.where(hopeless, -np.inf, values), gradients

    @cached_property
    def _ratio_given(self) -> Callable:
        shape, log_joint = self._shape, self._wanted.log_joint

        def ratio(drivers: Array, params: NestedParams, noise: Array) -> Array:
            outer_noise = shape.outer.standardize(params.outer, drivers)
            whole = shape.transform(params, jnp.concatenate([outer_noise, noise]))
            _, _, logs = shape.given(params, outer_noise)
            return log_joint(whole) + jnp.sum(logs) + 0.5 * jnp.sum(noise**2)

        def ratios(params: NestedParams, drivers: Array, noise: Array) -> tuple[Array, Array]:
            return jax.vmap(jax.value_and_grad(ratio), (0, None, 0))(drivers, params, noise)

        return jax.jit(ratios, compiler_options=on_cpu(A_LITTLE))

    def _bent(self, number: int, outer: WarpedParams) -> WarpedParams:
        """q(t), bent to records of its own and of a wider one, with u given t as it is. The weights of such records are
        right on average even where u given t is not."""
        trial, wider = self._trial, outer._replace(factor=outer.factor * STRETCH)
        fresh = trial.records(2 * number, outer, RECORDS)
        if self._first is None:
            self._first = outer
            trial.begin_with(fresh)
        else:
            trial.add(fresh, outer, self._first)
        trial.add(trial.records(2 * number + 1, wider, RECORDS), wider, self._first)
        return trial.fit(outer)

    def _polished(self, params: NestedParams) -> NestedParams:
        """With the means of the others where the ELBO is highest, which is not at their modes. To first order in the
        drivers' noise; and of what draws tell, only what is more than noise."""
        first = len(self._drivers)
        noise = self._random.normal(size=(POLISH // 2, self._shape.size))
        noise = np.concatenate([noise, np.where(np.arange(self._shape.size) < first, noise, -noise)])
        _, _, slopes = self._at(params, noise)
        rest = (slopes + noise)[:, first:]
        fine = np.isfinite(rest).all(axis=1)
        seen = features(noise[fine, :first], np)[:, : 1 + first]
        shift = _credible(seen[:, :, None] * rest[fine, None, :])
        return params._replace(mean=params.mean.at[: 1 + first].add(jnp.asarray(shift @ np.asarray(params.base).T)))

    def _at(self, params: NestedParams, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draws made of this noise, log p - log q there, and the gradient of log p in the noise."""
        pieces = [self._asked(params, piece) for piece in np.split(noise, len(noise) // AT_ONCE)]
        self.evaluated += len(noise)
        draws, ratios, slopes = (
            np.concatenate([np.asarray(one) for one in part]) for part in zip(*pieces, strict=True)
        )
        return draws, ratios, slopes

    @cached_property
    def _asked(self) -> Callable:
        shape, log_joint = self._shape, self._wanted.log_joint

        def ask(params: NestedParams, noise: Array) -> tuple[Array, Array, Array]:
            draw, pull = jax.vjp(lambda noise: shape.transform(params, noise), noise)
            value, slope = jax.value_and_grad(log_joint)(draw)
            log_density = shape.base_log_prob(params, noise)[0] - shape.log_jacobian(params, draw)[0]
            return draw, value - log_density, pull(slope)[0]

        return jax.jit(jax.vmap(ask, (None, 0)), compiler_options=on_cpu(A_LITTLE))

    def judged(self, ways: list[NestedParams]) -> Bent:
        """Whether the better of them is better than the Gaussian, and what is in doubt."""
        setup = self._setup
        labels = setup.approximation.coordinates.labels()
        judged = [(one, *self._ratios(one, JUDGES)) for one in ways]
        doubts = [self._doubt(one, draws, ratios, labels) for one, draws, ratios in judged]
        best = max(range(len(ways)), key=lambda one: (doubts[one] is None, judged[one][2].effective))
        params, _, after = judged[best]
        location, covariance = jnp.asarray(self._wanted.location), jnp.asarray(self._wanted.covariance)
        _, before = self._ratios(self._shape.straight(location, jnp.linalg.cholesky(covariance)), GAUSSIANS)
        better, words = compared(before, after)
        if not after.finite or not (better or (setup.nested is not None and setup.nested.always)):
            return Bent(f"a nested q was tried and not kept: {words}", self.spent)
        drivers = ", ".join(labels[one] for one in self._shape.drivers)
        words = f"a Gaussian given {drivers}, which drive the others: {words}"
        return Bent(words, self.spent, self._approximation, params, after.effective, doubts[best])

    def _ratios(self, params: NestedParams, count: int) -> tuple[np.ndarray, Ratios]:
        """Fresh draws, and log p - log q there."""
        draws, values, _ = self._at(params, self._random.normal(size=(count, self._shape.size)))
        return draws, Ratios(values[:, None])

    def _doubt(self, params: NestedParams, draws: np.ndarray, ratios: Ratios, labels: list[str]) -> str | None:
        doubt, missed = in_doubt(draws, ratios, labels), self._missed(self._known, params.outer)
        if doubt is not None or not missed.any():
            return doubt
        along = np.isin(np.arange(self._shape.size), self._drivers[missed])
        return f"the posterior goes on where q ends, along {some(labels, along)}"


def _credible(values: Float[np.ndarray, "draws ..."]) -> np.ndarray:
    """The mean over draws, less what of it may be noise."""
    mean, variance = values.mean(axis=0), values.var(axis=0) / len(values)
    return mean * np.maximum(1 - variance / np.maximum(mean**2, 1e-30), 0)


def in_doubt(draws: Float[np.ndarray, "draws dim"], ratios: Ratios, labels: list[str]) -> str | None:
    """What draws of q, weighted to the posterior, say of its means and sds: those that are further off than is
    promised, or that the draws cannot tell."""
    if ratios.effective < NEARLY_EQUAL and ratios.k_hat > k_threshold(ratios.values.size):
        return f"the weights of its draws are too uneven to tell how far off it is (k-hat {ratios.k_hat:.2f})"
    extra = ratios.importance - 1 / len(draws)
    centred = (draws - draws.mean(axis=0)) / draws.std(axis=0)
    squares = (centred**2 - 1) / 2
    told = []
    for what, values, tolerance in (("mean", centred, MEAN_TOLERANCE), ("sd", squares, SD_TOLERANCE)):
        off, error = np.abs(extra @ values), np.sqrt((extra**2) @ values**2)
        wrong = ~((off < tolerance) & (error < tolerance))
        if wrong.any():
            told.append(f"the {what} of {some(labels, wrong)}")
    return f"{' and '.join(told)} may be off" if told else None
