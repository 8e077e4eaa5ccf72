"""Every estimator against the exact gradient: records drawn at old parameters, used at moved ones.

The target is a correlated Gaussian, so the ELBO's gradient is known in closed form. With joint exact weights the
estimate is unbiased at the new parameters, whatever the old ones were: the mean over many independent records
equals the exact gradient within 5 standard errors, entry by entry and two-sided. About 300 entries are compared
in this file, so the chance that a correct estimator fails anywhere is below 300 * 5.7e-7 < 2e-4 (Bonferroni).

The move keeps the fourth moments of the weights finite (no variance grows by more than a third), so the standard
errors can be trusted.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import jax
import numpy as np
import pytest
from support import gaussian
from support.records import bound, flat, jiggled, normal_moments, reused_gradients
from support.statistics import assert_mean_is, resolution

import isvi

FAMILIES = {"mean-field": isvi.MeanField(), "block": isvi.Block(), "full-rank": isvi.FullRank()}
REPARAMETERIZATIONS = {
    f"path-{entropy}": isvi.Reparameterization(num_samples=4, per_factor=False, entropy=entropy)
    for entropy in ("exact", "weighted", "sticking")
}
SCORE_FUNCTIONS = {
    f"score-{entropy}-cv={variate}-rb={rao_blackwell}": isvi.ScoreFunction(
        num_samples=4, per_factor=False, entropy=entropy, control_variate=variate, rao_blackwell=rao_blackwell
    )
    for entropy, variate, rao_blackwell in product(("exact", "weighted"), (False, True), (False, True))
    if entropy == "weighted" or not rao_blackwell  # without log q in the value there is nothing to leave out
}
ESTIMATORS = REPARAMETERIZATIONS | SCORE_FUNCTIONS
NUM_RECORDS = 40_000

pytestmark = pytest.mark.usefixtures("x64")


def old_and_new(approximation: isvi.Approximation) -> tuple:
    """Parameters that differ by about half a standard deviation in location, and by a tenth in scale."""
    order = np.argsort(gaussian.order(approximation))
    init = jax.jit(approximation.init)
    old = init(*normal_moments(np.array([-0.2, 0.6, -0.1])[order], 0.6))
    new = init(*normal_moments(np.array([-0.5, 0.9, -0.4])[order], 0.57))
    return jiggled(old, seed=1, size=0.06), jiggled(new, seed=2, size=0.06)


def gradient_of_elbo(approximation: isvi.Approximation) -> Callable:
    """Exact, in the parameters."""
    return jax.jit(jax.grad(partial(gaussian.exact_elbo, approximation)))


def combinations() -> list:
    """Variants of the score function are about its values, not about the family: quick with one family only."""
    quick = ("score-weighted-cv=False-rb=False", "score-weighted-cv=True-rb=True", *REPARAMETERIZATIONS)
    return [
        pytest.param(
            family,
            estimator,
            id=f"{estimator}-{family}",
            marks=() if family == "mean-field" or estimator in quick else pytest.mark.slow,
        )
        for family, estimator in product(FAMILIES, ESTIMATORS)
    ]


@pytest.mark.parametrize(("family", "estimator"), combinations())
def test_joint_exact_weights_are_unbiased(family, estimator):
    approximation = isvi.approximate(FAMILIES[family], gaussian.model().latents)
    old, new = old_and_new(approximation)
    gradients = reused_gradients(bound(ESTIMATORS[estimator], gaussian.model(), approximation), old, new, NUM_RECORDS)
    exact = flat(gradient_of_elbo(approximation)(new))
    assert_mean_is(gradients, exact)
    # The test must be able to tell a wrong gradient from a right one.
    assert resolution(gradients).max() < 0.25 * np.abs(exact).max()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights", ["exact", "paper", "none"])
@pytest.mark.parametrize("per_factor", [True, False])
def test_a_fresh_record_has_weights_of_one(family, weights, per_factor):
    """At the parameters that drew it, a record gives the same gradient in every weight mode."""
    approximation = isvi.approximate(FAMILIES[family], gaussian.model().latents)
    params, _ = old_and_new(approximation)
    options = {"num_samples": 6, "entropy": "weighted"}
    plain = bound(isvi.Reparameterization(**options, weights="none"), gaussian.model(), approximation)
    weighted = bound(
        isvi.Reparameterization(**options, weights=weights, per_factor=per_factor), gaussian.model(), approximation
    )
    np.testing.assert_allclose(
        reused_gradients(weighted, params, params, 3), reused_gradients(plain, params, params, 3), rtol=1e-10
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gradient_without_weights_is_of_the_old_parameters(family):
    """``weights="none"`` is right where the record was made, and visibly wrong elsewhere."""
    approximation = isvi.approximate(FAMILIES[family], gaussian.model().latents)
    old, new = old_and_new(approximation)
    estimator = bound(isvi.Reparameterization(num_samples=4, weights="none"), gaussian.model(), approximation)
    gradient = gradient_of_elbo(approximation)
    assert_mean_is(reused_gradients(estimator, old, old, 10_000), flat(gradient(old)))
    moved = reused_gradients(estimator, old, new, 10_000)
    assert np.any(np.abs(moved.mean(axis=0) - flat(gradient(new))) > 3 * resolution(moved))
