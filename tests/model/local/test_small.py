import jax.numpy as jnp
import numpy as np
import pytest

from isvi.model.local.small import cholesky, log_determinant, solve_lower, solve_upper


@pytest.mark.parametrize("size", [1, 2, 5])
def test_factor_and_solutions_are_those_of_numpy(size):
    random = np.random.default_rng(size)
    roots = random.normal(size=(6, size, size)) + 2 * np.eye(size)
    matrices, vectors = roots @ roots.transpose(0, 2, 1), random.normal(size=(6, size))
    found = cholesky(jnp.asarray(matrices, jnp.float32))
    lower = np.linalg.cholesky(matrices)
    assert bool(found.definite.all())
    np.testing.assert_allclose(found.lower, lower, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(log_determinant(found.lower), np.linalg.slogdet(matrices)[1] / 2, rtol=1e-4, atol=1e-4)
    for solve, factor in ((solve_lower, lower), (solve_upper, lower.transpose(0, 2, 1))):
        expected = np.linalg.solve(factor, vectors[..., None])[..., 0]
        np.testing.assert_allclose(
            solve(found.lower, jnp.asarray(vectors, jnp.float32)), expected, rtol=2e-3, atol=2e-3
        )


def test_an_indefinite_matrix_is_told_and_still_has_a_factor():
    matrices = jnp.array([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]], [[-1.0, 0.0], [0.0, 1.0]]])
    found = cholesky(matrices)
    assert found.definite.tolist() == [False, True, False]
    assert bool(jnp.isfinite(found.lower).all())
    assert bool((jnp.diagonal(found.lower, axis1=1, axis2=2) > 0).all())
