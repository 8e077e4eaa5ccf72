"""What a reuse step costs, next to a fresh one.

Bayesian linear regression with 50,000 rows, 500 coefficients and a noise scale, in mini-batches of 1,000.
Steps run inside one compiled loop. Three loops are timed:

    fresh    plain SGD: every step evaluates the model's gradient
    reuse    every step reuses the one record that was made before the clock started
    nine     one fresh step, then nine reuse steps, and again: ISGD(policy=FixedSteps(10))

and then the whole of ``isvi.fit``, with its schedule, history and checks, for SGD and for the third.
Run it with ``make benchmark``, on a machine that does nothing else.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.stats import norm

import isvi

BAR_RATIO = 30
BAR_NINE = 0.15
# A tiny rate: parameters that hardly move keep every weight near 1, so that no safety rule asks for a record.
OPTIMIZER = optax.adam(1e-7)
NINE = isvi.ISGD(policy=isvi.FixedSteps(10))


@dataclass(frozen=True)
class Never:
    """A policy that never asks for a record, and does not let the compiler know."""

    def wants_record(self, key, reuses, health):
        return reuses < 0


def linear_regression(rows: int, columns: int) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    y = (x @ rng.normal(size=columns) + rng.normal(size=rows)).astype(np.float32)
    model = isvi.Model(
        latents={"w": isvi.real(columns), "noise": isvi.positive()},
        log_prior=lambda z: jnp.sum(norm.logpdf(z["w"])) + norm.logpdf(z["noise"]),
        log_likelihood=lambda z, batch: jnp.sum(norm.logpdf(batch["y"], batch["x"] @ z["w"], z["noise"])),
    )
    return model, {"x": x, "y": y}


def make_timer(model: isvi.Model, dataset: isvi.Dataset, algorithm, steps: int) -> Callable[[], tuple[float, int]]:
    """A function that takes ``steps`` steps in one compiled call; returns seconds, and records made."""
    approximation = isvi.approximate(isvi.MeanField(), model.latents)
    estimator = isvi.Reparameterization().bind(isvi.Target(model, approximation.coordinates), approximation)
    method = isvi.build(estimator, algorithm, OPTIMIZER, dataset)
    key = jax.random.key(0)
    params = approximation.init(jnp.zeros(approximation.dim), jnp.full(approximation.dim, 0.1))
    state = method.init(params)
    made = jax.jit(estimator.record)(key, params, dataset.batch(0))
    state = state._replace(memory=state.memory._replace(newest=made))

    @jax.jit
    def run(state: isvi.State, dataset: isvi.Dataset) -> isvi.State:
        def one_step(i: jax.Array, state: isvi.State) -> isvi.State:
            batch = dataset.batch(state.gradients % dataset.num_batches)
            return method.step(jax.random.fold_in(key, i), state, batch)[0]

        return jax.lax.fori_loop(0, steps, one_step, state)

    jax.block_until_ready(run(state, dataset))

    def one_call() -> tuple[float, int]:
        started = time.perf_counter()
        end = jax.block_until_ready(run(state, dataset))
        return time.perf_counter() - started, int(end.gradients)

    return one_call


def time_steps(model: isvi.Model, dataset: isvi.Dataset, repeats: int) -> dict[str, float]:
    """Medians, in microseconds: per fresh step, per reuse step, and per ten steps of which one is fresh."""
    plans = {
        "fresh": (isvi.SGD(), 100, 100),
        "reuse": (isvi.ISGD(policy=Never()), 10_000, 0),
        "nine": (NINE, 1000, 100),
    }
    timers = {name: make_timer(model, dataset, algorithm, steps) for name, (algorithm, steps, _) in plans.items()}
    seconds: dict[str, list[float]] = {name: [] for name in plans}
    # In turns, so that whatever else the machine does falls on all alike.
    for _ in range(repeats):
        for name, one_call in timers.items():
            _, steps, expected = plans[name]
            elapsed, records = one_call()
            assert abs(records - expected) <= 1, f"{name}: expected {expected} records, made {records}"
            seconds[name].append(elapsed / (records or steps))
    return {name: 1e6 * float(np.median(values)) for name, values in seconds.items()}


def time_fit(model: isvi.Model, data: dict, batch_size: int, algorithm, repeats: int, budget: int = 1000) -> float:
    """Median microseconds per model gradient in ``isvi.fit``, compilation left out."""
    fits = [
        isvi.fit(model, data, algorithm=algorithm, optimizer=OPTIMIZER, batch_size=batch_size, budget=budget)
        for _ in range(repeats)
    ]
    return 1e6 * float(np.median([fit.history.seconds[-1] / fit.gradients for fit in fits]))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=50_000)
    options.add_argument("--columns", type=int, default=500)
    options.add_argument("--batch", type=int, default=1_000)
    options.add_argument("--repeats", type=int, default=25, help="timed calls; medians are reported")
    chosen = options.parse_args()

    model, data = linear_regression(chosen.rows, chosen.columns)
    steps = time_steps(model, isvi.Dataset.from_arrays(data, chosen.batch), chosen.repeats)
    fresh, reuse, nine = steps["fresh"], steps["reuse"], steps["nine"]
    print(f"linear regression, {chosen.rows:,} rows, {chosen.columns} coefficients, batches of {chosen.batch:,}")
    print(f"fresh step                          {fresh:8.1f} microseconds")
    print(f"reuse step                          {reuse:8.2f} microseconds")
    print(f"fresh / reuse                       {fresh / reuse:8.1f} (bar: at least {BAR_RATIO})")
    print(f"one fresh and nine reuse steps      {nine:8.1f} microseconds")
    print(f"what the nine add to the fresh one  {nine / fresh - 1:+8.1%} (bar: at most {BAR_NINE:+.0%})")

    repeats = max(1, chosen.repeats // 5)
    sgd, isgd = (time_fit(model, data, chosen.batch, algorithm, repeats) for algorithm in (isvi.SGD(), NINE))
    print(f"isvi.fit, SGD                       {sgd:8.1f} microseconds per gradient")
    print(f"isvi.fit, nine reuse steps each     {isgd:8.1f} microseconds per gradient ({isgd / sgd - 1:+.1%})")


if __name__ == "__main__":
    main()
