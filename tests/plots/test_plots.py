"""Figures: they draw what they should, on what they are given."""

import jax
import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'isvi[plots]'")

from matplotlib.figure import Figure

from isvi import plots
from isvi.results.history import History

ROWS = np.random.default_rng(0).normal(1.0, 1.0, size=(200, 3))


@pytest.fixture(scope="module")
def fit() -> isvi.Fit:
    model = isvi.Model(
        {"w": isvi.real(3)},
        lambda z: norm.logpdf(z["w"]).sum(),
        lambda z, rows: norm.logpdf(rows["y"], z["w"]).sum(),
        simulate=lambda key, z, rows: {"y": z["w"] + jax.random.normal(key, rows["y"].shape)},
    )
    return isvi.fit(model, {"y": ROWS}, batch_size=50, progress=False)


def axes():
    return Figure().subplots()


def test_the_elbo_is_drawn_from_its_best_end(fit):
    drawn = fit.plot_elbo(axes())
    line = drawn.lines[0]
    np.testing.assert_allclose(line.get_ydata(), np.asarray(fit.history.level) - fit.history.level[-1])
    np.testing.assert_array_equal(line.get_xdata(), fit.history.gradients)


def test_a_fit_of_less_than_a_pass_has_its_noise_drawn():
    rows = {"gradients": [1, 2], "steps": [1, 2], "seconds": [0.1, 0.2], "elbo": [-5.0, -3.0], "visits": [1, 2]}
    short = History(**rows, elbo_standard_error=[1.0, 1.0], effective=[1.0, 1.0])
    drawn = plots.plot_elbo({"a": short, "none": History()}, axes())
    assert len(drawn.collections) == 1
    assert list(drawn.lines[0].get_ydata()) == [-2.0, 0.0]


def test_marginals_by_name(fit):
    figure = plots.plot_marginals(fit, ["w[2]", "w[0]"], figure=Figure())
    assert [one.get_title() for one in figure.axes] == ["w[2]", "w[0]"]


def test_a_name_that_is_not_there(fit):
    with pytest.raises(isvi.ConfigurationError, match="there is no latent"):
        plots.plot_forest(fit, ["v"], axes=axes())


def test_forest(fit):
    drawn = plots.plot_forest(fit, axes=axes())
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["w[0]", "w[1]", "w[2]"]
    medians = drawn.lines[0].get_xdata()
    np.testing.assert_allclose(medians, fit.mean()["w"], atol=0.02)


def test_weights(fit):
    drawn = plots.plot_weights(fit, 200, axes=axes())
    held = drawn.lines[0].get_ydata()
    assert held[-1] == pytest.approx(100.0)
    assert (np.diff(held) >= 0).all()
    assert "k-hat" in drawn.get_title()


def test_pairs(fit):
    figure = plots.plot_pairs(fit, ["w"], figure=Figure())
    shown = [one for one in figure.axes if one.get_visible()]
    assert len(shown) == 6
    assert [one.get_xlabel() for one in figure.axes[-3:]] == ["w[0]", "w[1]", "w[2]"]


def test_predictive_check(fit):
    """The model is right, so in most bins what was observed lies within 90% of what is simulated. Of 40
    bins 36 are expected, and they are nearly independent: fewer than 24 would be 6 standard errors."""
    drawn = plots.plot_predictive(fit, axes=axes())
    observed, band = drawn.patches[0].get_data(), drawn.patches[1].get_data()
    inside = (observed.values <= band.values) & (observed.values >= band.baseline)
    assert observed.values.sum() == pytest.approx(1.0)
    assert inside.sum() >= 0.6 * len(inside)


def test_a_column_that_is_not_simulated(fit):
    with pytest.raises(isvi.ConfigurationError, match=r"no column 'x' that is both .* there are \['y'\]"):
        plots.plot_predictive(fit, "x", axes=axes())


def test_calibration():
    from isvi.calibration.calibrate import Calibration

    places = np.stack([np.linspace(0.01, 0.99, 50), np.full(50, 0.5)], axis=1)
    drawn = plots.plot_calibration(Calibration(["a", "b"], places, np.array([0.9, 1e-9]), 0), axes())
    assert np.abs(drawn.lines[0].get_ydata()).max() < 0.05
    assert np.abs(drawn.lines[1].get_ydata()).max() == pytest.approx(0.5)
    assert drawn.lines[0].get_color() != drawn.lines[1].get_color()


def test_places_of_observed_values_are_drawn_over_the_band_of_the_uniform():
    model = isvi.Model(
        {"m": isvi.real()},
        lambda z: norm.logpdf(z["m"]),
        lambda z, rows: norm.logpdf(rows["y"], z["m"]).sum(),
        simulate=lambda key, z, rows: {"y": z["m"] + jax.random.normal(key, rows["y"].shape)},
    )
    one = isvi.fit(model, {"y": ROWS[:, 0]}, progress=False)
    drawn = plots.plot_loo_pit(one, num_samples=300, axes=axes())
    assert len(drawn.collections) == 1
    assert np.abs(drawn.lines[0].get_ydata()).max() < 0.15
