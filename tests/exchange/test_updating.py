"""New rows without the old ones, against the posterior of all of them."""

import logging

import numpy as np
import pytest
from jax.scipy.stats import norm
from support import regression

import isvi

QUIET = {"progress": False}


def part(rows: dict, start: int, stop: int) -> dict:
    return {name: column[start:stop] for name, column in rows.items()}


@pytest.mark.slow
def test_a_chain_of_updates_is_the_posterior_of_all_rows():
    """Five fits of 26 rows each, conjugate. Every fit promises its means to 0.1 sd and its sds to 10%, and its errors
    are a tenth of that as a rule; the posterior of all rows is narrower than that of any part, so what the first ones
    are off by counts more: within 0.2 sds and 15% after five."""
    rows = regression.data()
    fit = isvi.fit(regression.model(), part(rows, 0, 26), **QUIET)
    for start in range(26, regression.ROWS, 26):
        fit = isvi.fit(regression.model(), part(rows, start, start + 26), prior=fit, **QUIET)
    centre, precision = regression.posterior()
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert (np.abs(fit.mean()["w"] - centre) < 0.2 * sd).all()
    np.testing.assert_allclose(fit.sd()["w"], sd, rtol=0.15)


@pytest.mark.slow
def test_a_hundred_updates():
    """As above, of 2,000 rows in a hundred parts. Errors of single fits are of either sign and a few hundredths of
    their own sds, which are larger than the last one's: their weighted sum stays below 0.3 sds and 20%."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(2000, 3))
    rows = {"x": x, "y": x @ np.array([1.0, -0.5, 0.3]) + regression.NOISE * generator.normal(size=2000)}
    fit = isvi.fit(regression.model(), part(rows, 0, 20), **QUIET)
    for start in range(20, 2000, 20):
        fit = isvi.fit(regression.model(), part(rows, start, start + 20), prior=fit, **QUIET)
    precision = x.T @ x / regression.NOISE**2 + np.eye(3)
    centre = np.linalg.solve(precision, x.T @ rows["y"] / regression.NOISE**2)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    off, ratio = (fit.mean()["w"] - centre) / sd, fit.sd()["w"] / sd
    assert (np.abs(off) < 0.3).all(), off
    assert (np.abs(np.log(ratio)) < 0.2).all(), ratio


def test_constrained_latents():
    """A prior over a positive latent is a density of its constrained value: the same posterior by one fit or two."""
    model = isvi.Model(
        {"sd": isvi.positive()},
        lambda z: norm.logpdf(z["sd"], 0.0, 5.0),
        lambda z, rows: norm.logpdf(rows["y"], 0.0, z["sd"]).sum(),
    )
    y = np.random.default_rng(1).normal(0.0, 2.0, size=400)
    whole = isvi.fit(model, {"y": y}, **QUIET)
    chained = isvi.fit(model, {"y": y[200:]}, prior=isvi.fit(model, {"y": y[:200]}, **QUIET), **QUIET)
    assert abs(chained.mean()["sd"] - whole.mean()["sd"]) < 0.3 * whole.sd()["sd"]
    assert chained.sd()["sd"] == pytest.approx(whole.sd()["sd"], rel=0.15)


def test_rows_of_another_kind_are_told(caplog):
    rows = regression.data()
    fit = isvi.fit(regression.model(), rows, **QUIET)
    other = {"x": rows["x"], "y": rows["y"] + 3 * rows["x"][:, 0]}
    with caplog.at_level(logging.WARNING, logger="isvi"):
        isvi.fit(regression.model(), other, prior=fit, **QUIET)
    assert "where its approximation was never checked" in caplog.text
    assert "w[0]" in caplog.text


def test_refusals(tmp_path):
    rows = regression.data()
    fit = isvi.fit(regression.model(), rows, **QUIET)
    with pytest.raises(isvi.ConfigurationError, match="cannot go together"):
        isvi.fit(regression.model(), rows, prior=fit, checkpoint=tmp_path / "run")
    bare = isvi.Model({"w": isvi.real(3)}, lambda z: norm.logpdf(z["w"]).sum())
    with pytest.raises(isvi.ConfigurationError, match="bare density"):
        isvi.fit(bare, prior=fit, **QUIET)
    other = isvi.Model(
        {"v": isvi.real()}, lambda z: norm.logpdf(z["v"]), lambda z, rows: norm.logpdf(rows["y"], z["v"]).sum()
    )
    with pytest.raises(isvi.ConfigurationError, match="fit of the same latents"):
        isvi.fit(other, rows, prior=fit, **QUIET)
