"""Missing values are the model's own business if it masks or imputes them, and an error if it does not."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import norm
from numpyro import handlers

import isvi

N = 300
RNG = np.random.default_rng(0)
COMPLETE = 2 + RNG.normal(size=N)
MISSING = RNG.random(N) < 0.2
Y = np.where(MISSING, np.nan, COMPLETE)


def masked(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 10))
    with numpyro.plate("rows", len(y)), handlers.mask(mask=~jnp.isnan(y)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=jnp.where(jnp.isnan(y), 0.0, y))


def imputed(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 10))
    with numpyro.plate("rows", len(y)):
        filled = numpyro.sample("filled", dist.Normal(0, 1).mask(False))
        numpyro.sample("y", dist.Normal(mean, 1), obs=jnp.where(jnp.isnan(y), filled, y))


def careless(z: Any, rows: Any) -> Any:
    """Its gradient is not a number: 0 times that of the logarithm."""
    return jnp.sum(jnp.where(jnp.isnan(rows["y"]), 0.0, norm.logpdf(rows["y"], z["mean"])))


def careful(z: Any, rows: Any) -> Any:
    absent = jnp.isnan(rows["y"])
    return jnp.sum(jnp.where(absent, 0.0, norm.logpdf(jnp.where(absent, 0.0, rows["y"]), z["mean"])))


def model(log_likelihood: Any) -> isvi.Model:
    return isvi.Model({"mean": isvi.real()}, lambda z: norm.logpdf(z["mean"], 0.0, 10.0), log_likelihood)


@pytest.mark.parametrize("batch_size", [None, 50])
@pytest.mark.parametrize("given", [isvi.from_numpyro(masked), model(careful)], ids=["NumPyro", "isvi.Model"])
def test_masked_values_are_left_out(given: Any, batch_size: int | None) -> None:
    """The posterior is that of the complete rows, in closed form: mean sum(y) / (n + 1/100), sd 1/sqrt(n + 1/100)."""
    fit = isvi.fit(given, {"y": Y}, batch_size=batch_size, progress=False)
    there = Y[~MISSING]
    sd = 1 / np.sqrt(len(there) + 0.01)
    assert abs(fit.mean()["mean"] - there.sum() * sd**2) < 0.1 * sd
    assert fit.sd()["mean"] == pytest.approx(sd, rel=0.1)
    assert fit.dataset.num_batches == (1 if batch_size is None else 6)
    assert np.isfinite(fit.elbo(10).value)


def test_imputed_values_are_latents() -> None:
    fit = isvi.fit(isvi.from_numpyro(imputed), {"y": Y[:30]}, budget=20, progress=False)
    assert fit.mean()["filled"].shape == (30,)


@pytest.mark.parametrize(
    "log_likelihood", [lambda z, rows: jnp.sum(norm.logpdf(rows["y"], z["mean"])), careless], ids=["value", "gradient"]
)
@pytest.mark.parametrize("batch_size", [None, 50])
def test_what_the_model_does_not_handle_is_refused(log_likelihood: Any, batch_size: int | None) -> None:
    """Also where only the gradient is not a number, and where the first mini-batch would not show it."""
    one = COMPLETE.copy()
    one[-1] = np.nan
    with pytest.raises(isvi.DataError, match=rf"nan at row {N - 1}(?s:.*)Drop or impute(?s:.*)mask or impute them"):
        isvi.fit(model(log_likelihood), {"y": one}, batch_size=batch_size, progress=False)


def test_infinity_is_never_missing() -> None:
    infinite = COMPLETE.copy()
    infinite[3] = np.inf
    with pytest.raises(isvi.DataError, match="inf at row 3"):
        isvi.fit(model(careful), {"y": infinite})
