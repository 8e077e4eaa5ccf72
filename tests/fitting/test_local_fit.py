"""Models with local latents from isvi.fit to predictions, against closed forms and grids."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi
from tests.support.mixed import linear, linear_grid, linear_rows, logistic, logistic_rows, simulate


@pytest.fixture(scope="module")
def rows():
    return linear_rows()


@pytest.fixture(scope="module")
def fit(rows):
    data = isvi.data.grouped(rows, by="group")
    return isvi.fit(linear(predict=simulate), data, batch_size=250, progress=False)


def test_the_posterior_of_the_global_latents_is_that_of_the_closed_form(fit, rows):
    """Means within 0.1 sds and sds within 10%, as "converged" promises; against a grid over the exact marginal."""
    mean, sd = linear_grid(rows)
    assert fit.status.kind == "converged"
    for name in mean:
        assert fit.mean()[name] == pytest.approx(mean[name], abs=0.1 * sd[name])
        assert fit.sd()[name] == pytest.approx(sd[name], rel=0.1)


def test_a_groups_latents_have_the_posterior_that_the_global_latents_give_them(fit, rows):
    """Given m and tau, u is Gaussian with precision n + 1/tau^2. Moments are by quadrature, which is exact for it, so
    they are those over the same draws of m and tau in closed form; the mean of 1,000 draws has a standard error of
    sd / 30 and is within 5 of them: one failure in a million."""
    local = fit.local([7, 3])
    tau, m = local.given["tau"].astype(float), local.given["m"].astype(float)
    assert local.groups.tolist() == [7, 3]
    for place, group in enumerate([7, 3]):
        y = rows["y"][rows["group"] == group]
        precision = len(y) + 1 / tau**2
        means = (y.sum() - len(y) * m) / precision
        sd = np.sqrt((1 / precision).mean() + means.var())
        assert local.mean["u"][place] == pytest.approx(means.mean(), abs=1e-3)
        assert local.sd["u"][place] == pytest.approx(sd, rel=1e-2)
        assert local.draws["u"][:, place].mean() == pytest.approx(means.mean(), abs=5 * sd / 30)
        assert local.draws["u"][:, place].std() == pytest.approx(sd, rel=5 / np.sqrt(2000))


def test_all_groups_come_in_the_order_of_their_labels(fit):
    every, some = fit.local(num_samples=20), fit.local([0, 150], num_samples=20)
    assert every.groups.tolist() == list(range(200))
    np.testing.assert_allclose(every.mean["u"][[0, 150]], some.mean["u"], atol=1e-4)


def test_new_groups_are_from_their_prior(fit):
    """Its sd is that of tau's draws: 1,000 draws of two groups tell it to 1.6%, five times that is the tolerance."""
    new = fit.local(new=2)
    assert new.draws["u"].std() == pytest.approx(np.sqrt(np.mean(new.given["tau"] ** 2)), rel=0.08)
    assert new.mean["u"] == pytest.approx(0.0, abs=1e-3)


def test_rows_of_known_groups_are_predicted_from_their_posterior_and_of_new_ones_from_the_prior(fit, rows):
    """Standard errors of 1,000 draws: at most 1.9 / 30 for a mean, five of which are the tolerance."""
    later = isvi.data.grouped({"y": np.zeros(3), "group": [500, 7, 500]}, by="group")
    predicted = fit.predict(later)["y"]
    known = fit.mean()["m"] + fit.local([7]).mean["u"][0]
    assert predicted.shape == (1000, 3)
    assert predicted[:, 1].mean() == pytest.approx(known, abs=0.3)
    assert predicted[:, [0, 2]].mean() == pytest.approx(fit.mean()["m"], abs=0.3)
    assert predicted[:, 1].std() < 1.3 < predicted[:, 0].std()
    assert fit.predict(num_samples=5)["y"].shape == (5, len(rows["y"]))


def test_a_saved_fit_does_it_too_when_given_model_and_data(fit, rows, tmp_path):
    fit.save(tmp_path / "fit.isvi")
    loaded = isvi.load(tmp_path / "fit.isvi", linear(), isvi.data.grouped(rows, by="group"))
    assert loaded.local([7], num_samples=50).mean["u"] == pytest.approx(
        fit.local([7], num_samples=50).mean["u"], abs=1e-5
    )


def test_a_run_goes_on_from_its_checkpoint(rows, tmp_path):
    data = isvi.data.grouped(rows, by="group")
    first = isvi.fit(linear(), data, batch_size=250, progress=False, checkpoint=tmp_path / "run")
    again = isvi.resume(tmp_path / "run", linear(), data, progress=False)
    assert again.mean()["tau"] == first.mean()["tau"]


def test_latents_of_single_rows():
    """y = m + u + noise with one row each: u and the noise, of known sd, add up to a normal with variance 1 + tau^2."""
    y = 1.0 + 2.0 * np.random.default_rng(0).normal(size=2_000)
    fit = isvi.fit(linear(), {"y": y}, progress=False)
    assert np.sqrt(1 + fit.mean()["tau"] ** 2) == pytest.approx(y.std(), rel=0.02)
    local = fit.local(data={"y": np.array([1.0, 5.0])}, num_samples=200)
    assert local.mean["u"][1] - local.mean["u"][0] == pytest.approx(4 * 3 / 4, abs=0.15)
    with pytest.raises(isvi.ConfigurationError, match=r"fit\.local\(data=rows\)"):
        fit.local()


@pytest.mark.slow
def test_the_diagnosis_tells_when_there_are_too_few_nodes():
    """With three nodes, which were asked for, tau is off, with the default it is not, and both are said."""
    data = isvi.data.grouped(logistic_rows(400, tau=2.0, rows=4), by="group")
    rough, fine = (isvi.fit(logistic(nodes=nodes), data, progress=False) for nodes in (3, None))
    assert (rough.status.kind, fine.status.kind) == ("settled", "converged")
    assert "not converged: errors of the integrals over local latents move the mean of tau" in str(rough.status)
    told = rough.diagnose(num_samples=100)
    assert told.verdict in ("usable", "poor")
    assert "integrals over local latents" in told.reasons[0]
    assert "nodes=" in told.advice[0]
    assert "tau" in told.integrals.entry
    off = abs(fine.mean()["tau"] - rough.mean()["tau"]) / fine.sd()["tau"]
    assert off > 0.1
    right = fine.diagnose(num_samples=100).integrals
    assert right.shift < 0.1 < told.integrals.shift
    assert right.groups == 400


def test_a_group_whose_integral_is_wrong_is_named():
    """A flat prior, and a group with only ones: its integral is infinite, though steps towards it come to rest."""
    rows = {
        "y": np.r_[np.ones(3), np.tile([0.0, 1.0], 60)],
        "group": np.r_[np.zeros(3, int), np.repeat(1 + np.arange(40), 3)],
    }
    model = isvi.Model(
        {"a": isvi.real()},
        lambda z: norm.logpdf(z["a"]),
        lambda z, row: (
            jnp.where(row["y"] > 0, 1.0, -1.0) * (z["a"] + z["u"]) - jnp.logaddexp(z["a"] + z["u"], -z["a"] - z["u"])
        ),
        local={"u": isvi.real()},
        log_local_prior=lambda z: 0.0 * z["u"],
    )
    fit = isvi.fit(model, isvi.data.grouped(rows, by="group"), budget=200, progress=False)
    told = fit.diagnose(num_samples=100)
    assert told.verdict == "poor"
    assert told.integrals.off == 1
    assert told.integrals.worst == ("0",)
    assert "in 1 of 41 groups" in told.reasons[0]


def two_signs() -> isvi.Model:
    """y ~ N(u^2, 1), u ~ N(0, tau): both signs of u are alike."""
    return isvi.Model(
        {"tau": isvi.positive()},
        lambda z: norm.logpdf(z["tau"], 0, 2),
        lambda z, row: norm.logpdf(row["y"], z["u"] ** 2, 1.0),
        local={"u": isvi.real()},
        log_local_prior=lambda z: norm.logpdf(z["u"], 0.05, z["tau"]),
    )


@pytest.fixture(scope="module")
def with_two_modes():
    random = np.random.default_rng(0)
    y = (1.5 * random.normal(size=(150, 1))) ** 2 + random.normal(size=(150, 3))
    return y, isvi.data.grouped({"y": y.ravel(), "group": np.repeat(np.arange(150), 3)}, by="group")


@pytest.mark.slow
def test_a_fit_whose_groups_have_two_modes_goes_on_with_points_everywhere(with_two_modes):
    """Half of the mass is where nodes around one mode do not reach. The reference is a grid over u and tau; "converged"
    promises means within 0.1 sds and sds within 10%."""
    y, rows = with_two_modes
    fit = isvi.fit(two_signs(), rows, progress=False)
    tau, u = np.linspace(0.8, 3.0, 200), np.linspace(-12, 12, 4001)
    likelihood = -0.5 * ((y[..., None] - u**2) ** 2).sum(axis=1)
    log = [
        np.logaddexp.reduce(likelihood - 0.5 * ((u - 0.05) / one) ** 2 - np.log(one), axis=1).sum() - one**2 / 8
        for one in tau
    ]
    weights = np.exp(np.array(log) - max(log))
    weights /= weights.sum()
    mean = (weights * tau).sum()
    sd = np.sqrt((weights * (tau - mean) ** 2).sum())
    assert fit.status.kind == "converged"
    assert fit.model.log_likelihood.rule.everywhere
    assert fit.mean()["tau"] == pytest.approx(mean, abs=0.1 * sd)
    assert fit.sd()["tau"] == pytest.approx(sd, rel=0.1)
    signs = np.sign(fit.local([0, 1, 2], num_samples=200).draws["u"]).mean(axis=0)
    assert (np.abs(signs) < 0.9).all()


@pytest.mark.slow
def test_such_a_run_goes_on_from_its_checkpoint_with_the_same_points(with_two_modes, tmp_path):
    _, rows = with_two_modes
    fit = isvi.fit(two_signs(), rows, progress=False, checkpoint=tmp_path / "run")
    again = isvi.resume(tmp_path / "run", two_signs(), rows, progress=False)
    assert again.mean()["tau"] == fit.mean()["tau"]
    assert again.model.log_likelihood.rule == fit.model.log_likelihood.rule
