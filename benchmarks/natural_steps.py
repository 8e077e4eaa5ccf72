"""Natural-gradient steps against Adam: the gap to the best member of the family, after a number of model gradients.

Problems whose gap is known exactly: a Gamma posterior of a Poisson rate; and linear regression with 20 coefficients
that correlate, in mini-batches, with the mean-field family and with a full covariance, with features of one scale and
with features scaled from 0.1 to 10. SGD, one draw per record, the estimator whose noise vanishes at the posterior;
every rate with the same cosine decay to zero; medians over seeds. Run with ``python -m benchmarks.natural_steps``.
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
RATES = (0.01, 0.03, 0.1)
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


def regression(title: str, scales: np.ndarray, full: bool) -> Problem:
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
        """KL(q || posterior), less that of the best member of the family."""
        location, root, least = np.asarray(params.loc, np.float64) - mode, _root(params), 0.0
        if not full:
            least = 0.5 * (np.sum(np.log(np.diag(precision))) - np.linalg.slogdet(precision)[1])
        volume = 2 * np.sum(np.log(np.diag(root))) + np.linalg.slogdet(precision)[1]
        kl = 0.5 * (location @ precision @ location + np.trace(root.T @ precision @ root) - volume - dim)
        return float(kl - least)

    family = isvi.FullRank() if full else isvi.MeanField()
    return Problem(title, model, {"x": x, "y": y}, family, gap, batch_size=500)


def _root(params: Any) -> np.ndarray:
    """A Gaussian's Cholesky factor."""
    if hasattr(params, "log_scale"):
        return np.diag(np.exp(np.asarray(params.log_scale, np.float64)))
    return np.asarray(params.cholesky[0], np.float64)


def measure(problem: Problem, name: str, rate: float, budget: int) -> float:
    """Median gap over seeds; infinite where most fits diverged."""
    schedule = optax.cosine_decay_schedule(rate, budget)
    optimizer = optax.adam(schedule) if name == "Adam" else isvi.natural_gradient(schedule)
    gaps = []
    for seed in range(SEEDS):
        fit = isvi.fit(
            problem.model,
            problem.data,
            family=problem.family,
            algorithm=isvi.SGD(),
            estimator=isvi.Reparameterization(entropy="sticking"),
            optimizer=optimizer,
            batch_size=problem.batch_size,
            budget=budget,
            seed=seed,
            progress=False,
        )
        gaps.append(problem.gap(fit.params))
    return float(np.median(np.nan_to_num(gaps, nan=np.inf)))


def main() -> None:
    even, uneven = np.ones(20), np.geomspace(0.1, 10, 20)
    problems = [
        poisson(),
        regression("regression, mean field", even, full=False),
        regression("regression, mean field, features scaled 0.1 to 10", uneven, full=False),
        regression("regression, full rank", even, full=True),
        regression("regression, full rank, features scaled 0.1 to 10", uneven, full=True),
    ]
    columns = [f"{budget:,} gradients, rate {rate}" for budget in BUDGETS for rate in RATES]
    print("| problem | steps | " + " | ".join(columns) + " |")
    print("| --- | --- |" + " --- |" * len(columns))
    for problem in problems:
        for name in ("Adam", "natural"):
            cells = [f"{measure(problem, name, rate, budget):.2g}" for budget in BUDGETS for rate in RATES]
            print(f"| {problem.title} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
