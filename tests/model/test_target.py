"""The log joint in the coordinates of an approximation, against densities written out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.scipy.stats import expon, norm

import isvi
from isvi import families

DATA = {"x": np.linspace(-1, 1, 11), "y": np.linspace(0, 3, 11) ** 1.5}

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def model() -> isvi.Model:
    return isvi.Model(
        latents={"slope": isvi.real(), "noise": isvi.positive(via="exp")},
        log_prior=lambda z: norm.logpdf(z["slope"], 0.0, 2.0) + expon.logpdf(z["noise"]),
        log_likelihood=lambda z, rows: norm.logpdf(rows["y"], z["slope"] * rows["x"], z["noise"]).sum(),
    )


def by_hand(slope: float, noise: float) -> float:
    prior = scipy.stats.norm.logpdf(slope, 0, 2) + scipy.stats.expon.logpdf(noise)
    return prior + scipy.stats.norm.logpdf(DATA["y"], slope * DATA["x"], noise).sum()


def test_log_joint_in_unconstrained_space_includes_the_jacobian(model):
    approximation = isvi.approximate(isvi.MeanField(), model.latents)
    target = isvi.Target(model, approximation.coordinates)
    z = jnp.array([0.4, -0.3])
    expected = by_hand(0.4, np.exp(-0.3)) - 0.3
    np.testing.assert_allclose(target.log_joint(z, DATA, 1.0), expected, rtol=1e-12)
    for batch_size in (11, 4):
        dataset = isvi.Dataset.from_arrays(DATA, batch_size)
        np.testing.assert_allclose(target.exact_values(z[None], dataset), [expected], rtol=1e-12)


def test_log_joint_in_constrained_space_has_no_jacobian(model):
    approximation = isvi.approximate({"noise": families.Gamma()}, model.latents)
    target = isvi.Target(model, approximation.coordinates)
    z = approximation.coordinates.encode({"slope": jnp.array(0.4), "noise": jnp.array(0.7)})
    np.testing.assert_allclose(target.log_joint(z, DATA, 1.0), by_hand(0.4, 0.7), rtol=1e-12)


def test_gradient_is_that_of_the_values(model):
    """Against central differences of the hand-written density."""
    approximation = isvi.approximate(isvi.MeanField(), model.latents)
    target = isvi.Target(model, approximation.coordinates)
    dataset = isvi.Dataset.from_arrays(DATA)
    z = np.array([0.4, -0.3])
    _, gradient = target.values_and_gradients(jnp.asarray(z[None]), dataset.batch(0))

    def density(z) -> float:
        return by_hand(z[0], np.exp(z[1])) + z[1]

    step = 1e-5 * np.eye(2)
    differences = [(density(z + one) - density(z - one)) / 2e-5 for one in step]
    np.testing.assert_allclose(gradient[0], differences, rtol=1e-7)


def test_a_bare_density_is_a_model():
    model = isvi.Model({"v": isvi.positive(via="exp")}, lambda z: expon.logpdf(z["v"]))
    target = isvi.Target(model, isvi.approximate(isvi.MeanField(), model.latents).coordinates)
    batch = isvi.Dataset.from_arrays(None).batch(0)
    np.testing.assert_allclose(target.values(jnp.array([[0.5]]), batch), [-np.exp(0.5) + 0.5], rtol=1e-12)


def test_densities_may_return_plain_numbers():
    """A constant likelihood is a strange one, but no reason to crash."""
    model = isvi.Model({"v": isvi.real()}, lambda z: -0.5 * z["v"] ** 2, lambda z, rows: 0.0)
    target = isvi.Target(model, isvi.approximate(isvi.MeanField(), model.latents).coordinates)
    assert float(target.log_joint(jnp.array([1.0]), None, 3.0)) == -0.5


def test_the_model_is_traced_once_per_shape(model):
    """Full and short mini-batches are two shapes; their number does not matter."""
    calls = []

    def counted(z, rows):
        calls.append(1)
        return model.log_likelihood(z, rows)

    counting = isvi.Model(model.latents, model.log_prior, counted)
    target = isvi.Target(counting, isvi.approximate(isvi.MeanField(), model.latents).coordinates)
    dataset = isvi.Dataset.from_arrays(DATA, 2)
    evaluate = jax.jit(target.values)
    for index in range(dataset.num_batches):
        evaluate(jnp.zeros((1, 2)), dataset.batch(index))
    assert len(calls) == 2
