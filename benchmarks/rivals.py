"""This library's default, and everything it is compared with.

All start where ``isvi.fit`` starts and see the same mini-batches. Adam's rivals (NumPyro, BlackJAX, and this library's
SGD and I-SGD) run in one compiled loop each, with the learning rate an argument.
"""

import copy
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol
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
from benchmarks.problems import BATCH_SIZE, Problem
from isvi.fitting.running.driver import ROWS_OF_HISTORY, Driver, Outcome

Params = tuple[Array, Array]
"""Location and log scale."""


# The default of this library, with nothing tuned.


class Recorder(Driver):
    """The driver of ``isvi.fit``, keeping parameters and times at many rows."""

    notes: "Notes"

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
    """What a recorder writes down: times, and (gradients, time, parameters) at its rows."""

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
    """``isvi.fit(model, data, family=MeanField(), seed=seed)`` to its end, twice: as it is, for the times, and in many
    calls of its compiled loop, to see where it was when. What is computed does not depend on that."""
    fit, as_it_is = _recorded(problem, seed, ROWS_OF_HISTORY)
    _, closely = _recorded(problem, seed, rows)
    points = [Point(g, as_it_is.at(g), problem.evaluate(*_factorised(q))) for g, _, q in _spaced(closely.kept)]
    # What is done after the loop takes gradients too.
    points[-1] = points[-1]._replace(gradients=fit.gradients, elbo=problem.evaluate(*_factorised(fit.params)))
    return Run(points, as_it_is.compilation, "nothing tuned", fit.status.kind)


def _recorded(problem: Problem, seed: int, rows: int) -> tuple[isvi.Fit, Notes]:
    notes = Notes()

    def driver(*arguments: Any) -> Recorder:
        recorder = Recorder(*arguments)
        recorder.notes = notes
        return recorder

    run_module, driver_module = (importlib.import_module(f"isvi.fitting.{name}") for name in ("run", "running.driver"))
    with mock.patch.object(run_module, "Driver", driver), mock.patch.object(driver_module, "ROWS_OF_HISTORY", rows):
        options: dict[str, Any] = {"family": isvi.MeanField(), "seed": seed, "progress": False}
        fit = isvi.fit(problem.model, problem.data, **options, **_batches(problem))
    return fit, notes


def _factorised(params: Any) -> tuple[np.ndarray, np.ndarray]:
    """Location and log scale of the closest independent Gaussians: on the way, ``Auto`` draws from a full-rank one."""
    if not hasattr(params, "cholesky"):
        return params.loc, params.log_scale
    inverse = np.linalg.inv(np.asarray(params.cholesky[0], np.float64))
    return np.asarray(params.loc), -0.5 * np.log(np.sum(inverse**2, axis=0))


def _batches(problem: Problem) -> dict[str, int]:
    """Nothing, unless the problem is a toy."""
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
    return isvi.fit(problem.model, problem.data, seed=seed, **still, **_batches(problem)).params.loc


# Rivals that follow mini-batch gradients with Adam.


class Stochastic(Protocol):
    """A rival made of steps."""

    steps_per_gradient: int

    def init(self, location: Array, dataset: isvi.Dataset, scale: float) -> Any:
        """The state at the start; it does not depend on the learning rate."""
        ...

    def step(self, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> tuple[Any, Array]:
        """The next state and the number of model gradients used."""
        ...

    def sweep_step(self, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> Any:
        """The state after exactly one more model gradient: for many settings side by side."""
        ...

    def params(self, state: Any) -> Params: ...


class FreshSteps:
    """For rivals every step of which is a fresh gradient."""

    def sweep_step(self: Any, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> Any:
        return self.step(setting, key, state, batch)[0]


@dataclass(eq=False)
class NumPyro(FreshSteps):
    """SVI with AutoNormal and Trace_ELBO."""

    problem: Problem
    steps_per_gradient: int = 1

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
        from numpyro.infer import SVI, Trace_ELBO
        from numpyro.infer.autoguide import AutoNormal
        from numpyro.infer.initialization import init_to_value

        values, _ = self.problem.approximation.coordinates.decode(location)
        guide = AutoNormal(self.model, init_loc_fn=init_to_value(values=values), init_scale=scale)
        self.svi = SVI(self.model, guide, _numpyro_optimizer(Setting(0.0).traced()), Trace_ELBO())
        return self.svi.init(jax.random.key(0), dataset.batch(0))

    def step(self, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> tuple[Any, Array]:
        svi = copy.copy(self.svi)
        svi.optim = _numpyro_optimizer(setting)
        return svi.update(state._replace(rng_key=key), batch)[0], jnp.int32(1)

    def params(self, state: Any) -> Params:
        found = self.svi.get_params(state)
        names = [entry.name for entry in self.problem.approximation.coordinates.entries]
        loc, scale = (
            jnp.concatenate([jnp.ravel(found[f"{name}_auto_{part}"]) for name in names]) for part in ("loc", "scale")
        )
        return loc, jnp.log(scale)


def _numpyro_optimizer(setting: Setting) -> Any:
    from numpyro.optim import optax_to_numpyro

    return optax_to_numpyro(setting.optimizer())


@dataclass(eq=False)
class BlackJAX(FreshSteps):
    """``meanfield_vi``, its target a closure over the mini-batch; one draw per step."""

    problem: Problem
    steps_per_gradient: int = 1

    def init(self, location: Array, dataset: isvi.Dataset, scale: float) -> Any:
        from blackjax.vi import meanfield_vi

        state = meanfield_vi.init(location, Setting(0.0).traced().optimizer())
        return state._replace(mu=location, rho=jnp.full_like(location, math.log(scale)))

    def step(self, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> tuple[Any, Array]:
        from blackjax.vi import meanfield_vi

        def log_density(z: Array) -> Array:
            return batch.apply(lambda rows, _: self.problem.target.log_joint(z, rows, batch.scale))

        state, _ = meanfield_vi.step(key, state, log_density, setting.optimizer(), num_samples=1)
        return state, jnp.int32(1)

    def params(self, state: Any) -> Params:
        return state.mu, state.rho


@dataclass(eq=False)
class Isvi:
    """SGD or I-SGD of this library. The rate falls with the gradients used, not with the steps, whose number varies."""

    problem: Problem
    algorithm: Any
    steps_per_gradient: int = 1

    def _method(self, setting: Setting, dataset: isvi.Dataset) -> isvi.Method:
        estimator = isvi.Reparameterization().bind(self.problem.target, self.problem.approximation)
        return isvi.build(estimator, self.algorithm, setting.optimizer(), dataset)

    def init(self, location: Array, dataset: isvi.Dataset, scale: float) -> Any:
        params = self.problem.approximation.init(location, jnp.full_like(location, scale))
        return self._method(Setting(0.0).traced(), dataset).init(params)

    def step(self, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> tuple[Any, Array]:
        moved, _ = self._method(setting.at(state.gradients), batch.dataset).step(key, state, batch)
        return moved, moved.gradients - state.gradients

    def sweep_step(self, setting: Setting, key: Array, state: Any, batch: isvi.Batch) -> Any:
        """A record and as many steps with it as there are on average."""
        method = self._method(setting.at(state.gradients), batch.dataset)
        record, finite = method.record(jax.random.fold_in(key, 1), state.params, state.memory.newest, batch)

        def move(index: Array, state: Any) -> Any:
            return method.advance(state, record, index == 0, finite | (index > 0))[0]

        return jax.lax.fori_loop(0, self.steps_per_gradient, move, state)

    def params(self, state: Any) -> Params:
        return tuple(state.params)


@dataclass(eq=False)
class Racer:
    """Runs a stochastic rival on a problem; compiled once for all seeds and settings."""

    problem: Problem
    rival: Stochastic
    compilation: Time = Time()

    @property
    def steps_per_gradient(self) -> int:
        return self.rival.steps_per_gradient

    def schedules(self, budget: int) -> list[tuple[float, float]]:
        """Horizons and standard deviations at the start that are worth trying."""
        return [(math.inf, 0.1), (float(budget), 0.1), (float(budget), 0.001)]

    @cached_property
    def _side_by_side(self) -> jax.stages.Wrapped:
        def step(settings: Setting, key: Array, states: Any, batch: isvi.Batch) -> tuple[Any, Array]:
            return jax.vmap(self.rival.sweep_step, (0, None, 0, None))(settings, key, states, batch), jnp.int32(1)

        return make_advance(step)

    @cached_property
    def _compiled(self) -> dict[str, Any]:
        return {}

    def _advance(self, arguments: tuple) -> Callable:
        """The compiled loop; the first call compiles it, and remembers how long that took."""
        if not self._compiled:
            started = Time.now()
            self._compiled["advance"] = make_advance(self.rival.step).lower(*arguments, jnp.int32(0)).compile()
            self.compilation = Time.since(started)
        return self._compiled["advance"]

    def run(self, setting: Setting, seed: int, budget: int, checkpoints: int = CHECKPOINTS) -> Run:
        """One timed run."""
        problem, dataset = self.problem, self.problem.dataset(seed)
        order, key = batch_order(problem.num_batches, budget + 1, seed), jax.random.key(seed)
        state = self.rival.init(start_location(problem, seed), dataset, setting.scale)
        carry = Carry(state, jnp.int32(0), jnp.int32(0))
        order = jnp.resize(order, (max(budget + 1, 100_001),))  # one shape for all budgets
        advance = self._advance((setting.traced(), carry, key, dataset, order))

        def read(state: Any) -> list[float]:
            return [problem.evaluate(*self.rival.params(state))]

        (points,) = follow(
            lambda carry, until: advance(setting.traced(), carry, key, dataset, order, until),
            carry,
            checkpoint_counts(budget, checkpoints),
            read,
            good_enough(problem),
        )
        return Run(points, self.compilation, str(setting), "budget")

    def sweep(self, settings: list[Setting], seed: int, budget: int) -> list[Run]:
        """All settings side by side in one program; untimed."""
        problem, dataset = self.problem, self.problem.dataset(seed)
        order, key = batch_order(problem.num_batches, budget + 1, seed), jax.random.key(seed)
        location = start_location(problem, seed)
        each = [self.rival.init(location, dataset, setting.scale) for setting in settings]
        states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        scaled = [setting.traced() for setting in settings]
        columns = Setting(*(jnp.stack(column) for column in zip(*scaled, strict=True)))

        def read(states: Any) -> list[float]:
            each = (jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(len(settings)))
            return [problem.evaluate(*self.rival.params(state)) for state in each]

        rows = follow(
            lambda carry, until: self._side_by_side(columns, carry, key, dataset, order, until),
            Carry(states, jnp.int32(0), jnp.int32(0)),
            sweep_counts(budget),
            read,
        )
        return [Run(points, Time(), str(setting)) for setting, points in zip(settings, rows, strict=True)]


STOCHASTIC: dict[str, Callable[[Problem], Stochastic]] = {
    "NumPyro SVI": NumPyro,
    "BlackJAX meanfield_vi": BlackJAX,
    "isvi SGD": lambda problem: Isvi(problem, isvi.SGD()),
    "isvi I-SGD": lambda problem: Isvi(problem, isvi.ISGD(t=0.9), steps_per_gradient=10),
}
