"""What a Fit offers, on an approximation whose parameters are known."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from jax.scipy.stats import norm

import isvi

ROWS = np.random.default_rng(3).normal(2.0, 1.0, size=50).astype(np.float32)


@pytest.fixture(scope="module")
def fit() -> isvi.Fit:
    """One step of rate 0, so that q stays where it started: N(initial, 0.3^2) in unconstrained space."""
    model = isvi.Model(
        latents={"m": isvi.real(2), "s": isvi.positive(via="exp"), "p": isvi.simplex(3)},
        log_prior=lambda z: norm.logpdf(z["m"]).sum() - z["s"] + jnp.log(z["p"]).sum(),
        log_likelihood=lambda z, x: norm.logpdf(x, z["m"].sum(), 1.0).sum(),
    )
    return isvi.fit(
        model,
        ROWS,
        algorithm=isvi.SGD(),
        optimizer=optax.sgd(0.0),
        budget=1,
        batch_size=20,
        initial={"m": [0.5, -0.5], "s": 2.0, "p": [1 / 3, 1 / 3, 1 / 3]},
        initial_scale=0.3,
    )


def test_samples_have_the_latents_shapes_and_supports(fit):
    draws = fit.sample(500, seed=1)
    assert list(draws) == ["m", "s", "p"]
    assert {name: values.shape for name, values in draws.items()} == {"m": (500, 2), "s": (500,), "p": (500, 3)}
    assert (draws["s"] > 0).all()
    np.testing.assert_allclose(draws["p"].sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(draws["m"], fit.sample(500, seed=1)["m"])
    assert (draws["m"] != fit.sample(500, seed=2)["m"]).any()


def test_moments(fit):
    """Means of real entries are exact up to rounding (mirrored draws); of 10,000 draws the sd is right to 5
    standard errors, 5 / sqrt(2 * 5,000) = 5% (antithetic pairs count once)."""
    np.testing.assert_allclose(fit.mean()["m"], [0.5, -0.5], atol=1e-5)
    np.testing.assert_allclose(fit.sd()["m"], [0.3, 0.3], rtol=0.05)
    log_normal = scipy.stats.lognorm(s=0.3, scale=2.0)
    np.testing.assert_allclose(fit.mean()["s"], log_normal.mean(), rtol=0.02)
    np.testing.assert_allclose(fit.sd()["s"], log_normal.std(), rtol=0.08)


def test_summary_is_a_table(fit):
    table = fit.summary(limit=2)
    assert table.names == ["m[0]", "m[1]", "s", "p[0]", "p[1]", "p[2]"]
    assert table["m[0]"]["mean"] == pytest.approx(0.5, abs=1e-5)
    assert table["m[0]"]["5%"] == pytest.approx(0.5 - 1.645 * 0.3, abs=0.03)
    text = str(table)
    assert "m[1]" in text
    assert "4 more" in text
    assert "<table>" in table._repr_html_()


def test_log_prob_includes_the_jacobians(fit):
    """Against scipy: normal, log-normal, and for the simplex the stick-breaking map differentiated by hand."""
    draws = fit.sample(5, seed=3)
    expected = scipy.stats.norm([0.5, -0.5], 0.3).logpdf(draws["m"]).sum(axis=1)
    expected += scipy.stats.lognorm(s=0.3, scale=2.0).logpdf(draws["s"])
    # Stick breaking of three: a = p0, b = p1 / (1 - p0), with logits centred so that z = 0 is the middle.
    first, second = draws["p"][:, 0].astype(float), draws["p"][:, 1].astype(float)
    broken = second / (1 - first)
    for piece, offset in ((first, np.log(2)), (broken, 0.0)):
        expected += scipy.stats.norm(0, 0.3).logpdf(np.log(piece / (1 - piece)) + offset)
        expected -= np.log(piece * (1 - piece))
    expected -= np.log(1 - first)  # d broken / d p1
    np.testing.assert_allclose(fit.log_prob(draws), expected, rtol=1e-3, atol=1e-3)


def test_log_prob_names_what_is_missing(fit):
    with pytest.raises(isvi.ConfigurationError, match=r"missing: \['p'\]"):
        fit.log_prob({"m": np.zeros((1, 2)), "s": np.ones(1)})


INSIDE = {"m": np.zeros((1, 2)), "s": np.ones(1), "p": np.full((1, 3), 1 / 3)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"m": np.zeros(2)}, r"values\['m'\] of shape \(number of points, \*\(2,\)\); got \(2,\)"),
        ({"s": np.ones((1, 1))}, r"values\['s'\] of shape"),
        ({"s": np.ones(4)}, "same number of points"),
    ],
)
def test_log_prob_refuses_wrong_shapes(fit, values, message):
    with pytest.raises(isvi.ConfigurationError, match=message):
        fit.log_prob(INSIDE | values)


@pytest.mark.parametrize("outside", [{"s": [-1.0]}, {"s": [0.0]}, {"p": [[0.5, 0.6, 0.2]]}, {"p": [[1.2, -0.1, -0.1]]}])
def test_log_prob_is_minus_infinity_outside_the_support(fit, outside):
    assert np.isfinite(fit.log_prob(INSIDE)).all()
    assert fit.log_prob(INSIDE | outside)[0] == -np.inf


def test_log_prob_of_single_precision_draws_is_finite(fit):
    """Simplexes that sum to one only up to rounding are inside."""
    assert np.isfinite(fit.log_prob(fit.sample(2000, seed=5))).all()


def test_elbo_against_the_closed_form():
    """log N(x; m, 1) under q = N(0.5, 0.3^2), prior N(0, 1): all expectations are those of squares. Two-sided at
    5 standard errors (fails below 6e-7 if right), which must themselves be small, and in float64."""
    model = isvi.Model(
        {"m": isvi.real()}, lambda z: norm.logpdf(z["m"]), lambda z, x: norm.logpdf(x, z["m"], 1.0).sum()
    )
    options = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.0), "budget": 1, "batch_size": 20}
    fit = isvi.fit(model, ROWS, initial={"m": 0.5}, initial_scale=0.3, **options)
    squares = ((ROWS.astype(float) - 0.5) ** 2 + 0.3**2).sum() + 0.5**2 + 0.3**2
    exact = -0.5 * (squares + 51 * np.log(2 * np.pi)) + np.log(0.3) + 0.5 * np.log(2 * np.pi * np.e)
    estimate = fit.elbo(2000)
    assert abs(estimate.value - exact) < 5 * estimate.standard_error
    assert estimate.standard_error < 1.0
    assert str(estimate).count("±") == 1


def test_to_datatree(fit):
    tree = fit.to_datatree(50)
    posterior = tree["posterior"]
    assert posterior["m"].shape == (1, 50, 2)
    assert posterior["s"].shape == (1, 50)
    assert posterior.attrs["inference_library"] == "isvi"


def test_repr_says_what_it_is(fit):
    assert repr(fit).startswith("Fit(m, s, p;")


@pytest.mark.parametrize("call", [lambda fit: fit.sample(0), lambda fit: fit.elbo(1)])
def test_too_few_samples(fit, call):
    with pytest.raises(isvi.ConfigurationError, match="num_samples must be at least"):
        call(fit)
