"""Rivals that use all rows for every gradient: L-BFGS to the mode with a Laplace approximation, and Pathfinder.

A full gradient counts as one per mini-batch.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import minimize

import isvi
from benchmarks.measure import CHECKPOINTS, Point, Run, Time, checkpoint_counts
from benchmarks.problems import Problem
from benchmarks.rivals import start_location

ELBO_DRAWS = 5
PATHFINDER_ITERATIONS = 60


def full_gradient(problem: Problem, dataset: isvi.Dataset) -> tuple[Callable[[np.ndarray], Any], Time]:
    """``log_joint(z) -> (value, gradient)`` of all rows, and the time it took to compile.

    Mini-batches are evaluated in float32, like everything else here, and added up in float64: a line search cannot
    work with a float32 sum of minus ten million.
    """
    target = problem.target

    @jax.jit
    def parts(z: Array, dataset: isvi.Dataset) -> Any:
        likelihood = jax.value_and_grad(target.log_likelihood)
        each = [jax.value_and_grad(target.log_prior)(z)]
        if dataset.rest is not None:
            each.append(likelihood(z, dataset.rest))
        return jax.lax.map(lambda rows: likelihood(z, rows), dataset.full), each

    started = Time.now()
    compiled = parts.lower(jnp.zeros(problem.latents), dataset).compile()
    compilation = Time.since(started)

    def log_joint(z: np.ndarray) -> tuple[float, np.ndarray]:
        (values, gradients), others = jax.device_get(compiled(jnp.asarray(z, jnp.float32), dataset))
        value = np.sum(values, dtype=np.float64) + sum(float(value) for value, _ in others)
        gradient = np.sum(gradients, axis=0, dtype=np.float64) + sum(g.astype(np.float64) for _, g in others)
        return float(value), gradient

    return log_joint, compilation


def run_laplace(problem: Problem, seed: int, budget: int) -> Run:
    """SciPy's L-BFGS in unconstrained space; at its iterates, a Gaussian with the curvature's diagonal. Neither the
    time nor the gradients of that diagonal are counted, in its favour."""
    log_joint, compilation = full_gradient(problem, problem.dataset(seed))
    location = np.asarray(start_location(problem, seed), np.float64)
    evaluations, iterates, started = [0], [], Time.now()

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        evaluations[0] += 1
        value, gradient = log_joint(z)
        return -value, -gradient

    def keep(z: np.ndarray) -> None:
        iterates.append((evaluations[0] * problem.num_batches, Time.since(started), z.copy()))

    most = max(60, budget // problem.num_batches)
    options = {"maxiter": most, "maxfun": most, "ftol": 1e-13, "gtol": 1e-6, "maxcor": 20}
    found = minimize(objective, location, jac=True, method="L-BFGS-B", callback=keep, options=options)
    keep(found.x)
    # All of them, or the first hundred and a few of the later ones.
    later = {count - 1 for count in checkpoint_counts(len(iterates), CHECKPOINTS)}
    chosen = sorted(set(range(min(len(iterates), 100))) | later)
    points = [
        Point(gradients, spent, problem.evaluate(z, laplace_log_scale(problem, z)))
        for gradients, spent, z in (iterates[index] for index in chosen)
    ]
    return Run(points, compilation, "memory of 20", f"{len(iterates) - 1} iterations")


def laplace_log_scale(problem: Problem, z: np.ndarray) -> np.ndarray:
    """Log standard deviations from the diagonal of the log joint's Hessian. Where that is not negative, 0.1."""
    diagonal = _exact_curvature(problem, z) if problem.exact else _summed_curvature(problem, z)
    return np.where(diagonal > 0, -0.5 * np.log(np.where(diagonal > 0, diagonal, 1.0)), np.log(0.1))


def _exact_curvature(problem: Problem, z: np.ndarray) -> np.ndarray:
    """From the ELBO's evaluator: for a narrow Gaussian its derivative in log sd is 1 - sd^2 times the curvature."""
    log_scale = problem.optimum[1] - np.log(1000.0)
    _, _, by_log_scale = problem.value_and_gradient(z, log_scale)
    return (1 - by_log_scale) * np.exp(-2 * log_scale)


def _summed_curvature(problem: Problem, z: np.ndarray) -> np.ndarray:
    """By differentiating twice, mini-batch after mini-batch."""
    return np.asarray(_curvature(problem)(jnp.asarray(z, jnp.float32), problem.dataset(0)), np.float64)


@cache
def _curvature(problem: Problem) -> jax.stages.Wrapped:
    """``curvature(z, dataset)``: the diagonal of minus the Hessian; compiled once for all points."""
    target = problem.target

    @jax.jit
    def curvature(z: Array, dataset: isvi.Dataset) -> Array:
        def diagonal(log_density: Callable[[Array], Array]) -> Array:
            return jnp.diagonal(jax.hessian(log_density)(z))

        each = jax.lax.map(lambda rows: diagonal(lambda z: target.log_likelihood(z, rows)), dataset.full)
        total = each.sum(axis=0) + diagonal(target.log_prior)
        if dataset.rest is not None:
            total = total + diagonal(lambda z: target.log_likelihood(z, dataset.rest))
        return -total

    return curvature


def run_pathfinder(problem: Problem, seed: int, budget: int) -> Run:
    """BlackJAX's Pathfinder in float64. An iteration counts as one full gradient, its line search and its draws for the
    ELBO as none, in its favour; of every Gaussian on the path, the mean and the better of the sds that its covariance
    and its precision imply."""
    from blackjax.vi import pathfinder

    iterations = min(PATHFINDER_ITERATIONS, max(20, budget // problem.num_batches))
    start = np.asarray(start_location(problem, seed), np.float64)
    with jax.enable_x64(True):
        dataset = jax.tree.map(jnp.asarray, problem.dataset(seed))

        @jax.jit
        def approximate(key: Array, start: Array, dataset: isvi.Dataset) -> Any:
            def log_density(z: Array) -> Array:
                return problem.target.exact_values(z[None], dataset)[0]

            return pathfinder.approximate(key, log_density, start, ELBO_DRAWS, maxiter=iterations, ftol=1e-10)[1].path

        began = Time.now()
        compiled = approximate.lower(jax.random.key(seed), start, dataset).compile()
        compilation = Time.since(began)
        began = Time.now()
        path = jax.device_get(jax.block_until_ready(compiled(jax.random.key(seed), start, dataset)))
        spent = Time.since(began)
    last = int(np.sum(np.isfinite(path.elbo)))
    points, best = [], -np.inf
    for index in range(last):
        if path.elbo[index] >= best:
            best = path.elbo[index]
            share = (index + 1) / max(last, 1)
            points.append(
                Point((index + 1) * problem.num_batches, spent.times(share), _pathfinder_elbo(problem, path, index))
            )
    return Run(points, compilation, f"{iterations} iterations", f"{last} iterations")


def _pathfinder_elbo(problem: Problem, path: Any, index: int) -> float:
    covariance = np.diag(path.alpha[index]) + path.beta[index] @ path.gamma[index] @ path.beta[index].T
    mean = path.position[index] - covariance @ path.grad_position[index]
    with np.errstate(invalid="ignore", divide="ignore"):
        narrow = -0.5 * np.log(np.diagonal(np.linalg.pinv(covariance, hermitian=True)))
        wide = 0.5 * np.log(np.diagonal(covariance))
    return max(np.nan_to_num(problem.evaluate(mean, log_scale), nan=-np.inf) for log_scale in (narrow, wide))
