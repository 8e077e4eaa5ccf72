"""Weights of stored pairs."""

import jax.numpy as jnp
import numpy as np

from isvi.auto.curvature.outdated import tempered


def test_tempering_keeps_enough_and_ignores_empty_slots() -> None:
    log_weights = jnp.array([0.0, -50.0, -100.0, -200.0, -jnp.inf])
    weights = tempered(log_weights, enough=3)
    assert weights[4] == 0
    np.testing.assert_allclose(weights.sum() ** 2 / (weights**2).sum(), 3, rtol=0.01)
    np.testing.assert_array_equal(tempered(jnp.array([0.0, 0.0]), enough=2), [1, 1])
