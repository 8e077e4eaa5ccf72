"""A model that stops giving numbers in the middle of a fit."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import isvi

ALGORITHMS = [isvi.SGD(), isvi.ISGD(t=0.5), isvi.ISAG()]
ROWS = np.linspace(0, 1, 40, dtype=np.float32)


def fit(log_likelihood, algorithm, budget=400) -> isvi.Fit:
    model = isvi.Model({"m": isvi.real()}, lambda z: -0.5 * (z["m"] / 100) ** 2, log_likelihood)
    return isvi.fit(
        model, ROWS, algorithm=algorithm, optimizer=optax.adam(0.05), budget=budget, batch_size=10, initial_scale=0.01
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
def test_last_good_parameters_are_kept(algorithm):
    """The optimum is at 3, but beyond 1 the likelihood is NaN: the fit walks up to there and no further."""
    result = fit(lambda z, x: jnp.where(z["m"] > 1, jnp.nan, -0.1 * (z["m"] - 3) ** 2 * x.size), algorithm)
    assert result.status.kind == "diverged"
    assert not result.status.good
    assert "last good parameters were kept" in str(result.status)
    assert np.isfinite(result.mean()["m"])
    assert 0.8 < result.mean()["m"] < 1.5
    assert result.gradients < 400


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
def test_occasional_nans_are_skipped_and_counted(algorithm):
    """A mini-batch that holds the last row is NaN once m has left the start; the others carry on."""
    result = fit(
        lambda z, x: jnp.where((x.max() == 1.0) & (z["m"] > 0.2), jnp.nan, -0.1 * (z["m"] - 1) ** 2 * x.size), algorithm
    )
    assert result.status.kind == "budget"
    assert result.skipped > 5
    assert abs(result.mean()["m"] - 1) < 0.2
    assert np.isfinite(result.history.elbo).all()
