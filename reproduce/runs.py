"""Running methods: one compiled program per method, ELBOs at checkpoints, and grids of settings."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

import isvi
from reproduce.problems import Problem

DECAY = 0.9
CHECKPOINTS = 60


class Setting(NamedTuple):
    """Adam's learning rate, which falls by a factor of 0.9 every so many steps (never, if infinite)."""

    rate: Any
    every: Any = math.inf

    def optimizer(self) -> optax.GradientTransformation:
        return optax.adam(lambda count: self.rate * DECAY ** jnp.floor(count / self.every))

    def __str__(self) -> str:
        return f"{self.rate:g}" + ("" if math.isinf(self.every) else f", x0.9 per {self.every:,.0f}")


def grid(rates: Sequence[float], decays: Sequence[float]) -> list[Setting]:
    return [Setting(rate, every) for rate in rates for every in decays]


class Prices(NamedTuple):
    """CPU seconds of a step that makes a record, and of one that reuses it."""

    fresh: float
    reuse: float


class Curve(NamedTuple):
    """A run, at its checkpoints. Seconds exclude compilation and evaluation."""

    gradients: np.ndarray
    steps: np.ndarray
    cpu_seconds: np.ndarray
    elbo: np.ndarray

    def until(self, elbo: float) -> dict[str, float]:
        """What it took to reach an ELBO: NaN if it was not reached."""
        reached = np.flatnonzero(self.elbo >= elbo)
        costs = ("gradients", "steps", "cpu_seconds")
        return {cost: float(getattr(self, cost)[reached[0]]) if len(reached) else math.nan for cost in costs}

    def priced(self, prices: Prices, per_record: int) -> "Curve":
        """With the time that its steps cost."""
        records = self.gradients / per_record
        return self._replace(cpu_seconds=records * prices.fresh + (self.steps - records) * prices.reuse)


@dataclass(frozen=True, eq=False)
class Runner:
    """A method on a problem. Settings and seeds are arguments of the compiled programs, not parts of them."""

    problem: Problem
    estimator: Any
    algorithm: Any

    def method(self, setting: Setting, dataset: isvi.Dataset) -> isvi.Method:
        bound = self.estimator.bind(self.problem.target, self.problem.approximation)
        return isvi.build(bound, self.algorithm, setting.optimizer(), dataset)

    @partial(jax.jit, static_argnums=0)
    def init(self, setting: Setting, params: Any, dataset: isvi.Dataset) -> isvi.State:
        return self.method(setting, dataset).init(params)

    def step(self, setting: Setting, key: Array, state: isvi.State, dataset: isvi.Dataset, order: Array) -> Any:
        """One step; the mini-batch in turn is used if the step wants one."""
        record_number = state.gradients // self.estimator.num_samples
        batch = dataset.batch(order[record_number])
        return self.method(setting, dataset).step(jax.random.fold_in(key, state.steps), state, batch)

    @partial(jax.jit, static_argnums=0)
    def advance(
        self, setting: Setting, key: Array, state: isvi.State, dataset: isvi.Dataset, order: Array, until: Array
    ) -> isvi.State:
        """Steps until so many model gradients were evaluated."""
        return jax.lax.while_loop(
            lambda state: state.gradients < until,
            lambda state: self.step(setting, key, state, dataset, order)[0],
            state,
        )

    def run(
        self, setting: Setting, seed: int, budget: int, stop: float = math.inf, checkpoints: int = CHECKPOINTS
    ) -> Curve:
        """A timed run: ``budget`` model gradients, or fewer if the ELBO ``stop`` is reached before."""
        problem, per_record = self.problem, self.estimator.num_samples
        dataset, key = problem.dataset, jax.random.key(seed)
        order = batch_order(dataset.num_batches, budget // per_record + 1, seed)
        setting = Setting(jnp.float32(setting.rate), jnp.float32(setting.every))
        state = self.init(setting, problem.start(seed), dataset)
        jax.block_until_ready(self.advance(setting, key, state, dataset, order, jnp.int32(0)))
        rows = [(0, 0, 0.0, problem.evaluate(state.params))]
        for records in checkpoint_counts(budget // per_record, checkpoints):
            began = time.process_time()
            until = jnp.int32(records * per_record)
            state = jax.block_until_ready(self.advance(setting, key, state, dataset, order, until))
            seconds = rows[-1][2] + time.process_time() - began
            elbo = problem.evaluate(state.params)
            rows.append((int(state.gradients), int(state.steps), seconds, elbo))
            if elbo >= stop:
                break
        return Curve(*(np.asarray(column) for column in zip(*rows, strict=True)))

    def pieces(self, setting: Setting, budget: int, pieces: int) -> Curve:
        """A timed run in equal pieces, for the price of a step; ELBOs are not evaluated."""
        per_record, dataset, key = self.estimator.num_samples, self.problem.dataset, jax.random.key(0)
        order = batch_order(dataset.num_batches, budget // per_record + 1, 0)
        setting = Setting(jnp.float32(setting.rate), jnp.float32(setting.every))
        state = self.init(setting, self.problem.start(0), dataset)
        state = self.advance(setting, key, state, dataset, order, jnp.int32(0))
        rows = [(0, 0, 0.0, math.nan)]
        for piece in range(1, pieces + 1):
            began = time.process_time()
            until = jnp.int32(budget * piece // pieces)
            state = jax.block_until_ready(self.advance(setting, key, state, dataset, order, until))
            seconds = rows[-1][2] + time.process_time() - began
            rows.append((int(state.gradients), int(state.steps), seconds, math.nan))
        return Curve(*(np.asarray(column) for column in zip(*rows, strict=True)))

    @partial(jax.jit, static_argnums=0)
    def _advance_all(
        self,
        settings: Setting,
        key: Array,
        states: isvi.State,
        dataset: isvi.Dataset,
        order: Array,
        counts: Array,
        span: tuple[Array, Array],
    ) -> isvi.State:
        """The records of a span for all settings at once, each followed by its number of steps."""

        def one_record(number: Array, states: isvi.State) -> isvi.State:
            batch, record_key = dataset.batch(order[number]), jax.random.fold_in(key, number)

            def make(setting: Setting, state: isvi.State) -> Any:
                return self.method(setting, dataset).record(record_key, state.params, state.memory.newest, batch)

            def move(setting: Setting, state: isvi.State, record: Any, fresh: Array, finite: Array) -> isvi.State:
                return self.method(setting, dataset).advance(state, record, fresh, finite)[0]

            records, finite = jax.vmap(make)(settings, states)

            def one_step(reuse: Array, states: isvi.State) -> isvi.State:
                step = jax.vmap(move, (0, 0, 0, None, 0))
                return step(settings, states, records, reuse == 0, finite | (reuse > 0))

            return jax.lax.fori_loop(0, counts[number], one_step, states)

        return jax.lax.fori_loop(*span, one_record, states)

    def sweep(
        self,
        settings: Sequence[Setting],
        seed: int,
        budget: int,
        steps_per_record: np.ndarray,
        checkpoints: int = CHECKPOINTS,
    ) -> list[Curve]:
        """Many settings side by side on the same mini-batches, draws and numbers of steps per record.

        One program evaluates the model for all of them, so it is fast, and it is not timed. The numbers of steps are
        drawn beforehand, from the same distribution as I-SGD's own.
        """
        problem, per_record = self.problem, self.estimator.num_samples
        dataset, key, total = problem.dataset, jax.random.key(seed), budget // per_record
        order = batch_order(dataset.num_batches, total + 1, seed)
        columns = Setting(*(jnp.asarray(column, jnp.float32) for column in zip(*settings, strict=True)))
        start = problem.start(seed)
        states = jax.vmap(lambda setting: self.init(setting, start, dataset))(columns)
        first_elbo, done = problem.evaluate(start), 0
        rows = [[(0, 0, math.nan, first_elbo)] for _ in settings]
        counts = jnp.asarray(steps_per_record[:total], jnp.int32)
        for records in checkpoint_counts(total, checkpoints):
            span = (jnp.int32(done), jnp.int32(records))
            states = self._advance_all(columns, key, states, dataset, order, counts, span)
            done, steps = records, int(steps_per_record[:records].sum())
            all_params = jax.device_get(states.params)
            for index, row in enumerate(rows):
                elbo = problem.evaluate(jax.tree.map(lambda leaf, index=index: leaf[index], all_params))
                row.append((records * per_record, steps, math.nan, elbo))
        return [Curve(*(np.asarray(column) for column in zip(*row, strict=True))) for row in rows]


def step_prices(problem: Problem, estimator: Any, t: float = 0.9, records: int = 200) -> Prices:
    """CPU time of both kinds of step in compiled loops: the least of five pieces of a run, for other work on the
    machine can only add to it."""

    def seconds(algorithm: Any) -> tuple[np.ndarray, np.ndarray]:
        curve = Runner(problem, estimator, algorithm).pieces(Setting(1e-3), records * estimator.num_samples, pieces=5)
        return np.diff(curve.cpu_seconds), np.diff(curve.steps)

    spent, steps = seconds(isvi.SGD())
    fresh = float(np.min(spent / steps))
    spent, steps = seconds(isvi.ISGD(t))
    made = records / 5
    return Prices(fresh, max(1e-7, float(np.min((spent - made * fresh) / (steps - made)))))


def batch_order(num_batches: int, length: int, seed: int) -> Array:
    """Which mini-batch each record is of: a new permutation per pass."""
    rng = np.random.default_rng(seed)
    passes = [rng.permutation(num_batches) for _ in range(-(-length // num_batches))]
    return jnp.asarray(np.concatenate(passes)[:length], jnp.int32)


def checkpoint_counts(total: int, checkpoints: int) -> list[int]:
    """Numbers of records, close to equidistant in the logarithm."""
    return sorted({max(1, round(count)) for count in np.geomspace(1, total, checkpoints)})


def steps_per_record(t: float, records: int, seed: int) -> np.ndarray:
    """I-SGD reuses with probability t: a geometric number of steps for every record."""
    return np.random.default_rng([seed, 7]).geometric(1 - t, size=records)


def best_of(settings: Sequence[Setting], curves: Sequence[Curve], elbo: float) -> Setting:
    """The setting that reaches an ELBO with the fewest model gradients; if none does, that which ends highest."""
    needed = [curve.until(elbo)["gradients"] for curve in curves]
    if not all(math.isnan(count) for count in needed):
        return settings[int(np.nanargmin(needed))]
    return settings[int(np.nanargmax([curve.elbo[-1] for curve in curves]))]


class Spread(NamedTuple):
    """Median and range over seeds; seeds that did not get there count as infinite."""

    median: float
    low: float
    high: float
    reached: int
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        filled = np.where(np.isnan(values), np.inf, np.asarray(values, float))
        median = float(np.sort(filled)[len(filled) // 2])
        return cls(median, float(filled.min()), float(filled.max()), int(np.isfinite(filled).sum()), len(filled))

    def text(self, digits: int = 3) -> str:
        if self.reached == 0:
            return f"not reached (0/{self.seeds})"
        short = [f"{value:,.0f}" if value >= 100 else f"{value:.{digits}g}" for value in self[:3]]
        span = f" ({short[1]} - {short[2]})" if self.seeds > 1 else ""
        count = "" if self.reached == self.seeds else f", reached by {self.reached}/{self.seeds}"
        return (short[0] + span + count).replace("inf", "not reached")
