"""Evaluating the log joint of all rows: memory, precision, and how many passes by default."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.stats import norm

import isvi
from isvi.results.weights import evaluation

OPTIONS = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.0), "budget": 1, "initial_scale": 0.3}
ROWS = np.random.default_rng(3).normal(2.0, 1.0, size=50)


def callable_fit(sizes: list[int]) -> isvi.Fit:
    """A model evaluated on the host, which notes how many draws it is asked for at once."""

    def value_and_gradient(z, rows):
        sizes.append(len(z))
        residuals = rows[None] - z
        return -0.5 * (residuals**2).sum(axis=1), residuals.sum(axis=1, keepdims=True)

    model = isvi.from_gradient(value_and_gradient, 1, vectorized=True, log_prior=lambda z: norm.logpdf(z).sum())
    return isvi.fit(model, ROWS, batch_size=20, **OPTIONS)


def test_draws_are_evaluated_in_pieces(monkeypatch):
    sizes: list[int] = []
    fit = callable_fit(sizes)
    whole = evaluation.evaluate(fit, 12, seed=0)
    monkeypatch.setattr(evaluation, "VALUES_AT_ONCE", 100)  # five draws of mini-batches of 20
    sizes.clear()
    pieces = evaluation.evaluate(fit, 12, seed=0)
    assert max(sizes) == 5
    assert sum(sizes) == 3 * pieces.passes
    np.testing.assert_allclose(pieces.log_joint, whole.log_joint, rtol=1e-12)
    np.testing.assert_allclose(pieces.log_density, whole.log_density, rtol=1e-12)


@pytest.mark.parametrize(("rows", "draws"), [(100, 2000), (200_000, 500), (10**7, 100)])
def test_larger_data_get_fewer_draws(rows, draws):
    model = isvi.Model({"m": isvi.real()}, lambda z: norm.logpdf(z["m"]))
    dataset = replace(isvi.Dataset.from_arrays(ROWS), size=rows)
    approximation = isvi.approximate(isvi.MeanField(), model.latents)
    fit = SimpleNamespace(model=model, approximation=approximation, data=lambda: dataset)
    assert evaluation.default_draws(fit) == draws


def test_models_may_close_over_double_precision_arrays():
    """Traced in single precision while fitting, such an array must not clash when evaluated in double precision."""
    ones = np.ones(1)
    model = isvi.Model(
        {"m": isvi.real(1)},
        lambda z: norm.logpdf(z["m"], ones).sum(),
        lambda z, x: norm.logpdf(x, (z["m"] * ones)[0]).sum(),
    )
    fit = isvi.fit(model, ROWS, batch_size=20, initial={"m": [2.0]}, **OPTIONS)
    one = evaluation.evaluate(fit, 10, seed=0)
    rows = ROWS.astype(np.float32).astype(float)
    exact = -0.5 * ((rows[:, None] - one.draws[:, 0]) ** 2).sum(axis=0) - 0.5 * (one.draws[:, 0] - 1) ** 2
    np.testing.assert_allclose(one.log_joint, exact - 51 * 0.5 * np.log(2 * np.pi), rtol=1e-12)


def test_models_may_scan_over_the_data():
    """The carry starts as a float of the data, and goes on as one of the draws."""
    model = isvi.Model(
        {"m": isvi.real()},
        lambda z: norm.logpdf(z["m"]),
        lambda z, x: jax.lax.scan(lambda last, row: (row * z["m"], norm.logpdf(row, last)), x[0], x)[1].sum(),
    )
    fit = isvi.fit(model, ROWS, initial={"m": 0.3}, **OPTIONS)
    assert np.isfinite(fit.elbo(4).value)
    assert fit.diagnose(100).slope is not None


def test_entropy_and_density_agree():
    """The mean of -log q over draws is the entropy: within 5 standard errors."""
    model = isvi.Model({"m": isvi.real(2)}, lambda z: norm.logpdf(z["m"]).sum())
    fit = isvi.fit(model, initial={"m": jnp.zeros(2)}, **OPTIONS)
    one = evaluation.evaluate(fit, 1000, seed=0)
    error = one.log_density.std() / np.sqrt(1000)
    assert -one.log_density.mean() == pytest.approx(one.entropy, abs=5 * error)
