"""The best diagonal plus low rank against a numerical optimum of the same KL divergence."""

import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from isvi.families.low_rank import LowRankGaussian, LowRankParams
from tests.support.nearest import Matrix, best, divergence


def intercept(dim: int, random: np.random.Generator) -> Matrix:
    """Of an intercept and all levels of a category, which only the prior tells apart."""
    counts = random.uniform(5, 500, size=dim - 1)
    precision = np.diag([counts.sum() + 0.25, *(counts + 1)])
    precision[0, 1:] = precision[1:, 0] = counts
    return precision


def regression(dim: int, random: np.random.Generator) -> Matrix:
    rows = random.normal(size=(2 * dim, dim)) * 10 ** random.uniform(-2, 2, size=dim)
    return rows.T @ rows


def factors(dim: int, random: np.random.Generator) -> Matrix:
    """Of a member of the family, with three directions."""
    along = random.normal(size=(dim, 3)) * [0.5, 2, 5]
    return np.linalg.inv(np.diag(random.uniform(0.5, 2, dim)) + along @ along.T)


@pytest.mark.parametrize("make", [intercept, regression, factors])
@pytest.mark.parametrize("rank", [1, 3])
def test_as_near_as_a_numerical_optimum(make, rank: int) -> None:
    precision = make(20, np.random.default_rng(4))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    piece = LowRankGaussian(1, 20, rank)
    params = piece.with_factor(jnp.zeros(20), jnp.asarray(factor, jnp.float32))
    found = np.asarray(piece.factor(params), float)
    covariance, wanted = found @ found.T, best(precision, rank)
    assert divergence(covariance, precision) < divergence(wanted, precision) + 1e-3
    np.testing.assert_allclose(np.diagonal(covariance) / np.diagonal(wanted), 1, atol=0.01)
    # What makes it an optimum: its precision has the target's diagonal.
    np.testing.assert_allclose(np.diagonal(np.linalg.inv(covariance)) / np.diagonal(precision), 1, atol=0.01)
    np.testing.assert_allclose(piece.scale(params), np.sqrt(np.diagonal(covariance)), rtol=1e-3)


def test_variances_of_factor_analysis_are_something_else() -> None:
    """The other direction of the divergence keeps the target's variances; here the ELBO's optimum has smaller ones."""
    precision = regression(20, np.random.default_rng(4))
    sds = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    assert (np.sqrt(np.diagonal(best(precision, 1))) / sds).min() < 0.8


def test_a_member_is_its_own_nearest() -> None:
    random = np.random.default_rng(0)
    piece = LowRankGaussian(1, 12, 2)
    params = LowRankParams(*(jnp.asarray(random.normal(size=shape), jnp.float32) for shape in (12, 12, (12, 2))))
    factor = piece.factor(params)
    again = piece.factor(piece.with_factor(params.loc, factor))
    scale = np.asarray(piece.scale(params))
    difference = np.asarray(again @ again.T - factor @ factor.T) / np.outer(scale, scale)
    np.testing.assert_allclose(difference, 0, atol=0.005)


def test_a_precision_and_its_root_say_the_same() -> None:
    random = np.random.default_rng(5)
    precision = regression(8, random)
    piece, location = LowRankGaussian(1, 8, 2), jnp.zeros(8)
    factor = jnp.asarray(np.linalg.cholesky(np.linalg.inv(precision)), jnp.float32)
    by_factor = piece.with_factor(location, factor)
    by_precision = piece.match(location, jnp.asarray(precision, jnp.float32))
    np.testing.assert_allclose(piece.scale(by_factor), piece.scale(by_precision), rtol=1e-3)
    diagonal = piece.match(location, jnp.asarray(np.diagonal(precision), jnp.float32))
    np.testing.assert_allclose(piece.scale(diagonal), np.diagonal(precision) ** -0.5, rtol=1e-5)


def test_what_it_is_called() -> None:
    latents = {"a": isvi.real(5), "b": isvi.real(3)}
    assert isvi.approximate(isvi.LowRank(2), latents).description == "a Gaussian of a diagonal plus 2 directions"
    assert not isvi.approximate(isvi.LowRank(2), latents).full
    both = isvi.approximate({"a": isvi.LowRank(2)}, latents)
    assert both.low_rank
    assert both.num_factors == 4
