"""Where to begin: several short approaches from dispersed points, of which the best goes on.

A posterior may have a mode that is worth nothing and that every start near zero runs into; and from a bad place a good
one may be out of reach. So a few records are spent in many places, more in the best of these, and the rest in one.

Where mini-batches make records dear, most posteriors have one mode, and the others begin only if the first start met
places in which the log joint curves upwards, as it does between modes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from isvi.core.compiling import compiled_once
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.fitting.running.loop import LoopState
from isvi.results.attempts import Attempt

REACH = 2.0
"""Dispersed points lie within this of the first start, in every unconstrained entry: Stan's choice."""
SHARE = 4
"""One part in this many of the budget may be spent on other starts than the one that goes on."""


class Rung(NamedTuple):
    """So many records for every start that is left, and then so many of these go on."""

    records: int
    keep: int


RUNGS = (Rung(records=16, keep=5), Rung(records=32, keep=1))
"""After so few records the best are often those that are fast, into a mode that is worth nothing; so most go on."""
CURVED = 2
"""Of the first ten records, so many that curve upwards call for more starts: on regressions none does, rarely one."""
JUDGED = 6
"""The last records of a rung tell the ELBO that was reached."""


def records_needed(starts: int) -> int:
    """Records that all starts but the one that goes on take together."""
    spent, left = 0, starts
    for rung in RUNGS:
        spent += rung.records * left
        left = min(left, rung.keep)
    return spent - sum(rung.records for rung in RUNGS)


class Candidate(NamedTuple):
    """A start, as far as it has come."""

    number: int
    loop: LoopState
    elbo: float


@dataclass(frozen=True)
class Starts:
    """Points to start from, as parameters of the approximation that records are drawn from; the user's is the first."""

    approximation: Approximation
    params: Sequence[Params]
    where_needed: bool
    """Whether all but the first wait for a sign that there are several modes."""

    @classmethod
    def around(
        cls, approximation: Approximation, start: Params, number: int, seed: int, where_needed: bool = False
    ) -> "Starts":
        """The given start, and others around it."""
        location, factor = approximation.location(start), approximation.factor(start)
        moves = np.random.default_rng(seed).uniform(-REACH, REACH, (number - 1, approximation.dim))
        moved = compiled_once(approximation.with_factor)
        others = (moved(location + np.asarray(move, location.dtype), factor) for move in moves)
        return cls(approximation, [start, *others], where_needed)

    def choose(
        self, begin: Callable[[Params], LoopState], advance: Callable[[LoopState, int], LoopState], num_samples: int
    ) -> tuple[int, LoopState, list[Attempt]]:
        """Which start is the best, its state, and where each one led to, in their order.

        Args:
            begin: the state before the first step.
            advance: takes a state on until so many model gradients were evaluated.
            num_samples: model gradients of a record.
        """
        left = [Candidate(number, begin(params), np.nan) for number, params in enumerate(self.params)]
        attempts: dict[int, Attempt] = {}
        records = 0
        if self.where_needed:
            first = advance(left[0].loop, (RUNGS[0].records - JUDGED) * num_samples)
            if not _curved(first):
                return 0, first, []
            left[0] = left[0]._replace(loop=first)
        for rung in RUNGS:
            records += rung.records
            left = [_taken_on(one, advance, records * num_samples, JUDGED * num_samples) for one in left]
            attempts |= {one.number: self._attempt(one) for one in left}
            # Sorting keeps the order of equals: the user's own start first.
            left = sorted(left, key=lambda one: -one.elbo if np.isfinite(one.elbo) else np.inf)[: rung.keep]
        [best] = left
        spent = sum(attempt.records for attempt in attempts.values())
        return best.number, _counting(best.loop, spent, num_samples), [attempts[one] for one in sorted(attempts)]

    def _attempt(self, candidate: Candidate) -> Attempt:
        state = candidate.loop.state
        location = np.asarray(self.approximation.location(state.params), float)
        return Attempt(candidate.elbo, tuple(location.tolist()), int(state.steps))


def _curved(loop: LoopState) -> bool:
    """Whether the log joint curved upwards often enough for there to be several modes."""
    return int(loop.state.memory.store.progress.approach.upward) >= CURVED


def _taken_on(
    candidate: Candidate, advance: Callable[[LoopState, int], LoopState], until: int, judged: int
) -> Candidate:
    """The candidate after more records, with the ELBO that the last of them show."""
    loop = advance(candidate.loop, until - judged)
    loop = advance(loop._replace(tally=loop.tally.next_row()), until)
    tally = jax.device_get(loop.tally)
    elbo = float(tally.mean) if tally.records and not tally.skipped and np.isfinite(tally.mean) else np.nan
    return Candidate(candidate.number, loop._replace(tally=loop.tally.next_row()), elbo)


def _counting(loop: LoopState, records: int, num_samples: int) -> LoopState:
    """The state of a start, with the records of all of them in its counts."""
    state = loop.state
    others = records - int(state.steps)
    return loop._replace(
        state=state._replace(steps=state.steps + others, gradients=state.gradients + others * num_samples)
    )
