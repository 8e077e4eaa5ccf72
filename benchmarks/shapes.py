"""Posteriors of shapes that no Gaussian has, with exact draws: skewed, banana, funnel, heavy tails, few rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import isvi

Draws = dict[str, np.ndarray]


@dataclass(frozen=True)
class Shape:
    """A model, its data, and draws of its posterior."""

    model: isvi.Model
    draw: Callable[[np.random.Generator, int], Draws]
    data: Any = None


def skewed(dim: int) -> Shape:
    """Logarithms of Gammas of shape 2."""
    model = isvi.Model({"x": isvi.real(dim)}, lambda z: jnp.sum(2 * z["x"] - jnp.exp(z["x"])))
    return Shape(model, lambda random, count: {"x": np.log(random.gamma(2.0, size=(count, dim)))})


def banana(width: float) -> Shape:
    """y around x^2 - 1."""

    def density(z: dict) -> Any:
        x, y = z["x"][0], z["x"][1]
        return -0.5 * x**2 - 0.5 * ((y - x**2 + 1) / width) ** 2

    def draw(random: np.random.Generator, count: int) -> Draws:
        x = random.normal(size=count)
        return {"x": np.stack([x, x**2 - 1 + width * random.normal(size=count)], axis=1)}

    return Shape(isvi.Model({"x": isvi.real(2)}, density), draw)


def funnel(dim: int, spread: float) -> Shape:
    """Neal's: x of width exp(v / 2)."""

    def density(z: dict) -> Any:
        v, x = z["v"], z["x"]
        return -0.5 * (v / spread) ** 2 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * (dim - 1) * v

    def draw(random: np.random.Generator, count: int) -> Draws:
        v = spread * random.normal(size=(count, 1))
        return {"v": v[:, 0], "x": np.exp(v / 2) * random.normal(size=(count, dim - 1))}

    return Shape(isvi.Model({"v": isvi.real(), "x": isvi.real(dim - 1)}, density), draw)


def student(dim: int, df: float) -> Shape:
    """Independent Student t."""
    model = isvi.Model({"x": isvi.real(dim)}, lambda z: -(df + 1) / 2 * jnp.sum(jnp.log1p(z["x"] ** 2 / df)))
    return Shape(model, lambda random, count: {"x": random.standard_t(df, size=(count, dim))})


def log_normal(dim: int) -> Shape:
    """Positive latents whose logarithms are Gaussian: nothing is to be bent."""
    model = isvi.Model({"x": isvi.positive(dim)}, lambda z: jnp.sum(-0.5 * jnp.log(z["x"]) ** 2 - jnp.log(z["x"])))
    return Shape(model, lambda random, count: {"x": np.exp(random.normal(size=(count, dim)))})


def half_cauchy(dim: int) -> Shape:
    """Scales without a mean."""
    model = isvi.Model({"s": isvi.positive(dim)}, lambda z: -jnp.sum(jnp.log1p(z["s"] ** 2)))
    return Shape(model, lambda random, count: {"s": np.abs(random.standard_cauchy(size=(count, dim)))})


def regression(rows: int, columns: int) -> Shape:
    """With flat priors and p(sigma) = 1 / sigma: a Gamma and Gaussians given it."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, columns))
    y = x.sum(axis=1) + generator.normal(size=rows)
    best = np.linalg.solve(x.T @ x, x.T @ y)
    rest, root = np.sum((y - x @ best) ** 2), np.linalg.cholesky(np.linalg.inv(x.T @ x))
    model = isvi.Model(
        {"b": isvi.real(columns, flat_prior=True), "sigma": isvi.positive()},
        lambda z: -jnp.log(z["sigma"]),
        lambda z, d: jnp.sum(-0.5 * ((d["y"] - d["x"] @ z["b"]) / z["sigma"]) ** 2 - jnp.log(z["sigma"])),
    )

    def draw(random: np.random.Generator, count: int) -> Draws:
        sigma = np.sqrt(rest / random.chisquare(rows - columns, size=count))
        return {"b": best + sigma[:, None] * (random.normal(size=(count, columns)) @ root.T), "sigma": sigma}

    return Shape(model, draw, {"x": x, "y": y})


SHAPES: dict[str, Callable[[], Shape]] = {
    "regression, 20 rows on 4": lambda: regression(20, 4),
    "regression, 9 rows on 3": lambda: regression(9, 3),
    "skewed, 3": lambda: skewed(3),
    "banana, wide": lambda: banana(1.0),
    "banana, narrow": lambda: banana(0.5),
    "funnel, 2": lambda: funnel(2, 1.5),
    "funnel, 10": lambda: funnel(10, 1.5),
    "funnel, 20": lambda: funnel(20, 1.5),
    "funnel of sd 3, 10": lambda: funnel(10, 3.0),
    "Student t of 3, 4": lambda: student(4, 3.0),
    "log-normal, 3": lambda: log_normal(3),
    "half-Cauchy, 2": lambda: half_cauchy(2),
}
