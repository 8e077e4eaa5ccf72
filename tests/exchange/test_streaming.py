"""Predictions of many rows, to disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from support.fixed_fit import fixed_fit

import isvi
from isvi.exchange import streaming

zarr = pytest.importorskip("zarr", reason="zarr is not installed: pip install 'isvi[zarr]'")

ROWS = 50
X = np.linspace(-1, 1, ROWS).astype(np.float32)


def fixed(simulate=None) -> isvi.Fit:
    """q = N(2, 0.1^2) for the slope."""
    model = isvi.Model(
        {"slope": isvi.real()},
        lambda z: norm.logpdf(z["slope"]),
        simulate=simulate
        or (lambda key, z, rows: {"y": z["slope"] * rows["x"] + 0.5 * jax.random.normal(key, rows["x"].shape)}),
    )
    return fixed_fit(model, isvi.MeanField(), lambda q: q.init(jnp.array([2.0]), jnp.array([0.1])))


@pytest.fixture
def small_pieces(monkeypatch):
    """Seven rows at once."""
    monkeypatch.setattr(streaming, "VALUES_AT_ONCE", 7 * 400)


def test_means_and_quantiles(tmp_path, small_pieces):
    """y ~ N(2 x, 0.25 + 0.01 x^2): means of 400 draws to 5 standard errors of 0.51 / 20, of which 50 are compared
    (3e-5); quantiles to 5 of twice that."""
    store = fixed().predict({"x": X}, 400, to=tmp_path / "p.zarr")
    sd = np.sqrt(0.25 + 0.01 * X**2)
    np.testing.assert_allclose(store["y_mean"][:], 2 * X, atol=5 * 0.51 / 20)
    np.testing.assert_allclose(store["y_sd"][:], sd, rtol=0.2)
    np.testing.assert_allclose(store["y_q05"][:], 2 * X - 1.645 * sd, atol=10 * 0.51 / 20)
    np.testing.assert_allclose(store["y_q50"][:], 2 * X, atol=10 * 0.51 / 20)


def test_quantiles_are_numpys():
    values = np.random.default_rng(0).normal(size=(37, 4)).astype(np.float32)
    found = streaming._summarised("y", values, draws=False)
    for name, quantile in (("y_q05", 0.05), ("y_q50", 0.5), ("y_q95", 0.95)):
        np.testing.assert_allclose(found[name], np.quantile(values, quantile, axis=0), rtol=1e-5)


def test_draws(tmp_path, small_pieces):
    store = fixed().predict({"x": X}, 400, to=tmp_path / "p.zarr", draws=True)
    assert store["y"].shape == (ROWS, 400)
    assert np.asarray(store["y"][:]).mean(axis=1) == pytest.approx(2 * X, abs=5 * 0.51 / 20)


def test_a_source_gives_the_same_as_its_arrays(tmp_path, small_pieces):
    np.save(tmp_path / "x.npy", X)
    source = isvi.data.Npy({"x": tmp_path / "x.npy"})
    one = fixed().predict(source, 400, to=tmp_path / "a.zarr")
    other = fixed().predict({"x": X}, 400, to=tmp_path / "b.zarr")
    np.testing.assert_array_equal(one["y_mean"][:], other["y_mean"][:])


def test_going_on_gives_the_same_bits(tmp_path, small_pieces, monkeypatch):
    """Stopped in the fourth piece: rows before it are not simulated again, and all are as if nothing had happened."""
    whole = fixed().predict({"x": X}, 400, to=tmp_path / "whole.zarr")["y_mean"][:]
    calls = []
    simulated = streaming._Simulation.__call__

    def stops(self, rows, number):
        calls.append(number)
        if number == 3 and calls.count(3) == 1:
            raise OSError("the disk is full")
        return simulated(self, rows, number)

    monkeypatch.setattr(streaming._Simulation, "__call__", stops)
    with pytest.raises(OSError, match="full"):
        fixed().predict({"x": X}, 400, to=tmp_path / "p.zarr")
    again = fixed().predict({"x": X}, 400, to=tmp_path / "p.zarr")["y_mean"][:]
    np.testing.assert_array_equal(again, whole)
    assert calls == [0, 1, 2, 3, 3, 4, 5, 6, 7]


def test_other_predictions_are_not_overwritten(tmp_path, small_pieces):
    fixed().predict({"x": X}, 400, to=tmp_path / "p.zarr")
    with pytest.raises(isvi.CheckpointError, match="seed 0 instead of 1"):
        fixed().predict({"x": X}, 400, seed=1, to=tmp_path / "p.zarr")
    other = fixed_fit(fixed().model, isvi.MeanField(), lambda q: q.init(jnp.array([3.0]), jnp.array([0.1])))
    with pytest.raises(isvi.CheckpointError, match="holds other predictions, with latents"):
        other.predict({"x": X}, 400, to=tmp_path / "p.zarr")


def test_which_rows(tmp_path):
    with pytest.raises(isvi.ConfigurationError, match="say for which rows"):
        fixed().predict(to=tmp_path / "p.zarr")
