"""Families that are not Gaussian, by the default call, on models whose posterior they hold exactly.

q is fitted until nothing is left but rounding: the steps' noise vanishes where q equals the posterior. Means and sds
are those of q's own parameters, so that no draws add to the error: 1% is what is asked for.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import isvi

TOLERANCE = 0.01


def gamma(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    counts = np.random.default_rng(1).poisson(4.0, size=rows)
    model = isvi.Model(
        {"rate": isvi.positive()},
        lambda z: jnp.log(z["rate"]) - z["rate"],
        lambda z, y: jnp.sum(y * jnp.log(z["rate"]) - z["rate"]),
    )
    fit = isvi.fit(model, counts, family={"rate": isvi.Gamma()}, seed=seed, progress=False)
    shape, mean = np.exp(fit.params.log_concentration), np.exp(fit.params.log_mean)
    exact = stats.gamma(2 + counts.sum(), scale=1 / (1 + rows))
    return np.array([mean[0], mean[0] / np.sqrt(shape[0])]), np.array([exact.mean(), exact.std()])


def beta(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    successes = np.random.default_rng(2).binomial(1, 0.2, size=rows)
    model = isvi.Model(
        {"p": isvi.unit_interval()},
        lambda z: jnp.log1p(-z["p"]),
        lambda z, y: jnp.sum(y * jnp.log(z["p"]) + (1 - y) * jnp.log1p(-z["p"])),
    )
    fit = isvi.fit(model, successes, family={"p": isvi.Beta()}, seed=seed, progress=False)
    mean, total = 1 / (1 + np.exp(-fit.params.logit)), np.exp(fit.params.log_total)
    found, exact = (
        stats.beta(*one)
        for one in ((total * mean, total * (1 - mean)), (1 + successes.sum(), 2 + rows - successes.sum()))
    )
    return np.ravel([found.mean(), found.std()]), np.array([exact.mean(), exact.std()])


def dirichlet(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.eye(4)[np.random.default_rng(3).choice(4, p=[0.1, 0.2, 0.3, 0.4], size=rows)]
    model = isvi.Model(
        {"p": isvi.simplex(4)},
        lambda z: 0.5 * jnp.sum(jnp.log(z["p"])),
        lambda z, y: jnp.sum(y @ jnp.log(z["p"])),
    )
    fit = isvi.fit(model, chosen, family={"p": isvi.Dirichlet()}, seed=seed, progress=False)
    logits = np.asarray(fit.params.logits, float)
    alphas = (np.exp(float(fit.params.log_total[0]) + logits) / np.exp(logits).sum(), 1.5 + chosen.sum(axis=0))
    return tuple(np.concatenate([stats.dirichlet(a).mean(), np.sqrt(stats.dirichlet(a).var())]) for a in alphas)


CONJUGATE = {"Gamma": gamma, "Beta": beta, "Dirichlet": dirichlet}


@pytest.mark.parametrize("name", CONJUGATE)
def test_the_posterior_is_found(name):
    found, exact = CONJUGATE[name](60, seed=0)
    np.testing.assert_allclose(found, exact, rtol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [60, 5000])
@pytest.mark.parametrize("name", CONJUGATE)
def test_with_every_seed(name, rows):
    for seed in range(10):
        found, exact = CONJUGATE[name](rows, seed)
        np.testing.assert_allclose(found, exact, rtol=TOLERANCE)


def test_what_the_default_is():
    model = isvi.Model({"rate": isvi.positive()}, lambda z: jnp.log(z["rate"]) - z["rate"])
    fit = isvi.fit(model, family=isvi.Gamma(), budget=20, progress=False)
    assert "Natural" in fit.settings["algorithm"]
    assert "sticking" in fit.settings["estimator"]


def test_bad_rates():
    with pytest.raises(isvi.ConfigurationError, match="must be positive"):
        isvi.Natural(rate=0.0)
