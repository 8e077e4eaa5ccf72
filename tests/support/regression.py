"""Bayesian linear regression with known noise: conjugate, so posterior and mean-field optimum are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import isvi
from isvi.algorithms import AlgorithmOptions
from isvi.data import Schedule
from isvi.estimators import EstimatorOptions

NOISE = 0.5
ROWS, BATCH_SIZE = 130, 30
"""Five mini-batches, of which the last has 10 rows."""


def data() -> dict[str, np.ndarray]:
    """Correlated columns, so that a mean-field approximation is not the posterior."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(ROWS, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.4], [0.0, 0.0, 1.0]])
    return {"x": x, "y": x @ np.array([1.0, -0.5, 0.3]) + NOISE * generator.normal(size=ROWS)}


def model() -> isvi.Model:
    return isvi.Model(
        {"w": isvi.real(3)},
        log_prior=lambda z: norm.logpdf(z["w"]).sum(),
        log_likelihood=lambda z, rows: norm.logpdf(rows["y"], rows["x"] @ z["w"], NOISE).sum(),
    )


def posterior() -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision."""
    rows = data()
    precision = rows["x"].T @ rows["x"] / NOISE**2 + np.eye(3)
    return np.linalg.solve(precision, rows["x"].T @ rows["y"] / NOISE**2), precision


def log_evidence() -> float:
    """log p(y) = log N(y; 0, x x' + noise^2 I)."""
    rows = data()
    covariance = rows["x"] @ rows["x"].T + NOISE**2 * np.eye(ROWS)
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    return float(-0.5 * (log_determinant + rows["y"] @ np.linalg.solve(covariance, rows["y"])))


def divergence(mean: np.ndarray, covariance: np.ndarray) -> float:
    """KL(N(mean, covariance) || posterior), in nats."""
    centre, precision = posterior()
    _, log_determinant = np.linalg.slogdet(precision @ covariance)
    spread = np.trace(precision @ covariance) - len(centre) - log_determinant
    return float(0.5 * (spread + (mean - centre) @ precision @ (mean - centre)))


def gap(params: Any) -> float:
    """How far the ELBO of a mean-field or full-rank approximation is below its family's best, in nats."""
    if hasattr(params, "cholesky"):
        factor = np.asarray(params.cholesky[0], float)
        return divergence(np.asarray(params.loc, float), factor @ factor.T)
    mean, sd = np.asarray(params.loc, float), np.exp(np.asarray(params.log_scale, float))
    centre, precision = posterior()
    return divergence(mean, np.diag(sd**2)) - divergence(centre, np.diag(1 / np.diag(precision)))


def run(
    algorithm: AlgorithmOptions,
    optimizer: Any,
    steps: int,
    estimator: EstimatorOptions = isvi.Reparameterization(),  # noqa: B008 (immutable)
    seeds: int = 1,
    initial_scale: float = 0.1,
) -> tuple[isvi.State, isvi.Info]:
    """Mean-field fits by the pure layer, one per seed along the leading axis of what is returned."""
    dataset = isvi.Dataset.from_arrays(data(), BATCH_SIZE)
    approximation = isvi.approximate(isvi.MeanField(), model().latents)
    bound = estimator.bind(isvi.Target(model(), approximation.coordinates), approximation)
    method = isvi.build(bound, algorithm, optimizer, dataset)
    params = approximation.init(jnp.zeros(3), jnp.full(3, initial_scale))

    def one(key: jax.Array) -> tuple[isvi.State, isvi.Info]:
        def step(carry: tuple, number: jax.Array) -> tuple:
            state, schedule = carry
            batch = dataset.batch(schedule.next_index)
            state, info = method.step(jax.random.fold_in(key, number), state, batch)
            return (state, schedule.advance(info.fresh)), info

        start = method.init(params), Schedule.start(key, dataset.num_batches)
        (state, _), infos = jax.lax.scan(step, start, jnp.arange(steps))
        return state, infos

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(11), seeds))


def gaps(state: isvi.State) -> np.ndarray:
    """The gap of every seed of :func:`run`."""
    structure = type(state.params)
    return np.array([gap(structure(*leaves)) for leaves in zip(*state.params, strict=True)])
