"""This library's default, and NumPyro's automatic Gaussians, which follow mini-batch gradients with Adam.

All start where ``isvi.fit`` starts and see the same mini-batches. A rival runs in one compiled loop, with the learning
rate an argument.
"""

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

import isvi
from benchmarks.measure import (
    CHECKPOINTS,
    Carry,
    Point,
    Run,
    Setting,
    Time,
    batch_order,
    checkpoint_counts,
    follow,
    good_enough,
    make_advance,
    sweep_counts,
)
from benchmarks.problem import BATCH_SIZE, Judged, Problem
from isvi.fitting.running.driver import ROWS_OF_HISTORY, Driver, Outcome

Gaussian = tuple[Array, Array]
"""Mean, and a factor of the covariance."""


# The default of this library, with nothing tuned.


class Recorder(Driver):
    """The driver of ``isvi.fit``, keeping parameters and times at many rows."""

    notes: "Notes"

    def _program(self, loop: Any) -> Any:
        """Where the same fit was recorded before, the program that was compiled then; Adam's, after it, is another."""
        first, self.notes.first = self.notes.first, False
        if first and self._compiled is None:
            self._compiled = self.notes.program
        program = super()._program(loop)
        if first:
            self.notes.program = program
        return program

    def drive(self, *arguments: Any) -> Outcome:
        started, others = Time.now(), self.notes.running.plus(self.notes.reporting)
        outcome = super().drive(*arguments)
        others = self.notes.running.plus(self.notes.reporting).plus(others.times(-1))
        self.notes.compilation = self.notes.compilation.plus(Time.since(started)).plus(others.times(-1))
        return outcome

    def _run_until(self, *arguments: Any) -> tuple[int, str | None]:
        started = Time.now()
        result = super()._run_until(*arguments)
        self.notes.running = self.notes.running.plus(Time.since(started))
        return result

    def _add_row(self, outcome: Outcome, health: jax.stages.Wrapped) -> None:
        started = Time.now()
        super()._add_row(outcome, health)
        params = jax.device_get(outcome.loop.state.params)
        self.notes.kept.append((outcome.gradients, self.notes.running, params))
        self.notes.reporting = self.notes.reporting.plus(Time.since(started))


@dataclass
class Notes:
    """What a recorder writes down: its first program, times, and (gradients, time, parameters) at its rows."""

    program: Any = None
    first: bool = True
    compilation: Time = Time()
    running: Time = Time()
    reporting: Time = Time()
    kept: list[tuple[int, Time, Any]] = field(default_factory=list)

    def at(self, gradients: int) -> Time:
        """The time after so many gradients, between rows in proportion."""
        known = [0, *(count for count, *_ in self.kept)]
        times = [Time(), *(time for _, time, _ in self.kept)]
        return Time(*(float(np.interp(gradients, known, clock)) for clock in zip(*times, strict=True)))


def run_default(problem: Problem, seed: int, rows: int = 500) -> Run:
    """``isvi.fit(model, data, seed=seed)`` to its end, twice: as it is, for the times, and in many calls of its
    compiled loop, to see where it was when. What is computed does not depend on that."""
    fit, as_it_is = _recorded(problem, seed, ROWS_OF_HISTORY, Notes())
    _, closely = _recorded(problem, seed, rows, Notes(as_it_is.program))
    q, points = fit.approximation, []
    for gradients, _, kept in _spaced(closely.kept):
        params = jax.tree.map(jnp.asarray, kept)
        points.append(Point(gradients, as_it_is.at(gradients), problem.judge(q.location(params), q.factor(params))))
    # What is done after the loop takes gradients too.
    judged = problem.judge(q.location(fit.params), q.factor(fit.params))
    points[-1] = points[-1]._replace(gradients=fit.gradients, judged=judged)
    return Run(points, as_it_is.compilation, "nothing tuned", fit.status.kind)


def _recorded(problem: Problem, seed: int, rows: int, notes: Notes) -> tuple[isvi.Fit, Notes]:
    def driver(*arguments: Any) -> Recorder:
        recorder = Recorder(*arguments)
        recorder.notes = notes
        return recorder

    run_module, driver_module = (importlib.import_module(f"isvi.fitting.{name}") for name in ("run", "running.driver"))
    with mock.patch.object(run_module, "Driver", driver), mock.patch.object(driver_module, "ROWS_OF_HISTORY", rows):
        fit = isvi.fit(problem.model, problem.data, seed=seed, progress=False, **_batches(problem))
    return fit, notes


def _batches(problem: Problem) -> dict[str, int]:
    """Nothing, unless the problem wants others than everyone's."""
    return {} if problem.batch_size == BATCH_SIZE else {"batch_size": problem.batch_size}


def _spaced(kept: list[tuple[int, Time, Any]]) -> list[tuple[int, Time, Any]]:
    """Some of the rows, the last one among them."""
    wanted = checkpoint_counts(kept[-1][0], 2 * CHECKPOINTS)
    chosen = {int(np.argmin([abs(gradients - count) for gradients, *_ in kept])) for count in wanted}
    return [kept[index] for index in sorted(chosen)]


@cache
def start_location(problem: Problem, seed: int) -> Array:
    """Where ``isvi.fit`` starts with this seed: what is left of a fit that does not move."""
    still: dict[str, Any] = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.0), "budget": 1, "progress": False}
    fit = isvi.fit(problem.model, problem.data, family=isvi.MeanField(), seed=seed, **still, **_batches(problem))
    return fit.params.loc


@dataclass(eq=False)
class NumPyro:
    """SVI with an automatic guide and Trace_ELBO.

    Attributes:
        guide: its name, one of those that take the latents as one vector.
    """

    problem: Problem
    guide: str

    def model(self, batch: isvi.Batch) -> None:
        """The same densities as everywhere, as NumPyro factors; its ``scale`` handler weights the mini-batch."""
        import numpyro
        from numpyro.distributions import ImproperUniform

        model = self.problem.model
        z = {
            name: numpyro.sample(name, ImproperUniform(latent.constraint, (), latent.shape))
            for name, latent in model.latents.items()
        }
        numpyro.factor("prior", model.log_prior(z))
        with numpyro.handlers.scale(scale=batch.scale):
            numpyro.factor("likelihood", batch.apply(lambda rows, _: model.log_likelihood(z, rows)))

    def init(self, location: Array, dataset: isvi.Dataset, scale: float) -> Any:
        """The state at the start; it does not depend on the learning rate."""
        from numpyro.infer import SVI, Trace_ELBO, autoguide
        from numpyro.infer.initialization import init_to_value

        values, _ = self.problem.approximation.coordinates.decode(location)
        start = init_to_value(values=values)
        guide = getattr(autoguide, self.guide)(self.model, init_loc_fn=start, init_scale=scale)
        self.svi = SVI(self.model, guide, _numpyro_optimizer(Setting(0.0).traced()), Trace_ELBO())
        return self.svi.init(jax.random.key(0), dataset.batch(0))

    def step(self, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> Any:
        svi = copy.copy(self.svi)
        svi.optim = _numpyro_optimizer(setting)
        return svi.update(state._replace(rng_key=key), batch)[0]

    def gaussian(self, state: Any) -> Gaussian:
        """From the parameters, as NumPyro's own distribution refuses those of a run that diverged."""
        guide, found = self.svi.guide, self.svi.get_params(state)
        mean, diagonal = found["auto_loc"], jnp.diag(found.get("auto_scale", jnp.zeros(0)))
        if self.guide == "AutoMultivariateNormal":
            factor = found["auto_scale_tril"]
        elif self.guide == "AutoLowRankMultivariateNormal":
            factor = diagonal @ jnp.hstack([found["auto_cov_factor"], jnp.eye(len(mean))])
        else:
            factor = diagonal
        # NumPyro has the latents in an order of its own.
        places = guide._unpack_latent(jnp.arange(self.problem.latents))
        order = jnp.concatenate([jnp.ravel(places[entry.name]) for entry in self._entries])
        return mean[order], factor[order]

    @property
    def _entries(self) -> Any:
        return self.problem.approximation.coordinates.entries


def _numpyro_optimizer(setting: Setting) -> Any:
    from numpyro.optim import optax_to_numpyro

    return optax_to_numpyro(setting.optimizer())


@dataclass(eq=False)
class Racer:
    """Runs a rival on a problem: many settings side by side, or one by itself."""

    problem: Problem
    rival: NumPyro

    @cached_property
    def _side_by_side(self) -> jax.stages.Wrapped:
        return make_advance(jax.vmap(self.rival.step, (0, None, 0, None)))

    def run(self, setting: Setting, seed: int, budget: int, checkpoints: int = CHECKPOINTS) -> Run:
        """One timed run."""
        problem, dataset = self.problem, self.problem.dataset(seed)
        order, key = batch_order(problem.num_batches, budget + 1, seed), jax.random.key(seed)
        state = self.rival.init(start_location(problem, seed), dataset, setting.scale)
        carry = Carry(state, jnp.int32(0))
        started = Time.now()
        lowered = make_advance(self.rival.step).lower(setting.traced(), carry, key, dataset, order, jnp.int32(0))
        advance, compilation = lowered.compile(), Time.since(started)

        def read(state: Any) -> list[Judged]:
            return [problem.judge(*self.rival.gaussian(state))]

        (points,) = follow(
            lambda carry, until: advance(setting.traced(), carry, key, dataset, order, until),
            carry,
            checkpoint_counts(budget, checkpoints),
            read,
            good_enough(problem),
        )
        return Run(points, compilation, str(setting), "budget")

    def sweep(self, settings: list[Setting], seed: int, budget: int) -> list[Run]:
        """All settings side by side in one program; untimed."""
        problem, dataset = self.problem, self.problem.dataset(seed)
        order, key = batch_order(problem.num_batches, budget + 1, seed), jax.random.key(seed)
        location = start_location(problem, seed)
        each = [self.rival.init(location, dataset, setting.scale) for setting in settings]
        states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        scaled = [setting.traced() for setting in settings]
        columns = Setting(*(jnp.stack(column) for column in zip(*scaled, strict=True)))

        def read(states: Any) -> list[Judged]:
            each = (jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(len(settings)))
            return [problem.judge(*self.rival.gaussian(state)) for state in each]

        rows = follow(
            lambda carry, until: self._side_by_side(columns, carry, key, dataset, order, until),
            Carry(states, jnp.int32(0)),
            sweep_counts(budget),
            read,
        )
        return [Run(points, Time(), str(setting)) for setting, points in zip(settings, rows, strict=True)]


STOCHASTIC: dict[str, Callable[[Problem], NumPyro]] = {
    "NumPyro full rank": partial(NumPyro, guide="AutoMultivariateNormal"),
    "NumPyro low rank": partial(NumPyro, guide="AutoLowRankMultivariateNormal"),
    "NumPyro mean field": partial(NumPyro, guide="AutoDiagonalNormal"),
}
