"""The default method: no tuning, any scale, a truthful end."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

import isvi
from isvi.auto.dense import Sizes
from isvi.fitting import setup


def regression(scales: np.ndarray, rows: int, seed: int = 0) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    """Linear regression with unit noise, a nearly flat prior, and predictors of the given scales."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, len(scales))) * scales
    y = x @ (rng.normal(size=len(scales)) / scales) + rng.normal(size=rows)
    model = isvi.Model(
        latents={"w": isvi.real(len(scales))},
        log_prior=lambda z: jnp.sum(norm.logpdf(z["w"], scale=1e4)),
        log_likelihood=lambda z, batch: jnp.sum(norm.logpdf(batch["y"], batch["x"] @ z["w"])),
    )
    return model, {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def least_squares(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    x, y = data["x"].astype(float), data["y"].astype(float)
    precision = x.T @ x
    return np.linalg.solve(precision, x.T @ y), precision


def test_badly_scaled_predictors_need_nothing() -> None:
    """Posterior sds from 1e-4 to 1e2 in one model. The posterior is Gaussian, so the optimum of the mean-field
    approximation is known: the exact mean, and the inverse square root of the precision's diagonal. The mean is
    exact once converged (pairs cancel the draws' noise); precisions come from a few hundred pairs, so that 20%
    is four standard errors or more of each of them."""
    model, data = regression(scales=np.array([100.0, 1.0, 0.01, 1e-4]), rows=10_000)
    fit = isvi.fit(model, data, family=isvi.MeanField(), batch_size=1000, seed=0)
    mean, precision = least_squares(data)
    sd = np.diagonal(precision) ** -0.5
    assert fit.status.kind == "converged"
    np.testing.assert_allclose((fit.params.loc - mean) / sd, 0, atol=0.1)
    np.testing.assert_allclose(np.exp(fit.params.log_scale) / sd, 1, atol=0.2)


def test_full_rank_finds_strong_correlations() -> None:
    """Two predictors that correlate by 0.995: the marginal sds are ten times the conditional ones."""
    rng = np.random.default_rng(1)
    common = rng.normal(size=500)
    x = np.stack([common, common + 0.1 * rng.normal(size=500)], axis=1)
    y = x @ np.array([1.0, 2.0]) + rng.normal(size=500)
    model, _ = regression(np.ones(2), rows=10)
    data = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    fit = isvi.fit(model, data, family=isvi.FullRank(), seed=0)
    mean, precision = least_squares(data)
    sd = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    np.testing.assert_allclose((fit.mean()["w"] - mean) / sd, 0, atol=0.1)
    np.testing.assert_allclose(fit.sd()["w"] / sd, 1, atol=0.1)


def test_budget_is_kept() -> None:
    model, data = regression(np.ones(3), rows=5_000)
    fit = isvi.fit(model, data, batch_size=1000, budget=40, seed=0)
    assert fit.status.kind == "budget"
    assert fit.gradients == 40


def test_same_seed_same_bits() -> None:
    model, data = regression(np.ones(3), rows=3_000)
    first, second = (isvi.fit(model, data, batch_size=1000, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.params.loc, second.params.loc)


def test_mixture_is_handed_over_and_stays_finite() -> None:
    """A posterior with an indefinite curvature on the way: the answer must be finite and better than the start."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-4, 1, 500), rng.normal(4, 1, 500)]).astype(np.float32)
    model = isvi.Model(
        latents={"centre": isvi.real(2), "share": isvi.simplex(2, flat_prior=True)},
        log_prior=lambda z: jnp.sum(norm.logpdf(z["centre"], scale=10.0)),
        log_likelihood=lambda z, batch: jnp.sum(
            logsumexp(jnp.log(z["share"]) + norm.logpdf(batch["x"][:, None], z["centre"]), axis=1)
        ),
    )
    fit = isvi.fit(model, {"x": x}, batch_size=200, seed=0)
    assert np.all(np.isfinite(fit.params.loc))
    np.testing.assert_allclose(np.sort(fit.mean()["centre"]), [-4, 4], atol=0.3)


def test_takes_no_optimizer() -> None:
    optax = pytest.importorskip("optax")
    model, data = regression(np.ones(2), rows=100)
    with pytest.raises(isvi.ConfigurationError, match="takes no optimizer"):
        isvi.fit(model, data, algorithm=isvi.Auto(), optimizer=optax.adam(0.1))


def test_other_families_fall_to_isgd() -> None:
    model = isvi.Model({"rate": isvi.positive()}, lambda z: jnp.sum(2 * jnp.log(z["rate"]) - 3 * z["rate"]))
    fit = isvi.fit(model, family=isvi.Gamma(), budget=2_000, seed=0)
    # The density is that of a Gamma with shape 3 and rate 3, so that the family holds the posterior itself.
    assert fit.mean()["rate"] == pytest.approx(1.0, abs=0.1)


def test_the_cheaper_the_model_the_rarer_the_curvature_is_estimated() -> None:
    """An estimate takes time of the order of dim^3. A model whose records take longer does not notice, nor does one
    that JAX does not compile; a cheap one would mostly wait for it."""
    costs = [1.0, 1e5, 1e6, 1e8, np.inf]
    waits = [Sizes.for_model(100, 100, 100, operations).refit_every for operations in costs]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] == Sizes.for_model(100, 100, 100, 1.0).slots // 8
    assert waits[-1] == Sizes.for_model(100, 100, 100, np.inf).update_every


@pytest.mark.parametrize("rows", [100, 10_000])
def test_the_cost_of_a_record_is_that_of_the_model(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient multiplies the 20 predictors of every row forwards and backwards: 80 operations a row and draw, and a
    few more. Records are pairs of draws."""
    model, data = regression(np.ones(20), rows=3 * rows)
    estimators: list[isvi.Estimator] = []
    monkeypatch.setattr(setup, "build", lambda estimator, *rest: estimators.append(estimator))
    setup.prepare(model, data, setup.Options(batch_size=rows)).method()
    assert 160 < estimators[0].operations / rows < 320
