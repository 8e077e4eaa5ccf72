"""Curvature from pairs, against matrices that are known."""

import jax
import jax.numpy as jnp
import numpy as np

from isvi.optim.curvature import Curvature, Evidence, Pairs, fit_dense, fit_diagonal, tempered
from isvi.optim.secants import Secants


def pairs_of(matrix: np.ndarray, count: int) -> Pairs:
    draws = np.random.default_rng(0).normal(size=(count, len(matrix))) * 2 * np.diagonal(matrix) ** -0.5
    return Pairs(jnp.asarray(draws, jnp.float32), jnp.asarray(draws @ matrix, jnp.float32))


def known_matrix() -> np.ndarray:
    scales = np.array([1e3, 1.0, 1e-2, 10.0])
    correlation = 0.6 ** np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    return correlation * np.outer(scales, scales)


def test_dense_curvature_is_recovered_without_noise() -> None:
    """On a quadratic every pair is exact, so that enough of them determine the matrix up to the ridge, whose weight
    is 3 against 4 x 4,000."""
    matrix = known_matrix()
    evidence = Evidence.of(pairs_of(matrix, 4_000), jnp.ones(4_000), dense_dim=4)
    start = Curvature.diagonal(jnp.asarray(np.diagonal(matrix), jnp.float32), dense_dim=4)
    curvature = fit_dense(evidence, fit_diagonal(evidence, start, largest_change=2.0))
    scale = np.sqrt(np.diagonal(matrix))
    np.testing.assert_allclose(curvature.matrix() / np.outer(scale, scale), matrix / np.outer(scale, scale), atol=0.01)
    gradient = jnp.asarray(matrix @ np.array([1e-3, 1.0, 1e2, 0.1]), jnp.float32)
    np.testing.assert_allclose(curvature.solve(gradient), [1e-3, 1.0, 1e2, 0.1], rtol=0.02)


def test_flat_direction_shows_through_noisy_entries() -> None:
    """Every pair has its own matrix, and they agree about one flat direction only: its curvature, 0.01 where that of
    the others is 1 on average, is then known without noise, up to the ridge, whose weight is 3 against 4 x 2,000 or
    4% of 0.01. The noise of single entries alone would hide it: the variance left over, about 40, times 10
    dimensions over 4 x 2,000 is 0.05."""
    rng = np.random.default_rng(2)
    basis, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    flat, others = basis[:, 0], basis[:, 1:]
    draws = 2 * rng.normal(size=(2_000, 10))
    answers = (draws @ others * rng.exponential(size=(2_000, 9))) @ others.T + 0.01 * np.outer(draws @ flat, flat)
    pairs = Pairs(jnp.asarray(draws, jnp.float32), jnp.asarray(answers, jnp.float32))
    evidence = Evidence.of(pairs, jnp.ones(2_000), dense_dim=10)
    start = Curvature.diagonal(jnp.ones(10), dense_dim=10)
    curvature = fit_dense(evidence, fit_diagonal(evidence, start, largest_change=2.0))
    assert curvature.squared_length(jnp.asarray(flat, jnp.float32)) < 0.012
    np.testing.assert_allclose(curvature.solve(jnp.asarray(0.01 * flat, jnp.float32)), flat, atol=0.15)


def test_diagonal_needs_no_damping_when_it_is_right() -> None:
    matrix = np.diag([4.0, 0.01, 100.0])
    evidence = Evidence.of(pairs_of(matrix, 50), jnp.ones(50), dense_dim=0)
    start = Curvature.diagonal(jnp.asarray(np.diagonal(matrix), jnp.float32), dense_dim=0)
    curvature = fit_diagonal(evidence, start, largest_change=2.0)
    np.testing.assert_allclose(curvature.precision, np.diagonal(matrix), rtol=1e-4)
    np.testing.assert_allclose(curvature.damping, 1.0, rtol=1e-4)


def test_correlation_asks_for_damping() -> None:
    matrix = 0.1 * np.eye(10) + 0.9
    evidence = Evidence.of(pairs_of(matrix, 500), jnp.ones(500), dense_dim=0)
    curvature = fit_diagonal(evidence, Curvature.diagonal(jnp.ones(10), dense_dim=0), largest_change=2.0)
    largest = np.linalg.eigvalsh(matrix).max()
    assert curvature.damping < 2 / largest


def test_tempering_keeps_enough_and_ignores_empty_slots() -> None:
    log_weights = jnp.array([0.0, -50.0, -100.0, -200.0, -jnp.inf])
    weights = tempered(log_weights, enough=3)
    assert weights[4] == 0
    np.testing.assert_allclose(weights.sum() ** 2 / (weights**2).sum(), 3, rtol=0.01)
    np.testing.assert_array_equal(tempered(jnp.array([0.0, 0.0]), enough=2), [1, 1])


def test_secants_solve_a_quadratic_from_its_own_steps() -> None:
    """As many secants as dimensions, along the axes, determine the matrix."""
    matrix = jnp.diag(jnp.array([1.0, 20.0, 300.0]))
    secants = Secants.none(3, jnp.float32)
    for axis in jnp.eye(3):
        secants = secants.add(axis, matrix @ axis)
    gradient = jnp.array([1.0, 20.0, 300.0])
    np.testing.assert_allclose(secants.solve(gradient, lambda g: g), jnp.ones(3), rtol=1e-5)
    unchanged = secants.add(jnp.ones(3), -jnp.ones(3))
    jax.tree.map(np.testing.assert_array_equal, unchanged, secants)
