"""Comparing fits whose ELBOs are known."""

import json

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.stats import norm

import isvi
from isvi.results.compare import compare

STAY = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.0), "budget": 1}
ROWS = np.random.default_rng(0).normal(size=60)


def model(latents: int = 2) -> isvi.Model:
    return isvi.Model(
        {"w": isvi.real(latents)},
        lambda z: norm.logpdf(z["w"]).sum(),
        lambda z, x: norm.logpdf(x, z["w"].sum()).sum(),
    )


def staying(mean: float, scale: float = 0.1, rows: np.ndarray = ROWS, latents: int = 2, **options) -> isvi.Fit:
    return isvi.fit(
        model(latents), rows, initial={"w": jnp.full(latents, mean)}, initial_scale=scale, **STAY, **options
    )


def exact_elbo(mean: float, scale: float) -> float:
    rows = ROWS.astype(np.float32).astype(float)
    likelihood = -0.5 * ((rows - 2 * mean) ** 2 + 2 * scale**2 + np.log(2 * np.pi)).sum()
    return likelihood - (mean**2 + scale**2 + np.log(2 * np.pi)) + 2 * np.log(scale) + np.log(2 * np.pi * np.e)


def test_differences_against_the_closed_form():
    """At 5 standard errors; with common random numbers those of the difference are far smaller than of either."""
    table = compare(
        {"far": staying(0.3), "near": staying(0.05, batch_size=25), "full": staying(0.3, family=isvi.FullRank())}
    )
    assert table.best == "near"
    far = table["far"]
    assert far.elbo.value == pytest.approx(exact_elbo(0.3, 0.1), abs=5 * far.elbo.standard_error)
    exact = exact_elbo(0.05, 0.1) - exact_elbo(0.3, 0.1)
    assert far.behind.value == pytest.approx(exact, abs=5 * far.behind.standard_error)
    assert table["near"].behind == (0.0, 0.0)
    # The same noise and the same q, in another family.
    assert table["full"].elbo.value == pytest.approx(far.elbo.value, abs=1e-6)


def test_common_random_numbers_make_differences_sure():
    table = compare([staying(0.05), staying(0.051)])
    assert table["1"].behind.standard_error < 0.1 * table["1"].elbo.standard_error


def test_table():
    table = compare({"one": staying(0.1), "two": staying(0.2)}, num_samples=50)
    text = str(table)
    assert "behind the best" in text
    assert "50 draws" in text
    assert "<table>" in table._repr_html_()
    assert set(json.loads(json.dumps(table.to_dict()))) == {"one", "two"}
    assert table["one"].gradients == 1


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: staying(0.1, latents=3), "same latents"),
        (lambda: staying(0.1, rows=ROWS[:50]), "has 60 rows, 'b' has 50"),
        (lambda: staying(0.1, rows=ROWS + 1), "do not have the same sums"),
    ],
)
def test_what_cannot_be_compared(other, message):
    with pytest.raises(isvi.ConfigurationError, match=message):
        compare({"a": staying(0.1), "b": other()})


def test_nothing_to_compare():
    with pytest.raises(isvi.ConfigurationError, match="at least one fit"):
        compare([])
