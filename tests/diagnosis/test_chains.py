"""Verdicts where importance weights cannot tell: short chains from draws of q, on posteriors whose truth is known.

q is well inside or well outside of what is promised (a mean by 0.25 sds, an sd by 25%): estimates, whose standard
errors the verdict itself holds to 0.07, would have to be off by three of them; a right verdict fails below one time in
a hundred, and the seeds are fixed.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma
from support.fixed_fit import fixed_fit

import isvi
from benchmarks.verdict_posteriors import grouped
from isvi.data import Dataset
from isvi.families.gaussian import DiagonalParams

MANY = 60


def diagonal(mean, sd):
    return DiagonalParams(jnp.asarray(mean, float), jnp.log(jnp.asarray(sd, float)))


def of_vector(log_density, size, mean, sd):
    model = isvi.Model({"z": isvi.real(size)}, lambda z: log_density(z["z"]))
    return fixed_fit(model, isvi.MeanField(), diagonal(np.broadcast_to(mean, size), np.broadcast_to(sd, size)))


def log_gammas(shape):
    """Independent logarithms of Gamma variables, with the Gaussian that has the largest ELBO; the means and sds."""
    fit = of_vector(lambda z: jnp.sum(shape * z - shape * jnp.exp(z)), MANY, -0.5 / shape, shape**-0.5)
    return fit, digamma(shape) - np.log(shape), np.sqrt(polygamma(1, shape))


def correlated(correlation, size):
    """All entries correlate; q has the sds given the others. The posterior's own are 1."""
    precision = np.linalg.inv((1 - correlation) * np.eye(size) + correlation)
    sharp = jnp.asarray(precision)
    return of_vector(lambda z: -0.5 * z @ sharp @ z, size, 0.0, np.diag(precision) ** -0.5)


def resampled(fit, name="z", seed=0):
    draws = fit.resample(4000, seed)[name].reshape(4000, -1)
    return draws.mean(axis=0), draws.std(axis=0)


def test_small_errors_of_many_entries_are_good():
    """Every sd is 1.08 times q's, and k-hat 1."""
    told = correlated(0.1, 300).diagnose()
    assert told.k_hat > told.k_threshold
    assert told.good, str(told)
    assert told.motion.tells
    assert "short chains" in told.reasons[-1]


def test_where_chains_see_that_q_is_off_they_mend_it():
    """Every sd is 1.28 times q's; with 60 of them some may look like less than 1.25, but not all."""
    fit, mean, sd = log_gammas(1.0)
    told = fit.diagnose()
    assert told.verdict == "usable", str(told)
    found_mean, found_sd = resampled(fit)
    np.testing.assert_allclose((found_mean - mean) / sd, 0, atol=0.25)
    np.testing.assert_allclose(np.log(found_sd / sd), 0, atol=np.log(1.25))
    assert fit.diagnose() is told  # nothing is evaluated again


@pytest.mark.parametrize("seed", [0, 2])
def test_draws_that_still_creep_are_not_promised(seed):
    """Chains that begin in the middle of a banana first end with 0.7 - 0.8 of the right sd, although their bulk has
    nothing left of its start. "Usable" needs that they went on until they came to rest."""
    model = isvi.Model({"z": isvi.real(2)}, lambda z: -0.5 * z["z"][0] ** 2 - 0.5 * (z["z"][1] - z["z"][0] ** 2) ** 2)
    fit = fixed_fit(model, isvi.MeanField(), diagonal([0.0, 0.3], [0.3, 0.3]))
    told = fit.diagnose(seed=seed)
    assert not told.good
    assert told.motion.turns > 0
    if told.verdict == "usable":
        np.testing.assert_allclose(np.log(resampled(fit, seed=seed)[1] / [1, np.sqrt(3)]), 0, atol=np.log(1.25))


@pytest.mark.parametrize("correlation", [0.9, 0.999])
def test_what_all_entries_share_is_not_overlooked(correlation):
    """The posterior's sds are 3 and 32 times q's, for one direction: no entry on its own shows that a chain creeps."""
    fit = correlated(correlation, MANY)
    told = fit.diagnose()
    assert not told.good, str(told)
    if told.verdict == "usable":
        np.testing.assert_allclose(resampled(fit)[1], 1, rtol=0.25)


def test_heavy_tails_that_many_entries_share_are_not_good():
    """A multivariate t with four degrees of freedom, whose sds are 1.41 times q's: its radius moves slowly."""
    told = of_vector(lambda z: -(4 + MANY) / 2 * jnp.log1p(z @ z / 4), MANY, 0.0, 1.0).diagnose()
    assert told.verdict == "poor", str(told)


def test_a_wide_funnel_of_many_entries_is_not_good():
    def funnel(z):
        return -0.5 * z[0] ** 2 - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0]) - 0.5 * (MANY - 1) * z[0]

    told = of_vector(funnel, MANY, 0.0, np.r_[0.18, np.ones(MANY - 1)]).diagnose()
    assert told.verdict == "poor", str(told)


@pytest.mark.parametrize(
    ("spread", "shift", "verdict"),
    [(0.15, 0.0, "good"), (0.15, 0.5, "usable"), pytest.param(1.0, 0.0, "usable", marks=pytest.mark.slow)],
)
def test_beyond_a_thousand_latents(spread, shift, verdict):
    """An intercept and the effects of 1,200 groups. q is the best of independent Gaussians, or has its intercept moved:
    the posterior's sd is 1.09 times that of q where the effects are small, and 3.1 times where they are as large as the
    noise."""
    posterior = grouped(np.random.default_rng(0), 1200, 10_000, spread)
    intercept = np.r_[1.0, np.zeros(1200)]
    rows = np.r_[10_000, np.bincount(posterior.data["group"], minlength=1200) + spread**-2]
    q = diagonal(posterior.mean + shift * posterior.sd * intercept, rows**-0.5)
    fit = replace(fixed_fit(posterior.model, isvi.MeanField(), q), dataset=Dataset.from_arrays(posterior.data))
    told = fit.diagnose()
    assert told.verdict == verdict, str(told)
    if verdict == "usable":
        assert " a " in told.reasons[-1]
        found_mean, found_sd = resampled(fit, "a")
        np.testing.assert_allclose((found_mean - posterior.mean[0]) / posterior.sd[0], 0, atol=0.25)
        np.testing.assert_allclose(np.log(found_sd / posterior.sd[0]), 0, atol=np.log(1.25))


def test_a_callable_on_the_host():
    """Values and gradients that JAX cannot trace: the posterior is standard normal, q too narrow."""
    model = isvi.from_gradient(lambda z: (-0.5 * float(z @ z), -z), MANY)
    fit = isvi.fit(model, budget=20, progress=False)
    told = replace(fit, params=fit.approximation.init(jnp.zeros(MANY), jnp.full(MANY, 0.7))).diagnose()
    assert told.motion is not None
    assert not told.good, str(told)
    seen = told.motion.entries
    np.testing.assert_allclose(np.log(seen.sd_ratio * 0.7), 0, atol=5 * seen.error_noise.max())
