"""The verdict's promise on posteriors whose truth is known; ``benchmarks/verdicts.py`` has hundreds.

q is well inside or well outside of what is promised (a mean by 0.25 sds, an sd by 25%): the weights' estimates would
have to be off by five of their standard errors, which are at most 0.03, for a verdict to change; a right one fails
below 1e-6.
"""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.special import digamma, polygamma
from support.fixed_fit import fixed_fit

import isvi
from isvi.families.dirichlet import BetaParams, DirichletParams
from isvi.families.gamma import GammaParams
from isvi.families.gaussian import DiagonalParams
from isvi.families.student_t import StudentTParams


def at(mean, sd):
    """Parameters around a mean, with these sds."""
    return lambda approximation: approximation.init(jnp.asarray(mean, float), jnp.asarray(sd, float))


def of_vector(log_density, size=1):
    return isvi.Model({"z": isvi.real(size)}, lambda z: log_density(z["z"]))


def resampled(fit):
    draws = fit.resample(4000)["z"]
    return draws.mean(axis=0), draws.std(axis=0)


@pytest.mark.parametrize("shape", [3.0, 20.0, 1000.0])
def test_near_exact_fits_of_one_latent_are_good(shape):
    """The logarithm of a Gamma variable is skewed: over q's range log p / q is c (z^3 - 3 z)."""
    model = of_vector(lambda z: jnp.sum(shape * z - shape * jnp.exp(z)))
    mean, sd = digamma(shape) - np.log(shape), np.sqrt(polygamma(1, shape))
    for seed in range(3):
        told = fixed_fit(model, isvi.MeanField(), at([mean], [sd])).diagnose(seed=seed)
        assert told.good, str(told)


def test_correlated_latents_with_mean_field_are_mended():
    """Correlation 0.95: q has 0.31 of the sds, and resampled draws the right ones."""
    precision = jnp.asarray(np.linalg.inv([[1, 0.95], [0.95, 1]]))
    q = at([0, 0], np.diagonal(precision) ** -0.5)
    fit = fixed_fit(of_vector(lambda z: -0.5 * z @ precision @ z, 2), isvi.MeanField(), q)
    assert fit.diagnose().verdict == "usable"
    mean, sd = resampled(fit)
    np.testing.assert_allclose(mean, 0, atol=0.15)
    np.testing.assert_allclose(sd, 1, atol=0.15)


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "good"), (0.4, "usable"), (2.5, "usable")])
def test_a_constant_does_not_hide_what_is_wrong(scale, verdict):
    """In float64 1e13 leaves two thousandths of a nat."""
    fit = fixed_fit(of_vector(lambda z: 1e13 - 0.5 * z @ z, 3), isvi.MeanField(), at(np.zeros(3), np.full(3, scale)))
    assert fit.diagnose().verdict == verdict


@pytest.mark.parametrize("constant", [1e16, 1e18])
def test_where_rounding_leaves_nothing_it_is_poor_and_says_so(constant):
    fit = fixed_fit(of_vector(lambda z: constant - 0.5 * z @ z, 3), isvi.MeanField(), at(np.zeros(3), np.ones(3)))
    told = fit.diagnose()
    assert told.verdict == "poor"
    assert "rounding" in told.reasons[-1]
    assert "constants" in told.advice[-1]


def test_parameters_that_are_not_numbers_are_poor():
    q = at([0.0, np.nan], [1.0, 1.0])
    told = fixed_fit(of_vector(lambda z: -0.5 * z @ z, 2), isvi.MeanField(), q).diagnose()
    assert told.verdict == "poor"
    assert "not all finite" in told.reasons[-1]
    assert told.to_dict()["elbo"] is None


@pytest.mark.parametrize("sd", [1e3, 1e10, 5e32])
def test_a_flat_latent_is_poor_and_valid_json(sd):
    """Where a fit of it was stopped, as far as single precision goes."""
    model = isvi.Model({"w": isvi.real(), "flat": isvi.real()}, lambda z: -0.5 * z["w"] ** 2 + 0 * z["flat"])
    told = fixed_fit(model, isvi.MeanField(), at([0.0, sd / 100], [1.0, sd])).diagnose()
    assert told.verdict == "poor", str(told)
    json.dumps(told.to_dict(), allow_nan=False)


def test_a_gaussian_on_heavy_tails_is_not_good():
    """Student t with three degrees of freedom: its sd is 1.73, of which a Gaussian in the middle has two thirds."""
    told = fixed_fit(of_vector(lambda z: -2 * jnp.log1p(z[0] ** 2 / 3)), isvi.MeanField(), at([0.0], [1.15])).diagnose()
    assert not told.good


def test_a_gaussian_on_a_wide_funnel_is_not_good():
    def funnel(z):
        return norm.logpdf(z[0], 0, 2) + norm.logpdf(z[1:], 0, jnp.exp(z[0] / 2)).sum()

    told = fixed_fit(of_vector(funnel, 4), isvi.MeanField(), at([-0.5, 0, 0, 0], [1.2, 0.7, 0.7, 0.7])).diagnose()
    assert not told.good


@pytest.mark.parametrize("size", [2, 10, 40])
def test_a_wide_skirt_is_not_overlooked(size):
    """A twentieth of the mass has five times q's sd, where no draw of q ever comes: the posterior's is 1.48."""

    def skirt(z):
        wide = -0.5 * z @ z / 25 - size * jnp.log(5.0) + jnp.log(0.05)
        return jnp.logaddexp(jnp.log(0.95) - 0.5 * z @ z, wide)

    fit = fixed_fit(of_vector(skirt, size), isvi.MeanField(), at(np.zeros(size), np.ones(size)))
    told = fit.diagnose()
    assert not told.good, str(told)
    if told.verdict == "usable":
        np.testing.assert_allclose(np.log(resampled(fit)[1] / np.sqrt(0.95 + 0.05 * 25)), 0, atol=np.log(1.25))


def log_dirichlet(alpha):
    return lambda z: jnp.sum((jnp.asarray(alpha) - 1) * jnp.log(z["z"]))


ALPHA = np.array([4.0, 7.0, 12.0])
FAMILIES = {
    "Gamma": (
        isvi.Model({"z": isvi.positive()}, lambda z: 3 * jnp.log(z["z"]) - 2 * z["z"]),
        isvi.Gamma(),
        lambda wider: GammaParams(jnp.array([np.log(2.0)]), jnp.array([np.log(4.0 / wider**2)])),
        ([2.0], [1.0]),
    ),
    "LogNormal": (
        isvi.Model({"z": isvi.positive()}, lambda z: -0.5 * (jnp.log(z["z"]) / 0.3) ** 2 - jnp.log(z["z"])),
        isvi.LogNormal(),
        lambda wider: DiagonalParams(jnp.zeros(1), jnp.array([np.log(0.3 * wider)])),
        ([np.exp(0.045)], [np.exp(0.045) * np.sqrt(np.expm1(0.09))]),
    ),
    "Beta": (
        isvi.Model({"z": isvi.unit_interval()}, lambda z: 3 * jnp.log(z["z"]) + 9 * jnp.log1p(-z["z"])),
        isvi.Beta(),
        lambda wider: BetaParams(jnp.array([np.log(0.4)]), jnp.array([np.log(14.0 / wider**2)])),
        ([4 / 14], [np.sqrt(40 / 14**2 / 15)]),
    ),
    "Dirichlet": (
        isvi.Model({"z": isvi.simplex(3)}, log_dirichlet(ALPHA)),
        isvi.Dirichlet(),
        lambda wider: DirichletParams(jnp.asarray(np.log(ALPHA)), jnp.array([np.log(23.0 / wider**2)])),
        (ALPHA / 23, np.sqrt(ALPHA / 23 * (1 - ALPHA / 23) / 24)),
    ),
    "StudentT": (
        of_vector(lambda z: -5.5 * jnp.log1p(z[0] ** 2 / 10)),
        isvi.StudentT(df=10.0),
        lambda wider: StudentTParams(jnp.zeros(1), jnp.array([np.log(wider)]), None),
        ([0.0], [np.sqrt(10 / 8)]),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family):
    """The posterior itself is good; twice and half as wide are usable, and resampling mends both."""
    model, shape, params, (mean, sd) = FAMILIES[family]
    assert fixed_fit(model, shape, params(1.0)).diagnose().good
    for wider in (0.5, 2.0):
        fit = fixed_fit(model, shape, params(wider))
        told = fit.diagnose()
        assert told.verdict == "usable", str(told)
        found_mean, found_sd = resampled(fit)
        np.testing.assert_allclose((found_mean - mean) / sd, 0, atol=0.15)
        np.testing.assert_allclose(found_sd / sd, 1, atol=0.15)
