"""The reference answers that the demo and the benchmarks compare with."""

import jax
import numpy as np
import pytest

import isvi
from isvi.datasets import LogisticRegression, load_flights


@pytest.fixture(scope="module")
def problem() -> LogisticRegression:
    flights = load_flights(3000)
    return LogisticRegression(flights.x, flights.late)


def test_flights_have_31_named_columns_whatever_the_rows() -> None:
    flights = load_flights(100)
    assert flights.x.shape == (100, 31)
    assert len(set(flights.names)) == 31
    assert set(np.unique(flights.late)) == {0.0, 1.0}


def test_mode_has_no_gradient(problem: LogisticRegression) -> None:
    """Newton's method against JAX's gradient of the same log joint, in float64."""
    mode, covariance = problem.laplace
    model = problem.model()
    with jax.enable_x64(True):
        data = {name: np.asarray(column, np.float64) for name, column in problem.data.items()}
        joint = lambda w: model.log_prior({"w": w}) + model.log_likelihood({"w": w}, data)  # noqa: E731
        gradient, hessian = jax.grad(joint)(mode), jax.hessian(joint)(mode)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)
    np.testing.assert_allclose(-np.linalg.inv(hessian), covariance, rtol=1e-6, atol=1e-10)


def test_elbo_agrees_with_draws(problem: LogisticRegression) -> None:
    """Quadrature against Monte Carlo in isvi.Fit.elbo: within 4.5 standard errors (false failures: 1e-5)."""
    fit = isvi.fit(problem.model(), problem.data, family=isvi.MeanField(), budget=300, seed=0)
    estimate = fit.elbo(2000)
    mean, log_scale = (np.asarray(part, np.float64) for part in fit.params)
    assert problem.elbo(mean, np.exp(log_scale)) == pytest.approx(estimate.value, abs=4.5 * estimate.standard_error)


def test_optimum_is_the_best_nearby(problem: LogisticRegression) -> None:
    mean, sd = problem.mean_field_optimum
    best = problem.elbo(mean, sd)
    rng = np.random.default_rng(0)
    for _ in range(10):
        direction = rng.normal(size=(2, len(mean)))
        assert problem.elbo(mean + 0.05 * direction[0] * sd, sd * np.exp(0.05 * direction[1])) < best
