"""The low-rank Gaussian against the dense one that it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import isvi
from isvi.families.low_rank import LowRankGaussian, LowRankParams

FACTORS = LowRankGaussian(1, 4, 2)


@pytest.fixture
def params() -> LowRankParams:
    generator = np.random.default_rng(1)
    return LowRankParams(*(jnp.asarray(generator.normal(size=shape)) for shape in (4, 4, (4, 2))))


def covariance(params: LowRankParams) -> np.ndarray:
    scale, factor = np.exp(params.log_scale), np.asarray(params.factor)
    return scale[:, None] * (np.eye(4) + factor @ (2 * np.eye(2) + factor.T @ factor) @ factor.T) * scale


@pytest.mark.usefixtures("x64")
def test_density_and_entropy(params):
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    dense = multivariate_normal(np.asarray(params.loc), covariance(params))
    z = np.random.default_rng(2).normal(size=4)
    np.testing.assert_allclose(FACTORS.log_density(params, jnp.asarray(z)), [dense.logpdf(z)], rtol=1e-9)
    np.testing.assert_allclose(FACTORS.entropy(params), [dense.entropy()], rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_standardize_undoes_transform(params):
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    noise = jnp.asarray(np.random.default_rng(3).normal(size=4))
    np.testing.assert_allclose(FACTORS.standardize(params, FACTORS.transform(params, noise)), noise, rtol=1e-9)


def test_draws_have_the_covariance(params):
    """100,000 draws: entries of the empirical covariance, in units of the sds, have errors of at most
    sqrt(2 / 100,000) = 0.0045; six times that fails once in more than 1e7."""
    draws = np.asarray(FACTORS.draw(jax.random.key(0), params, 100_000, antithetic=False))
    true = covariance(params)
    sd = np.sqrt(np.diag(true))
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sd, sd), true / np.outer(sd, sd), atol=0.027)


def test_a_fit_finds_a_correlated_gaussian():
    """A posterior of exactly this shape. "converged" promises every sd within 10%; pairs of a Gaussian have no noise
    but that of single precision."""
    direction = np.array([1.0, -1.0, 0.5, 0.5, 0.0])
    wanted = np.diag([1.0, 0.5, 2.0, 1.0, 1.0]) + 2 * np.outer(direction, direction)
    precision = jnp.asarray(np.linalg.inv(wanted))
    model = isvi.Model({"z": isvi.real(5)}, lambda values: -0.5 * values["z"] @ precision @ values["z"])
    fit = isvi.fit(model, family=isvi.LowRank(rank=1))
    assert fit.status.kind == "converged"
    factor = np.asarray(fit.approximation.factor(fit.params))
    sds = np.sqrt(np.diagonal(wanted))
    np.testing.assert_allclose((factor @ factor.T - wanted) / np.outer(sds, sds), 0, atol=0.05)


@pytest.mark.parametrize(("rank", "message"), [(0, "at least 1"), (9, "at least that many dimensions")])
def test_bad_ranks(rank, message):
    with pytest.raises(isvi.ConfigurationError, match=message):
        isvi.fit(isvi.Model({"z": isvi.real(2)}, lambda z: -0.5 * z["z"] @ z["z"]), family=isvi.LowRank(rank))
