"""Which latents drive the others is found, and where none do that is said."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from isvi.auto.driving import find_drivers


def found(log_joint, location, covariance):
    with jax.enable_x64(True):
        return find_drivers(log_joint, np.asarray(location, float), np.asarray(covariance, float))


def test_of_a_funnel_it_is_the_one():
    others = np.delete(np.arange(8), 3)
    driving = found(
        lambda z: norm.logpdf(z[3], 0, 1) + norm.logpdf(z[others], 0, jnp.exp(z[3] / 2)).sum(), np.zeros(8), np.eye(8)
    )
    assert driving.drivers == (3,)
    assert driving.bent


def test_a_gaussian_has_none():
    """Not even one whose covariance was not found rightly."""
    precision = np.eye(5) + 0.5
    driving = found(lambda z: -0.5 * z @ precision @ z, np.ones(5), 2 * np.eye(5))
    assert driving.drivers == ()
    assert not driving.bent


def test_where_every_latent_bends_alone_there_are_none():
    """Logarithms of Gammas of shape 2, sixty of them: bent, and no ten's doing."""
    driving = found(lambda z: jnp.sum(2 * z - 2 * jnp.exp(z)), np.zeros(60), np.eye(60) / 2)
    assert driving.drivers == ()
    assert driving.bent


def test_units_do_not_matter():
    """Of effects in thousandths and a scale, the scale."""
    random = np.random.default_rng(0)
    y = random.normal(size=12) / 1000

    def log_joint(z):
        return norm.logpdf(z[0], -7, 1) + norm.logpdf(z[1:], 0, jnp.exp(z[0])).sum() + norm.logpdf(y, z[1:], 1e-3).sum()

    covariance = np.diag([0.05, *np.full(12, 5e-7)])
    assert found(log_joint, np.array([-7.0, *y / 2]), covariance).drivers == (0,)
