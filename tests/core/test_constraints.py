"""Every kind of latent: the way to the unconstrained space and back, and the Jacobian of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import isvi
from isvi.core.coordinates import lay_out

LATENTS = {
    "real scalar": isvi.real(),
    "real": isvi.real(2, 3),
    "positive softplus": isvi.positive(3),
    "positive exp": isvi.positive(3, via="exp"),
    "interval": isvi.interval(-1.0, 2.5, 3),
    "unit interval": isvi.unit_interval(2),
    "simplex": isvi.simplex(4),
    "two simplexes": isvi.simplex(2, 3),
    "ordered": isvi.ordered(3),
    "corr_cholesky": isvi.constrained(constraints.corr_cholesky, 3, 3),
    "lower_cholesky": isvi.constrained(constraints.lower_cholesky, 2, 2),
    "positive_ordered": isvi.constrained(constraints.positive_ordered_vector, 3),
    "greater_than": isvi.constrained(constraints.greater_than(2.0), 2),
    "less_than": isvi.constrained(constraints.less_than(-1.0), 2),
    "zero_sum": isvi.constrained(constraints.zero_sum(1), 4),
}
FREE_ENTRIES = {
    "simplex": lambda value: value[:-1],
    "two simplexes": lambda value: value[:, :-1],
    "corr_cholesky": lambda value: value[jnp.tril_indices(3, -1)],
    "lower_cholesky": lambda value: value[jnp.tril_indices(2)],
    "zero_sum": None,
}
"""Entries of the constrained value with respect to which its density is written, where that is not all of them.
numpyro's density of a zero-sum vector is with respect to an orthonormal basis, so its map has no such entries."""

pytestmark = pytest.mark.usefixtures("x64")


def coordinates(latent: isvi.Latent):
    return lay_out({"v": latent}, ["v"])


@pytest.mark.parametrize("name", LATENTS)
def test_round_trip_inside_the_support(name):
    flat = coordinates(LATENTS[name])
    z = jax.random.normal(jax.random.key(1), (flat.size,))
    values, _ = jax.jit(flat.decode)(z)
    assert values["v"].shape == LATENTS[name].shape
    assert np.all(jax.jit(lambda value: LATENTS[name].constraint(value))(values["v"]))
    np.testing.assert_allclose(jax.jit(flat.encode)(values), z, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in LATENTS if FREE_ENTRIES.get(name, True)])
def test_log_determinant_equals_that_of_the_jacobian(name):
    """By forward differentiation of the whole map, which knows nothing of the formula in use."""
    flat = coordinates(LATENTS[name])
    z = jax.random.normal(jax.random.key(2), (flat.size,))
    free = FREE_ENTRIES.get(name, lambda value: value)
    jacobian = jax.jit(jax.jacfwd(lambda z: jnp.ravel(free(flat.decode(z)[0]["v"]))))(z)
    np.testing.assert_allclose(jax.jit(flat.decode)(z)[1], np.linalg.slogdet(jacobian)[1], rtol=1e-8, atol=1e-8)


def test_zero_sum_is_volume_preserving():
    flat = coordinates(LATENTS["zero_sum"])
    z = jax.random.normal(jax.random.key(2), (flat.size,))
    jacobian = jax.jacfwd(lambda z: flat.decode(z)[0]["v"])(z)
    np.testing.assert_allclose(np.linalg.slogdet(jacobian.T @ jacobian)[1] / 2, flat.decode(z)[1], atol=1e-8)


@pytest.mark.parametrize(
    ("latent", "size", "unconstrained"),
    [(isvi.real(), 1, 1), (isvi.real(2, 3), 6, 6), (isvi.simplex(5), 5, 4), (isvi.simplex(2, 3), 6, 4)],
)
def test_sizes(latent, size, unconstrained):
    assert (latent.size, latent.unconstrained_size) == (size, unconstrained)


def test_constant_entries_of_matrices():
    """The diagonal of a correlation matrix; of its Cholesky factor the first entry and what is above the diagonal."""
    matrix = isvi.constrained(constraints.corr_matrix, 2, 3, 3)
    np.testing.assert_allclose(matrix.constants, np.broadcast_to(np.where(np.eye(3), 1.0, np.nan), (2, 3, 3)))
    factor = np.where(np.triu(np.ones((3, 3)), 1), 0.0, np.nan)
    factor[0, 0] = 1.0
    np.testing.assert_allclose(isvi.constrained(constraints.corr_cholesky, 3, 3).constants, factor)
    for free in (isvi.real(3), isvi.simplex(3), isvi.constrained(constraints.zero_sum(1), 3), isvi.positive()):
        assert np.isnan(free.constants).all()
