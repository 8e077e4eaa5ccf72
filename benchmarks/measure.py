"""What a run leaves behind, and driving compiled steps from checkpoint to checkpoint."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from benchmarks.problem import Judged, Problem

CHECKPOINTS = 45
FIRST_CHECKPOINT = 100
CLOSE_ENOUGH = 0.004
"""Nats per latent: a run is not followed any further."""


class Time(NamedTuple):
    """Seconds by the clock, and of all cores together: the latter hardly depend on what else a machine does."""

    wall: float = 0.0
    cpu: float = 0.0

    @classmethod
    def now(cls) -> "Time":
        return cls(time.perf_counter(), time.process_time())

    @classmethod
    def since(cls, start: "Time") -> "Time":
        return cls(time.perf_counter() - start.wall, time.process_time() - start.cpu)

    def plus(self, other: "Time") -> "Time":
        return Time(self.wall + other.wall, self.cpu + other.cpu)

    def times(self, factor: float) -> "Time":
        return Time(self.wall * factor, self.cpu * factor)


class Point(NamedTuple):
    """Where a run was after so many model gradients. Times exclude compilation and judging."""

    gradients: int
    time: Time
    judged: Judged


@dataclass
class Run:
    """One run: its checkpoints, and how it ended."""

    points: list[Point]
    compilation: Time
    setting: str = ""
    status: str = ""

    def best_gap(self, problem: Problem) -> float:
        """The smallest gap on the way, in nats per latent."""
        elbos = (point.judged.elbo for point in self.points)
        highest = max((elbo for elbo in elbos if math.isfinite(elbo)), default=-math.inf)
        return (problem.optimum[1] - highest) / problem.latents


class Setting(NamedTuple):
    """Adam's learning rate, constant or falling to zero along a cosine after ``horizon`` steps; and the standard
    deviations at the start."""

    rate: Any
    horizon: Any = math.inf
    scale: Any = 0.1

    def optimizer(self) -> optax.GradientTransformation:
        return optax.adam(lambda count: self.at(count).rate)

    def at(self, count: Array) -> "Setting":
        """The constant setting of this moment."""
        phase = jnp.where(jnp.isinf(self.horizon), 0.0, jnp.minimum(count / self.horizon, 1.0))
        return self._replace(rate=self.rate * 0.5 * (1 + jnp.cos(jnp.pi * phase)), horizon=jnp.inf)

    def traced(self) -> "Setting":
        """With arrays in it, so that one compiled program serves all settings."""
        return Setting(*(jnp.asarray(part, jnp.float32) for part in self))

    def __str__(self) -> str:
        schedule = "constant" if math.isinf(self.horizon) else f"cosine to {self.horizon:,.0f}"
        return f"rate {self.rate:g}, {schedule}, first sd {self.scale:g}"


class Carry(NamedTuple):
    """The state of a rival and how many gradients it has used so far."""

    state: Any
    gradients: Array


Step = Callable[[Setting, Array, Any, Any], Any]
"""``step(setting, key, state, batch) -> state``, with one model gradient."""


def make_advance(step: Step) -> jax.stages.Wrapped:
    """``advance(setting, carry, key, dataset, order, until)``: steps until so many gradients were used."""

    @jax.jit
    def advance(setting: Setting, carry: Carry, key: Array, dataset: Any, order: Array, until: Array) -> Carry:
        def one_step(carry: Carry) -> Carry:
            batch = dataset.batch(order[carry.gradients % order.shape[0]])
            state = step(setting, jax.random.fold_in(key, carry.gradients), carry.state, batch)
            return Carry(state, carry.gradients + 1)

        return jax.lax.while_loop(lambda carry: carry.gradients < until, one_step, carry)

    return advance


def follow(
    advance: Callable[[Carry, Array], Carry],
    carry: Carry,
    counts: Sequence[int],
    read: Callable[[Any], Sequence[Judged]],
    stop: float = math.inf,
) -> list[list[Point]]:
    """Run to so many gradients and judge one state, or several side by side, at each of these checkpoints; until all
    ELBOs exceed ``stop``."""
    spent = Time()
    rows = [[Point(0, spent, judged)] for judged in read(carry.state)]
    for until in counts:
        started = Time.now()
        carry = jax.block_until_ready(advance(carry, jnp.int32(until)))
        spent = spent.plus(Time.since(started))
        for row, judged in zip(rows, read(carry.state), strict=True):
            row.append(Point(int(carry.gradients), spent, judged))
        if min(row[-1].judged.elbo for row in rows) >= stop:
            break
    return rows


def checkpoint_counts(budget: int, checkpoints: int) -> list[int]:
    """Equidistant in the logarithm."""
    first = min(FIRST_CHECKPOINT, budget)
    return sorted({round(count) for count in np.geomspace(first, budget, checkpoints)})


def sweep_counts(budget: int) -> list[int]:
    """Where settings are compared: half way, at three quarters, and at the end."""
    return [-(-budget // 2), -(-budget * 3 // 4), budget]


def batch_order(num_batches: int, length: int, seed: int) -> Array:
    """Every pass visits the mini-batches in a new random order."""
    rng = np.random.default_rng([seed, 1])
    passes = [rng.permutation(num_batches) for _ in range(-(-length // num_batches))]
    return jnp.asarray(np.concatenate(passes)[:length], jnp.int32)


def good_enough(problem: Problem) -> float:
    """The ELBO at which a run is stopped."""
    return problem.optimum[1] - CLOSE_ENOUGH * problem.latents
