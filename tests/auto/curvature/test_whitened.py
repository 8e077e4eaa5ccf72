"""The quadratic that stored records describe, in the coordinates of q, against the one they were made from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isvi.auto.curvature.whitened import LARGEST_CHANGE, Root, Whitened, newton, regress
from isvi.memory.record import Record

DIM = 3


@pytest.fixture
def target() -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of a Gaussian whose scales differ by 1e4 and whose entries correlate."""
    rng = np.random.default_rng(0)
    square = rng.normal(size=(DIM, DIM))
    scales = np.array([100.0, 1.0, 0.01])
    return scales * rng.normal(size=DIM), (square @ square.T + np.eye(DIM)) / np.outer(scales, scales)


def records_of(target: tuple[np.ndarray, np.ndarray], location: np.ndarray, factor: np.ndarray, count: int) -> Record:
    mean, precision = target
    half = np.random.default_rng(1).normal(size=(count, 1, DIM))
    draws = location + np.concatenate([half, -half], axis=1) @ factor.T
    return Record(
        draws=jnp.asarray(draws),
        log_density=jnp.zeros((count, 2, 1)),
        log_joint=jnp.zeros((count, 2)),
        gradient=jnp.asarray(-(draws - mean) @ precision),
        batch=jnp.zeros(count, jnp.int32),
        share=jnp.ones(count),
    )


def test_exact_on_a_gaussian(target: tuple[np.ndarray, np.ndarray]) -> None:
    """A quadratic is found from a few pairs up to the ridge: 3 in about 4 * 2000, so to 1e-3 relative, and the step
    from anywhere leads to the mean."""
    with jax.enable_x64(True):
        mean, precision = target
        factor = np.diag(np.diagonal(precision) ** -0.5)
        location = mean + factor @ np.array([1.0, -2.0, 0.5])
        records = Whitened.of(
            records_of(target, location, factor, 2000), jnp.ones(2000), jnp.asarray(location), jnp.asarray(factor)
        )
        curvature = regress(records)
        free = jnp.ones((DIM, DIM), bool)
        np.testing.assert_allclose(curvature.matrix, factor.T @ precision @ factor, atol=2e-3)
        step = newton(records, curvature.root())
        np.testing.assert_allclose(step.step, np.linalg.solve(factor, mean - location), rtol=1e-2)
        difference = mean - location
        assert step.gain == pytest.approx(0.5 * difference @ precision @ difference / DIM, rel=1e-2)
        assert curvature.uncertainty(free) < 1e-6
        # 0.25 tr((W - 1)^2) is the KL divergence to second order in how far the precision is from the curvature.
        change = factor.T @ precision @ factor - np.eye(DIM)
        assert curvature.change(free) == pytest.approx(0.25 * np.sum(change**2) / DIM, rel=1e-2)


def test_known_root_gives_the_same_step(target: tuple[np.ndarray, np.ndarray]) -> None:
    """The exact root, given in the coordinates z, leads to the mean exactly, even from a q with other scales."""
    with jax.enable_x64(True):
        mean, precision = target
        factor = 0.1 * np.diag(np.diagonal(precision) ** -0.5)
        location = mean + factor @ np.array([1.0, -2.0, 0.5])
        records = Whitened.of(
            records_of(target, location, factor, 20), jnp.ones(20), jnp.asarray(location), jnp.asarray(factor)
        )
        root = Root.known(jnp.linalg.cholesky(jnp.linalg.inv(jnp.asarray(precision))), jnp.asarray(factor))
        np.testing.assert_allclose(root.forward @ root.backward, np.eye(DIM), atol=1e-9)
        step = newton(records, root)
        np.testing.assert_allclose(step.step, [-1.0, 2.0, -0.5], rtol=1e-6)
        assert step.uncertainty < 1e-12


def test_precision_keeps_to_the_family() -> None:
    """A diagonal family goes half way, in logarithms, to the curvature's diagonal, and by a factor of 3 at most."""
    with jax.enable_x64(True):
        target = np.zeros(DIM), np.diag([1.0, 50.0, 2.0]) + 0.5
        records = Whitened.of(
            records_of(target, np.zeros(DIM), np.eye(DIM), 500), jnp.ones(500), jnp.zeros(DIM), jnp.eye(DIM)
        )
        precision = regress(records).precision(jnp.eye(DIM, dtype=bool), jnp.float32(LARGEST_CHANGE))
    np.testing.assert_allclose(precision, np.diag(np.sqrt([1.5, 9.0, 2.5])), atol=0.05)
