"""Leave-one-out against the closed form, and the groups of the DataTree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi
from isvi.exchange import loo as loo_module

ROWS = 300
Y = np.random.default_rng(4).normal(1.0, 1.3, size=ROWS)
needs_loo = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("xarray_einstats") is None,
    reason="xarray-einstats is not installed: pip install 'isvi[loo]'",
)


def model(noise: float = 1.3, **options) -> isvi.Model:
    return isvi.Model(
        {"mean": isvi.real()},
        lambda z: norm.logpdf(z["mean"], 0.0, 2.0),
        lambda z, rows: norm.logpdf(rows["y"], z["mean"], noise).sum(),
        simulate=lambda key, z, rows: {"y": z["mean"] + noise * jax.random.normal(key, rows["y"].shape)},
        **options,
    )


def exact(noise: float = 1.3) -> np.ndarray:
    """log p(y_i | the others): normal, with the mean's posterior variance added to the noise's."""
    precision = 1 / 4 + (ROWS - 1) / noise**2
    centre = (Y.sum() - Y) / noise**2 / precision
    return np.asarray(norm.logpdf(Y, centre, np.sqrt(noise**2 + 1 / precision)))


@pytest.fixture(scope="module")
def fit() -> isvi.Fit:
    return isvi.fit(model(), {"y": Y}, batch_size=70, progress=False)


@needs_loo
@pytest.mark.parametrize("family", [isvi.FullRank(), isvi.StudentT()])
def test_against_the_closed_form(family):
    """A row's elpd moves by its influence on the mean, at most 3 sds' worth of 1/300, estimated from 2,000 draws of
    which hundreds are effective: to 0.01 each, and to 0.1 in the sum of 300."""
    fit = isvi.fit(model(), {"y": Y}, family=family, batch_size=70, budget=4000, progress=False)
    found = fit.loo()
    np.testing.assert_allclose(np.asarray(found.elpd_i), exact(), atol=0.01)
    assert found.elpd == pytest.approx(exact().sum(), abs=0.1)
    assert found.n_data_points == ROWS
    assert not found.warning


@needs_loo
def test_many_rows_are_sampled(fit, monkeypatch):
    """Of 100 of 300 rows: within 5 of its own standard errors (6e-7), which must be small next to the rows' spread."""
    monkeypatch.setattr(loo_module, "MOST_VALUES", 200_000)
    found = fit.loo()
    assert found.subsample_size == 100
    assert abs(found.elpd - exact().sum()) < 5 * found.subsampling_se + 0.1
    assert found.subsampling_se < 0.1 * found.se
    assert found.se == pytest.approx(np.sqrt(ROWS) * exact().std(), rel=0.1)


@needs_loo
def test_models_are_compared_by_it(fit):
    """The difference of a right and a wrong noise is known in closed form too."""
    wrong = isvi.fit(model(noise=2.5), {"y": Y}, batch_size=40, progress=False)
    table = isvi.compare({"wrong": wrong, "right": fit}, by="loo")
    assert list(table.index) == ["right", "wrong"]
    assert table.loc["wrong", "elpd_diff"] == pytest.approx(exact().sum() - exact(2.5).sum(), abs=0.2)


def test_compare_by_something_else(fit):
    with pytest.raises(isvi.ConfigurationError, match="by 'elbo' or by 'loo'; got 'waic'"):
        isvi.compare([fit], by="waic")


def test_a_likelihood_that_is_no_sum_over_rows_is_refused():
    together = isvi.Model(
        {"mean": isvi.real()},
        lambda z: norm.logpdf(z["mean"]),
        lambda z, rows: -0.5 * jnp.sum(rows["y"] - z["mean"]) ** 2,
    )
    fit = isvi.fit(together, {"y": Y}, progress=False)
    with pytest.raises(isvi.ModelError, match="log_likelihood is not the sum of its rows"):
        fit.to_datatree(50, log_likelihood=True)


def test_a_datatree_has_what_arviz_looks_for(fit):
    tree = fit.to_datatree(40, sample_stats=True, log_likelihood=True, posterior_predictive=True)
    assert sorted(tree.children) == [
        "log_likelihood",
        "observed_data",
        "posterior",
        "posterior_predictive",
        "sample_stats",
    ]
    # In the order in which the rows were given, whatever mini-batches they are in.
    np.testing.assert_allclose(tree["observed_data"]["y"], Y, rtol=1e-6)
    mean = np.asarray(tree["posterior"]["mean"], np.float64)[0]
    rows = Y.astype(np.float32).astype(float)
    expected = np.asarray(norm.logpdf(rows, mean[:, None], 1.3))
    np.testing.assert_allclose(tree["log_likelihood"]["log_likelihood"][0], expected, atol=1e-4)
    lp = expected.sum(axis=1) + np.asarray(norm.logpdf(mean, 0.0, 2.0))
    np.testing.assert_allclose(tree["sample_stats"]["lp"][0], lp, rtol=1e-5)
    assert np.exp(tree["sample_stats"]["log_weight"]).sum() == pytest.approx(1.0)
    assert tree["posterior_predictive"]["y"].dims == ("chain", "draw", "row")
    assert tree["log_likelihood"]["log_likelihood"].dims == ("chain", "draw", "row")


def test_without_being_asked_it_evaluates_nothing(fit):
    assert sorted(fit.to_datatree(40).children) == ["constant_data", "posterior"]


def test_names_of_axes():
    labelled = isvi.Model(
        {"w": isvi.real(2)},
        lambda z: norm.logpdf(z["w"]).sum(),
        lambda z, rows: norm.logpdf(rows["y"], z["w"].sum()).sum(),
        dims={"w": ["coefficient"]},
        coords={"coefficient": ["a", "b"]},
    )
    tree = isvi.fit(labelled, {"y": Y}, budget=100, progress=False).to_datatree(10)
    assert list(tree["posterior"]["w"].coords["coefficient"].values) == ["a", "b"]


def test_simulated_rows(fit):
    """400 x 300 normal draws: the mean of all to 5 standard errors of 1.3 / sqrt(120,000), and the posterior's own sd
    of 1.3 / sqrt(300) over 400 draws, 5 x 0.0054 together; the sd to 1%."""
    y = fit.predict(num_samples=400)["y"]
    assert y.shape == (400, ROWS)
    assert y.mean() == pytest.approx(fit.mean()["mean"], abs=0.027)
    assert y.std() == pytest.approx(np.hypot(1.3, fit.sd()["mean"]), rel=0.015)
    assert fit.predict({"y": np.zeros(7)}, num_samples=3)["y"].shape == (3, 7)


def test_simulate_must_name_its_columns():
    unnamed = isvi.Model(
        {"mean": isvi.real()},
        lambda z: norm.logpdf(z["mean"]),
        lambda z, rows: norm.logpdf(rows["y"], z["mean"]).sum(),
        simulate=lambda key, z, rows: rows["y"],
    )
    with pytest.raises(isvi.ModelError, match="must return a dict of columns"):
        isvi.fit(unnamed, {"y": Y}, budget=50, progress=False).predict()


def test_rows_of_a_numpyro_model():
    import numpyro
    import numpyro.distributions as dist

    def located(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.3), obs=y)

    fit = isvi.fit(isvi.from_numpyro(located), {"y": Y}, batch_size=70, progress=False)
    tree = fit.to_datatree(30, log_likelihood=True, posterior_predictive=True)
    mean = np.asarray(tree["posterior"]["mean"], float)[0]
    expected = np.asarray(norm.logpdf(Y, mean[:, None], 1.3))
    np.testing.assert_allclose(tree["log_likelihood"]["log_likelihood"][0], expected, atol=1e-4)
    np.testing.assert_allclose(tree["observed_data"]["y"], Y, rtol=1e-6)


def test_loo_pit_is_the_place_in_the_exact_predictive_distribution(fit):
    """2,000 draws and more, each with one simulated value: five standard errors of a share, 0.056, at most; half of the
    draws' worth may be lost in weights. Values that are all alike count by a random part."""
    from isvi.exchange.loo_pit import loo_pit

    precision = 1 / 4 + (ROWS - 1) / 1.3**2
    centre = (Y.sum() - Y) / 1.3**2 / precision
    places = norm.cdf(Y, centre, np.sqrt(1.3**2 + 1 / precision))
    np.testing.assert_allclose(loo_pit(fit), places, atol=0.08)
    with pytest.raises(isvi.ConfigurationError, match="no column 'x'"):
        loo_pit(fit, "x")


def test_loo_pit_of_two_values_is_uniform():
    """Coin tosses: places are uniform though values are not. The largest distance of 400 from the uniform exceeds 0.1
    in one case of two thousand (Kolmogorov)."""
    from isvi.exchange.loo_pit import loo_pit

    coin = isvi.Model(
        {"p": isvi.unit_interval()},
        lambda z: 0.0 * z["p"],
        lambda z, rows: jnp.sum(jnp.where(rows["y"] > 0.5, jnp.log(z["p"]), jnp.log1p(-z["p"]))),
        simulate=lambda key, z, rows: {"y": jax.random.bernoulli(key, z["p"], rows["y"].shape).astype(float)},
    )
    tosses = (np.random.default_rng(5).random(400) < 0.3).astype(float)
    places = np.sort(loo_pit(isvi.fit(coin, {"y": tosses}, progress=False), num_samples=500))
    assert np.abs(places - (np.arange(400) + 0.5) / 400).max() < 0.1
