"""Driving the compiled loop from the host: rows of history, progress, interruption, failure."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from isvi.algorithms.base import Doubts
from isvi.algorithms.step import Method
from isvi.auto.dense import MEAN_TOLERANCE, SD_TOLERANCE
from isvi.core.compiling import compiled_once
from isvi.core.errors import DataError, WorkerError
from isvi.data.dataset import Dataset
from isvi.data.opening import Data
from isvi.families.base import Params
from isvi.fitting.outcome import Outcome
from isvi.fitting.running.elsewhere import Elsewhere
from isvi.fitting.running.host_loop import HostRun, make_host_run
from isvi.fitting.running.loop import TOLERATED_FAILURES, Ending, LoopState, ending, make_run, make_start, own_copy
from isvi.fitting.running.progress import Reporter, Row
from isvi.fitting.starts import Starts
from isvi.results.status import Status, some

ROWS_OF_HISTORY = 100
PROMISES: dict[str, str] = {
    "converged": "no latent's mean is predicted to be further than 0.1 sd, and no sd than 10%, from the best q of this "
    "family",
    "settled": "nothing is left to gain on average, nor along what many latents share; with so many of them no single "
    "one was checked",
}
SECONDS_PER_CALL = 0.25
"""How long one compiled call should take: short enough for a live bar and for Ctrl-C, long enough to hide
the cost of calling. It does not influence the result."""


@dataclass
class Driver:
    """Runs a method on a data set until the budget is used."""

    method: Method
    dataset: Data
    key: PRNGKeyArray
    report: Reporter
    effort: dict[str, Any] | None = None
    """Compiler options for the loop."""
    on_host: bool = False
    """Whether the model is evaluated on the host, between compiled steps."""
    labels: Callable[[], list[str]] = list
    """Names of the approximation's entries."""
    between_calls: Callable[[Outcome], str | None] = lambda outcome: None
    """Called after every compiled call, several times a second: a reason ends the run."""
    elsewhere: Elsewhere | None = None
    """Who makes records, if not this process."""
    _compiled: Any = None
    """The compiled loop, for a second part of a run."""

    def drive(self, outcome: Outcome, budget: int, starts: Starts | None = None) -> Outcome:
        """Go on from an outcome until ``budget`` model gradients were evaluated in all, or the method has ended; from
        the best of several starts, if there are some."""
        started = time.perf_counter()
        outcome.loop = own_copy(outcome.loop)
        run = self._program(outcome.loop)
        health = compiled_once(self.method.health)
        outcome.compile_seconds += time.perf_counter() - started
        try:
            if starts is not None:
                self._choose_start(run, outcome, starts)
            outcome.status = self._run(run, health, outcome, budget)
        except Exception as error:
            of_data = isinstance(error, DataError)
            last = run.last if isinstance(run, HostRun) else outcome.loop if of_data else None
            if last is None:
                raise
            outcome.loop, outcome.error = last, error
            what = "reading the data" if of_data else "the workers" if isinstance(error, WorkerError) else "the model"
            who = f"{what} raised {type(error).__name__}"
            outcome.status = Status("interrupted", f"{who} after {outcome.gradients:,} model gradients")
        finally:
            self.dataset.release()
        return outcome

    def _program(self, loop: LoopState) -> Any:
        if self.on_host or self.elsewhere is not None:
            on_host = make_host_run(self.method, self.key, self.elsewhere)
            return on_host.lower(loop, self._first, jnp.int32(0)).compile(self.effort)
        if self._compiled is None:
            run = make_run(self.method, self.key)
            self._compiled = run.lower(loop, self.dataset.first, jnp.int32(0)).compile(self.effort)
        return self._compiled

    @property
    def _first(self) -> Dataset | None:
        return self.dataset.first if self.elsewhere is None else None

    def _choose_start(self, run: Callable[..., LoopState], outcome: Outcome, starts: Starts) -> None:
        started, start = time.perf_counter(), make_start(self.method, self.dataset, self.key)

        def begin(params: Params) -> LoopState:
            return own_copy(start(params))

        def advance(loop: LoopState, until: int) -> LoopState:
            while int(loop.state.gradients) < until and not any(self._ending(loop)):
                loop = jax.block_until_ready(run(loop, self._resident(loop), jnp.int32(until)))
                if self.between_calls(outcome):  # the same reason ends the run after this
                    break
            return loop

        num_samples = outcome.loop.state.memory.newest.draws.shape[0]
        chosen, outcome.loop, outcome.starts = starts.choose(begin, advance, num_samples)
        outcome.start = starts.params[chosen]
        outcome.seconds += time.perf_counter() - started

    def _run(self, run: Callable[..., LoopState], health: jax.stages.Wrapped, outcome: Outcome, budget: int) -> Status:
        call = 1
        for row in range(1, ROWS_OF_HISTORY + 1):
            until = max(1, round(budget * row / ROWS_OF_HISTORY))
            if until <= outcome.history.covered:
                continue
            call, reason = self._run_until(run, outcome, until, call)
            if reason is not None:
                return Status("interrupted", f"{reason} after {outcome.gradients:,} model gradients")
            self._add_row(outcome, health)
            if any(self._ending(outcome.loop)):
                break
        return self._status(outcome)

    def _status(self, outcome: Outcome) -> Status:
        ending = self._ending(outcome.loop)
        outcome.gave_up = bool(ending.gave_up)
        if ending.diverged:
            return _diverged(outcome)
        if ending.converged:
            return Status(self.method.promise, PROMISES[self.method.promise])
        used = f"all {outcome.gradients:,} model gradients of the budget were used"
        doubts = self.method.doubts(outcome.loop.state)
        return Status("budget", used if doubts is None else f"{used}; {self._in_doubt(jax.device_get(doubts))}")

    def _in_doubt(self, doubts: Doubts) -> str:
        """Which entries are not known to be right, in words."""
        told = [
            f"{what} of {some(self.labels(), np.asarray(size) >= limit)}"
            for what, size, limit in (("the mean", doubts.means, MEAN_TOLERANCE), ("the sd", doubts.sds, SD_TOLERANCE))
            if (np.asarray(size) >= limit).any()
        ]
        return f"not converged: {' and '.join(told)} may be off" if told else "not converged: it had not come to rest"

    def _run_until(
        self, run: Callable[..., LoopState], outcome: Outcome, until: int, call: int
    ) -> tuple[int, str | None]:
        """Advance ``outcome.loop``, in calls of a bounded time; returns how many gradients fit in one, and why the
        run has to end here, if it has to."""
        while (done := outcome.gradients) < until and not any(self._ending(outcome.loop)):
            started = time.perf_counter()
            loop, enough = outcome.loop, jnp.int32(min(until, done + call))
            outcome.loop = jax.block_until_ready(run(loop, self._resident(loop), enough))
            elapsed = time.perf_counter() - started
            outcome.seconds += elapsed
            evaluated = outcome.gradients - done
            call = max(1, round(min(4 * call, evaluated * SECONDS_PER_CALL / max(elapsed, 1e-6))))
            if reason := self.between_calls(outcome):
                return call, reason
        return call, None

    def _resident(self, loop: LoopState) -> Dataset | None:
        """The data, or as much of them as is in memory, with the mini-batch that is visited next; None where records
        are made elsewhere."""
        return self.dataset.resident(loop.schedule) if self.elsewhere is None else None

    def _ending(self, loop: LoopState) -> Ending:
        """On the host. Evaluated piece by piece it would be compiled so, which takes longer than many a fit."""
        return jax.device_get(self._compiled_ending(loop))

    @cached_property
    def _compiled_ending(self) -> jax.stages.Wrapped:
        return compiled_once(partial(ending, self.method))

    def _add_row(self, outcome: Outcome, health: jax.stages.Wrapped) -> None:
        loop = outcome.loop
        tally, effective = jax.device_get((loop.tally, health(loop.state).effective))
        gradients, steps = outcome.gradients, int(loop.state.steps)
        outcome.skipped += int(tally.skipped)
        if tally.records:
            mean, standard_error = float(tally.mean), tally.standard_error
            outcome.history.append(
                gradients=gradients,
                steps=steps,
                seconds=outcome.seconds,
                elbo=mean,
                elbo_standard_error=standard_error,
                effective=float(effective),
                visits=int(loop.schedule.visited),
            )
            history = outcome.history
            history.level = tally.newest.level(history.elbo, history.visits, np.asarray(loop.schedule.order))
            reused = 1 - gradients / loop.state.memory.newest.draws.shape[0] / max(steps, 1)
            rate = gradients / max(outcome.seconds, 1e-9)
            elbo, error = tally.newest.overall() or (mean, standard_error)
            self.report.update(Row(gradients, elbo, error, reused, float(effective), rate))
        outcome.loop = loop._replace(tally=tally.next_row())


def _diverged(outcome: Outcome) -> Status:
    steps = int(outcome.loop.state.steps)
    return Status(
        "diverged",
        f"the model or the update was not finite {TOLERATED_FAILURES} times in a row, up to step {steps:,}; the last "
        "good parameters were kept. Look for an overflow in the log density, or start elsewhere (initial, starts)",
    )
