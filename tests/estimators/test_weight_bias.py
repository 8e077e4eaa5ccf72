"""The biases that the design predicts, in closed form, for a mean-field Gaussian on a correlated Gaussian.

With precision matrix P and per-factor weights, factor s sees the other factors where they were. The gradient in
its location is then off by ``sum over t != s of P_st (m_t - m_t_old)``: linear in the move, so zero in the
limit. The gradient in its scale is not biased. The paper's weights are those times sigma / sigma_old.

All comparisons are two-sided at 5 standard errors; about 60 entries in this file: a correct estimator fails
with probability below 60 * 5.7e-7 < 4e-5.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import gaussian
from support.records import bound, flat, normal_moments, reused_gradients
from support.statistics import assert_mean_is, resolution

import isvi

OLD_LOCATION = np.array([0.1, 0.2, 0.3])
MOVE = np.array([0.5, -0.4, 0.45])
OFF_DIAGONAL = gaussian.PRECISION - np.diag(np.diag(gaussian.PRECISION))

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def approximation() -> isvi.Approximation:
    return isvi.approximate(isvi.MeanField(), gaussian.model().latents)


def gradients(approximation, options, move, scales=(0.6, 0.6), num_records=40_000):
    old = approximation.init(*normal_moments(OLD_LOCATION, scales[0]))
    new = approximation.init(*normal_moments(OLD_LOCATION + move, scales[1]))
    exact = flat(jax.grad(gaussian.exact_elbo, argnums=1)(approximation, new))
    return reused_gradients(bound(options, gaussian.model(), approximation), old, new, num_records), exact


@pytest.mark.parametrize("size", [1.0, 0.5, 0.25, 0.0])
def test_per_factor_bias_is_linear_in_the_move(approximation, size):
    """Within 5 standard errors of the prediction at every size of the move, and visible where it is large."""
    estimates, exact = gradients(approximation, isvi.Reparameterization(num_samples=4), size * MOVE)
    bias = np.concatenate([size * OFF_DIAGONAL @ MOVE, np.zeros(3)])
    assert_mean_is(estimates, exact + bias)
    if size >= 0.5:
        assert np.all(np.abs(bias[:3]) > 2 * resolution(estimates)[:3])


@pytest.mark.parametrize("entropy", ["exact", "weighted"])
def test_paper_weights_are_off_by_the_ratio_of_scales(approximation, entropy):
    """The paper's weight is the exact one times sigma_new / sigma_old, in the model's part of the gradient and,
    as in the paper, in the entropy's."""
    scales, move = (0.6, 0.68), 0.25 * MOVE
    options = isvi.Reparameterization(num_samples=4, weights="paper", entropy=entropy)
    estimates, exact = gradients(approximation, options, move, scales)
    ratio = scales[1] / scales[0]
    entropy_gradient = np.concatenate([np.zeros(3), np.ones(3)])
    per_factor = exact - entropy_gradient + np.concatenate([OFF_DIAGONAL @ move, np.zeros(3)])
    kept = ratio if entropy == "weighted" else 1.0
    assert_mean_is(estimates, ratio * per_factor + kept * entropy_gradient)


@pytest.mark.parametrize("family", [isvi.MeanField(), isvi.Block(), isvi.FullRank()], ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("weights", ["exact", "paper"])
def test_mean_weight(family, weights):
    """On a constant log density with the entropy weighted, the gradient in a log scale is the mean weight: 1 for
    exact weights, |det L_new| / |det L_old| = sigma_new / sigma_old per entry for the paper's."""
    model = isvi.Model({"a": isvi.real(2), "b": isvi.real()}, lambda z: 0.0 * (z["a"].sum() + z["b"]))
    approximation = isvi.approximate(family, model.latents)
    old, new = (approximation.init(*normal_moments(np.zeros(3), scale)) for scale in (0.5, 0.55))
    options = isvi.Reparameterization(num_samples=4, weights=weights, entropy="weighted")
    estimates = reused_gradients(bound(options, model, approximation), old, new, 40_000)
    size = approximation.pieces[-1].size
    expected = 1.0 if weights == "exact" else 1.1**size
    last_log_scale = estimates[:, -1:]
    assert_mean_is(last_log_scale, np.array([expected]))
    assert resolution(last_log_scale)[0] < 0.05


def test_the_score_function_reads_paper_weights_as_exact(approximation):
    """The paper's weight for this estimator is the ratio of densities."""
    options = {"num_samples": 8, "rao_blackwell": False, "control_variate": False}
    paper, _ = gradients(approximation, isvi.ScoreFunction(**options, weights="paper"), MOVE, (0.6, 0.5), 5)
    exact, _ = gradients(approximation, isvi.ScoreFunction(**options, weights="exact"), MOVE, (0.6, 0.5), 5)
    np.testing.assert_array_equal(paper, exact)


def test_no_weights_expectation_in_closed_form(approximation):
    """Without weights, E[g] stays that of the old parameters, and in the log scale
    E[g_s (z_s - m_s)] = -P_ss sigma_old^2 - (P (m_old - mode))_s (m_old - m)_s, plus the entropy's 1."""
    estimates, _ = gradients(approximation, isvi.Reparameterization(num_samples=4, weights="none"), MOVE, (0.6, 0.5))
    pull = -gaussian.PRECISION @ (OLD_LOCATION - gaussian.MODE)
    scale = -np.diag(gaussian.PRECISION) * 0.6**2 + pull * (-MOVE) + 1
    assert_mean_is(estimates, np.concatenate([pull, scale]))


def test_weights_survive_extreme_moves(approximation):
    """A hopeless record gives zeros and infinities at worst, and a fresh one is exactly 1: nothing is NaN."""
    options = isvi.Reparameterization(num_samples=4, self_normalize=True)
    estimator = bound(options, gaussian.model(), approximation)
    old = approximation.init(*normal_moments(np.zeros(3), 1e-3))
    new = approximation.init(*normal_moments(np.full(3, 50.0), 1e-3))
    record = estimator.record(jax.random.key(0), old, isvi.Dataset.from_arrays(None).batch(0)).alone()
    health = estimator.health(new, record)
    assert np.isfinite(jnp.stack(health)).all()
    assert np.isfinite(flat(estimator.gradient(new, record))).all()
    assert health.effective < 1e-6
