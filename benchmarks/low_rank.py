"""The default method with ``LowRank`` against the best Gaussian of that shape, on regressions where its ELBO is exact.

A logistic or Poisson regression's ELBO needs only the mean and the variance of every row's predictor, so that the best
diagonal plus low rank can be found by L-BFGS, without draws. Errors are those of the worst entry, in units of the best
member's sds. Run with ``python -m benchmarks.low_rank --problems d,f --ranks 2,5 --seeds 2``.
"""

import argparse
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import minimize

import isvi
from benchmarks.problems import PROBLEMS, Problem, expected_log_likelihood
from isvi.datasets import LogisticRegression
from isvi.families import Family

ROWS = 100_000
"""Of the Poisson regression."""
ROUNDS, ENOUGH = 6, 1e-4
HEADER = "| problem (latents) | family | seed | status | gradients | worst mean, sds | sd ratios | seconds |"


def expected_log_joint(problem: Problem) -> Callable[[Array, Array], Array]:
    """Of a Gaussian with this mean and covariance."""
    statistics = problem.statistics

    def logistic(mean: Array, covariance: Array) -> Array:
        x = statistics["x"]
        likelihood = expected_log_likelihood(x @ mean, jnp.sum((x @ covariance) * x, axis=1), statistics)
        return likelihood - 0.5 * (mean @ mean + jnp.trace(covariance)) / LogisticRegression.prior_sd**2

    def counts(mean: Array, covariance: Array) -> Array:
        x = jnp.concatenate([statistics["blocks"].reshape(-1, problem.latents), statistics["rest"]])
        rates = jnp.sum(jnp.exp(x @ mean + 0.5 * jnp.sum((x @ covariance) * x, axis=1)))
        return statistics["cross"] @ mean - rates - 0.5 * (mean @ mean + jnp.trace(covariance))

    return {"d": logistic, "f": counts}[problem.letter]


def best(problem: Problem, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sds of the best member, by L-BFGS from the best independent Gaussians."""
    dim, expected = problem.latents, expected_log_joint(problem)
    location, log_scale, _ = problem.optimum
    scale = np.exp(log_scale)

    def shaped(moves: Array) -> tuple[Array, Array]:
        mean, own, along = moves[:dim], moves[dim : 2 * dim], moves[2 * dim :].reshape(dim, rank)
        covariance = jnp.diag(jnp.exp(own)) + along @ along.T
        return location + scale * mean, covariance * np.outer(scale, scale)

    @jax.jit
    def loss(moves: Array) -> tuple[Array, Array]:
        def value(moves: Array) -> Array:
            mean, covariance = shaped(moves)
            return -expected(mean, covariance) - 0.5 * jnp.linalg.slogdet(covariance)[1]

        return jax.value_and_grad(value)(moves)

    with jax.enable_x64(True):
        moves = np.concatenate([np.zeros(2 * dim), 0.3 * np.random.default_rng(0).normal(size=dim * rank)])
        before = np.inf
        for _ in range(ROUNDS):
            options = {"maxiter": 400, "maxfun": 500, "ftol": 1e-16, "gtol": 1e-6, "maxcor": 40}
            found = minimize(
                lambda moves: tuple(np.asarray(part) for part in loss(moves)),
                moves,
                jac=True,
                method="L-BFGS-B",
                options=options,
            )
            moves = found.x
            if before - found.fun < ENOUGH:
                break
            before = found.fun
        mean, covariance = shaped(jnp.asarray(moves))
        return np.asarray(mean), np.sqrt(np.diagonal(np.asarray(covariance)))


def judged(problem: Problem, family: Family, wanted: tuple[np.ndarray, np.ndarray] | None, seed: int) -> str:
    """A row of the table."""
    fit = isvi.fit(problem.model, problem.data, family=family, batch_size=problem.batch_size, seed=seed, progress=False)
    errors = ["", ""]
    if wanted is not None:
        mean, sd = wanted
        off = np.abs(np.asarray(fit.approximation.location(fit.params), np.float64) - mean) / sd
        ratio = np.asarray(fit.approximation.scale(fit.params), np.float64) / sd
        errors = [f"{off.max():.3f}", f"{ratio.min():.2f} - {ratio.max():.2f}"]
    cells = [f"{problem.title} ({problem.latents})", str(family), str(seed), fit.status.kind, f"{fit.gradients:,}"]
    return f"| {' | '.join([*cells, *errors, f'{fit.seconds:.0f}'])} |"


def rows(letters: list[str], ranks: list[int], seeds: int) -> Iterator[str]:
    for letter in letters:
        problem = PROBLEMS[letter](ROWS) if letter == "f" else PROBLEMS[letter]()
        for seed in range(seeds):
            yield judged(problem, isvi.FullRank(), None, seed)
        for rank in ranks:
            wanted = best(problem, rank)
            for seed in range(seeds):
                yield judged(problem, isvi.LowRank(rank), wanted, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default="d,f")
    parser.add_argument("--ranks", default="2,5")
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    print(HEADER, "|" + " --- |" * (HEADER.count("|") - 1), sep="\n")
    for row in rows(chosen.problems.split(","), [int(one) for one in chosen.ranks.split(",")], chosen.seeds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
