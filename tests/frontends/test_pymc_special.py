"""What PyTensor cannot export to JAX by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from isvi.frontends.pymc.special import erfc, erfcx

POINTS = np.concatenate([np.linspace(-5, 30, 701), np.geomspace(30, 1e6, 20)])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-12)])
def test_erfcx_and_its_slope(dtype: type, tolerance: float) -> None:
    """exp(x^2) multiplies its exponent's rounding: up to 9^2 and 25^2 units in the last place."""
    with jax.enable_x64(dtype == np.float64):
        points = POINTS.astype(dtype)
        values, slopes = jax.vmap(jax.value_and_grad(erfcx))(points)
    exact = special.erfcx(points.astype(float))
    np.testing.assert_allclose(values, exact, rtol=tolerance)
    slope = 2 * points.astype(float) * exact - 2 / np.sqrt(np.pi)
    # Two terms that are nearly equal: what is lost is relative to them.
    np.testing.assert_allclose(slopes, slope, rtol=tolerance, atol=2 * tolerance)


def test_where_it_overflows_it_has_no_slope() -> None:
    value, slope = jax.value_and_grad(erfcx)(np.float32(-20))
    assert np.isinf(value)
    assert slope == 0


def test_the_tail_that_is_not_chosen_has_a_slope() -> None:
    """Of log Phi, as PyMC computes it; to the slope's own asymptote, z for far negative z."""

    def log_cdf(z: jax.Array) -> jax.Array:
        far = jnp.log(erfcx(-z / 2**0.5) / 2) - z**2 / 2
        return jnp.where(z < -1, far, jnp.log1p(-erfc(z / 2**0.5) / 2))

    points = np.array([-100, -30, -5, -1.5, 0, 1, 5, 30, 100], np.float32)
    values, slopes = jax.vmap(jax.value_and_grad(log_cdf))(points)
    exact = special.log_ndtr(points.astype(float))
    np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-7)
    density = -(points.astype(float) ** 2) / 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(slopes, np.exp(density - exact), rtol=1e-3, atol=1e-6)
