"""Antithetic pairs: mirrored, still unbiased, and exact where the model's gradient is linear.

Two-sided at 5 standard errors; about 50 entries, so a correct estimator fails with probability below 3e-5.
"""

import jax
import numpy as np
import pytest
from support import gaussian
from support.records import bound, flat, normal_moments, reused_gradients
from support.statistics import assert_mean_is

import isvi

FAMILIES = {"mean-field": isvi.MeanField(), "block": isvi.Block(), "full-rank": isvi.FullRank()}

pytestmark = pytest.mark.usefixtures("x64")


def set_up(family: str, options) -> tuple:
    approximation = isvi.approximate(FAMILIES[family], gaussian.model().latents)
    return approximation, bound(options, gaussian.model(), approximation)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_half_mirrors_the_first(family):
    approximation, estimator = set_up(family, isvi.Reparameterization(num_samples=6, antithetic=True))
    params = approximation.init(*normal_moments([0.1, 0.2, 0.3], 0.6))
    record = estimator.record(jax.random.key(0), params, isvi.Dataset.from_arrays(None).batch(0))
    np.testing.assert_allclose(record.draws[:3] + record.draws[3:], np.tile([0.2, 0.4, 0.6], (3, 1)), rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_pair_gives_the_exact_gradient_in_the_location(family):
    """The model's gradient is linear, so its mean over a pair is its value at the centre: nothing is random."""
    approximation, estimator = set_up(family, isvi.Reparameterization(num_samples=2, antithetic=True))
    params = approximation.init(*normal_moments([0.1, 0.2, 0.3], 0.6))

    def locations(tree) -> np.ndarray:
        pieces = tree if len(approximation.pieces) > 1 else (tree,)
        return np.concatenate([piece.loc for piece in pieces])

    record = estimator.record(jax.random.key(0), params, isvi.Dataset.from_arrays(None).batch(0))
    exact = jax.grad(gaussian.exact_elbo, argnums=1)(approximation, params)
    np.testing.assert_allclose(locations(estimator.gradient(params, record.alone())), locations(exact), rtol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        isvi.Reparameterization(num_samples=4, antithetic=True, per_factor=False),
        isvi.ScoreFunction(num_samples=4, antithetic=True, per_factor=False, control_variate=True),
    ],
    ids=lambda options: type(options).__name__,
)
def test_pairs_are_unbiased_at_moved_parameters(family, options):
    """The control variate must leave out the mirror image too: it is not independent of the draw."""
    approximation, estimator = set_up(family, options)
    old = approximation.init(*normal_moments([-0.2, 0.6, -0.1], 0.6))
    new = approximation.init(*normal_moments([-0.5, 0.9, -0.4], 0.57))
    exact = flat(jax.grad(gaussian.exact_elbo, argnums=1)(approximation, new))
    assert_mean_is(reused_gradients(estimator, old, new, 40_000), exact)
