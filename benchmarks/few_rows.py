"""Regressions with entries of which few rows know, and along which their log likelihood is no parabola.

Looked at only after the method was chosen: a predictor that all but separates two classes, levels without a single
success or count, a class that a level never has, zero inflation, and effects that wait for their scale.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, log_softmax
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import isvi
from benchmarks.flat_problems import FlatProblem

DESIGNS = 16
"""Sets of draws that a reference averages the rows over."""


def hinge(seed: int = 20, rows: int = 60_000) -> FlatProblem:
    """Above 2.5 of the first predictor all say yes: its excess is held from one side only."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    above = np.maximum(x[:, 0] - 2.5, 0)
    logits = -1.0 + x @ [0.8, -0.4, 0.2]
    y = (rng.random(rows) < 1 / (1 + np.exp(-logits))) | (above > 0.05)
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(3), "excess": isvi.real()},
        lambda z: norm.logpdf(z["a"], 0, 5) + norm.logpdf(z["b"], 0, 2).sum() + norm.logpdf(z["excess"], 0, 10),
        lambda z, r: log_sigmoid((2 * r["y"] - 1) * (z["a"] + r["x"] @ z["b"] + z["excess"] * r["above"])).sum(),
    )
    columns = {"x": x, "above": above, "y": y}
    return FlatProblem("hinge", model, {name: one.astype(np.float32) for name, one in columns.items()}, DESIGNS)


def silent_levels(seed: int = 21, rows: int = 150_000) -> FlatProblem:
    """Twelve levels, of which four, of 15 to 400 rows, have nothing but zeros, and one of 40 nothing but ones."""
    rng = np.random.default_rng(seed)
    sizes = np.array([15, 40, 120, 400, 40])
    level = rng.integers(5, 12, rows)
    level[rng.permutation(rows)[: sizes.sum()]] = np.repeat(np.arange(5), sizes)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    logits = -1.0 + x @ [0.5, 0.0, -0.3, 0.1] + np.linspace(-0.4, 0.4, 12)[level]
    y = np.where(level < 4, 0, np.where(level == 4, 1, rng.random(rows) < 1 / (1 + np.exp(-logits))))
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(4), "level": isvi.real(12)},
        lambda z: norm.logpdf(z["a"], 0, 5) + norm.logpdf(z["b"], 0, 2).sum() + norm.logpdf(z["level"], 0, 2.5).sum(),
        lambda z, r: log_sigmoid((2 * r["y"] - 1) * (z["a"] + r["x"] @ z["b"] + z["level"][r["level"]])).sum(),
    )
    data = {"x": x, "level": level.astype(np.int32), "y": y.astype(np.float32)}
    return FlatProblem("silent-levels", model, data, DESIGNS)


def empty_counts(seed: int = 22, rows: int = 100_000) -> FlatProblem:
    """Poisson counts of exposures, in thirty regions; four small ones never had a case."""
    rng = np.random.default_rng(seed)
    region = np.where(rng.random(rows) < 0.002, rng.integers(0, 4, rows), rng.integers(4, 30, rows))
    x, exposure = rng.normal(size=(rows, 3)), rng.gamma(2.0, 0.5, rows)
    rate = exposure * np.exp(-2.0 + x @ [0.3, -0.2, 0.0] + 0.5 * rng.normal(size=30)[region])
    y = np.where(region < 4, 0, rng.poisson(rate))

    def log_likelihood(z: dict, r: dict) -> Any:
        eta = z["a"] + r["x"] @ z["b"] + z["region"][r["region"]]
        return jnp.sum(r["y"] * eta - r["exposure"] * jnp.exp(eta))

    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(3), "region": isvi.real(30)},
        lambda z: norm.logpdf(z["a"], 0, 3) + norm.logpdf(z["b"], 0, 1).sum() + norm.logpdf(z["region"], 0, 1.5).sum(),
        log_likelihood,
    )
    columns = {"x": x, "exposure": exposure, "y": y}
    data = {name: one.astype(np.float32) for name, one in columns.items()}
    return FlatProblem("empty-counts", model, data | {"region": region.astype(np.int32)}, DESIGNS)


def absent_classes(seed: int = 23, rows: int = 80_000) -> FlatProblem:
    """Four classes in eight plants; the smallest plant, of 60 rows, never had two of them."""
    rng = np.random.default_rng(seed)
    plant = np.where(rng.permutation(rows) < 60, 7, rng.integers(0, 7, rows))
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    logits = np.column_stack([np.zeros(rows), x @ np.array([[0.5, -0.2, 0.1], [0.0, 0.4, 0.2]]) + [-0.5, -1.0, -2.5]])
    logits[:, 1:] += (0.3 * rng.normal(size=(8, 3)))[plant]
    logits[plant == 7, 2:] = -np.inf
    y = (logits + rng.gumbel(size=(rows, 4))).argmax(axis=1)

    def log_likelihood(z: dict, r: dict) -> Any:
        others = z["a"] + r["x"] @ z["b"] + z["plant"][r["plant"]]
        logits = jnp.concatenate([jnp.zeros((len(others), 1), others.dtype), others], axis=1)
        return jnp.take_along_axis(log_softmax(logits), r["y"][:, None], axis=1).sum()

    model = isvi.Model(
        {"a": isvi.real(3), "b": isvi.real(2, 3), "plant": isvi.real(8, 3)},
        lambda z: norm.logpdf(z["a"], 0, 5).sum() + norm.logpdf(z["b"], 0, 2).sum() + norm.logpdf(z["plant"]).sum(),
        log_likelihood,
    )
    data = {"x": x, "plant": plant.astype(np.int32), "y": y.astype(np.int32)}
    return FlatProblem("absent-classes", model, data, DESIGNS)


def inflated_counts(seed: int = 24, rows: int = 50_000) -> FlatProblem:
    """Zero-inflated negative binomial: few zeros are more than the counts explain, so that little is known of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    structural = rng.random(rows) < 1 / (1 + np.exp(-(-3.0 + x @ [0.5, 0.0, 0.5])))
    rate = np.exp(0.7 + x @ [0.4, -0.3, 0.0])
    y = np.where(structural, 0, rng.poisson(rate * rng.gamma(1.5, 1 / 1.5, rows))).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        eta, k = z["a"] + r["x"] @ z["b"], z["k"]
        gate = z["c"] + r["x"] @ z["d"]
        counts = (
            gammaln(r["y"] + k)
            - gammaln(k)
            - gammaln(r["y"] + 1)
            + k * jnp.log(k)
            + r["y"] * eta
            - (r["y"] + k) * jnp.logaddexp(jnp.log(k), eta)
        )
        zero = jnp.logaddexp(log_sigmoid(gate), log_sigmoid(-gate) + counts)
        return jnp.sum(jnp.where(r["y"] == 0, zero, log_sigmoid(-gate) + counts))

    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(3), "c": isvi.real(), "d": isvi.real(3), "k": isvi.positive()},
        lambda z: (
            norm.logpdf(z["a"], 0, 3)
            + norm.logpdf(z["b"], 0, 1).sum()
            + norm.logpdf(z["c"], 0, 3)
            + norm.logpdf(z["d"], 0, 1).sum()
            + norm.logpdf(z["k"], 0, 5)
        ),
        log_likelihood,
    )
    return FlatProblem("inflated-counts", model, {"x": x, "y": y}, DESIGNS)


def sixty_effects(seed: int = 25, rows: int = 60_000) -> FlatProblem:
    """Logistic regression with sixty effects that are not centred, and their scale."""
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=(rows, 5)).astype(np.float32), rng.integers(60, size=rows).astype(np.int32)
    logits = -0.5 + x @ [0.5, -0.5, 0.2, 0.0, 0.1] + 0.4 * rng.normal(size=60)[group]
    y = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(5), "tau": isvi.positive(), "u": isvi.real(60)},
        lambda z: (
            norm.logpdf(z["a"], 0, 3)
            + norm.logpdf(z["b"], 0, 1).sum()
            + norm.logpdf(z["tau"])
            + norm.logpdf(z["u"]).sum()
        ),
        lambda z, r: log_sigmoid((2 * r["y"] - 1) * (z["a"] + r["x"] @ z["b"] + z["tau"] * z["u"][r["group"]])).sum(),
    )
    return FlatProblem("sixty-effects", model, {"x": x, "group": group, "y": y}, DESIGNS)


PROBLEMS = {
    "hinge": hinge,
    "silent-levels": silent_levels,
    "empty-counts": empty_counts,
    "absent-classes": absent_classes,
    "inflated-counts": inflated_counts,
    "sixty-effects": sixty_effects,
}
