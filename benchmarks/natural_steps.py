"""Natural-gradient steps against Adam: the gap to the best member of the family, after a number of model gradients.

Three problems whose gap is known exactly: a Gamma posterior of a Poisson rate; a correlated Gaussian posterior of 20
coefficients with a full covariance (linear regression, mini-batches); and the same with the features scaled from 0.1 to
10. Every rate is tried with the same cosine decay to zero, for SGD and for I-SGD; medians over seeds. Run with
``python -m benchmarks.natural_steps``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import digamma, gammaln
from jax.scipy.stats import norm

import isvi

BUDGETS = (300, 2_000)
RATES = {"Adam": (0.01, 0.03, 0.1), "natural": (0.01, 0.03, 0.1)}
SEEDS = 3


@dataclass(frozen=True)
class Problem:
    """A model, its data, and the gap in nats of an approximation."""

    title: str
    model: isvi.Model
    data: Any
    family: Any
    gap: Callable[[Any], float]
    batch_size: int


def poisson() -> Problem:
    counts = np.random.default_rng(0).poisson(4.0, size=400)
    model = isvi.Model(
        latents={"rate": isvi.positive()},
        log_prior=lambda z: jnp.log(z["rate"]) - z["rate"],
        log_likelihood=lambda z, rows: jnp.sum(rows * jnp.log(z["rate"]) - z["rate"]),
    )
    far_a, far_rate = 2.0 + counts.sum(), 1.0 + len(counts)

    def gap(params: Any) -> float:
        with jax.enable_x64(True):
            log_mean, log_a = (jnp.asarray(np.asarray(leaf), jnp.float64)[0] for leaf in params)
            a = jnp.exp(log_a)
            rate = a * jnp.exp(-log_mean)
            volume = gammaln(far_a) - gammaln(a) + far_a * jnp.log(rate / far_rate)
            return float((a - far_a) * digamma(a) + volume + a * (far_rate / rate - 1))

    return Problem("Poisson rate, Gamma", model, counts, isvi.Gamma(), gap, batch_size=400)


def regression(title: str, scales: np.ndarray) -> Problem:
    rng = np.random.default_rng(1)
    dim, rows = len(scales), 5_000
    # Neighbours correlate by 0.8.
    mixed = np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(np.arange(dim), np.arange(dim))))
    x = rng.normal(size=(rows, dim)) @ mixed.T * scales
    y = x @ (rng.normal(size=dim) / scales) + rng.normal(size=rows)
    model = isvi.Model(
        latents={"w": isvi.real(dim)},
        log_prior=lambda z: jnp.sum(norm.logpdf(z["w"], scale=10.0)),
        log_likelihood=lambda z, batch: jnp.sum(norm.logpdf(batch["y"], batch["x"] @ z["w"])),
    )
    precision = x.T @ x + np.eye(dim) / 100
    mode = np.linalg.solve(precision, x.T @ y)

    def gap(params: Any) -> float:
        factor = np.asarray(params.factor[0], np.float64)
        lower = np.tril(factor, -1) + np.diag(np.exp(np.diag(factor)))
        distance = np.asarray(params.loc, np.float64) - mode
        spread = np.trace(lower.T @ precision @ lower) - 2 * np.trace(factor) - np.linalg.slogdet(precision)[1]
        return float(0.5 * (distance @ precision @ distance + spread - dim))

    return Problem(title, model, {"x": x, "y": y}, isvi.FullRank(), gap, batch_size=500)


def measure(problem: Problem, algorithm: isvi.SGD | isvi.ISGD, name: str, rate: float, budget: int) -> float:
    """Median gap over seeds; infinite where most fits diverged."""
    steps_per_record = 1 / (1 - algorithm.t) if isinstance(algorithm, isvi.ISGD) else 1
    schedule = optax.cosine_decay_schedule(rate, round(budget * steps_per_record))
    optimizer = optax.adam(schedule) if name == "Adam" else isvi.natural_gradient(schedule)
    gaps = []
    for seed in range(SEEDS):
        fit = isvi.fit(
            problem.model,
            problem.data,
            family=problem.family,
            algorithm=algorithm,
            optimizer=optimizer,
            batch_size=problem.batch_size,
            budget=budget,
            seed=seed,
            progress=False,
        )
        gaps.append(problem.gap(fit.params))
    return float(np.median(np.nan_to_num(gaps, nan=np.inf)))


def main() -> None:
    problems = [
        poisson(),
        regression("regression, 20 coefficients, FullRank", np.ones(20)),
        regression("the same, features scaled 0.1 to 10", np.geomspace(0.1, 10, 20)),
    ]
    print("| problem | algorithm | steps | " + " | ".join(f"{budget:,}" for budget in BUDGETS) + " |")
    print("| --- | --- | --- |" + " --- |" * len(BUDGETS))
    for problem in problems:
        for algorithm in (isvi.SGD(), isvi.ISGD()):
            for name, rates in RATES.items():
                cells = []
                for budget in BUDGETS:
                    gaps = {rate: measure(problem, algorithm, name, rate, budget) for rate in rates}
                    best = min(gaps, key=gaps.__getitem__)
                    cells.append(f"{gaps[best]:.2g} ({best:g}); at 0.03: {gaps[0.03]:.2g}")
                print(f"| {problem.title} | {type(algorithm).__name__} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
