"""Regressions as people have them: raw units, rare rows, more coefficients than the data can tell apart.

None was used to choose anything in the method when it was written down; the reference is that of
:mod:`benchmarks.flat_problems`. The ones with effects of groups are in :mod:`benchmarks.everyday_hierarchies`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, log_softmax, softplus
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import isvi
from benchmarks.flat_problems import FlatProblem


def _binary(rng: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    return (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(np.float32)


def _bernoulli(y: Any, logits: Any) -> Any:
    return jnp.sum(log_sigmoid((2 * y - 1) * logits))


def _cut_logits(y: Any, eta: Any, cuts: Any) -> Any:
    """Sum of log(sigmoid(upper - eta) - sigmoid(lower - eta)), without cancellation."""
    far = jnp.array([30.0], eta.dtype)
    cuts = jnp.concatenate([-far, cuts, far])
    upper, lower = cuts[y + 1] - eta, cuts[y] - eta
    return jnp.sum(-softplus(-upper) - softplus(lower) + jnp.log(-jnp.expm1(lower - upper)))


def raw_units(seed: int = 0, rows: int = 100_000) -> FlatProblem:
    """Logistic regression on raw years, incomes and a dummy that is 1 in thirty rows."""
    rng = np.random.default_rng(seed)
    year, income = rng.integers(1990, 2021, rows), np.exp(rng.normal(10.5, 0.7, rows))
    rare = (rng.permutation(rows) < 30).astype(float)
    x = np.column_stack([year, income, rare, rng.normal(size=(rows, 3))]).astype(np.float32)
    logits = -0.8 + 0.04 * (year - 2005) + 0.4 * np.log(income / 36_000) + 1.2 * rare + x[:, 3:] @ [0.5, -0.3, 0.0]
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(6)},
        lambda z: norm.logpdf(z["a"], 0, 100) + norm.logpdf(z["b"], 0, 5).sum(),
        lambda z, r: _bernoulli(r["y"], z["a"] + r["x"] @ z["b"]),
    )
    return FlatProblem("raw-units", model, {"x": x, "y": _binary(rng, logits)})


def interactions(seed: int = 0, rows: int = 150_000) -> FlatProblem:
    """Linear regression on two categories, all their levels, all their interactions and an intercept."""
    rng = np.random.default_rng(seed)
    first = rng.choice(8, rows, p=np.geomspace(1, 0.02, 8) / np.geomspace(1, 0.02, 8).sum()).astype(np.int32)
    second = rng.choice(6, rows, p=np.geomspace(1, 0.05, 6) / np.geomspace(1, 0.05, 6).sum()).astype(np.int32)
    mean = 3 + rng.normal(size=8)[first] + rng.normal(size=6)[second] + 0.3 * rng.normal(size=(8, 6))[first, second]
    y = (mean + 1.5 * rng.normal(size=rows)).astype(np.float32)
    model = isvi.Model(
        {
            "a": isvi.real(),
            "first": isvi.real(8),
            "second": isvi.real(6),
            "both": isvi.real(8, 6),
            "sigma": isvi.positive(),
        },
        lambda z: (
            norm.logpdf(z["a"], 0, 10)
            + norm.logpdf(z["first"], 0, 2).sum()
            + norm.logpdf(z["second"], 0, 2).sum()
            + norm.logpdf(z["both"], 0, 0.5).sum()
            + norm.logpdf(z["sigma"], 0, 5)
        ),
        lambda z, r: norm.logpdf(
            r["y"],
            z["a"] + z["first"][r["first"]] + z["second"][r["second"]] + z["both"][r["first"], r["second"]],
            z["sigma"],
        ).sum(),
    )
    return FlatProblem("interactions", model, {"first": first, "second": second, "y": y})


def softmax(seed: int = 0, rows: int = 150_000) -> FlatProblem:
    """Five classes with coefficients for each, so that only the prior fixes their level; one class has about fifty
    rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    logits = np.array([1.0, 0.5, 0.0, -1.0, -8.3]) + x @ rng.normal(0, 0.5, (6, 5))
    y = np.argmax(logits + rng.gumbel(size=(rows, 5)), axis=1).astype(np.int32)
    model = isvi.Model(
        {"a": isvi.real(5), "b": isvi.real(6, 5)},
        lambda z: norm.logpdf(z["a"], 0, 5).sum() + norm.logpdf(z["b"], 0, 2).sum(),
        lambda z, r: jnp.take_along_axis(log_softmax(z["a"] + r["x"] @ z["b"]), r["y"][:, None], axis=1).sum(),
    )
    return FlatProblem("softmax", model, {"x": x, "y": y})


def rare_ordinal(seed: int = 0, rows: int = 120_000) -> FlatProblem:
    """Ordinal regression with six classes, of which the second has about forty rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 10)).astype(np.float32)
    latent = x @ rng.normal(0, 0.4, 10) + rng.logistic(size=rows)
    y = np.digitize(latent, [-2.0, -1.9968, -0.5, 0.7, 2.5]).astype(np.int32)
    model = isvi.Model(
        {"b": isvi.real(10), "cuts": isvi.ordered(5)},
        lambda z: norm.logpdf(z["b"]).sum() + norm.logpdf(z["cuts"], 0, 3).sum(),
        lambda z, r: _cut_logits(r["y"], r["x"] @ z["b"], z["cuts"]),
    )
    return FlatProblem("rare-ordinal", model, {"x": x, "y": y})


def gamma_regression(seed: int = 0, rows: int = 80_000) -> FlatProblem:
    """Gamma regression with a log link: costs around e^7, an intercept, slopes and thirty levels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    level = np.minimum(rng.geometric(0.15, rows) - 1, 29).astype(np.int32)
    mean = np.exp(7 + x @ [0.3, -0.2, 0.1] + 0.5 * rng.normal(size=30)[level])
    y = (rng.gamma(1.7, size=rows) * mean / 1.7).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        eta, k = z["a"] + r["x"] @ z["b"] + z["levels"][r["level"]], z["k"]
        return jnp.sum(k * (jnp.log(k) - eta) - gammaln(k) + (k - 1) * jnp.log(r["y"]) - k * r["y"] * jnp.exp(-eta))

    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(3), "levels": isvi.real(30), "k": isvi.positive()},
        lambda z: (
            norm.logpdf(z["a"], 0, 10)
            + norm.logpdf(z["b"], 0, 2).sum()
            + norm.logpdf(z["levels"], 0, 1).sum()
            + norm.logpdf(z["k"], 0, 5)
        ),
        log_likelihood,
    )
    return FlatProblem("gamma", model, {"x": x, "level": level, "y": y})


def beta_regression(seed: int = 0, rows: int = 80_000) -> FlatProblem:
    """Beta regression: mean and precision with linear predictors of their own."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 5)).astype(np.float32)
    mean = 1 / (1 + np.exp(1.5 - x @ [0.5, -0.4, 0.3, 0.0, 0.1]))
    precision = np.exp(2.5 + x @ [0.2, 0.0, -0.3, 0.1, 0.0])
    y = np.clip(rng.beta(mean * precision, (1 - mean) * precision), 1e-5, 1 - 1e-5).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        eta, phi = z["a"] + r["x"] @ z["b"], jnp.exp(z["c"] + r["x"] @ z["d"])
        up, down = phi * jnp.exp(log_sigmoid(eta)), phi * jnp.exp(log_sigmoid(-eta))
        logs = (up - 1) * jnp.log(r["y"]) + (down - 1) * jnp.log1p(-r["y"])
        return jnp.sum(gammaln(phi) - gammaln(up) - gammaln(down) + logs)

    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(5), "c": isvi.real(), "d": isvi.real(5)},
        lambda z: sum(norm.logpdf(value, 0, 3).sum() for value in z.values()),
        log_likelihood,
    )
    return FlatProblem("beta", model, {"x": x, "y": y})


def many_zeros(seed: int = 0, rows: int = 200_000) -> FlatProblem:
    """Claims: Poisson with an exposure, 97% zeros, and fifty levels of which the rarest have a few claims."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    level = np.minimum(rng.geometric(0.12, rows) - 1, 49).astype(np.int32)
    exposure = rng.uniform(0.02, 1, rows).astype(np.float32)
    eta = -3.0 + x @ [0.3, 0.2, -0.2, 0.0] + 0.5 * rng.normal(size=50)[level]
    y = rng.poisson(exposure * np.exp(eta)).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        eta = jnp.log(r["exposure"]) + z["a"] + r["x"] @ z["b"] + z["levels"][r["level"]]
        return jnp.sum(r["y"] * eta - jnp.exp(eta))

    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(4), "levels": isvi.real(50)},
        lambda z: norm.logpdf(z["a"], 0, 5) + norm.logpdf(z["b"]).sum() + norm.logpdf(z["levels"]).sum(),
        log_likelihood,
    )
    return FlatProblem("many-zeros", model, {"x": x, "level": level, "exposure": exposure, "y": y})


def uneven_noise(seed: int = 0, rows: int = 100_000) -> FlatProblem:
    """Linear regression whose log sigma has a linear predictor, with twelve levels in both."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    level = np.minimum(rng.geometric(0.45, rows) - 1, 11).astype(np.int32)
    mean = 20 + x @ [2.0, -1.0, 0.5, 0.0] + 2 * rng.normal(size=12)[level]
    log_sigma = 0.5 + x @ [0.4, 0.0, -0.3, 0.2] + 0.5 * rng.normal(size=12)[level]
    y = (mean + np.exp(log_sigma) * rng.normal(size=rows)).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        mean = z["a"] + r["x"] @ z["b"] + z["means"][r["level"]]
        return norm.logpdf(r["y"], mean, jnp.exp(z["c"] + r["x"] @ z["d"] + z["widths"][r["level"]])).sum()

    model = isvi.Model(
        {
            "a": isvi.real(),
            "b": isvi.real(4),
            "means": isvi.real(12),
            "c": isvi.real(),
            "d": isvi.real(4),
            "widths": isvi.real(12),
        },
        lambda z: sum(norm.logpdf(value, 0, 10 if name == "a" else 3).sum() for name, value in z.items()),
        log_likelihood,
    )
    return FlatProblem("uneven-noise", model, {"x": x, "level": level, "y": y})


PROBLEMS = {
    "raw-units": raw_units,
    "interactions": interactions,
    "softmax": softmax,
    "rare-ordinal": rare_ordinal,
    "gamma": gamma_regression,
    "beta": beta_regression,
    "many-zeros": many_zeros,
    "uneven-noise": uneven_noise,
}
