"""Batch and match against what its paper proves."""

from itertools import islice

import numpy as np

from benchmarks.batch_and_match import Gaussian, rounds, solve, update

PRECISION = np.array([[2.0, 0.9, -0.6], [0.9, 1.5, 0.5], [-0.6, 0.5, 1.8]])
MODE = np.array([5.0, -3.0, 8.0])


def scores(draws: np.ndarray) -> np.ndarray:
    return -(draws - MODE) @ PRECISION


def test_solves_its_quadratic_equation():
    rng = np.random.default_rng(0)
    u = np.outer(*[rng.normal(size=4)] * 2)
    half = rng.normal(size=(4, 4))
    v = half @ half.T + np.eye(4)
    s = solve(u, v)
    np.testing.assert_allclose(s @ u @ s + s, v, atol=1e-12)
    assert np.linalg.eigvalsh(s).min() > 0


def test_the_target_is_a_fixed_point():
    """Where q is the target, scores and draws agree and no batch moves it."""
    q = Gaussian(MODE, np.linalg.inv(PRECISION))
    draws = np.random.default_rng(1).normal(size=(2, 3)) + MODE
    moved = update(q, draws, scores(draws), rate=7.0)
    np.testing.assert_allclose(moved.mean, MODE, atol=1e-12)
    np.testing.assert_allclose(moved.covariance, q.covariance, atol=1e-12)


def test_the_update_minimises_what_it_says():
    """The gradient of the batch's divergence plus the KL vanishes there, by central differences."""
    rng = np.random.default_rng(2)
    q, rate = Gaussian(np.array([0.3, -0.2]), np.array([[1.0, 0.3], [0.3, 0.5]])), 3.0
    draws, given = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))

    def objective(mean: np.ndarray, covariance: np.ndarray) -> float:
        precision = np.linalg.inv(covariance)
        off = given + (draws - mean) @ precision
        divergence = np.mean(np.sum((off @ covariance) * off, axis=1))
        centred = q.mean - mean
        volume = np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(q.covariance)[1]
        kl = 0.5 * (np.trace(precision @ q.covariance) + centred @ precision @ centred - 2 + volume)
        return divergence + 2 / rate * kl

    new, step = update(q, draws, given, rate), 1e-5
    for direction in np.eye(2):
        up, down = (objective(new.mean + sign * step * direction, new.covariance) for sign in (1, -1))
        assert abs(up - down) / (2 * step) < 1e-6
    for direction in ([[1, 0], [0, 0]], [[0, 1], [1, 0]], [[0, 0], [0, 1]]):
        up, down = (objective(new.mean, new.covariance + sign * step * np.array(direction)) for sign in (1, -1))
        assert abs(up - down) / (2 * step) < 1e-6


def test_converges_to_a_gaussian_target_exactly():
    """Exponentially fast, from far away: 1e-9 after 60 rounds of 10 draws at a constant rate."""
    start = Gaussian(np.zeros(3), np.eye(3))
    q = next(islice(rounds(scores, start, 10, np.random.default_rng(3), constant=True), 60, None))
    np.testing.assert_allclose(q.mean, MODE, atol=1e-9)
    np.testing.assert_allclose(q.covariance, np.linalg.inv(PRECISION), atol=1e-9)
