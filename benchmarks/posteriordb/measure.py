"""What is measured: error of the mean, ratio of standard deviations, k-hat, model gradients, seconds."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats

import isvi
from benchmarks.posteriordb.models import Problem
from benchmarks.posteriordb.reference import Posterior

FAMILIES = {"mean field": isvi.MeanField(), "full rank": isvi.FullRank()}
DRAWS_FOR_K_HAT = 1_000
GOOD_K_HAT = 0.7


@dataclass(frozen=True)
class Result:
    """How one method did on one posterior."""

    posterior: Posterior
    method: str
    family: str
    seed: int
    mean: np.ndarray
    """Per parameter of the reference."""
    sd: np.ndarray
    k_hat: float
    gradients: int
    seconds: float
    compile_seconds: float
    status: str

    @property
    def mean_error(self) -> np.ndarray:
        """In standard deviations of the reference."""
        return (self.mean - self.posterior.mean) / self.posterior.sd

    @property
    def sd_ratio(self) -> np.ndarray:
        return self.sd / self.posterior.sd

    @property
    def worst_mean(self) -> float:
        return float(np.max(np.abs(self.mean_error)))

    @property
    def worst_sd(self) -> float:
        """The ratio that is furthest from 1."""
        return float(self.sd_ratio[np.argmax(np.abs(np.log(self.sd_ratio)))])


def run_isvi(posterior: Posterior, family: str, seed: int) -> Result:
    """``isvi.fit`` with its defaults."""
    problem = posterior.problem
    fit = isvi.fit(problem.model, problem.rows, family=FAMILIES[family], seed=seed, progress=False)
    return Result(
        posterior,
        "isvi",
        family,
        seed,
        mean=posterior.pick(fit.mean()),
        sd=posterior.pick(fit.sd()),
        k_hat=k_hat_of_fit(fit, problem, seed),
        gradients=fit.gradients,
        seconds=fit.history.seconds[-1],
        compile_seconds=fit.compile_seconds,
        status=fit.status.kind,
    )


def k_hat_of_fit(fit: isvi.Fit, problem: Problem, seed: int) -> float:
    """k-hat of the joint importance weights p / q, in double precision and in unconstrained space."""
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), fit.params)
        draws = fit.approximation.draw(jax.random.key(seed + 1), params, DRAWS_FOR_K_HAT)
        log_q = jax.vmap(lambda z: fit.approximation.log_density(params, z).sum())(draws)
    return k_hat(log_joint(problem, fit.approximation, draws) - np.asarray(log_q))


def log_joint(problem: Problem, approximation: isvi.Approximation, draws: jax.Array | np.ndarray) -> np.ndarray:
    """The log joint at draws in unconstrained space, in double precision."""
    target = isvi.Target(problem.model, approximation.coordinates)
    with jax.enable_x64(True):
        exact, rows = jnp.asarray(np.asarray(draws), jnp.float64), jax.tree.map(jnp.asarray, problem.rows)
        return np.asarray(jax.lax.map(lambda z: target.log_joint(z, rows, 1.0), exact, batch_size=100))


def k_hat(log_weights: np.ndarray) -> float:
    """The shape of the weights' tail (Pareto-smoothed importance sampling): above 0.7 the approximation is poor.

    Weights that are not finite, or all alike, have no tail to fit: infinitely poor, and perfect.
    """
    if not np.all(np.isfinite(log_weights)):
        return float("inf")
    _, shape = array_stats.psislw(-log_weights)
    return float(shape)
