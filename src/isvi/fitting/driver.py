"""Driving the compiled loop from the host: rows of history, progress, interruption, failure."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from isvi.algorithms.step import Method
from isvi.core.errors import DataError
from isvi.data.dataset import Dataset
from isvi.data.opening import Data
from isvi.fitting.history import History
from isvi.fitting.host_loop import HostRun, make_host_run
from isvi.fitting.loop import TOLERATED_FAILURES, LoopState, Tally, ended, make_run, run_keys
from isvi.fitting.progress import Reporter, Row
from isvi.fitting.status import Status

ROWS_OF_HISTORY = 100
SECONDS_PER_CALL = 0.25
"""How long one compiled call should take: short enough for a live bar and for Ctrl-C, long enough to hide
the cost of calling. It does not influence the result."""


@dataclass
class Outcome:
    """What a run left behind.

    Attributes:
        loop: the state at the end, with the last good parameters.
        history: what happened, in rows.
        status: why it ended.
        compile_seconds: seconds spent compiling, before the first step.
        skipped: steps not taken because the model, or the update, was not finite.
        error: what a model that is evaluated on the host raised, or a source of data, if it did.
    """

    loop: LoopState
    history: History = field(default_factory=History)
    status: Status = Status("interrupted", "stopped before the first step")
    compile_seconds: float = 0.0
    skipped: int = 0
    error: Exception | None = None


@dataclass
class Driver:
    """Runs a method on a data set until the budget is used."""

    method: Method
    dataset: Data
    key: PRNGKeyArray
    report: Reporter
    on_host: bool = False
    """Whether the model is evaluated on the host, between compiled steps."""
    seconds: float = field(default=0.0, init=False)

    def drive(self, outcome: Outcome, budget: int) -> Outcome:
        """Go on from an outcome until ``budget`` model gradients were evaluated in all, or the method has ended."""
        started = time.perf_counter()
        make = make_host_run if self.on_host else make_run
        run = make(self.method, self.key).lower(outcome.loop, self.dataset.first, jnp.int32(0)).compile()
        health = jax.jit(self.method.health)
        outcome.compile_seconds += time.perf_counter() - started
        self.seconds = outcome.history.seconds[-1] if outcome.history.seconds else 0.0
        call = 1
        try:
            for row in range(1, ROWS_OF_HISTORY + 1):
                until = max(1, round(budget * row / ROWS_OF_HISTORY))
                if until > self._gradients(outcome) and not ended(self.method, outcome.loop):
                    call = self._run_until(run, outcome, until, call)
                    self._add_row(outcome, health)
            outcome.status = self._status(outcome)
        except KeyboardInterrupt:
            message = f"stopped by hand after {self._gradients(outcome):,} model gradients"
            outcome.status = Status("interrupted", message)
        except Exception as error:
            of_data = isinstance(error, DataError)
            last = run.last if isinstance(run, HostRun) else outcome.loop if of_data else None
            if last is None:
                raise
            outcome.loop, outcome.error = last, error
            who = f"{'reading the data' if of_data else 'the model'} raised {type(error).__name__}"
            outcome.status = Status("interrupted", f"{who} after {self._gradients(outcome):,} model gradients")
        finally:
            self.dataset.release()
        return outcome

    def _status(self, outcome: Outcome) -> Status:
        if outcome.loop.state.failures >= TOLERATED_FAILURES:
            return _diverged(outcome)
        if self.method.converged(outcome.loop.state):
            return Status("converged", "the ELBO that is left to gain is predicted to be negligible")
        return Status("budget", f"all {self._gradients(outcome):,} model gradients of the budget were used")

    def _run_until(self, run: Callable[..., LoopState], outcome: Outcome, until: int, call: int) -> int:
        """Advance ``outcome.loop``, in calls of a bounded time; returns how many gradients fit in one."""
        while (done := self._gradients(outcome)) < until:
            if ended(self.method, outcome.loop):
                break
            started = time.perf_counter()
            dataset = self._resident(outcome)
            outcome.loop = jax.block_until_ready(run(outcome.loop, dataset, jnp.int32(min(until, done + call))))
            elapsed = time.perf_counter() - started
            self.seconds += elapsed
            evaluated = self._gradients(outcome) - done
            call = max(1, round(min(4 * call, evaluated * SECONDS_PER_CALL / max(elapsed, 1e-6))))
        return call

    def _resident(self, outcome: Outcome) -> Dataset:
        """The data, or as much of them as is in memory, with the mini-batch that is visited next."""
        return self.dataset.resident(outcome.loop.schedule, run_keys(self.key)[1])

    def _add_row(self, outcome: Outcome, health: jax.stages.Wrapped) -> None:
        loop = outcome.loop
        tally, effective = jax.device_get((loop.tally, health(loop.state).effective))
        gradients, steps = self._gradients(outcome), int(loop.state.steps)
        outcome.skipped += int(tally.skipped)
        if tally.records:
            standard_error = float(loop.tally.standard_error)
            outcome.history.append(
                gradients=gradients,
                steps=steps,
                seconds=self.seconds,
                elbo=float(tally.mean),
                elbo_standard_error=standard_error,
                effective=float(effective),
            )
            reused = 1 - gradients / loop.state.memory.newest.draws.shape[0] / max(steps, 1)
            rate = gradients / max(self.seconds, 1e-9)
            self.report.update(Row(gradients, float(tally.mean), standard_error, reused, float(effective), rate))
        outcome.loop = loop._replace(tally=Tally.empty())

    @staticmethod
    def _gradients(outcome: Outcome) -> int:
        return int(outcome.loop.state.gradients)


def _diverged(outcome: Outcome) -> Status:
    steps = int(outcome.loop.state.steps)
    return Status(
        "diverged",
        f"the model or the update was not finite {TOLERATED_FAILURES} times in a row, up to step {steps:,}; the last "
        "good parameters were kept. Try a smaller learning rate, another initial value or a smaller initial_scale, "
        "or look for an overflow in the log density.",
    )
