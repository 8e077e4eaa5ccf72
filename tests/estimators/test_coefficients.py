"""What each draw's gradient is multiplied with: caps, normalisation, shares, empty slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import gaussian
from support.records import bound, flat, normal_moments, reused_gradients
from support.statistics import assert_mean_is

import isvi
from isvi.estimators.weights import Weighting, weight_health
from isvi.memory import Record

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def approximation() -> isvi.Approximation:
    return isvi.approximate(isvi.MeanField(), gaussian.model().latents)


def records(approximation, params, num_records=3, num_samples=4, shares=None) -> Record:
    """Records drawn at ``params``, without a model."""
    draws = approximation.draw(jax.random.key(0), params, num_records * num_samples)
    draws = draws.reshape(num_records, num_samples, -1)
    log_density = jax.vmap(jax.vmap(approximation.log_density, (None, 0)), (None, 0))(params, draws)
    shares = jnp.full(num_records, 1 / num_records) if shares is None else jnp.asarray(shares)
    empty = jnp.zeros(draws.shape[:2])
    return Record(draws, log_density, empty, jnp.zeros_like(draws), jnp.arange(num_records), shares)


@pytest.mark.parametrize("self_normalize", [False, True])
@pytest.mark.parametrize("mode", ["exact", "none"])
def test_weights_of_one_sum_to_one(approximation, mode, self_normalize):
    params = approximation.init(*normal_moments([0.1, 0.2, 0.3], 0.6))
    weighting = Weighting(approximation, mode, True, None, self_normalize)
    coefficients = weighting.coefficients(params, records(approximation, params, shares=[0.4, 0.4, 0.2]))
    np.testing.assert_allclose(coefficients.sum(axis=(0, 1)), np.ones(3), rtol=1e-12)
    np.testing.assert_allclose(coefficients[2], np.full((4, 3), 0.2 / 4), rtol=1e-12)


@pytest.mark.parametrize("per_factor", [True, False])
def test_weights_are_ratios_of_densities(approximation, per_factor):
    old = approximation.init(*normal_moments([0.1, 0.2, 0.3], 0.6))
    new = approximation.init(*normal_moments([0.4, 0.1, 0.3], 0.5))
    drawn = records(approximation, old)
    ratio = _density(drawn.draws, [0.4, 0.1, 0.3], 0.5) / _density(drawn.draws, [0.1, 0.2, 0.3], 0.6)
    expected = ratio if per_factor else np.broadcast_to(ratio.prod(axis=-1, keepdims=True), ratio.shape)
    np.testing.assert_allclose(Weighting(approximation, "exact", per_factor, None, False).raw(new, drawn), expected)


def _density(z, location, scale) -> np.ndarray:
    return np.exp(-0.5 * ((np.asarray(z) - location) / scale) ** 2) / (scale * np.sqrt(2 * np.pi))


def test_max_weight_cuts_what_is_above_and_nothing_else(approximation):
    old = approximation.init(*normal_moments([0.1, 0.2, 0.3], 0.6))
    new = approximation.init(*normal_moments([0.6, 0.1, 0.3], 0.4))
    drawn = records(approximation, old, num_samples=50)
    raw = np.asarray(Weighting(approximation, "exact", True, None, False).raw(new, drawn))
    cut = np.asarray(Weighting(approximation, "exact", True, 1.2, False).coefficients(new, drawn)) * raw[..., 0].size
    assert (raw > 1.2).any()
    assert (raw < 1.2).any()
    np.testing.assert_allclose(cut, np.minimum(raw, 1.2))


@pytest.mark.parametrize("self_normalize", [False, True])
@pytest.mark.parametrize("per_factor", [True, False])
def test_empty_slots_contribute_nothing(approximation, per_factor, self_normalize):
    """Even where the density ratio of what lies in them overflows."""
    params = approximation.init(*normal_moments([0.0, 0.0, 0.0], 1e-200))
    full = records(approximation, params, num_records=1)
    hole = jax.tree.map(jnp.zeros_like, full)
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), full, hole)
    weighting = Weighting(approximation, "exact", per_factor, None, self_normalize)
    coefficients = weighting.coefficients(params, both)
    np.testing.assert_array_equal(coefficients[1], np.zeros((4, 3)))
    np.testing.assert_allclose(coefficients[:1], weighting.coefficients(params, full))


def test_self_normalised_weights_are_consistent(approximation):
    """With n draws the bias is O(1/n): at n = 2,000 it drowns in the standard error of 200 records, whose mean
    must agree with the exact gradient within 5 standard errors (6 entries: fails below 4e-6 if correct)."""
    options = isvi.Reparameterization(num_samples=2000, self_normalize=True, per_factor=False)
    estimator = bound(options, gaussian.model(), approximation)
    old = approximation.init(*normal_moments([-0.2, 0.6, -0.1], 0.6))
    new = approximation.init(*normal_moments([-0.5, 0.9, -0.4], 0.55))
    exact = flat(jax.grad(gaussian.exact_elbo, argnums=1)(approximation, new))
    assert_mean_is(reused_gradients(estimator, old, new, 200), exact)


def test_health_of_known_weights():
    """Effective fraction (mean w)^2 / mean w^2 and divergence mean(w - 1 - log w), by hand."""
    weights = jnp.array([0.5, 1.5, 0.8, 1.2]).reshape(1, 4, 1)
    health = weight_health(weights)
    np.testing.assert_allclose(health.effective, 1 / np.mean(np.square([0.5, 1.5, 0.8, 1.2])))
    np.testing.assert_allclose(health.divergence, -np.mean(np.log([0.5, 1.5, 0.8, 1.2])))
    np.testing.assert_allclose(health.largest, 1.5)
    fresh = weight_health(jnp.ones((1, 4, 2)))
    assert (fresh.effective, fresh.divergence, fresh.largest) == (1.0, 0.0, 1.0)


def test_divergence_estimates_the_kl(approximation):
    """Its mean over records is KL(q_old || q_new) per factor, within 5 standard errors."""
    estimator = bound(isvi.Reparameterization(num_samples=4), gaussian.model(), approximation)
    old = approximation.init(*normal_moments([0.1, 0.2, 0.3], 0.6))
    new = approximation.init(*normal_moments([0.3, 0.2, 0.3], 0.55))
    batch = isvi.Dataset.from_arrays(None).batch(0)
    keys = jax.random.split(jax.random.key(0), 20_000)
    divergence = jax.vmap(lambda key: estimator.health(new, estimator.record(key, old, batch).alone()).divergence)(keys)
    per_scale = np.log(0.55 / 0.6) + (0.6 / 0.55) ** 2 / 2 - 0.5
    assert_mean_is(np.asarray(divergence)[:, None], np.array([per_scale + (0.2 / 0.55) ** 2 / 2 / 3]))
