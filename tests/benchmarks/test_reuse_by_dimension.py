"""The errors of reuse by dimension, where they are known."""

import numpy as np
import pytest

from benchmarks.reuse_by_dimension import (
    DRAWS,
    estimates,
    gaussian_target,
    logistic_target,
    moved,
    plain,
    residual_form,
    squared_error,
)


@pytest.mark.parametrize("dim", [1, 4, 60])
@pytest.mark.parametrize("divergence", [0.01, 0.5])
def test_the_old_q_is_as_far_away_as_asked(dim, divergence):
    location, lower = moved(dim, divergence, np.random.default_rng(0))
    covariance = lower @ lower.T
    kl = 0.5 * (np.trace(covariance) + location @ location - dim - np.linalg.slogdet(covariance)[1])
    assert kl == pytest.approx(divergence, rel=1e-6)


def test_error_of_new_draws_is_that_of_the_closed_form():
    """d = 1, precision 2, mode m with m^2 = 1: by location 4 / M. By scale (on the diagonal, so halved) the variance of
    -2 (x - m) x is 4 (2 + m^2) = 12, over 2 M. 20,000 estimates know their mean error to about 1.5%: 8% is more than
    five of that."""
    rng = np.random.default_rng(0)
    target = gaussian_target(1, rng)
    errors = []
    for _ in range(20_000):
        draws = rng.normal(size=(DRAWS, 1))
        estimate = plain(draws, target.gradient(draws), np.full(DRAWS, 1 / DRAWS))
        errors.append(squared_error(estimate, target.truth))
    assert np.mean(errors) == pytest.approx((4 + 4 * 3 / 2) / DRAWS, rel=0.08)


def test_the_residual_form_has_no_error_where_q_has_the_targets_curvature():
    mode = np.array([0.4, -1.0, 2.0])
    draws = np.random.default_rng(0).normal(size=(DRAWS, 3))
    level, spread = residual_form(draws, mode - draws, np.full(DRAWS, 1 / DRAWS))
    np.testing.assert_allclose(level, mode, atol=1e-12)
    np.testing.assert_allclose(spread, 0, atol=1e-12)


@pytest.mark.parametrize("make", [gaussian_target, logistic_target])
def test_estimates_with_exact_weights_are_unbiased(make):
    """Their mean over 4,000 records, whose squared error is the mean error over 4,000 if there is no bias. It is a sum
    of nine squares of nearly Gaussian numbers. Were it four equal ones, it would exceed eight times its mean with a
    probability of 2e-6."""
    rng = np.random.default_rng(1)
    target = make(3, rng)
    old = moved(3, 0.05, rng)
    for name in ("fresh", "exact"):
        every = [estimates(target, old, rng)[name] for _ in range(4_000)]
        mean = np.mean([one[0] for one in every], axis=0), np.mean([one[1] for one in every], axis=0)
        typical = np.mean([squared_error(one, target.truth) for one in every])
        assert squared_error(mean, target.truth) < 8 * typical / 4_000, name
