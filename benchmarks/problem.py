"""A model with data, the exact ELBO of a Gaussian with full covariance, and the best one there is.

Expectations are closed forms and quadrature in float64, without Monte Carlo noise, so that a gap of a thousandth of a
nat per latent can be seen in an ELBO of minus ten million.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

import isvi
from benchmarks.flat_problems import CACHE, Gaussian
from reproduce.problems import LOG_2PI

BATCH_SIZE = 1000
MOST_STEPS = 100
NEGLIGIBLE = 1e-4
"""What is left of a step, in standard deviations along any direction, and of a change of any variance, relatively."""
Statistics = Any


class Judged(NamedTuple):
    """A Gaussian against the best one: the ELBO, the worst entry's mean in sds, and the extremes of the sds' ratios."""

    elbo: float
    mean_off: float
    sd_low: float
    sd_high: float


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with data, and the ELBO of Gaussians.

    Attributes:
        letter: the problem's name on the command line and in the tables.
        title: what it is.
        expected: ``expected(mean, covariance, statistics)``: of the log joint, in unconstrained coordinates.
        statistics: what that needs to know about the data.
    """

    letter: str
    title: str
    model: isvi.Model
    data: dict[str, np.ndarray]
    expected: Callable[[Array, Array, Statistics], Array]
    statistics: Statistics = None
    batch_size: int = field(default=BATCH_SIZE)

    @cached_property
    def approximation(self) -> isvi.Approximation:
        return isvi.approximate(isvi.FullRank(), self.model.latents)

    @cached_property
    def target(self) -> isvi.Target:
        return isvi.Target(self.model, self.approximation.coordinates)

    @property
    def latents(self) -> int:
        """Entries of the unconstrained vector."""
        return self.approximation.dim

    @property
    def num_batches(self) -> int:
        return -(-len(next(iter(self.data.values()))) // self.batch_size)

    def dataset(self, seed: int) -> isvi.Dataset:
        """The mini-batches that ``isvi.fit`` makes with this seed."""
        return isvi.Dataset.from_arrays(self.data, self.batch_size, shuffle_seed=seed)

    @cached_property
    def _value(self) -> jax.stages.Wrapped:
        return jax.jit(self.expected)

    @cached_property
    def _derivatives(self) -> jax.stages.Wrapped:
        return jax.jit(jax.value_and_grad(self.expected, argnums=(0, 1)))

    def elbo(self, q: Gaussian) -> float:
        """In nats; minus infinity of what is no Gaussian, or so wide that it overflows."""
        if not (np.all(np.isfinite(q.mean)) and np.all(np.isfinite(q.covariance))):
            return -np.inf
        sign, log_determinant = np.linalg.slogdet(q.covariance)
        if not sign > 0:
            return -np.inf
        with jax.enable_x64(True):
            value = float(self._value(q.mean, q.covariance, self.statistics))
        return value + 0.5 * float(log_determinant + self.latents * (LOG_2PI + 1)) if np.isfinite(value) else -np.inf

    def derivatives(self, q: Gaussian) -> tuple[np.ndarray, np.ndarray]:
        """E_q of the log joint's gradient, and of its negative Hessian, which is minus twice the derivative in the
        covariance (Price's theorem)."""
        with jax.enable_x64(True):
            _, (by_mean, by_covariance) = self._derivatives(q.mean, q.covariance, self.statistics)
        by_covariance = np.asarray(by_covariance)
        return np.asarray(by_mean), -(by_covariance + by_covariance.T)

    def judge(self, mean: Array, factor: Array) -> Judged:
        """N(mean, factor factor')."""
        factor = np.asarray(factor, np.float64)
        q, best = Gaussian(np.asarray(mean, np.float64), factor @ factor.T), self.optimum[0]
        off, ratio = np.abs(q.mean - best.mean) / best.sd, q.sd / best.sd
        return Judged(self.elbo(q), float(off.max()), float(ratio.min()), float(ratio.max()))

    @cached_property
    def optimum(self) -> tuple[Gaussian, float]:
        """The best Gaussian and its ELBO; kept on disk."""
        known = (self.title, {k: (v.shape, float(np.sum(v, dtype=np.float64))) for k, v in self.data.items()})
        path = CACHE / f"best-{hashlib.sha256(repr(known).encode()).hexdigest()[:16]}.npz"
        if not path.exists():
            best = best_gaussian(self)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, mean=best.mean, covariance=best.covariance, elbo=self.elbo(best))
        with np.load(path) as stored:
            return Gaussian(stored["mean"], stored["covariance"]), float(stored["elbo"])


def best_gaussian(problem: Problem) -> Gaussian:
    """Where E_q[gradient] = 0 and E_q[-Hessian] is q's precision: by natural gradients of the exact ELBO, whose full
    step is Newton's, halved until the ELBO does not fall."""
    precision = 1e6 * np.eye(problem.latents)
    q = Gaussian(np.zeros(problem.latents), np.linalg.inv(precision))
    value = problem.elbo(q)
    for _ in range(MOST_STEPS):
        gradient, curvature = problem.derivatives(q)
        root = np.linalg.cholesky(q.covariance)
        off = root.T @ gradient, root.T @ curvature @ root - np.eye(problem.latents)
        if max(np.abs(part).max() for part in off) < NEGLIGIBLE:
            return q
        for share in 0.5 ** np.arange(30):
            blend = (1 - share) * precision + share * curvature
            covariance = inverse_of_absolute(blend)
            moved = Gaussian(q.mean + share * covariance @ gradient, covariance)
            found = problem.elbo(moved)
            if found >= value - 1e-13 * abs(value):
                break
        q, value, precision = moved, found, np.linalg.inv(covariance)
    raise RuntimeError(f"({problem.letter}): no fixed point after {MOST_STEPS} steps")


def inverse_of_absolute(matrix: np.ndarray) -> np.ndarray:
    """The inverse with the signs of negative eigenvalues turned round, in coordinates in which the diagonal is one."""
    scale = np.sqrt(np.maximum(np.abs(np.diagonal(matrix)), 1e-12))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    side = vectors / np.sqrt(np.maximum(np.abs(values), 1e-12)) / scale[:, None]
    return side @ side.T
