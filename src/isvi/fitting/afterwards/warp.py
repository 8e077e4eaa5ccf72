"""After a Gaussian: is a bent one better? Fitted to the records that there are, judged by draws that it has not seen.

The Gaussian's records are used again first, which costs nothing. If that would change q, a few further records are made
where the bent q is, and added; then the rest of what may be spent, half of what the Gaussian took at most, says which
of the two is better. Another fit, to these alone, tells how far off the bent q may still be.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from isvi.auto.dense import MEAN_TOLERANCE, SD_TOLERANCE
from isvi.families.warped import WarpedParams
from isvi.fitting.afterwards.bent import Bent
from isvi.fitting.afterwards.evaluations import Evaluations
from isvi.fitting.afterwards.ratios import Ratios, compared
from isvi.fitting.afterwards.trial import Trial
from isvi.fitting.outcome import Outcome
from isvi.fitting.setup import Setup
from isvi.memory.record import Record
from isvi.results.weights.smoothing import FEWEST_FOR_A_TAIL

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
WORSE = 0.2
"""Nats that a round may lose, by few draws; if it lost more, what there was before it is judged."""


def warp(setup: Setup, outcome: Outcome, stopped: Callable[[], str | None]) -> Bent:
    """Try to bend the Gaussian that a run came to. All that is random follows from the run's key."""
    spend = min(outcome.gradients // SHARE, setup.budget - outcome.gradients)
    records = _newest_last(outcome)
    if len(records.batch) < RECORDS_PER_ENTRY * setup.approximation.dim or spend - ROUNDS * (spend // PART) < FEWEST:
        return Bent("there were too few records to bend it")
    dtype, capacity = records.draws.dtype, len(records.batch) + spend // 2
    trial = Trial(setup.bent, Evaluations(setup), setup.run_key, dtype, capacity)
    trial.begin_with(records)
    try:
        return _tried(trial, setup, outcome, spend, stopped)
    except Exception as error:
        if not setup.target.on_host:
            raise
        return Bent("the model raised while a warp was tried", trial.evaluated, error=error)


def _tried(trial: Trial, setup: Setup, outcome: Outcome, spend: int, stopped: Callable[[], str | None]) -> Bent:
    own, drawn_from = outcome.loop.state.params, setup.drawn_from
    parts = (np.asarray(part(own), np.float64) for part in (drawn_from.location, drawn_from.factor))
    gaussian, other_way = trial.straight(*parts)
    before = _of_the_newest(trial, gaussian)
    ways = [trial.fit(gaussian), trial.fit(other_way)]
    if not any(trial.moved(one, gaussian) for one in ways):
        return Bent("a warp would change nothing")
    tried = [(one, trial.records(number, one, 2 * (spend // PART // 2))) for number, one in enumerate(ways)]
    params, best = max(tried, key=lambda one: _elbo(one[1]))
    for one, records in tried:
        trial.add(records, one, gaussian)
    for number in range(len(ways), ROUNDS):
        last, params = params, trial.fit(params)
        means, sds = trial.apart(params, last)
        if stopped():
            return Bent("a warp was tried, and not to its end", trial.evaluated)
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
    better, words = compared(before, after)
    if not after.finite or not (better or (setup.warp is not None and setup.warp.always)):
        return Bent(f"a warp was tried and not kept: {words}", trial.evaluated)
    doubt = trial.in_doubt(params, judged, setup.approximation.coordinates.labels())
    dtype = jnp.result_type(*jax.tree.leaves(own))
    kept = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype), params)
    return Bent(f"the Gaussian was bent: {words}", trial.evaluated, setup.bent, kept, after.effective, doubt)


def _elbo(records: Record) -> float:
    """By fresh records; minus infinity where it is not a number."""
    value = float(np.mean(records.log_joint - records.log_density[..., 0]))
    return value if np.isfinite(value) else -np.inf


def _newest_last(outcome: Outcome) -> Record:
    """The Gaussian's records, as far as they are remembered, the oldest first."""
    store = outcome.loop.state.memory.store
    made, slots = int(store.progress.remembered), store.records.slots
    order = np.arange(max(0, made - slots), made) % slots
    return jax.tree.map(lambda leaf: np.asarray(leaf)[order], jax.device_get(store.records.records))


def _of_the_newest(trial: Trial, gaussian: WarpedParams) -> Ratios:
    """Of the newer half of the Gaussian's records, weighted to where it ended."""
    newest = jax.tree.map(lambda leaf: leaf[len(leaf) // 2 :], trial.pool)
    flat = newest.draws.reshape(-1, newest.draws.shape[-1])
    density = trial.log_density(gaussian, flat).reshape(newest.log_joint.shape)
    weights = np.exp(np.minimum(density - newest.log_density[..., 0], np.log(20.0)))
    return Ratios(newest.log_joint - density, weights / weights.sum())
