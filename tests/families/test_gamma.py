"""The Gamma family against scipy, and its path derivative against quantiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from scipy import special, stats

from isvi.core.errors import ConfigurationError
from isvi.core.latents import constrained, interval, positive, real
from isvi.families import Gamma, approximate
from isvi.families.gamma import GammaFactors, GammaParams, gamma_velocity

NUM_DRAWS = 40_000


@jax.jit
def twelve_gammas(params: GammaParams, key: jax.Array) -> jax.Array:
    """Draws, compiled once for all tests."""
    return GammaFactors(12).draw(key, params, NUM_DRAWS, antithetic=False)


CONCENTRATIONS = [0.05, 0.3, 1.0, 4.0, 10.0, 60.0, 1e3, 1e4]
LEVELS = [0.01, 0.3, 0.5, 0.9, 0.999]


def scipy_gamma(params: GammaParams):
    """The same distributions, in double precision."""
    log_mean, log_concentration = (np.asarray(part, np.float64) for part in params)
    return stats.gamma(np.exp(log_concentration), scale=np.exp(log_mean - log_concentration))


def grid(dtype=jnp.float64, mean: float = 2.5) -> tuple[GammaParams, np.ndarray]:
    """Every concentration at every level of the CDF."""
    concentration, level = (part.ravel() for part in np.meshgrid(CONCENTRATIONS, LEVELS))
    log_concentration = jnp.asarray(np.log(concentration), dtype)
    return GammaParams(jnp.full_like(log_concentration, np.log(mean)), log_concentration), level


def test_draws_have_the_right_moments():
    """12 means and 12 variances within 5 standard errors: false-failure rate about 1.5e-5."""
    params = GammaParams(jnp.linspace(-3.0, 3.0, 12), jnp.log(jnp.geomspace(0.5, 2e3, 12)))
    draws = np.asarray(twelve_gammas(params, jax.random.key(0)), np.float64)
    mean, variance, _, kurtosis = scipy_gamma(params).stats(moments="mvsk")
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / NUM_DRAWS))
    assert np.all(np.abs(draws.var(axis=0) - variance) < 5 * variance * np.sqrt((kurtosis + 2) / NUM_DRAWS))


def test_log_density():
    with jax.enable_x64(True):
        params, level = grid()
        z = scipy_gamma(params).ppf(level)
        ours = jax.jit(GammaFactors(z.size).log_density)(params, jnp.asarray(z))
    np.testing.assert_allclose(ours, scipy_gamma(params).logpdf(z), rtol=1e-10, atol=1e-10)


def test_log_density_in_single_precision_at_the_concentrations_of_large_data():
    """The usual form errs by 0.1 here, and so do weights made from it."""
    params = GammaParams(jnp.full(500, np.log(2.0)), jnp.full(500, np.log(1e5)))
    z = jnp.asarray(scipy_gamma(params).rvs(random_state=1), jnp.float32)
    ours = jax.jit(GammaFactors(500).log_density)(params, z)
    np.testing.assert_allclose(ours, scipy_gamma(params).logpdf(np.asarray(z, np.float64)), atol=1e-3)


def path_derivatives(params: GammaParams, z: jax.Array) -> GammaParams:
    """d log z / d parameter, entry by entry."""
    value, gradient = jax.jit(lambda p, z: jax.vjp(lambda p: GammaFactors(z.size).path(p, z), p))(params, z)
    np.testing.assert_array_equal(value, z)
    return jax.tree.map(lambda part: part / z, gradient(jnp.ones_like(z))[0])


def test_path_follows_the_quantiles():
    """Central differences of log quantiles, step 1e-4: their own error is about 1e-8 relative, 1e-10 absolute."""
    with jax.enable_x64(True):
        params, level = grid()
        ours = path_derivatives(params, jnp.asarray(scipy_gamma(params).ppf(level)))
        for name, derivative in ours._asdict().items():
            moved = [params._replace(**{name: getattr(params, name) + step}) for step in (1e-4, -1e-4)]
            above, below = (np.log(scipy_gamma(p).ppf(level)) for p in moved)
            np.testing.assert_allclose(derivative, (above - below) / 2e-4, rtol=1e-6, atol=1e-8)


def test_velocity_agrees_with_jax():
    """``random_gamma_grad`` is another method (series and continued fractions), good to 1e-11 in float64."""
    with jax.enable_x64(True):
        params, level = grid(mean=1.0)
        a, ratio = jnp.exp(params.log_concentration), jnp.asarray(scipy_gamma(params).ppf(level))
        ours = jax.jit(gamma_velocity)(a, jnp.log(ratio)) * a * ratio
        np.testing.assert_allclose(ours, jax.lax.random_gamma_grad(a, a * ratio), rtol=1e-10)


def test_path_in_single_precision():
    """d log z / d log a = a V - 1 inherits the relative error of a V, 5e-5 at most, as an absolute one."""
    with jax.enable_x64(True):
        params, level = grid()
        # At the same numbers in both precisions, and none that single precision cannot hold.
        params = jax.tree.map(lambda part: part.astype(jnp.float32), params)
        z = jnp.asarray(np.maximum(scipy_gamma(params).ppf(level), 1e-37), jnp.float32)
        exact = path_derivatives(*jax.tree.map(lambda part: part.astype(jnp.float64), (params, z)))
        ours = path_derivatives(params, z)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), ours, exact)


def test_path_gradient_is_unbiased():
    """E[2 z dz/dl] = d/dl E[z^2], with E[z^2] = mean^2 (1 + 1/a). 24 comparisons within 5 standard errors:
    false-failure rate about 1.5e-5."""
    log_mean, log_concentration = np.linspace(-1.0, 1.0, 12), np.log(np.geomspace(0.4, 300.0, 12))
    factors, params = GammaFactors(12), GammaParams(jnp.asarray(log_mean), jnp.asarray(log_concentration))
    draws = twelve_gammas(params, jax.random.key(2))
    contribution = jax.grad(lambda p, z: jnp.sum(2 * jax.lax.stop_gradient(z) * factors.path(p, z)))
    samples = jax.jit(jax.vmap(contribution, (None, 0)))(params, draws)
    second_moment = np.exp(2 * log_mean) * (1 + np.exp(-log_concentration))
    exact = GammaParams(2 * second_moment, -np.exp(2 * log_mean - log_concentration))
    for sample, truth in zip(samples, exact, strict=True):
        error = np.asarray(sample.mean(axis=0)) - truth
        assert np.all(np.abs(error) < 5 * np.asarray(sample.std(axis=0)) / np.sqrt(NUM_DRAWS))


def entropy_and_gradient(params: GammaParams) -> tuple[jax.Array, GammaParams]:
    entropy, pull = jax.vjp(GammaFactors(params.log_mean.size).entropy, params)
    return entropy, pull(jnp.ones_like(entropy))[0]


def test_entropy_and_its_gradient():
    """In closed form: dH/dlog mean = 1, dH/dlog a = a + a (1 - a) trigamma(a) - 1. Also in single precision."""
    with jax.enable_x64(True):
        for dtype, tolerance in ((jnp.float64, 1e-9), (jnp.float32, 2e-6)):
            log_concentration = jnp.log(jnp.array([0.05, 0.7, 1.0, 9.0, 10.0, 11.0, 300.0, 1e6], dtype))
            params = GammaParams(jnp.full_like(log_concentration, 0.3), log_concentration)
            entropy, gradient = jax.jit(entropy_and_gradient)(params)
            exact_entropy = scipy_gamma(params).entropy()
            np.testing.assert_allclose(entropy, exact_entropy, rtol=tolerance, atol=10 * tolerance)
            a = np.exp(np.asarray(log_concentration, np.float64))
            exact = a + a * (1 - a) * special.polygamma(1, a) - 1
            np.testing.assert_allclose(gradient.log_mean, 1)
            np.testing.assert_allclose(gradient.log_concentration, exact, rtol=tolerance, atol=10 * tolerance)


def test_extreme_parameters_give_finite_values():
    mean, concentration = (part.ravel() for part in np.meshgrid([1e-20, 1.0, 1e20], [1e-3, 0.05, 1.0, 1e7]))
    params = GammaParams(*(jnp.asarray(np.log(part), jnp.float32) for part in (mean, concentration)))
    factors = GammaFactors(mean.size)

    draws = twelve_gammas(params, jax.random.key(3))[:50]

    @jax.jit
    def everything(params: GammaParams, draws: jax.Array) -> tuple:
        moves = jax.grad(lambda p, z: jnp.sum(jnp.log(factors.path(p, z))))
        score = jax.grad(lambda p, z: jnp.sum(factors.log_density(p, z)))
        density = jax.vmap(factors.log_density, (None, 0))(params, draws)
        at_draws = [jax.vmap(part, (None, 0))(params, draws) for part in (moves, score)]
        return density, *at_draws, *entropy_and_gradient(params)

    assert jnp.all((draws >= jnp.finfo(draws.dtype).tiny) & jnp.isfinite(draws))
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(everything(params, draws)))


def test_initial_parameters_have_the_given_moments():
    location, scale = jnp.array([0.01, 1.0, 40.0]), jnp.array([0.004, 0.1, 20.0])
    start = scipy_gamma(GammaFactors(3).init(location, scale))
    np.testing.assert_allclose(start.mean(), location, rtol=1e-5)
    np.testing.assert_allclose(start.std(), scale, rtol=1e-5)


def test_impossible_initial_values_are_brought_back():
    start = GammaFactors(3).init(jnp.array([0.0, -1.0, 1.0]), jnp.array([1.0, 1.0, 0.0]))
    assert all(jnp.all(jnp.isfinite(part)) for part in start)


def test_plan_covers_positive_latents_of_every_kind():
    latents = {"a": positive(3), "b": positive(2, 2, via="exp"), "c": constrained(constraints.nonnegative)}
    approximation = approximate(Gamma(), latents)
    assert (approximation.dim, approximation.num_factors) == (8, 8)
    assert all(entry.constrained for entry in approximation.coordinates.entries)


@pytest.mark.parametrize(
    "latent",
    [real(), interval(0.0, 1.0), constrained(constraints.greater_than(1.0))],
    ids=["real", "interval", "above 1"],
)
def test_other_supports_are_refused(latent):
    with pytest.raises(ConfigurationError, match="'x' has support"):
        Gamma().plan({"x": latent})


def test_what_a_gamma_cannot_do():
    factors, params = GammaFactors(1), GammaParams(jnp.zeros(1), jnp.zeros(1))
    assert not factors.symmetric
    with pytest.raises(ConfigurationError, match="antithetic"):
        factors.draw(jax.random.key(0), params, 2, antithetic=True)
    with pytest.raises(ConfigurationError, match="weights='exact'"):
        factors.base_log_density(params, jnp.ones(1))
