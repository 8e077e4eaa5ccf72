"""The log-normal family against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from isvi.core.errors import ConfigurationError
from isvi.core.latents import positive, real, simplex
from isvi.families import LogNormal, approximate
from isvi.families.gaussian import DiagonalParams
from isvi.families.log_normal import LogNormalFactors


def scipy_log_normal(params: DiagonalParams):
    loc, log_scale = (np.asarray(part, np.float64) for part in params)
    return stats.lognorm(np.exp(log_scale), scale=np.exp(loc))


def grid() -> tuple[DiagonalParams, np.ndarray]:
    loc, scale, level = (x.ravel() for x in np.meshgrid([-3.0, 0.0, 4.0], [0.01, 0.5, 3.0], [0.01, 0.3, 0.5, 0.99]))
    return DiagonalParams(jnp.asarray(loc), jnp.log(jnp.asarray(scale))), level


def test_draws_have_the_right_moments():
    """Mean and second moment within 5 standard errors, 3 scales: false-failure rate about 3.5e-6."""
    loc, sigma = np.array([-2.0, 0.0, 3.0]), np.array([0.02, 0.3, 0.5])
    num = 40_000
    params = DiagonalParams(jnp.asarray(loc), jnp.log(jnp.asarray(sigma)))
    draws = np.asarray(LogNormalFactors(3).draw(jax.random.key(0), params, num, antithetic=False), np.float64)
    moment = {power: np.exp(power * loc + power**2 * sigma**2 / 2) for power in (1, 2, 4)}
    for power in (1, 2):
        error = (draws**power).mean(axis=0) - moment[power]
        assert np.all(np.abs(error) < 5 * np.sqrt((moment[2 * power] - moment[power] ** 2) / num))


def test_against_scipy():
    """Density, entropy, and the path along central differences of log quantiles (own error about 1e-8)."""
    with jax.enable_x64(True):
        params, level = grid()
        factors, exact = LogNormalFactors(level.size), scipy_log_normal(params)
        z = jnp.asarray(exact.ppf(level))
        derivatives = jax.grad(lambda p: jnp.log(factors.path(p, z)).sum())(params)
        np.testing.assert_allclose(factors.path(params, z), z)
        np.testing.assert_allclose(factors.log_density(params, z), exact.logpdf(z), rtol=1e-9)
        np.testing.assert_allclose(factors.entropy(params), exact.entropy(), rtol=1e-9)
        for name, derivative in derivatives._asdict().items():
            moved = [params._replace(**{name: getattr(params, name) + step}) for step in (1e-4, -1e-4)]
            above, below = (np.log(scipy_log_normal(p).ppf(level)) for p in moved)
            np.testing.assert_allclose(derivative, (above - below) / 2e-4, rtol=1e-6, atol=1e-8)


def test_jacobian_is_that_of_the_transform():
    with jax.enable_x64(True):
        params = DiagonalParams(jnp.array([0.3, -1.0]), jnp.array([-0.5, 0.2]))
        factors, noise = LogNormalFactors(2), jnp.array([0.7, -1.1])
        jacobian = jax.jacfwd(lambda eps: factors.transform(params, eps))(noise)
        ours = factors.log_jacobian(params, factors.transform(params, noise))
        np.testing.assert_allclose(ours, jnp.log(jnp.diagonal(jacobian)), rtol=1e-12)


def test_base_density_is_the_standard_normal():
    """What the paper's weights are made of."""
    params, z = DiagonalParams(jnp.array([0.3]), jnp.array([-0.5])), jnp.array([2.0])
    eps = (np.log(2.0) - 0.3) / np.exp(-0.5)
    np.testing.assert_allclose(LogNormalFactors(1).base_log_density(params, z), stats.norm.logpdf([eps]), rtol=1e-5)


def test_entropy_gradient_is_one_in_both_parameters():
    params = DiagonalParams(jnp.array([0.3, 5.0]), jnp.array([-0.5, 1.0]))
    gradient = jax.grad(lambda p: LogNormalFactors(2).entropy(p).sum())(params)
    jax.tree.map(lambda part: np.testing.assert_allclose(part, 1), gradient)


def test_path_gradient_is_unbiased():
    """E[dz/dl] = d/dl exp(loc + sigma^2/2). 4 comparisons within 5 standard errors: false-failure rate about 2.5e-6."""
    num, factors = 40_000, LogNormalFactors(2)
    loc, sigma = np.array([0.0, 1.0]), np.array([0.3, 0.7])
    params = DiagonalParams(jnp.asarray(loc), jnp.log(jnp.asarray(sigma)))
    draws = factors.draw(jax.random.key(1), params, num, antithetic=False)
    samples = jax.vmap(jax.grad(lambda p, z: factors.path(p, z).sum()), (None, 0))(params, draws)
    mean = np.exp(loc + sigma**2 / 2)
    for sample, truth in zip(samples, (mean, mean * sigma**2), strict=True):
        error = np.asarray(sample.mean(axis=0)) - truth
        assert np.all(np.abs(error) < 5 * np.asarray(sample.std(axis=0)) / np.sqrt(num))


def test_antithetic_pairs_mirror_the_logarithm():
    params = DiagonalParams(jnp.array([0.3, -1.0]), jnp.array([-0.5, 0.2]))
    draws = LogNormalFactors(2).draw(jax.random.key(2), params, 10, antithetic=True)
    np.testing.assert_allclose(jnp.log(draws[:5]) + jnp.log(draws[5:]), 2 * jnp.tile(params.loc, (5, 1)), atol=1e-5)


def test_extreme_parameters_give_finite_values():
    loc, log_scale = (jnp.asarray(part.ravel()) for part in np.meshgrid([-200.0, 0.0, 200.0], [-20.0, 5.0]))
    factors, params = LogNormalFactors(6), DiagonalParams(loc, log_scale)
    draws = factors.draw(jax.random.key(3), params, 50, antithetic=False)
    assert jnp.all((draws >= jnp.finfo(draws.dtype).tiny) & jnp.isfinite(draws))
    moves = jax.grad(lambda p, z: jnp.log(factors.path(p, z)).sum())
    everything = [jax.vmap(part, (None, 0))(params, draws) for part in (factors.log_density, moves)]
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(everything))


def test_initial_parameters_have_the_given_moments():
    location, scale = jnp.array([0.01, 1.0, 40.0]), jnp.array([0.004, 0.1, 50.0])
    start = scipy_log_normal(LogNormalFactors(3).init(location, scale))
    np.testing.assert_allclose(start.mean(), location, rtol=1e-5)
    np.testing.assert_allclose(start.std(), scale, rtol=1e-5)


def test_impossible_initial_values_are_brought_back():
    start = LogNormalFactors(3).init(jnp.array([0.0, -1.0, 1.0]), jnp.array([1.0, 1.0, 0.0]))
    assert all(jnp.all(jnp.isfinite(part)) for part in start)


def test_plan_and_support():
    approximation = approximate(LogNormal(), {"a": positive(3), "b": positive(via="exp")})
    assert (approximation.dim, approximation.symmetric) == (4, True)
    for latent in (real(), simplex(3)):
        with pytest.raises(ConfigurationError, match="'x' has support"):
            LogNormal().plan({"x": latent})
