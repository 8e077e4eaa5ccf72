"""Natural-gradient steps: against a Gaussian posterior, and where the model is not finite."""

import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.stats import norm

import isvi
from isvi.auto.natural import NaturalSteps

PAIRS = isvi.Reparameterization(num_samples=2, antithetic=True, signs=True)
OPTIONS = {"estimator": PAIRS, "optimizer": optax.sgd(1.0), "progress": False, "initial_scale": 0.001}


def test_a_gaussian_posterior_of_any_scale_is_found() -> None:
    """Means of rows with scales from 1e-3 to 1e3, 20 mini-batches. Steps end at length zero, so that the mean is an
    average over the last hundreds of records: a few hundredths of an sd; precisions are exact for signs."""
    scales = np.array([1e-3, 1.0, 1e3])
    y = np.random.default_rng(0).normal(size=(2000, 3)) * scales + 2 * scales
    model = isvi.Model(
        {"mean": isvi.real(3)},
        lambda z: jnp.sum(norm.logpdf(z["mean"], scale=1e5)),
        lambda z, rows: jnp.sum(norm.logpdf(rows["y"], z["mean"], jnp.asarray(scales, jnp.float32))),
    )
    fit = isvi.fit(
        model, {"y": y.astype(np.float32)}, algorithm=NaturalSteps(1500), batch_size=100, budget=3000, **OPTIONS
    )
    sd = scales / np.sqrt(2000)
    np.testing.assert_allclose((np.asarray(fit.params.loc) - y.mean(axis=0)) / sd, 0, atol=0.3)
    np.testing.assert_allclose(np.exp(np.asarray(fit.params.log_scale)) / sd, 1, atol=0.05)


def test_a_model_that_is_not_finite_beyond_an_edge_is_kept_inside() -> None:
    """log(1 - z) with all of the mass near the edge, and wide steps at first."""
    model = isvi.Model({"z": isvi.real()}, lambda z: 5 * jnp.log(1 - z["z"]) + 20 * z["z"])
    fit = isvi.fit(model, algorithm=NaturalSteps(500), budget=1000, initial={"z": -30.0}, **OPTIONS)
    assert fit.status.kind == "budget"
    assert np.isfinite(np.asarray(fit.params.loc)).all()
    assert -1 < float(fit.params.loc[0]) < 1
