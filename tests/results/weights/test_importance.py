"""Importance weights against Gaussians, for which everything is known."""

import numpy as np
import pytest

from isvi.diagnosis.entries import weigh_entries
from isvi.results.weights.evaluation import Evaluation
from isvi.results.weights.exploration import Candidates
from isvi.results.weights.importance import importance
from isvi.results.weights.smoothing import k_threshold

DRAWS = 2000
EVIDENCE = -3.7
"""log p(x): the log joint is that of the target plus this."""


def evaluation(scale: float, dim: int = 1, mean: float = 0.0, seed: int = 0) -> Candidates:
    """Draws from q = N(mean, scale^2) in every entry; the posterior is N(0, 1)."""
    noise = np.random.default_rng(seed).normal(size=(DRAWS, dim))
    draws = mean + scale * noise
    constant = -0.5 * dim * np.log(2 * np.pi)
    log_joint = constant - 0.5 * (draws**2).sum(axis=1) + EVIDENCE
    log_density = constant - 0.5 * (noise**2).sum(axis=1) - dim * np.log(scale)
    return Candidates.of(Evaluation(draws, log_joint, log_density, -constant + dim * (0.5 + np.log(scale))))


def test_equal_densities_have_equal_weights():
    weighted = importance(evaluation(1.0))
    np.testing.assert_allclose(weighted.weights, 1 / DRAWS, rtol=1e-12)
    assert weighted.k_hat == 0.0
    assert weighted.effective == pytest.approx(DRAWS)
    assert weighted.log_evidence == pytest.approx(EVIDENCE, abs=1e-9)


@pytest.mark.parametrize("scale", [0.5, 0.6, 0.8])
def test_k_hat_of_a_narrow_gaussian(scale):
    """The ratios' tail is Pareto with k = 1 - scale^2 up to a slowly varying factor. Over 1,000 seeds the mean of
    k-hat was off by at most 0.08 (scale 0.5) and its standard deviation at most 0.14; so over 20 seeds, with five
    standard errors, the mean is within 0.08 + 5 * 0.14 / sqrt(20) = 0.24 (a right one fails below 6e-7)."""
    estimates = [importance(evaluation(scale, seed=seed)).k_hat for seed in range(20)]
    assert np.mean(estimates) == pytest.approx(1 - scale**2, abs=0.24)


def test_a_gaussian_three_times_too_narrow_is_not_trusted_and_a_wide_one_is():
    """k is 8/9. The k-hat of the weights alone is below the threshold for one seed in ten, that of the entries'
    variances for none of 300. A wide q has bounded ratios."""

    def weighed(scale: float, seed: int):
        weighted = importance(evaluation(scale, dim=3, seed=seed))
        return weigh_entries({"w": weighted.candidates.draws}, weighted)

    assert not any(weighed(1 / 3, seed).trusted for seed in range(5))
    assert all(weighed(3.0, seed).trusted for seed in range(5))
    wide = weighed(3.0, seed=0)
    assert wide.k_hat.max() < 0.3
    assert wide.names == ["w[0]", "w[1]", "w[2]"]


def test_log_evidence_of_a_wrong_gaussian():
    """Its relative standard error is that of a mean of weights: 1/sqrt(effective draws) bounds it; at five."""
    weighted = importance(evaluation(1.3, dim=2, mean=0.4))
    assert weighted.log_evidence == pytest.approx(EVIDENCE, abs=5 / np.sqrt(weighted.effective))
    assert weighted.candidates.evaluation.elbo.value < weighted.log_evidence


def test_resampling_picks_each_draw_as_often_as_its_weight_says():
    weighted = importance(evaluation(1.3))
    picked = weighted.resample(10_000, seed=1)
    _, index, counts = np.unique(
        weighted.candidates.draws[:, 0], return_index=True, return_inverse=False, return_counts=True
    )
    assert (counts == 1).all()
    times = np.array([(picked[:, 0] == weighted.candidates.draws[row, 0]).sum() for row in index[:200]])
    assert np.all(np.abs(times - 10_000 * weighted.weights[index[:200]]) < 1 + 1e-6)


def test_draws_where_the_model_fails_have_no_weight():
    one = evaluation(0.9).evaluation
    broken = np.where(np.arange(DRAWS) < 5, np.nan, one.log_joint)
    weighted = importance(Candidates.of(Evaluation(one.draws, broken, one.log_density, one.entropy)))
    assert weighted.failed == 5
    assert (weighted.weights[:5] == 0).all()
    assert weighted.weights.sum() == pytest.approx(1.0)
    nowhere = importance(Candidates.of(Evaluation(one.draws, np.full(DRAWS, np.nan), one.log_density, one.entropy)))
    assert not nowhere.trusted


def test_threshold_by_the_number_of_draws():
    assert k_threshold(100) == pytest.approx(0.5)
    assert k_threshold(1000) == pytest.approx(2 / 3)
    assert k_threshold(100_000) == 0.7
