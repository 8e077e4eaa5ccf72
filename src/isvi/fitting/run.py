"""A run: from a setup, through its phases, to an outcome."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

from isvi.algorithms import Method
from isvi.checkpoints.checkpoints import Checkpoints
from isvi.families.base import Params
from isvi.fitting.afterwards.bend import bend
from isvi.fitting.afterwards.few_rows import look_at_few_rows, looks
from isvi.fitting.afterwards.integrals import begin_again, first_look, more_nodes, no_worse
from isvi.fitting.outcome import Outcome
from isvi.fitting.room import check_room
from isvi.fitting.running.callbacks import Reporters
from isvi.fitting.running.driver import PROMISES, Driver
from isvi.fitting.running.interruption import Interruption
from isvi.fitting.running.loop import LoopState, make_start
from isvi.fitting.running.making import Making
from isvi.fitting.running.threads import one_blas_thread
from isvi.fitting.setup import Setup
from isvi.memory.store import num_bytes

log = logging.getLogger("isvi")

UNCORRELATED = (
    "above 1,000 entries of latents, the correlations inside of blocks are not learned: sds are too small where "
    "latents are correlated. family=isvi.LowRank(rank) has those along the flattest directions"
)
HANDED_OVER = (
    "the posterior is too far from quadratic for Auto, which handed over to {method} after {gradients:,} model "
    "gradients: look at fit.diagnose()"
)


def begin(setup: Setup, start: Params) -> Outcome:
    """The outcome before the first step."""
    method = setup.method()
    if setup.many and not setup.approximation.low_rank and setup.approximation.num_factors < setup.approximation.dim:
        log.warning(UNCORRELATED)
    check_room(jax.eval_shape(method.init, start), setup.approximation.dim)
    loop = make_start(method, setup.dataset, setup.run_key)(start)
    log.info(
        "%s latents' entries, %s rows in %s mini-batches; the memory of records takes %s bytes",
        *(
            f"{number:,}"
            for number in (
                setup.approximation.dim,
                setup.dataset.size,
                setup.dataset.num_batches,
                num_bytes(loop.state.memory),
            )
        ),
    )
    return Outcome(loop, start)


def run(
    setup: Setup, outcome: Outcome, report: Reporters, making: Making, checkpoints: Checkpoints | None = None
) -> Outcome:
    """Go on from an outcome until the run has ended, in whatever phase it is."""
    # The small factorisations of a step are LAPACK's, whose threads wait for each other by spinning: on cores that are
    # shared they take several times as long as one thread does. A model on the host may want its threads.
    threads = nullcontext() if setup.target.on_host else one_blas_thread()
    with Interruption(sigterm=checkpoints is not None) as interruption, threads, report:

        def between_calls(outcome: Outcome) -> str | None:
            if checkpoints is not None and checkpoints.due:
                checkpoints.save(outcome.state, outcome.notes())
            return interruption.reason or report.stop_reason

        running = Running(report, making, interruption, between_calls)
        nodes = outcome.nodes
        outcome, again = running.through(setup.with_nodes(nodes), outcome)
        while again:
            before, nodes = replace(outcome, nodes=nodes), outcome.nodes
            finer = setup.with_nodes(nodes)
            outcome, again = running.through(finer, begin_again(finer, outcome))
            outcome = no_worse(before, outcome)
        if checkpoints is not None:
            checkpoints.save(outcome.state, outcome.notes(), wait=True)
        if setup.bends and outcome.settled:
            outcome.bent = bend(setup.with_nodes(outcome.nodes), outcome, lambda: between_calls(outcome))
            outcome.status = outcome.bent.status(outcome.status, PROMISES["converged"])
            outcome.error = outcome.bent.error
    outcome.signal = interruption.number
    return outcome


@dataclass(frozen=True)
class Running:
    """Who is told, who helps and who may end it while a run goes on; and what is done between two calls of the compiled
    loop, which gives a reason to end, if there is one."""

    report: Reporters
    making: Making
    interruption: Interruption
    between_calls: Callable[[Outcome], str | None]

    def through(self, setup: Setup, outcome: Outcome) -> tuple[Outcome, bool]:
        """The phases of a run: the method that was chosen, and, where that gives up, Adam. Also tells whether to begin
        again with more nodes."""
        with self.making.open(setup, outcome.nodes) as elsewhere_of:

            def driver(method: Method) -> Driver:
                return Driver(
                    method,
                    setup.dataset,
                    setup.run_key,
                    self.report,
                    setup.effort,
                    setup.target.on_host,
                    setup.approximation.coordinates.labels,
                    self.between_calls,
                    elsewhere_of(outcome.fell_back_at is not None),
                )

            if outcome.fell_back_at is None:
                method = setup.method()
                first = driver(method)
                for budget in _stops(setup, outcome):
                    starts = setup.starts(outcome.start) if outcome.new else None
                    outcome = first.drive(outcome, budget, starts)
                    if more_nodes(setup, outcome):
                        return outcome, True
                    if look_at_few_rows(setup, method, outcome, partial(self.between_calls, outcome)):
                        break
                    if outcome.status.kind != "budget" or outcome.gave_up:
                        break
                if outcome.gave_up:
                    outcome = _fall_back(setup, outcome)
            if outcome.fell_back_at is not None and outcome.error is None and self.interruption.reason is None:
                spent = outcome.fell_back_at
                fallback = setup.fallback(spent, bool(outcome.starts))
                outcome = driver(fallback).drive(outcome, setup.budget_of_method)
                outcome.status = outcome.status.adding(_handed_over(setup, spent))
        return outcome, False


def _stops(setup: Setup, outcome: Outcome) -> list[int]:
    """After how many gradients to look at what keeps a run from coming to rest: those that are not behind it yet, so
    that a run that is resumed looks where it would have looked."""
    behind = outcome.gradients - setup.estimator.num_samples
    ahead = {stop for stop in [first_look(setup), *looks(setup)] if stop > behind}
    return sorted({*ahead, setup.budget_of_method})


def template(setup: Setup, start: Params, notes: dict[str, Any]) -> tuple[LoopState, Params]:
    """What the state in a checkpoint of this run looks like, given its notes."""
    fell_back_at = notes["fell_back_at"]
    method = setup.method() if fell_back_at is None else setup.fallback(fell_back_at, bool(notes["starts"]))
    return make_start(method, setup.dataset, setup.run_key)(start), start


def _handed_over(setup: Setup, gradients: int) -> str:
    return HANDED_OVER.format(method="natural-gradient steps" if setup.many else "Adam", gradients=gradients)


def _fall_back(setup: Setup, outcome: Outcome) -> Outcome:
    """Start over with another method, with what is left of the budget: from where the best of several starts led to;
    where there was one only, from there again, as on mixtures and networks any place that ``Auto`` came to is often
    worse than none. What ``Auto`` had reached is kept, as the start, in case that the other method ends in a worse
    place."""
    spent = outcome.loop.state
    log.info(_handed_over(setup, int(spent.gradients)))
    method = setup.fallback(int(spent.gradients), bool(outcome.starts))
    loop = make_start(method, setup.dataset, setup.run_key)(
        setup.start_over(spent.params if outcome.starts else outcome.start)
    )
    state = loop.state._replace(gradients=spent.gradients, steps=spent.steps)
    outcome.loop = loop._replace(state=state, schedule=outcome.loop.schedule)
    outcome.fell_back_at, outcome.start = int(spent.gradients), spent.params
    return outcome
