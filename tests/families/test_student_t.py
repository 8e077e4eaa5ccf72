"""Student's t against scipy, and its path derivative, also along the degrees of freedom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from isvi.core.errors import ConfigurationError
from isvi.core.latents import positive, real
from isvi.families import StudentT, approximate
from isvi.families.student_t import DF_RANGE, StudentTFactors, StudentTParams, t_path

NUM_DRAWS = 40_000


@jax.jit
def six_ts(params: StudentTParams, key: jax.Array) -> jax.Array:
    """Draws, compiled once for all tests."""
    return StudentTFactors(6).draw(key, params, NUM_DRAWS, antithetic=False)


def lightness(df: np.ndarray | float) -> np.ndarray:
    """The parameter that gives these degrees of freedom."""
    least, most = np.log(DF_RANGE)
    return special.logit((np.log(df) - least) / (most - least))


def scipy_t(params: StudentTParams, df: np.ndarray | float):
    loc, log_scale = (np.asarray(part, np.float64) for part in params[:2])
    return stats.t(df, loc=loc, scale=np.exp(log_scale))


def grid() -> tuple[StudentTParams, np.ndarray, np.ndarray]:
    df, level = (part.ravel() for part in np.meshgrid([2.2, 3.0, 8.0, 40.0, 180.0], [1e-4, 0.1, 0.45, 0.5, 0.9, 0.999]))
    like = np.ones_like(df)
    params = StudentTParams(jnp.asarray(0.7 * like), jnp.asarray(-0.4 * like), jnp.asarray(lightness(df)))
    return params, df, level


def test_draws_have_the_right_moments():
    """6 means and 6 variances within 5 standard errors, df where the variance's own error is finite: false-failure
    rate about 7e-6."""
    df = np.geomspace(6.0, 150.0, 6)
    params = StudentTParams(jnp.linspace(-1.0, 3.0, 6), jnp.linspace(-2.0, 1.0, 6), jnp.asarray(lightness(df)))
    draws = np.asarray(six_ts(params, jax.random.key(0)), np.float64)
    mean, variance, _, kurtosis = scipy_t(params, df).stats(moments="mvsk")
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / NUM_DRAWS))
    assert np.all(np.abs(draws.var(axis=0) - variance) < 5 * variance * np.sqrt((kurtosis + 2) / NUM_DRAWS))


def test_against_scipy():
    with jax.enable_x64(True):
        params, df, level = grid()
        factors, exact = StudentTFactors(df.size), scipy_t(params, df)
        z = jnp.asarray(exact.ppf(level))
        np.testing.assert_allclose(factors.degrees(params), df)
        np.testing.assert_allclose(jax.jit(factors.log_density)(params, z), exact.logpdf(z), rtol=1e-9)
        # jax.scipy.special.betaln, which numpyro's entropy uses, is good to 4e-7.
        np.testing.assert_allclose(jax.jit(factors.entropy)(params), exact.entropy(), atol=1e-6)
        noise = (z - params.loc) / jnp.exp(params.log_scale)
        np.testing.assert_allclose(jax.jit(factors.base_log_density)(params, z), stats.t(df).logpdf(noise), rtol=1e-9)


def test_path_follows_the_quantiles():
    """Central differences of quantiles, step 1e-3 in the parameter: their own error is some 1e-6 relative."""
    with jax.enable_x64(True):
        params, df, level = grid()
        factors = StudentTFactors(df.size)
        z = jnp.asarray(scipy_t(params, df).ppf(level))
        derivatives = jax.jit(jax.grad(lambda p: factors.path(p, z).sum()))(params)
        for name, derivative in derivatives._asdict().items():
            moved = [params._replace(**{name: getattr(params, name) + step}) for step in (1e-3, -1e-3)]
            above, below = (scipy_t(p, np.asarray(factors.degrees(p))).ppf(level) for p in moved)
            np.testing.assert_allclose(derivative, (above - below) / 2e-3, rtol=1e-5, atol=1e-8)


def test_path_along_df_in_single_precision():
    """The error is a rounding error of z itself: the derivative is a small difference (of order 1/df)."""
    df, t = (part.ravel() for part in np.meshgrid([2.2, 8.0, 180.0], [0.0, 1e-12, 0.01, 1.0, 5.0, 1e3, 1e15]))

    def moved(dtype) -> np.ndarray:
        single = jnp.asarray(df, jnp.float32).astype(dtype), jnp.asarray(t, jnp.float32).astype(dtype)
        return np.asarray(jax.jit(lambda df, t: jax.jvp(lambda df: t_path(df, t), (df,), (df,))[1])(*single))

    with jax.enable_x64(True):
        exact = moved(jnp.float64)
    error = np.abs(moved(jnp.float32) - exact)
    assert np.all(error <= 1e-5 * np.abs(exact) + 1e-6 * t)


def test_path_gradient_is_unbiased():
    """E[2 z dz/dl] = d/dl E[z^2], E[z^2] = loc^2 + scale^2 df/(df - 2). 18 comparisons within 5 standard errors, df
    where they are finite: false-failure rate about 1e-5."""
    df = np.geomspace(8.0, 100.0, 6)
    factors = StudentTFactors(6)
    params = StudentTParams(jnp.linspace(-1.0, 1.0, 6), jnp.linspace(-0.3, 0.2, 6), jnp.asarray(lightness(df)))
    draws = six_ts(params, jax.random.key(1))
    contribution = jax.grad(lambda p, z: jnp.sum(2 * jax.lax.stop_gradient(z) * factors.path(p, z)))
    samples = jax.jit(jax.vmap(contribution, (None, 0)))(params, draws)

    def second_moment(params: StudentTParams) -> jax.Array:
        df = factors.degrees(params)
        return jnp.sum(params.loc**2 + jnp.exp(2 * params.log_scale) * df / (df - 2))

    for sample, truth in zip(samples, jax.grad(second_moment)(params), strict=True):
        error = np.asarray(sample.mean(axis=0)) - np.asarray(truth)
        assert np.all(np.abs(error) < 5 * np.asarray(sample.std(axis=0)) / np.sqrt(NUM_DRAWS))


def test_entropy_gradient():
    """dH/dlog scale = 1; dH/ddf = (df + 1)/4 (trigamma((df + 1)/2) - trigamma(df/2)) + 1/(2 df), from
    H = (df + 1)/2 (digamma((df+1)/2) - digamma(df/2)) + log(df)/2 + log B(df/2, 1/2), whose other terms cancel.
    (numpyro's is good to some 2e-7: see above.)"""
    with jax.enable_x64(True):
        params, df, _ = grid()
        factors = StudentTFactors(df.size)
        gradient = jax.jit(jax.grad(lambda p: factors.entropy(p).sum()))(params)
        slope = np.asarray(jax.grad(lambda p: factors.degrees(p).sum())(params).lightness)
    exact = (df + 1) / 4 * (special.polygamma(1, (df + 1) / 2) - special.polygamma(1, df / 2)) + 0.5 / df
    np.testing.assert_allclose(gradient.loc, 0)
    np.testing.assert_allclose(gradient.log_scale, 1)
    np.testing.assert_allclose(gradient.lightness, slope * exact, atol=1e-6)


def test_antithetic_pairs_mirror_about_the_location():
    params = StudentTParams(jnp.array([0.3, -1.0]), jnp.array([-0.5, 0.2]), jnp.zeros(2))
    draws = jax.jit(lambda key: StudentTFactors(2).draw(key, params, 10, antithetic=True))(jax.random.key(2))
    np.testing.assert_allclose(draws[:5] + draws[5:], 2 * jnp.tile(params.loc, (5, 1)), atol=1e-5)


def test_fixed_degrees_of_freedom_are_no_parameter():
    approximation = approximate(StudentT(df=5.0), {"w": real(3)})
    params = approximation.init(jnp.zeros(3), jnp.ones(3))
    assert len(jax.tree.leaves(params)) == 2
    np.testing.assert_allclose(approximation.pieces[0].degrees(params), 5.0)
    z = jnp.array([-3.0, 0.2, 1.0])
    gradient = jax.grad(lambda p: approximation.path(p, z).sum())(params)
    np.testing.assert_allclose(gradient.log_scale, z, rtol=1e-5)
    np.testing.assert_allclose(approximation.log_density(params, z), scipy_t(params, 5.0).logpdf(z), rtol=1e-5)


def test_extreme_parameters_give_finite_values():
    raw, log_scale = (jnp.asarray(part.ravel()) for part in np.meshgrid([-100.0, 0.0, 100.0], [-40.0, 40.0]))
    factors, params = StudentTFactors(6), StudentTParams(jnp.zeros(6), log_scale, raw)

    draws = six_ts(params, jax.random.key(4))[:50]

    @jax.jit
    def everything(params: StudentTParams, draws: jax.Array) -> tuple:
        score, moves = (jax.grad(lambda p, z, f=f: f(p, z).sum()) for f in (factors.log_density, factors.path))
        at_draws = [jax.vmap(part, (None, 0))(params, draws) for part in (factors.log_density, score, moves)]
        return at_draws, jax.value_and_grad(lambda p: factors.entropy(p).sum())(params)

    assert jnp.all(jnp.isfinite(draws))
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(everything(params, draws)))


@pytest.mark.parametrize("df", [None, 3.0])
def test_initial_parameters_have_the_given_moments(df: float | None):
    location, scale = jnp.array([0.0, -5.0]), jnp.array([0.01, 3.0])
    factors = StudentTFactors(2, df=df)
    params = factors.init(location, scale)
    start = scipy_t(params, np.asarray(factors.degrees(params), np.float64))
    np.testing.assert_allclose(start.mean(), location)
    np.testing.assert_allclose(start.std(), scale, rtol=1e-5)


def test_support_and_degrees_of_freedom_are_checked():
    with pytest.raises(ConfigurationError, match="'x' has support"):
        StudentT().plan({"x": positive()})
    with pytest.raises(ConfigurationError, match="above 2"):
        StudentT(df=2.0)
    assert approximate(StudentT(), {"w": real(2), "b": real()}).symmetric
