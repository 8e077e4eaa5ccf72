"""Curvature from pairs, against matrices that are known."""

import jax
import jax.numpy as jnp
import numpy as np

from isvi.auto.curvature import Curvature, Evidence, Pairs, fit_diagonal, tempered
from isvi.auto.secants import Secants


def pairs_of(matrix: np.ndarray, count: int) -> Pairs:
    draws = np.random.default_rng(0).normal(size=(count, len(matrix))) * 2 * np.diagonal(matrix) ** -0.5
    return Pairs(jnp.asarray(draws, jnp.float32), jnp.asarray(draws @ matrix, jnp.float32))


def test_diagonal_needs_no_damping_when_it_is_right() -> None:
    matrix = np.diag([4.0, 0.01, 100.0])
    evidence = Evidence.of(pairs_of(matrix, 50), jnp.ones(50))
    start = Curvature.of(jnp.asarray(np.diagonal(matrix), jnp.float32))
    curvature = fit_diagonal(evidence, start, largest_change=2.0)
    np.testing.assert_allclose(curvature.precision, np.diagonal(matrix), rtol=1e-4)
    np.testing.assert_allclose(curvature.damping, 1.0, rtol=1e-4)


def test_correlation_asks_for_damping() -> None:
    matrix = 0.1 * np.eye(10) + 0.9
    evidence = Evidence.of(pairs_of(matrix, 500), jnp.ones(500))
    curvature = fit_diagonal(evidence, Curvature.of(jnp.ones(10)), largest_change=2.0)
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
