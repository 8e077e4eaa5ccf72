"""Several starts: the best goes on, all are counted and told about."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

import isvi
from isvi.fitting.starts import RUNGS, records_needed


def two_modes(z):
    """One at 0, where fits start, that holds e^-20 of the mass, and one at (1.5, 1.5) that holds the rest."""
    small = -20 + norm.logpdf(z["z"], 0.0, 0.2).sum()
    return jnp.logaddexp(small, norm.logpdf(z["z"], 1.5, 0.2).sum())


MODEL = isvi.Model({"z": isvi.real(2)}, two_modes)


def test_the_better_mode_is_found():
    """Dispersed points are uniform on a square of 4 x 4, of which the basin of the larger mode is about half."""
    one, several = (isvi.fit(MODEL, seed=0, starts=starts, progress=False) for starts in (1, None))
    assert np.abs(one.mean()["z"]).max() < 0.1
    assert np.abs(several.mean()["z"] - 1.5).max() < 0.1
    assert several.sd()["z"] == pytest.approx(0.2, rel=0.1)


def test_all_starts_are_counted_and_told_about(tmp_path):
    fit = isvi.fit(MODEL, seed=1, progress=False)
    most = sum(rung.records for rung in RUNGS)
    assert len(fit.starts) == 8
    assert sum(attempt.records for attempt in fit.starts) == records_needed(8) + most
    assert fit.gradients >= 2 * (records_needed(8) + most)
    assert max(attempt.elbo for attempt in fit.starts) == pytest.approx(fit.elbo().value, abs=2)
    assert "the best of 8 starts" in str(fit.summary())
    fit.save(tmp_path / "fit.isvi")
    assert isvi.load(tmp_path / "fit.isvi").starts == fit.starts


def test_a_start_where_the_model_is_not_finite_is_left_behind():
    """For z beyond 1 in any entry the density is no number: every start but a few is there at some time."""
    model = isvi.Model({"z": isvi.real(2)}, lambda z: norm.logpdf(z["z"], 0.0, 0.1).sum() + jnp.log(1 - z["z"]).sum())
    fit = isvi.fit(model, seed=0, progress=False)
    assert any(np.isnan(attempt.elbo) for attempt in fit.starts)
    assert fit.status.kind == "converged"


def mixture(z, rows):
    parts = norm.logpdf(rows["y"][:, None], z["centres"], z["scales"])
    return logsumexp(jnp.log(z["shares"]) + parts, axis=1).sum()


def test_mini_batches_of_a_mixture_call_for_more_starts():
    random = np.random.default_rng(0)
    centres = np.array([-4.0, 0.0, 5.0])
    rows = {"y": centres[random.integers(0, 3, 20_000)] + random.normal(size=20_000)}
    model = isvi.Model(
        {"shares": isvi.simplex(3), "centres": isvi.real(3), "scales": isvi.positive(3)},
        lambda z: jnp.log(z["shares"]).sum() + norm.logpdf(z["centres"], 0, 10).sum() + norm.logpdf(z["scales"]).sum(),
        mixture,
    )
    fit = isvi.fit(model, rows, seed=0, progress=False)
    assert fit.dataset.num_batches == 20
    assert len(fit.starts) == 8
    assert np.sort(fit.mean()["centres"]) == pytest.approx(centres, abs=0.1)


def test_few_rows_and_small_budgets_decide():
    rows = {"y": np.random.default_rng(0).normal(size=30_000)}
    model = isvi.Model(
        {"m": isvi.real()}, lambda z: norm.logpdf(z["m"]), lambda z, rows: norm.logpdf(rows["y"], z["m"]).sum()
    )
    assert isvi.fit(model, rows, progress=False).starts == ()
    assert isvi.fit(MODEL, budget=200, progress=False).starts == ()
    assert isvi.fit(MODEL, initial={"z": np.zeros(2)}, progress=False).starts == ()
    assert len(isvi.fit(model, rows, starts=3, progress=False).starts) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"starts": 0}, "at least 1; got 0"),
        ({"starts": 2.5}, "whole number"),
        ({"starts": 4, "algorithm": isvi.ISGD()}, "for Auto"),
    ],
)
def test_wrong_use(arguments, message):
    with pytest.raises(isvi.ConfigurationError, match=message):
        isvi.fit(MODEL, progress=False, **arguments)
