"""Rivals that use all rows for every gradient: L-BFGS to the mode with a full Laplace approximation, and Pathfinder
along several paths.

A full gradient counts as one per mini-batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import minimize

import isvi
from benchmarks.flat_problems import Gaussian
from benchmarks.measure import CHECKPOINTS, Point, Run, Time, checkpoint_counts
from benchmarks.problem import Judged, Problem, inverse_of_absolute
from benchmarks.rivals import start_location

PATHS = 4
ELBO_DRAWS = 5
PATHFINDER_ITERATIONS = 60
NARROW = 1e-3
"""Of the best Gaussian's sds: so narrow is the Gaussian over which a Hessian is averaged to have that of a point."""


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
    """SciPy's L-BFGS in unconstrained space; at its iterates, a Gaussian with the full Hessian. Neither the time of the
    Hessian nor its gradients, about one per latent, are counted, in its favour."""
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
        Point(gradients, spent, problem.judge(z, laplace_factor(problem, z)))
        for gradients, spent, z in (iterates[index] for index in chosen)
    ]
    return Run(points, compilation, "memory of 20", f"{len(iterates) - 1} iterations")


def laplace_factor(problem: Problem, z: np.ndarray) -> np.ndarray:
    """Of the negative Hessian's inverse; where that has negative eigenvalues, with their signs turned round."""
    narrow = Gaussian(z, NARROW**2 * problem.optimum[0].covariance)
    return np.linalg.cholesky(inverse_of_absolute(problem.derivatives(narrow)[1]))


def run_pathfinder(problem: Problem, seed: int, budget: int) -> Run:
    """BlackJAX's Pathfinder in float64 along several paths, one of them from where everyone starts and the others from
    draws around it. An iteration counts as one full gradient per path, line searches and draws for the ELBO as none, in
    its favour; of all Gaussians so far, the one with the best ELBO by Pathfinder's own estimate."""
    iterations = min(PATHFINDER_ITERATIONS, max(20, budget // problem.num_batches // PATHS))
    paths, compilation, spent = _paths(problem, seed, iterations)
    longest = int(np.isfinite(paths.elbo).sum(axis=1).max())
    points, best = [], -np.inf
    for index in range(longest):
        path = int(np.argmax(paths.elbo[:, index]))
        if paths.elbo[path, index] >= best and (judged := _judged(problem, paths, path, index)) is not None:
            best, share = paths.elbo[path, index], (index + 1) / longest
            points.append(Point(PATHS * (index + 1) * problem.num_batches, spent.times(share), judged))
    return Run(points, compilation, f"{PATHS} paths of {iterations} iterations", f"{longest} iterations")


def _paths(problem: Problem, seed: int, iterations: int) -> tuple[Any, Time, Time]:
    """All Gaussians of all paths, and the times of compiling and of running."""
    from blackjax.vi import pathfinder

    location = np.asarray(start_location(problem, seed), np.float64)
    moves = np.random.default_rng(seed).normal(size=(PATHS, len(location)))
    moves[0] = 0
    with jax.enable_x64(True):
        starts, keys = jnp.asarray(location + moves), jax.random.split(jax.random.key(seed), PATHS)
        dataset = jax.tree.map(jnp.asarray, problem.dataset(seed))

        @jax.jit
        def approximate(keys: Array, starts: Array, dataset: isvi.Dataset) -> Any:
            def log_density(z: Array) -> Array:
                return problem.target.exact_values(z[None], dataset)[0]

            def one(key: Array, start: Array) -> Any:
                options = {"maxiter": iterations, "ftol": 1e-10}
                return pathfinder.approximate(key, log_density, start, ELBO_DRAWS, **options)[1].path

            return jax.lax.map(lambda pair: one(*pair), (keys, starts))

        began = Time.now()
        compiled = approximate.lower(keys, starts, dataset).compile()
        compilation, began = Time.since(began), Time.now()
        paths = jax.device_get(jax.block_until_ready(compiled(keys, starts, dataset)))
    return paths, compilation, Time.since(began)


def _judged(problem: Problem, paths: Any, path: int, index: int) -> Judged | None:
    """None if what came out is no Gaussian."""
    alpha, beta, gamma, position, slope = (
        part[path, index] for part in (paths.alpha, paths.beta, paths.gamma, paths.position, paths.grad_position)
    )
    covariance = np.diag(alpha) + beta @ gamma @ beta.T
    try:
        return problem.judge(position - covariance @ slope, np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        return None
