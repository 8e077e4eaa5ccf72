"""``python -m benchmarks.local_large items`` or ``rows``: many local latents, against the exact marginal.

*items*: a two-parameter item response model, 100,000 students (a latent each) and 50 items (two latents each).
*rows*: a negative binomial regression as a Poisson with a gamma rate for each of 1,000,000 rows, streamed from Parquet.
The reference is the marginal in double precision (a fixed grid over the ability; the closed form), its mode by Newton
steps and the curvature there: with so many rows the posterior is a Gaussian. CPU seconds include compilation.
"""

import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm

import isvi

STUDENTS, ITEMS = 100_000, 50
ROWS, SLOPES = 1_000_000, 4
STEPS = 8


def items_model() -> isvi.Model:
    """P(right) = logistic(slope (ability - difficulty)), ability ~ N(0, 1)."""
    return isvi.Model(
        {"slope": isvi.positive(ITEMS, via="exp"), "difficulty": isvi.real(ITEMS)},
        lambda z: (
            norm.logpdf(jnp.log(z["slope"]), 0, 1).sum()
            - jnp.log(z["slope"]).sum()
            + norm.logpdf(z["difficulty"], 0, 2).sum()
        ),
        lambda z, row: -jax.nn.softplus((1 - 2 * row["right"]) * z["slope"] * (z["ability"] - z["difficulty"])).sum(),
        local={"ability": isvi.real()},
        log_local_prior=lambda z: norm.logpdf(z["ability"]),
    )


def items_rows(random: np.random.Generator) -> dict[str, np.ndarray]:
    slope, difficulty = np.exp(0.3 * random.normal(size=ITEMS)), random.normal(size=ITEMS)
    logits = slope * (random.normal(size=(STUDENTS, 1)) - difficulty)
    return {"right": (random.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.float32)}


def items_marginal(z: dict[str, Any], rows: dict[str, Any]) -> jax.Array:
    """By 81 values of the ability, the same for all students: a matrix product."""
    ability = jnp.linspace(-6, 6, 81)
    logits = z["slope"] * (ability[:, None] - z["difficulty"])
    values = rows["right"].astype(float) @ logits.T - jax.nn.softplus(logits).sum(axis=1) + norm.logpdf(ability)
    return jnp.sum(logsumexp(values, axis=1) + jnp.log(ability[1] - ability[0]))


def rows_model() -> isvi.Model:
    """y ~ Poisson(rate exp(a + x b)), rate ~ Gamma(shape, shape)."""
    return isvi.Model(
        {"a": isvi.real(), "b": isvi.real(SLOPES), "shape": isvi.positive(via="exp")},
        lambda z: norm.logpdf(z["a"], 0, 2) + norm.logpdf(z["b"], 0, 2).sum() - z["shape"] / 5,
        lambda z, row: (
            row["y"] * (jnp.log(z["rate"]) + _eta(z, row)) - z["rate"] * jnp.exp(_eta(z, row)) - gammaln(row["y"] + 1)
        ),
        local={"rate": isvi.positive(via="exp")},
        log_local_prior=lambda z: (
            z["shape"] * jnp.log(z["shape"])
            - gammaln(z["shape"])
            + (z["shape"] - 1) * jnp.log(z["rate"])
            - z["shape"] * z["rate"]
        ),
    )


def _eta(z: dict[str, Any], row: dict[str, Any]) -> jax.Array:
    return z["a"] + row["x"] @ z["b"]


def rows_rows(random: np.random.Generator) -> dict[str, np.ndarray]:
    x = random.normal(size=(ROWS, SLOPES)).astype(np.float32)
    rate = random.gamma(2.0, 0.5, size=ROWS) * np.exp(0.5 + x @ np.array([0.3, -0.2, 0.1, 0.0]))
    return {"x": x, "y": random.poisson(rate).astype(np.float32)}


def rows_marginal(z: dict[str, Any], rows: dict[str, Any]) -> jax.Array:
    mean, shape, y = jnp.exp(_eta(z, rows)), z["shape"], rows["y"].astype(float)
    together = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1)
    return jnp.sum(together + shape * jnp.log(shape / (shape + mean)) + y * jnp.log(mean / (shape + mean)))


def reference(fit: isvi.Fit, marginal: Callable, rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of every unconstrained entry: Newton steps with the curvature at the fit's mean, by differences."""
    with jax.enable_x64(True):
        coordinates = fit.approximation.coordinates

        @jax.jit
        def gradient(u: jax.Array, part: Any) -> jax.Array:
            return jax.grad(lambda u: marginal(coordinates.decode(u)[0], part))(u)

        @jax.jit
        def of_prior(u: jax.Array) -> jax.Array:
            def log_prior(u: jax.Array) -> jax.Array:
                values, jacobian = coordinates.decode(u)
                return fit.model.log_prior(values) + jacobian

            return jax.grad(log_prior)(u)

        parts = [
            {name: jnp.asarray(c[i : i + 50_000]) for name, c in rows.items()}
            for i in range(0, len(next(iter(rows.values()))), 50_000)
        ]

        def slope(u: np.ndarray) -> np.ndarray:
            return np.asarray(of_prior(jnp.asarray(u)) + sum(gradient(jnp.asarray(u), part) for part in parts))

        u = np.asarray(fit.approximation.location(fit.params), float)
        width = np.asarray(fit.approximation.factor(fit.params), float)
        columns = [(slope(u + 0.3 * w) - slope(u - 0.3 * w)) / 0.6 for w in width.T]
        curvature = -width.T @ np.stack(columns, axis=1)
        curvature = (curvature + curvature.T) / 2
        for _ in range(STEPS):
            step = np.linalg.solve(curvature, width.T @ slope(u))
            u = u + width @ step
            if np.abs(step).max() < 1e-3:
                break
    return u, np.sqrt(np.diagonal(width @ np.linalg.inv(curvature) @ width.T))


def main(kind: str) -> None:
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        if kind == "items":
            rows, model, marginal = items_rows(random), items_model(), items_marginal
            data: Any = rows
        else:
            rows, model, marginal = rows_rows(random), rows_model(), rows_marginal
            data = _written(rows, Path(folder))
        cpu = sum(os.times()[:2])
        fit = isvi.fit(model, data, progress=False)
        cpu = sum(os.times()[:2]) - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        mean, sd = reference(fit, marginal, rows)
    found = np.asarray(fit.approximation.location(fit.params), float)
    widths = np.asarray(fit.approximation.scale(fit.params), float)
    off, ratio = np.abs(found - mean) / sd, widths / sd
    passes = fit.gradients / fit.data().num_batches / 2
    print(
        f"| {kind} | {fit.data().size:,} | {len(mean)} | {fit.gradients:,} | {passes:.1f} | {cpu:.1f} | {peak:.2f} | "
        f"{off.max():.3f} | {ratio.min():.3f} - {ratio.max():.3f} | {fit.status.kind} |"
    )


def _written(rows: dict[str, np.ndarray], folder: Path) -> isvi.data.Parquet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {f"x{i}": rows["x"][:, i] for i in range(SLOPES)}
    pq.write_table(pa.table({**columns, "y": rows["y"]}), folder / "rows.parquet", row_group_size=20_000)
    return isvi.data.Parquet(folder, columns={"x": list(columns), "y": "y"}, window_bytes=8_000_000)


if __name__ == "__main__":
    main(sys.argv[1])
