"""The families over constrained space against exact gradients, as test_unbiased.py does for the Gaussians.

Joint exact weights, two-sided, 5 standard errors; about 100 entries: a correct estimator fails anywhere with
probability below 100 * 5.7e-7 < 6e-5.
"""

from functools import partial

import jax
import numpy as np
import pytest
from support.conjugate import CASES
from support.records import bound, flat, jiggled, normal_moments, reused_gradients
from support.statistics import assert_mean_is, resolution

import isvi

ESTIMATORS = {
    "path-exact": isvi.Reparameterization(num_samples=4, per_factor=False),
    "path-weighted": isvi.Reparameterization(num_samples=4, per_factor=False, entropy="weighted"),
    "path-sticking": isvi.Reparameterization(num_samples=4, per_factor=False, entropy="sticking"),
    "score": isvi.ScoreFunction(num_samples=4, per_factor=False),
}

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "estimator",
    [pytest.param(name, marks=pytest.mark.slow if name == "path-weighted" else ()) for name in ESTIMATORS],
)
def test_joint_exact_weights_are_unbiased(name, estimator):
    case = CASES[name]
    approximation = isvi.approximate(case.family, case.model.latents)
    init = jax.jit(approximation.init)
    old = jiggled(init(*normal_moments(*case.old)), seed=1, size=0.06)
    new = jiggled(init(*normal_moments(*case.new)), seed=2, size=0.06)
    gradients = reused_gradients(bound(ESTIMATORS[estimator], case.model, approximation), old, new, 20_000)
    exact = flat(jax.jit(jax.grad(partial(case.elbo, approximation)))(new))
    assert_mean_is(gradients, exact)
    assert resolution(gradients).max() < 0.5 * np.abs(exact).max()
