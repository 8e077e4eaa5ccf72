"""Dirichlet and Beta against scipy, and their path derivatives against quantiles and the transport equation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints
from scipy import special, stats

from isvi.core.errors import ConfigurationError
from isvi.core.latents import constrained, interval, positive, real, simplex, unit_interval
from isvi.families import Beta, Dirichlet, approximate
from isvi.families.base import Factors, Params
from isvi.families.dirichlet import BetaFactors, BetaParams, DirichletFactors, DirichletParams
from isvi.families.special.simplex import (
    beta_velocity,
    interior,
    others,
    simplex_entropy,
    simplex_log_density,
    simplex_path,
)

velocity = jax.jit(beta_velocity)

# Draws and all that an estimator may ask for at them: compiled once for each of these two.
THREE_DIRICHLETS, SIX_BETAS = DirichletFactors(3, 3), BetaFactors(6, low=-0.75, high=0.25)
NUM_DRAWS = 20_000


@partial(jax.jit, static_argnums=0)
def draw(factors: Factors, params: Params, key: jax.Array) -> jax.Array:
    return factors.draw(key, params, NUM_DRAWS, antithetic=False)


def dirichlet_params(alpha: np.ndarray | jax.Array) -> DirichletParams:
    """The parameters that give these concentrations."""
    log_alpha = jnp.log(jnp.asarray(alpha))
    return DirichletParams(log_alpha.ravel(), logsumexp(log_alpha, axis=-1))


def beta_params(a: np.ndarray | jax.Array, b: np.ndarray | jax.Array) -> BetaParams:
    a, b = jnp.asarray(a), jnp.asarray(b)
    return BetaParams(jnp.log(a) - jnp.log(b), jnp.log(a + b))


CONCENTRATIONS = [0.05, 0.3, 1.0, 4.0, 60.0, 1e3, 1e4]
LEVELS = [0.01, 0.3, 0.5, 0.9, 0.99]


def beta_grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs of concentrations at all levels of the CDF."""
    a, b, level = np.meshgrid(CONCENTRATIONS, CONCENTRATIONS, LEVELS)
    return a.ravel(), b.ravel(), level.ravel()


def quantiles(a: np.ndarray, b: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """z and 1 - z, each to full relative accuracy, within what a float64 can hold."""
    tiny = np.finfo(np.float64).tiny
    z, rest = special.betaincinv(a, b, level), special.betaincinv(b, a, 1 - level)
    return np.maximum(z, tiny), np.maximum(rest, tiny)


def logit_quantile(a: np.ndarray, b: np.ndarray, level: np.ndarray) -> np.ndarray:
    z, rest = quantiles(a, b, level)
    return np.log(z) - np.log(rest)


# The velocity of a Beta


def test_velocity_follows_the_quantiles():
    """Central differences of logits of quantiles, step 1e-4 in log a: their own error is some 1e-8 relative (the
    step), and 1e-10 absolute (the quantiles)."""
    a, b, level = beta_grid()
    with jax.enable_x64(True):
        z, rest = quantiles(a, b, level)
        ours = a * velocity(*(jnp.asarray(part) for part in (z, rest, a, b)))
    up, down = (logit_quantile(a * np.exp(step), b, level) for step in (1e-4, -1e-4))
    np.testing.assert_allclose(ours, (up - down) / 2e-4, rtol=1e-6, atol=1e-8)


def test_velocity_is_the_implicit_derivative():
    """-(dF/da)/F', by central differences of the regularized incomplete beta function."""
    a, b, level = beta_grid()
    moderate = (a < 100) & (b < 100) & (a > 0.1) & (b > 0.1)
    a, b, level = a[moderate], b[moderate], level[moderate]
    z, rest = quantiles(a, b, level)
    step = 1e-5 * a
    implicit = -(special.betainc(a + step, b, z) - special.betainc(a - step, b, z)) / (2 * step)
    with jax.enable_x64(True):
        ours = z * rest * velocity(*(jnp.asarray(part) for part in (z, rest, a, b)))
    np.testing.assert_allclose(ours, implicit / stats.beta(a, b).pdf(z), rtol=1e-5)


def test_velocity_in_single_precision():
    a, b, level = beta_grid()
    z, rest = quantiles(a, b, level)
    single = [jnp.asarray(part, jnp.float32) for part in (np.maximum(z, 1e-37), np.maximum(rest, 1e-37), a, b)]
    with jax.enable_x64(True):
        exact = velocity(*(part.astype(jnp.float64) for part in single))
    np.testing.assert_allclose(velocity(*single), exact, rtol=2e-4)


def test_velocity_at_the_ends_of_all_ranges():
    """Finite and positive, whatever comes."""
    ends = [1e-38, 1e-20, 1e-5, 0.3, 0.7, 1 - 2.0**-24]
    z, a, b = (jnp.asarray(part.ravel(), jnp.float32) for part in np.meshgrid(ends, [1e-4, 1, 1e7], [1e-4, 1, 1e7]))
    found = velocity(jnp.maximum(z, jnp.finfo(jnp.float32).tiny), 1 - z, a, b)
    assert jnp.all(jnp.isfinite(found) & (found > 0))


def test_velocity_is_that_of_normalised_gammas():
    """c_k = E[random_gamma_grad(alpha_k, z_k s) / s] over s ~ Gamma(A), by the trapezoidal rule in log s."""
    with jax.enable_x64(True):
        a, b, z = 1.7, 0.9, jnp.array([0.02, 0.4, 0.97])
        y = jnp.linspace(-20.0, 6.0, 400)
        weights = jnp.exp((a + b) * y - jnp.exp(y))
        s = jnp.exp(y)
        grads = jax.lax.random_gamma_grad(jnp.full((3, 400), a), z[:, None] * s) / s
        ours = z * velocity(z, 1 - z, jnp.full(3, a), jnp.full(3, b))
        np.testing.assert_allclose(ours, grads @ weights / weights.sum(), rtol=1e-9)


# Dirichlet


def test_others_keeps_small_entries():
    x = jnp.array([1e8, 1e-8, 1.0, 2e-8])
    np.testing.assert_allclose(others(x), [1.0, 1e8, 1e8, 1e8], rtol=1e-6)
    np.testing.assert_allclose(others(jnp.array([1e8, 1e-8])), [1e-8, 1e8])


def test_dirichlet_draws_have_the_right_moments():
    """9 means and 9 second moments within 5 standard errors: false-failure rate about 1e-5."""
    alpha = np.array([[0.3, 0.5, 2.0], [5.0, 1.0, 9.0], [1e3, 2e3, 10.0]])
    draws = draw(THREE_DIRICHLETS, dirichlet_params(alpha), jax.random.key(0))
    draws = np.asarray(draws, np.float64).reshape(NUM_DRAWS, 3, 3)
    np.testing.assert_allclose(draws.sum(axis=-1), 1, atol=1e-6)
    total = alpha.sum(axis=-1, keepdims=True)
    mean = alpha / total
    second = mean * (alpha + 1) / (total + 1)
    fourth = second * (alpha + 2) / (total + 2) * (alpha + 3) / (total + 3)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt((second - mean**2) / NUM_DRAWS))
    assert np.all(np.abs((draws**2).mean(axis=0) - second) < 5 * np.sqrt((fourth - second**2) / NUM_DRAWS))


def test_dirichlet_log_density_and_entropy():
    alpha = np.array([[0.05, 0.5, 10.0], [3.0, 9.0, 11.0], [1e4, 2e3, 0.7]])
    z = np.array([[1e-12, 0.3, 0.7 - 1e-12], [0.2, 0.5, 0.3], [0.82, 0.1799, 0.0001]])
    with jax.enable_x64(True):
        factors, params = THREE_DIRICHLETS, dirichlet_params(alpha)
        density = jax.jit(factors.log_density)(params, jnp.asarray(z).ravel())
        entropy = jax.jit(factors.entropy)(params)
    np.testing.assert_allclose(
        density, [stats.dirichlet(a).logpdf(x) for a, x in zip(alpha, z, strict=True)], rtol=1e-9
    )
    np.testing.assert_allclose(entropy, [stats.dirichlet(a).entropy() for a in alpha], rtol=1e-8)


def test_dirichlet_entropy_gradient():
    """In closed form: dH/dalpha_k = (A - K) trigamma(A) - (alpha_k - 1) trigamma(alpha_k). Also in float32 at 1e6,
    where summing the textbook's terms leaves nothing of it."""
    alpha = np.array([[0.05, 0.5, 10.0], [3e5, 1e6, 10.0]])
    total = alpha.sum(axis=-1, keepdims=True)
    exact = alpha * ((total - 3) * special.polygamma(1, total) - (alpha - 1) * special.polygamma(1, alpha))
    log_alpha = jnp.log(jnp.asarray(alpha, jnp.float32))
    gradient = jax.jit(jax.grad(lambda l: simplex_entropy(jnp.exp(l)).sum()))(log_alpha)
    np.testing.assert_allclose(gradient, exact, rtol=1e-4, atol=1e-5)


def test_dirichlet_path_solves_the_transport_equation():
    """d log q / dl + div v + v . grad log q = 0 for the velocity v = dz/dl: this is exactly what makes the path
    derivative an unbiased gradient for every integrand. (In coordinates z_1, z_2, with z_3 the rest.)"""
    with jax.enable_x64(True):

        def whole(free: jax.Array) -> jax.Array:
            return jnp.append(free, 1 - free.sum())

        def moves(free: jax.Array, log_alpha: jax.Array, direction: jax.Array) -> jax.Array:
            return jax.jvp(lambda l: simplex_path(l, whole(free)), (log_alpha,), (direction,))[1][:2]

        def log_q(log_alpha: jax.Array, free: jax.Array) -> jax.Array:
            return simplex_log_density(jnp.exp(log_alpha), whole(free))

        @jax.jit
        def imbalance(log_alpha: jax.Array, free: jax.Array) -> jax.Array:
            score, slope = jax.grad(log_q, argnums=(0, 1))(log_alpha, free)
            divergence = jax.vmap(lambda k: jnp.trace(jax.jacfwd(moves)(free, log_alpha, k)))(jnp.eye(3))
            flow = jax.vmap(lambda k: moves(free, log_alpha, k) @ slope)(jnp.eye(3))
            return (score + divergence + flow) / (1 + jnp.abs(score))

        for alpha in ([0.4, 1.0, 2.5], [30.0, 2.0, 0.7], [5.0, 5.0, 5.0]):
            for free in ([0.2, 0.5], [0.9, 0.07], [0.01, 0.3]):
                np.testing.assert_allclose(imbalance(jnp.log(jnp.array(alpha)), jnp.array(free)), 0, atol=1e-9)


def test_dirichlet_path_gradient_is_unbiased():
    """E[2 z_j dz_j/dl_k] = d/dl_k E[z_j^2], E[z_j^2] = alpha_j (alpha_j + 1) / (A (A + 1)). 9 comparisons within 5
    standard errors: false-failure rate about 5e-6. The derivatives stay on the simplex: they sum to 0."""
    log_alpha = jnp.log(jnp.array([0.4, 1.3, 6.0]))
    draws = draw(THREE_DIRICHLETS, dirichlet_params(jnp.exp(jnp.tile(log_alpha, (3, 1)))), jax.random.key(1)).reshape(
        -1, 3
    )
    jacobian = jax.jit(jax.vmap(jax.jacrev(simplex_path), (None, 0)))(log_alpha, draws)
    np.testing.assert_allclose(jacobian.sum(axis=1), 0, atol=1e-5)
    samples = np.asarray(2 * draws[:, :, None] * jacobian, np.float64)

    def second_moments(log_alpha: jax.Array) -> jax.Array:
        alpha, total = jnp.exp(log_alpha), jnp.exp(log_alpha).sum()
        return alpha * (alpha + 1) / (total * (total + 1))

    error = samples.mean(axis=0) - np.asarray(jax.jacfwd(second_moments)(log_alpha))
    assert np.all(np.abs(error) < 5 * samples.std(axis=0) / np.sqrt(len(samples)))


@partial(jax.jit, static_argnums=0)
def everything(factors: Factors, params: Params, draws: jax.Array) -> dict:
    """All that an estimator may ask for."""
    at_draws = {
        "density": factors.log_density,
        "score": jax.grad(lambda p, z: factors.log_density(p, z).sum()),
        "path": jax.grad(lambda p, z: jnp.sum(jnp.arange(1.0, 1 + z.size) * factors.path(p, z))),
    }
    found = {name: jax.vmap(part, (None, 0))(params, draws) for name, part in at_draws.items()}
    return found | {"entropy": jax.value_and_grad(lambda p: factors.entropy(p).sum())(params)}


def all_finite(tree) -> bool:
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(tree))


def test_extreme_dirichlets_give_finite_values():
    alpha = jnp.array([[1e-3, 1e-3, 1e-3], [1e6, 1e-2, 1.0], [1e7, 1e7, 1e7]])
    params = dirichlet_params(alpha)
    draws = draw(THREE_DIRICHLETS, params, jax.random.key(2))[:50]
    assert jnp.all((draws > 0) & (draws < 1))
    assert all_finite(everything(THREE_DIRICHLETS, params, draws))


def test_initial_dirichlet_has_the_given_means_and_total_variance():
    mean = jnp.array([[0.2, 0.3, 0.5], [0.05, 0.9, 0.05]])
    scale = jnp.full((2, 3), 0.03)
    params = DirichletFactors(2, 3).init(mean.ravel(), scale.ravel())
    alpha = np.exp(np.asarray(DirichletFactors(2, 3).log_concentration(params), np.float64))
    np.testing.assert_allclose(alpha / alpha.sum(axis=-1, keepdims=True), mean, rtol=1e-5)
    variances = np.array([stats.dirichlet(a).var().sum() for a in alpha])
    np.testing.assert_allclose(variances, 3 * 0.03**2, rtol=1e-4)


def test_dirichlet_plan_puts_equal_sizes_together():
    latents = {"a": simplex(3), "b": simplex(5, 2), "c": simplex(2, 2, 3)}
    approximation = approximate(Dirichlet(), latents)
    assert [(piece.count, piece.size) for piece in approximation.pieces] == [(5, 2), (5, 3)]
    location = approximation.coordinates.encode(
        {"a": jnp.full(3, 1 / 3), "b": jnp.full((5, 2), 0.5), "c": jnp.full((2, 2, 3), 1 / 3)}
    )
    params = approximation.init(location, jnp.full(25, 0.1))
    assert [(part.logits.size, part.log_total.size) for part in params] == [(10, 5), (15, 5)]
    means = approximation.coordinates.decode(location)[0]
    assert all(means[name].shape == latents[name].shape for name in latents)


# Beta


def scipy_beta(params: BetaParams, low: float = 0.0, high: float = 1.0):
    logit, total = np.asarray(params.logit, np.float64), np.exp(np.asarray(params.log_total, np.float64))
    a, b = total * special.expit(logit), total * special.expit(-logit)
    return stats.beta(a, b, loc=low, scale=high - low)


def test_beta_draws_have_the_right_moments():
    """12 comparisons within 5 standard errors: false-failure rate about 7e-6."""
    params = beta_params(jnp.geomspace(0.5, 2e3, 6), jnp.array([0.3, 4.0, 9.0, 0.7, 1e3, 5e3]))
    draws = np.asarray(draw(SIX_BETAS, params, jax.random.key(3)), np.float64)
    mean, variance, _, kurtosis = scipy_beta(params, SIX_BETAS.low, SIX_BETAS.high).stats(moments="mvsk")
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / NUM_DRAWS))
    assert np.all(np.abs(draws.var(axis=0) - variance) < 5 * variance * np.sqrt((kurtosis + 2) / NUM_DRAWS))


def test_beta_against_scipy():
    """Density, entropy, and the path along central differences of quantiles (own error about 1e-8)."""
    a, b, level = beta_grid()
    inside = (a > 0.2) & (b > 0.2)  # elsewhere quantiles round to the bounds
    low, high = 2.0, 5.0
    with jax.enable_x64(True):
        params = beta_params(a[inside], b[inside])
        level = level[inside]
        factors, exact = BetaFactors(level.size, low=low, high=high), scipy_beta(params, low, high)
        z = jnp.asarray(exact.ppf(level))
        derivatives = jax.jit(jax.grad(lambda p: factors.path(p, z).sum()))(params)
        density, entropy = jax.jit(lambda p: (factors.log_density(p, z), factors.entropy(p)))(params)
        np.testing.assert_allclose(density, exact.logpdf(z), rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(entropy, exact.entropy(), rtol=1e-7, atol=1e-7)
        for name, derivative in derivatives._asdict().items():
            moved = [params._replace(**{name: getattr(params, name) + step}) for step in (1e-4, -1e-4)]
            above, below = (scipy_beta(p, low, high).ppf(level) for p in moved)
            np.testing.assert_allclose(derivative, (above - below) / 2e-4, rtol=1e-5, atol=1e-9)


def test_beta_path_gradient_is_unbiased():
    """E[2 z dz/dl] = d/dl E[z^2]. 12 comparisons within 5 standard errors: false-failure rate about 7e-6."""
    params = beta_params(jnp.geomspace(0.5, 40.0, 6), jnp.array([0.8, 0.4, 15.0, 0.3, 2.0, 60.0]))
    draws = draw(SIX_BETAS, params, jax.random.key(4))
    contribution = jax.grad(lambda p, z: jnp.sum(2 * jax.lax.stop_gradient(z) * SIX_BETAS.path(p, z)))
    samples = jax.jit(jax.vmap(contribution, (None, 0)))(params, draws)

    def second_moment(params: BetaParams) -> jax.Array:
        mean = jax.nn.sigmoid(params.logit)
        variance = mean * (1 - mean) / (jnp.exp(params.log_total) + 1)
        return jnp.sum((SIX_BETAS.low + SIX_BETAS.width * mean) ** 2 + SIX_BETAS.width**2 * variance)

    for sample, truth in zip(samples, jax.grad(second_moment)(params), strict=True):
        error = np.asarray(sample.mean(axis=0)) - np.asarray(truth)
        assert np.all(np.abs(error) < 5 * np.asarray(sample.std(axis=0)) / np.sqrt(NUM_DRAWS))


def test_beta_entropy_gradient_in_single_precision():
    """In closed form: dH/da = (a + b - 2) trigamma(a + b) - (a - 1) trigamma(a); da/dlog A = a and da/dlogit = ab/A."""
    a, b = np.array([0.05, 1.0, 10.0, 300.0, 1e6]), np.array([0.3, 2.0, 10.0, 1e4, 3e5])
    gradient = jax.jit(jax.grad(lambda p: BetaFactors(5).entropy(p).sum()))(beta_params(a, b))
    by_a, by_b = ((a + b - 2) * special.polygamma(1, a + b) - (c - 1) * special.polygamma(1, c) for c in (a, b))
    np.testing.assert_allclose(gradient.log_total, a * by_a + b * by_b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient.logit, a * b / (a + b) * (by_a - by_b), rtol=1e-4, atol=1e-5)


def test_extreme_betas_give_finite_values():
    a, b = (jnp.asarray(part.ravel(), jnp.float32) for part in np.meshgrid([1e-3, 1.0, 1e7], [1e-3, 1e7]))
    params = beta_params(a, b)
    draws = draw(SIX_BETAS, params, jax.random.key(5))[:50]
    assert jnp.all((draws > SIX_BETAS.low) & (draws < SIX_BETAS.high))
    assert all_finite(everything(SIX_BETAS, params, draws))


@pytest.mark.parametrize("bounds", [(0.0, 1e-3), (1000.0, 1001.0), (-0.75, 0.25), (-5.0, 0.0), (0.0, 1e6)])
def test_rounding_does_not_reach_the_bounds(bounds: tuple[float, float]):
    """Neither where a draw is put on the interval, nor where it is brought back to (0, 1)."""
    low, high = bounds
    factors = BetaFactors(4, low=low, high=high)
    unit = jnp.array([0.0, jnp.finfo(jnp.float32).tiny, 1 - 2.0**-24, 1.0])
    z = factors._inside(low + factors.width * interior(unit))
    assert jnp.all((z > low) & (z < high))
    assert jnp.all((factors._unit(z) > 0) & (factors._unit(z) < 1))


def test_initial_beta_has_the_given_moments():
    factors = BetaFactors(3, low=-1.0, high=4.0)
    location, scale = jnp.array([0.0, 1.5, 3.9]), jnp.array([0.3, 1.0, 0.05])
    start = scipy_beta(factors.init(location, scale), -1.0, 4.0)
    np.testing.assert_allclose(start.mean(), location, atol=1e-4)
    np.testing.assert_allclose(start.std(), scale, rtol=1e-4)


def test_impossible_initial_values_are_brought_back():
    """A Beta around 0.5 cannot have a standard deviation of 0.5 or more, nor a mean on a bound."""
    start = BetaFactors(3).init(jnp.array([0.5, 0.0, 1.0]), jnp.array([0.7, 0.1, 0.0]))
    assert all_finite(start)
    assert all_finite(DirichletFactors(1, 3).init(jnp.array([0.0, 0.0, 1.0]), jnp.array([0.0, 1.0, 0.3])))
    assert 0.3 < float(scipy_beta(start).std()[0]) < 0.5


def test_beta_plan_puts_equal_bounds_together():
    latents = {"a": unit_interval(2), "b": interval(-1.0, 1.0, 3), "c": interval(0, 1, 2, 2)}
    approximation = approximate(Beta(), latents)
    assert [(piece.count, piece.low, piece.high) for piece in approximation.pieces] == [(3, -1.0, 1.0), (6, 0.0, 1.0)]


def test_beta_wants_one_pair_of_bounds():
    latent = constrained(constraints.interval(np.zeros(2), np.array([1.0, 2.0])), 2)
    with pytest.raises(ConfigurationError, match="one pair of bounds"):
        Beta().plan({"x": latent})


@pytest.mark.parametrize(
    ("family", "latent"),
    [(Beta(), real()), (Beta(), positive()), (Dirichlet(), real(3)), (Dirichlet(), unit_interval(3))],
)
def test_other_supports_are_refused(family, latent):
    with pytest.raises(ConfigurationError, match="'x' has support"):
        family.plan({"x": latent})


@pytest.mark.parametrize(
    ("factors", "params"),
    [
        (BetaFactors(1), BetaParams(np.zeros(1), np.zeros(1))),
        (DirichletFactors(1, 2), DirichletParams(np.zeros(2), np.zeros(1))),
    ],
    ids=["Beta", "Dirichlet"],
)
def test_neither_has_a_mirror_or_a_base(factors, params):
    params = jax.tree.map(jnp.asarray, params)
    with pytest.raises(ConfigurationError, match="antithetic"):
        factors.draw(jax.random.key(0), params, 2, antithetic=True)
    with pytest.raises(ConfigurationError, match="weights='exact'"):
        factors.base_log_density(params, jnp.full(factors.dim, 0.5))
