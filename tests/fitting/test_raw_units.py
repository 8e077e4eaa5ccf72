"""Predictors and outcomes in the units they come in: years, euros, kilometres."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import log_sigmoid
from jax.scipy.stats import norm

import isvi

ROWS = 30_000


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    year, income = random.integers(1990, 2021, ROWS), random.lognormal(10.5, 0.6, ROWS)
    store = random.integers(20, size=ROWS)
    eta = -1 + 0.03 * (year - 2005) + 0.5 * (np.log(income) - 10.5) + 0.4 * random.normal(size=20)[store]
    wage = 800 + 0.01 * income + 20 * (year - 1990) + 300 * random.normal(size=20)[store]
    x = np.column_stack([year, income])
    columns = {"x": x, "y": random.random(ROWS) < 1 / (1 + np.exp(-eta)), "wage": wage + 500 * random.normal(size=ROWS)}
    return {name: one.astype(np.float32) for name, one in columns.items()} | {"store": store.astype(np.int32)}


def visits() -> isvi.Model:
    return isvi.Model(
        {"a": isvi.real(), "b": isvi.real(2), "tau": isvi.positive(), "store": isvi.real(20)},
        lambda z: (
            norm.logpdf(z["a"], 0, 50)
            + norm.logpdf(z["b"]).sum()
            + norm.logpdf(z["tau"])
            + norm.logpdf(z["store"], 0, z["tau"]).sum()
        ),
        lambda z, r: log_sigmoid((2 * r["y"] - 1) * (z["a"] + r["x"] @ z["b"] + z["store"][r["store"]])).sum(),
    )


def wages() -> isvi.Model:
    return isvi.Model(
        {"a": isvi.real(), "b": isvi.real(2), "store": isvi.real(20), "sigma": isvi.positive()},
        lambda z: (
            norm.logpdf(z["a"], 0, 2000)
            + norm.logpdf(z["b"], 0, 100).sum()
            + norm.logpdf(z["store"], 0, 500).sum()
            + norm.logpdf(z["sigma"], 0, 1000)
        ),
        lambda z, r: norm.logpdf(r["wage"], z["a"] + r["x"] @ z["b"] + z["store"][r["store"]], z["sigma"]).sum(),
    )


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_predictors_that_were_not_scaled(rows, seed):
    """Against a Newton method on all rows; incomes of 36,000 next to a start of a hundredth are far off, and an
    intercept against years is a long way along a flat direction. The mode is within 0.1 sd of the mean."""
    fit = isvi.fit(visits(), rows, batch_size=500, seed=seed, progress=False)
    assert fit.status.kind == "converged"
    mean = fit.mean()
    design = np.column_stack([np.ones(ROWS), (rows["x"] - [2005, 36_000]) / [9, 20_000], np.eye(20)[rows["store"]]])
    prior = np.diag([0.0, 0.0, 0.0, *np.full(20, float(mean["tau"]) ** -2)])
    beta = np.zeros(23)
    for _ in range(30):
        p = 1 / (1 + np.exp(-design @ beta))
        hessian = (design * (p * (1 - p))[:, None]).T @ design + prior
        beta = beta + np.linalg.solve(hessian, design.T @ (rows["y"] - p) - prior @ beta)
    sd = np.sqrt(np.diagonal(np.linalg.inv(hessian)))
    found = np.asarray(mean["b"]) * [9, 20_000]
    np.testing.assert_allclose((found - beta[1:3]) / sd[1:3], 0, atol=0.2)


def test_an_outcome_that_was_not_scaled(rows):
    """Linear regression: given the noise, the posterior is in closed form."""
    fit = isvi.fit(wages(), rows, batch_size=500, progress=False)
    assert fit.status.kind == "converged"
    design = np.column_stack([np.ones(ROWS), rows["x"].astype(float), np.eye(20)[rows["store"]]])
    scale = np.array([2000, 100, 100, *np.full(20, 500.0)])
    sigma = float(fit.mean()["sigma"])
    precision = (design * scale).T @ (design * scale) / sigma**2 + np.eye(23)
    mean = scale * np.linalg.solve(precision, (design * scale).T @ rows["wage"].astype(float) / sigma**2)
    sd = scale * np.sqrt(np.diagonal(np.linalg.inv(precision)))
    found = np.concatenate([np.ravel(fit.mean()[name]) for name in ("a", "b", "store")])
    np.testing.assert_allclose((found - mean) / sd, 0, atol=0.1)
    residual = rows["wage"] - design @ mean
    assert sigma == pytest.approx(float(np.sqrt(np.mean(residual**2))), rel=0.01)


def test_the_start_is_as_far_from_zero_as_the_model_bears(rows):
    """Components that start alike would stay alike; but a hundredth of a unit of income is far."""
    from isvi.fitting.options import Options
    from isvi.fitting.setup import prepare

    scaled = rows | {"x": ((rows["x"] - rows["x"].mean(axis=0)) / rows["x"].std(axis=0)).astype(np.float32)}
    far = {}
    for name, data in (("raw", rows), ("scaled", scaled)):
        setup = prepare(visits(), data, Options(batch_size=500))
        far[name] = float(jnp.abs(setup.drawn_from.location(setup.checked_start())).max())
    assert 0.001 < far["scaled"] < 0.1
    assert far["raw"] < 1e-5
