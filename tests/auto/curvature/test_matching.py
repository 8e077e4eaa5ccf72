"""The curvature that pairs show, against the one that made them."""

import jax
import jax.numpy as jnp
import numpy as np

from isvi.auto.curvature.matching import Differences, estimate, match

DIM = 12


def random_precision(rng: np.random.Generator, dim: int = DIM) -> np.ndarray:
    root = rng.normal(size=(dim, dim)) / np.sqrt(dim) + np.eye(dim)
    return root @ root.T


def signs(rng: np.random.Generator, pairs: int, dim: int = DIM) -> np.ndarray:
    return rng.choice([-1.0, 1.0], size=(pairs, dim))


def differences(draws: np.ndarray, answers: np.ndarray) -> Differences:
    shares = jnp.full(len(draws), 1 / len(draws))
    return Differences(shares, jnp.asarray(draws, jnp.float32), jnp.asarray(answers, jnp.float32))


NO_SECANTS = differences(np.zeros((1, DIM)), np.zeros((1, DIM)))


def covariance(pairs: Differences, known: np.ndarray, secants: Differences = NO_SECANTS) -> np.ndarray:
    root = np.asarray(jax.jit(estimate)(pairs, secants, jnp.asarray(known, jnp.float32)).inverse_root, np.float64)
    return root @ root.T


def test_mini_batches_that_agree_leave_nothing_to_estimate() -> None:
    """With one H for all pairs, matching solves C G C = H G H exactly: C = H, but for the ridge of 3 / 400."""
    rng = np.random.default_rng(0)
    curvature, draws = random_precision(rng), signs(rng, 400)
    found = covariance(differences(draws, draws @ curvature), np.zeros((DIM, DIM)))
    np.testing.assert_allclose(found @ curvature, np.eye(DIM), atol=0.05)


def test_a_direction_that_no_mini_batch_knows_has_the_priors_width() -> None:
    """Every mini-batch is flat along v. Single precision shows a curvature of 1e-3 there instead of none: 2% of the
    prior's."""
    rng = np.random.default_rng(1)
    v = np.ones(DIM) / np.sqrt(DIM)
    across = np.eye(DIM) - np.outer(v, v)
    draws = signs(rng, 300)
    answers = np.stack([s @ across @ random_precision(rng) @ across for s in draws])
    known = 0.05 * np.eye(DIM)
    found = covariance(differences(draws, answers), known)
    assert 0.95 < v @ found @ v * 0.05 < 1.01


def test_matching_shows_no_less_curvature_than_there_is() -> None:
    """E[H_b^2] >= E[H_b]^2, and the square root keeps that order. With 4,000 pairs of 12 dimensions the sample's
    eigenvalues are within 12% of the expectation's ((1 + sqrt(12 / 4000))^2)."""
    rng = np.random.default_rng(2)
    batches = [random_precision(rng) for _ in range(20)]
    draws = signs(rng, 4000)
    answers = np.stack([s @ batches[number % 20] for number, s in enumerate(draws)])
    matched = np.asarray(match(differences(draws, answers).moments, jnp.float32(0)), np.float64)
    mean = np.mean(batches, axis=0)
    root = np.linalg.inv(np.linalg.cholesky(mean))
    assert np.linalg.eigvalsh(root @ matched @ root.T).min() > 0.88


def test_a_secant_of_all_data_tells_what_mini_batches_disagree_about() -> None:
    """Along v the curvature is 0.1, and every mini-batch adds noise of mean 0 and standard deviation 1 to that. With
    120 pairs for 60 dimensions, pairs alone show the variance at less than half (0.17 to 0.32 with six keys); a secant
    whose weight times its square is 10 along v, where the pairs have 1, at more than half (0.70 to 0.88)."""
    rng = np.random.default_rng(4)
    dim, number = 60, 120
    v = np.ones(dim) / np.sqrt(dim)
    curvature = np.eye(dim) - 0.9 * np.outer(v, v)
    draws = signs(rng, number, dim)
    answers = draws @ curvature + np.outer((draws @ v) * rng.normal(size=number), v)
    secant = np.sqrt(10.0) * v[None]
    pairs, none = differences(draws, answers), np.zeros((dim, dim))
    without = v @ covariance(pairs, none, differences(0 * secant, 0 * secant)) @ v * 0.1
    with_it = v @ covariance(pairs, none, differences(secant, secant @ curvature)) @ v * 0.1
    assert without < 0.5
    assert 0.5 < with_it < 1.1


def test_changes_of_variances_have_mean_zero_and_the_right_size() -> None:
    """The standard error that they give covers the error of every standard deviation: 12 of them within 4 standard
    errors, which fails by chance in less than one run of a thousand."""
    rng = np.random.default_rng(3)
    base = random_precision(rng)
    draws = signs(rng, 2000)
    answers = np.stack([s @ base * (1 + 0.3 * rng.normal()) for s in draws])
    pairs, known, factor = differences(draws, answers), jnp.zeros((DIM, DIM)), jnp.eye(DIM)
    found = estimate(pairs, NO_SECANTS, known)
    changes = np.asarray(found.variance_changes(pairs, known, factor))
    error = 0.5 * np.sqrt(np.sum((changes / len(draws)) ** 2, axis=0))
    sds = np.sqrt(np.diagonal(found.inverse_root @ found.inverse_root.T))
    exact = np.sqrt(np.diagonal(np.linalg.inv(base)))
    assert np.all(np.abs(np.log(sds / exact)) < 4 * error + 0.02)
