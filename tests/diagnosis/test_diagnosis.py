"""Diagnoses of approximations whose error is known: q stays where it started, and the posterior is a Gaussian."""

import json
import re

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import isvi
from isvi.diagnosis.stationarity import slope, trend
from isvi.results.history import History

STAY = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.0), "budget": 1}


def standard_normal(scale: float, mean: float = 0.0, dim: int = 3, **options) -> isvi.Fit:
    """q = N(mean, scale^2) in every entry, for a posterior N(0, 1)."""
    model = isvi.Model({"w": isvi.real(dim)}, lambda z: norm.logpdf(z["w"]).sum())
    return isvi.fit(model, initial={"w": jnp.full(dim, mean)}, initial_scale=scale, **STAY, **options)


def test_the_posterior_itself_is_good():
    told = standard_normal(1.0).diagnose()
    assert told.good
    assert told.verdict == "good"
    assert told.k_hat <= 0.0  # the weights are bounded
    assert told.advice == ()
    assert told.effective_draws > told.draws / 2  # at worst those of q's own
    assert told.largest_weight <= 2 / told.draws
    assert told.gap == pytest.approx(0.0, abs=5 * told.elbo.standard_error)
    np.testing.assert_allclose(told.entries.mean_error, 0, atol=1e-3)  # smoothing changes the largest
    np.testing.assert_allclose(told.entries.sd_ratio, 1, atol=1e-3)


def test_a_little_too_wide_is_good_and_three_times_is_not():
    """Its weights are bounded, so that they can be trusted: they say that q is too wide."""
    assert standard_normal(1.1).diagnose().good
    told = standard_normal(3.0).diagnose()
    assert told.verdict == "usable"
    assert told.k_hat < 0.5
    np.testing.assert_allclose(told.entries.sd_ratio, 1 / 3, rtol=5 / np.sqrt(2 * told.effective_draws))
    assert "resample" in told.advice[0]


def test_too_narrow_is_mended_by_draws_from_beyond_its_edge():
    """q has a third of the posterior's sds. Resampled sds are right within 5 standard errors."""
    fit = standard_normal(1 / 3)
    told = fit.diagnose()
    assert told.verdict == "usable"
    error = 5 / np.sqrt(2 * told.effective_draws)
    np.testing.assert_allclose(told.entries.sd_ratio, 3, rtol=error)
    np.testing.assert_allclose(fit.resample(4000)["w"].std(axis=0), 1, rtol=error * np.sqrt(2))
    assert told.log_evidence == pytest.approx(0.0, abs=5 / np.sqrt(told.effective_draws))
    assert "FullRank" in told.advice[1]


def test_too_few_draws_ask_for_more_and_then_it_is_good():
    """The posterior itself, in 40 dimensions: with 100 draws one cannot be sure of every entry, with as many as the
    advice names one can."""
    fit = standard_normal(1.0, dim=40)
    told = fit.diagnose(num_samples=100)
    assert told.verdict == "poor"
    assert "too few" in told.reasons[-1]
    (advice,) = told.advice
    needed = int(re.search(r"num_samples=([\d_]+)", advice)[1])
    assert 100 < needed < 5000
    assert fit.diagnose(num_samples=needed).good


@pytest.mark.parametrize("family", [isvi.MeanField(), isvi.FullRank()])
def test_where_no_draws_reach_chains_go(family):
    """In 60 dimensions only q's own draws are weighed, and they cannot see the posterior's three times larger sds."""
    fit = standard_normal(1 / 3, dim=60, family=family)
    told = fit.diagnose()
    assert told.verdict == "usable", str(told)
    assert told.k_hat > told.k_threshold
    assert told.log_evidence is None
    assert told.to_dict()["motion"]["chains"] == told.motion.chains
    np.testing.assert_allclose(np.log(told.entries.sd_ratio / 3), 0, atol=5 * told.entries.error_noise.max())
    np.testing.assert_allclose(fit.resample(4000)["w"].std(axis=0), 1, rtol=0.25)
    assert ("FullRank" in " ".join(told.advice)) == (family == isvi.MeanField())


def heavy_tailed(**options) -> isvi.Fit:
    """A multivariate t of 60 entries with three degrees of freedom, and q with half of its sds: its radius creeps."""
    model = isvi.Model(
        {"w": isvi.real(60), "s": isvi.positive()}, lambda z: -31.5 * jnp.log1p(z["w"] @ z["w"] / 3) - z["s"], **options
    )
    return isvi.fit(model, initial={"w": jnp.zeros(60), "s": 1.0}, initial_scale=0.8, **STAY)


def test_many_dimensions_are_said_to_be_strict():
    told = heavy_tailed().diagnose()
    assert told.verdict == "poor"
    assert "too slowly" in told.reasons[-1]
    assert "61 dimensions" in told.advice[-1]
    assert told.to_dict()["entries"]["w[0]"]["mean_error"] is None


def test_a_shifted_mean_is_seen_and_resampling_mends_it():
    """q is off by 0.625 of the posterior's sds in the mean and by 1.25 in the sd. Resampled moments agree with the
    posterior's within 5 standard errors of a mean over the effective draws, doubled for the picking; q's own do not."""
    fit = standard_normal(1.25, mean=0.625, dim=2)
    told = fit.diagnose()
    assert told.verdict == "usable"
    error = 5 / np.sqrt(told.effective_draws)
    np.testing.assert_allclose(told.entries.mean_error, -0.625, atol=error)
    assert any("off by" in reason for reason in told.reasons)
    mended, plain = fit.resample(4000)["w"], fit.sample(4000)["w"]
    assert mended.shape == (4000, 2)
    assert np.all(np.abs(mended.mean(axis=0)) < error * np.sqrt(2))
    assert np.all(np.abs(mended.std(axis=0) - 1) < error * np.sqrt(2))
    assert np.all(np.abs(plain.mean(axis=0)) > error * np.sqrt(2))
    np.testing.assert_array_equal(mended, fit.resample(4000)["w"])


def test_resampling_reports_like_sampling_and_warns(caplog):
    fit = heavy_tailed(report=lambda draws: {"doubled": 2 * draws["w"], "s": 3 * draws["s"]})
    draws = fit.resample(7)
    assert {name: values.shape for name, values in draws.items()} == {"doubled": (7, 60), "s": (7,)}
    assert "not the posterior's either" in caplog.text


def test_what_is_computed_from_the_latents_does_not_count():
    """A constant, and a quantity without a finite mean, are reported beside a latent that is exactly right."""
    model = isvi.Model(
        {"w": isvi.real()},
        lambda z: norm.logpdf(z["w"]),
        report=lambda draws: {**draws, "one": 0 * draws["w"] + 1, "wild": np.exp(np.asarray(draws["w"], float) ** 2)},
    )
    told = isvi.fit(model, initial={"w": 0.0}, initial_scale=1.0, **STAY).diagnose()
    assert told.good
    assert told.entries.names == ["w"]


def test_passes_over_the_data_are_as_stated():
    """A callable that counts: every pass calls for each of three mini-batches; what was evaluated is kept."""
    model = isvi.from_gradient(
        lambda z, rows: (-0.5 * ((rows - z) ** 2).sum(), (rows - z).sum(keepdims=True)),
        1,
        log_prior=lambda z: norm.logpdf(z).sum(),
    )
    fit = isvi.fit(model, np.linspace(-1, 1, 50), batch_size=20, initial_scale=0.1, **STAY)
    count = fit.model.external.count
    before = count.draws
    told = fit.diagnose(120)
    assert told.draws == 120 - 8  # four are evaluated twice more, a nudge away
    assert count.draws - before == 3 * told.passes
    fit.resample(10, candidates=120)
    assert fit.elbo(60) == told.elbo  # half of the draws are q's own
    assert count.draws - before == 3 * told.passes


def test_a_diverged_fit_says_so_first():
    model = isvi.Model(
        {"w": isvi.real()}, lambda z: jnp.where(z["w"] > 0.0, jnp.nan, norm.logpdf(z["w"])), lambda z, x: 0.0 * x.sum()
    )
    options = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.5)}
    fit = isvi.fit(model, np.ones(20), initial={"w": -0.3}, initial_scale=0.01, budget=300, **options)
    assert fit.status.kind == "diverged"
    told = fit.diagnose()
    assert not told.good
    assert "diverged" in told.reasons[0]


def test_slope_is_the_gradient_in_sds():
    """The posterior N(0, 1), q = N(0.8, 0.4^2): the ELBO falls by 0.8 * 0.4 per sd. A pair's noise cancels."""
    told = slope(standard_normal(0.4, mean=0.8), seed=0)
    assert told is not None
    assert told.value == pytest.approx(0.32, abs=1e-6)
    assert told.standard_error == pytest.approx(0.0, abs=1e-6)
    assert told.significant


def test_gradient_noise_of_mini_batches():
    """B = 3 mini-batches, one of them shorter: at z, mini-batch b gives B sum(x_b - z) - z. Its spread over b and over
    the 16 draws, which are known by what they give in all: N mean(x) - (N + 1) z."""
    rows = np.random.default_rng(0).normal(size=50).astype(np.float32)
    model = isvi.Model({"m": isvi.real()}, lambda z: norm.logpdf(z["m"]), lambda z, x: norm.logpdf(x, z["m"]).sum())
    fit = isvi.fit(model, rows, batch_size=20, initial={"m": 0.0}, initial_scale=1e-6, **STAY)
    data = fit.dataset
    batches = [np.asarray(data.full[0]), np.asarray(data.full[1]), np.asarray(data.rest)]
    gradients = 3 * np.array([batch.sum() for batch in batches])  # at z = 0: draws are all but equal
    told = slope(fit, seed=0)
    assert told.noise == pytest.approx(1e-6 * gradients.std(), rel=1e-3)
    assert told.value == pytest.approx(1e-6 * abs(rows.sum()), rel=1e-3)


def rows_of_history(elbo: np.ndarray) -> History:
    steps = list(range(1, len(elbo) + 1))
    nothing = [0.0] * len(elbo)
    return History(steps, steps, nothing, list(map(float, elbo)), nothing, nothing)


def test_trend_is_that_of_the_last_third():
    """Flat and then 0.2 per row: 33 rows gain 0.2 * 32 nats; noise of sd 1 gives a standard error of 0.6."""
    noise = np.random.default_rng(0).normal(size=100)
    rising = trend(rows_of_history(np.maximum(0, 0.2 * (np.arange(100) - 60)) + noise))
    assert rising.value == pytest.approx(6.4, abs=5 * rising.standard_error)
    assert 0.4 < rising.standard_error < 0.9
    assert rising.rising
    assert not trend(rows_of_history(noise)).rising
    assert trend(rows_of_history(noise[:10])) is None


def test_a_fit_that_had_too_small_a_budget_is_told_so():
    x = np.random.default_rng(1).normal(5.0, 1.0, size=200)
    model = isvi.Model({"m": isvi.real()}, lambda z: norm.logpdf(z["m"]), lambda z, x: norm.logpdf(x, z["m"]).sum())
    fit = isvi.fit(model, x, algorithm=isvi.SGD(), optimizer=optax.adam(0.01), budget=100, initial_scale=0.07)
    told = fit.diagnose()
    assert told.verdict == "poor"
    assert told.trend.rising
    assert "budget=400" in told.advice[0]


def test_it_reads_well_and_is_json():
    told = standard_normal(1.25, mean=0.625).diagnose(500)
    assert str(told).startswith("usable: the ELBO still has a slope")
    assert "try: fit.resample" in str(told)
    assert "516 over the data" in str(told)
    assert "<b>usable</b>" in told._repr_html_()
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False))["draws"] == 484


def test_families_without_a_mean_parameter_are_diagnosed_too():
    model = isvi.Model({"rate": isvi.positive()}, lambda z: 3 * jnp.log(z["rate"]) - 2 * z["rate"])
    fit = isvi.fit(model, family=isvi.Gamma(), seed=0)
    told = fit.diagnose()
    assert told.slope is None
    assert told.passes == told.draws + 16  # eight are evaluated twice more, a nudge away
    assert told.good


def test_too_few_draws_for_a_tail():
    with pytest.raises(isvi.ConfigurationError, match="at least 25 draws; got 10"):
        standard_normal(1.0).diagnose(10)


def test_round_off_of_a_constant_is_not_off():
    """The diagonal of a correlation matrix is one, give or take round-off, whose mean was found to be 30 sds off."""
    model = isvi.Model(
        {"rho": isvi.constrained(constraints.corr_matrix, 3, 3)}, lambda z: 2 * jnp.linalg.slogdet(z["rho"])[1]
    )
    fit = isvi.fit(model, initial_scale=0.5, **STAY)
    assert np.ptp(fit.sample(1000)["rho"], axis=0)[2, 2] > 0
    entries = fit.diagnose().entries
    diagonal = [row for row, name in enumerate(entries.names) if name in ("rho[0, 0]", "rho[1, 1]", "rho[2, 2]")]
    assert len(diagonal) == 3
    np.testing.assert_array_equal(entries.mean_error[diagonal], 0.0)
    np.testing.assert_array_equal(entries.sd_ratio[diagonal], 1.0)
