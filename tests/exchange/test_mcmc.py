"""From a fit to the posterior itself, against truth."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import gamma, norm
from support import posteriordb, regression
from support.fixed_fit import fixed_fit

import isvi


def statistic(tree, name: str, latent: str) -> np.ndarray:
    return tree["diagnostics"][latent].sel(statistic=name).values


def test_a_conjugate_posterior():
    """Means to 5 standard errors by their own effective sample sizes (3 of them: 2e-6); sds to 5 standard errors of
    1/sqrt(2 x 800), as squares of near-independent normal draws have at least that effective size here."""
    fit = isvi.fit(regression.model(), regression.data(), batch_size=regression.BATCH_SIZE, progress=False)
    tree = fit.mcmc(400, 2)
    centre, precision = regression.posterior()
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    draws = np.asarray(tree["posterior"]["w"])
    assert draws.shape == (2, 400, 3)
    effective = statistic(tree, "ess_bulk", "w")
    assert (effective > 300).all()
    assert (np.abs(draws.mean(axis=(0, 1)) - centre) < 5 * sd / np.sqrt(effective)).all()
    np.testing.assert_allclose(draws.std(axis=(0, 1)), sd, rtol=5 / np.sqrt(1600))
    assert (np.abs(statistic(tree, "mean_error", "w")) < 0.3).all()
    assert tree["posterior"].attrs["warmup"] == 100
    leapfrogs = int(tree["sample_stats"]["n_steps"].sum())
    assert tree["posterior"].attrs["model_gradients"] > leapfrogs * 5  # five mini-batches each, and the warm-up


def test_a_wrong_q_is_told_and_mended():
    """q = N(0.5, 0.2^2) for a posterior N(0, 1): chains start outside of nothing, the mass is adapted, and the group
    ``diagnostics`` says by how much q was off: 0.5 sds and a factor of 5. Tolerances of 5 standard errors at an
    effective size of 200 or more."""
    model = isvi.Model({"m": isvi.real()}, lambda z: norm.logpdf(z["m"]))
    fit = fixed_fit(model, isvi.MeanField(), lambda q: q.init(jnp.array([0.5]), jnp.array([0.2])))
    tree = fit.mcmc(500, 2)
    assert tree["posterior"].attrs["warmup"] == 500
    assert float(statistic(tree, "ess_bulk", "m")) > 200
    assert float(statistic(tree, "mean_error", "m")) == pytest.approx(0.5, abs=0.35)
    assert float(statistic(tree, "sd_ratio", "m")) == pytest.approx(5.0, rel=0.3)


def test_a_family_over_constrained_values():
    """A Gamma posterior by the Gamma family: its mean 3/2 to 5 standard errors at an effective size of 200 or more."""
    model = isvi.Model({"rate": isvi.positive()}, lambda z: gamma.logpdf(z["rate"], 3.0, scale=0.5))
    fit = fixed_fit(model, isvi.Gamma(), lambda q: q.init(jnp.array([1.4]), jnp.array([0.9])))
    tree = fit.mcmc(500, 2)
    assert float(statistic(tree, "ess_bulk", "rate")) > 200
    mean = float(np.asarray(tree["posterior"]["rate"]).mean())
    assert mean == pytest.approx(1.5, abs=5 * np.sqrt(3) / 2 / np.sqrt(200))


def test_a_model_on_the_host():
    """The same, called back from compiled code."""

    def value_and_grad(z):
        return -0.5 * np.sum((z["x"] - 2.0) ** 2), {"x": 2.0 - z["x"]}

    fit = isvi.fit(isvi.from_gradient(value_and_grad, {"x": isvi.real(2)}), budget=300, progress=False)
    tree = fit.mcmc(100, 2)
    assert np.asarray(tree["posterior"]["x"]).mean() == pytest.approx(2.0, abs=5 / np.sqrt(2 * 60))


def test_for_other_samplers():
    fit = isvi.fit(regression.model(), regression.data(), progress=False)
    _, precision = regression.posterior()
    covariance, sd = np.linalg.inv(precision), np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(fit.mass_matrix() / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.15)
    points = fit.initial_points(6)["w"]
    assert points.shape == (6, 3)
    assert (np.abs(points - regression.posterior()[0]) < 6 * sd).all()


@pytest.mark.parametrize("wrong", [{"num_samples": 2}, {"chains": 0}, {"warmup": 0}])
def test_refusals(wrong):
    fit = fixed_fit(
        isvi.Model({"m": isvi.real()}, lambda z: norm.logpdf(z["m"])),
        isvi.MeanField(),
        lambda q: q.init(jnp.zeros(1), jnp.ones(1)),
    )
    with pytest.raises(isvi.ConfigurationError, match="must be at least"):
        fit.mcmc(**wrong)


@pytest.mark.slow
def test_against_reference_draws():
    """posteriordb's kidiq: within 5 standard errors, of both sides (10,000 reference draws), and R-hat below 1.01."""
    data, reference = posteriordb.load("kidiq-kidscore_interaction")
    tree = isvi.fit(*posteriordb.kidiq(data), progress=False).mcmc(500)
    beta = np.asarray(tree["posterior"]["beta"])
    expected = np.asarray(reference["mean"])[:4]
    error = beta.std(axis=(0, 1)) * np.sqrt(1 / statistic(tree, "ess_bulk", "beta") + 1e-4)
    assert (np.abs(beta.mean(axis=(0, 1)) - expected) < 5 * error).all()
    assert (statistic(tree, "r_hat", "beta") < 1.01).all()
