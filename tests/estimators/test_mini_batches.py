"""Mini-batches: weighted by their shares they sum to the whole, with the prior counted once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from support.records import bound, flat, normal_moments

import isvi

ROWS = np.random.default_rng(0).normal(1.0, 2.0, size=(23, 2))
PRIOR_SCALE, NOISE = 0.7, 1.3

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def model() -> isvi.Model:
    return isvi.Model(
        {"mean": isvi.real(2)},
        log_prior=lambda z: norm.logpdf(z["mean"], 0.0, PRIOR_SCALE).sum(),
        log_likelihood=lambda z, rows: norm.logpdf(rows, z["mean"], NOISE).sum(),
    )


@pytest.fixture
def approximation(model) -> isvi.Approximation:
    return isvi.approximate(isvi.MeanField(), model.latents)


def test_shares_weighted_sum_is_the_full_gradient(model, approximation):
    """At a fixed z, to rounding; 23 rows in mini-batches of 5 leave 3 for the last."""
    target = isvi.Target(model, approximation.coordinates)
    dataset = isvi.Dataset.from_arrays(ROWS, batch_size=5)
    draws = jnp.array([[0.3, -0.4], [1.0, 2.0]])
    values, gradients = 0.0, 0.0
    for index in range(dataset.num_batches):
        batch = dataset.batch(index)
        value, gradient = target.values_and_gradients(draws, batch)
        np.testing.assert_allclose(target.values(draws, batch), value, rtol=1e-12)
        values, gradients = values + batch.share * value, gradients + batch.share * gradient
    by_hand = (ROWS.sum(axis=0) - 23 * draws) / NOISE**2 - draws / PRIOR_SCALE**2
    np.testing.assert_allclose(gradients, by_hand, rtol=1e-12)
    np.testing.assert_allclose(values, target.exact_values(draws, dataset), rtol=1e-12)


@pytest.mark.parametrize("options", [isvi.Reparameterization(num_samples=3), isvi.ScoreFunction(num_samples=3)])
def test_records_of_all_mini_batches_equal_one_of_all_rows(model, approximation, options):
    """The same key gives the same draws, so the two gradients agree to rounding."""
    estimator = bound(options, model, approximation)
    params = approximation.init(*normal_moments([0.1, 0.2], 0.6))
    cut, whole = isvi.Dataset.from_arrays(ROWS, batch_size=5), isvi.Dataset.from_arrays(ROWS)
    key = jax.random.key(3)
    made = [estimator.record(key, params, cut.batch(index)) for index in range(cut.num_batches)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)
    alone = estimator.record(key, params, whole.batch(0)).alone()
    np.testing.assert_allclose(
        flat(estimator.gradient(params, together)), flat(estimator.gradient(params, alone)), rtol=1e-10
    )


def test_the_mean_over_an_epoch_is_the_full_gradient(model, approximation):
    """SGD visits the short mini-batch as often as the others: its rows must not count more than theirs."""
    estimator = bound(isvi.Reparameterization(num_samples=3), model, approximation)
    params = approximation.init(*normal_moments([0.1, 0.2], 0.6))
    cut, whole = isvi.Dataset.from_arrays(ROWS, batch_size=5), isvi.Dataset.from_arrays(ROWS)
    key = jax.random.key(3)

    def gradient(batch: isvi.Batch) -> np.ndarray:
        return flat(estimator.gradient(params, estimator.record(key, params, batch).alone()))

    epoch = [gradient(cut.batch(index)) for index in range(cut.num_batches)]
    np.testing.assert_allclose(np.mean(epoch, axis=0), gradient(whole.batch(0)), rtol=1e-10)
