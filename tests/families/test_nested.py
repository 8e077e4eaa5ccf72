"""A Gaussian given a few drivers: its inverse, its density and its entropy, against slow ways of having them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import multivariate_normal

from isvi.families.nested import NestedGaussian, conditional, features, mean_features, powers

SIZE, DRIVERS = 6, (4, 1)
FACTORS = NestedGaussian(1, SIZE, DRIVERS)


def some_params(bend: float = 0.2):
    random = np.random.default_rng(0)
    factor = np.tril(random.normal(size=(SIZE, SIZE))) * 0.3 + np.eye(SIZE)
    with jax.enable_x64(True):
        straight = FACTORS.straight(jnp.asarray(random.normal(size=SIZE)), jnp.asarray(factor))
        outer = straight.outer._replace(
            skew=jnp.asarray([0.3, -0.2]), tail=jnp.asarray([0.1, 0.2]), scales=jnp.asarray([[0.0, 0.0], [0.2, 0.0]])
        )
        more = [jnp.asarray(bend * random.normal(size=leaf.shape)) for leaf in (straight.mean, straight.shape)]
        return straight._replace(outer=outer, mean=straight.mean + more[0], shape=straight.shape + more[1])


def test_unbent_it_is_the_gaussian():
    random = np.random.default_rng(1)
    location, factor = random.normal(size=SIZE), np.tril(random.normal(size=(SIZE, SIZE))) + 2 * np.eye(SIZE)
    with jax.enable_x64(True):
        params = FACTORS.straight(jnp.asarray(location), jnp.asarray(factor))
        points = random.normal(size=(20, SIZE))
        density = jax.vmap(FACTORS.log_density, (None, 0))(params, points)[:, 0]
        np.testing.assert_allclose(density, multivariate_normal.logpdf(points, location, factor @ factor.T), rtol=1e-9)
        straight = 0.5 * SIZE * np.log(2 * np.pi * np.e) + np.log(np.abs(np.diagonal(factor))).sum()
        np.testing.assert_allclose(FACTORS.entropy(params)[0], straight, rtol=1e-9)


def test_the_inverse_is_one():
    with jax.enable_x64(True):
        params, noise = some_params(), jnp.asarray(np.random.default_rng(2).normal(size=(50, SIZE)))
        there = jax.vmap(FACTORS.transform, (None, 0))(params, noise)
        back = jax.vmap(FACTORS.standardize, (None, 0))(params, there)
        np.testing.assert_allclose(back, noise, atol=1e-9)


def test_the_jacobian_is_that_of_automatic_differentiation():
    with jax.enable_x64(True):
        params, noise = some_params(), jnp.asarray(np.random.default_rng(3).normal(size=SIZE))
        slow = jnp.linalg.slogdet(jax.jacobian(lambda one: FACTORS.transform(params, one))(noise))[1]
        fast = FACTORS.log_jacobian(params, FACTORS.transform(params, noise))[0]
        np.testing.assert_allclose(fast, slow, rtol=1e-9)


def test_the_entropy_is_that_of_draws():
    """40,000 draws: the log density has an sd of about 2, its mean a standard error of 0.01. Five of them; a false
    failure in two million."""
    with jax.enable_x64(True):
        params = some_params(0.1)
        draws = FACTORS.draw(jax.random.key(0), params, 40_000, antithetic=False)
        density = np.asarray(jax.vmap(FACTORS.log_density, (None, 0))(params, draws)[:, 0])
        assert abs(-density.mean() - float(FACTORS.entropy(params)[0])) < 5 * density.std() / 200


@pytest.mark.parametrize("drivers", [1, 2, 6])
def test_features_are_orthonormal(drivers):
    """Up to second order, but for what is beyond three sds, which is worth a few percent of a fourth power. The
    products of 200,000 draws have sds of up to 8: standard errors of 0.02. Means: of 0.002. Five of these, and 0.1."""
    noise = np.random.default_rng(4).normal(size=(200_000, drivers))
    seen = features(noise, np)
    assert seen.shape == (200_000, len(powers(drivers)))
    low = [number for number, one in enumerate(powers(drivers)) if sum(one) <= 2]
    np.testing.assert_allclose((seen.T @ seen / len(seen))[np.ix_(low, low)], np.eye(len(low)), atol=0.2)
    np.testing.assert_allclose(seen.mean(axis=0), mean_features(drivers), atol=0.02)
    np.testing.assert_allclose(features(jnp.asarray(noise[:5], jnp.float32)), seen[:5], rtol=1e-4, atol=1e-5)


def test_polynomials_go_through_what_is_one():
    """Modes that are quadratic in the noise of the drivers, and L that are exponentials of linear functions."""
    random, outer = np.random.default_rng(5), some_params().outer
    noise = np.clip(random.normal(size=(60, 2)), -3, 3)
    slopes, widths = random.normal(size=(2, 4)), 0.3 * random.normal(size=(2, 4))
    modes = noise @ slopes + noise[:, :1] ** 2
    factors = [np.diag(np.exp(one)) for one in noise @ widths]
    with jax.enable_x64(True):
        params = conditional(outer, noise, list(modes), factors, 1e-12)
        mean, shape, _ = FACTORS.given(params, jnp.asarray([0.5, -1.0]))
        widths_there = np.diagonal(np.asarray(params.base @ shape))
    expected = np.array([0.5, -1.0])
    np.testing.assert_allclose(mean, expected @ slopes + 0.25, atol=1e-6)
    np.testing.assert_allclose(widths_there, np.exp(expected @ widths), rtol=1e-6)
