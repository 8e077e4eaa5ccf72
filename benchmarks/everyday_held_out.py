"""Regressions that nothing in the method was chosen by, nor looked at before it was chosen: for its final state."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.special import gammaln, log_ndtr
from jax.scipy.stats import norm, t

import isvi
from benchmarks.flat_problems import FlatProblem


def hurdle(seed: int = 10, rows: int = 120_000) -> FlatProblem:
    """Donations: whether anything was given, and how much, with twenty levels in both."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    level = np.minimum(rng.geometric(0.35, rows) - 1, 19).astype(np.int32)
    logits = -2.0 + x @ [0.6, 0.0, -0.3] + 0.7 * rng.normal(size=20)[level]
    some = rng.random(rows) < 1 / (1 + np.exp(-logits))
    amount = 3.5 + x @ [0.2, 0.3, 0.0] + 0.5 * rng.normal(size=20)[level] + 0.9 * rng.normal(size=rows)
    data = {"x": x, "level": level, "some": some.astype(np.float32), "amount": (some * amount).astype(np.float32)}

    def log_likelihood(z: dict, r: dict) -> Any:
        logits = z["a"] + r["x"] @ z["b"] + z["given"][r["level"]]
        amounts = norm.logpdf(r["amount"], z["c"] + r["x"] @ z["d"] + z["large"][r["level"]], z["sigma"])
        return jnp.sum(log_sigmoid((2 * r["some"] - 1) * logits) + r["some"] * amounts)

    latents = {
        "a": isvi.real(),
        "b": isvi.real(3),
        "given": isvi.real(20),
        "c": isvi.real(),
        "d": isvi.real(3),
        "large": isvi.real(20),
        "sigma": isvi.positive(),
    }
    model = isvi.Model(latents, lambda z: sum(norm.logpdf(value, 0, 2).sum() for value in z.values()), log_likelihood)
    return FlatProblem("hurdle", model, data)


def censored(seed: int = 11, rows: int = 80_000) -> FlatProblem:
    """Tobit regression: hours, 40% of them zero, on age, its square and six more, in raw units."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, rows)
    x = np.column_stack([age, age**2, rng.normal(size=(rows, 5)), rng.random(rows) < 0.001]).astype(np.float32)
    mean = -20 + 2.0 * age - 0.025 * age**2 + x[:, 2:] @ [3.0, 0.0, -2.0, 1.0, 0.0, 8.0]
    y = np.maximum(mean + 12 * rng.normal(size=rows), 0).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        mean = z["a"] + r["x"] @ z["b"]
        seen = norm.logpdf(r["y"], mean, z["sigma"])
        return jnp.sum(jnp.where(r["y"] > 0, seen, log_ndtr(-mean / z["sigma"])))

    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(8), "sigma": isvi.positive()},
        lambda z: norm.logpdf(z["a"], 0, 100) + norm.logpdf(z["b"], 0, 20).sum() + norm.logpdf(z["sigma"], 0, 50),
        log_likelihood,
    )
    return FlatProblem("censored", model, {"x": x, "y": y})


def sloped_counts(seed: int = 12, rows: int = 90_000) -> FlatProblem:
    """Negative binomial counts with an intercept and a slope for each of forty shops, centred, and their scales."""
    rng = np.random.default_rng(seed)
    x, shop = rng.normal(size=rows).astype(np.float32), rng.integers(40, size=rows).astype(np.int32)
    effects = np.array([1.0, -0.3]) + rng.normal(size=(40, 2)) * [0.5, 0.1]
    rate = np.exp(effects[shop, 0] + effects[shop, 1] * x)
    y = rng.poisson(rate * rng.gamma(3.0, 1 / 3.0, rows)).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        beta, k = z["u"][r["shop"]], z["k"]
        eta = beta[:, 0] + beta[:, 1] * r["x"]
        choose = gammaln(r["y"] + k) - gammaln(k)
        return jnp.sum(choose + k * jnp.log(k) + r["y"] * eta - (r["y"] + k) * jnp.logaddexp(jnp.log(k), eta))

    def log_prior(z: dict) -> Any:
        effects = norm.logpdf(z["u"], z["mean"], z["spread"]).sum()
        return (
            effects + norm.logpdf(z["mean"], 0, 5).sum() + norm.logpdf(z["spread"]).sum() + norm.logpdf(z["k"], 0, 10)
        )

    latents = {"mean": isvi.real(2), "spread": isvi.positive(2), "k": isvi.positive(), "u": isvi.real(40, 2)}
    return FlatProblem("sloped-counts", isvi.Model(latents, log_prior, log_likelihood), {"x": x, "shop": shop, "y": y})


def robust_groups(seed: int = 13, rows: int = 80_000) -> FlatProblem:
    """Student-t errors, eighty schools, non-centred, and their scale."""
    rng = np.random.default_rng(seed)
    x, school = rng.normal(size=(rows, 4)).astype(np.float32), rng.integers(80, size=rows).astype(np.int32)
    y = 50 + x @ [4.0, 0.0, -1.0, 2.0] + 3 * rng.normal(size=80)[school] + 8 * rng.standard_t(5, rows)
    model = isvi.Model(
        {
            "a": isvi.real(),
            "b": isvi.real(4),
            "sigma": isvi.positive(),
            "nu": isvi.positive(),
            "tau": isvi.positive(),
            "u": isvi.real(80),
        },
        lambda z: (
            norm.logpdf(z["a"], 0, 100)
            + norm.logpdf(z["b"], 0, 10).sum()
            + norm.logpdf(z["sigma"], 0, 20)
            + jnp.log(z["nu"])
            - 0.1 * z["nu"]
            + norm.logpdf(z["tau"], 0, 10)
            + norm.logpdf(z["u"]).sum()
        ),
        lambda z, r: t.logpdf(
            r["y"], z["nu"], z["a"] + r["x"] @ z["b"] + z["tau"] * z["u"][r["school"]], z["sigma"]
        ).sum(),
    )
    return FlatProblem("robust-groups", model, {"x": x, "school": school, "y": y.astype(np.float32)})


def correlated_probit(seed: int = 14, rows: int = 100_000) -> FlatProblem:
    """Probit regression: ten predictors that correlate by 0.98, a polynomial of one of them, and a dummy of 25 rows."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 1))
    x = np.sqrt(0.98) * common + np.sqrt(0.02) * rng.normal(size=(rows, 10))
    x = np.column_stack([x, x[:, 0] ** 2, x[:, 0] ** 3, rng.permutation(rows) < 25]).astype(np.float32)
    eta = -1.0 + x @ np.array([0.5, -0.5, 0.3, 0, 0, 0.2, 0, 0, -0.2, 0.1, 0.1, 0.02, 1.0])
    y = (rng.normal(size=rows) < eta).astype(np.float32)
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(13)},
        lambda z: norm.logpdf(z["a"], 0, 5) + norm.logpdf(z["b"], 0, 2).sum(),
        lambda z, r: log_ndtr((2 * r["y"] - 1) * (z["a"] + r["x"] @ z["b"])).sum(),
    )
    return FlatProblem("correlated-probit", model, {"x": x, "y": y})


def decay(seed: int = 15, rows: int = 60_000) -> FlatProblem:
    """A curve that falls to a floor, for twelve machines with heights of their own around a common one."""
    rng = np.random.default_rng(seed)
    time, machine = rng.uniform(0, 10, rows).astype(np.float32), rng.integers(12, size=rows).astype(np.int32)
    heights = 5 + rng.normal(size=12)
    y = (1.0 + heights[machine] * np.exp(-0.35 * time) + 0.7 * rng.normal(size=rows)).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        mean = z["floor"] + z["heights"][r["machine"]] * jnp.exp(-z["rate"] * r["time"])
        return norm.logpdf(r["y"], mean, z["sigma"]).sum()

    model = isvi.Model(
        {
            "floor": isvi.real(),
            "rate": isvi.positive(),
            "common": isvi.real(),
            "heights": isvi.real(12),
            "spread": isvi.positive(),
            "sigma": isvi.positive(),
        },
        lambda z: (
            norm.logpdf(z["floor"], 0, 5)
            + norm.logpdf(z["rate"])
            + norm.logpdf(z["common"], 0, 10)
            + norm.logpdf(z["heights"], z["common"], z["spread"]).sum()
            + norm.logpdf(z["spread"], 0, 3)
            + norm.logpdf(z["sigma"], 0, 3)
        ),
        log_likelihood,
    )
    return FlatProblem("decay", model, {"time": time, "machine": machine, "y": y})


PROBLEMS = {
    "hurdle": hurdle,
    "censored": censored,
    "sloped-counts": sloped_counts,
    "robust-groups": robust_groups,
    "correlated-probit": correlated_probit,
    "decay": decay,
}
