"""After a Gaussian: is a bent one better? Fitted to the records that there are, judged by draws that it has not seen.

The Gaussian's records are used again first, which costs nothing. If that would change q, a few further records are made
where the bent q is, and added; then the rest of what may be spent, half of what the Gaussian took at most, says which
of the two is better. Another fit, to these alone, tells how far off the bent q may still be.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isvi.auto.dense import MEAN_TOLERANCE, SD_TOLERANCE
from isvi.families.warped import WarpedParams
from isvi.fitting.afterwards.trial import Trial
from isvi.fitting.outcome import Outcome
from isvi.fitting.setup import Setup
from isvi.memory.record import Record
from isvi.results.status import Status
from isvi.results.weights.smoothing import FEWEST_FOR_A_TAIL, k_noise, k_threshold, smooth

SHARE = 2
"""A warp may cost one part in so many of what the Gaussian took."""
ROUNDS, PART = 6, 9
"""Rounds of records that are made where the bent q is, at most. Each takes one part in so many of what may be spent,
and judging it the rest."""
CALM = 0.5
"""No more rounds are made when q stays within this part of the tolerances."""
FEWEST = 2 * FEWEST_FOR_A_TAIL
"""Draws that judge, at least."""
RECORDS_PER_ENTRY = 5
"""Records that the Gaussian must have left, at least."""
STANDARD_ERRORS = 2.0
"""By which an ELBO must be higher."""
WORSE = 0.2
"""Nats that a round may lose, by few draws; if it lost more, what there was before it is judged."""
NEARLY_EQUAL = 0.95
"""Where this share of the draws is effective, the shape of the weights' tail says nothing."""


@dataclass(frozen=True)
class Warp:
    """What came of it.

    Attributes:
        params: of the bent q; None if the Gaussian is kept.
        words: why.
        gradients: model gradients that it took.
        in_doubt: what may be further from the best bent q than is promised; None if nothing is.
        error: what a model on the host raised, if it did.
    """

    params: WarpedParams | None
    words: str
    gradients: int = 0
    in_doubt: str | None = None
    error: Exception | None = None

    def status(self, before: Status, promise: str) -> Status:
        """How the fit ended, after the Gaussian had ended like this."""
        if self.params is None:
            return before.adding(self.words) if self.gradients else before
        if self.in_doubt is None:
            return Status("converged", f"{promise}; {self.words}")
        return Status("budget", f"not converged: {self.in_doubt}; {self.words}")


def warp(setup: Setup, outcome: Outcome, stopped: Callable[[], str | None]) -> Warp:
    """Try to bend the Gaussian that a run came to. All that is random follows from the run's key."""
    spend = min(outcome.gradients // SHARE, setup.budget - outcome.gradients)
    records = _newest_last(outcome)
    if len(records.batch) < RECORDS_PER_ENTRY * setup.approximation.dim or spend - ROUNDS * (spend // PART) < FEWEST:
        return Warp(None, "there were too few records to bend it")
    trial = Trial(setup, records, spend // 2)
    try:
        return _tried(trial, setup, outcome, spend, stopped)
    except Exception as error:
        if not setup.target.on_host:
            raise
        return Warp(None, "the model raised while a warp was tried", trial.evaluated, error=error)


def _tried(trial: Trial, setup: Setup, outcome: Outcome, spend: int, stopped: Callable[[], str | None]) -> Warp:
    own, drawn_from = outcome.loop.state.params, setup.drawn_from
    parts = (np.asarray(part(own), np.float64) for part in (drawn_from.location, drawn_from.factor))
    gaussian, other_way = trial.straight(*parts)
    before = Ratios.of_the_newest(trial, gaussian)
    ways = [trial.fit(gaussian), trial.fit(other_way)]
    if not any(trial.moved(one, gaussian) for one in ways):
        return Warp(None, "a warp would change nothing")
    tried = [(one, trial.records(number, one, 2 * (spend // PART // 2))) for number, one in enumerate(ways)]
    params, best = max(tried, key=lambda one: _elbo(one[1]))
    for one, records in tried:
        trial.add(records, one, gaussian)
    for number in range(len(ways), ROUNDS):
        last, params = params, trial.fit(params)
        means, sds = trial.apart(params, last)
        if stopped():
            return Warp(None, "a warp was tried, and not to its end", trial.evaluated)
        if (means < CALM * MEAN_TOLERANCE).all() and (sds < CALM * SD_TOLERANCE).all():
            break
        records = trial.records(number, params, 2 * (spend // PART // 2))
        if _elbo(records) < _elbo(best) - WORSE:
            params = last
            break
        trial.add(records, params, gaussian)
        best = max(best, records, key=_elbo)
    judged = trial.records(ROUNDS, params, 2 * ((spend - trial.evaluated) // 2))
    after = Ratios(np.reshape(judged.log_joint - judged.log_density[..., 0], (-1, 1)))
    better, words = _compared(before, after)
    if not after.finite or not (better or (setup.warp is not None and setup.warp.always)):
        return Warp(None, f"a warp was tried and not kept: {words}", trial.evaluated)
    doubt = trial.in_doubt(params, judged)
    dtype = jnp.result_type(*jax.tree.leaves(own))
    kept = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype), params)
    return Warp(kept, f"the Gaussian was bent: {words}", trial.evaluated, doubt)


def _elbo(records: Record) -> float:
    """By fresh records; minus infinity where it is not a number."""
    value = float(np.mean(records.log_joint - records.log_density[..., 0]))
    return value if np.isfinite(value) else -np.inf


def _compared(before: "Ratios", after: "Ratios") -> tuple[bool, str]:
    """Whether the bent q is better, and in words."""
    if not after.finite:
        return False, "the model is not finite where it reaches"
    gain, error = after.mean - before.mean, float(np.hypot(after.error, before.error))
    words = (
        f"by {after.values.size:,} draws that it was not fitted to, its ELBO is {gain:+.2f} ± {error:.2f} nats from "
        f"the Gaussian's, {after.effective:.0%} of them are effective (of the Gaussian's, {before.effective:.0%})"
    )
    if after.effective < NEARLY_EQUAL:
        words += f", and k-hat is {after.k_hat:.2f} ({before.k_hat:.2f})"
    return bool(gain > STANDARD_ERRORS * error) and after.no_worse_than(before), words


def _newest_last(outcome: Outcome) -> Record:
    """The Gaussian's records, as far as they are remembered, the oldest first."""
    store = outcome.loop.state.memory.store
    made, slots = int(store.progress.remembered), store.records.slots
    order = np.arange(max(0, made - slots), made) % slots
    return jax.tree.map(lambda leaf: np.asarray(leaf)[order], jax.device_get(store.records.records))


@dataclass(frozen=True)
class Ratios:
    """log p(x, z) - log q(z) of draws, in groups that may depend on each other, with weights that make them q's."""

    values: Float[np.ndarray, "groups draws"]
    weights: Float[np.ndarray, "groups draws"] | None = None

    @classmethod
    def of_the_newest(cls, trial: Trial, gaussian: WarpedParams) -> "Ratios":
        """Of the newer half of the Gaussian's records, weighted to where it ended."""
        newest = jax.tree.map(lambda leaf: leaf[len(leaf) // 2 :], trial.pool)
        flat = newest.draws.reshape(-1, newest.draws.shape[-1])
        density = trial.log_density(gaussian, flat).reshape(newest.log_joint.shape)
        weights = np.exp(np.minimum(density - newest.log_density[..., 0], np.log(20.0)))
        return cls(newest.log_joint - density, weights / weights.sum())

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.values).all())

    @cached_property
    def shares(self) -> Float[np.ndarray, "groups draws"]:
        return np.full_like(self.values, 1 / self.values.size) if self.weights is None else self.weights

    @property
    def mean(self) -> float:
        """The ELBO."""
        return float(np.sum(self.shares * self.values))

    @property
    def error(self) -> float:
        """Its standard error."""
        return float(np.sqrt(np.sum(np.sum(self.shares * (self.values - self.mean), axis=1) ** 2)))

    @cached_property
    def _smoothed(self) -> tuple[np.ndarray, float]:
        return smooth(self.values.ravel())

    @property
    def k_hat(self) -> float:
        return self._smoothed[1]

    @property
    def effective(self) -> float:
        """The effective share of the draws, by their importance weights."""
        return float(np.exp(-np.logaddexp.reduce(2 * self._smoothed[0]))) / self.values.size

    def no_worse_than(self, other: "Ratios") -> bool:
        """Whether no fewer of the draws are effective, and the tail of their weights is no heavier, beyond its noise,
        where it is not such that they can be trusted anyway."""
        most = max(other.k_hat + k_noise(self.values.size), k_threshold(self.values.size))
        return self.effective >= NEARLY_EQUAL or (self.effective >= other.effective and self.k_hat <= most)
