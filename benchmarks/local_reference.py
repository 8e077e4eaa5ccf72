"""What the fits of mixed models are measured against: the posterior of the global latents, by importance sampling.

The marginal likelihood is evaluated in double precision with many more nodes than a fit uses; for linear models, in
closed form, group by group. Draws are from a Student t around the mode, and their weights are the posterior's over the
t's: with ``DRAWS`` of them, means are good to about 0.01 sds (draws come with their mirror images) and sds to 3% at
best: for them, a draw and its mirror image count as one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import multivariate_t

import isvi
from benchmarks.local_problems import Problem
from isvi.model import bind

DRAWS = 2_000
DF = 8.0
AT_ONCE = 4
STEPS = 12
FINE = {1: 25, 2: 11, 3: 7}
"""Nodes per dimension."""


class Reference(NamedTuple):
    """Means and sds of the reported numbers, and the effective number of draws behind them."""

    mean: np.ndarray
    sd: np.ndarray
    effective: float


def reported(values: dict[str, Any]) -> np.ndarray:
    """Draws of the numbers that are compared: intercept, slopes, sds over groups, and correlations."""
    columns = [np.asarray(values["a"])[:, None], np.asarray(values["b"]), np.asarray(values["tau"])]
    if "L" in values:
        factor = np.asarray(values["L"])
        rows, others = np.tril_indices(factor.shape[-1], -1)
        columns.append((factor @ factor.transpose(0, 2, 1))[:, rows, others])
    return np.concatenate(columns, axis=1).astype(float)


def reference(problem: Problem, start: isvi.Fit, draws: int = DRAWS) -> Reference:
    """From where a fit ended, which saves the search for the mode. Newton steps make up for what it is off by."""
    with jax.enable_x64(True):
        approximation = start.approximation
        data = isvi.data.grouped(problem.columns(), by="group")
        bound = bind(problem.model(FINE[problem.effects]), data, None).model
        if problem.kind == "linear":
            bound = isvi.Model(bound.latents, bound.log_prior, lambda z, pack: linear_marginal(problem, z, pack))
        target = isvi.Target(bound, approximation.coordinates)
        dataset = data.cut(1_000)

        def value(z: jax.Array) -> jax.Array:
            return target.exact_values(z[None], dataset)[0]

        gradient = jax.jit(jax.grad(value))
        z = jnp.asarray(approximation.location(start.params), jnp.float64)
        width = np.asarray(approximation.factor(start.params), float)
        z, factor = _mode(gradient, z, width)
        random = np.random.default_rng(0)
        half = draws // 2  # and their mirror images, so that means hardly have an error
        radius = np.sqrt(DF / random.chisquare(DF, size=half))[:, None]
        steps = (random.normal(size=(half, len(z))) * radius) @ factor.T
        points = jnp.asarray(np.asarray(z) + np.concatenate([steps, -steps]))
        evaluate = jax.jit(lambda part: target.exact_values(part, dataset))
        parts = [evaluate(points[first : first + AT_ONCE]) for first in range(0, draws, AT_ONCE)]
        proposal = multivariate_t.logpdf(np.asarray(points), np.asarray(z), factor @ factor.T, df=DF)
        weights = np.asarray(jax.nn.softmax(jnp.concatenate(parts) - proposal))
        shown = reported(approximation.coordinates.constrain(points))
    mean = weights @ shown
    return Reference(mean, np.sqrt(weights @ (shown - mean) ** 2), float(1 / np.sum(weights**2)))


def _mode(gradient: Any, z: jax.Array, width: np.ndarray) -> tuple[jax.Array, np.ndarray]:
    """Newton steps in coordinates in which the fit has covariance 1, with a curvature by differences."""

    def curvature(z: jax.Array) -> np.ndarray:
        columns = [gradient(z + 0.1 * width[:, i]) - gradient(z - 0.1 * width[:, i]) for i in range(len(z))]
        found = -width.T @ np.stack(columns, axis=1) / 0.2
        return (found + found.T) / 2

    hessian = curvature(z)
    for _ in range(STEPS):
        step = np.linalg.solve(hessian, width.T @ np.asarray(gradient(z)))
        z = z + width @ step
        if np.abs(step).max() < 1e-3:
            break
    return z, width @ np.linalg.cholesky(np.linalg.inv(curvature(z)))


def linear_marginal(problem: Problem, z: dict[str, Any], pack: Any) -> jax.Array:
    """In closed form, by the precision of a group's effects given its rows (Woodbury's identity)."""
    rows, there = pack.rows, pack.there[..., None]
    design = jnp.concatenate([jnp.ones_like(rows["x"][..., :1]), rows["x"][..., : problem.effects - 1]], -1) * there
    residual = (rows["y"] - z["a"] - rows["x"] @ z["b"]) * pack.there
    gram = jnp.einsum("pri,prj->pij", design, design) / z["sigma"] ** 2
    score = jnp.einsum("pri,pr->pi", design, residual) / z["sigma"] ** 2
    square = jnp.sum(residual**2, axis=-1) / z["sigma"] ** 2
    count = jnp.sum(pack.there, axis=-1)
    if pack.group is not None:
        total = [jax.ops.segment_sum(a, pack.group, pack.number.shape[0]) for a in (gram, score, square, count)]
        gram, score, square, count = total
    factor = z["tau"][:, None] * (z["L"] if "L" in z else jnp.ones((1, 1)))
    inner = jnp.eye(problem.effects) + jnp.einsum("ai,pab,bj->pij", factor, gram, factor)
    turned = jnp.einsum("ai,pa->pi", factor, score)
    explained = jnp.sum(turned * jnp.linalg.solve(inner, turned[..., None])[..., 0], axis=-1)
    logs = count * jnp.log(2 * jnp.pi * z["sigma"] ** 2) + jnp.linalg.slogdet(inner)[1]
    return jnp.sum(jnp.where(pack.number >= 0, -0.5 * (logs + square - explained), 0.0))
